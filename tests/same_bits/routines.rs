//! Proposals of routines: scans, sorts, writes by index, indices and random words; and of random ops.

use super::build::Builder;
use super::values::Fill;
use opfuse::internals::ir::routine::{Fourier, Routine, Scan};
use opfuse::ir::{Attr, Attrs, DType, NodeId, Op, Scalar};
use smallvec::smallvec;

impl Builder {
    /// A call of a routine on some value.
    pub(crate) fn propose_routine(&mut self, op: Op, routine: Routine) -> Option<NodeId> {
        let x = self.find(|_| true)?;
        let ty = self.graph[x].ty.clone();
        let dim = self.dim(ty.rank());
        match routine {
            Routine::Scan(Scan::Sum | Scan::Prod) => {
                let dtype = self.maybe_dtype(25);
                self.call(op, &[x], smallvec![dim, dtype])
            }
            Routine::Scan(Scan::ArgMax | Scan::ArgMin) => self.call(op, &[x], smallvec![dim]),
            Routine::Recurrence => {
                let term = self.find_float(|_| true)?;
                let ty = self.graph[term].ty.clone();
                let dim = self.dim(ty.rank());
                let factor = match self.find(|other| other.dtype == ty.dtype && other.sizes == ty.sizes) {
                    Some(factor) => factor,
                    None => self.strided_input(ty.dtype, &ty.sizes, Fill::Normal),
                };
                let reverse = Attr::bool(self.random.percent(50));
                self.call(op, &[factor, term], smallvec![dim, reverse])
            }
            Routine::Argsort => {
                let descending = Attr::bool(self.random.percent(50));
                self.call(op, &[x], smallvec![Attr::bool(true), dim, descending])
            }
            Routine::First => {
                let along = dim.as_int()?.rem_euclid(ty.rank().max(1) as i64) as usize;
                let size = ty.sizes.get(along).copied();
                let k = Attr::int(size.map_or(1, |size| self.random.below(size + 1)) as i64);
                let largest = Attr::bool(self.random.percent(50));
                self.call(op, &[x], smallvec![k, dim, largest])
            }
            Routine::Scatter(_) => {
                let along = dim.as_int()?.rem_euclid(ty.rank().max(1) as i64) as usize;
                let size = ty.sizes.get(along).copied().unwrap_or(1);
                let mut sizes: Vec<usize> = ty.sizes.iter().map(|&size| self.random.below(size + 1)).collect();
                if let Some(along) = sizes.get_mut(along) {
                    *along = if size == 0 { 0 } else { self.random.below(7) };
                }
                let index = self.index(&sizes, size)?;
                let larger: Vec<usize> = sizes.iter().map(|&size| size + self.random.below(2)).collect();
                let source = match self.find(|other| other.dtype == ty.dtype && other.sizes[..] == sizes[..]) {
                    Some(source) => source,
                    None => self.strided_input(ty.dtype, &larger, Fill::Normal),
                };
                let word = self.random.pick(&["sum", "prod", "mean", "amax", "amin"]);
                let with_self = Attr::bool(self.random.percent(50));
                let attrs = if op == Op::ScatterReduce {
                    smallvec![dim, Attr::Str(word.into()), with_self]
                } else {
                    smallvec![dim]
                };
                self.call(op, &[x, index, source], attrs)
            }
            Routine::FlatIndex => {
                let sizes: Vec<i64> = (0..1 + self.random.below(3)).map(|_| 1 + self.random.below(5) as i64).collect();
                let shape = self.part_of_shape();
                let indices = sizes.iter().map(|&size| self.index(&shape, size as usize));
                let indices = indices.collect::<Option<Vec<NodeId>>>()?;
                let wrap = Attr::bool(self.random.percent(50));
                self.call(op, &indices, smallvec![Attr::ints(&sizes), wrap])
            }
            Routine::Bits => self.propose_random(op),
            Routine::WindowProduct => self.propose_window_product(op),
            Routine::Matrix(_) => self.propose_matrices(op),
            Routine::Fourier(kind) => self.propose_fourier(op, kind),
        }
    }

