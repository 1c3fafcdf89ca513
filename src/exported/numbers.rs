//! Arithmetic on sizes: what a program computes with Python numbers.

use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::ir::Scalar;

/// A function of Python numbers, and of tensors only through their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberOp {
    Size,
    Stride,
    Numel,
    Offset,
    Item,
    AssertScalar,
    Add,
    Sub,
    Mul,
    FloorDiv,
    TrueDiv,
    Mod,
    Pow,
    Neg,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Not,
    Max,
    Min,
    Float,
    Int,
    Ceil,
    Floor,
    Trunc,
    Sqrt,
}

/// The targets, as exports name them.
const TARGETS: &[(&str, NumberOp)] = &[
    ("torch.ops.aten.sym_size.int", NumberOp::Size),
    ("torch.ops.aten.sym_stride.int", NumberOp::Stride),
    ("torch.ops.aten.sym_numel.default", NumberOp::Numel),
    ("torch.ops.aten.sym_storage_offset.default", NumberOp::Offset),
    ("torch.ops.aten.item.default", NumberOp::Item),
    ("torch.ops.aten._local_scalar_dense.default", NumberOp::Item),
    ("torch.ops.aten._assert_scalar.default", NumberOp::AssertScalar),
    ("_operator.add", NumberOp::Add),
    ("_operator.sub", NumberOp::Sub),
    ("_operator.mul", NumberOp::Mul),
    ("_operator.floordiv", NumberOp::FloorDiv),
    ("_operator.truediv", NumberOp::TrueDiv),
    ("_operator.mod", NumberOp::Mod),
    ("_operator.pow", NumberOp::Pow),
    ("_operator.pos", NumberOp::Int),
    ("_operator.neg", NumberOp::Neg),
    ("_operator.eq", NumberOp::Eq),
    ("_operator.ne", NumberOp::Ne),
    ("_operator.lt", NumberOp::Lt),
    ("_operator.le", NumberOp::Le),
    ("_operator.gt", NumberOp::Gt),
    ("_operator.ge", NumberOp::Ge),
    ("_operator.and_", NumberOp::And),
    ("_operator.or_", NumberOp::Or),
    ("torch.sym_not", NumberOp::Not),
    ("torch.sym_max", NumberOp::Max),
    ("torch.sym_min", NumberOp::Min),
    ("torch.sym_float", NumberOp::Float),
    ("torch.sym_int", NumberOp::Int),
    ("torch._sym_sqrt", NumberOp::Sqrt),
    ("math.ceil", NumberOp::Ceil),
    ("math.floor", NumberOp::Floor),
    ("math.trunc", NumberOp::Trunc),
];

impl NumberOp {
    /// The function that a target names.
    pub(super) fn from_target(target: &str) -> Option<NumberOp> {
        TARGETS.iter().find(|(name, _)| *name == target).map(|(_, op)| *op)
    }

    /// Applies the function as Python would.
    ///
    /// # Errors
    /// If an argument is missing or has another type, at a division by zero, if a whole number leaves the range of
    /// `i64`, or if an assertion does not hold.
    pub(super) fn apply(self, args: &[Value]) -> Result<Option<Value>> {
        let bad = |what: String| Error::argument("size arithmetic", what);
        let misfit = || bad(format!("{self:?} does not take {args:?}"));
        if let [Value::Tensor(x), rest @ ..] = args {
            let dim = || match rest {
                [Value::Int(dim)] => {
                    let rank = x.dim() as i64;
                    let dim = if *dim < 0 { dim + rank } else { *dim };
                    usize::try_from(dim).ok().filter(|&dim| dim < x.dim()).ok_or_else(misfit)
                }
                _ => Err(misfit()),
            };
            return Ok(Some(match self {
                NumberOp::Size => Value::Int(x.sizes()[dim()?] as i64),
                NumberOp::Stride => Value::Int(x.strides()[dim()?] as i64),
                NumberOp::Numel => Value::Int(x.numel() as i64),
                NumberOp::Offset => Value::Int(x.storage_offset() as i64),
                NumberOp::Item => crate::exported::run::number(x)?,
                _ => return Err(misfit()),
            }));
        }
        let numbers: Vec<Number> = args.iter().filter_map(Number::of).collect();
        if self == NumberOp::AssertScalar {
            let message =
                args.iter().find_map(|arg| if let Value::Str(text) = arg { Some(text.as_ref()) } else { None });
            return match numbers.first() {
                Some(number) if number.is_true() => Ok(None),
                Some(_) => Err(bad(format!("an assertion of the program does not hold: {}", message.unwrap_or("")))),
                None => Err(misfit()),
            };
        }
        if numbers.len() != args.len() {
            return Err(misfit());
        }
        let value = match numbers[..] {
            [x] => self.of_one(x),
            [a, b] => self.of_two(a, b),
            _ => None,
        };
        value.map(Some).ok_or_else(|| bad(format!("{self:?} of {args:?} has no value")))
    }

