//! Kernels as epilogues of products by groups of four warps, by bits against the interpreter on the stored product.

use crate::effort::is_left_out;
use crate::emulator::{self, Batch, Buffer, SCHEDULES};
use crate::tensor_epilogues::{Pair, geometry, layer, pair, scaled};
use crate::tensor_products::{Lies, Sizes};
use opfuse::internals::codegen::cuda::Source;
use opfuse::internals::codegen::cuda::epilogue::EpiloguePlan;
use opfuse::internals::codegen::cuda::product_grid::{LEFT, RIGHT};
use opfuse::internals::codegen::cuda::wgmma::{MAP_WORDS, WgmmaPlan};
use opfuse::ir::DType;

fn plan(pair: &Pair, columns: usize) -> WgmmaPlan {
    let plan = WgmmaPlan::with_columns(&pair.product.shape, [16, 16, 2], columns);
    plan.and_then(|plan| plan.with_epilogue(&pair.epilogue)).unwrap_or_else(|reason| panic!("{}: {reason}", pair.name))
}

fn run(pairs: &[Pair], columns: usize, mutate: impl Fn(String) -> String) -> Result<(), String> {
    let mut batch = Batch::default();
    for pair in pairs {
        let WgmmaPlan { variant, argument, maps, step } = plan(pair, columns);
        let EpiloguePlan { epilogue, argument: own } = &pair.epilogue;
        assert!(
            argument.len() % MAP_WORDS == 0
                && maps.iter().all(|map| argument[map.at..map.at + MAP_WORDS] == [0; MAP_WORDS])
        );
        let source = batch.add(&Source::of_wgmma_product(&variant, Some(epilogue), &batch.name()));
        let (buffers, mut pointers) = pair.buffers();
        pointers.extend([(own.len() + LEFT, buffers.len() - 2), (own.len() + RIGHT, buffers.len() - 1)]);
        let steps: Vec<_> = step.into_iter().collect();
        let buffers: Vec<&Buffer<'_>> = buffers.iter().collect();
        batch.launch_mapped(source, &argument, &steps, &pointers, &maps, &buffers);
    }
    let program = batch.compile(mutate);
    for schedule in SCHEDULES {
        for (pair, found) in pairs.iter().zip(program.run(schedule)?) {
            pair.judge(&found).map_err(|why| format!("schedule {schedule}: {why}"))?;
        }
    }
    Ok(())
}

fn sizes(batch: usize, m: usize, n: usize) -> Sizes {
    Sizes { batch, m, k: 200, n, lies: [Lies::Dense, Lies::Swapped], off: [0; 3] }
}

fn pairs(columns: usize) -> Vec<Pair> {
    let aligned = [0; 8];
    let mut pairs = Vec::new();
    for n in [columns - 8, 36, 30, 21, columns + 8] {
        let m = 133;
        let geometry = geometry(&layer(), &[m, n], &[&[n, 1], &[0, 1], &[n, 1], &[n, 1]]);
        pairs.push(pair(&format!("a layer of {n}"), 64, sizes(1, m, n), layer(), geometry, &aligned[..4]));
    }
    let g = geometry(&layer(), &[3 * 20, 24], &[&[24, 1], &[0, 1], &[24, 1], &[24, 1]]);
    pairs.push(pair("batches", 64, sizes(3, 20, 24), layer(), g.clone(), &aligned[..4]));
    pairs.push(pair("not aligned", 64, sizes(3, 20, 24), layer(), g, &[0, 0, 4, 0]));
    // Rows of the product are split and written elsewhere, as heads of attention are.
    let g = geometry(&layer(), &[3, 20, 16], &[&[16, 48, 1], &[16, 0, 1], &[16, 48, 1], &[320, 16, 1]]);
    pairs.push(pair("heads", 64, sizes(1, 20, 48), layer(), g, &aligned[..4]));
    for dtype in [DType::F16, DType::BF16] {
        let g = geometry(&scaled(dtype), &[37, 40], &[&[40, 1], &[1, 0], &[0, 1], &[40, 1], &[40, 1]]);
        pairs.push(pair("rows and columns", 64, sizes(1, 37, 40), scaled(dtype), g, &aligned[..5]));
    }
    pairs
}

#[test]
fn epilogues_have_the_bits_of_their_kernels() {
    if !emulator::is_available() {
        return;
    }
    for columns in [128, 256] {
        let pairs = pairs(columns);
        let widths: Vec<usize> = pairs.iter().map(|pair| plan(pair, columns).variant.width).collect();
        assert_eq!(widths, [8, 4, 2, 1, 8, 8, 2, 8, 8, 8]);
        run(&pairs, columns, |text| text).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn planted_bugs_are_detected() {
    if is_left_out() || !emulator::is_available() {
        return;
    }
    let g = geometry(&layer(), &[2 * 140, 24], &[&[24, 1], &[0, 1], &[24, 1], &[24, 1]]);
    let pairs = [pair("batches", 64, sizes(2, 140, 24), layer(), g, &[0; 4])];
    assert_eq!(run(&pairs, 128, |text| text), Ok(()), "the text as it is");
    let bugs = [
        ("a sum that is not rounded first", "Rounded<dt_bf16>::of(x[k])", "x[k]"),
        ("the element of another matrix", "((u64)matrix * (u64)m + (u64)row)", "((u64)row)"),
        ("the tile of another matrix", "lane, tile.matrix, tile.row", "lane, 0, tile.row"),
    ];
    emulator::assert_seen(&bugs, |mutate| run(&pairs, 128, mutate));
}
