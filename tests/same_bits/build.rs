//! Proposals: calls of every op with plausible operands and arguments, found or made in a growing graph.
//!
//! A proposal need not be legal. The op's own inference judges it, and a refused one is simply proposed anew.

use super::random::Random;
use super::values::{Fill, array};
use opfuse::dispatch::Array;
use opfuse::internals::ir::row::{GatherKind, Rule};
use opfuse::internals::ir::shape::{Strides, broadcast, contiguous_strides, strides_in_order};
use opfuse::ir::{Attr, Attrs, DType, Graph, Meaning, MemoryFormat, NodeId, NodeKind, Op, Scalar, TensorType};
use smallvec::smallvec;

/// A graph with arrays to run it on.
#[derive(Clone)]
pub(crate) struct Case {
    /// The graph.
    pub(crate) graph: Graph,
    /// One array per input.
    pub(crate) inputs: Vec<Array>,
}

/// A graph that grows.
pub(crate) struct Builder {
    /// The graph so far.
    pub(crate) graph: Graph,
    /// The source of random choices.
    pub(crate) random: Random,
    /// The kind of values of each input.
    pub(crate) fills: Vec<Fill>,
    /// The most elements of a value.
    pub(crate) limit: usize,
    /// The shape that most values have or broadcast to.
    pub(crate) shape: Vec<usize>,
}

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

impl Builder {
    /// An empty graph whose choices follow from a seed.
    pub(crate) fn new(seed: u64) -> Builder {
        let graph = Graph::new();
        Builder { graph, random: Random::new(seed), fills: Vec::new(), limit: 4096, shape: Vec::new() }
    }

    /// The graph with these outputs, and arrays for its inputs.
    pub(crate) fn finish(mut self, outputs: Vec<NodeId>) -> Case {
        self.graph.set_outputs(outputs);
        let inputs = self.graph.inputs().iter().zip(&self.fills);
        let inputs = inputs.map(|(&input, &fill)| array(&mut self.random, &self.graph[input].ty, fill)).collect();
        Case { graph: self.graph, inputs }
    }

    /// A new input.
    pub(crate) fn input(&mut self, ty: TensorType, fill: Fill) -> NodeId {
        self.fills.push(fill);
        self.graph.input(ty)
    }

    /// A new input with random strides.
    pub(crate) fn strided_input(&mut self, dtype: DType, sizes: &[usize], fill: Fill) -> NodeId {
        let strides = self.strides(sizes);
        self.input(TensorType { dtype, sizes: sizes.into(), strides, number: false }, fill)
    }

    /// Strides as views make them: dense in any order, with gaps, repeated.
    pub(crate) fn strides(&mut self, sizes: &[usize]) -> Strides {
        let random = &mut self.random;
        let mut strides = match random.below(6) {
            0..=2 => contiguous_strides(sizes),
            3 => strides_in_order(sizes, &random.order(sizes.len())),
            4 => {
                let steps: Vec<usize> = sizes.iter().map(|_| 1 + random.below(3)).collect();
                let outer: Vec<usize> =
                    sizes.iter().zip(&steps).map(|(&size, &step)| size * step + random.below(2)).collect();
                let order = if random.percent(70) { (0..sizes.len()).collect() } else { random.order(sizes.len()) };
                let strides = strides_in_order(&outer, &order);
                strides.iter().zip(&steps).map(|(&stride, &step)| stride * step).collect()
            }
            _ => {
                let kept: Vec<bool> = sizes.iter().map(|_| random.percent(50)).collect();
                let dense: Vec<usize> =
                    sizes.iter().zip(&kept).map(|(&size, &kept)| if kept { size } else { 1 }).collect();
                let strides = contiguous_strides(&dense);
                strides.iter().zip(&kept).map(|(&stride, &kept)| if kept { stride } else { 0 }).collect()
            }
        };
        for (stride, &size) in strides.iter_mut().zip(sizes) {
            // The stride of a dim of size 1 has no meaning, so views may leave any number.
            if size == 1 && random.percent(15) {
                *stride = random.below(40);
            }
        }
        strides
    }

