//! Shapes, strides and the layouts of views.
//!
//! A [`Layout`] places elements in a storage: element `(i, j, …)` is at `offset + i*strides[0] + j*strides[1] + …`.
//! Sizes, strides and offsets count elements, never bytes. Strides may be zero (expanded) but are never negative.
//! Nothing here knows about devices or memory.

use crate::error::{Error, Result};
use smallvec::SmallVec;

/// Sizes of a tensor, outermost dimension first.
pub type Sizes = SmallVec<[usize; 6]>;
/// Strides of a tensor in elements, outermost dimension first.
pub type Strides = SmallVec<[usize; 6]>;

/// The number of elements of a shape.
pub fn numel(sizes: &[usize]) -> usize {
    sizes.iter().product()
}

/// The number of elements of a shape.
///
/// # Errors
/// If the count, or the size in bytes, exceeds the address space.
pub fn checked_numel(op: &str, sizes: &[usize], element_bytes: usize) -> Result<usize> {
    let product = |acc: usize, &size: &usize| acc.checked_mul(size.max(1));
    let count = sizes.iter().try_fold(1usize, product).and_then(|n| n.checked_mul(element_bytes));
    match count {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(numel(sizes)),
        Some(_) | None => Err(Error::shape(
            op,
            format!("shape {sizes:?} has too many elements"),
            "its bytes must fit the address space",
        )),
    }
}

/// Row-major strides of a shape. A size of 0 counts as 1. A shape without elements may have sizes whose product is too
/// large; such strides are the largest there are.
pub fn contiguous_strides(sizes: &[usize]) -> Strides {
    let mut strides: Strides = SmallVec::from_elem(1, sizes.len());
    for dim in (0..sizes.len().saturating_sub(1)).rev() {
        strides[dim] = strides[dim + 1].saturating_mul(sizes[dim + 1].max(1));
    }
    strides
}

/// Dense strides with the dimensions in memory as in `order`, outermost first.
pub fn strides_in_order(sizes: &[usize], order: &[usize]) -> Strides {
    let mut strides: Strides = SmallVec::from_elem(1, sizes.len());
    let mut step = 1;
    for &dim in order.iter().rev() {
        strides[dim] = step;
        step = usize::saturating_mul(step, sizes[dim].max(1));
    }
    strides
}

/// Whether the strides are row-major without gaps. Dimensions of size 1 do not count.
pub fn is_contiguous(sizes: &[usize], strides: &[usize]) -> bool {
    if numel(sizes) == 0 {
        return true;
    }
    let mut expected = 1;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size != 1 {
            if stride != expected {
                return false;
            }
            expected *= size;
        }
    }
    true
}

/// The common shape of two operands, aligned at the last dimension.
///
/// # Errors
/// If two sizes differ and neither is 1.
pub fn broadcast(op: &str, a: &[usize], b: &[usize]) -> Result<Sizes> {
    let rank = a.len().max(b.len());
    let size_of = |sizes: &[usize], dim: usize| (dim + sizes.len()).checked_sub(rank).map_or(1, |d| sizes[d]);
    let mut out = Sizes::with_capacity(rank);
    for dim in 0..rank {
        let (left, right) = (size_of(a, dim), size_of(b, dim));
        out.push(match (left, right) {
            (1, size) | (size, 1) => size,
            (left, right) if left == right => left,
            (left, right) => {
                return Err(Error::Broadcast { op: op.into(), a: a.to_vec(), b: b.to_vec(), dim, left, right });
            }
        });
    }
    Ok(out)
}

/// A dimension number in `-rank..rank` as an index. A 0-dim tensor accepts 0 and -1.
///
/// # Errors
/// If the number is outside that range.
pub fn normalize_dim(op: &str, dim: i64, rank: usize) -> Result<usize> {
    let bound = rank.max(1) as i64;
    if dim < -bound || dim >= bound {
        return Err(Error::out_of_range(op, "Dimension", [-bound, bound - 1], dim));
    }
    Ok(if dim < 0 { (dim + bound) as usize } else { dim as usize })
}

/// Dimension numbers as sorted indices. An empty list means all dimensions.
///
/// # Errors
/// If a number is out of range or repeated.
pub fn normalize_dims(op: &str, dims: &[i64], rank: usize) -> Result<SmallVec<[usize; 6]>> {
    if dims.is_empty() {
        return Ok((0..rank).collect());
    }
    let mut out: SmallVec<[usize; 6]> = dims.iter().map(|&dim| normalize_dim(op, dim, rank)).collect::<Result<_>>()?;
    out.sort_unstable();
    if let Some(pair) = out.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::shape(
            op,
            format!("dim {} appears multiple times in {dims:?}", pair[0]),
            "name each dim once",
        ));
    }
    if rank == 0 {
        out.clear();
    }
    Ok(out)
}

