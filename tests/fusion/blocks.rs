//! Blocks of rows: products and the kernels around them have eager's bits, whatever the shapes.

use crate::effort::n_cases;
use crate::on_threads;
use crate::values::{Numbers, bits, softmax_by_parts};
use opfuse::compile::explain::{Decision, Edge, Group, GroupKind};
use opfuse::internals::runtime::Traffic;
use opfuse::{DType, Explain, Result, Tensor, compile};

type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// Functions of `a` (m x k), `b` (k x n), a vector of n, a tensor like the product, and `c` (n x k).
const CHAINS: &[(&str, Function)] = &[
    ("bias", |x| Ok(vec![(x[0].matmul(&x[1])? + &x[2])?])),
    ("bias and relu", |x| Ok(vec![(x[0].matmul(&x[1])? + &x[2])?.relu()?])),
    ("residual", |x| Ok(vec![(x[0].matmul(&x[1])? + &x[3])?.tanh()?])),
    ("softmax", |x| Ok(vec![softmax_by_parts(&x[0].matmul(&x[1])?)?])),
    ("row sums and values", |x| {
        let product = x[0].matmul(&x[1])?;
        Ok(vec![product.sum(-1, false)?, (&product * 2.0)?])
    }),
    ("the product is an output too", |x| {
        let product = x[0].matmul(&x[1])?;
        Ok(vec![product.exp()?, product])
    }),
    ("attention", |x| {
        let scores = ((x[0].matmul(&x[1])? * 0.3)? + &x[3])?;
        Ok(vec![softmax_by_parts(&scores)?.matmul(&x[4])?])
    }),
    ("two layers", |x| {
        let hidden = (x[0].matmul(&x[1])? + &x[2])?.relu()?;
        Ok(vec![(hidden.matmul(&x[4])? + &x[0])?])
    }),
    ("one input, two products", |x| Ok(vec![(x[0].matmul(&x[1])? + &x[2])?, x[0].matmul(&x[1].exp()?)?.relu()?])),
    ("columns", |x| Ok(vec![softmax_by_parts(&x[0].matmul(&x[1])?.transpose(-2, -1)?)?])),
    ("the other side", |x| Ok(vec![x[1].matmul(&x[0].matmul(&x[1])?.transpose(-2, -1)?.contiguous()?.exp()?)?])),
];

#[test]
fn chains_keep_the_bits() -> Result<()> {
    let mut numbers = Numbers::new(0x5eed);
    let (mut blocks, mut of_all) = (0, 0);
    for case in 0..440 {
        let (name, function) = CHAINS[case % CHAINS.len()];
        let dtype = numbers.pick(&[DType::F32, DType::F32, DType::F64, DType::BF16]);
        let (m, k, n) = (
            numbers.pick(&[1, 5, 70, 130, 257, 300]),
            numbers.pick(&[1, 3, 16, 40]),
            numbers.pick(&[1, 8, 31, 64, 65]),
        );
        let lead: &[usize] = numbers.pick(&[&[][..], &[][..], &[3][..], &[2, 3][..], &[1][..]]);
        let with = |sizes: &[usize]| [lead, sizes].concat();
        let mut inputs = vec![
            numbers.tensor(&with(&[m, k]), dtype)?,
            numbers.tensor(&with(&[k, n]), dtype)?,
            numbers.tensor(&[n], dtype)?,
            numbers.tensor(&with(&[m, n]), dtype)?,
            numbers.tensor(&with(&[n, k]), dtype)?,
        ];
        if case % 3 == 0 {
            // The same sizes in a transposed layout.
            inputs[1] = inputs[1].transpose(-2, -1)?.contiguous()?.transpose(-2, -1)?;
            inputs[0] = inputs[0].transpose(-2, -1)?.contiguous()?.transpose(-2, -1)?;
        }
        let eager = function(&inputs)?;
        let compiled = compile(move |inputs: &[Tensor]| function(inputs));
        for threads in [1, 2] {
            let call = || on_threads(threads, || compiled.call(&inputs[..]));
            call()?;
            for (eager, found) in eager.iter().zip(call()?) {
                let what = format!("{name} of {lead:?} {m} x {k} x {n}, {dtype}, {threads} threads");
                assert_eq!((eager.sizes(), eager.strides()), (found.sizes(), found.strides()), "{what}");
                assert!(bits(eager) == bits(&found), "{what}: other bits\n{}", compiled.explain());
            }
        }
        blocks += compiled.explain().groups.iter().any(|group| group.kind == GroupKind::Blocks) as usize;
        of_all += 1;
    }
    assert!(blocks * 4 > of_all, "only {blocks} of {of_all} chains were put into blocks");
    Ok(())
}

