//! Gradients of parts: of `select`, and of `slice` with step 1.
//!
//! The gradient of a part is zeros with the part's gradient among them. A value that is cut into `n` parts would get
//! `n` of these, each of its size, so its gradient would take quadratic time. So the engine keeps such gradients as
//! parts, until all have arrived. Then those that do not overlap are joined, with zeros between them.
//!
//! **Same bits.** Where parts do not overlap, an element of their sum is one gradient to which zeros are added. That
//! changes a negative zero and a NaN alone, and one more zero does not change it again. So the parts are joined, and
//! one zero is added. Gradients that are no parts end a run of parts, so sums keep their order.

use crate::autograd::node::Node;
use crate::error::Result;
use crate::ir::Scalar;
use crate::ops::factories::full_on;
use crate::ops::joins::cat;
use crate::ops::part_place::PartPlace;
use crate::tensor::handle::Tensor;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The gradient of a part, for the value that `node` took the part from.
pub(super) struct Part {
    pub(super) node: Arc<Node>,
    pub(super) gradient: Tensor,
    pub(super) place: PartPlace,
}

/// A gradient that arrives in pieces.
#[derive(Default)]
pub(super) struct Sum {
    /// The sum of what has arrived before `parts`.
    pub(super) whole: Option<Tensor>,
    /// Parts, in order of arrival.
    pub(super) parts: Vec<Part>,
}

impl Sum {
    /// Adds a gradient of the whole value.
    pub(super) fn add(&mut self, gradient: Tensor, alone: &Alone<'_>) -> Result<()> {
        self.settle(alone)?;
        self.add_to_whole(gradient)
    }

    fn add_to_whole(&mut self, gradient: Tensor) -> Result<()> {
        self.whole = Some(match self.whole.take() {
            Some(before) => before.add(&gradient)?,
            None => gradient,
        });
        Ok(())
    }

    /// Adds the parts to the whole.
    fn settle(&mut self, alone: &Alone<'_>) -> Result<()> {
        for run in runs(std::mem::take(&mut self.parts)) {
            let sum = match &run[..] {
                [part] => alone(part)?,
                parts => joined(parts)?,
            };
            self.add_to_whole(sum)?;
        }
        Ok(())
    }

    /// The sum of all.
    pub(super) fn total(mut self, alone: &Alone<'_>) -> Result<Option<Tensor>> {
        self.settle(alone)?;
        Ok(self.whole)
    }
}

/// Puts the gradient of one part among zeros.
pub(super) type Alone<'a> = dyn Fn(&Part) -> Result<Tensor> + 'a;

/// Neighbours in order of arrival that are parts along one dim and do not overlap.
fn runs(parts: Vec<Part>) -> Vec<Vec<Part>> {
    let mut runs: Vec<Vec<Part>> = Vec::new();
    // The ends of the ranges of the last run, by their starts.
    let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
    for part in parts {
        let PartPlace { dim, range, .. } = &part.place;
        let is_free = taken.range(..range.end).next_back().is_none_or(|(_, &end)| end <= range.start);
        match runs.last_mut().filter(|run| is_free && run.iter().all(|other| other.place.dim == *dim)) {
            Some(run) => {
                taken.insert(range.start, range.end);
                run.push(part);
            }
            None => {
                taken = BTreeMap::from([(range.start, range.end)]);
                runs.push(vec![part]);
            }
        }
    }
    runs
}

/// The sum of several parts of one run.
fn joined(parts: &[Part]) -> Result<Tensor> {
    let PartPlace { sizes, dim, .. } = &parts[0].place;
    let mut ordered: Vec<&Part> = parts.iter().collect();
    ordered.sort_by_key(|part| part.place.range.start);
    let like = &parts[0].gradient;
    let zeros = |range: Range<usize>| {
        let mut sizes = sizes.clone();
        sizes[*dim] = range.len();
        full_on(like.device(), &sizes, Scalar::Int(0), Some(like.dtype()))
    };
    let mut pieces: Vec<Tensor> = Vec::with_capacity(parts.len() + 1);
    let mut end = 0;
    for part in ordered {
        let PartPlace { range, is_selected, .. } = &part.place;
        if range.start > end {
            pieces.push(zeros(end..range.start)?);
        }
        let gradient = &part.gradient;
        pieces.push(if *is_selected { gradient.unsqueeze(*dim as i64)? } else { gradient.clone() });
        end = range.end;
    }
    if end < sizes[*dim] {
        pieces.push(zeros(end..sizes[*dim])?);
    }
    cat(&pieces.iter().collect::<Vec<_>>(), *dim as i64)?.add(0.0)
}