/// Whether two strides give these sizes the same layout.
pub fn same_strides(sizes: &[usize], one: &[usize], other: &[usize]) -> bool {
    sizes.contains(&0) || (0..sizes.len()).all(|dim| sizes[dim] == 1 || one[dim] == other[dim])
}

/// Where the elements of a view lie inside its storage.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Layout {
    /// Elements per dimension.
    pub sizes: Sizes,
    /// Storage elements between neighbours, per dimension.
    pub strides: Strides,
    /// Storage element of the first element.
    pub offset: usize,
}

impl Layout {
    /// A dense row-major layout from the start of its storage.
    pub fn contiguous(sizes: &[usize]) -> Layout {
        Layout { sizes: sizes.into(), strides: contiguous_strides(sizes), offset: 0 }
    }

    /// The layout of the parts of complex numbers with this layout: one more dim, of size 2.
    pub fn of_pairs(&self) -> Layout {
        Layout {
            sizes: self.sizes.iter().copied().chain([2]).collect(),
            strides: self.strides.iter().map(|stride| 2 * stride).chain([1]).collect(),
            offset: 2 * self.offset,
        }
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        numel(&self.sizes)
    }

    /// Whether the elements are dense and row-major.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous(&self.sizes, &self.strides)
    }

    /// One past the last storage element that the layout reaches, or 0 if it has no elements.
    pub fn extent(&self) -> usize {
        if self.numel() == 0 {
            return 0;
        }
        let spans = self.sizes.iter().zip(&self.strides).map(|(&size, &stride)| (size - 1).saturating_mul(stride));
        spans.fold(self.offset.saturating_add(1), usize::saturating_add)
    }

    /// Whether a dim repeats elements, as an expanded one does.
    pub fn is_expanded(&self) -> bool {
        self.sizes.iter().zip(&self.strides).any(|(&size, &stride)| size > 1 && stride == 0)
    }

    /// Whether the strides prove that no two elements overlap: each stride exceeds the span of all smaller ones. Some
    /// layouts without overlap give `false`.
    pub fn is_injective(&self) -> bool {
        let mut dims: SmallVec<[(usize, usize); 6]> =
            self.strides.iter().copied().zip(self.sizes.iter().copied()).filter(|&(_, size)| size != 1).collect();
        dims.sort_unstable();
        let mut covered = 0usize;
        self.numel() == 0
            || dims.iter().all(|&(stride, size)| {
                let is_apart = stride > covered;
                covered = covered.saturating_add(stride.saturating_mul(size - 1));
                is_apart
            })
    }

    /// Dimensions in the order of `dims`, which must be a permutation.
    pub fn permute(&self, dims: &[usize]) -> Layout {
        Layout {
            sizes: dims.iter().map(|&dim| self.sizes[dim]).collect(),
            strides: dims.iter().map(|&dim| self.strides[dim]).collect(),
            offset: self.offset,
        }
    }

    /// The layout repeated along dimensions of size 1 and new leading ones.
    ///
    /// # Errors
    /// If another dimension would change its size.
    pub fn expand(&self, op: &str, sizes: &[usize]) -> Result<Layout> {
        let hint = "only sizes of 1 and new leading dimensions can be expanded";
        let all = || format!("target sizes {sizes:?}, tensor sizes {:?}", self.sizes.as_slice());
        let Some(lead) = sizes.len().checked_sub(self.rank()) else {
            let (wanted, rank) = (sizes.len(), self.rank());
            let what = format!("the number of sizes ({wanted}) must not be less than that of dims ({rank}); {}", all());
            return Err(Error::shape(op, what, hint));
        };
        let differs = |(&have, &want): (&usize, &usize)| have != want && have != 1;
        if let Some(dim) = self.sizes.iter().zip(&sizes[lead..]).position(differs) {
            let (have, at) = (self.sizes[dim], dim + lead);
            let what = format!(
                "the expanded size ({}) must match the existing size ({have}) at non-singleton dimension {at}; {}",
                sizes[at],
                all()
            );
            return Err(Error::shape(op, what, hint));
        }
        let mut strides: Strides = SmallVec::from_elem(0, sizes.len());
        for dim in lead..sizes.len() {
            let (have, stride) = (self.sizes[dim - lead], self.strides[dim - lead]);
            strides[dim] = if have == 1 && sizes[dim] != 1 { 0 } else { stride };
        }
        Ok(Layout { sizes: sizes.into(), strides, offset: self.offset })
    }

    /// Elements `start, start+step, …` below `end` of one dimension. The bounds must already be clamped.
    pub fn slice(&self, dim: usize, start: usize, end: usize, step: usize) -> Layout {
        let mut out = self.clone();
        out.offset += start * self.strides[dim];
        out.sizes[dim] = end.saturating_sub(start).div_ceil(step);
        // A step of more than the address space leaves one element, whose stride is never taken.
        out.strides[dim] = out.strides[dim].saturating_mul(step);
        out
    }

    /// Drops dimension `dim`, fixed at `index`.
    pub fn select(&self, dim: usize, index: usize) -> Layout {
        let mut out = self.clone();
        out.offset += index * self.strides[dim];
        out.sizes.remove(dim);
        out.strides.remove(dim);
        out
    }

    /// Adds a dimension of size 1 before `dim`.
    pub fn unsqueeze(&self, dim: usize) -> Layout {
        let mut out = self.clone();
        let stride = if dim < self.rank() { self.sizes[dim].max(1) * self.strides[dim] } else { 1 };
        out.sizes.insert(dim, 1);
        out.strides.insert(dim, stride);
        out
    }

    /// Drops those of the named dimensions that have size 1.
    pub fn squeeze(&self, dims: &[usize]) -> Layout {
        let keep = |dim: &usize| !(self.sizes[*dim] == 1 && dims.contains(dim));
        let kept: SmallVec<[usize; 6]> = (0..self.rank()).filter(keep).collect();
        self.permute(&kept)
    }

    /// The same elements under other sizes, if strides can express it.
    ///
    /// Neighbouring dimensions that are dense form a run. New dimensions may split or merge the dimensions of one run.
    pub fn view(&self, sizes: &[usize]) -> Option<Layout> {
        if numel(sizes) != self.numel() {
            return None;
        }
        if self.numel() == 0 {
            let strides = if sizes == self.sizes.as_slice() { self.strides.clone() } else { contiguous_strides(sizes) };
            return Some(Layout { sizes: sizes.into(), strides, offset: self.offset });
        }
        let mut strides: Strides = SmallVec::from_elem(1, sizes.len());
        let mut new_dim = sizes.len();
        let (mut run, mut run_stride) = (1, self.strides.last().copied().unwrap_or(1));
        for dim in (0..self.rank()).rev() {
            run *= self.sizes[dim];
            let run_ends = dim == 0 || (self.sizes[dim - 1] != 1 && self.strides[dim - 1] != run * run_stride);
            if !run_ends {
                continue;
            }
            let mut left = run;
            while new_dim > 0 && (left > 1 || sizes[new_dim - 1] == 1) {
                let size = sizes[new_dim - 1];
                if left % size != 0 {
                    return None;
                }
                new_dim -= 1;
                strides[new_dim] = (run / left) * run_stride;
                left /= size;
            }
            if left != 1 {
                return None;
            }
            if dim > 0 {
                (run, run_stride) = (1, self.strides[dim - 1]);
            }
        }
        if self.rank() == 0 {
            strides.fill(1);
            new_dim = 0;
        }
        (new_dim == 0).then(|| Layout { sizes: sizes.into(), strides, offset: self.offset })
    }
}

