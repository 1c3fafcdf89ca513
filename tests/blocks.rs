//! Products and the kernels around them, some rows at a time: the same bits as eager, whatever the shapes.

use opfuse::compile::explain::GroupKind;
use opfuse::device::pool;
use opfuse::{DType, Result, Tensor, compile};
use values::{Numbers, bits, softmax_by_parts};

mod values;

type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// What is done with `a` (m x k), `b` (k x n), a vector of n, a tensor like the product, and `c` (n x k).
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
            // The same sizes, laid out the other way.
            inputs[1] = inputs[1].transpose(-2, -1)?.contiguous()?.transpose(-2, -1)?;
            inputs[0] = inputs[0].transpose(-2, -1)?.contiguous()?.transpose(-2, -1)?;
        }
        let eager = function(&inputs)?;
        let compiled = compile(move |inputs: &[Tensor]| function(inputs));
        for threads in [1, 2] {
            pool::set_num_threads(threads);
            compiled.call(&inputs[..])?;
            for (eager, found) in eager.iter().zip(compiled.call(&inputs[..])?) {
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

#[test]
fn nothing_is_multiplied_too() -> Result<()> {
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
fn what_does_not_pay_stays_a_library_call() -> Result<()> {
    let mut numbers = Numbers::new(7);
    // The right operand does not fit the cache, and would be read for every few rows.
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
