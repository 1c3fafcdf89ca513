//! Arithmetic of plain numbers: f64, i64 and bool among themselves, and the weakest operands beside tensors.

use super::*;
use opfuse::compile;

type Calculation = fn(&Tensor, &Tensor) -> Result<Tensor>;

const CALCULATIONS: &[(&str, Calculation)] = &[
    ("h * 0.5", |x, h| x * (h * 0.5)?),
    ("0.5 * h", |x, h| x * (0.5 * h)?),
    ("h * h + 1", |x, h| x.add((h * h)? + Tensor::number(1)?)),
    ("-h", |x, h| x.sub(&(-h)?)),
    ("h / 3", |x, h| x.div(&(h / 3)?)),
    ("exp(h)", |x, h| x * h.exp()?),
    ("h ** 2", |x, h| x.add(h.pow(2)?)),
    ("min(h, 0.5)", |x, h| x.mul(h.minimum(0.5)?)),
    ("1 - h", |x, h| x * (1.0 - h)?),
    ("h < 1 ? h : 2", |x, h| x * h.lt(1.0)?.where_(h, 2.0)?),
    ("clamp(h)", |x, h| x * h.clamp(Some(0.0.into()), Some(1.0.into()))?),
];

fn number(value: impl Into<Scalar>) -> Tensor {
    Tensor::number(value).expect("it is one element")
}

#[test]
fn numbers_among_themselves_are_f64_i64_and_bool() {
    let (h, n) = (number(0.01), number(7));
    let same = |found: Result<Tensor>, expected: Scalar| {
        let found = found.expect("the call is legal");
        let number = found.as_number().unwrap_or_else(|| panic!("{found:?} is no number"));
        assert_eq!((found.dtype(), number.to_string()), (expected.dtype(), expected.to_string()));
    };
    same(&h * 0.5, Scalar::Float(0.005));
    same(&h + &n, Scalar::Float(7.01));
    same(&n * 3, Scalar::Int(21));
    same(&n - &n, Scalar::Int(0));
    same(n.div(2), Scalar::Float(3.5));
    same(n.floor_divide(2), Scalar::Int(3));
    same(n.lt(8), Scalar::Bool(true));
    same(n.sqrt(), Scalar::Float(7f64.sqrt()));
    same(&n + (1i64 << 60), Scalar::Int((1 << 60) + 7));
    // A copy, or a view, is a tensor.
    let copy = h.to_dtype(DType::F64).expect("a copy");
    assert!(copy.as_number().is_none());
}

#[test]
fn calculations_with_numbers_keep_all_digits_of_f64_tensors() {
    let ones = tensor(&[1.0f64, 1.0], &[2]);
    check(&ones * &(number(0.01) * 0.5).expect("a number"), &[2], &[0.005f64, 0.005]);
    check(&tensor(&[1.0f32], &[1]) * &(number(0.01) * 0.5).expect("a number"), &[1], &[0.005f32]);
    check(&tensor(&[3i64], &[1]) * &(number(2) + 1).expect("a number"), &[1], &[9i64]);
}

#[test]
fn compiled_calculations_with_numbers_have_the_bits_of_eager_ones() {
    let (doubles, floats) = (tensor(&[1.25f64, -3.0], &[2]), tensor(&[1.25f32, -3.0], &[2]));
    for (name, calculation) in CALCULATIONS {
        let compiled = compile(*calculation);
        for x in [&doubles, &floats] {
            for h in [0.01, 0.3, 1.7] {
                let h = number(h);
                let (eager, found) = (calculation(x, &h).expect(name), compiled.call((x, &h)).expect(name));
                assert_eq!((found.dtype(), eager.dtype()), (x.dtype(), x.dtype()), "{name}");
                let bits = |y: &Tensor| -> Vec<u64> {
                    let values = y.to_dtype(DType::F64).and_then(|y| y.to_vec::<f64>()).expect("it has values");
                    values.into_iter().map(f64::to_bits).collect()
                };
                assert_eq!(bits(&found), bits(&eager), "{name} with {x:?} and {h:?}");
            }
        }
        assert!(compiled.explain().eager.is_none(), "{name}: {}", compiled.explain());
    }
}
