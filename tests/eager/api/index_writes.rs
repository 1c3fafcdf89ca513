//! In-place writes by index have the bits of the out-of-place form, on every layout, and touch nothing else.

use super::{check_error, counting, tensor};
use half::f16;
use opfuse::autograd::no_grad;
use opfuse::{DType, Result, Tensor};

/// A write in place and its out-of-place form: a target of 6 × 5, two or three indices, a source of as many rows.
struct Write {
    name: &'static str,
    in_place: fn(&Tensor, &Tensor, &Tensor) -> Result<()>,
    copy: fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
}

/// Expands an index of rows to an index of elements.
fn wide(index: &Tensor) -> Result<Tensor> {
    index.unsqueeze(1)?.expand([index.numel() as i64, 5])
}

macro_rules! writes {
    ($($name:literal $in_place:ident $copy:ident ($($argument:expr),*) |$index:ident, $source:ident|;)*) => {
        &[$(Write {
            name: $name,
            in_place: |x, $index, $source| { let _ = ($index, $source); x.$in_place($($argument),*) },
            copy: |x, $index, $source| { let _ = ($index, $source); x.$copy($($argument),*) },
        }),*]
    };
}

const WRITES: &[Write] = writes! {
    "scatter" scatter_ scatter (0, &wide(index)?, source) |index, source|;
    "scatter of a number" scatter_value_ scatter_value (0, &wide(index)?, 3) |index, source|;
    "scatter_add" scatter_add_ scatter_add (0, &wide(index)?, source) |index, source|;
    "sum" scatter_reduce_ scatter_reduce (0, &wide(index)?, source, "sum", false) |index, source|;
    "prod" scatter_reduce_ scatter_reduce (0, &wide(index)?, source, "prod", true) |index, source|;
    "mean" scatter_reduce_ scatter_reduce (0, &wide(index)?, source, "mean", true) |index, source|;
    "mean of the source" scatter_reduce_ scatter_reduce (0, &wide(index)?, source, "mean", false) |index, source|;
    "amax" scatter_reduce_ scatter_reduce (0, &wide(index)?, source, "amax", false) |index, source|;
    "amin" scatter_reduce_ scatter_reduce (0, &wide(index)?, source, "amin", true) |index, source|;
    "index_copy" index_copy_ index_copy (0, index, source) |index, source|;
    "index_add" index_add_ index_add (0, index, source) |index, source|;
    "index_add, scaled" index_add_scaled_ index_add_scaled (0, index, source, 3) |index, source|;
    "index_fill" index_fill_ index_fill (0, index, 2) |index, source|;
    "index_put" index_put_ index_put (&[Some(index.clone())], source, false) |index, source|;
    "index_put of columns" index_put_ index_put
        (&[None, Some(index.remainder(5)?)], &source.t()?.i(0..1)?, true) |index, source|;
    "index_put, added" index_put_ index_put (&[Some(index.clone())], source, true) |index, source|;
    "index_put of elements" index_put_ index_put
        (&[Some(index.clone()), Some(index.remainder(5)?)], &source.select(1, 0)?, false) |index, source|;
    "put" put_ put (index, &source.select(1, 0)?, false) |index, source|;
};

const DTYPES: [DType; 8] =
    [DType::Bool, DType::U8, DType::I16, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];

/// Targets of 6 × 5, each with the whole of its memory.
fn targets(dtype: DType) -> Result<Vec<(Tensor, Tensor)>> {
    let root = |sizes: &[usize]| counting(sizes).mul(0.37)?.sub(4.0)?.to_dtype(dtype);
    let dense = root(&[6, 5])?;
    let (columns, strided, part) = (root(&[5, 6])?, root(&[12, 15])?, root(&[3, 8, 5])?);
    Ok(vec![
        (dense.clone(), dense),
        (columns.t()?, columns),
        (strided.i(..)?.slice(0, 1, 12, 2)?.slice(1, 2, 15, 3)?.i((.., 0..5))?, strided),
        (part.i((1, 2..8))?, part),
    ])
}

fn raw(x: &Tensor) -> Vec<u8> {
    let dense = x.contiguous().expect("there is memory");
    dense.array().storage().read(<[u8]>::to_vec)
}

#[test]
fn in_place_writes_have_the_bits_of_the_copy() -> Result<()> {
    for dtype in DTYPES {
        for index in [vec![2i64], vec![4, 1], vec![3, 0, 3]] {
            let n = index.len();
            let index = tensor(&index, &[n]);
            let source = counting(&[n, 5]).mul(0.61)?.sub(1.3)?.to_dtype(dtype)?;
            for write in WRITES {
                for (layout, ((x, root), (y, copied))) in targets(dtype)?.into_iter().zip(targets(dtype)?).enumerate() {
                    let name = format!("{} of {dtype}, layout {layout}, {n} indices", write.name);
                    let (x, y) = if layout == 2 { (x, y) } else { (x.i(..)?, y.i(..)?) };
                    if (write.copy)(&y, &index, &source).is_err() {
                        assert!((write.in_place)(&x, &index, &source).is_err(), "{name}");
                        assert_eq!(raw(&root), raw(&copied), "{name}");
                        continue;
                    }
                    let before = x.version();
                    y.copy_(&(write.copy)(&y, &index, &source)?)?;
                    (write.in_place)(&x, &index, &source)?;
                    // The whole memory is compared, so elements around the target must be unchanged.
                    assert_eq!(raw(&root), raw(&copied), "{name}");
                    assert!(x.version() > before, "{name}");
                }
            }
        }
    }
    Ok(())
}

