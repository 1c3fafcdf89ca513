//! A method calls the operator that it is named after: a kernel from outside, a mode and the keys of a wrapper see it.
//!
//! Kernels are registered for all operators of that name, by turns as backend kernels and as decompositions. They note
//! that they ran and fail, so that nothing else can be mistaken for them.

mod forms;
mod table;

use crate::alone::has_run_alone;
use forms::{FACTORY_FORMS, Form, OF_ONE, OF_TWO, ON_ONE, OTHER_FORMS};
use opfuse::dispatch::modes::{Mode, Next, push_mode};
use opfuse::dispatch::{DispatchKey, Dispatcher, Kernel, KeySet, Library, Operator, Stack, Value};
use opfuse::profile::Kind;
use opfuse::{DType, Device, Error, Result, Tensor, profile};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use table::{FACTORIES, Method, OTHERS, REGULAR, UNARY, Wrap, call_out};

/// The operators that were seen, without namespace and overload.
type Seen = Arc<Mutex<Vec<String>>>;

fn base(operator: &Operator) -> String {
    operator.name().name.trim_start_matches("aten::").to_string()
}

fn note(seen: &Seen, operator: &Operator) -> Error {
    seen.lock().expect("no panic inside").push(base(operator));
    Error::argument(base(operator), "the kernel from outside ran")
}

fn noting(seen: &Seen) -> Kernel {
    let seen = Arc::clone(seen);
    Kernel::boxed(move |operator: &Operator, _: KeySet, _: &mut Stack| Err(note(&seen, operator)))
}

/// The methods of operators that are found by name, with a tensor argument.
fn forms() -> impl Iterator<Item = &'static Form> {
    [ON_ONE, OF_ONE, OF_TWO, OTHER_FORMS].into_iter().flatten()
}

fn methods() -> impl Iterator<Item = &'static Method> {
    REGULAR.iter().chain(OTHERS).chain(forms().map(|form| &form.method))
}

/// Methods without a tensor argument.
fn factories() -> impl Iterator<Item = &'static Method> {
    FACTORIES.iter().chain(FACTORY_FORMS.iter().map(|form| &form.method))
}

