//! What golden data cannot show of order statistics, searches, sets and samples: methods, graph breaks, draws.

use opfuse::nn::{GridSample, Patches};
use opfuse::{DType, Device, Generator, Replacement, Result, Side, Tensor, compile, trim};

fn line(numbers: &[f64]) -> Tensor {
    Tensor::from_slice(numbers, &[numbers.len()]).expect("a line")
}

#[test]
fn what_needs_no_values_is_traced_without_a_break() -> Result<()> {
    let x = Tensor::randn(&[6, 7], DType::F64)?;
    let edges = line(&[-1.0, 0.0, 0.5, 2.0]);
    type Traced = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let functions: &[(&str, Traced)] = &[
        ("median", |x, _| x.median()),
        ("median_dim", |x, _| Ok(x.median_dim(1, false)?.0)),
        ("nanmedian", |x, _| x.nanmedian()),
        ("kthvalue", |x, _| Ok(x.kthvalue(2, 0, true)?.0)),
        ("mode", |x, _| Ok(x.round()?.mode(1, false)?.0)),
        ("quantile", |x, _| x.quantile(0.3, 1, false)),
        ("quantiles", |x, edges| x.quantiles(&edges.abs()?.div(2.0)?, 0, true)),
        ("searchsorted", |x, edges| edges.searchsorted(x, Side::Right)),
        ("interp", |x, edges| x.interp(edges, &edges.square()?)),
        ("isin", |x, edges| x.round()?.isin(edges)),
        ("histc", |x, _| x.histc(5, -2, 2)),
        ("histogram", |x, edges| x.histogram(edges, None)),
        ("kron", |x, edges| x.kron(edges)),
        ("trace", |x, _| x.trace()),
        ("cdist", |x, _| x.cdist(x, 2.0)),
        ("cov", |x, _| x.cov(1)),
        ("corrcoef", |x, _| x.corrcoef()),
        ("nanmean", |x, _| x.nanmean(0, false)),
        ("adaptive_max_pool2d", |x, _| Ok(x.unsqueeze(0)?.adaptive_max_pool2d([2, 3])?.0)),
        ("im2col", |x, _| x.view([1, 1, 6, 7])?.im2col(&Patches { kernel: [2, 2], ..Patches::default() })),
        ("grid_sample", |x, _| {
            let grid = x.narrow(1, 0, 6)?.reshape([1, 6, 3, 2])?;
            x.view([1, 1, 6, 7])?.grid_sample(&grid, &GridSample::default())
        }),
    ];
    for (name, function) in functions {
        let compiled = compile(*function);
        let (found, expected) = (compiled.call((&x, &edges))?, function(&x, &edges)?);
        let report = compiled.explain();
        assert!(report.eager.is_none(), "{name}: {report}");
        assert_eq!(found.to_bytes_for_test()?, expected.to_bytes_for_test()?, "{name}");
    }
    Ok(())
}

/// Bits of elements.
trait Bits {
    fn to_bytes_for_test(&self) -> Result<Vec<u64>>;
}

impl Bits for Tensor {
    fn to_bytes_for_test(&self) -> Result<Vec<u64>> {
        Ok(self.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().map(|x| x.to_bits()).collect())
    }
}

#[test]
fn sizes_that_depend_on_values_are_breaks_and_have_the_same_values() -> Result<()> {
    let x = Tensor::try_from([3i64, 1, 3, 2, 9])?;
    let compiled = compile(|x: &Tensor| x.add(1)?.unique()?.mul(2));
    assert_eq!(compiled.call(&x)?.to_vec::<i64>()?, [4, 6, 8, 20]);
    let compiled = compile(|x: &Tensor| x.bincount(None, 0)?.add(1));
    assert_eq!(compiled.call(&x)?.to_vec::<i64>()?, [1, 2, 2, 3, 1, 1, 1, 1, 1, 2]);
    let meta = x.to_device(Device::META)?;
    let error = meta.unique().expect_err("no data").to_string();
    assert!(error.contains("_unique2") && error.contains("meta"), "{error}");
    Ok(())
}

#[test]
fn operations_on_sets() -> Result<()> {
    let (a, b) = (Tensor::try_from([3i64, 1, 3, 2])?, Tensor::try_from([2i64, 7, 3, 7])?);
    assert_eq!(a.union1d(&b)?.to_vec::<i64>()?, [1, 2, 3, 7]);
    assert_eq!(a.intersect1d(&b)?.to_vec::<i64>()?, [2, 3]);
    assert_eq!(a.setdiff1d(&b)?.to_vec::<i64>()?, [1]);
    assert_eq!(a.setxor1d(&b)?.to_vec::<i64>()?, [1, 7]);
    let none = Tensor::zeros(&[0], DType::I64)?;
    assert_eq!(a.intersect1d(&none)?.numel() + none.union1d(&none)?.numel() + none.setdiff1d(&a)?.numel(), 0);
    Ok(())
}

#[test]
fn interpolation_at_between_and_outside_of_points() -> Result<()> {
    let (xp, fp) = (line(&[0.0, 1.0, 3.0]), line(&[10.0, 20.0, 0.0]));
    let x = line(&[-1.0, 0.0, 0.25, 1.0, 2.0, 3.0, 4.0, f64::NAN]);
    let found = x.interp(&xp, &fp)?.to_vec::<f64>()?;
    assert_eq!(found[..7], [10.0, 10.0, 12.5, 20.0, 10.0, 0.0, 0.0]);
    assert!(found[7].is_nan());
    assert_eq!(x.interp(&line(&[1.0]), &line(&[5.0]))?.to_vec::<f64>()?[..2], [5.0, 5.0]);
    let points = |inputs: &[Tensor]| inputs[0].interp(&inputs[1], &inputs[2]);
    opfuse::autograd::gradcheck(points, &[&line(&[0.5, 2.5]), &xp, &fp], 1e-6, 1e-6)?;
    let error = x.interp(&xp, &line(&[1.0])).expect_err("sizes differ").to_string();
    assert!(error.contains("interp") && error.contains("[3]") && error.contains("[1]"), "{error}");
    Ok(())
}

