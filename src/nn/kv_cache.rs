//! Keys and values of the steps so far, for decoding step by step.

use crate::error::{Error, Result};
use crate::profile::stands_for;
use crate::tensor::Tensor;

/// Keys and values `(N, heads, steps, features)` of the steps so far. Memory for all steps is taken at the first one.
#[derive(Clone, Debug)]
pub struct KvCache {
    most: usize,
    len: usize,
    memory: Option<[Tensor; 2]>,
}

impl KvCache {
    /// An empty cache for at most so many steps.
    pub fn new(most: usize) -> KvCache {
        KvCache { most, len: 0, memory: None }
    }

    /// The number of steps so far.
    pub fn steps(&self) -> usize {
        self.len
    }

    /// Forgets all steps after the first `steps`.
    pub fn truncate(&mut self, steps: usize) {
        self.len = self.len.min(steps);
    }

    /// Adds keys and values of new steps, and returns views of all. The next steps do not change these views.
    ///
    /// # Errors
    /// If there are more steps than the cache was made for, or if other sizes differ from those before. The cache stays
    /// as it was.
    #[track_caller]
    pub fn append(&mut self, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let _place = stands_for();
        let (&[batch, heads, steps, _], &[_, _, value_steps, _]) = (keys.sizes(), values.sizes()) else {
            let what = format!("keys have sizes {:?}, values {:?}", keys.sizes(), values.sizes());
            return Err(Error::shape("KvCache", what, "they have four dims: batch, heads, steps and features"));
        };
        let end = self.len + steps;
        if end > self.most || steps != value_steps {
            let what = format!("{} steps and {steps} more keys, {value_steps} more values", self.len);
            return Err(Error::shape("KvCache", what, format!("the cache is for {} steps of both", self.most)));
        }
        if self.memory.is_none() {
            let room =
                |x: &Tensor| Tensor::zeros(&[batch, heads, self.most, x.sizes()[3]], x.dtype())?.to_device(x.device());
            self.memory = Some([room(keys)?, room(values)?]);
        }
        let [all_keys, all_values] = self.memory.as_ref().expect("it was made above");
        for (all, new) in [(all_keys, keys), (all_values, values)] {
            let sizes = [&all.sizes()[..2], &[steps], &all.sizes()[3..]].concat();
            if new.sizes() != sizes || new.dtype() != all.dtype() {
                let what = format!("new steps are {}{:?}", new.dtype(), new.sizes());
                return Err(Error::shape("KvCache", what, format!("those before are {}{sizes:?}", all.dtype())));
            }
        }
        for (all, new) in [(all_keys, keys), (all_values, values)] {
            all.narrow(2, self.len as i64, steps)?.copy_(&new.detach()?)?;
        }
        let (keys, values) = (all_keys.narrow(2, 0, end)?, all_values.narrow(2, 0, end)?);
        self.len = end;
        Ok((keys, values))
    }
}
