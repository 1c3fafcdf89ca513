//! Registrations that come before or between calls: the built-in operators are there before anybody can look, and
//! compiled functions follow.

use crate::alone::has_run_alone;
use opfuse::dispatch::{DispatchKey, Dispatcher, Kernel, KeySet, Library, Operator, Stack, Value};
use opfuse::{Result, Tensor, compile};

fn x() -> Tensor {
    Tensor::from_slice(&[1.0f32, 2.0], &[2]).expect("it is small")
}

fn values(tensor: Result<Tensor>) -> Vec<f32> {
    tensor.and_then(|tensor| tensor.to_vec()).expect("it has values")
}

/// `aten::neg` that adds ten instead, by data alone.
fn add_ten(x: &Tensor) -> Result<Tensor> {
    let values: Vec<f32> = x.to_vec::<f32>()?.iter().map(|value| value + 10.0).collect();
    Tensor::from_slice(&values, x.sizes())
}

fn override_neg() -> Library {
    let mut library = Library::impl_block("aten", DispatchKey::CPU).expect("aten is a name");
    library.impl_("neg", add_ten).expect("the signature is that of the schema");
    library
}

#[test]
fn an_override_before_the_first_call_is_called() {
    if has_run_alone() {
        return;
    }
    let library = override_neg();
    assert_eq!(values(x().neg()), [11.0, 12.0]);
    drop(library);
    assert_eq!(values(x().neg()), [-1.0, -2.0]);
}

#[test]
fn a_fallback_that_came_and_went_before_the_first_call_leaves_nothing() {
    if has_run_alone() {
        return;
    }
    let pass = |_: &Operator, _: KeySet, _: &mut Stack| Ok(());
    let mut library = Library::impl_block("_", DispatchKey::PrivateUse1).expect("all namespaces");
    library.fallback(Kernel::boxed(pass)).expect("the key has none");
    drop(library);
    assert_eq!(values(x().neg()), [-1.0, -2.0]);
}

#[test]
fn a_kernel_for_the_cpu_alone_is_enough_before_the_first_call() {
    if has_run_alone() {
        return;
    }
    let mut library = Library::def_block("own").expect("nobody has it");
    library.def("twice(Tensor x) -> Tensor").expect("it is a schema");
    let kernel = |x: &Tensor| Tensor::from_slice(&[x.numel() as f32], &[1]);
    library.impl_for("twice", DispatchKey::CPU, kernel).expect("the signature fits");
    let twice = Dispatcher::global().lookup("own::twice").expect("it is defined");
    let given = x();
    given.set_requires_grad(true).expect("a leaf");
    for x in [x(), given] {
        assert_eq!(values(twice.call::<(&Tensor,), Tensor>((&x,))), [2.0]);
    }
}

#[test]
fn built_in_operators_are_found_before_the_first_call() {
    if has_run_alone() {
        return;
    }
    let permute = Dispatcher::global().find_schema("aten::permute", "").expect("it is built in");
    let mut stack: Stack = [Value::Tensor(x()), Value::IntList(vec![0].into())].into_iter().collect();
    permute.call_boxed(&mut stack).expect("it is callable");
    assert!(Dispatcher::global().operator_names().len() > 500);
}

#[test]
fn a_compiled_function_follows_kernels_that_come_and_go() {
    if has_run_alone() {
        return;
    }
    let f = compile(|x: &Tensor| (x.neg()? * 3.0)?.exp()?.log());
    let plain = [-3.0, -6.0];
    let own = [33.0, 36.0];
    let close = |found: Vec<f32>, wanted: [f32; 2]| found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4);
    for round in 0..3 {
        for call in 0..3 {
            assert!(close(values(f.call(&x())), plain), "round {round}, call {call} without the kernel");
        }
        assert!(f.explain().eager.is_none(), "round {round}: {}", f.explain());
        let _library = override_neg();
        for call in 0..3 {
            assert!(close(values(f.call(&x())), own), "round {round}, call {call} with the kernel");
        }
        let reasons: Vec<String> = f.breaks().iter().map(|one| one.reason.to_string()).collect();
        assert!(reasons[0].contains("aten::neg has a kernel that was registered from outside"), "{reasons:?}");
    }
}

#[test]
fn a_compiled_training_step_follows_kernels_for_autograd() {
    if has_run_alone() {
        return;
    }
    let step = |x: &Tensor| x.neg()?.square()?.sum([], false);
    let compiled = compile(step);
    let gradient = |compiled: bool, f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let x = x();
        x.set_requires_grad(true).expect("a leaf");
        let loss = f(&x).unwrap_or_else(|error| panic!("compiled {compiled}: {error}"));
        loss.backward().expect("it has a history");
        values(x.grad().ok_or_else(|| panic!("compiled {compiled}: no gradient")))
    };
    let both = || (gradient(false, &step), gradient(true, &|x| compiled.call(x)));
    for _ in 0..2 {
        let (eager, found) = both();
        assert_eq!(found, eager);
        assert_eq!(eager, [2.0, 4.0]);
    }
    let mut library = Library::impl_block("aten", DispatchKey::AutogradCPU).expect("aten is a name");
    // The result has no history of its own, so the gradient flows through a product instead.
    library.impl_("neg", |x: &Tensor| x * 5.0).expect("the signature is that of the schema");
    for _ in 0..3 {
        let (eager, found) = both();
        assert_eq!(found, eager);
        assert_eq!(eager, [50.0, 100.0]);
    }
}

#[test]
fn a_call_without_a_row_ends_the_segment_and_runs() -> Result<()> {
    // A registration makes all compiled functions of a process start again.
    if has_run_alone() {
        return Ok(());
    }
    let mut library = Library::def_block("capture_tests")?;
    library.def("shift_(Tensor(a!) self, Tensor by) -> Tensor(a!)")?;
    let shift = |x: &Tensor, by: &Tensor| -> Result<Tensor> {
        assert!(x.has_data() && by.has_data());
        let by = by.item::<f32>()?;
        let values: Vec<f32> = x.to_vec::<f32>()?.into_iter().map(|value| value + by).collect();
        x.copy_(&Tensor::from_slice(&values, x.sizes())?)?;
        Ok(x.clone())
    };
    library.impl_for("capture_tests::shift_", DispatchKey::CPU, Kernel::typed(shift))?;
    let operator = opfuse::dispatch::Dispatcher::global().find_schema("capture_tests::shift_", "")?;
    let function = |x: &Tensor| {
        let (y, by) = (x.exp()?, x.sum_all()?);
        let view = y.select(0, 0)?;
        let same: Tensor = operator.call((&y, &by))?;
        Ok(vec![same.mul(2.0)?, view.neg()?, y])
    };
    let f = compile(function);
    for call in 0..3 {
        let x = Tensor::from_slice(&[0.1f32, 0.2, 0.3, 0.4, 0.5, call as f32], &[2, 3])?;
        let (found, expected) = (f.call(&x)?, function(&x)?);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.to_vec::<f32>()?, expected.to_vec::<f32>()?);
            assert_eq!(found.strides(), expected.strides());
        }
    }
    assert!(f.breaks().iter().any(|one| one.reason.to_string().contains("shift_")), "{:?}", f.breaks());
    assert_eq!(f.counts().eager, 0);
    Ok(())
}
