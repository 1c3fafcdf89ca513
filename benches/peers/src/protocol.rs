//! How a driver talks to a worker.
//!
//! With `--serve`, commands come as lines: `setup ROW`, `run SECONDS MOST_SAMPLES`, `host CALLS`, `end` and `quit`.
//! Every answer is a line of `@@` and a JSON object. So is one that is sent when the worker is ready. Other lines of
//! output mean nothing. A failure is `"ok": false` with an `error`, and the worker goes on. A row is its number, and
//! what `scale` reads.
//!
//! With `--workloads A,B`, the rows run once, and a JSON object is printed for each. The exit code is 1 if a row fails.
//!
//! The JSON is written by hand: objects of numbers and one kind of string are not worth a dependency.

use crate::session::{Chunk, First, Memory, Peer, Session};
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

/// What the command line asks for.
pub(crate) struct Request {
    pub(crate) peer: String,
    pub(crate) threads: usize,
    /// The kind of device, `cpu` or `cuda`.
    pub(crate) device: String,
    task: Task,
    /// Seconds per row, where rows run once.
    budget: f64,
}

enum Task {
    Serve,
    Once(Vec<String>),
}

impl Request {
    pub(crate) fn of_arguments() -> Result<Request, String> {
        let mut request =
            Request { peer: String::new(), threads: 1, device: "cpu".into(), task: Task::Serve, budget: 1.0 };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} is followed by a value"));
            match name.as_str() {
                "--serve" => request.task = Task::Serve,
                "--peer" => request.peer = value()?,
                "--threads" => request.threads = number(&value()?)?,
                "--device" => request.device = value()?,
                "--budget" => request.budget = number(&value()?)?,
                "--workloads" => request.task = Task::Once(value()?.split(',').map(str::to_owned).collect()),
                other => return Err(format!("no argument {other}")),
            }
        }
        Ok(request)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number that fits here"))
}

/// Says on the error output what is wrong with the command line.
pub(crate) fn refuse(error: &str) -> ExitCode {
    // An error here cannot be reported anywhere.
    let _ = writeln!(io::stderr(), "{error}");
    ExitCode::FAILURE
}

/// Does what was asked for. Fails if the output is closed, or if a row fails that runs once.
pub(crate) fn run<P: Peer>(request: &Request, peer: P) -> ExitCode {
    let mut session = Session::new(peer);
    let done = match &request.task {
        Task::Serve => serve(&mut session),
        Task::Once(rows) => each_once(&mut session, request, rows),
    };
    exit_code(done)
}

/// What a process ends with after it has written its output.
pub(crate) fn exit_code(done: io::Result<()>) -> ExitCode {
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn serve<P: Peer>(session: &mut Session<P>) -> io::Result<()> {
    say(&format!("@@{{\"ready\":true,\"version\":\"{}\"}}", P::VERSION))?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            [] => continue,
            ["quit"] => break,
            ["setup", row] => session.set_up(row).map(|first| of_first(&first)),
            ["run", budget, most] => run_chunk(session, budget, most),
            ["host", n_calls] => host(session, n_calls),
            ["end"] => Ok(of_memory(&session.end())),
            _ => Err(format!("no command {line:?}")),
        };
        say(&format!("@@{}", answer.unwrap_or_else(|error| of_error(&error))))?;
    }
    Ok(())
}

fn run_chunk<P: Peer>(session: &mut Session<P>, budget: &str, most: &str) -> Result<String, String> {
    session.run(number(budget)?, number(most)?).map(|chunk| of_chunk(&chunk))
}

fn host<P: Peer>(session: &mut Session<P>, n_calls: &str) -> Result<String, String> {
    session.host(number(n_calls)?).map(|seconds| format!("{{\"host_s\":{seconds:e}}}"))
}

fn each_once<P: Peer>(session: &mut Session<P>, request: &Request, rows: &[String]) -> io::Result<()> {
    let Request { peer, threads, device, budget, .. } = request;
    let mut done = Ok(());
    for row in rows {
        let found = once(session, row, *budget).unwrap_or_else(|error| {
            done = Err(io::ErrorKind::Other.into());
            of_error(&error)
        });
        say(&format!(
            "{{\"peer\":\"{peer}\",\"workload\":\"{row}\",\"threads\":{threads},\"device\":\"{device}\",{}",
            &found[1..]
        ))?;
    }
    done
}

fn once<P: Peer>(session: &mut Session<P>, row: &str, budget: f64) -> Result<String, String> {
    let first = session.set_up(row)?;
    let mut seconds = session.run(budget, usize::MAX)?.seconds;
    seconds.sort_by(f64::total_cmp);
    let (median, memory) = (seconds[seconds.len() / 2], session.end());
    Ok(format!(
        "{{\"min_s\":{:e},\"median_s\":{median:e},\"n\":{},\"compile_s\":{:e},\"check\":{},{}",
        seconds[0],
        seconds.len(),
        (first.first - median).max(0.0),
        json_number(first.check),
        &of_memory(&memory)[1..]
    ))
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn of_first(first: &First) -> String {
    let First { first, estimate, check } = first;
    format!("{{\"ok\":true,\"first_s\":{first:e},\"est_s\":{estimate:e},\"check\":{}}}", json_number(*check))
}

fn of_chunk(chunk: &Chunk) -> String {
    let seconds: Vec<String> = chunk.seconds.iter().map(|seconds| format!("{seconds:e}")).collect();
    format!("{{\"t\":[{}],\"inner\":{}}}", seconds.join(","), chunk.n_calls)
}

fn of_memory(memory: &Memory) -> String {
    format!("{{\"peak_rss_mb\":{:.1},\"base_rss_mb\":{:.1}}}", memory.peak, memory.before)
}

fn of_error(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    let plain: String = line.chars().map(|c| if c == '"' || c == '\\' || c.is_control() { ' ' } else { c }).collect();
    format!("{{\"ok\":false,\"error\":\"{plain}\"}}")
}

/// JSON has no NaN and no infinities.
fn json_number(value: f64) -> String {
    if value.is_finite() { format!("{value:e}") } else { "null".into() }
}
