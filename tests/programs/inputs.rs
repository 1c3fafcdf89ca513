//! Random inputs and captured tensors: dtypes, layouts, memory that is shared, values.

use super::operators::DTYPES;
use super::program::{Feed, Given, Memory, Place, Role, Tensors, Values};
use super::random::Random;
use opfuse::{DType, Scalar};

/// What the inputs of a program have in common.
pub(crate) struct Style {
    /// The sizes of dims.
    pub(crate) dims: Vec<usize>,
    pub(crate) wild: bool,
    pub(crate) gradients: bool,
    /// Only the commonest dtypes and layouts.
    pub(crate) plain: bool,
    /// Whether inputs come from earlier calls.
    pub(crate) feeds: bool,
    /// Whether some are complex.
    pub(crate) is_complex: bool,
}

impl Style {
    pub(crate) fn new(random: &mut Random) -> Style {
        let mut dims: Vec<usize> = (0..2).map(|_| 1 + random.below(4)).collect();
        if random.percent(25) {
            dims.push(random.pick(&[0, 1, 1, 5, 33]));
        }
        if random.percent(1) {
            dims.extend([130, 300]);
        }
        Style {
            dims,
            wild: random.percent(20),
            gradients: random.percent(65),
            plain: random.percent(35),
            feeds: random.percent(10),
            is_complex: false,
        }
    }

    fn dtype(&self, random: &mut Random) -> DType {
        if random.percent(if self.plain { 80 } else { 50 }) { DType::F32 } else { random.pick(&DTYPES) }
    }

    fn sizes(&self, random: &mut Random) -> Vec<usize> {
        let rank = random.pick(&[0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 4]);
        let mut sizes: Vec<usize> = (0..rank).map(|_| random.pick(&self.dims)).collect();
        while sizes.iter().product::<usize>() > if sizes.iter().any(|&size| size > 200) { 70_000 } else { 600 } {
            sizes.pop();
        }
        sizes
    }

    fn values(&self, random: &mut Random, dtype: DType) -> Values {
        match dtype {
            DType::I64 | DType::I32 if random.percent(75) => Values::Below(random.pick(&[1, 2, 2, 3, 4])),
            _ if self.wild && random.percent(60) => Values::Wild,
            _ if random.percent(15) => Values::Positive,
            _ => Values::Normal,
        }
    }

    fn role(&self, random: &mut Random, dtype: DType) -> Role {
        if random.percent(3) {
            return Role::Inference;
        }
        if !self.gradients || !dtype.is_float() {
            return Role::Plain;
        }
        random.pick(&[Role::Plain, Role::Leaf, Role::Leaf, Role::Leaf, Role::Leaf, Role::Computed, Role::View])
    }

    fn strides(&self, random: &mut Random, sizes: &[usize]) -> Vec<usize> {
        let rows = |sizes: &[usize]| {
            let mut strides = vec![1; sizes.len()];
            for dim in (1..sizes.len()).rev() {
                strides[dim - 1] = strides[dim] * sizes[dim].max(1);
            }
            strides
        };
        let kind = if random.percent(if self.plain { 85 } else { 50 }) { 0 } else { 1 + random.below(5) };
        match kind {
            0 => rows(sizes),
            1 => {
                let order = random.order(sizes.len());
                let permuted: Vec<usize> = order.iter().map(|&dim| sizes[dim]).collect();
                let mut strides = vec![0; sizes.len()];
                order.iter().zip(rows(&permuted)).for_each(|(&dim, stride)| strides[dim] = stride);
                strides
            }
            2 => rows(&sizes.iter().map(|size| size + 1).collect::<Vec<_>>()),
            3 => rows(sizes).iter().map(|stride| stride * 2).collect(),
            4 => rows(sizes).iter().map(|&stride| if random.percent(50) { 0 } else { stride }).collect(),
            _ => sizes.iter().map(|_| random.below(4)).collect(),
        }
    }

