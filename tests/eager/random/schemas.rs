//! The operators by name, with and without a generator, and what they refuse.

use super::{generator, turn};
use opfuse::dispatch::{Dispatcher, Stack, Value, load};
use opfuse::{DType, Device, Error, Generator, Result, Tensor};
use std::collections::HashMap;

/// Calls an operator with the arguments that are named, the others taking their defaults.
fn call(name: &str, named: &[(&str, Value)]) -> Result<Vec<Value>> {
    load()?;
    let operator = Dispatcher::global().lookup(name)?;
    let named: HashMap<&str, &Value> = named.iter().map(|(name, value)| (*name, value)).collect();
    let schema = operator.schema().expect("it was looked up by its schema");
    let mut stack = Stack::new();
    for argument in &schema.arguments {
        let default = || argument.default.as_ref().and_then(|literal| argument.ty.literal_value(literal));
        let given = named.get(argument.name.as_str()).map(|&value| value.clone());
        stack.push(given.or_else(default).unwrap_or(Value::None));
    }
    operator.call_boxed(&mut stack)?;
    Ok(stack.into_vec())
}

fn tensor(name: &str, named: &[(&str, Value)]) -> Result<Tensor> {
    match call(name, named)?.into_iter().next() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        other => panic!("{name} gave {other:?}"),
    }
}

fn sizes(sizes: &[i64]) -> Value {
    Value::IntList(sizes.iter().copied().collect())
}

#[test]
fn overloads_with_a_generator_draw_from_it() -> Result<()> {
    let own = generator(8);
    let by = |generator: &Generator| ("generator", Value::from(generator));
    let model = Value::Tensor(Tensor::full(&[4], 0.5, None)?);
    let cases: [(&str, Vec<(&str, Value)>); 9] = [
        ("aten::rand.generator", vec![("size", sizes(&[4]))]),
        ("aten::randn.generator", vec![("size", sizes(&[4]))]),
        ("aten::rand_like.generator", vec![("self", model.clone())]),
        ("aten::randn_like.generator", vec![("self", model.clone())]),
        ("aten::randint.generator", vec![("high", Value::Int(1000)), ("size", sizes(&[4]))]),
        (
            "aten::randint.low_generator",
            vec![("low", Value::Int(-1000)), ("high", Value::Int(1000)), ("size", sizes(&[4]))],
        ),
        ("aten::randperm.generator", vec![("n", Value::Int(40))]),
        ("aten::bernoulli", vec![("self", model.clone())]),
        ("aten::bernoulli.p", vec![("self", model.clone()), ("p", Value::Float(0.5))]),
    ];
    for (name, arguments) in cases {
        let with = [&arguments[..], &[by(&own)]].concat();
        let state = own.state();
        let first = tensor(name, &with)?;
        assert_ne!(own.state(), state, "{name} has drawn");
        own.set_state(state);
        assert_eq!(super::numbers(&tensor(name, &with)?), super::numbers(&first), "{name}");
    }
    Ok(())
}

#[test]
fn factories_follow_dtype_and_device() -> Result<()> {
    let _turn = turn();
    let half = tensor("aten::rand", &[("size", sizes(&[2, 3])), ("dtype", Value::DType(DType::F16))])?;
    assert_eq!((half.dtype(), half.sizes()), (DType::F16, &[2, 3][..]));
    let meta = tensor("aten::randn", &[("size", sizes(&[2])), ("device", Value::Device(Device::META))])?;
    assert!(!meta.has_data() && meta.dtype() == DType::F32);
    let whole = tensor("aten::randint", &[("high", Value::Int(9)), ("size", sizes(&[3]))])?;
    assert_eq!(whole.dtype(), DType::I64);
    let truth = [("high", Value::Int(2)), ("size", sizes(&[3])), ("dtype", Value::DType(DType::Bool))];
    assert_eq!(tensor("aten::randint", &truth)?.dtype(), DType::Bool);
    let mask = call(
        "aten::native_dropout",
        &[("input", Value::Tensor(Tensor::ones(&[3], DType::F32)?)), ("p", Value::Float(0.5)), ("train", Value::None)],
    )?;
    assert_eq!(mask.len(), 2);
    Ok(())
}

#[test]
fn refused_calls_say_why() -> Result<()> {
    let _turn = turn();
    let model = || Tensor::ones(&[2], DType::I64);
    let cuda = Generator::new(Device::cuda(0));
    let cases: [(Result<Tensor>, &str); 10] = [
        (Tensor::rand(&[2], DType::I64), "floating dtype"),
        (Tensor::randn(&[2], DType::Bool), "floating dtype"),
        (model()?.rand_like(), "floating dtype"),
        (model()?.bernoulli(), "floating dtype"),
        (Tensor::randint(5, 5, &[2]), "from=5 >= to=5"),
        (
            tensor(
                "aten::randint",
                &[("high", Value::Int(300)), ("size", sizes(&[2])), ("dtype", Value::DType(DType::U8))],
            ),
            "does not fit u8",
        ),
        (tensor("aten::rand", &[("size", sizes(&[-1]))]), "range"),
        (
            tensor(
                "aten::rand.generator",
                &[("size", sizes(&[1])), ("generator", Value::from(&cuda)), ("device", Value::Device(Device::CPU))],
            ),
            "'cpu' device type for generator but found 'cuda'",
        ),
        (tensor("aten::bernoulli.p", &[("self", Value::Tensor(model()?)), ("p", Value::Float(1.5))]), "[0, 1]"),
        (Tensor::rand(&[usize::MAX / 2, 3], DType::F32), "too many"),
    ];
    for (result, expected) in cases {
        let error = result.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let name = "aten::rand.generator";
    let wrong = tensor(name, &[("size", sizes(&[1])), ("generator", Value::Object(std::sync::Arc::new(5)))]);
    assert!(matches!(wrong, Err(Error::Argument { .. })));
    Ok(())
}