/// What failed, as one text.
fn assert_none(failures: &[String]) {
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

/// Registers kernels for all overloads of an operator.
fn overridden(operator: &str, keys: &[DispatchKey], seen: &Seen) -> Library {
    let mut library = Library::fragment("aten").expect("aten is a name");
    for name in Dispatcher::global().operator_names() {
        if name.name.strip_prefix("aten::") == Some(operator) {
            for &key in keys {
                library.impl_for(&name.to_string(), key, noting(seen)).expect("boxed kernels fit");
            }
        }
    }
    library
}

fn is_composite(operator: &str) -> bool {
    let dispatcher = Dispatcher::global();
    let mut names = dispatcher.operator_names().into_iter();
    names.any(|name| {
        name.name.strip_prefix("aten::") == Some(operator)
            && dispatcher.find(&name).is_some_and(|op| op.has_kernel_for(DispatchKey::CompositeImplicitAutograd))
    })
}

#[test]
fn a_kernel_from_outside_sees_every_method_that_is_named_after_its_operator() {
    if has_run_alone() {
        return;
    }
    let as_it_is: Wrap<'_> = &|tensor| tensor;
    let backends = [DispatchKey::CPU, DispatchKey::CompositeExplicitAutograd];
    let mut failures = Vec::new();
    for method in methods().chain(factories()) {
        let mut keys: Vec<&[DispatchKey]> = vec![&backends];
        if is_composite(method.operator) {
            keys.push(&[DispatchKey::CompositeImplicitAutograd, DispatchKey::CPU]);
        }
        for keys in keys {
            let seen = Seen::default();
            let library = overridden(method.operator, keys, &seen);
            let result = (method.call)(as_it_is);
            drop(library);
            let seen = seen.lock().expect("no panic inside").clone();
            if seen.first().is_none_or(|first| first != method.operator) || result.is_ok() {
                failures.push(format!("{} does not call aten::{} ({keys:?})", method.name, method.operator));
            }
        }
        if let Err(error) = (method.call)(as_it_is)
            && error.to_string().contains("from outside")
        {
            failures.push(format!("{} still meets a kernel that is gone: {error}", method.name));
        }
    }
    assert_none(&failures);
}

#[test]
fn a_kernel_from_outside_sees_the_forms_that_write_to_out() {
    if has_run_alone() {
        return;
    }
    let mut failures = Vec::new();
    for operator in UNARY {
        let seen = Seen::default();
        let _library = overridden(operator, &[DispatchKey::CPU], &seen);
        let result = call_out(operator);
        if seen.lock().expect("no panic inside").is_empty() {
            failures.push(format!("{operator}.out does not call {operator}: {result:?}"));
        }
    }
    assert_none(&failures);
}

#[test]
fn a_kernel_from_outside_sees_in_place_calls_of_its_functional_form() {
    if has_run_alone() {
        return;
    }
    let as_it_is: Wrap<'_> = &|tensor| tensor;
    let mut failures = Vec::new();
    for method in REGULAR.iter().filter(|method| method.name.ends_with('_')) {
        for key in [DispatchKey::CPU, DispatchKey::AutogradCPU] {
            let seen = Seen::default();
            let _library = overridden(method.name.trim_end_matches('_'), &[key], &seen);
            // A second call is one that was seen before.
            for _ in 0..2 {
                let result = (method.call)(as_it_is);
                if result.is_ok() || seen.lock().expect("no panic inside").is_empty() {
                    failures.push(format!("{} passes by a kernel for {key}", method.name));
                }
            }
        }
    }
    assert_none(&failures);
}

struct Noting(Seen);

impl Mode for Noting {
    fn call(&self, operator: &Operator, _: &mut Stack, _: Next<'_>) -> Result<()> {
        Err(note(&self.0, operator))
    }
}

#[test]
fn a_mode_sees_every_method_under_the_name_of_its_operator() {
    let mut failures = Vec::new();
    for method in methods().chain(factories()) {
        let seen = Seen::default();
        let result = {
            let _mode = push_mode(Arc::new(Noting(Arc::clone(&seen))));
            (method.call)(&|tensor| tensor)
        };
        let seen = seen.lock().expect("no panic inside").clone();
        if seen != [method.operator] || result.is_ok() {
            failures.push(format!("{} is seen as {seen:?}, not as {}", method.name, method.operator));
        }
    }
    assert_none(&failures);
}

/// The operators that each method calls on wrappers with this key. The first one fails.
fn seen_by_wrappers(key: DispatchKey) -> Vec<(&'static Method, Vec<String>, Result<()>)> {
    let seen = Seen::default();
    let mut library = Library::impl_block("_", key).expect("all namespaces");
    library.fallback(noting(&seen)).expect("the key has none");
    let wrap = |tensor: Tensor| {
        let keys = KeySet::of(key) | KeySet::of(DispatchKey::CPU);
        Tensor::wrapper(&tensor.ty(), Device::CPU, keys, Arc::new(())).expect("the sizes are small")
    };
    let calls = |method: &'static Method| {
        let result = (method.call)(&wrap);
        (method, std::mem::take(&mut *seen.lock().expect("no panic inside")), result)
    };
    methods().map(calls).collect()
}

#[test]
fn a_wrapper_above_autograd_sees_every_method_under_the_name_of_its_operator() {
    if has_run_alone() {
        return;
    }
    let mut failures = Vec::new();
    for (method, seen, result) in seen_by_wrappers(DispatchKey::FuncTorchGradWrapper) {
        if seen != [method.operator] || result.is_ok() {
            failures.push(format!("{} is seen as {seen:?}, not as {}: {result:?}", method.name, method.operator));
        }
    }
    assert_none(&failures);
}

/// Beside a tensor with an Autograd key, whose kernel is the decomposition, it sees the parts.
#[test]
fn a_wrapper_below_autograd_sees_every_method_or_its_parts() {
    if has_run_alone() {
        return;
    }
    let mut failures = Vec::new();
    for (method, seen, result) in seen_by_wrappers(DispatchKey::Python) {
        if seen.len() != 1 || result.is_ok() {
            failures.push(format!("{} is seen as {seen:?}: {result:?}", method.name));
        }
    }
    assert_none(&failures);
}

#[test]
fn every_method_stands_where_the_program_calls_it() {
    let mut failures = Vec::new();
    for method in methods().chain(factories()) {
        // Some calls fail, because numbers do not fit; their place is noted before.
        let (_, profile) = profile(|| (method.call)(&|tensor| tensor)).expect("this thread is not profiled yet");
        for row in profile.of_kind(Kind::Operator) {
            let file = row.place.as_ref().map_or("", |place| &place.file);
            if !["methods/table.rs", "methods/forms.rs"].iter().any(|table| file.ends_with(table)) {
                failures.push(format!("{}: {} stands at {:?}", method.name, row.name, row.place));
            }
        }
    }
    assert_none(&failures);
}