/// Elements of 16 bits keep their bits, whatever they are, if they are not written or are replaced.
#[test]
fn halves_that_are_not_written_keep_their_bits() -> Result<()> {
    let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let x = tensor(&all, &[1 << 16]);
    x.index_add_(0, &tensor(&[0i64], &[1]), &tensor(&[f16::ONE], &[1]))?;
    x.index_copy_(0, &tensor(&[1i64], &[1]), &tensor(&[f16::from_bits(0xfe01)], &[1]))?;
    let found: Vec<u16> = x.to_vec::<f16>()?.into_iter().map(f16::to_bits).collect();
    assert_eq!((found[0], found[1]), (f16::ONE.to_bits(), 0xfe01));
    assert!((2..=u16::MAX).all(|bits| found[bits as usize] == bits));
    Ok(())
}

/// One out-of-range index, after valid ones.
#[test]
fn an_out_of_range_index_leaves_the_target() -> Result<()> {
    for write in WRITES {
        for index in [[1i64, 40], [2, -41]] {
            let (x, source) = (counting(&[6, 5]), counting(&[2, 5]));
            if write.name.contains("columns") || write.name.contains("number") {
                continue;
            }
            let before = (raw(&x), x.version());
            let found = (write.in_place)(&x, &tensor(&index, &[2]), &source);
            assert!(found.is_err(), "{}", write.name);
            assert_eq!((raw(&x), x.version()), before, "{}", write.name);
        }
    }
    Ok(())
}

/// Sources and indices that share the target's memory are read before the write.
#[test]
fn a_source_in_the_target_is_read_first() -> Result<()> {
    let index = tensor(&[1i64, 2, 3], &[3]);
    for write in WRITES {
        let (x, y) = (counting(&[6, 5]), counting(&[6, 5]));
        (write.in_place)(&x, &index, &x.i(0..3)?)?;
        y.copy_(&(write.copy)(&y, &index, &y.i(0..3)?.copy()?)?)?;
        assert_eq!(raw(&x), raw(&y), "{}", write.name);
    }
    let own = tensor(&[3i64, 0, 1, 2], &[4]);
    own.index_copy_(0, &own, &tensor(&[10i64, 11, 12, 13], &[4]))?;
    assert_eq!(own.to_vec::<i64>()?, [11, 12, 13, 10]);
    let own = tensor(&[3i64, 0, 1, 2], &[4]);
    own.scatter_(0, &own, &own)?;
    assert_eq!(own.to_vec::<i64>()?, [0, 1, 2, 3]);
    Ok(())
}

#[test]
fn writes_without_elements_change_nothing() -> Result<()> {
    let none = Tensor::zeros(&[0], DType::I64)?;
    for write in WRITES {
        let x = counting(&[6, 5]);
        if (write.copy)(&x, &none, &counting(&[0, 5])).is_ok() {
            (write.in_place)(&x, &none, &counting(&[0, 5]))?;
        }
        assert_eq!(raw(&x), raw(&counting(&[6, 5])), "{}", write.name);
    }
    let empty = Tensor::zeros(&[0, 5], DType::F32)?;
    empty.index_copy_(0, &none, &Tensor::zeros(&[0, 5], DType::F32)?)?;
    let number = Tensor::zeros(&[], DType::F32)?;
    number.index_copy_(0, &tensor(&[0i64], &[1]), &tensor(&[7f32], &[1]))?;
    assert_eq!(number.item::<f32>()?, 7.0);
    Ok(())
}

/// A write to a value that the backward pass saved is an error. Gradients flow to the old target and to the source.
#[test]
fn gradients_follow_writes() -> Result<()> {
    let index = tensor(&[2i64], &[1]);
    let (weight, cache) = (counting(&[3]), counting(&[3]));
    weight.set_requires_grad(true)?;
    let product = weight.mul(&cache)?;
    {
        let _no_grad = no_grad();
        cache.index_copy_(0, &index, &tensor(&[5f32], &[1]))?;
    }
    check_error(product.sum_all()?.backward(), &["modified"]);

    let (base, source) = (counting(&[3]), tensor(&[5f32], &[1]));
    base.set_requires_grad(true)?;
    source.set_requires_grad(true)?;
    let x = base.mul(2.0)?;
    x.index_put_(&[Some(index.clone())], &source, false)?;
    x.index_add_(0, &index, &source)?;
    x.scatter_add_(0, &tensor(&[0i64], &[1]), &source)?;
    assert_eq!(x.detach()?.to_vec::<f32>()?, [5.0, 2.0, 10.0]);
    x.sum_all()?.backward()?;
    let gradient = |x: &Tensor| x.grad().expect("gradients flow to it").to_vec::<f32>();
    assert_eq!((gradient(&base)?, gradient(&source)?), (vec![2.0, 2.0, 0.0], vec![3.0]));
    check_error(base.index_copy_(0, &index, &tensor(&[5f32], &[1])), &["leaf"]);
    Ok(())
}
