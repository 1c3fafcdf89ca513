//! Writes by index against a twin that makes them one by one: lengths around those of groups and blocks of indices, and
//! every way in which index, source and target can lie in memory.
//!
//! Results are compared by bits, and hold NaNs, infinities and negative zeros.

use opfuse::device::pool;
use opfuse::{DType, Error, Result, Tensor, compile};

/// Numbers without a pattern.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % bound.max(1)
    }
}

const LENGTHS: [usize; 12] = [0, 1, 2, 3, 4, 5, 9, 511, 512, 513, 516, 1030];
const LINES: usize = 3;
/// The indices that a line has, and the values of its source.
const SIZES: [usize; 3] = [1, 5, 300];
const WORDS: [&str; 5] = ["sum", "prod", "amax", "amin", "mean"];
const ODD: [f32; 6] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, f32::MIN_POSITIVE];

/// How an operand lies in memory.
#[derive(Debug, Clone, Copy)]
enum Memory {
    Dense,
    Transposed,
    EverySecond,
    /// One line for all.
    OneLine,
    /// One element per line.
    OneElement,
    /// One element for all.
    One,
}

const MEMORIES: [Memory; 6] =
    [Memory::Dense, Memory::Transposed, Memory::EverySecond, Memory::OneLine, Memory::OneElement, Memory::One];

/// A tensor of lines whose elements are given, in some memory.
fn lying(memory: Memory, n: usize, dtype: DType, mut element: impl FnMut() -> f32) -> Result<Tensor> {
    let mut made = |sizes: [usize; 2]| {
        let elements: Vec<f32> = std::iter::repeat_with(&mut element).take(sizes.iter().product()).collect();
        Tensor::from_slice(&elements, &sizes)?.to_dtype(dtype)
    };
    let sizes = [LINES, n];
    match memory {
        Memory::Dense => made(sizes),
        Memory::Transposed => made([n, LINES])?.transpose(0, 1),
        Memory::EverySecond => made([LINES, 2 * n])?.slice(1, 0, None, 2),
        Memory::OneLine => made([1, n])?.expand(&sizes[..]),
        Memory::OneElement => made([LINES, 1])?.expand(&sizes[..]),
        Memory::One => made([1, 1])?.expand(&sizes[..]),
    }
}

/// The bits of every element. A 16-bit float has other bits than another exactly if it has others as f32.
fn bits(x: &Tensor) -> Result<Vec<u64>> {
    if x.dtype().is_float() {
        return Ok(x.to_dtype(DType::F64)?.to_vec::<f64>()?.into_iter().map(f64::to_bits).collect());
    }
    Ok(x.to_dtype(DType::I64)?.to_vec::<i64>()?.into_iter().map(|x| x as u64).collect())
}

/// The writes of a source, one after another, to a target of f32. `None` for `word` replaces.
fn one_by_one(word: Option<&str>, with_self: bool, into: &Tensor, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    let size = into.sizes()[1];
    let (mut to, n) = (into.to_vec::<f32>()?, index.sizes()[1]);
    let (index, source) = (index.to_dtype(DType::I64)?.to_vec::<i64>()?, source.to_vec::<f32>()?);
    let mut counts = vec![usize::from(with_self); to.len()];
    let mut is_first = vec![!with_self; to.len()];
    for (k, (&place, &element)) in index.iter().zip(&source).enumerate() {
        let at = k / n * size + place as usize;
        let start = match word {
            Some("prod") => 1.0,
            Some("amax") => f32::NEG_INFINITY,
            Some("amin") => f32::INFINITY,
            _ => 0.0,
        };
        let old = if std::mem::take(&mut is_first[at]) { start } else { to[at] };
        counts[at] += 1;
        let new = match word {
            None => element,
            Some("prod") => old * element,
            Some("amax") => {
                if old.is_nan() || old >= element {
                    old
                } else {
                    element
                }
            }
            Some("amin") => {
                if old.is_nan() || old <= element {
                    old
                } else {
                    element
                }
            }
            Some(_) => old + element,
        };
        to[at] = if word.is_some() && new.is_nan() { f32::NAN } else { new };
    }
    if word == Some("mean") {
        let is_written = |at: usize| counts[at] > 1;
        (0..to.len()).filter(|&at| is_written(at)).for_each(|at| to[at] /= counts[at] as f32);
        to.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = f32::NAN);
    }
    Tensor::from_slice(&to, into.sizes())
}

/// Checks a write to new memory, to the target's own, and to that of a value inside a compiled function.
fn check(word: Option<&str>, with_self: bool, x: &Tensor, i: &Tensor, s: &Tensor, what: &str) -> Result<()> {
    let write = |x: &Tensor, i: &Tensor, s: &Tensor| match word {
        None => x.scatter(1, i, s),
        Some("sum") if with_self => x.scatter_add(1, i, s),
        Some(word) => x.scatter_reduce(1, i, s, word, with_self),
    };
    let wide = |x: &Tensor| x.to_dtype(DType::F32);
    let expected = bits(&one_by_one(word, with_self, &wide(x)?, i, &wide(s)?)?.to_dtype(x.dtype())?)?;
    assert_eq!(bits(&write(x, i, s)?)?, expected, "new, {what}");
    let inside = |x: &Tensor, i: &Tensor, s: &Tensor| write(&x.neg()?, i, s);
    let compiled = compile(inside);
    let eager = bits(&inside(x, i, s)?)?;
    for threads in [1, 2] {
        let found = pool::with_threads(threads, || compiled.call((x, i, s)))?;
        assert_eq!(bits(&found)?, eager, "compiled, {threads} threads, {what}");
    }
    for target in [x.copy()?, x.transpose(0, 1)?.copy()?.transpose(0, 1)?] {
        match word {
            None => target.scatter_(1, i, s)?,
            Some(word) => target.scatter_reduce_(1, i, s, word, with_self)?,
        }
        assert_eq!(bits(&target)?, expected, "in place, {what}");
    }
    Ok(())
}