#[test]
fn categories_are_drawn_by_their_weights() -> Result<()> {
    let generator = Generator::new(Device::CPU);
    generator.manual_seed(7);
    let weights = Tensor::try_from([1.0f32, 0.0, 3.0, 4.0])?;
    let drawn = generator.multinomial(&weights, 8000, Replacement::With)?.bincount(None, 4)?.to_vec::<i64>()?;
    for (count, share) in drawn.iter().zip([1000.0, 0.0, 3000.0, 4000.0]) {
        assert!((*count as f64 - share).abs() <= 4.0 * share.sqrt(), "{drawn:?}");
    }
    let rows = weights.unsqueeze(0)?.expand([2000, 4])?;
    let pairs = generator.multinomial(&rows, 2, Replacement::Without)?;
    assert_eq!(pairs.sizes(), [2000, 2]);
    let (first, second) = (pairs.select(1, 0)?, pairs.select(1, 1)?);
    assert_eq!(first.eq(&second)?.count_nonzero(())?.item::<i64>()?, 0);
    assert_eq!(pairs.eq(1)?.count_nonzero(())?.item::<i64>()?, 0);
    let firsts = first.bincount(None, 4)?.to_vec::<i64>()?;
    assert!((firsts[3] - 1000).abs() < 130 && (firsts[0] - 250).abs() < 70, "{firsts:?}");
    for (weights, n, what) in [
        (line(&[1.0, -1.0]), 1, "element < 0"),
        (line(&[1.0, f64::NAN]), 1, "nan"),
        (line(&[0.0, 0.0]), 1, "sum of probabilities"),
        (line(&[1.0, 1.0]), 3, "3 of 2"),
        (line(&[1.0, 1.0]), 0, "0 of 2"),
    ] {
        let error = weights.multinomial(n, Replacement::Without).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }
    Ok(())
}

#[test]
fn columns_of_an_image_and_back() -> Result<()> {
    let x = Tensor::randn(&[1, 2, 4, 6], DType::F64)?;
    let patches = Patches { kernel: [2, 3], stride: [2, 3], ..Patches::default() };
    let columns = x.im2col(&patches)?;
    assert_eq!(columns.sizes(), [1, 12, 4]);
    assert_eq!(columns.col2im([4, 6], &patches)?.to_vec::<f64>()?, x.to_vec::<f64>()?);
    Ok(())
}

#[test]
fn closeness_says_where_and_how_far() -> Result<()> {
    let ours = Tensor::try_from([[1.0, 2.0], [3.0, f64::NAN]])?;
    let theirs = Tensor::try_from([[1.0, 2.5], [3.0, f64::NAN]])?;
    let report = ours.closeness(&theirs, 1e-5, 1e-8)?;
    assert_eq!((report.n_different, report.n_elements), (1, 4));
    assert_eq!((report.first.as_deref(), report.at.as_deref()), (Some(&[0, 1][..]), Some(&[0, 1][..])));
    assert_eq!((report.greatest, report.greatest_relative), (0.5, 0.2));
    let text = report.to_string();
    assert!(text.contains("1 of 4") && text.contains("[0, 1]") && text.contains("2.0 and 2.5"), "{text}");
    assert!(ours.closeness(&theirs, 0.0, 0.5)?.is_close());
    let none = ours.closeness(&Tensor::try_from([[1.0, 2.0], [3.0, 4.0]])?, 1e-5, 1e-8)?;
    assert_eq!((none.n_different, none.greatest), (1, f64::INFINITY));
    assert!(ours.closeness(&ours.to_dtype(DType::F32)?, 0.0, 0.0)?.is_close());
    assert!(!ours.allclose(&ours, 1e-5, 1e-8)?, "NaNs are not close");
    Ok(())
}

#[test]
fn unsigned_numbers_are_operands() -> Result<()> {
    let x = Tensor::try_from([1i64, 2])?;
    let n: usize = 3;
    assert_eq!((&x * n)?.to_vec::<i64>()?, [3, 6]);
    assert_eq!((x.add(2u32)?.sub(1u16)? * 2u64)?.to_vec::<i64>()?, [4, 6]);
    assert_eq!(x.add(u64::MAX)?.dtype(), DType::F32, "no integer is as large");
    Ok(())
}

#[test]
fn trimmed_ends_and_precision() -> Result<()> {
    let u = Tensor::arange(0, 6, 1)?.to_dtype(DType::F64)?.square()?;
    let second = (u.i(trim(2, 0))? - u.i(trim(1, 1))?.mul(2)?)?.add(u.i(trim(0, 2))?)?;
    assert_eq!(second.to_vec::<f64>()?, [2.0; 4]);
    assert_eq!(u.i(trim(4, 4))?.numel(), 0);
    let x = Tensor::try_from([[1.0f32, -12.3456], [f32::NAN, f32::INFINITY]])?;
    assert_eq!(format!("{x:.2}"), "[[  1.00 -12.35]\n [   nan    inf]]");
    assert_eq!(format!("{:.1}", Tensor::scalar(0.25f64)?), "0.2");
    assert_eq!(format!("{:.3}", Tensor::try_from([1i64, 20])?), "[ 1 20]");
    Ok(())
}