    /// A Fourier transform of any length.
    fn propose_fourier(&mut self, op: Op, kind: Fourier) -> Option<NodeId> {
        let mut sizes = self.part_of_shape();
        sizes.insert(self.random.below(sizes.len() + 1), 1 + self.random.below(20));
        let dim = self.random.below(sizes.len());
        sizes[dim] = sizes[dim].max(1);
        let length = sizes[dim];
        match kind {
            Fourier::Complex => sizes.push(2),
            Fourier::FromReal => {}
            Fourier::ToReal => {
                sizes[dim] = length / 2 + 1;
                sizes.push(2);
            }
        }
        let dtype = self.random.pick(&[DType::F32, DType::F64]);
        let x = match self.find(|other| other.dtype == dtype && other.sizes[..] == sizes[..]) {
            Some(x) => x,
            None => self.strided_input(dtype, &sizes, Fill::Normal),
        };
        let (dim, scale) = (Attr::int(dim as i64), Attr::float(self.random.pick(&[1.0, 0.3])));
        let either = Attr::bool(self.random.percent(50));
        match kind {
            Fourier::Complex | Fourier::FromReal => self.call(op, &[x], smallvec![dim, either, scale]),
            Fourier::ToReal => self.call(op, &[x], smallvec![dim, Attr::int(length as i64), scale]),
        }
    }

    /// Work on two matrices, which can be inverted and, by one triangle, be factorized.
    fn propose_matrices(&mut self, op: Op) -> Option<NodeId> {
        let order = self.random.below(5);
        let columns = self.random.below(5);
        let dtype = self.random.pick(&[DType::F32, DType::F64]);
        let pairs = self.random.percent(50);
        let of_pairs = Attr::bool(pairs);
        let matrix = |builder: &mut Builder, sizes: [usize; 2]| {
            let sizes = [2, sizes[0], sizes[1], 2];
            builder.strided_input(dtype, &sizes[..if pairs { 4 } else { 3 }], Fill::Normal)
        };
        let [one, other] = [0; 2].map(|_| Attr::bool(self.random.percent(50)));
        match op {
            Op::QrFactors | Op::Svd => {
                let matrix = matrix(self, [order, columns]);
                self.call(op, &[matrix], smallvec![one, of_pairs])
            }
            Op::SingularValues => {
                let matrix = matrix(self, [order, columns]);
                self.call(op, &[matrix], smallvec![of_pairs])
            }
            Op::Pseudoinverse => {
                let matrix = matrix(self, [order, columns]);
                let sizes = [2, 1, 1, 2];
                let sizes = &sizes[..if pairs { 4 } else { 3 }];
                let tolerances = [0; 2].map(|_| self.strided_input(dtype, sizes, Fill::Positive));
                self.call(op, &[matrix, tolerances[0], tolerances[1]], smallvec![of_pairs])
            }
            Op::LuPermutation => {
                let n_swaps = self.random.below(order + 1);
                let swaps = self.strided_input(DType::I32, &[2, n_swaps], Fill::Index(order.max(1)));
                let counted = self.plus(swaps, 1)?;
                self.call(op, &[counted], smallvec![Attr::int(order as i64)])
            }
            Op::SolveTriangular | Op::Solve => {
                let right = matrix(self, [order, columns]);
                let left = self.dominated(dtype, order, pairs)?;
                let attrs = if op == Op::Solve { smallvec![one, of_pairs] } else { smallvec![one, other, of_pairs] };
                self.call(op, &[left, right], attrs)
            }
            Op::CholeskyFactor => {
                let matrix = self.dominated(dtype, order, pairs)?;
                self.call(op, &[matrix], smallvec![one, other, of_pairs])
            }
            Op::Inverse | Op::LuFactors => {
                let matrix = self.dominated(dtype, order, pairs)?;
                self.call(op, &[matrix], smallvec![one, of_pairs])
            }
            _ => {
                let matrix = self.dominated(dtype, order, pairs)?;
                self.call(op, &[matrix], smallvec![of_pairs])
            }
        }
    }