/// Resolves at most one `-1` among `sizes` so that the element count is `count`.
///
/// # Errors
/// If no size resolves it, or there is more than one `-1`.
pub fn infer_sizes(op: &str, sizes: &[i64], count: usize) -> Result<Sizes> {
    let invalid = || {
        Error::shape(
            op,
            format!("shape {sizes:?} is invalid for input of size {count}"),
            "use at most one -1 and keep the element count",
        )
    };
    let mut inferred_dim = None;
    let mut product = 1usize;
    for (dim, &size) in sizes.iter().enumerate() {
        match size {
            -1 if inferred_dim.is_none() => inferred_dim = Some(dim),
            0.. => product = product.checked_mul(size as usize).ok_or_else(invalid)?,
            _ => return Err(invalid()),
        }
    }
    let mut out: Sizes = sizes.iter().map(|&size| size.max(0) as usize).collect();
    match inferred_dim {
        Some(dim) if product > 0 && count.is_multiple_of(product) => out[dim] = count / product,
        None if product == count => {}
        Some(_) | None => return Err(invalid()),
    }
    Ok(out)
}

/// Strides of a new element-wise result, following the memory order of its inputs.
///
/// Dimensions are sorted by the inputs' strides, as in PyTorch's `TensorIterator`. The first input whose strides of two
/// dimensions differ decides; a stride of 0 decides nothing. So a permuted dense input gives a permuted dense result,
/// and a sliced one a contiguous result.
pub fn elementwise_strides(sizes: &[usize], inputs: &[(&[usize], &[usize])]) -> Strides {
    let rank = sizes.len();
    if inputs.iter().all(|(have, strides)| *have == sizes && is_contiguous(have, strides)) {
        return contiguous_strides(sizes);
    }
    let stride_of = |input: &(&[usize], &[usize]), dim: usize| match (dim + input.0.len()).checked_sub(rank) {
        Some(d) if input.0[d] != 1 || sizes[dim] == 1 => input.1[d],
        Some(_) | None => 0,
    };
    // `order` is innermost first, because the comparison asks which dimension moves slower.
    let mut order: SmallVec<[usize; 6]> = (0..rank).rev().collect();
    let slower = |a: usize, b: usize| -> Option<bool> {
        for input in inputs {
            let (sa, sb) = (stride_of(input, a), stride_of(input, b));
            if sa == 0 || sb == 0 {
                continue;
            }
            if sa != sb {
                return Some(sa > sb);
            }
            if sizes[a] > sizes[b] {
                return Some(true);
            }
        }
        None
    };
    for i in 1..rank {
        let mut place = i;
        for j in (0..i).rev() {
            match slower(order[j], order[place]) {
                Some(true) => {
                    order.swap(j, place);
                    place = j;
                }
                Some(false) => break,
                None => {}
            }
        }
    }
    order.reverse();
    strides_in_order(sizes, &order)
}