/// A result that products of the group read as a matrix, while it has these sizes itself.
#[test]
fn results_that_products_read_in_other_sizes_keep_the_bits() -> Result<()> {
    let mut numbers = Numbers::new(0x0ddf);
    for rows in [1, 2, 64, 300] {
        for sizes in [vec![rows, 8, 8], vec![rows * 64], vec![1, rows, 64], vec![rows, 1, 64], vec![rows, 2, 4, 8]] {
            let inputs = [
                numbers.tensor(&[rows, 64], DType::F32)?,
                numbers.tensor(&[64, 64], DType::F32)?,
                numbers.tensor(&sizes, DType::F32)?,
            ];
            let of = sizes.clone();
            let function = move |x: &[Tensor]| {
                let of: Vec<i64> = of.iter().map(|&size| size as i64).collect();
                let result = (x[0].matmul(&x[1])?.reshape(&of[..])? * &x[2])?.tanh()?;
                let matrix = result.reshape([rows as i64, 64])?;
                let sum = (matrix.matmul(&x[1])? + matrix.matmul(&x[1].transpose(0, 1)?)?)?;
                Ok(vec![result, sum.tanh()?])
            };
            let eager = function(&inputs)?;
            let compiled = compile(function);
            for threads in [1, 2] {
                let found = on_threads(threads, || compiled.call(&inputs[..]))?;
                for (eager, found) in eager.iter().zip(&found) {
                    let what = format!("{rows} rows as {sizes:?}, {threads} threads");
                    assert!(bits(eager) == bits(found), "{what}: other bits\n{}", compiled.explain());
                }
            }
            let is_one = compiled.explain().groups.iter().filter(|group| group.kind == GroupKind::Blocks).count() == 1;
            assert!(is_one || rows < 64, "the products of {sizes:?} are no group\n{}", compiled.explain());
        }
    }
    Ok(())
}

/// Batches, rows of a batch, heads and their size.
type Heads = [usize; 4];

/// Functions that reorder the elements of products. The operands are `x` (batch x rows x width), weights (width x
/// width, width x 3 width), a bias of the width, and matrices per head (rows x size of a head, size of a head x rows).
type Moving = fn(&[Tensor], Heads) -> Result<Vec<Tensor>>;

fn split(x: &Tensor, [batch, rows, heads, size]: Heads) -> Result<Tensor> {
    x.reshape(&[batch, rows, heads, size][..])?.transpose(1, 2)
}

fn merged(x: &Tensor, [batch, rows, heads, size]: Heads) -> Result<Tensor> {
    x.reshape(&[batch, heads, rows, size][..])?.transpose(1, 2)?.reshape(&[batch, rows, heads * size][..])
}

