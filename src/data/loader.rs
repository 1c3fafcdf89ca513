//! Loaders: batches of samples in an order that a seed gives.

use super::dataset::Dataset;
use super::workers::{Workers, batch};
use crate::error::{Error, Result};
use crate::formats::StateDict;
use crate::ir::DType;
use crate::nn::State;
use crate::tensor::Tensor;
use std::sync::Arc;

/// Batches of a data set, epoch after epoch.
///
/// Its state is a place: a seed, an epoch, and the number of batches that were handed out. Saved with a
/// [`Checkpoint`](crate::nn::Checkpoint), the next epoch begins with the batch that comes next.
///
/// ```
/// use opfuse::data::{Loader, TensorDataset};
/// use opfuse::{DType, Result, Tensor};
///
/// # fn main() -> Result<()> {
/// let data = TensorDataset::new(Tensor::ones(&[10, 3], DType::F32)?, Tensor::zeros(&[10], DType::I64)?)?;
/// let loader = Loader::new(data).batch(4).shuffle(7)?.workers(2);
/// let sizes: Vec<usize> = loader.epoch()?.map(|batch| Ok(batch?.0.sizes()[0])).collect::<Result<_>>()?;
/// assert_eq!(sizes, [4, 4, 2]);
/// # Ok(())
/// # }
/// ```
pub struct Loader<D> {
    dataset: Arc<D>,
    batch: usize,
    workers: usize,
    drop_last: bool,
    shuffles: bool,
    /// Seed, epoch, and batches handed out in it.
    place: Tensor,
}

impl<D: Dataset> Loader<D> {
    /// Single samples in the order of the data set.
    pub fn new(dataset: D) -> Loader<D> {
        let place = Tensor::zeros(&[3], DType::I64).expect("there is memory for three numbers");
        Loader { dataset: Arc::new(dataset), batch: 1, workers: 0, drop_last: false, shuffles: false, place }
    }

    /// Batches of so many samples, at least 1. The last one may be smaller.
    #[must_use]
    pub fn batch(self, size: usize) -> Loader<D> {
        Loader { batch: size.max(1), ..self }
    }

    /// Another order in each epoch, which follows from the seed.
    ///
    /// # Errors
    /// Only errors of the write.
    pub fn shuffle(self, seed: u64) -> Result<Loader<D>> {
        self.place.select(0, 0)?.fill_(seed as i64)?;
        Ok(Loader { shuffles: true, ..self })
    }

    /// Prepares batches ahead in so many threads. The batches and their order stay the same.
    #[must_use]
    pub fn workers(self, threads: usize) -> Loader<D> {
        Loader { workers: threads, ..self }
    }

    /// Leaves out a last batch that is smaller.
    #[must_use]
    pub fn drop_last(self) -> Loader<D> {
        Loader { drop_last: true, ..self }
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The number of batches of a whole epoch.
    pub fn n_batches(&self) -> usize {
        let n = self.dataset.len();
        if self.drop_last { n / self.batch } else { n.div_ceil(self.batch) }
    }

    /// The number of the current epoch; the first is 0.
    ///
    /// # Errors
    /// Only errors of the read.
    pub fn epoch_number(&self) -> Result<usize> {
        Ok(self.place.to_vec::<i64>()?[1] as usize)
    }

    /// The rest of the current epoch: all of it, unless some batches were handed out before. At its end the next epoch
    /// becomes the current one.
    ///
    /// # Errors
    /// If the place is beyond the data set, because it was saved for another one.
    pub fn epoch(&self) -> Result<Epoch<'_, D>> {
        let place = self.place.to_vec::<i64>()?;
        let (next, end) = (place[2] as usize, self.n_batches());
        if place[1] < 0 || place[2] < 0 || next > end {
            let what = format!("the place is batch {} of epoch {}, and there are {end}", place[2], place[1]);
            return Err(Error::argument("Loader", format!("{what} batches; load the state of this data set")));
        }
        let order = self.order(place[0] as u64, place[1] as u64);
        let batches: Vec<Vec<usize>> = order.chunks(self.batch).take(end).map(<[usize]>::to_vec).collect();
        let batches = Arc::new(batches);
        let workers = (self.workers > 0).then(|| Workers::start(self.workers, &self.dataset, &batches, next));
        Ok(Epoch { loader: self, batches, next, workers: workers.transpose()? })
    }

    /// The numbers of the samples in the order of an epoch.
    fn order(&self, seed: u64, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.dataset.len()).collect();
        if self.shuffles {
            let mut state = mixed(seed ^ mixed(epoch));
            for at in (1..order.len()).rev() {
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                // The high half of a product is a number below `at + 1`, and nearly uniform.
                let other = (u128::from(mixed(state)) * (at as u128 + 1)) >> 64;
                order.swap(at, other as usize);
            }
        }
        order
    }
}

/// The output function of SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

impl<D: Dataset> State for Loader<D> {
    fn state_tensors(&self) -> StateDict {
        StateDict::from([("place".to_owned(), self.place.clone())])
    }
}

/// The batches of an epoch. After an error the next batch may be asked for.
pub struct Epoch<'a, D: Dataset> {
    loader: &'a Loader<D>,
    batches: Arc<Vec<Vec<usize>>>,
    next: usize,
    workers: Option<Workers<D>>,
}

impl<D: Dataset> Epoch<'_, D> {
    /// Writes the place after the batches that were handed out.
    fn note(&self) -> Result<()> {
        let place = self.loader.place.to_vec::<i64>()?;
        let is_over = self.next == self.batches.len();
        let now = if is_over { [place[0], place[1] + 1, 0] } else { [place[0], place[1], self.next as i64] };
        self.loader.place.copy_(&Tensor::from_slice(&now, &[3])?)
    }
}

impl<D: Dataset> Iterator for Epoch<'_, D> {
    type Item = Result<D::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        let indices = self.batches.get(self.next)?;
        let found = match &mut self.workers {
            Some(workers) => workers.batch(self.next),
            None => batch(&*self.loader.dataset, indices),
        };
        self.next += 1;
        Some(self.note().and(found))
    }
}