    /// The call, if the op takes it and the result is not too large.
    pub(crate) fn call(&mut self, op: Op, args: &[NodeId], attrs: Attrs) -> Option<NodeId> {
        let tys: Vec<&TensorType> = args.iter().map(|&arg| &self.graph[arg].ty).collect();
        let ty = op.infer(&tys, &attrs).ok()?;
        if ty.numel() > self.limit {
            return None;
        }
        self.graph.add(op, args, attrs).ok()
    }

    /// The call without arguments besides tensors.
    pub(crate) fn plain(&mut self, op: Op, args: &[NodeId]) -> Option<NodeId> {
        self.call(op, args, Attrs::new())
    }

    /// The node in another dtype.
    pub(crate) fn cast(&mut self, x: NodeId, dtype: DType) -> Option<NodeId> {
        if self.graph[x].ty.dtype == dtype {
            Some(x)
        } else {
            self.call(Op::ToCopy, &[x], smallvec![Attr::DType(dtype)])
        }
    }

    /// A number as in typical programs.
    pub(crate) fn scalar(&mut self) -> Scalar {
        let random = &mut self.random;
        match random.below(12) {
            0 => Scalar::Bool(random.percent(50)),
            1..=4 => Scalar::Int(random.below(7) as i64 - 3),
            5 => Scalar::Int(random.pick(&[0, 1, 255, 256, -1, i64::MAX, i64::MIN, 1 << 24, (1 << 24) + 1, 1 << 53])),
            6 => Scalar::Float(random.pick(&[
                0.0,
                -0.0,
                1.0,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                1e-310,
                3e38,
                65520.0,
            ])),
            _ => Scalar::Float((random.normal() * 64.0).round() / 32.0),
        }
    }

    /// A value of the graph that fits. Late values come more often, and plain numbers rarely.
    pub(crate) fn find(&mut self, fits: impl Fn(&TensorType) -> bool) -> Option<NodeId> {
        let numbers = self.random.percent(3);
        let found = self
            .graph
            .nodes()
            .filter(|(_, node)| fits(&node.ty) && (numbers || !matches!(node.kind, NodeKind::Number(_))));
        let found: Vec<NodeId> = found.map(|(id, _)| id).collect();
        if found.is_empty() {
            return None;
        }
        let near = found.len().min(4);
        let late = self.random.percent(60);
        Some(if late { found[found.len() - 1 - self.random.below(near)] } else { self.random.pick(&found) })
    }

    pub(crate) fn find_float(&mut self, fits: impl Fn(&TensorType) -> bool) -> Option<NodeId> {
        if let Some(found) = self.find(|ty| ty.dtype.is_float() && fits(ty)) {
            return Some(found);
        }
        let found = self.find(fits)?;
        let dtype = self.random.pick(&FLOATS);
        self.cast(found, dtype)
    }

    /// A call of `op`, if the proposal is legal.
    pub(crate) fn propose(&mut self, op: Op) -> Option<NodeId> {
        match op.row().meaning {
            Meaning::Body(rule, _) => self.propose_pointwise(op, rule),
            Meaning::Fold(_) => self.propose_fold(op),
            Meaning::Decompose(_) => self.propose_composite(op),
            Meaning::View(_) => self.propose_view(op),
            Meaning::Window(_) => self.propose_window(op),
            Meaning::Product => {
                let (a, b) = self.factors(if matches!(op, Op::Mm | Op::MmDtype) { 2 } else { 3 })?;
                if matches!(op, Op::Mm | Op::Bmm) {
                    return self.plain(op, &[a, b]);
                }
                if self.random.percent(30) {
                    let dtype = self.graph[a].ty.dtype;
                    return self.call(op, &[a, b], smallvec![Attr::DType(dtype)]);
                }
                let narrow = self.random.pick(&[DType::F16, DType::BF16]);
                let (a, b) = (self.cast(a, narrow)?, self.cast(b, narrow)?);
                self.call(op, &[a, b], smallvec![Attr::DType(DType::F32)])
            }
            Meaning::Gather(kind) => self.propose_gather(op, kind),
            Meaning::Concat => self.propose_concat(),
            Meaning::Overlay => self.propose_overlay(op),
            Meaning::Fill => {
                let sizes: Vec<i64> = self.part_of_shape().iter().map(|&size| size as i64).collect();
                let (value, dtype) = (self.scalar(), self.maybe_dtype(60));
                self.call(op, &[], smallvec![Attr::ints(&sizes), Attr::Scalar(value), dtype])
            }
            Meaning::Range => self.propose_range(op),
            Meaning::Routine(routine) => self.propose_routine(op, routine),
        }
    }