    /// A tensor in memory of its own, or in that of another.
    pub(crate) fn add(&self, random: &mut Random, tensors: &mut Tensors, n_captured: usize) {
        let earlier = tensors.given.len();
        if !self.plain && earlier > 0 && random.percent(4) {
            let same = Given { place: Place::Input(random.below(earlier)), ..tensors.given[0].clone() };
            tensors.given.push(same);
            return;
        }
        if !tensors.memories.is_empty() && random.percent(4) {
            let number = random.pick(&[Scalar::Int(2), Scalar::Float(0.01), Scalar::Bool(true), Scalar::Float(-0.0)]);
            let place = Place::Number(number);
            tensors.given.push(Given {
                place,
                sizes: Vec::new(),
                strides: Vec::new(),
                offset: 0,
                role: Role::Plain,
                feed: Feed::Fresh,
            });
            return;
        }
        let sizes = self.sizes(random);
        let strides = self.strides(random, &sizes);
        let offset = if self.plain || random.percent(70) { 0 } else { random.below(5) };
        let shared = (!self.plain && !tensors.memories.is_empty() && random.percent(8))
            .then(|| random.below(tensors.memories.len()));
        let index = shared.unwrap_or_else(|| {
            let dtype = self.dtype(random);
            let values = self.values(random, dtype);
            let pairs = self.is_complex && random.percent(60);
            tensors.memories.push(Memory { dtype, pairs, len: 0, values, seed: random.next() >> 32 });
            tensors.memories.len() - 1
        });
        let dtype = tensors.memories[index].dtype;
        let (place, role) = (Place::Memory(index), self.role(random, dtype));
        let feed = if self.feeds && random.percent(50) {
            random.pick(&[Feed::Input(0), Feed::Input(1), Feed::Result(0), Feed::Result(0), Feed::Result(1)])
        } else {
            Feed::Fresh
        };
        let mut given = Given { place, sizes, strides, offset, role, feed };
        if n_captured > 0 && random.percent(3) {
            given.place = Place::Captured(random.below(n_captured));
        }
        tensors.given.push(given);
        fit(tensors);
    }

    /// The inputs of another call: other values, and sometimes other types.
    pub(crate) fn again(&self, random: &mut Random, first: &Tensors, varies: bool) -> Tensors {
        let mut tensors = first.clone();
        tensors.memories.iter_mut().for_each(|memory| memory.seed = random.next() >> 32);
        for given in &mut tensors.given {
            match &mut given.place {
                Place::Number(Scalar::Float(number)) => *number += 0.25,
                Place::Number(Scalar::Int(number)) => *number += 1,
                _ => {}
            }
        }
        if !varies {
            return tensors;
        }
        if random.percent(40) {
            let (from, to) = (random.pick(&self.dims), random.below(5));
            for given in &mut tensors.given {
                given.sizes.iter_mut().filter(|size| **size == from).for_each(|size| *size = to);
                given.strides = self.strides(random, &given.sizes);
            }
        }
        for given in &mut tensors.given {
            if random.percent(20) {
                given.strides = self.strides(random, &given.sizes);
            }
            if random.percent(15) {
                given.role = self.role(random, DType::F32);
            }
        }
        if random.percent(15) && !tensors.memories.is_empty() {
            let at = random.below(tensors.memories.len());
            tensors.memories[at].dtype = self.dtype(random);
        }
        fit(&mut tensors);
        tensors
    }
}

/// Makes memories as long as the tensors in them need.
pub(crate) fn fit(tensors: &mut Tensors) {
    for given in &tensors.given {
        let Place::Memory(index) = given.place else { continue };
        let empty = given.sizes.contains(&0);
        let last: usize =
            given.sizes.iter().zip(&given.strides).map(|(&size, &stride)| size.saturating_sub(1) * stride).sum();
        let memory = &mut tensors.memories[index];
        let elements = given.offset + if empty { 0 } else { last + 1 };
        memory.len = memory.len.max(if memory.is_complex() { 2 * elements } else { elements }).max(1);
    }
}
