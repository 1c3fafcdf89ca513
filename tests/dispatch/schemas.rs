//! Schemas: parsing, printing, checks (lines 072 to 082).

use crate::{assert_error, fragment, operator, plain, tensor};
use opfuse::dispatch::{AliasAnalysis, DispatchKey as K, Dispatcher, Kernel, Schema, Value};
use opfuse::{Error, Result, Tensor};

#[test]
fn n072_kernels_must_fit_the_schema() {
    let dispatcher = Dispatcher::new();
    let mut library = fragment(&dispatcher);
    library.def("two(Tensor x) -> (Tensor, Tensor)").expect("a definition");
    let one = |x: &Tensor| Ok(x.clone());
    assert_error(library.impl_for("two", K::CPU, one).map(|_| ()), &["The number of returns is different. 2 vs 1"]);
    library.def("one(Tensor x) -> Tensor").expect("a definition");
    let returned = |x: &Tensor, text: &str, result: Result<()>| {
        let _ = x;
        assert_error(result, &[&format!("Type mismatch in argument 1: Tensor vs {text}.")]);
    };
    let x = tensor();
    returned(&x, "int", library.impl_for("one", K::CPU, |_: i64| -> Result<Tensor> { unreachable!() }).map(|_| ()));
    let optional = |_: Option<&Tensor>| -> Result<Tensor> { unreachable!("refused") };
    returned(&x, "Tensor?", library.impl_for("one", K::CPU, optional).map(|_| ()));
    let list = |_: &[Tensor]| -> Result<Tensor> { unreachable!("refused") };
    returned(&x, "Tensor[]", library.impl_for("one", K::CPU, list).map(|_| ()));
    library.impl_for("one", K::CUDA, |_: &Tensor, _: i64| Ok(tensor())).map(|_| ()).expect_err("one too many");
}

#[test]
fn n073_names_play_no_role() {
    let dispatcher = Dispatcher::new();
    let mut library = fragment(&dispatcher);
    library.def("op(Tensor(a!) self, SymInt[2] size, int n=3) -> (Tensor(a!) out)").expect("a definition");
    let kernel = |x: &Tensor, _: &[i64], _: i64| Ok(x.clone());
    library.impl_for("op", K::CPU, kernel).expect("types agree");
}