/// Whether two lists of sizes or strides are equal. They are short, so a loop is faster than a call of `memcmp`.
#[inline]
pub fn same_extents(one: &[usize], other: &[usize]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting() {
        assert_eq!(broadcast("add", &[3, 1], &[4]).expect("fits").as_slice(), [3, 4]);
        assert_eq!(broadcast("add", &[0], &[1]).expect("fits").as_slice(), [0]);
        assert!(broadcast("add", &[0], &[3]).is_err());
        let message = broadcast("add", &[3, 4], &[3, 5]).expect_err("4 is not 5").to_string();
        assert!(
            message.contains("size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 1")
        );
    }

    #[test]
    fn views_follow_strides() {
        let dense = Layout::contiguous(&[2, 3, 4]);
        assert_eq!(dense.view(&[6, 4]).expect("joins").strides.as_slice(), [4, 1]);
        assert_eq!(dense.view(&[2, 3, 2, 2]).expect("splits").strides.as_slice(), [12, 4, 2, 1]);
        let moved = dense.permute(&[1, 0, 2]);
        assert!(moved.view(&[6, 4]).is_none());
        assert_eq!(moved.view(&[3, 2, 2, 2]).expect("splits").strides.as_slice(), [4, 12, 2, 1]);
        assert_eq!(Layout::contiguous(&[]).view(&[1, 1]).expect("one").sizes.as_slice(), [1, 1]);
        assert_eq!(Layout::contiguous(&[1, 1]).view(&[]).expect("one").sizes.len(), 0);
        assert_eq!(Layout::contiguous(&[0, 3]).view(&[3, 0]).expect("none").sizes.as_slice(), [3, 0]);
    }

    #[test]
    fn elementwise_results_follow_their_inputs() {
        let sizes: &[usize] = &[4, 3];
        let permuted: (&[usize], &[usize]) = (&[4, 3], &[1, 4]);
        let dense: (&[usize], &[usize]) = (&[4, 3], &[3, 1]);
        let sliced: (&[usize], &[usize]) = (&[4, 3], &[6, 2]);
        let expanded: (&[usize], &[usize]) = (&[4, 3], &[0, 1]);
        assert_eq!(elementwise_strides(sizes, &[permuted, dense]).as_slice(), [1, 4]);
        assert_eq!(elementwise_strides(sizes, &[dense, permuted]).as_slice(), [3, 1]);
        assert_eq!(elementwise_strides(sizes, &[sliced]).as_slice(), [3, 1]);
        assert_eq!(elementwise_strides(sizes, &[expanded]).as_slice(), [3, 1]);
    }

    #[test]
    fn unknown_sizes_are_inferred() {
        assert_eq!(infer_sizes("view", &[-1, 4], 12).expect("fits").as_slice(), [3, 4]);
        assert!(infer_sizes("view", &[-1, 5], 12).is_err());
        assert!(infer_sizes("view", &[-1, -1], 12).is_err());
        assert!(infer_sizes("view", &[-1, 0], 0).is_err());
    }
}