    fn propose_pointwise(&mut self, op: Op, rule: Rule) -> Option<NodeId> {
        let needs_float = rule == Rule::FloatOnly;
        let n_args = n_tensors(op);
        let mask = match rule {
            Rule::Where => Some(0),
            Rule::Masked => Some(1),
            _ => None,
        };
        let mut args: Vec<NodeId> = Vec::new();
        let mut sizes: Vec<usize> = Vec::new();
        for index in 0..n_args {
            let shape = sizes.clone();
            let fits = |ty: &TensorType| index == 0 || broadcast("", &shape, &ty.sizes).is_ok();
            let arg = if mask == Some(index) {
                let found = self.find(|ty| ty.dtype == DType::Bool && fits(ty));
                match found {
                    Some(found) => found,
                    None => {
                        let x = self.find(fits)?;
                        let number = self.scalar();
                        let number = self.graph.number(number);
                        self.plain(Op::Lt, &[x, number])?
                    }
                }
            } else if n_args > 1 && self.random.percent(18) {
                let value = self.scalar();
                self.graph.number(value)
            } else if needs_float {
                self.find_float(fits)?
            } else {
                self.find(fits)?
            };
            sizes = broadcast("", &sizes, &self.graph[arg].ty.sizes).ok()?.to_vec();
            args.push(arg);
        }
        if op == Op::BinaryCrossEntropy {
            // Other values are no probabilities.
            args[0] = self.plain(Op::Sigmoid, &[args[0]])?;
        }
        let attrs = self.pointwise_attrs(op);
        if matches!(op, Op::FloorDivide | Op::Remainder | Op::Fmod | Op::DivMode) {
            args[1] = self.divisor(op, &args, &attrs)?;
        }
        self.call(op, &args, attrs)
    }

    /// The second operand, or one without zeros where integers are divided.
    fn divisor(&mut self, op: Op, args: &[NodeId], attrs: &Attrs) -> Option<NodeId> {
        let tys: Vec<&TensorType> = args.iter().map(|&arg| &self.graph[arg].ty).collect();
        if op.infer(&tys, attrs).ok()?.dtype.is_float() {
            return Some(args[1]);
        }
        let one = self.graph.number(Scalar::Int(1));
        self.plain(Op::BitwiseOr, &[args[1], one])
    }

