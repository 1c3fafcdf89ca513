//! User modes: order, nesting, which calls they see, the built-in ones (lines 109, 141).

use crate::{assert_error, tensor};
use opfuse::dispatch::modes::{CallCounter, CallLog, Mode, NanCheck, Next, is_active, push_mode};
use opfuse::dispatch::{DispatchKey as K, Operator, Stack, Value};
use opfuse::internals::dispatch::key::local_key_sets;
use opfuse::{Error, Result, Tensor, compile};
use std::sync::{Arc, Mutex};

/// Notes its name before and after each call, and calls `exp` itself if asked to.
struct Noting {
    name: &'static str,
    calls_exp: bool,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Mode for Noting {
    fn call(&self, op: &Operator, stack: &mut Stack, next: Next<'_>) -> Result<()> {
        let note = |text: &str| {
            let op = op.name().name.trim_start_matches("aten::");
            self.notes.lock().expect("no panic inside").push(format!("{}{text}{op}", self.name));
        };
        note("<");
        if self.calls_exp {
            tensor().exp()?;
        }
        next.call(stack)?;
        note(">");
        Ok(())
    }
}

fn noted(calls_exp: [bool; 2], work: impl FnOnce()) -> Vec<String> {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mode = |name, calls_exp| Arc::new(Noting { name, calls_exp, notes: Arc::clone(&notes) });
    let _outer = push_mode(mode("outer", calls_exp[0]));
    let _inner = push_mode(mode("inner", calls_exp[1]));
    work();
    notes.lock().expect("no panic inside").clone()
}

#[test]
fn the_innermost_mode_is_called_first() {
    let notes = noted([false, false], || drop(tensor().neg()));
    assert_eq!(notes, ["inner<neg", "outer<neg", "outer>neg", "inner>neg"]);
}

#[test]
fn a_mode_is_off_in_its_own_handler() {
    let notes = noted([false, true], || drop(tensor().neg()));
    assert_eq!(notes, ["inner<neg", "outer<exp", "outer>exp", "outer<neg", "outer>neg", "inner>neg"]);
    let notes = noted([true, false], || drop(tensor().neg()));
    assert_eq!(notes, ["inner<neg", "outer<neg", "outer>neg", "inner>neg"]);
}

#[test]
fn modes_see_the_parts_of_a_composite() {
    // line 109: the counter grows once per entry into the dispatcher.
    let counter = Arc::new(CallCounter::default());
    let matrix = Tensor::ones(&[2, 2], opfuse::DType::F32).expect("ones");
    {
        let _guard = push_mode(counter.clone());
        matrix.linear(&matrix, None).expect("a product");
    }
    let expected = ["aten::linear", "aten::t", "aten::matmul", "aten::mm"];
    assert!(expected.iter().all(|name| counter.count(name) == 1), "{:?}", counter.counts());
    assert_eq!(counter.total(), 4);
    matrix.exp().expect("a float");
    assert_eq!(counter.total(), 4);
}

#[test]
fn a_thread_without_modes_has_no_key_for_them() {
    assert!(!is_active() && !local_key_sets().included.has(K::PythonDispatcher));
    let outer = push_mode(Arc::new(CallCounter::default()));
    let inner = push_mode(Arc::new(CallCounter::default()));
    drop(inner);
    assert!(is_active() && local_key_sets().included.has(K::PythonDispatcher));
    drop(outer);
    assert!(!is_active() && !local_key_sets().included.has(K::PythonDispatcher));
}

#[test]
fn a_handler_may_answer_refuse_or_panic() {
    struct Odd;
    impl Mode for Odd {
        fn call(&self, op: &Operator, stack: &mut Stack, next: Next<'_>) -> Result<()> {
            match op.name().name.as_str() {
                "aten::neg" => {
                    stack.clear();
                    stack.push(Value::Tensor(Tensor::from_slice(&[42.0f32], &[1])?));
                    Ok(())
                }
                "aten::exp" => Err(Error::argument("exp", "not today")),
                "aten::sin" => panic!("the handler's own"),
                _ => next.call(stack),
            }
        }
    }
    let _guard = push_mode(Arc::new(Odd));
    let x = tensor();
    assert_eq!(x.neg().and_then(|y| y.to_vec::<f32>()), Ok(vec![42.0]));
    assert_error(x.exp(), &["not today"]);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| x.sin())).is_err());
    assert_eq!(x.abs().and_then(|y| y.to_vec::<f32>()), Ok(vec![1.0]));
    assert_eq!(x.neg().and_then(|y| y.to_vec::<f32>()), Ok(vec![42.0]));
}

#[test]
fn n141_a_log_lists_calls_with_all_arguments() {
    let log = Arc::new(CallLog::default());
    let x = tensor();
    {
        let _guard = push_mode(log.clone());
        x.add(1).and_then(|y| y.mul(2)).expect("numbers");
        x.sum([0], true).expect("one dim");
        opfuse::cat(&[&x, &x], 0).expect("one shape");
    }
    let expected = "aten::add.Tensor(self=f32[1], other=1, alpha=1)\n\
                    aten::mul.Tensor(self=f32[1], other=2)\n\
                    aten::sum.dim_IntList(self=f32[1], dim=[0], keepdim=true, dtype=None)\n\
                    aten::cat(tensors=[f32[1], f32[1]], dim=0)\n";
    assert_eq!(log.to_string(), expected);
    assert_eq!(log.names(), ["add", "mul", "sum", "cat"]);
    log.clear();
    let guard = push_mode(log.clone());
    x.add_(1).expect("a number");
    drop(guard);
    assert_eq!(log.calls()[0].to_string(), "aten::add_.Tensor(self=f32[1], other=1, alpha=1)");
    assert_eq!((log.names(), log.names_at(1)), (vec!["add_".into()], vec!["add".into(), "copy_".into()]));
    log.clear();
    assert!(log.calls().is_empty());
}

#[test]
fn nan_check_names_the_call_that_makes_one() {
    let x = Tensor::from_slice(&[4.0f32, -1.0], &[2]).expect("two elements");
    let _guard = push_mode(Arc::new(NanCheck));
    let zero = x.sub(&x).expect("zeros");
    assert_error(zero.div(&zero), &["aten::div.Tensor", "result 0 holds NaN", "f32[2], f32[2]"]);
    assert_error(x.sqrt(), &["aten::sqrt"]);
    let old = Tensor::from_slice(&[f32::NAN], &[1]).expect("one element");
    assert!(old.add(1.0).is_ok(), "the operand had it");
    assert!(x.slice(0, 0, 1, 1).and_then(|y| y.sqrt()).is_ok());
}

#[test]
fn a_compiled_function_runs_eagerly_under_a_mode() {
    let double = compile(|x: &Tensor| x.exp()?.add(1.0));
    let x = tensor();
    let expected = double.call(&x).and_then(|y| y.to_vec::<f32>());
    let counter = Arc::new(CallCounter::default());
    let _guard = push_mode(counter.clone());
    assert_eq!(double.call(&x).and_then(|y| y.to_vec::<f32>()), expected);
    assert_eq!((counter.count("aten::exp"), counter.count("aten::add.Tensor")), (1, 1));
}
