//! The service on the loopback: who asks gets the answer to what was asked, in the bits that it has alone.

mod client;

use client::{Client, bits, counter, message};
use opfuse::autograd::no_grad;
use opfuse::exported::Program;
use opfuse::{DType, Tensor};
use opfuse_server::model::Model;
use opfuse_server::{Limits, serve};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// An encoder of sequences of 2 to 32 vectors of 32 floats, and a language model on words 0 to 98.
const ENCODER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/formats/exported/encoder.pt2");
const BERT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/formats/exported/bert.pt2");
const WIDTH: usize = 32;

struct Service {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<std::io::Result<()>>,
}

impl Service {
    async fn start(model: &str, limits: Limits) -> Service {
        let model = Arc::new(Model::load(model).expect("the model is checked in"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let (stop, stopped) = oneshot::channel();
        let stopped = async { drop(stopped.await) };
        Service { address, stop, running: tokio::spawn(serve(listener, model, limits, stopped)) }
    }

    async fn metrics(&self) -> String {
        Client::new(self.address).await.get("/metrics").await.1
    }

    async fn end(self) {
        self.stop.send(()).expect("the service runs");
        self.running.await.expect("it does not panic").expect("it ends in time");
    }
}

/// Floats of request `number` of a client, for `rows` sequences of a length.
fn floats(client: usize, number: usize, rows: usize, length: usize) -> Vec<f32> {
    let value = |at: usize| ((at * 37 + client * 1009 + number * 131) as f32 * 0.013).sin();
    (0..rows * length * WIDTH).map(value).collect()
}

fn body(floats: &[f32], length: usize) -> String {
    let rows: Vec<Vec<&[f32]>> = floats.chunks(length * WIDTH).map(|row| row.chunks(WIDTH).collect()).collect();
    json!({ "inputs": { "src": rows } }).to_string()
}

/// The bits of each row alone, one after another.
fn alone(program: &Program, floats: &[f32], length: usize) -> Vec<u32> {
    let _unrecorded = no_grad();
    let run = |row: &[f32]| {
        let input = Tensor::from_slice(row, &[1, length, WIDTH]).expect("the counts agree");
        program.call(&[input]).expect("it runs")[0].to_vec::<f32>().expect("it has floats")
    };
    floats.chunks(length * WIDTH).flat_map(run).map(f32::to_bits).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_64_clients_gets_the_bits_of_its_own_rows() {
    const CLIENTS: usize = 64;
    const REQUESTS: usize = 6;
    let service = Service::start(ENCODER, Limits { max_delay: Duration::from_millis(20), ..Limits::default() }).await;
    let program = Arc::new(Program::load(ENCODER).expect("the model is checked in"));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (address, program) = (service.address, program.clone());
        clients.spawn(async move {
            let mut connection = Client::new(address).await;
            for number in 0..REQUESTS {
                let (rows, length) = (1 + (client + number) % 3, 4 + 2 * (client % 2));
                let floats = floats(client, number, rows, length);
                let (status, answer) = connection.predict(&body(&floats, length)).await;
                assert_eq!(status, 200, "{answer}");
                assert_eq!(bits(&answer), alone(&program, &floats, length), "client {client}, request {number}");
            }
        });
    }
    clients.join_all().await;
    let metrics = service.metrics().await;
    let n_batches = counter(&metrics, "opfuse_batch_rows_count");
    assert_eq!(counter(&metrics, "opfuse_requests_total{code=\"200\"}"), (CLIENTS * REQUESTS) as u64);
    assert_eq!(counter(&metrics, "opfuse_request_seconds_count"), (CLIENTS * REQUESTS) as u64);
    assert!(n_batches < (CLIENTS * REQUESTS / 2) as u64, "{n_batches} batches: requests ran alone");
    assert_eq!(counter(&metrics, "opfuse_queue_length"), 0);
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_client_goes_away_does_not_run() {
    let service = Service::start(ENCODER, Limits { max_delay: Duration::from_millis(1500), ..Limits::default() }).await;
    let program = Program::load(ENCODER).expect("the model is checked in");
    let (lost, kept) = (floats(0, 0, 1, 4), floats(1, 0, 1, 4));
    let mut leaving = Client::new(service.address).await;
    leaving.send("POST", "/v1/predict", &body(&lost, 4)).await;
    let mut staying = Client::new(service.address).await;
    staying.send("POST", "/v1/predict", &body(&kept, 4)).await;
    while counter(&service.metrics().await, "opfuse_queue_length") < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(leaving);
    let (status, answer) = staying.receive().await;
    assert_eq!((status, bits(&answer)), (200, alone(&program, &kept, 4)));
    let metrics = service.metrics().await;
    assert_eq!(counter(&metrics, "opfuse_requests_cancelled_total"), 1);
    assert_eq!((counter(&metrics, "opfuse_batch_rows_count"), counter(&metrics, "opfuse_batch_rows_sum")), (1, 1));
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_are_refused_and_the_service_goes_on() {
    const QUEUE: usize = 4;
    let limits = Limits { max_delay: Duration::from_millis(1500), max_queue: QUEUE, ..Limits::default() };
    let service = Service::start(ENCODER, limits).await;
    let program = Arc::new(Program::load(ENCODER).expect("the model is checked in"));
    let mut clients = JoinSet::new();
    for client in 0..64 {
        let (address, program) = (service.address, program.clone());
        clients.spawn(async move {
            let floats = floats(client, 0, 1, 4);
            let answer = Client::new(address).await.predict(&body(&floats, 4)).await;
            match answer.0 {
                200 => assert_eq!(bits(&answer.1), alone(&program, &floats, 4)),
                _ => {
                    assert_eq!(answer.0, 503, "{answer:?}");
                    assert!(message(&answer).contains("4 requests wait already"), "{answer:?}");
                }
            }
            answer.0
        });
    }
    let codes = clients.join_all().await;
    let n_served = codes.iter().filter(|code| **code == 200).count();
    assert!((QUEUE..64).contains(&n_served), "{n_served} of 64 were served");
    let mut client = Client::new(service.address).await;
    assert_eq!(client.get("/healthz").await, (200, "ok\n".to_owned()));
    let floats = floats(7, 7, 2, 4);
    let (status, answer) = client.predict(&body(&floats, 4)).await;
    assert_eq!((status, bits(&answer)), (200, alone(&program, &floats, 4)));
    drop(client);
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_wrong_is_refused_with_what_is_wrong() {
    let service = Service::start(ENCODER, Limits { max_batch: 4, max_body: 1 << 15, ..Limits::default() }).await;
    let row = |width: usize| vec![vec![0.5; width]; 4];
    let cases = [
        ("{\"inputs\": ".to_owned(), 400, "the body is not JSON: EOF"),
        ("[1]".to_owned(), 400, "no object `inputs`"),
        (json!({"inputs": {}}).to_string(), 400, "input \"src\" is missing; the program takes src: f32["),
        (json!({"inputs": {"x": [], "src": []}}).to_string(), 400, "input \"x\" is unknown"),
        (json!({"inputs": {"src": []}}).to_string(), 400, "input \"src\" has sizes [0]"),
        (json!({"inputs": {"src": [row(31)]}}).to_string(), 400, "has sizes [1, 4, 31], and the program takes src"),
        (json!({"inputs": {"src": [row(32), row(32)[..1]]}}).to_string(), 400, "\"src\"[1] is an array of 1, and"),
        (body(&[1.0; 4 * WIDTH], 4).replace("1.0]", "\"a\"]"), 400, "\"src\"[0][0][31] is text, and no number"),
        (body(&[1.0; 5 * 4 * WIDTH], 4), 400, "there are 5 rows; send at most 4"),
        (body(&[1.0; WIDTH], 1), 400, "makes s98 = 1, and the program allows 2 to 32"),
        (" ".repeat((1 << 15) + 1), 413, "more than 32768 bytes"),
    ];
    for (body, status, part) in cases {
        let answer = Client::new(service.address).await.predict(&body).await;
        assert_eq!(answer.0, status, "{answer:?}");
        assert!(message(&answer).contains(part), "{part:?} is missing in {answer:?}");
    }
    assert_eq!(Client::new(service.address).await.get("/v1/predict").await.0, 405);
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_fails_does_not_fail_others() {
    let service = Service::start(BERT, Limits { max_delay: Duration::from_millis(500), ..Limits::default() }).await;
    let ids = |last: i64| json!({"inputs": {"inputs_0": [[1, 2, 3, last]]}}).to_string();
    let (mut right, mut wrong) = (Client::new(service.address).await, Client::new(service.address).await);
    right.send("POST", "/v1/predict", &ids(4)).await;
    wrong.send("POST", "/v1/predict", &ids(1 << 20)).await;
    let (status, answer) = right.receive().await;
    let program = Program::load(BERT).expect("the model is checked in");
    let input = Tensor::from_slice(&[1i64, 2, 3, 4], &[1, 4]).and_then(|ids| ids.to_dtype(DType::I64));
    let _unrecorded = no_grad();
    let outputs = program.call(&[input.expect("the counts agree")]).expect("it runs");
    let wanted: Vec<u32> = outputs[0].to_vec::<f32>().expect("floats").into_iter().map(f32::to_bits).collect();
    assert_eq!((status, bits(&answer)), (200, wanted));
    let answer = wrong.receive().await;
    assert_eq!(answer.0, 400, "{answer:?}");
    assert!(message(&answer).contains("1048576"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_is_answered_after_the_stop() {
    let service = Service::start(ENCODER, Limits { max_delay: Duration::from_millis(500), ..Limits::default() }).await;
    let program = Program::load(ENCODER).expect("the model is checked in");
    let floats = floats(3, 0, 2, 4);
    let mut client = Client::new(service.address).await;
    client.send("POST", "/v1/predict", &body(&floats, 4)).await;
    while counter(&service.metrics().await, "opfuse_queue_length") < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let address = service.address;
    let ending = tokio::spawn(service.end());
    let (status, answer) = client.receive().await;
    assert_eq!((status, bits(&answer)), (200, alone(&program, &floats, 4)));
    ending.await.expect("the service ends");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the service still listens");
}

/// The program itself: it says where it listens, and ends well at SIGTERM.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn the_program_ends_at_sigterm() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let mut command = Command::new(env!("CARGO_BIN_EXE_opfuse-server"));
    command.args([ENCODER, "--listen", "127.0.0.1:0", "--max-delay-ms", "300"]);
    let mut process = command.stdout(Stdio::piped()).spawn().expect("it is built");
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut line).expect("it says where it is");
    let address = line.trim().rsplit("http://").next().and_then(|text| text.parse().ok());
    let mut client = Client::new(address.unwrap_or_else(|| panic!("no address in {line:?}"))).await;
    assert_eq!(client.get("/healthz").await.0, 200);
    let floats = floats(5, 0, 1, 4);
    client.send("POST", "/v1/predict", &body(&floats, 4)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let kill = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(kill.expect("there is a kill").success());
    assert_eq!(client.receive().await.0, 200);
    assert!(process.wait().expect("it was started").success());
}