    fn pointwise_attrs(&mut self, op: Op) -> Attrs {
        match op {
            Op::Add | Op::Sub if self.random.percent(75) => smallvec![Attr::int(1)],
            Op::Add | Op::Sub | Op::MaskedFill => smallvec![Attr::Scalar(self.scalar())],
            Op::Gelu | Op::GeluBackward => smallvec![Attr::Str(self.random.pick(&["none", "tanh"]).into())],
            Op::ThresholdBackward => smallvec![Attr::Scalar(self.scalar())],
            Op::LeakyReluBackward => smallvec![Attr::Scalar(self.scalar()), Attr::bool(self.random.percent(50))],
            Op::HardtanhBackward | Op::SoftplusBackward => {
                smallvec![Attr::Scalar(self.scalar()), Attr::Scalar(self.scalar())]
            }
            Op::EluBackward => {
                let [alpha, scale, input_scale] = [(); 3].map(|()| Attr::Scalar(self.scalar()));
                smallvec![alpha, scale, input_scale, Attr::bool(self.random.percent(50))]
            }
            Op::Clamp => {
                let mut bound = || if self.random.percent(25) { Attr::None } else { Attr::Scalar(self.scalar()) };
                smallvec![bound(), bound()]
            }
            Op::ToCopy => smallvec![self.maybe_dtype(95)],
            Op::DivMode => match self.random.pick(&["", "trunc", "floor"]) {
                "" => smallvec![Attr::None],
                rounding => smallvec![Attr::Str(rounding.into())],
            },
            Op::PowScalar if self.random.percent(60) => {
                smallvec![Attr::float(self.random.pick(&[0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 2.5]))]
            }
            Op::Polygamma => smallvec![Attr::int(self.random.below(4) as i64)],
            Op::Logit => smallvec![if self.random.percent(50) { Attr::None } else { Attr::float(0.125) }],
            Op::RoundDecimals => smallvec![Attr::int(self.random.below(7) as i64 - 3)],
            Op::Elu => (0..3).map(|_| Attr::Scalar(self.scalar())).collect(),
            Op::Hardtanh | Op::Softplus | Op::Threshold => (0..2).map(|_| Attr::Scalar(self.scalar())).collect(),
            Op::PowScalar | Op::LerpScalar | Op::Addcmul | Op::Addcdiv | Op::LeakyRelu => {
                smallvec![Attr::Scalar(self.scalar())]
            }
            Op::Softshrink | Op::Hardshrink | Op::FillScalar => smallvec![Attr::Scalar(self.scalar())],
            Op::NativeDropoutBackward => smallvec![Attr::float(self.random.pick(&[0.0, 1.0, 1.25, 2.0]))],
            Op::RandomScale => {
                let (low, high) =
                    self.random.pick(&[(0, 6), (-3, 4), (i64::MIN, i64::MAX), (0, 1 << 32), (-5, 1 << 40), (7, 8)]);
                smallvec![Attr::int(low), Attr::int(high)]
            }
            Op::Clone => smallvec![if self.random.percent(50) { Attr::None } else { MemoryFormat::Contiguous.into() }],
            _ => Attrs::new(),
        }
    }

    pub(crate) fn maybe_dtype(&mut self, share: usize) -> Attr {
        if self.random.percent(share) { Attr::DType(self.random.pick(&DType::ALL)) } else { Attr::None }
    }

    /// Some dims of a rank, counted from either end.
    fn dims(&mut self, rank: usize) -> Attr {
        let random = &mut self.random;
        match random.below(6) {
            0 => return Attr::None,
            1 => return Attr::ints(&[]),
            _ => {}
        }
        let n_dims = if rank == 0 { random.below(2) } else { 1 + random.below(rank) };
        let order = random.order(rank.max(1));
        let signed = |dim: usize, random: &mut Random| {
            if random.percent(50) { dim as i64 } else { dim as i64 - rank.max(1) as i64 }
        };
        Attr::Ints(order[..n_dims.min(order.len())].iter().map(|&dim| signed(dim, random)).collect())
    }

    pub(crate) fn dim(&mut self, rank: usize) -> Attr {
        let rank = rank.max(1) as i64;
        Attr::int(self.random.below(2 * rank as usize) as i64 - rank)
    }

    fn propose_fold(&mut self, op: Op) -> Option<NodeId> {
        let x = self.find(|_| true)?;
        let rank = self.graph[x].ty.rank();
        let single = matches!(op, Op::Argmax | Op::Argmin);
        let dims = match (single, self.random.percent(20)) {
            (true, true) => Attr::None,
            (true, false) => self.dim(rank),
            (false, _) => self.dims(rank),
        };
        let mut attrs: Attrs = smallvec![dims, Attr::bool(self.random.percent(50))];
        if matches!(op, Op::Sum | Op::Prod) {
            attrs.push(self.maybe_dtype(25));
        }
        self.call(op, &[x], attrs)
    }