    /// Two square matrices, in each row of which the number on the diagonal is greater than all others together. As
    /// pairs, they have imaginary parts.
    fn dominated(&mut self, dtype: DType, order: usize, pairs: bool) -> Option<NodeId> {
        let real = self.dominated_parts(dtype, order)?;
        if !pairs {
            return Some(real);
        }
        let imaginary = self.strided_input(dtype, &[2, order, order], Fill::Normal);
        let imaginary = self.call(Op::Tanh, &[imaginary], Attrs::new())?;
        let parts = [real, imaginary].map(|part| self.call(Op::Unsqueeze, &[part], smallvec![Attr::int(3)]));
        self.call(Op::Cat, &[parts[0]?, parts[1]?], smallvec![Attr::int(3)])
    }

    fn dominated_parts(&mut self, dtype: DType, order: usize) -> Option<NodeId> {
        let all = self.strided_input(dtype, &[2, order, order], Fill::Normal);
        let small = self.call(Op::Tanh, &[all], Attrs::new())?;
        let some = self.strided_input(dtype, &[2, order], Fill::Normal);
        let some = self.call(Op::Tanh, &[some], Attrs::new())?;
        let great = self.plus(some, 8)?;
        self.call(Op::DiagonalScatter, &[small, great], smallvec![Attr::int(0), Attr::int(1), Attr::int(2)])
    }

    fn plus(&mut self, x: NodeId, count: i64) -> Option<NodeId> {
        let count = self.graph.number(Scalar::Int(count));
        self.call(Op::Add, &[x, count], smallvec![Attr::int(1)])
    }

    /// Matrices times any view of some values.
    fn propose_window_product(&mut self, op: Op) -> Option<NodeId> {
        let windows = self.find_float(|ty| ty.rank() >= 2)?;
        let ty = self.graph[windows].ty.clone();
        let inner = self.random.below(ty.rank() - 1);
        let depth: usize = ty.sizes[2..2 + inner].iter().product();
        let rows = self.random.below(20);
        let left = self.strided_input(ty.dtype, &[ty.sizes[0], ty.sizes[1], rows, depth], Fill::Normal);
        self.call(op, &[left, windows], smallvec![Attr::int(inner as i64)])
    }

    /// The gradient of a lookup in a table.
    pub(crate) fn propose_embedding_backward(&mut self) -> Option<NodeId> {
        let grad = self.find_float(|ty| ty.rank() > 0)?;
        let sizes = self.graph[grad].ty.sizes.to_vec();
        let n_rows = 1 + self.random.below(5);
        let index = self.index(&sizes[..sizes.len() - 1], n_rows)?;
        let padding = self.random.below(n_rows + 1) as i64 - 1;
        let by_count = Attr::bool(self.random.percent(50));
        let attrs = smallvec![Attr::int(n_rows as i64), Attr::int(padding), by_count];
        self.call(Op::EmbeddingDenseBackward, &[grad, index], attrs)
    }

    /// A call of a random op, on a key.
    pub(crate) fn propose_random(&mut self, op: Op) -> Option<NodeId> {
        let key = match self.find(|ty| ty.dtype == DType::I64 && ty.sizes[..] == [2]) {
            Some(key) => key,
            None => self.strided_input(DType::I64, &[2], Fill::Normal),
        };
        let sizes: Vec<i64> = self.part_of_shape().iter().map(|&size| size as i64).collect();
        let mut attrs: Attrs = smallvec![Attr::ints(&sizes)];
        match op {
            Op::RandomBits => attrs.push(Attr::DType(self.random.pick(&[DType::I32, DType::I64]))),
            Op::RandomBernoulli => attrs.push(Attr::float(self.random.pick(&[0.0, 1e-9, 0.1, 0.5, 0.9, 1.0]))),
            Op::RandomRange => attrs.extend([Attr::int(-3), Attr::int(self.random.pick(&[-2, 4, 1 << 40, i64::MAX]))]),
            _ => attrs.push(self.maybe_dtype(70)),
        }
        self.call(op, &[key], attrs)
    }
}
