//! Row `i` of a batch has the bits of that row alone, for every operator that treats the rows of its first dim alike.
//!
//! The reason is that the order of every sum depends on the length of what is summed, and on nothing else. So the
//! number of rows, the row's place, the layout, the number of threads and `compile` change no bit of a row.
//! `docs/batch_invariance.md` lists what holds and what does not; `tests/formats` does the same for whole models.

use crate::effort::{is_single, seeds};
use crate::values::{Numbers, bits, uniform};
use opfuse::device::pool;
use opfuse::nn::{Attention, ConvTranspose, Convolution, einsum};
use opfuse::{DType, Result, Tensor, cat, compile};

/// A function of a batch of `(C, L)`.
type Function = fn(&Tensor) -> Result<Tensor>;

/// A weight that depends on its sizes alone.
fn weight(sizes: &[usize], like: &Tensor) -> Result<Tensor> {
    uniform(sizes.iter().sum::<usize>() as u64, sizes, like.dtype())
}

fn sizes(x: &Tensor) -> [usize; 3] {
    [x.sizes()[0], x.sizes()[1], x.sizes()[2]]
}

/// Functions that treat the rows of the batch alike.
const FUNCTIONS: [(&str, Function); 33] = [
    ("matmul", |x| x.matmul(&weight(&[sizes(x)[2], 37], x)?)),
    ("linear", |x| x.linear(&weight(&[19, sizes(x)[2]], x)?, Some(&weight(&[19], x)?))),
    ("linear of flat rows", |x| {
        let [_, channels, length] = sizes(x);
        x.flatten(1, 2)?.linear(&weight(&[23, channels * length], x)?, None)
    }),
    ("matmul of a row by itself", |x| x.matmul(&x.transpose(1, 2)?)),
    ("einsum", |x| einsum("bcl,bdl->bcd", &[x, x])),
    ("einsum with a number per row", |x| einsum("bcl,bcl->bc", &[x, x])),
    ("einsum with a number per row, and a broadcast row", |x| {
        einsum("bcl,bcl->b", &[x, &weight(&[1, 1, sizes(x)[2]], x)?])
    }),
    ("einsum with a shared operand", |x| einsum("bcl,lk->bck", &[x, &weight(&[sizes(x)[2], 11], x)?])),
    ("sum over all but the batch", |x| x.sum([1, 2], false)),
    ("sum over the middle", |x| x.sum(1, false)),
    ("mean", |x| x.mean(-1, true)),
    ("var", |x| x.var([1, 2], 0, true)),
    ("logsumexp", |x| x.logsumexp(-1, false)),
    ("softmax", |x| x.softmax(-1)),
    ("softmax over the middle", |x| x.softmax(1)),
    ("log_softmax", |x| x.log_softmax(-1)),
    ("layer_norm", |x| {
        let length = sizes(x)[2];
        x.layer_norm(length as i64, Some(&weight(&[length], x)?), Some(&weight(&[length], x)?), 1e-5)
    }),
    ("rms_norm", |x| x.rms_norm(sizes(x)[2] as i64, None, Some(1e-6))),
    ("group_norm", |x| x.group_norm(1, None, None, 1e-5)),
    ("norm", |x| x.norm(2.0, [1, 2], false)),
    ("cumsum", |x| x.cumsum(2)),
    ("sort", |x| Ok(x.sort(2, true)?.0)),
    ("topk", |x| Ok(x.topk(1, 2, true)?.0)),
    ("amax", |x| x.amax(2, false)),
    ("argmax", |x| x.argmax(2, false)?.to_dtype(DType::F64)),
    ("gelu", |x| x.gelu()?.mul(&x.exp()?)?.sigmoid()),
    ("conv1d", |x| {
        let channels = sizes(x)[1];
        x.conv1d(&weight(&[5, channels, 1], x)?, Some(&weight(&[5], x)?), &Convolution::default())
    }),
    ("conv2d", |x| {
        let options = Convolution { padding: 1.into(), ..Convolution::default() };
        x.unsqueeze(1)?.conv2d(&weight(&[3, 1, 3, 3], x)?, None, &options)
    }),
    ("conv1d of many channels and few places", |x| {
        let options = Convolution { padding: 1.into(), ..Convolution::default() };
        let [_, channels, length] = sizes(x);
        x.transpose(1, 2)?.conv1d(&weight(&[6, length, channels.min(3)], x)?, None, &options)
    }),
    ("conv_transpose1d of many channels and few places", |x| {
        let [_, channels, length] = sizes(x);
        x.transpose(1, 2)?.conv_transpose1d(&weight(&[length, 3, channels.min(3)], x)?, None, &ConvTranspose::default())
    }),
    ("attention", |x| x.attention(x, x, &Attention::default())),
    ("causal attention", |x| x.attention(x, x, &Attention { is_causal: true, ..Attention::default() })),
    ("a block of a transformer", |x| {
        let [_, _, length] = sizes(x);
        let normed = x.layer_norm(length as i64, None, None, 1e-5)?;
        let attended = x.add(&normed.attention(&normed, &normed, &Attention::default())?)?;
        let hidden = attended.linear(&weight(&[3 * length, length], x)?, None)?.gelu()?;
        attended.add(&hidden.linear(&weight(&[length, 3 * length], x)?, None)?)
    }),
];

