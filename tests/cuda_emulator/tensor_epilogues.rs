//! Kernels as epilogues of products on tensor cores, by bits against the interpreter on the stored product.

use crate::effort::is_left_out;
use crate::emulator::{self, Batch, Buffer, SCHEDULES};
use crate::kernels::{self, Builder, Random, buffer};
use crate::tensor_products::{Lies, Numbers, Sizes, bytes, case_into, shape_of};
use opfuse::internals::codegen::cuda::Source;
use opfuse::internals::codegen::cuda::epilogue::EpiloguePlan;
use opfuse::internals::codegen::cuda::product_grid::{LEFT, RIGHT};
use opfuse::internals::codegen::cuda::tensor_cores::TensorPlan;
use opfuse::internals::codegen::geometry::{Access, Geometry, Lanes};
use opfuse::internals::codegen::kernel::{Kernel, Level, Source as From};
use opfuse::internals::ir::scalar::{Func, Lit, Prim, Reg, Ty};
use opfuse::ir::DType;

/// A product, its epilogue, and the epilogue's results on the stored product.
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) product: crate::tensor_products::Case,
    plan: TensorPlan,
    pub(crate) epilogue: EpiloguePlan,
    kernel: kernels::Case,
    /// Bytes of each of the kernel's buffers after a multiple of 16.
    off: Vec<usize>,
}

/// A kernel of operands of these dtypes, the first of which is the product, and of a result of the last.
fn kernel(dtypes: &[DType], results: &[DType], body: impl Fn(&mut Builder, &[Reg]) -> Vec<Reg>) -> Kernel {
    let mut b = Builder::default();
    let args: Vec<Reg> = dtypes.iter().map(|&dtype| b.load(dtype, From::Memory, Level::Full)).collect();
    let values = body(&mut b, &args);
    values.into_iter().zip(results).for_each(|(value, &dtype)| b.output(dtype, value));
    b.kernel
}

/// Loops, and by access its strides in elements.
pub(crate) fn geometry(kernel: &Kernel, loops: &[usize], strides: &[&[usize]]) -> Geometry {
    let (&inner, rows) = loops.split_last().expect("there is a loop");
    let access = |(strides, dtype): (&&[usize], DType)| {
        let bytes: Vec<usize> = strides.iter().map(|stride| stride * dtype.size()).collect();
        let (&inner, rows) = bytes.split_last().expect("there is a loop");
        Access { rows: rows.into(), inner: [inner].into_iter().collect(), base: 0, gather: None }
    };
    let mut accesses: Vec<Access> = strides.iter().zip(kernel.dtypes()).map(access).collect();
    let outputs = accesses.split_off(kernel.operands.len());
    let inner = [inner].into_iter().collect();
    Geometry { rows: rows.into(), inner, operands: accesses, outputs, lanes: Lanes::Inner }
}

fn extent(geometry: &Geometry, access: &Access, dtype: DType) -> usize {
    let sizes = geometry.rows.iter().chain(&geometry.inner);
    let last: usize =
        sizes.zip(access.rows.iter().chain(&access.inner)).map(|(size, stride)| (size - 1) * stride).sum();
    last / dtype.size() + 1
}

pub(crate) fn pair(name: &str, tile: usize, sizes: Sizes, kernel: Kernel, geometry: Geometry, off: &[usize]) -> Pair {
    let dtype = kernel.operands[0].dtype;
    let of = if dtype == DType::F32 { DType::BF16 } else { dtype };
    let product = case_into([of, dtype], tile, sizes, Numbers::Whole);
    let stored: Vec<u8> = product.expected.iter().flat_map(|(sum, _)| bytes(dtype, *sum)).collect();
    let mut random = Random::new(7);
    let accesses = geometry.operands.iter().chain(&geometry.outputs).zip(kernel.dtypes());
    let lengths: Vec<(usize, DType)> =
        accesses.map(|(access, dtype)| (extent(&geometry, access, dtype), dtype)).collect();
    let mut inputs: Vec<Vec<u8>> = lengths.iter().map(|&(n, dtype)| buffer(&mut random, dtype, n)).collect();
    let outputs = inputs.split_off(kernel.operands.len()).into_iter().map(|bytes| vec![0xa5; bytes.len()]).collect();
    inputs[0] = stored;
    let alignments: Vec<usize> =
        off.iter().map(|&off| if off % 16 == 0 { 16 } else { off & off.wrapping_neg() }).collect();
    let epilogue = EpiloguePlan::new(&kernel, &geometry, 0, &product.shape, &alignments);
    let epilogue = epilogue.unwrap_or_else(|reason| panic!("{name}: {reason}"));
    let plan = product.plan.clone().with_epilogue(&epilogue);
    let kernel = kernels::Case { kernel, geometry, inputs, outputs };
    Pair { name: name.into(), product, plan, epilogue, kernel, off: off.to_vec() }
}