    fn propose_composite(&mut self, op: Op) -> Option<NodeId> {
        match op {
            Op::Dot => {
                let a = self.find_float(|ty| ty.rank() == 1);
                let sizes = [self.random.pick(&[0, 1, 7, 33, 300, 9000])];
                let a = a.unwrap_or_else(|| self.strided_input(DType::F32, &sizes, Fill::Normal));
                let ty = self.graph[a].ty.clone();
                let b = self.find(|other| other.dtype == ty.dtype && other.sizes == ty.sizes);
                let b = b.unwrap_or_else(|| self.strided_input(ty.dtype, &ty.sizes, Fill::Normal));
                self.plain(op, &[a, b])
            }
            Op::Addmm | Op::Baddbmm => {
                let (a, b) = self.factors(if op == Op::Addmm { 2 } else { 3 })?;
                let (left, right) = (self.graph[a].ty.clone(), self.graph[b].ty.clone());
                let mut sizes = left.sizes.to_vec();
                *sizes.last_mut()? = *right.sizes.last()?;
                let fits = |ty: &TensorType| {
                    ty.dtype == left.dtype && broadcast("", &ty.sizes, &sizes).is_ok_and(|all| all[..] == sizes[..])
                };
                let term = match self.find(fits) {
                    Some(term) => term,
                    None => {
                        let sizes = self.broadcastable(&sizes);
                        self.strided_input(left.dtype, &sizes, Fill::Normal)
                    }
                };
                let mut factor = || if self.random.percent(50) { Attr::int(1) } else { Attr::Scalar(self.scalar()) };
                let attrs = smallvec![factor(), factor()];
                self.call(op, &[term, a, b], attrs)
            }
            Op::LayerNorm => self.propose_layer_norm(),
            Op::ConstantPadNd | Op::Flip | Op::Repeat => self.propose_move(op),
            Op::SelectScatter => self.propose_part(op, Op::Select),
            Op::SliceScatter => self.propose_part(op, Op::Slice),
            Op::DiagonalScatter => self.propose_part(op, Op::Diagonal),
            Op::EmbeddingDenseBackward => self.propose_embedding_backward(),
            Op::Convolution | Op::ConvolutionWeight | Op::MaxPoolIndex | Op::MaxPool => self.propose_windows(op),
            Op::RandomUniform | Op::RandomNormal | Op::RandomBernoulli | Op::RandomRange => self.propose_random(op),
            Op::Tril | Op::Triu => {
                let x = self.find(|ty| ty.rank() >= 2)?;
                let diagonal = self.random.below(7) as i64 - 3;
                self.call(op, &[x], smallvec![Attr::int(diagonal)])
            }
            Op::Softmax | Op::LogSoftmax => {
                let x = self.find_float(|_| true)?;
                let dim = self.dim(self.graph[x].ty.rank());
                self.call(op, &[x], smallvec![dim, Attr::bool(false)])
            }
            Op::SoftmaxBackwardData | Op::LogSoftmaxBackwardData => {
                let grad = self.find_float(|_| true)?;
                let ty = self.graph[grad].ty.clone();
                let output = self.find_float(|other| other.sizes == ty.sizes)?;
                let dim = self.dim(ty.rank());
                self.call(op, &[grad, output], smallvec![dim, Attr::DType(ty.dtype)])
            }
            Op::SelectBackward => {
                let grad = self.find(|_| true)?;
                let mut sizes: Vec<i64> = self.graph[grad].ty.sizes.iter().map(|&size| size as i64).collect();
                let dim = self.random.below(sizes.len() + 1);
                let size = 1 + self.random.below(4);
                sizes.insert(dim, size as i64);
                let index = self.random.below(2 * size) as i64 - size as i64;
                self.call(op, &[grad], smallvec![Attr::ints(&sizes), Attr::int(dim as i64), Attr::int(index)])
            }
            Op::SliceBackward => {
                let grad = self.find(|ty| ty.rank() > 0)?;
                let mut sizes: Vec<i64> = self.graph[grad].ty.sizes.iter().map(|&size| size as i64).collect();
                let dim = self.random.below(sizes.len());
                let [start, rest, step] = [3, 3, 3].map(|most| self.random.below(most) as i64);
                let step = step + 1;
                let end = start + (sizes[dim] - 1) * step + i64::from(sizes[dim] > 0);
                let end = end.max(start);
                sizes[dim] = end + rest;
                let numbers = [dim as i64, start, end, step].map(Attr::int);
                self.call(op, &[grad], std::iter::once(Attr::ints(&sizes)).chain(numbers).collect())
            }
            Op::Logsumexp => {
                let x = self.find(|_| true)?;
                let dims = self.dims(self.graph[x].ty.rank());
                let keep = self.random.percent(50);
                self.call(op, &[x], smallvec![dims, Attr::bool(keep)])
            }
            _ => {
                let x = self.find_float(|_| true)?;
                let dims = self.dims(self.graph[x].ty.rank());
                let keep = Attr::bool(self.random.percent(50));
                let attrs = if op == Op::Mean {
                    smallvec![
                        dims,
                        keep,
                        if self.random.percent(25) { Attr::DType(self.random.pick(&FLOATS)) } else { Attr::None }
                    ]
                } else {
                    let corrections = [Attr::None, Attr::int(0), Attr::int(1), Attr::int(2), Attr::float(0.5)];
                    smallvec![dims, corrections[self.random.below(5)].clone(), keep]
                };
                self.call(op, &[x], attrs)
            }
        }
    }

