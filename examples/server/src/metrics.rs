//! What is counted, as text for Prometheus.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the histogram of times, in seconds.
const SECONDS: [f64; 12] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0];
/// Upper bounds of the histogram of rows in a batch.
const ROWS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
/// The codes that the service answers with.
const CODES: [u16; 5] = [200, 400, 413, 500, 503];

/// Counters of a service since its start.
#[derive(Default)]
pub struct Metrics {
    answers: [AtomicU64; CODES.len()],
    n_cancelled: AtomicU64,
    seconds: Histogram<{ SECONDS.len() }>,
    rows: Histogram<{ ROWS.len() }>,
}

/// How many values are at most each bound, how many there are, and their sum.
struct Histogram<const N: usize>(Mutex<([u64; N], u64, f64)>);

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Histogram(Mutex::new(([0; N], 0, 0.0)))
    }
}

impl<const N: usize> Histogram<N> {
    fn add(&self, value: f64, bounds: &[f64; N]) {
        let mut inner = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (counts, count, sum) = &mut *inner;
        let reached = counts.iter_mut().zip(bounds).filter(|(_, bound)| value <= **bound);
        reached.for_each(|(count, _)| *count += 1);
        *count += 1;
        *sum += value;
    }

    fn write(&self, out: &mut String, name: &str, help: &str, bounds: &[f64; N]) {
        let (counts, count, sum) = *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        head(out, name, "histogram", help);
        for (bound, reached) in bounds.iter().zip(counts) {
            line(out, &format!("{name}_bucket{{le=\"{bound}\"}}"), reached);
        }
        line(out, &format!("{name}_bucket{{le=\"+Inf\"}}"), count);
        line(out, &format!("{name}_sum"), sum);
        line(out, &format!("{name}_count"), count);
    }
}

impl Metrics {
    /// Counts an answer to a request for a prediction.
    pub fn answered(&self, code: u16, after: Duration) {
        if let Some(at) = CODES.iter().position(|known| *known == code) {
            self.answers[at].fetch_add(1, Relaxed);
        }
        self.seconds.add(after.as_secs_f64(), &SECONDS);
    }

    /// Counts a batch of so many rows.
    pub fn batch(&self, rows: usize) {
        self.rows.add(rows as f64, &ROWS);
    }

    /// Counts a request whose client went away before it ran.
    pub fn cancelled(&self) {
        self.n_cancelled.fetch_add(1, Relaxed);
    }

    /// The text, with the length of the queue as it is now.
    pub fn text(&self, queue_length: usize) -> String {
        let mut out = String::new();
        let name = "opfuse_requests_total";
        head(&mut out, name, "counter", "Requests for predictions that were answered, by status code.");
        for (code, count) in CODES.iter().zip(&self.answers) {
            line(&mut out, &format!("{name}{{code=\"{code}\"}}"), count.load(Relaxed));
        }
        let name = "opfuse_requests_cancelled_total";
        head(&mut out, name, "counter", "Requests whose clients went away before they ran.");
        line(&mut out, name, self.n_cancelled.load(Relaxed));
        let name = "opfuse_queue_length";
        head(&mut out, name, "gauge", "Requests that wait to run.");
        line(&mut out, name, queue_length);
        self.rows.write(&mut out, "opfuse_batch_rows", "Rows of the batches that ran.", &ROWS);
        let help = "Time from a whole request to its answer, in seconds.";
        self.seconds.write(&mut out, "opfuse_request_seconds", help, &SECONDS);
        out
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Text never fails to be appended to.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name} {value}");
}