impl Pair {
    /// The buffers of a launch, those of the product's operands last, and which of the kernel's addresses the others
    /// are. The product itself has no buffer.
    pub(crate) fn buffers(&self) -> (Vec<Buffer<'_>>, Vec<(usize, usize)>) {
        let own = self.kernel.inputs.iter().chain(&self.kernel.outputs).zip(&self.off).skip(1);
        let mut buffers: Vec<Buffer<'_>> =
            own.map(|(bytes, &remainder)| Buffer { bytes, remainder: remainder % 16, apart: 0 }).collect();
        let layout = self.epilogue.epilogue.variant.layout;
        let pointers = (0..buffers.len()).map(|slot| (layout.address(slot + 1), slot)).collect();
        buffers.extend(self.product.operands.iter().map(|bytes| Buffer { bytes, remainder: 0, apart: 0 }));
        (buffers, pointers)
    }

    /// The first difference of the buffers after a run.
    pub(crate) fn judge(&self, found: &[Vec<u8>]) -> Result<(), String> {
        let (expected, _) = self.kernel.expected();
        let found = &found[self.kernel.inputs.len() - 1..];
        for (slot, (expected, found)) in expected.iter().zip(found).enumerate() {
            if let Some(at) = (0..expected.len()).find(|&at| expected[at] != found[at]) {
                return Err(format!("{}: output {slot} differs at byte {at}", self.name));
            }
        }
        Ok(())
    }
}

fn run(pairs: &[Pair], mutate: impl Fn(String) -> String) -> Result<(), String> {
    let mut batch = Batch::default();
    for pair in pairs {
        let (plan, EpiloguePlan { epilogue, argument }) = (&pair.plan, &pair.epilogue);
        let source = batch.add(&Source::of_tensor_product(&plan.variant, Some(epilogue), &batch.name()));
        let (buffers, mut pointers) = pair.buffers();
        pointers.extend([(argument.len() + LEFT, buffers.len() - 2), (argument.len() + RIGHT, buffers.len() - 1)]);
        let steps: Vec<_> = plan.step.into_iter().collect();
        let buffers: Vec<&Buffer<'_>> = buffers.iter().collect();
        batch.launch(source, &plan.argument, &steps, &pointers, &buffers);
    }
    let program = batch.compile(mutate);
    for schedule in SCHEDULES {
        for (pair, found) in pairs.iter().zip(program.run(schedule)?) {
            pair.judge(&found).map_err(|why| format!("schedule {schedule}: {why}"))?;
        }
    }
    Ok(())
}

const BF16: DType = DType::BF16;

fn sizes(batch: usize, m: usize, n: usize) -> Sizes {
    Sizes { batch, m, k: 200, n, lies: [Lies::Dense; 2], off: [0; 3] }
}

/// `gelu(product + bias) + residual`, rounded where eager calls would store.
pub(crate) fn layer() -> Kernel {
    kernel(&[BF16, BF16, BF16], &[BF16], |b, x| {
        let sum = b.prim(Prim::Add, &x[..2]);
        let sum = b.prim(Prim::RoundBF16, &[sum]);
        let gelu = b.func(Func::GeluTanh, &[sum]);
        let gelu = b.prim(Prim::RoundBF16, &[gelu]);
        vec![b.prim(Prim::Add, &[gelu, x[2]])]
    })
}

/// The product scaled by row and by column, in f32, and whether it is above zero.
pub(crate) fn scaled(dtype: DType) -> Kernel {
    kernel(&[dtype, DType::F32, DType::F16], &[DType::F32, DType::Bool], |b, x| {
        let (row, column) = (x[1], x[2]);
        let scaled = b.prim(Prim::Mul, &[x[0], row]);
        let scaled = b.prim(Prim::Mul, &[scaled, column]);
        let zero = b.lit(Lit::f32(0.0));
        vec![scaled, b.prim(Prim::Lt, &[zero, x[0]])]
    })
}

