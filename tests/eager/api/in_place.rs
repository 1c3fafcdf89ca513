//! Methods that write: every operator `x_` has one, and it does what the functional method does.

use super::*;
use std::fs;
use std::path::Path;

type Unary = (&'static str, fn(&Tensor) -> Result<Tensor>, &'static str, fn(&Tensor) -> Result<()>);
type Binary = (&'static str, fn(&Tensor, &Tensor) -> Result<Tensor>, &'static str, fn(&Tensor, &Tensor) -> Result<()>);

macro_rules! regular_rows {
    (
        unary { $($(#[$udoc:meta])* $Unary:ident $uname:ident $uwrite:ident $urule:ident |$ux:ident| $ubody:expr; $ud:tt;)* }
        binary { $($(#[$bdoc:meta])* $Binary:ident $bname:ident $bwrite:ident $boverload:literal $brule:ident |$ba:ident, $bb:ident| $bbody:expr; $bd:tt;)* }
        other { $($(#[$odoc:meta])* $Other:ident $(: $Shared:ident)? $({ $($field:tt)* })? = $row:expr;)* }
    ) => {
        const UNARY: &[Unary] = &[$((stringify!($uname), Tensor::$uname, stringify!($uwrite), Tensor::$uwrite)),*];
        const BINARY: &[Binary] = &[
            $((stringify!($bname), |x, y| x.$bname(y), stringify!($bwrite), |x, y| x.$bwrite(y))),*
        ];
    };
}

opfuse::for_each_op!(regular_rows);

/// Methods that do not come from the op table, on a 3 by 4 tensor of numbers between 0 and 1.
const OTHERS: &[Unary] = &[
    ("add", |x| x.add(other()), "add_", |x| x.add_(other())),
    ("add_scaled", |x| x.add_scaled(other(), 2), "add_scaled_", |x| x.add_scaled_(other(), 2)),
    ("sub", |x| x.sub(0.5), "sub_", |x| x.sub_(0.5)),
    ("sub_scaled", |x| x.sub_scaled(other(), 2), "sub_scaled_", |x| x.sub_scaled_(other(), 2)),
    ("pow", |x| x.pow(other()), "pow_", |x| x.pow_(other())),
    ("pow by a number", |x| x.pow(3), "pow_", |x| x.pow_(3)),
    ("float_power", |x| x.float_power(2.5), "float_power_", |x| x.float_power_(2.5)),
    ("div_rounded", |x| x.div_rounded(0.3, "floor"), "div_rounded_", |x| x.div_rounded_(0.3, "floor")),
    ("lerp", |x| x.lerp(&other(), 0.25), "lerp_", |x| x.lerp_(&other(), 0.25)),
    ("lerp by tensors", |x| x.lerp(&other(), other()), "lerp_", |x| x.lerp_(&other(), other())),
    ("addcmul", |x| x.addcmul(&other(), &other(), 2), "addcmul_", |x| x.addcmul_(&other(), &other(), 2)),
    ("addcdiv", |x| x.addcdiv(&other(), &other(), 2), "addcdiv_", |x| x.addcdiv_(&other(), &other(), 2)),
    ("heaviside", |x| x.heaviside(&other()), "heaviside_", |x| x.heaviside_(&other())),
    ("logit", |x| x.logit(None), "logit_", |x| x.logit_(None)),
    ("round_decimals", |x| x.round_decimals(1), "round_decimals_", |x| x.round_decimals_(1)),
    ("gelu", Tensor::gelu, "gelu_", Tensor::gelu_),
    ("gelu_tanh", Tensor::gelu_tanh, "gelu_tanh_", Tensor::gelu_tanh_),
    ("masked_fill", |x| x.masked_fill(&mask(), 7), "masked_fill_", |x| x.masked_fill_(&mask(), 7)),
    ("clamp", |x| x.clamp(Some(0.2.into()), None), "clamp_", |x| x.clamp_(Some(0.2.into()), None)),
    ("clamp_min", |x| x.clamp_min(0.5), "clamp_min_", |x| x.clamp_min_(0.5)),
    ("clamp_max", |x| x.clamp_max(0.5), "clamp_max_", |x| x.clamp_max_(0.5)),
    ("nan_to_num", |x| x.nan_to_num(None, None, None), "nan_to_num_", |x| x.nan_to_num_(None, None, None)),
    ("leaky_relu", |x| x.leaky_relu(0.1), "leaky_relu_", |x| x.leaky_relu_(0.1)),
    ("elu", |x| x.elu(0.1), "elu_", |x| x.elu_(0.1)),
    ("celu", |x| x.celu(0.1), "celu_", |x| x.celu_(0.1)),
    ("hardtanh", |x| x.hardtanh(0.2, 0.7), "hardtanh_", |x| x.hardtanh_(0.2, 0.7)),
    ("softplus", |x| x.softplus(1, 20), "softplus_", |x| x.softplus_(1, 20)),
    ("softshrink", |x| x.softshrink(0.4), "softshrink_", |x| x.softshrink_(0.4)),
    ("hardshrink", |x| x.hardshrink(0.4), "hardshrink_", |x| x.hardshrink_(0.4)),
    ("threshold", |x| x.threshold(0.4, 2), "threshold_", |x| x.threshold_(0.4, 2)),
    ("dropout", |x| x.dropout(0.5, false), "dropout_", |x| x.dropout_(0.5, false)),
    ("cumsum", |x| x.cumsum(1), "cumsum_", |x| x.cumsum_(1)),
    ("cumprod", |x| x.cumprod(0), "cumprod_", |x| x.cumprod_(0)),
    ("scatter", |x| x.scatter(1, &places(), &other()), "scatter_", |x| x.scatter_(1, &places(), &other())),
    ("scatter_add", |x| x.scatter_add(1, &places(), x), "scatter_add_", |x| x.scatter_add_(1, &places(), x)),
    (
        "scatter_reduce",
        |x| x.scatter_reduce(1, &places(), &other(), "amax", true),
        "scatter_reduce_",
        |x| x.scatter_reduce_(1, &places(), &other(), "amax", true),
    ),
    ("scatter_value", |x| x.scatter_value(1, &places(), 7), "scatter_value_", |x| x.scatter_value_(1, &places(), 7)),
    (
        "index_put",
        |x| x.index_put(&[Some(rows())], &other(), true),
        "index_put_",
        |x| x.index_put_(&[Some(rows())], &other(), true),
    ),
    ("index_add", |x| x.index_add(0, &rows(), &other()), "index_add_", |x| x.index_add_(0, &rows(), &other())),
    (
        "index_add_scaled",
        |x| x.index_add_scaled(0, &rows(), x, 2),
        "index_add_scaled_",
        |x| x.index_add_scaled_(0, &rows(), x, 2),
    ),
    ("index_copy", |x| x.index_copy(0, &rows(), &other()), "index_copy_", |x| x.index_copy_(0, &rows(), &other())),
    ("index_fill", |x| x.index_fill(0, &rows(), 7), "index_fill_", |x| x.index_fill_(0, &rows(), 7)),
    (
        "index_fill_with",
        |x| x.index_fill_with(0, &rows(), &Tensor::scalar(7f32)?),
        "index_fill_with_",
        |x| x.index_fill_with_(0, &rows(), &Tensor::scalar(7f32)?),
    ),
    ("put", |x| x.put(&places(), &other(), true), "put_", |x| x.put_(&places(), &other(), true)),
    (
        "masked_scatter",
        |x| x.masked_scatter(&mask(), &other()),
        "masked_scatter_",
        |x| x.masked_scatter_(&mask(), &other()),
    ),
];

/// A 3 by 4 tensor of numbers between 0 and 1.
fn numbers(dtype: DType) -> Tensor {
    Tensor::arange(1, 13, 1).and_then(|x| x.div(13.5)?.view([3, 4])?.to_dtype(dtype)).expect("legal")
}

fn other() -> Tensor {
    numbers(DType::F32).flip([0, 1]).expect("two dims")
}

fn mask() -> Tensor {
    other().gt(0.4).expect("numbers compare")
}

fn places() -> Tensor {
    tensor(&[3i64, 0, 1, 1, 2, 2, 0, 3, 1, 0, 3, 2], &[3, 4])
}

fn rows() -> Tensor {
    tensor(&[2i64, 0, 1], &[3])
}

/// Compares elements as text, in which all NaNs are equal.
fn same(found: &Tensor, expected: &Tensor) -> bool {
    (found.dtype(), found.to_string()) == (expected.dtype(), expected.to_string())
}

/// Writes to copies of `x`, one of them a view of a larger tensor.
fn check_in_place(
    name: &str,
    x: &Tensor,
    function: impl Fn(&Tensor) -> Result<Tensor>,
    write: impl Fn(&Tensor) -> Result<()>,
) -> Result<()> {
    let expected = function(x).and_then(|result| match result.dtype().category() <= x.dtype().category() {
        true => result.to_dtype(x.dtype()),
        false => Err(Error::argument(name, "does not fit")),
    });
    let target = x.copy()?;
    let outcome = write(&target);
    assert_eq!(outcome.is_ok(), expected.is_ok(), "{name} of {}: {outcome:?}, {expected:?}", x.dtype());
    let expected = expected.unwrap_or_else(|_| x.clone());
    assert!(same(&target, &expected), "{name} of {}:\n{target}\n{expected}", x.dtype());
    let whole = Tensor::zeros(&[4, 5], x.dtype())?;
    let part = whole.i((1.., ..-1))?;
    part.copy_(x)?;
    assert_eq!(write(&part).is_ok(), outcome.is_ok(), "{name} of a view");
    assert!(same(&part.contiguous()?, &expected), "{name} of a view:\n{part}\n{expected}");
    assert!(whole.i(0)?.eq(0)?.all((), false)?.item::<bool>()?, "{name} writes beyond its view");
    Ok(())
}

/// The gradient of a weighted sum of `function`'s result on an intermediate value, if there is one.
fn gradient(function: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Option<Tensor>> {
    let leaf = numbers(DType::F32);
    leaf.set_requires_grad(true)?;
    match function(&leaf.mul(1.0)?) {
        Ok(result) if result.requires_grad() => result.mul(other())?.sum_all()?.backward()?,
        Ok(_) | Err(_) => return Ok(None),
    }
    Ok(leaf.grad())
}

/// Checks that a call and a write give the same gradient.
fn check_gradient(
    name: &str,
    function: impl Fn(&Tensor) -> Result<Tensor>,
    write: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    let Some(expected) = gradient(function)? else { return Ok(()) };
    let found = gradient(write)?.expect("the result has a history");
    assert!(same(&found, &expected), "gradient of {name}:\n{found}\n{expected}");
    Ok(())
}

const DTYPES: [DType; 4] = [DType::F32, DType::I32, DType::Bool, DType::BF16];

#[test]
fn unary_methods_write() -> Result<()> {
    for &(name, function, written, write) in UNARY {
        assert_eq!(format!("{name}_"), written);
        for dtype in DTYPES {
            check_in_place(name, &numbers(dtype), function, write)?;
            let (target, expected) = (numbers(dtype).copy()?, numbers(dtype).copy()?);
            let outcome = invoke(&format!("aten::{written}"), vec![Value::Tensor(expected.clone())]);
            assert_eq!(write(&target).is_ok(), outcome.is_ok(), "{written} of {dtype}");
            assert!(same(&target, &expected), "{written}:\n{target}\n{expected}");
        }
        check_gradient(name, function, |x| write(x).map(|()| x.clone()))?;
    }
    Ok(())
}

#[test]
fn binary_methods_write() -> Result<()> {
    for &(name, function, written, write) in BINARY {
        assert_eq!(format!("{name}_"), written);
        for dtype in DTYPES {
            let second = other().to_dtype(dtype)?.i(1)?;
            check_in_place(name, &numbers(dtype), |x| function(x, &second), |x| write(x, &second))?;
        }
        check_gradient(name, |x| function(x, &other()), |x| write(x, &other()).map(|()| x.clone()))?;
        let write_to_other = |x: &Tensor| {
            let target = other();
            write(&target, x).map(|()| target)
        };
        check_gradient(name, |x| function(&other(), x), write_to_other)?;
    }
    Ok(())
}

#[test]
fn other_methods_write() -> Result<()> {
    for &(name, function, _, write) in OTHERS {
        check_in_place(name, &numbers(DType::F32), function, write)?;
        check_gradient(name, function, |x| write(x).map(|()| x.clone()))?;
    }
    Ok(())
}

#[test]
fn targets_keep_shape_and_dtype() -> Result<()> {
    let x = counting(&[3]);
    check_error(x.add_(counting(&[2, 3])), &["shape [3]", "[2, 3]"]);
    check_error(x.i(0)?.expand([3])?.exp_(), &["more than one element", "clone()"]);
    check_error(tensor(&[1i32], &[1]).exp_(), &["f32", "i32"]);
    check_error(tensor(&[1i32], &[1]).div_(2), &["f32", "i32"]);
    x.set_requires_grad(true)?;
    check_error(x.relu_(), &["leaf"]);
    Ok(())
}

/// Operators that would change a shape, so they have no method.
const OWN_SHAPES: [&str; 3] = ["resize_", "resize_as_", "set_"];

/// Other names of operators, which have their method under the first one (`src/ops/other_names.rs`).
const OTHER_NAMES: [&str; 19] = [
    "absolute_",
    "arccos_",
    "arccosh_",
    "arcsin_",
    "arcsinh_",
    "arctan2_",
    "arctan_",
    "arctanh_",
    "clip_",
    "divide_",
    "fix_",
    "greater_",
    "greater_equal_",
    "less_",
    "less_equal_",
    "multiply_",
    "negative_",
    "not_equal_",
    "subtract_",
];

#[test]
fn every_operator_that_writes_has_its_method() {
    opfuse::dispatch::load().expect("the op table is registered");
    let mut text = String::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("sources are there") {
            let path = entry.expect("sources are there").path();
            match path.is_dir() {
                true => folders.push(path),
                false => text.push_str(&fs::read_to_string(path).unwrap_or_default()),
            }
        }
    }
    let dispatcher = Dispatcher::global();
    let is_view = |functional: &str| {
        let schema = |name: &opfuse::dispatch::OperatorName| Some(dispatcher.find(name)?.schema()?.clone());
        let all = dispatcher.operator_names();
        let mut schemas =
            all.iter().filter(|name| name.name == functional && !name.overload.ends_with("out")).filter_map(schema);
        schemas.any(|schema| schema.returns.iter().any(|one| one.alias.is_some()))
    };
    let mut n_methods = 0;
    let mut missing = Vec::new();
    for name in dispatcher.operator_names() {
        let Some(name) = name.name.strip_prefix("aten::").filter(|name| name.ends_with('_') && !name.starts_with('_'))
        else {
            continue;
        };
        let functional = name.trim_end_matches('_');
        if OWN_SHAPES.contains(&name) || OTHER_NAMES.contains(&name) || is_view(&format!("aten::{functional}")) {
            continue;
        }
        n_methods += 1;
        let forms = [
            format!("pub fn {name}("),
            format!("pub fn {name}<"),
            format!(" {functional} {name} "),
            format!(" {functional} {name}("),
            format!(" {functional} {name}<"),
        ];
        if !forms.iter().any(|form| text.contains(form)) {
            missing.push(name.to_owned());
        }
    }
    assert!(missing.is_empty(), "operators without a method: {missing:?}");
    assert!(n_methods > 150, "{n_methods} operators write");
}
