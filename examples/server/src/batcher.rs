//! Requests in batches: what waits, what runs together, and what is refused.
//!
//! A request waits until the batch before it has run, and then until there are enough rows or until the first of its
//! batch has waited long enough. Batches run one after another on a thread of their own; the library uses all cores for
//! one batch. A request whose client went away before its batch runs is dropped.

use crate::Limits;
use crate::metrics::Metrics;
use crate::model::{Failure, Model, Outputs, Rows};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// Why a request has no outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Too many others wait.
    Overloaded,
    /// There are no outputs.
    Failed(Failure),
}

/// A request that waits.
struct Job {
    rows: Rows,
    arrived: Instant,
    reply: oneshot::Sender<Result<Outputs, Refusal>>,
    /// A place in the queue, which is given back when the batch runs.
    _place: OwnedSemaphorePermit,
}

/// The way into the queue.
#[derive(Clone)]
pub struct Batcher {
    pub model: Arc<Model>,
    pub metrics: Arc<Metrics>,
    sender: mpsc::UnboundedSender<Job>,
    places: Arc<Semaphore>,
    max_queue: usize,
}

impl Batcher {
    /// Starts the task that runs batches. It ends when all clones of the batcher are gone and all requests answered.
    pub fn start(model: Arc<Model>, limits: Limits, metrics: Arc<Metrics>) -> (Batcher, JoinHandle<()>) {
        // The places bound how many requests the channel holds.
        let (sender, receiver) = mpsc::unbounded_channel();
        let queue =
            Queue { receiver, waiting: VecDeque::new(), limits, model: model.clone(), metrics: metrics.clone() };
        let running = tokio::spawn(queue.run());
        let places = Arc::new(Semaphore::new(limits.max_queue));
        (Batcher { model, metrics, sender, places, max_queue: limits.max_queue }, running)
    }

    /// Waits for the outputs of some rows. A caller that is dropped takes the request with it.
    ///
    /// # Errors
    /// If too many requests wait, or if the program fails.
    pub async fn predict(&self, rows: Rows) -> Result<Outputs, Refusal> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| Refusal::Overloaded)?;
        let (reply, answer) = oneshot::channel();
        let gone = || Refusal::Failed(Failure::Service("the batch ended without an answer".into()));
        self.sender.send(Job { rows, arrived: Instant::now(), reply, _place: place }).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// How many requests wait.
    pub fn queue_length(&self) -> usize {
        self.max_queue - self.places.available_permits()
    }
}

/// The other end of the queue.
struct Queue {
    receiver: mpsc::UnboundedReceiver<Job>,
    /// Requests that came, the oldest first.
    waiting: VecDeque<Job>,
    limits: Limits,
    model: Arc<Model>,
    metrics: Arc<Metrics>,
}

impl Queue {
    async fn run(mut self) {
        while let Some(batch) = self.batch().await {
            let batch: Vec<Job> = batch.into_iter().filter(|job| self.is_wanted(job)).collect();
            if batch.is_empty() {
                continue;
            }
            let (model, metrics) = (self.model.clone(), self.metrics.clone());
            // A panic ends its batch alone: the replies are dropped, and their clients are told.
            let _ = tokio::task::spawn_blocking(move || answer(&model, &metrics, batch)).await;
        }
    }

    /// The next requests that run together, or `None` after the last one.
    async fn batch(&mut self) -> Option<Vec<Job>> {
        if self.waiting.is_empty() {
            self.waiting.push_back(self.receiver.recv().await?);
        }
        let deadline = self.waiting.front()?.arrived + self.limits.max_delay;
        loop {
            // What has come by now is looked at even after the deadline.
            while let Ok(job) = self.receiver.try_recv() {
                self.waiting.push_back(job);
            }
            if self.chosen().is_full {
                break;
            }
            match timeout_at(deadline, self.receiver.recv()).await {
                Ok(Some(job)) => self.waiting.push_back(job),
                Ok(None) | Err(_) => break,
            }
        }
        let mut is_chosen = self.chosen().is_chosen.into_iter();
        let (batch, waiting): (VecDeque<Job>, VecDeque<Job>) =
            self.waiting.drain(..).partition(|_| is_chosen.next() == Some(true));
        self.waiting = waiting;
        Some(Vec::from(batch))
    }

    /// Which requests run next: the oldest one, and those after it that fit to it and into the batch.
    fn chosen(&self) -> Chosen {
        let (mut count, mut is_full) = (0, false);
        let mut choose = |job: &Job| {
            let fits = job.rows.fits(&self.waiting[0].rows);
            let has_room = count + job.rows.count <= self.limits.max_batch;
            count += if fits && has_room { job.rows.count } else { 0 };
            is_full |= fits && !has_room || count == self.limits.max_batch;
            fits && has_room
        };
        let is_chosen = self.waiting.iter().map(&mut choose).collect();
        Chosen { is_chosen, is_full }
    }

    /// Whether a client waits for the answer.
    fn is_wanted(&self, job: &Job) -> bool {
        let is_wanted = !job.reply.is_closed();
        if !is_wanted {
            self.metrics.cancelled();
        }
        is_wanted
    }
}

/// The next batch.
struct Chosen {
    /// For each request that waits, whether it is in the batch.
    is_chosen: Vec<bool>,
    /// Whether a further one would not fit.
    is_full: bool,
}

/// Runs a batch and answers its requests. If it fails, each request runs alone, so that what is wrong with one is told
/// to that one.
fn answer(model: &Model, metrics: &Metrics, batch: Vec<Job>) {
    let (rows, replies): (Vec<Rows>, Vec<_>) = batch.into_iter().map(|job| (job.rows, job.reply)).unzip();
    metrics.batch(rows.iter().map(|rows| rows.count).sum());
    let together: Vec<&Rows> = rows.iter().collect();
    let outputs: Vec<Result<Outputs, Refusal>> = match model.run(&together) {
        Ok(outputs) => outputs.into_iter().map(Ok).collect(),
        Err(what) if rows.len() == 1 => vec![Err(Refusal::Failed(what))],
        Err(_) => rows.iter().map(|rows| alone(model, rows)).collect(),
    };
    for (reply, outputs) in replies.into_iter().zip(outputs) {
        // A client that went away in the meantime needs no answer.
        let _ = reply.send(outputs);
    }
}

fn alone(model: &Model, rows: &Rows) -> Result<Outputs, Refusal> {
    let outputs = model.run(&[rows]).map_err(Refusal::Failed)?;
    outputs.into_iter().next().ok_or_else(|| Refusal::Failed(Failure::Service("there is no output".into())))
}
