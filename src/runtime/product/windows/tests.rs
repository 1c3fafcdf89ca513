//! Products of windows against their chains, by bits, at every instruction set of the processor.

use super::super::tests::{Bits, Random, random, wrong_element};
use super::{MultiplyDirectly, Operands};
use crate::codegen::vm::Isa;
use crate::ir::{DType, Layout, Sizes, Strides};
use crate::runtime::array::Array;

/// A convolution: samples, groups, rows, channels of a group, places, taps and stride.
#[derive(Debug, Clone, Copy)]
struct Case {
    samples: usize,
    groups: usize,
    rows: usize,
    channels: usize,
    places: [usize; 2],
    taps: [usize; 2],
    stride: usize,
    /// Whether places are the inner dims and taps the columns, as for the gradient by the weight.
    is_turned: bool,
}

impl Case {
    fn random(random: &mut Random) -> Case {
        let mut up_to = |most: usize| 1 + random.below(most);
        Case {
            samples: up_to(3),
            groups: up_to(2),
            rows: up_to(30),
            channels: up_to(5),
            places: [up_to(9), up_to(70)],
            taps: [up_to(3), up_to(4)],
            stride: if up_to(4) == 4 { 2 } else { 1 },
            is_turned: up_to(2) == 2,
        }
    }

    /// The windows of an image, which is dense: samples, groups, inner dims, columns; and the number of inner dims.
    fn windows(self, image: &Array) -> (Array, usize) {
        let [_, _, height, width] = image.layout().sizes[..] else { unreachable!("images have four dims") };
        let channel = (self.channels, height * width);
        let tap = [(self.taps[0], width), (self.taps[1], 1)];
        let place = [(self.places[0], self.stride * width), (self.places[1], self.stride)];
        let (inner, columns) = match self.is_turned {
            true => ([&place[..], &[]].concat(), [&[channel], &tap[..]].concat()),
            false => ([&[channel], &tap[..]].concat(), place.to_vec()),
        };
        let apart = self.channels * height * width;
        let batch = [(self.samples, self.groups * apart), (self.groups, apart)];
        let (sizes, strides): (Sizes, Strides) = [&batch[..], &inner, &columns].concat().into_iter().unzip();
        (image.with_layout(Layout { sizes, strides, offset: 0 }), inner.len())
    }

    /// A message if the product is wrong.
    fn wrong<T>(self, isa: Isa, dtype: DType, numbers: &mut Random) -> Option<String>
    where
        T: Bits + MultiplyDirectly + bytemuck::NoUninit + bytemuck::AnyBitPattern,
    {
        let [height, width] = [0, 1].map(|d: usize| (self.places[d] - 1) * self.stride + self.taps[d]);
        let image = random::<T>(dtype, &[self.samples, self.groups * self.channels, height, width], numbers);
        let (windows, inner) = self.windows(&image);
        let sizes = &windows.layout().sizes[2..];
        let [k, n] = [&sizes[..inner], &sizes[inner..]].map(|sizes| sizes.iter().product::<usize>());
        let left = random::<T>(dtype, &[self.samples, self.groups, self.rows, k], numbers);
        let out = random::<T>(dtype, &[self.samples, self.groups, self.rows, n], numbers);
        Operands::<T>::new(isa, &left, &windows, &out, inner).and_then(|all| all.multiply(false)).expect("memory");
        let wrong = wrong_element::<T>([&left, &windows, &out], [self.rows, k, n]);
        wrong.map(|wrong| format!("{isa:?} {self:?}: {wrong}"))
    }
}

#[test]
fn every_element_of_a_product_of_windows_is_one_chain() {
    let mut random = Random(5);
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for nth in 0..80 {
            let case = Case::random(&mut random);
            let found = match nth % 2 {
                0 => case.wrong::<f32>(isa, DType::F32, &mut random),
                _ => case.wrong::<f64>(isa, DType::F64, &mut random),
            };
            assert_eq!(found, None);
        }
    }
}