/// Each has the number of kernels for `WIDE`, and the reason of each edge that is not fused.
const MOVES: &[(&str, Moving, usize, &[&str])] = &[
    ("heads split", |x, h| Ok(vec![split(&(x[0].matmul(&x[1])? + &x[3])?, h)?.contiguous()?]), 1, &[]),
    (
        "heads split and transposed",
        |x, h| Ok(vec![split(&x[0].matmul(&x[1])?, h)?.transpose(-2, -1)?.contiguous()?.exp()?]),
        1,
        &[],
    ),
    (
        "two parts of one product",
        |x, h| {
            let all = (x[0].matmul(&x[2])? * 0.5)?;
            let width = (h[2] * h[3]) as i64;
            let part = |at: i64| split(&all.slice(-1, at * width, (at + 1) * width, 1)?, h);
            Ok(vec![part(0)?.transpose(-2, -1)?.contiguous()?, part(1)?.contiguous()?.relu()?])
        },
        1,
        &[],
    ),
    (
        "a part of a product alone",
        |x, h| {
            let width = (h[2] * h[3]) as i64;
            Ok(vec![split(&x[0].matmul(&x[2])?.slice(-1, width, 2 * width, 1)?, h)?.contiguous()?])
        },
        1,
        &[],
    ),
    ("heads merged", |x, h| Ok(vec![(merged(&x[4].matmul(&x[5])?.matmul(&x[4])?, h)? * 2.0)?]), 1, &[]),
    (
        "attention with its projections",
        |x, h| {
            let linear = |x: &Tensor, weight: &Tensor, bias: &Tensor| x.matmul(weight)? + bias;
            let width = (h[2] * h[3]) as i64;
            let part = |at: i64| x[2].slice(-1, at * width, (at + 1) * width, 1);
            let q = split(&linear(&x[0], &part(0)?, &x[3])?, h)?;
            let k = split(&linear(&x[0], &part(1)?, &x[3])?, h)?;
            let v = split(&linear(&x[0], &x[1], &x[3])?, h)?;
            let scores = (q.matmul(&k.transpose(-2, -1)?)? * 0.3)?;
            let mixed = softmax_by_parts(&scores)?.matmul(&v)?.transpose(1, 2)?.reshape(x[0].sizes())?;
            Ok(vec![(linear(&mixed, &x[1], &x[3])? + &x[0])?])
        },
        3,
        &["prologue_of_anchor", "prologue_of_anchor", "would_cycle", "different_rows"],
    ),
    (
        "each head scaled",
        |x, [batch, rows, heads, size]| {
            let split = x[0].matmul(&x[1])?.reshape(&[batch, rows, heads, size][..])?;
            Ok(vec![softmax_by_parts(&split)?.transpose(1, 2)?.contiguous()?])
        },
        1,
        &[],
    ),
    (
        "repeated",
        |x, h @ [batch, rows, heads, size]| {
            let split = split(&x[0].matmul(&x[1])?, h)?.reshape(&[batch, 1, heads, rows, size][..])?;
            Ok(vec![(split.expand(&[batch, 2, heads, rows, size][..])? + 1.0)?])
        },
        1,
        &[],
    ),
    ("rows before batches", |x, _| Ok(vec![x[0].matmul(&x[1])?.transpose(0, 1)?.contiguous()?.neg()?]), 1, &[]),
    ("rows last", |x, _| Ok(vec![(x[0].matmul(&x[1])?.transpose(-2, -1)?.contiguous()? * 3.0)?]), 1, &[]),
    ("one column", |x, _| Ok(vec![x[0].matmul(&x[1])?.select(-1, 1)?.t()?.contiguous()?.exp()?]), 1, &[]),
    ("diagonals", |x, h| Ok(vec![split(&x[0].matmul(&x[1])?, h)?.diagonal(0, 1, 3)?.contiguous()?.exp()?]), 1, &[]),
    (
        "moved and read by a product",
        |x, h| Ok(vec![split(&x[0].matmul(&x[1])?, h)?.reshape(x[0].sizes())?.matmul(&x[1])?.tanh()?]),
        2,
        &["different_rows"],
    ),
    (
        "gated by the other half",
        |x, h| {
            let (product, width) = (x[0].matmul(&x[2])?, (h[2] * h[3]) as i64);
            let [gate, half] = [0, 1].map(|at| product.slice(-1, at * width, (at + 1) * width, 1));
            Ok(vec![(gate?.sigmoid()? * half?)?.matmul(&x[1])?.relu()?])
        },
        1,
        &[],
    ),
    (
        "moved and read in order",
        |x, h| {
            let product = (x[0].matmul(&x[1])? + &x[3])?;
            Ok(vec![split(&product, h)?.contiguous()?, product.matmul(&x[1])?.relu()?])
        },
        1,
        &[],
    ),
    (
        "windows that overlap",
        |x, _| {
            let product = x[0].matmul(&x[1])?;
            let sizes = [product.numel() as i64 / 2, 2];
            Ok(vec![product.as_strided(&sizes[..], &[1i64, 1][..], None)?.exp()?])
        },
        2,
        &["moves_elements"],
    ),
];

/// Large enough for products to be worth a block.
const WIDE: Heads = [8, 128, 8, 32];

fn moved(numbers: &mut Numbers, [batch, rows, heads, size]: Heads, dtype: DType) -> Result<Vec<Tensor>> {
    let width = heads * size;
    let sizes = [
        &[batch, rows, width][..],
        &[width, width],
        &[width, 2 * width],
        &[width],
        &[batch * heads, rows, size],
        &[batch * heads, size, rows],
    ];
    sizes.into_iter().map(|sizes| numbers.tensor(sizes, dtype)).collect()
}

