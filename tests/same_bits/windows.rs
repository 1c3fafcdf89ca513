//! Proposals of convolutions and pooling.

use super::build::Builder;
use super::values::Fill;
use opfuse::ir::{Attr, Attrs, DType, NodeId, Op};
use smallvec::smallvec;

const NUMBERS: [DType; 6] = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I64, DType::U8];

/// One random number per dim.
fn list(builder: &mut Builder, n: usize, least: i64, bound: usize) -> Attr {
    Attr::Ints((0..n).map(|_| least + builder.random.below(bound) as i64).collect())
}

impl Builder {
    /// A call of an op over windows, if the proposal is legal.
    pub(crate) fn propose_windows(&mut self, op: Op) -> Option<NodeId> {
        match op {
            Op::MaxPoolIndex | Op::MaxPool => {
                let x = self.find(|ty| ty.dtype != DType::Bool)?;
                let n = self.random.below(self.graph[x].ty.rank().min(2) + 1);
                let attrs: Attrs = smallvec![
                    list(self, n, 1, 3),
                    list(self, n, 1, 2),
                    list(self, n, 0, 2),
                    list(self, n, 1, 2),
                    list(self, n, 1, 3)
                ];
                self.call(op, &[x], attrs)
            }
            _ => self.propose_convolution(op),
        }
    }

    fn propose_convolution(&mut self, op: Op) -> Option<NodeId> {
        let n = 1 + self.random.below(2);
        let groups = 1 + self.random.below(2);
        let mut small = |bound: usize| 1 + self.random.below(bound);
        let (samples, inner, outer) = (small(2), groups * small(2), groups * small(2));
        let sizes: Vec<usize> = (0..n).map(|_| small(4)).collect();
        let kernel: Vec<usize> = (0..n).map(|_| small(3)).collect();
        let dtype = self.random.pick(&NUMBERS);
        let x = self.strided_input(dtype, &[&[samples, inner], &sizes[..]].concat(), Fill::Normal);
        let [stride, padding, dilation] = [list(self, n, 1, 2), list(self, n, 0, 3), list(self, n, 1, 2)];
        let groups_attr = Attr::int(groups as i64);
        if op == Op::ConvolutionWeight {
            let places: Vec<usize> = (0..n).map(|_| 1 + self.random.below(3)).collect();
            let g = self.strided_input(dtype, &[&[samples, outer], &places[..]].concat(), Fill::Normal);
            let kernel = Attr::Ints(kernel.iter().map(|&size| size as i64).collect());
            return self.call(op, &[x, g], smallvec![kernel, stride, padding, dilation, groups_attr]);
        }
        let transposed = self.random.percent(50);
        let channels = if transposed { [inner, outer / groups] } else { [outer, inner / groups] };
        let weight = self.strided_input(dtype, &[&channels, &kernel[..]].concat(), Fill::Normal);
        let mut args = vec![x, weight];
        let has_bias = self.random.percent(50);
        if has_bias {
            args.push(self.strided_input(dtype, &[outer], Fill::Normal));
        }
        let more = if transposed { list(self, n, 0, 2) } else { list(self, n, 0, 1) };
        let attrs =
            smallvec![Attr::bool(has_bias), stride, padding, dilation, Attr::bool(transposed), more, groups_attr];
        self.call(op, &args, attrs)
    }
}