fn check(seed: u64) -> Result<()> {
    let mut numbers = Numbers::new(seed);
    let (name, function) = FUNCTIONS[(seed % FUNCTIONS.len() as u64) as usize];
    let batch = numbers.pick(&[1, 2, 3, 5, 8, 16, 17, 33]);
    let channels = numbers.pick(&[1, 2, 3, 7, 16]);
    let length = numbers.pick(&[1, 2, 5, 16, 31, 64, 100, 257]);
    let dtype = numbers.pick(&[DType::F32, DType::F32, DType::BF16, DType::F64]);
    let x = match numbers.pick(&[0, 1, 2]) {
        0 => numbers.tensor(&[batch, channels, length], dtype)?,
        1 => numbers.tensor(&[channels, length, batch], dtype)?.permute([2, 0, 1])?,
        _ => numbers.tensor(&[batch, channels, 2 * length], dtype)?.narrow(2, length as i64 / 2, length)?,
    };
    let compiled = compile(move |x: &Tensor| function(x));
    let run = |x: &Tensor| if seed.is_multiple_of(2) { function(x) } else { compiled.call(x) };
    pool::set_num_threads(numbers.pick(&[1, 4]));
    let whole = run(&x)?;
    pool::set_num_threads(numbers.pick(&[1, 3]));
    for at in 0..batch as i64 {
        let alone = run(&x.narrow(0, at, 1)?)?;
        assert_eq!(
            bits(&alone),
            bits(&whole.narrow(0, at, 1)?),
            "seed {seed}: {name} of {dtype}{:?}: row {at} has other bits alone",
            x.sizes()
        );
        if is_single() || at == 0 {
            // Beside other rows.
            let pair = run(&cat(&[&x.narrow(0, batch as i64 - 1, 1)?, &x.narrow(0, at, 1)?], 0)?)?;
            assert_eq!(bits(&pair.narrow(0, 1, 1)?), bits(&alone), "seed {seed}: {name}: other neighbours, other bits");
        }
    }
    Ok(())
}

#[test]
fn rows_have_their_bits_in_every_batch() -> Result<()> {
    seeds(10 * FUNCTIONS.len() as u64, 400 * FUNCTIONS.len() as u64).try_for_each(check)
}

/// What joins the rows of a batch cannot keep the bits of a row.
#[test]
fn statistics_of_the_batch_reach_every_row() -> Result<()> {
    let x = uniform(1, &[4, 3, 5], DType::F32)?;
    let normed = |x: &Tensor| x.sub(&x.mean(0, true)?);
    assert_ne!(bits(&normed(&x)?.narrow(0, 0, 2)?), bits(&normed(&x.narrow(0, 0, 2)?)?));
    Ok(())
}