#[test]
fn n075_unknown_type() {
    let text = "op(Tensor x, Foo y) -> Tensor";
    match text.parse::<Schema>() {
        Err(Error::Parse { message, at, .. }) => {
            assert!(message.contains("unknown type specifier"), "{message}");
            assert_eq!(at, text.find("Foo").expect("it is there"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn n076_overload_names() {
    assert_error("foo.default(Tensor x) -> Tensor".parse::<Schema>(), &["'default' is not a legal overload name"]);
    assert_error("foo.__x(Tensor x) -> Tensor".parse::<Schema>(), &["'__x' is not a legal overload name"]);
    assert_error("foo.(Tensor x) -> Tensor".parse::<Schema>(), &["expected an overload name at byte 4"]);
}

#[test]
fn n078_schemas_round_trip() {
    let texts = [
        "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
        "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        "aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        "aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]",
        "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
        "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=[0, 1]) \
         -> Tensor",
        "aten::convolution_backward(Tensor g, SymInt[]? bias_sizes, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
        "aten::mse_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor",
        "aten::empty(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, \
         bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        "aten::normal_(Tensor(a!) self, float mean=0.0, float std=1e-5, *, Generator? generator=None) -> Tensor(a!)",
        "aten::div.Mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
        "aten::gelu(Tensor self, *, str approximate=\"none\") -> Tensor",
        "aten::clone(Tensor self, *, MemoryFormat memory_format=contiguous_format, ScalarType t=float) -> Tensor",
        "aten::masks(bool[3] mask=[True, True, False], float[] scales=[1.0, -2.5], Scalar? min=None) -> ()",
        "aten::merge(Tensor(a|b) self, Device device=\"cpu\", Layout layout=strided, int n=-7) -> Tensor[]",
        "aten::norm(Tensor self, int[1] dim=[-2, -1], bool keepdim=False) -> (Tensor out)",
        "aten::quoted(str x=\"a\\\"b\\\\c\") -> Tensor",
    ];
    for text in texts {
        let schema: Schema = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let printed = schema.to_string();
        assert_eq!(printed.parse::<Schema>().as_ref(), Ok(&schema), "{printed}");
        assert_eq!(printed, text);
    }
    let blanks: Schema = " foo ( Tensor( a ! )?x ,* , int[ ]  y = [ 1,2 ] )->( Tensor )".parse().expect("blanks");
    assert_eq!(blanks.to_string(), "foo(Tensor(a!)? x, *, int[] y=[1, 2]) -> Tensor");
}

#[test]
fn n078_malformed_schemas_are_refused() {
    let cases = [
        ("", "expected an operator name"),
        ("foo", "expected '('"),
        ("foo(Tensor x", "expected ','"),
        ("foo(Tensor x) Tensor", "expected '->'"),
        ("foo(Tensor x) -> Tensor y", "expected the end"),
        ("foo(Tensor) -> Tensor", "expected an argument name"),
        ("foo(Tensor x, Tensor x) -> Tensor", "declared twice"),
        ("foo(int x=1.5) -> Tensor", "default 1.5 does not fit type int"),
        ("foo(bool[2] x=[True]) -> Tensor", "does not fit type bool[2]"),
        ("foo(int x=1, int y) -> Tensor", "without a default follows"),
        ("foo(*, int x, *, int y) -> Tensor", "a second '*'"),
        ("foo(str x=\"a) -> Tensor", "does not end"),
        ("foo(Tensor(a! x) -> Tensor", "expected ')'"),
        ("foo(int x=1e999) -> Tensor", "is not a number"),
        ("foo(Tensor é) -> Tensor", "expected an argument name"),
    ];
    for (text, message) in cases {
        assert_error(text.parse::<Schema>(), &[message]);
    }
}

#[test]
fn n079_alias_analysis() {
    let dispatcher = Dispatcher::new();
    let mut library = fragment(&dispatcher);
    library.def("a(Tensor x) -> Tensor").expect("a definition");
    library.def_inferred("b", |x: &Tensor| Ok(x.clone())).expect("a definition");
    library.def_with("c(Tensor x) -> Tensor", AliasAnalysis::PureFunction).expect("a definition");
    let kind = |name| {
        let op = dispatcher.lookup(name).expect("defined");
        op.schema().expect("defined").alias_analysis
    };
    assert_eq!(kind("test::a"), AliasAnalysis::FromSchema);
    assert_eq!(kind("test::b"), AliasAnalysis::Conservative);
    assert_eq!(kind("test::c"), AliasAnalysis::PureFunction);
    let inferred = dispatcher.lookup("test::b").expect("defined").schema().expect("defined").to_string();
    assert_eq!(inferred, "test::b(Tensor _0) -> Tensor");
}

#[test]
fn n081_typed_handles_know_their_signature() {
    let (dispatcher, _fallbacks) = plain();
    let (mut library, op) = operator(&dispatcher, &[]);
    library.impl_for("op", K::CPU, |_: &Tensor| Ok(5_i64)).expect("a kernel");
    let typed = op.typed::<(&Tensor,), i64>().expect("the kernel's signature");
    assert_eq!(typed.call((&tensor(),)), Ok(5));
    let other = op.typed::<(Option<&Tensor>,), i64>();
    assert_error(
        other,
        &["wrong signature", "correct signature: fn(&", "accessed/called as: fn(core::option::Option<"],
    );
}

#[test]
fn n082_arguments_are_checked_against_the_schema() {
    let (dispatcher, _fallbacks) = plain();
    let mut library = fragment(&dispatcher);
    let declaration = "test::add(Tensor x, int n, *, float scale=2.0) -> float";
    library.def(declaration).expect("a definition");
    library.impl_for("add", K::CPU, |_: &Tensor, n: i64, scale: f64| Ok(n as f64 * scale)).expect("a kernel");
    let op = dispatcher.lookup("test::add").expect("defined");
    let x = || Value::Tensor(tensor());
    let results = op.invoke(vec![x(), Value::Int(3)], vec![]).expect("the default is filled in");
    assert!(matches!(results.as_slice(), [Value::Float(number)] if *number == 6.0), "{results:?}");
    let results = op.invoke(vec![x()], vec![("scale", Value::Int(5)), ("n", Value::Int(3))]).expect("by name");
    assert!(matches!(results.as_slice(), [Value::Float(number)] if *number == 15.0), "{results:?}");
    let declared = format!("Declaration: {declaration}");
    let cases = [
        (op.invoke(vec![x(), Value::Int(1), Value::Float(1.0)], vec![]), "at most 2 argument(s) but received 3"),
        (op.invoke(vec![x()], vec![]), "missing value for argument 'n'"),
        (
            op.invoke(vec![x(), x()], vec![]),
            "expected a value of type 'int' for argument 'n' but instead found type 'Tensor'",
        ),
        (op.invoke(vec![x(), Value::Int(1)], vec![("y", Value::None)]), "unknown keyword argument 'y'"),
        (op.invoke(vec![x(), Value::Int(1)], vec![("n", Value::Int(1))]), "both as positional and keyword"),
    ];
    for (result, message) in cases {
        assert_error(result, &["test::add", message, &declared]);
    }
}

#[test]
fn n078_a_sized_list_with_a_longer_default_and_a_named_result_are_callable() {
    let (dispatcher, _fallbacks) = plain();
    let mut library = fragment(&dispatcher);
    library.def("norm(Tensor self, int[1] dim=[-2, -1]) -> (int out)").expect("a definition");
    library.impl_for("norm", K::CPU, |_: &Tensor, dims: &[i64]| Ok(dims.iter().sum::<i64>())).expect("a kernel");
    let op = dispatcher.lookup("test::norm").expect("defined");
    for (dims, sum) in [(None, -3), (Some(Value::Int(5)), 5), (Some(Value::IntList(vec![1, 2, 3].into())), 6)] {
        let dims = dims.map(|dims| ("dim", dims)).into_iter().collect();
        let results = op.invoke(vec![Value::Tensor(tensor())], dims).expect("the arguments fit");
        assert!(matches!(results.as_slice(), [Value::Int(found)] if *found == sum), "{results:?}");
    }
}

#[test]
fn n072_a_mismatch_names_the_kernel_and_both_sites() {
    let dispatcher = Dispatcher::new();
    let mut library = fragment(&dispatcher);
    library.def("odd(Tensor x) -> int").expect("a definition");
    let kernel = Kernel::typed(|_: &Tensor| Ok(1.5f64)).named("one and a half");
    let error = library.impl_for("odd", K::CPU, kernel).map(|_| ()).expect_err("it returns a float").to_string();
    for part in ["operator test::odd", "of the kernel one and a half, registered at", "defined at", "schemas.rs:"] {
        assert!(error.contains(part), "{part:?} is missing in: {error}");
    }
    assert_eq!(error.matches("tests/dispatch/schemas.rs:").count(), 2, "{error}");
}

#[test]
fn lists_that_nest_without_end_are_errors() {
    use opfuse::dispatch::Schema;
    let many = 200_000;
    let ty = format!("f(int{} x) -> int", "[]".repeat(many));
    let open = format!("f(int[] x={}) -> int", "[".repeat(many));
    let closed = format!("f(int[] x={}{}) -> int", "[".repeat(many), "]".repeat(many));
    for text in [ty, open, closed] {
        let error = text.parse::<Schema>().map(|_| ()).expect_err("it nests too deep").to_string();
        assert!(error.contains("nests at most"), "{}", &error[..200.min(error.len())]);
    }
    assert!("f(int[] x=[1, 2]) -> int".parse::<Schema>().is_ok());
}
