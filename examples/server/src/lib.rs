//! A service that answers requests by a model: a program that PyTorch exported to a `.pt2` file.
//!
//! | file | what it answers |
//! |---|---|
//! | `model` | how does JSON become tensors, and how do rows of a batch become answers? |
//! | `batcher` | which requests run together, and which are refused? |
//! | `routes` | what is at each address? |
//! | `metrics` | what is counted? |
//!
//! An answer has the bits that its rows have alone, whoever else is in the batch: docs/batch_invariance.md says why.

pub mod batcher;
pub mod metrics;
pub mod model;
pub mod routes;

use batcher::Batcher;
use metrics::Metrics;
use model::Model;
use std::future::{Future, IntoFuture};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What bounds the work of a service.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most rows that run together, and so the most of a request.
    pub max_batch: usize,
    /// How long the first request of a batch waits for others.
    pub max_delay: Duration,
    /// The most requests that wait to run. Further ones are refused.
    pub max_queue: usize,
    /// The most bytes of a body.
    pub max_body: usize,
    /// How long connections may take to end once the service is told to stop.
    pub max_stop: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_batch: 32,
            max_delay: Duration::from_millis(2),
            max_queue: 256,
            max_body: 1 << 20,
            max_stop: Duration::from_secs(10),
        }
    }
}

/// Serves until `stop` is ready. Requests that were accepted by then are answered.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    model: Arc<Model>,
    limits: Limits,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let metrics = Arc::new(Metrics::default());
    let (batcher, running) = Batcher::start(model, limits, metrics.clone());
    let (is_stopping, mut stopping) = watch::channel(false);
    let stop = async move {
        stop.await;
        // The receiver below lives as long as the service.
        is_stopping.send_replace(true);
    };
    let late = async move {
        // An error says that the service has ended.
        let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
        tokio::time::sleep(limits.max_stop).await;
    };
    let server = axum::serve(listener, routes::routes(batcher, limits)).with_graceful_shutdown(stop);
    tokio::select! {
        served = server.into_future() => {
            served?;
            // The last sender of requests is gone, so the batcher ends when its queue is empty.
            running.await.map_err(io::Error::other)
        }
        () = late => Err(io::Error::new(io::ErrorKind::TimedOut, "connections were open for too long after the stop")),
    }
}