#[test]
fn reordered_products_keep_the_bits() -> Result<()> {
    let mut numbers = Numbers::new(0xbeef);
    let (mut blocks, mut of_all) = (0, 0);
    for case in 0..40 * MOVES.len() {
        let (name, function, ..) = MOVES[case % MOVES.len()];
        let dtype = numbers.pick(&[DType::F32, DType::F32, DType::F64]);
        let h = [
            numbers.pick(&[1, 2, 3]),
            numbers.pick(&[0, 1, 5, 17, 70, 130, 260]),
            numbers.pick(&[1, 2, 3, 4]),
            numbers.pick(&[1, 2, 8, 16, 33]),
        ];
        let inputs = moved(&mut numbers, h, dtype)?;
        // There is no second column, or there is no maximum of an empty row.
        let Ok(eager) = function(&inputs, h) else { continue };
        let compiled = compile(move |inputs: &[Tensor]| function(inputs, h));
        for threads in [1, 2] {
            let call = || on_threads(threads, || compiled.call(&inputs[..]));
            call()?;
            for (eager, found) in eager.iter().zip(call()?) {
                let what = format!("{name} of {h:?}, {dtype}, {threads} threads");
                assert_eq!((eager.sizes(), eager.strides()), (found.sizes(), found.strides()), "{what}");
                assert!(bits(eager) == bits(&found), "{what}: other bits\n{}", compiled.explain());
            }
        }
        let (found, counted) = compiled.call_counted(&inputs[..])?;
        assert!(eager.iter().zip(&found).all(|(eager, found)| bits(eager) == bits(found)), "{name} of {h:?}: counted");
        let explain = compiled.explain();
        let read =
            |group: &Group| Traffic { kernel: group.index, read: group.bytes_read, written: group.bytes_written };
        let modelled: Vec<Traffic> = explain.groups.iter().map(read).collect();
        assert_eq!(counted, modelled, "{name} of {h:?}\n{explain}");
        blocks += explain.groups.iter().any(|group| group.kind == GroupKind::Blocks) as usize;
        of_all += 1;
    }
    assert!(blocks * 2 > of_all, "only {blocks} of {of_all} were put into blocks");
    Ok(())
}

/// Random views, copies, folds and products after a product of `x[0]` and `x[1]`; weights are cut from `x[2]`.
fn random_chain(x: &[Tensor], seed: u64) -> Result<Vec<Tensor>> {
    let mut numbers = Numbers::new(seed);
    let mut below = |n: usize| (numbers.next() >> 20) as usize % n;
    let (mut value, mut kept) = (x[0].matmul(&x[1])?, Vec::<Tensor>::new());
    for _ in 0..3 + below(6) {
        let sizes: Vec<usize> = value.sizes().to_vec();
        let (rank, dim) = (sizes.len(), below(sizes.len()));
        value = match below(12) {
            0 | 1 => {
                let mut order: Vec<i64> = (0..rank as i64).collect();
                (1..rank).for_each(|at| order.swap(at, below(at + 1)));
                value.permute(&order[..])?
            }
            2 if rank < 5 && sizes[dim] > 1 => {
                let divisors: Vec<usize> = (2..=sizes[dim]).filter(|by| sizes[dim].is_multiple_of(*by)).collect();
                let by = divisors[below(divisors.len())];
                value.reshape(&[&sizes[..dim], &[sizes[dim] / by, by], &sizes[dim + 1..]].concat()[..])?
            }
            3 if dim + 1 < rank => {
                value.reshape(&[&sizes[..dim], &[sizes[dim] * sizes[dim + 1]], &sizes[dim + 2..]].concat()[..])?
            }
            4 if sizes[dim] > 3 => {
                let (first, step) = (below(3) as i64, 1 + below(2) as i64);
                value.slice(dim as i64, first, sizes[dim] as i64 - below(2) as i64, step)?
            }
            5 | 6 => value.contiguous()?,
            7 => (value * 0.5)?.tanh()?,
            8 => (&value - value.amax([dim as i64], true)?)?,
            9 if rank > 1 && sizes[rank - 1] > 1 => {
                let (inner, columns) = (sizes[rank - 1], 8 + below(9));
                let weight = x[2].slice(0, 0, (inner * columns) as i64, 1)?.reshape(&[inner, columns][..])?;
                if inner * columns > x[2].numel() { value } else { value.matmul(&weight)? }
            }
            10 if rank < 5 && value.numel() < 20_000 => {
                let wide = [&sizes[..dim], &[2], &sizes[dim..]].concat();
                value.unsqueeze(dim as i64)?.expand(&wide[..])?
            }
            _ => match kept.iter().find(|other| other.sizes() == value.sizes()) {
                Some(other) => (&value + other)?,
                None => {
                    kept.push(value.clone());
                    value
                }
            },
        };
    }
    kept.push(value);
    Ok(kept)
}

