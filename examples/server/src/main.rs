//! `opfuse-server MODEL.pt2`: see `USAGE`.

use opfuse_server::{Limits, model::Model, serve};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

const USAGE: &str = "usage: opfuse-server MODEL.pt2 [--listen 127.0.0.1:8080] [--max-batch ROWS] [--max-delay-ms N]
                     [--max-queue REQUESTS] [--max-body BYTES] [--max-stop-s N]";

struct Settings {
    model: String,
    listen: String,
    limits: Limits,
}

#[tokio::main]
async fn main() -> ExitCode {
    let settings = match settings(std::env::args().skip(1)) {
        Ok(settings) => settings,
        Err(what) => {
            eprintln!("opfuse-server: {what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("opfuse-server: {what}");
            ExitCode::FAILURE
        }
    }
}

async fn run(settings: Settings) -> Result<(), String> {
    let model = Model::load(&settings.model)?;
    let listener = TcpListener::bind(&settings.listen).await;
    let listener = listener.map_err(|error| format!("cannot listen on {}: {error}", settings.listen))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("{} on http://{address}", model.describe());
    // Whoever started the service may read this from a pipe.
    io::stdout().flush().map_err(|error| error.to_string())?;
    serve(listener, Arc::new(model), settings.limits, stopped()).await.map_err(|error| error.to_string())
}

/// Ready at ctrl-c, and where there is such a signal at SIGTERM.
async fn stopped() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        () = interrupted => {}
        () = terminated => {}
    }
}

fn settings(mut args: impl Iterator<Item = String>) -> Result<Settings, String> {
    let (mut model, mut listen, mut limits) = (None, "127.0.0.1:8080".to_owned(), Limits::default());
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match &*arg {
            "--listen" => listen = value()?,
            "--max-batch" => limits.max_batch = number(&arg, &value()?)? as usize,
            "--max-delay-ms" => limits.max_delay = Duration::from_millis(number(&arg, &value()?)?),
            "--max-queue" => limits.max_queue = number(&arg, &value()?)? as usize,
            "--max-body" => limits.max_body = number(&arg, &value()?)? as usize,
            "--max-stop-s" => limits.max_stop = Duration::from_secs(number(&arg, &value()?)?),
            _ if arg.starts_with('-') => return Err(format!("{arg} is unknown")),
            _ if model.is_some() => return Err(format!("one model is served, and {arg} is a second one")),
            _ => model = Some(arg),
        }
    }
    let model = model.ok_or("name a model")?;
    if limits.max_batch == 0 || limits.max_queue == 0 {
        return Err("a batch has at least one row, and a queue one request".into());
    }
    Ok(Settings { model, listen, limits })
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    // A queue has at most as many permits as a semaphore of 32 bits.
    text.parse()
        .ok()
        .filter(|&number| number < 1 << 28)
        .ok_or_else(|| format!("{name} is {text:?}, and takes a number"))
}