fn pairs(tile: usize) -> Vec<Pair> {
    let aligned = [0; 8];
    let mut pairs = Vec::new();
    for n in [tile - 8, 36, 30, 21, tile + 8] {
        let m = tile + 5;
        let geometry = geometry(&layer(), &[m, n], &[&[n, 1], &[0, 1], &[n, 1], &[n, 1]]);
        pairs.push(pair(&format!("a layer of {n}"), tile, sizes(1, m, n), layer(), geometry, &aligned[..4]));
    }
    // Batches share a bias; the residual is not aligned, so vectors are short.
    let g = geometry(&layer(), &[3 * 20, 24], &[&[24, 1], &[0, 1], &[24, 1], &[24, 1]]);
    pairs.push(pair("batches", tile, sizes(3, 20, 24), layer(), g.clone(), &aligned[..4]));
    pairs.push(pair("not aligned", tile, sizes(3, 20, 24), layer(), g, &[0, 0, 4, 0]));
    // Loops merged into one line, also of no whole rows of the product.
    let g = geometry(&layer(), &[2 * 20 * 24], &[&[1][..]; 4]);
    pairs.push(pair("in line", tile, sizes(2, 20, 24), layer(), g, &aligned[..4]));
    // Rows of the product are split and written elsewhere, as heads of attention are; loops are in the result's order.
    let g = geometry(&layer(), &[3, 20, 16], &[&[16, 48, 1], &[16, 0, 1], &[16, 48, 1], &[320, 16, 1]]);
    pairs.push(pair("heads", tile, sizes(1, 20, 48), layer(), g, &aligned[..4]));
    // A product of f32 is one of bf16 whose sums are not rounded.
    for dtype in [DType::F16, BF16, DType::F32] {
        let g = geometry(&scaled(dtype), &[37, 40], &[&[40, 1], &[1, 0], &[0, 1], &[40, 1], &[40, 1]]);
        pairs.push(pair("rows and columns", tile, sizes(1, 37, 40), scaled(dtype), g, &aligned[..5]));
        // Columns that jump through memory.
        let g = geometry(&scaled(dtype), &[37, 40], &[&[40, 1], &[1, 0], &[0, 3], &[1, 37], &[40, 1]]);
        pairs.push(pair("jumps", tile, sizes(1, 37, 40), scaled(dtype), g, &aligned[..5]));
    }
    pairs
}

#[test]
fn epilogues_have_the_bits_of_their_kernels() {
    if !emulator::is_available() {
        return;
    }
    let (small, large) = (pairs(64), pairs(128));
    let widths: Vec<usize> = small.iter().map(|pair| pair.plan.variant.width).collect();
    assert_eq!(widths, [8, 4, 2, 1, 8, 8, 2, 8, 8, 8, 1, 8, 1, 8, 1]);
    for pairs in [small, large] {
        run(&pairs, |text| text).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn declined_epilogues_have_a_reason() {
    let shape = shape_of(BF16, [1, 20, 40, 24], [0, 40, 1], [0, 24, 1]);
    let reason = |kernel: &Kernel, geometry: &Geometry| {
        let plan = EpiloguePlan::new(kernel, geometry, 0, &shape, &[16; 8]);
        plan.expect_err("it is none").to_string()
    };
    let turned = geometry(&layer(), &[24, 20], &[&[1, 24], &[1, 0], &[1, 24], &[1, 24]]);
    assert!(reason(&layer(), &turned).contains("in the order of its elements"));
    let other = geometry(&layer(), &[480], &[&[1][..]; 4]);
    assert!(EpiloguePlan::new(&layer(), &other, 0, &shape, &[16; 8]).is_ok());
    let part = geometry(&layer(), &[240], &[&[1][..]; 4]);
    assert!(reason(&layer(), &part).contains("in the order of its elements"));
    let divided = kernel(&[BF16, DType::I64], &[DType::I64], |b, x| {
        let whole = b.prim(Prim::Convert(Ty::I64), &[x[0]]);
        vec![b.prim(Prim::Rem, &[whole, x[1]])]
    });
    assert!(reason(&divided, &geometry(&divided, &[480], &[&[1][..]; 3])).contains("may fault"));
    let sum = crate::kernels::listed::folded(opfuse::internals::ir::row::Combine::Sum, DType::F32);
    assert!(reason(&sum, &geometry(&sum, &[480], &[&[1][..]; 2])).contains("it reduces"));
}

#[test]
fn planted_bugs_are_detected() {
    if is_left_out() || !emulator::is_available() {
        return;
    }
    let g = geometry(&layer(), &[2 * 70, 24], &[&[24, 1], &[0, 1], &[24, 1], &[24, 1]]);
    let f32s = geometry(&scaled(BF16), &[2 * 70, 24], &[&[24, 1], &[1, 0], &[0, 1], &[24, 1], &[24, 1]]);
    let pairs = [
        pair("batches", 64, sizes(2, 70, 24), layer(), g, &[0; 4]),
        pair("in f32", 64, sizes(2, 70, 24), scaled(BF16), f32s, &[0; 5]),
    ];
    assert_eq!(run(&pairs, |text| text), Ok(()), "the text as it is");
    let bugs = [
        ("a sum that is not rounded first", "Rounded<dt_bf16>::of(x[k])", "x[k]"),
        ("elements of another row", "(u32)element - row * (u32)", "(u32)element - 0 * (u32)"),
        ("the element of another matrix", "((u64)matrix * (u64)m + (u64)row)", "((u64)row)"),
        ("neighbours out of place", "a2 + i * 2, n", "a2, n"),
    ];
    emulator::assert_seen(&bugs, |mutate| run(&pairs, mutate));
}