    fn propose_layer_norm(&mut self) -> Option<NodeId> {
        let x = self.find_float(|ty| ty.rank() > 0)?;
        let ty = self.graph[x].ty.clone();
        let first = self.random.below(ty.rank());
        let shape = &ty.sizes[first..];
        let mut args = vec![x];
        let mut present = [false; 2];
        for present in &mut present {
            *present = self.random.percent(60);
            if *present {
                let found = self.find(|other| other.dtype == ty.dtype && other.sizes[..] == *shape);
                args.push(found.unwrap_or_else(|| self.strided_input(ty.dtype, shape, Fill::Normal)));
            }
        }
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let eps = self.random.pick(&[1e-5, 1e-12, 0.0]);
        let attrs = smallvec![
            Attr::ints(&sizes),
            Attr::bool(present[0]),
            Attr::bool(present[1]),
            Attr::float(eps),
            Attr::bool(true)
        ];
        self.call(Op::LayerNorm, &args, attrs)
    }

    /// Two operands of a matrix product.
    fn factors(&mut self, rank: usize) -> Option<(NodeId, NodeId)> {
        let a = match self.find(|ty| ty.rank() == rank && ty.dtype != DType::Bool) {
            Some(a) => a,
            None => {
                let mut sizes: Vec<usize> = (0..rank).map(|_| 1 + self.random.below(6)).collect();
                if self.random.percent(5) {
                    sizes[0] = 0;
                }
                let dtype = self.random.pick(&FLOATS);
                self.strided_input(dtype, &sizes, Fill::Normal)
            }
        };
        let left = self.graph[a].ty.clone();
        let fits = |ty: &TensorType| {
            let same = ty.rank() == rank && ty.dtype == left.dtype && ty.sizes[..rank - 2] == left.sizes[..rank - 2];
            same && ty.sizes[rank - 2] == left.sizes[rank - 1]
        };
        if self.random.percent(30) {
            let (last, before) = (Attr::int(-1), Attr::int(-2));
            let b = self.call(Op::Transpose, &[a], smallvec![last, before])?;
            return Some((a, b));
        }
        let found = self.find(fits);
        Some((
            a,
            found.unwrap_or_else(|| {
                let mut sizes = left.sizes.to_vec();
                sizes[rank - 2] = left.sizes[rank - 1];
                sizes[rank - 1] = self.random.pick(&[0, 1, 2, 3, 5, 8, 17]);
                self.strided_input(left.dtype, &sizes, Fill::Normal)
            }),
        ))
    }