#[test]
fn random_chains_keep_the_bits() -> Result<()> {
    let n_chains = n_cases(600, 2400);
    let mut numbers = Numbers::new(0xcafe);
    let (mut blocks, mut moving) = (0, 0);
    for seed in 0..n_chains {
        let [batch, rows, width] =
            [&[1, 2, 3][..], &[1, 16, 24, 70, 130], &[8, 12, 24, 32]].map(|all| numbers.pick(all));
        let dtype = numbers.pick(&[DType::F32, DType::F32, DType::F64]);
        let sizes = [&[batch, rows, width][..], &[width, width], &[4096]];
        let inputs: Vec<Tensor> = sizes.into_iter().map(|sizes| numbers.tensor(sizes, dtype)).collect::<Result<_>>()?;
        let Ok(eager) = random_chain(&inputs, seed) else { continue };
        let compiled = compile(move |inputs: &[Tensor]| random_chain(inputs, seed));
        let same = |found: &[Tensor]| eager.iter().zip(found).all(|(eager, found)| bits(eager) == bits(found));
        for threads in [1, 2] {
            let call = || on_threads(threads, || compiled.call(&inputs[..]));
            call()?;
            let found: Vec<Tensor> = call()?;
            assert!(same(&found), "chain {seed}, {threads} threads: other bits\n{}", compiled.explain().plan_text());
        }
        let (found, counted) = compiled.call_counted(&inputs[..])?;
        let explain = compiled.explain();
        assert!(same(&found), "chain {seed}, counted: other bits\n{}", explain.plan_text());
        assert_eq!(counted, moved_by(&explain), "chain {seed}\n{explain}");
        let is_group = |group: &&Group| group.kind == GroupKind::Blocks;
        blocks += explain.groups.iter().any(|group| is_group(&group)) as u64;
        let is_permute = |group: &Group| {
            group
                .nodes
                .iter()
                .any(|&node| explain.nodes[node.index()].node.op().is_some_and(|op| op.name() == "permute"))
        };
        moving += explain.groups.iter().filter(is_group).any(is_permute) as u64;
    }
    assert!(
        blocks * 4 > n_chains && moving * 20 > n_chains,
        "{blocks} of {n_chains} in blocks, {moving} with a permutation"
    );
    Ok(())
}

fn moved_by(explain: &Explain) -> Vec<Traffic> {
    let moved = |group: &Group| Traffic { kernel: group.index, read: group.bytes_read, written: group.bytes_written };
    explain.groups.iter().map(moved).collect()
}

#[test]
fn kernels_that_reorder_a_product_join_its_blocks() -> Result<()> {
    let inputs = moved(&mut Numbers::new(3), WIDE, DType::F32)?;
    let mut wrong = String::new();
    for &(name, function, kernels, kept) in MOVES {
        let compiled = compile(move |inputs: &[Tensor]| function(inputs, WIDE));
        compiled.call(&inputs[..])?;
        let explain = compiled.explain();
        let reason = |edge: &Edge| match &edge.decision {
            Decision::Kept { reason, .. } => Some(reason.kind()),
            Decision::Fused { .. } => None,
        };
        let reasons: Vec<&str> = explain.edges.iter().filter_map(reason).collect();
        if (explain.kernels_after, &reasons[..]) != (kernels, kept) {
            wrong += &format!("{name}: {} kernels, {reasons:?}\n{}", explain.kernels_after, explain.plan_text());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    Ok(())
}

#[test]
fn empty_products_keep_the_bits() -> Result<()> {
    let mut numbers = Numbers::new(11);
    for (m, k, n) in [(0, 3, 300), (300, 0, 8), (300, 3, 0), (0, 0, 0)] {
        let (a, b, c) = (
            numbers.tensor(&[m, k], DType::F32)?,
            numbers.tensor(&[k, n], DType::F32)?,
            numbers.tensor(&[n], DType::F32)?,
        );
        let function = |a: &Tensor, b: &Tensor, c: &Tensor| (a.matmul(b)? + c)?.relu();
        let compiled = compile(function);
        for _ in 0..2 {
            assert_eq!(bits(&compiled.call((&a, &b, &c))?), bits(&function(&a, &b, &c)?), "{m} x {k} x {n}");
        }
    }
    Ok(())
}

#[test]
fn products_that_do_not_pay_stay_on_their_own() -> Result<()> {
    let mut numbers = Numbers::new(7);
    // The right operand does not fit the cache, and would be read once per block.
    let (a, b, c) = (
        numbers.tensor(&[64, 64], DType::F32)?,
        numbers.tensor(&[64, 40000], DType::F32)?,
        numbers.tensor(&[40000], DType::F32)?,
    );
    let compiled = compile(|a: &Tensor, b: &Tensor, c: &Tensor| a.matmul(b)? + c);
    compiled.call((&a, &b, &c))?;
    let kinds: Vec<GroupKind> = compiled.explain().groups.iter().map(|group| group.kind).collect();
    assert_eq!(kinds, [GroupKind::Product, GroupKind::Kernel]);
    Ok(())
}
