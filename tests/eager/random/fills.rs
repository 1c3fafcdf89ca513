//! Random numbers written into tensors.

use super::{generator, numbers, turn};
use opfuse::dispatch::{Dispatcher, Value, load};
use opfuse::{DType, Result, Tensor, compile};

#[test]
fn fills_stay_in_their_range_and_write_through_views() -> Result<()> {
    let _turn = turn();
    let whole = Tensor::full(&[4, 6], 7.0, DType::F64)?;
    let part = whole.slice(1, 1, 4, 2)?;
    let version = whole.version();
    part.uniform_(-2.0, -1.0)?;
    assert!(whole.version() > version, "the write is counted");
    for (at, x) in numbers(&whole).into_iter().enumerate() {
        let is_written = matches!(at % 6, 1 | 3);
        assert!(if is_written { (-2.0..-1.0).contains(&x) } else { x == 7.0 }, "element {at} is {x}");
    }
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let x = Tensor::zeros(&[1000], dtype)?;
        x.uniform_(10.0, 20.0)?;
        let mean = numbers(&x).iter().sum::<f64>() / 1000.0;
        assert!((mean - 15.0).abs() < 0.5 && numbers(&x).iter().all(|x| (10.0..=20.0).contains(x)), "{dtype}: {mean}");
        x.normal_(100.0, 0.5)?;
        let mean = numbers(&x).iter().sum::<f64>() / 1000.0;
        assert!((mean - 100.0).abs() < 0.1, "{dtype}: {mean}");
    }
    for dtype in DType::ALL {
        let x = Tensor::zeros(&[100], dtype)?;
        x.bernoulli_(0.5)?;
        assert!(numbers(&x).iter().all(|&x| x == 0.0 || x == 1.0), "{dtype}");
        x.random_(0, 2)?;
        assert!(numbers(&x).iter().all(|&x| x == 0.0 || x == 1.0), "{dtype}");
    }
    Ok(())
}

#[test]
fn fills_by_name_draw_from_their_generator() -> Result<()> {
    load()?;
    let own = generator(4);
    let p = Tensor::from_slice(&[0.0f32, 1.0, 0.5], &[3])?;
    let cases: [(&str, Vec<Value>); 7] = [
        ("aten::uniform_", vec![Value::Float(1.0), Value::Float(3.0)]),
        ("aten::normal_", vec![Value::Float(1.0), Value::Float(3.0)]),
        ("aten::bernoulli_.float", vec![Value::Float(0.5)]),
        ("aten::bernoulli_.Tensor", vec![Value::Tensor(p)]),
        ("aten::random_.from", vec![Value::Int(-1000), Value::None]),
        ("aten::random_.to", vec![Value::Int(1000)]),
        ("aten::random_", vec![]),
    ];
    for (name, rest) in cases {
        let (x, state) = (Tensor::zeros(&[40, 3], DType::F32)?, own.state());
        let call = || {
            Dispatcher::global()
                .lookup(name)?
                .invoke([&[Value::Tensor(x.clone())], &rest[..]].concat(), vec![("generator", Value::from(&own))])
        };
        let result = call()?;
        assert!(matches!(&result[..], [Value::Tensor(result)] if result.is_alias_of(&x)), "{name} returns its target");
        let (first, next) = (numbers(&x), own.state());
        assert!(next != state && first.iter().any(|&x| x != first[0]), "{name}");
        call()?;
        assert_ne!(numbers(&x), first, "{name}: later numbers are others");
        own.set_state(state);
        call()?;
        assert!(numbers(&x) == first && own.state() == next, "{name}");
    }
    Ok(())
}

#[test]
fn refused_fills_write_nothing() -> Result<()> {
    let _turn = turn();
    let x = Tensor::ones(&[3], DType::F32)?;
    let whole = Tensor::ones(&[3], DType::U8)?;
    let repeated = Tensor::ones(&[1], DType::F32)?.expand([3])?;
    let leaf = Tensor::ones(&[3], DType::F32)?;
    leaf.set_requires_grad(true)?;
    let cases: [(Result<()>, &str); 8] = [
        (x.uniform_(2.0, 1.0), "from=2 > to=1"),
        (x.uniform_(-f64::MAX, f64::MAX), "[from, to) range"),
        (x.normal_(0.0, -1.0), "std -1"),
        (x.bernoulli_(1.5), "[0, 1]"),
        (x.random_(3, 3), "from=3 >= to=3"),
        (whole.random_(0, 300), "does not fit u8"),
        (whole.uniform_(0.0, 1.0), "floating dtype"),
        (repeated.uniform_(0.0, 1.0), "single memory location"),
    ];
    for (result, expected) in cases {
        let error = result.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(leaf.uniform_(0.0, 1.0).is_err_and(|error| error.to_string().contains("leaf")));
    for tensor in [&x, &whole, &repeated, &leaf] {
        assert!(numbers(tensor).iter().all(|&x| x == 1.0));
    }
    Ok(())
}

#[test]
fn compiled_fills_write_what_eager_ones_would() -> Result<()> {
    let _turn = turn();
    let fill = |x: &Tensor| {
        x.uniform_(0.0, 2.0)?;
        let sum = x.sum_all()?;
        x.normal_(0.0, 1.0)?;
        Ok(sum)
    };
    let (eager, compiled) = (Tensor::zeros(&[3, 5], DType::F32)?, Tensor::zeros(&[3, 5], DType::F32)?);
    opfuse::manual_seed(21);
    let expected = [fill(&eager)?, fill(&eager)?, fill(&eager)?].map(|sum| numbers(&sum));
    opfuse::manual_seed(21);
    let function = compile(fill);
    for expected in expected {
        assert_eq!(numbers(&function.call(&compiled)?), expected);
    }
    assert_eq!(numbers(&compiled), numbers(&eager));
    assert!(function.explain().eager.is_none(), "{}", function.explain());
    Ok(())
}
