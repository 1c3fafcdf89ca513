//! A client of the service, with as much of HTTP as that needs.

use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection, for one request after another.
pub(crate) struct Client(TcpStream);

/// The status and the body of an answer.
pub(crate) type Answer = (u16, String);

impl Client {
    pub(crate) async fn new(address: SocketAddr) -> Client {
        Client(TcpStream::connect(address).await.expect("the service listens"))
    }

    /// Sends a request, and does not wait.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &str) {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len());
        self.0.write_all(format!("{head}{body}").as_bytes()).await.expect("the service reads");
    }

    /// Reads an answer.
    pub(crate) async fn receive(&mut self) -> Answer {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.read(&mut bytes).await;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("an answer has a status");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|text| text.parse().ok()).expect("an answer has a length");
        while bytes.len() < end + length {
            self.read(&mut bytes).await;
        }
        (status, String::from_utf8_lossy(&bytes[end..]).into_owned())
    }

    async fn read(&mut self, bytes: &mut Vec<u8>) {
        let read = self.0.read_buf(bytes).await.expect("the service answers");
        assert!(read > 0, "the service closed the connection after {:?}", String::from_utf8_lossy(bytes));
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, "").await;
        self.receive().await
    }

    pub(crate) async fn predict(&mut self, body: &str) -> Answer {
        self.send("POST", "/v1/predict", body).await;
        self.receive().await
    }
}

/// The message of a refusal.
pub(crate) fn message(answer: &Answer) -> String {
    let body: Value = serde_json::from_str(&answer.1).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    body["error"].as_str().unwrap_or_else(|| panic!("no message: {answer:?}")).to_owned()
}

/// The bits of the first output of an answer.
pub(crate) fn bits(body: &str) -> Vec<u32> {
    fn walk(value: &Value, out: &mut Vec<u32>) {
        match value {
            Value::Array(parts) => parts.iter().for_each(|part| walk(part, out)),
            number => out.push((number.as_f64().expect("an output is a number") as f32).to_bits()),
        }
    }
    let body: Value = serde_json::from_str(body).expect("an answer is JSON");
    let mut all = Vec::new();
    walk(&body["outputs"][0], &mut all);
    all
}

/// The value of a counter.
pub(crate) fn counter(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{metrics}"))
}