#[test]
fn every_memory_has_the_bits_of_single_writes() -> Result<()> {
    pool::set_num_threads(2);
    let mut random = Random(7);
    for n in LENGTHS {
        for index_memory in MEMORIES {
            for source_memory in MEMORIES {
                let size = SIZES[random.below(SIZES.len())];
                let dtype = [DType::F32, DType::F16, DType::BF16][random.below(3)];
                let index_dtype = [DType::I64, DType::I32][random.below(2)];
                let odd = if random.below(3) == 0 { 20 } else { usize::MAX };
                let number = |random: &mut Random| match random.below(odd) {
                    0 => ODD[random.below(ODD.len())],
                    _ => random.below(64) as f32 / 8.0 - 4.0,
                };
                let x = lying(Memory::Dense, size, dtype, || number(&mut random))?;
                let i = lying(index_memory, n, index_dtype, || random.below(size) as f32)?;
                let s = lying(source_memory, n, dtype, || number(&mut random))?;
                let word = [None, Some(WORDS[random.below(WORDS.len())])][random.below(4).min(1)];
                let with_self = word.is_none() || random.below(2) == 0;
                let what = format!("{word:?} {with_self} {n} of {size} {dtype} {index_memory:?} {source_memory:?}");
                check(word, with_self, &x, &i, &s, &what)?;
            }
        }
    }
    Ok(())
}

#[test]
fn the_first_index_outside_is_named_wherever_it_stands() -> Result<()> {
    for (n, at) in [(1, 0), (5, 4), (9, 2), (700, 511), (700, 512), (1030, 1029)] {
        for (bad, dtype) in
            [(7i64, DType::I64), (-1, DType::I64), (i64::MIN, DType::I64), (i64::MAX, DType::I64), (7, DType::I32)]
        {
            let mut places = vec![3i64; n];
            places[at..].fill(bad);
            let i = Tensor::from_slice(&places, &[n])?.to_dtype(dtype)?;
            let (x, s) = (Tensor::zeros(&[7], DType::F32)?, Tensor::ones(&[n], DType::F32)?);
            let expected = format!("index {bad} is out of bounds for dimension 0 with size 7");
            for found in [x.scatter_add(0, &i, &s), x.scatter(0, &i, &s), x.scatter_reduce(0, &i, &s, "amax", true)] {
                let error = found.expect_err("an index is outside").to_string();
                assert!(error.contains(&expected), "{error}");
            }
            assert!(x.scatter_add_(0, &i, &s).is_err());
            assert_eq!(x.to_vec::<f32>()?, [0.0; 7]);
            checks_of_slices(&x, &i, &s, bad)?;
        }
    }
    Ok(())
}

/// A compiled function reads the index of slices itself. Its errors are those of the eager calls, and leave the inputs.
fn checks_of_slices(x: &Tensor, i: &Tensor, s: &Tensor, bad: i64) -> Result<()> {
    type Function = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;
    let functions: [Function; 4] = [
        |x, i, s| x.neg()?.index_add(0, i, s),
        |x, i, s| x.neg()?.index_copy(0, i, s),
        |x, i, s| x.unsqueeze(1)?.neg()?.index_add(0, i, &s.unsqueeze(1)?.mul(2.0)?),
        |x, i, s| x.index_add_(0, i, s).and_then(|()| x.mul(2.0)),
    ];
    let good = i.zeros_like()?;
    for function in functions {
        let compiled = compile(function);
        let fresh = x.copy()?;
        assert_eq!(bits(&compiled.call((&fresh, &good, s))?)?, bits(&function(&x.copy()?, &good, s)?)?);
        let before = bits(&fresh)?;
        let text = |error: Error| error.to_string().split(" (recorded").next().map(str::to_owned);
        let found = text(compiled.call((&fresh, i, s)).expect_err("an index is outside"));
        assert_eq!(found, text(function(&fresh, i, s).expect_err("an index is outside")));
        assert!(found.is_some_and(|found| found.contains(&bad.to_string())));
        assert_eq!(bits(&fresh)?, before);
    }
    Ok(())
}

/// An index is checked even if the source has no elements to write there.
#[test]
fn an_index_of_empty_slices_is_checked() -> Result<()> {
    let add = |x: &Tensor, i: &Tensor, s: &Tensor| x.neg()?.index_add(0, i, s);
    let (x, s) = (Tensor::zeros(&[3, 0], DType::F32)?, Tensor::zeros(&[2, 0], DType::F32)?);
    let compiled = compile(add);
    for (places, is_fine) in [([0i64, 2], true), ([0, 3], false)] {
        let i = Tensor::from_slice(&places, &[2])?;
        assert_eq!(add(&x, &i, &s).is_ok(), is_fine);
        assert_eq!(compiled.call((&x, &i, &s)).is_ok(), is_fine);
    }
    Ok(())
}