/// Names of methods in the sources: `pub fn name`, and `name name_` in the macros that make both.
fn names_in_sources() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in ["src/ops", "src/autograd", "src/tensor"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for file in fs::read_dir(folder).expect("a folder of this crate").filter_map(|entry| entry.ok()) {
            let Ok(text) = fs::read_to_string(file.path()) else { continue };
            for line in text.lines() {
                let word = |text: &str| text.split(['(', '<', ' ']).next().unwrap_or_default().to_string();
                if let Some(rest) = line.strip_prefix("    pub fn ").or(line.strip_prefix("pub fn ")) {
                    names.insert(word(rest));
                } else if let Some((first, second)) = line.trim().split_once(' ')
                    && word(second) == format!("{first}_")
                {
                    names.extend([first.to_string(), word(second)]);
                }
            }
        }
    }
    names
}

#[test]
fn the_table_has_every_method_that_is_named_after_an_operator() {
    let operators: BTreeSet<String> = Dispatcher::global()
        .operator_names()
        .iter()
        .filter_map(|name| name.name.strip_prefix("aten::").map(str::to_string))
        .collect();
    let known: BTreeSet<&str> = methods().chain(factories()).map(|method| method.name).collect();
    let names = names_in_sources();
    assert!(names.len() > 200, "only {} names were found", names.len());
    let missing: Vec<&String> =
        names.iter().filter(|name| operators.contains(*name) && !known.contains(&***name)).collect();
    assert!(missing.is_empty(), "{missing:?} are in no table of tests/process/methods");
}

/// Operators of this interface that a Rust program would look for by name have a method, except those listed here.
#[test]
fn operators_without_a_method_are_those_that_are_listed() {
    let operators: BTreeSet<String> = Dispatcher::global()
        .operator_names()
        .iter()
        .filter_map(|name| name.name.strip_prefix("aten::").map(str::to_string))
        .filter(|name| !name.starts_with('_'))
        .collect();
    let called: BTreeSet<&str> = methods().chain(factories()).map(|method| method.operator).collect();
    let names = names_in_sources();
    let missing: Vec<&String> =
        operators.iter().filter(|name| !called.contains(&***name) && !names.contains(*name)).collect();
    // They are listed by reason.
    let lines = include_str!("without.txt").lines();
    let mut listed: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    listed.sort_unstable();
    assert_eq!(missing, listed);
}

/// Dtype, sizes, strides and bits of the elements.
type Shown = (DType, Vec<usize>, Vec<usize>, Vec<u64>);

/// What is equal where the tensors are, bit by bit. Contents of a tensor that was only allocated are left out.
fn shown(operator: &str, tensor: &Tensor) -> Result<Shown> {
    let (dtype, sizes, strides) = (tensor.dtype(), tensor.sizes().to_vec(), tensor.strides().to_vec());
    let numbers = match operator.contains("empty") {
        true => Vec::new(),
        false => {
            let plain = if dtype.is_complex() { tensor.view_as_real()? } else { tensor.clone() };
            plain.to_dtype(DType::F64)?.to_vec::<f64>()?
        }
    };
    Ok((dtype, sizes, strides, numbers.into_iter().map(f64::to_bits).collect()))
}

/// The tensors that the dispatcher gives for the arguments of a form.
fn dispatched(form: &Form) -> Result<Vec<Tensor>> {
    let dot = if form.overload.is_empty() { "" } else { "." };
    let operator = Dispatcher::global().lookup(&format!("aten::{}{dot}{}", form.method.operator, form.overload))?;
    let parameters = operator.schema().map_or(&[][..], |schema| &schema.arguments);
    let mut positional = Vec::new();
    let mut named = Vec::new();
    for (parameter, value) in parameters.iter().zip((form.arguments)()) {
        match parameter.kwarg_only {
            true => named.push((&*parameter.name, value)),
            false => positional.push(value),
        }
    }
    let mut results = operator.invoke(positional, named)?;
    Ok(results.iter_mut().flat_map(Value::tensors_mut).map(|tensor| tensor.clone()).collect())
}

#[test]
fn a_form_gives_what_the_dispatcher_gives() {
    let mut failures = Vec::new();
    for form in forms().chain(FACTORY_FORMS) {
        let Method { name, operator, .. } = form.method;
        let shown = |tensors: Vec<Tensor>| tensors.iter().map(|tensor| shown(operator, tensor)).collect();
        let ours: Result<Vec<_>> = (form.result)().and_then(shown);
        let theirs: Result<Vec<_>> = dispatched(form).and_then(shown);
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) if ours == theirs && !ours.is_empty() => {}
            (ours, theirs) => failures.push(format!("{name} gives {ours:?}, {operator} {theirs:?}")),
        }
    }
    assert_none(&failures);
}