    fn propose_gather(&mut self, op: Op, kind: GatherKind) -> Option<NodeId> {
        let x = self.find(|ty| kind != GatherKind::Rows || ty.rank() == 2)?;
        let ty = self.graph[x].ty.clone();
        let dim = if kind == GatherKind::Rows { 0 } else { self.random.below(ty.rank().max(1)) };
        let size = ty.sizes.get(dim).copied().unwrap_or(1);
        let count = if size == 0 { 0 } else { self.random.below(7) };
        let sizes: Vec<usize> = match kind {
            GatherKind::Select => vec![if ty.rank() == 0 { 1 } else { count }],
            GatherKind::Rows if self.random.percent(50) => vec![count],
            GatherKind::Rows => vec![count, 1 + self.random.below(4)],
            GatherKind::Elementwise => {
                let mut sizes: Vec<usize> =
                    ty.sizes.iter().map(|&size| size - if size > 1 { self.random.below(2) } else { 0 }).collect();
                if let Some(along) = sizes.get_mut(dim) {
                    *along = count;
                }
                sizes
            }
        };
        let index = self.index(&sizes, size)?;
        let attrs: Attrs = match kind {
            GatherKind::Select => smallvec![Attr::int(dim as i64)],
            GatherKind::Elementwise => smallvec![Attr::int(dim as i64), Attr::bool(false)],
            GatherKind::Rows => smallvec![Attr::int(-1), Attr::bool(false), Attr::bool(false)],
        };
        self.call(op, &[x, index], attrs)
    }

    /// Indices below `size`: given from outside, or computed and clamped.
    pub(crate) fn index(&mut self, sizes: &[usize], size: usize) -> Option<NodeId> {
        let dtype = self.random.pick(&[DType::I64, DType::I64, DType::I32]);
        let found = self.find(|ty| ty.sizes[..] == *sizes && ty.dtype != DType::Bool);
        match found {
            Some(found) if size > 0 => {
                let whole = self.cast(found, dtype)?;
                self.call(Op::Clamp, &[whole], smallvec![Attr::int(0), Attr::int(size as i64 - 1)])
            }
            Some(_) | None => Some(self.strided_input(dtype, sizes, Fill::Index(size))),
        }
    }

    fn propose_concat(&mut self) -> Option<NodeId> {
        let first = self.find(|ty| ty.rank() > 0)?;
        let ty = self.graph[first].ty.clone();
        let dim = self.random.below(ty.rank());
        let mut args = vec![first];
        for _ in 0..self.random.below(4) {
            let fits = |other: &TensorType| {
                other.rank() == ty.rank() && (0..ty.rank()).all(|d| d == dim || other.sizes[d] == ty.sizes[d])
            };
            let found = self.find(fits);
            args.push(found?);
        }
        self.call(Op::Cat, &args, smallvec![Attr::int(dim as i64)])
    }

    fn propose_range(&mut self, op: Op) -> Option<NodeId> {
        let count = self.shape.last().copied().unwrap_or(3) as i64;
        let (start, step) = (self.random.below(9) as i64 - 4, self.random.pick(&[1, 1, 1, 2, 3, -1]));
        let dtype = self.maybe_dtype(40);
        let attrs: Attrs = if self.random.percent(60) {
            smallvec![Attr::int(start), Attr::int(start + count * step), Attr::int(step), dtype]
        } else {
            let (start, step) = (start as f64 / 8.0, step as f64 * 0.3);
            smallvec![Attr::float(start), Attr::float(start + count as f64 * step), Attr::float(step), dtype]
        };
        self.call(op, &[], attrs)
    }

    /// Sizes that broadcast to `sizes`.
    pub(crate) fn broadcastable(&mut self, sizes: &[usize]) -> Vec<usize> {
        let first = if self.random.percent(60) { 0 } else { self.random.below(sizes.len() + 1) };
        sizes[first..].iter().map(|&size| if self.random.percent(20) { 1 } else { size }).collect()
    }

    /// Sizes that broadcast to the graph's shape.
    pub(crate) fn part_of_shape(&mut self) -> Vec<usize> {
        let shape = self.shape.clone();
        self.broadcastable(&shape)
    }
}

/// How many tensors a pointwise op takes.
pub(crate) fn n_tensors(op: Op) -> usize {
    op.schema().split(['(', ',']).filter(|part| part.trim_start().starts_with("Tensor ")).count()
}
