//! Other names of operators, which ATen has too: `multiply` is `mul`, and `special_erf` is `erf`.
//!
//! Exported programs keep the name that a model was written with. Each overload, and each in-place form, calls the
//! operator that it stands for.

use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::schema::OperatorName;
use crate::error::Result;

/// The other name, and the operator.
const NAMES: [(&str, &str); 40] = [
    ("absolute", "abs"),
    ("arccos", "acos"),
    ("arccosh", "acosh"),
    ("arcsin", "asin"),
    ("arcsinh", "asinh"),
    ("arctan", "atan"),
    ("arctan2", "atan2"),
    ("arctanh", "atanh"),
    ("clip", "clamp"),
    ("divide", "div"),
    ("fix", "trunc"),
    ("ger", "outer"),
    ("greater", "gt"),
    ("greater_equal", "ge"),
    ("less", "lt"),
    ("less_equal", "le"),
    ("linalg_matmul", "matmul"),
    ("linalg_matrix_power", "matrix_power"),
    ("multiply", "mul"),
    ("negative", "neg"),
    ("not_equal", "ne"),
    ("row_stack", "vstack"),
    ("special_digamma", "digamma"),
    ("special_erf", "erf"),
    ("special_erfc", "erfc"),
    ("special_erfinv", "erfinv"),
    ("special_exp2", "exp2"),
    ("special_expm1", "expm1"),
    ("special_gammainc", "igamma"),
    ("special_gammaincc", "igammac"),
    ("special_gammaln", "lgamma"),
    ("special_log1p", "log1p"),
    ("special_logit", "logit"),
    ("special_logsumexp", "logsumexp"),
    ("special_multigammaln", "mvlgamma"),
    ("special_polygamma", "polygamma"),
    ("special_psi", "digamma"),
    ("special_sinc", "sinc"),
    ("special_xlogy", "xlogy"),
    ("subtract", "sub"),
];

/// Overloads of the other name that are called otherwise.
const OVERLOADS: [(&str, &str, &str); 3] = [
    ("special_xlogy", "Tensor", ""),
    ("special_xlogy", "Scalar_Other", "other_scalar"),
    ("special_xlogy", "Scalar_Self", "self_scalar"),
];

pub(crate) fn register(library: &mut Library) -> Result<()> {
    let operators = Dispatcher::global().operators();
    for operator in &operators {
        let OperatorName { name, overload } = operator.name();
        let Some(name) = name.strip_prefix("aten::") else { continue };
        let (base, ending) = name.strip_suffix('_').map_or((name, ""), |base| (base, "_"));
        // Names of the `special` namespace have no in-place forms. A form with `out` is found under the first name.
        let is_form = |other: &str| !(overload.ends_with("out") || ending == "_" && other.starts_with("special_"));
        for (other, _) in NAMES.iter().filter(|(other, of)| *of == base && is_form(other)) {
            define(library, operator, other, ending)?;
        }
    }
    Ok(())
}

fn define(library: &mut Library, operator: &Operator, other: &str, ending: &str) -> Result<()> {
    let Some(schema) = operator.schema() else { return Ok(()) };
    let mut schema = schema.clone();
    schema.name.name = format!("aten::{other}{ending}");
    let renamed = OVERLOADS.iter().find(|(name, overload, _)| *name == other && *overload == schema.name.overload);
    if let Some((_, _, overload)) = renamed {
        schema.name.overload = (*overload).into();
    }
    let operator = operator.clone();
    let kernel = Kernel::boxed(move |_, _, stack| operator.call_boxed(stack)).named("other name");
    library.def_composite(&schema.to_string(), kernel)?;
    Ok(())
}