    fn of_one(self, x: Number) -> Option<Value> {
        let whole = |x: f64| {
            let is_in_range = x.is_finite() && x.abs() < 9.2e18;
            is_in_range.then_some(Value::Int(x as i64))
        };
        Some(match (self, x) {
            (NumberOp::Neg, Number::Int(x)) => Value::Int(x.checked_neg()?),
            (NumberOp::Neg, Number::Float(x)) => Value::Float(-x),
            (NumberOp::Not, x) => Value::Bool(!x.is_true()),
            (NumberOp::Float, x) => Value::Float(x.float()),
            (NumberOp::Sqrt, x) => Value::Float(x.float().sqrt()),
            (NumberOp::Int | NumberOp::Ceil | NumberOp::Floor | NumberOp::Trunc, Number::Int(x)) => Value::Int(x),
            (NumberOp::Int | NumberOp::Trunc, Number::Float(x)) => whole(x.trunc())?,
            (NumberOp::Ceil, Number::Float(x)) => whole(x.ceil())?,
            (NumberOp::Floor, Number::Float(x)) => whole(x.floor())?,
            _ => return None,
        })
    }

    fn of_two(self, a: Number, b: Number) -> Option<Value> {
        let order = a.order(b);
        Some(match (self, a, b) {
            (NumberOp::Eq, ..) => Value::Bool(order.is_some_and(|order| order.is_eq())),
            (NumberOp::Ne, ..) => Value::Bool(order.is_none_or(|order| order.is_ne())),
            (NumberOp::Lt, ..) => Value::Bool(order.is_some_and(|order| order.is_lt())),
            (NumberOp::Le, ..) => Value::Bool(order.is_some_and(|order| order.is_le())),
            (NumberOp::Gt, ..) => Value::Bool(order.is_some_and(|order| order.is_gt())),
            (NumberOp::Ge, ..) => Value::Bool(order.is_some_and(|order| order.is_ge())),
            (NumberOp::And, ..) => Value::Bool(a.is_true() && b.is_true()),
            (NumberOp::Or, ..) => Value::Bool(a.is_true() || b.is_true()),
            (NumberOp::Max, ..) => if order?.is_lt() { b } else { a }.value(),
            (NumberOp::Min, ..) => if order?.is_gt() { b } else { a }.value(),
            (NumberOp::TrueDiv, ..) if b.float() == 0.0 => return None,
            (NumberOp::TrueDiv, ..) => Value::Float(a.float() / b.float()),
            (_, Number::Int(a), Number::Int(b)) => Value::Int(match self {
                NumberOp::Add => a.checked_add(b)?,
                NumberOp::Sub => a.checked_sub(b)?,
                NumberOp::Mul => a.checked_mul(b)?,
                // Towards minus infinity, as in Python.
                NumberOp::FloorDiv => floor_div(a, b)?,
                NumberOp::Mod => a.checked_sub(floor_div(a, b)?.checked_mul(b)?)?,
                NumberOp::Pow => match u32::try_from(b) {
                    Ok(power) => a.checked_pow(power)?,
                    Err(_) => return Some(Value::Float((a as f64).powf(b as f64))),
                },
                _ => return None,
            }),
            (_, a, b) => {
                let (a, b) = (a.float(), b.float());
                Value::Float(match self {
                    NumberOp::Add => a + b,
                    NumberOp::Sub => a - b,
                    NumberOp::Mul => a * b,
                    NumberOp::FloorDiv if b != 0.0 => (a / b).floor(),
                    NumberOp::Mod if b != 0.0 => a - (a / b).floor() * b,
                    NumberOp::Pow => a.powf(b),
                    _ => return None,
                })
            }
        })
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let is_below = a % b != 0 && (a < 0) != (b < 0);
    Some(quotient - i64::from(is_below))
}

/// A Python number. Truth values count as whole numbers.
#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn of(value: &Value) -> Option<Number> {
        Some(match value {
            Value::Int(number) | Value::Scalar(Scalar::Int(number)) => Number::Int(*number),
            Value::Float(number) | Value::Scalar(Scalar::Float(number)) => Number::Float(*number),
            Value::Bool(flag) | Value::Scalar(Scalar::Bool(flag)) => Number::Int(i64::from(*flag)),
            _ => return None,
        })
    }

    fn value(self) -> Value {
        match self {
            Number::Int(number) => Value::Int(number),
            Number::Float(number) => Value::Float(number),
        }
    }

    fn float(self) -> f64 {
        match self {
            Number::Int(number) => number as f64,
            Number::Float(number) => number,
        }
    }

    fn is_true(self) -> bool {
        self.float() != 0.0
    }

    fn order(self, other: Number) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
            (a, b) => a.float().partial_cmp(&b.float()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(target: &str, args: &[Value]) -> Result<String> {
        let op = NumberOp::from_target(target).expect("the target is in the table");
        Ok(format!("{:?}", op.apply(args)?))
    }

    #[test]
    fn numbers_are_those_of_python() -> Result<()> {
        let ints = |a, b| [Value::Int(a), Value::Int(b)];
        assert_eq!(apply("_operator.floordiv", &ints(-7, 2))?, "Some(-4)");
        assert_eq!(apply("_operator.mod", &ints(-7, 2))?, "Some(1)");
        assert_eq!(apply("_operator.mod", &ints(7, -2))?, "Some(-1)");
        assert_eq!(apply("_operator.truediv", &ints(7, 2))?, "Some(3.5)");
        assert_eq!(apply("_operator.pow", &ints(2, -1))?, "Some(0.5)");
        assert_eq!(apply("torch.sym_max", &[Value::Int(3), Value::Float(2.5)])?, "Some(3)");
        assert_eq!(apply("math.ceil", &[Value::Float(-0.5)])?, "Some(0)");
        assert_eq!(apply("_operator.le", &[Value::Int(2), Value::Float(f64::NAN)])?, "Some(false)");
        assert_eq!(
            apply("torch.ops.aten._assert_scalar.default", &[Value::Bool(true), Value::Str("ok".into())])?,
            "None"
        );
        Ok(())
    }

    #[test]
    fn what_has_no_value_is_an_error() {
        for (target, args) in [
            ("_operator.floordiv", vec![Value::Int(1), Value::Int(0)]),
            ("_operator.floordiv", vec![Value::Int(i64::MIN), Value::Int(-1)]),
            ("_operator.mul", vec![Value::Int(i64::MAX), Value::Int(2)]),
            ("_operator.add", vec![Value::Int(1)]),
            ("_operator.add", vec![Value::None, Value::Int(2)]),
            ("math.floor", vec![Value::Float(f64::INFINITY)]),
            ("torch.ops.aten._assert_scalar.default", vec![Value::Bool(false), Value::Str("u0 > 0".into())]),
            ("torch.ops.aten.sym_size.int", vec![]),
        ] {
            assert!(apply(target, &args).is_err(), "{target} of {args:?}");
        }
    }
}
