//! Threads that prepare batches ahead.
//!
//! The consumer hands out numbers of batches, a few more than there are threads. So at most these are in memory,
//! whoever is slow. A thread ends when there are no numbers left and none will come.

use super::dataset::Dataset;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The batch of these samples. A panic of the data set becomes an error.
pub(super) fn batch<D: Dataset>(dataset: &D, indices: &[usize]) -> Result<D::Item> {
    let _unrecorded = no_grad();
    let load = || {
        let samples = indices.iter().map(|&index| dataset.get(index)).collect::<Result<Vec<_>>>()?;
        dataset.collate(samples)
    };
    catch_unwind(AssertUnwindSafe(load)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::argument("Loader", format!("the data set panicked for samples {indices:?}: {text}; mend its get")))
    })
}

/// Threads over one epoch.
pub(super) struct Workers<D: Dataset> {
    /// Numbers of batches to prepare. `None` once no more will come.
    tickets: Option<Sender<usize>>,
    results: Receiver<(usize, Result<D::Item>)>,
    /// Batches that came before their turn.
    early: BTreeMap<usize, Result<D::Item>>,
    handed_out: usize,
    n_batches: usize,
    threads: Vec<JoinHandle<()>>,
}

impl<D: Dataset> Workers<D> {
    /// Starts threads that prepare the batches from `first` on.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start(
        n_threads: usize,
        dataset: &Arc<D>,
        batches: &Arc<Vec<Vec<usize>>>,
        first: usize,
    ) -> Result<Workers<D>> {
        let (tickets, waiting) = channel::<usize>();
        let (done, results) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let n_batches = batches.len();
        let mut workers = Workers {
            tickets: Some(tickets),
            results,
            early: BTreeMap::new(),
            handed_out: first,
            n_batches,
            threads: Vec::new(),
        };
        for _ in 0..n_threads {
            let (dataset, batches, waiting, done) = (dataset.clone(), batches.clone(), waiting.clone(), done.clone());
            let work = move || {
                // The lock is held while a thread waits for a number, and not while it prepares a batch.
                let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok(number) = next() {
                    if done.send((number, batch(&*dataset, &batches[number]))).is_err() {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new().name("opfuse-loader".to_owned()).spawn(work);
            let none = |error| Error::argument("Loader", format!("no thread: {error}; use fewer workers"));
            workers.threads.push(thread.map_err(none)?);
        }
        (0..2 * n_threads).for_each(|_| workers.hand_out());
        Ok(workers)
    }

    /// Hands out the number of the next batch, or says that there is none.
    fn hand_out(&mut self) {
        if self.handed_out < self.n_batches {
            // Threads live as long as there are numbers, so somebody takes it.
            let _ = self.tickets.as_ref().map(|tickets| tickets.send(self.handed_out));
            self.handed_out += 1;
        } else {
            self.tickets = None;
        }
    }

    /// The batch with this number. Numbers are asked for in order.
    pub(super) fn batch(&mut self, number: usize) -> Result<D::Item> {
        self.hand_out();
        loop {
            if let Some(found) = self.early.remove(&number) {
                return found;
            }
            match self.results.recv() {
                Ok((at, found)) => drop(self.early.insert(at, found)),
                Err(_) => return Err(Error::argument("Loader", "all threads of the loader have ended; start again")),
            }
        }
    }
}

impl<D: Dataset> Drop for Workers<D> {
    fn drop(&mut self) {
        self.tickets = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has told so through its results.
            let _ = thread.join();
        }
    }
}
