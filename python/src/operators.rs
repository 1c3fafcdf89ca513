//! The operators by name, made from the registered schemas: which overload a call means, and the call.
//!
//! No name of an operator is listed here. A name has the overloads of its schemas. A call takes the first overload that
//! its arguments fit exactly, and if there is none, the first that they fit after conversion.

use crate::errors::{OrRaise, type_error};
use crate::names::{dtype_of, no_dtype};
use crate::places::at_caller;
use crate::tensor::PyTensor;
use crate::values::{Fit, integer_of, object_of, type_text, value_of};
use opfuse::Result;
use opfuse::dispatch::{Dispatcher, Operator, Parameter, Schema, Stack, Type, Value};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple};
use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

/// Calls whose tensors have no more elements than this keep the GIL: to release it would take as long as the kernel.
const SHORT_CALL: usize = 2048;

/// Names of NumPy and PyTorch for parameters of the schemas.
const ALIASES: [(&str, &[&str]); 4] =
    [("self", &["input", "x", "a"]), ("other", &["x2"]), ("dim", &["axis"]), ("keepdim", &["keepdims"])];

/// A name with its overloads.
pub struct Named {
    /// The name without namespace: `add`.
    pub name: String,
    /// Its overloads, in the order in which calls try them.
    pub overloads: Vec<Overload>,
}

/// One schema of a name.
pub struct Overload {
    operator: Operator,
    parameters: Vec<Argument>,
    /// So many parameters can be given by position.
    n_positional: usize,
    /// For each result, the argument that it is.
    returned: Vec<Option<usize>>,
    /// Whether an argument named `out` takes the result.
    has_out: bool,
    /// The class of several results with names.
    results: PyOnceLock<Option<Py<PyAny>>>,
}

struct Argument {
    name: String,
    ty: Type,
    default: Option<Value>,
    kwarg_only: bool,
}

/// The arguments of a call from Python.
pub struct Call<'a, 'py> {
    /// The tensor whose method is called.
    pub receiver: Option<&'a Bound<'py, PyAny>>,
    /// What is given by position.
    pub positional: &'a [Bound<'py, PyAny>],
    /// What is given by name.
    pub named: &'a [(Bound<'py, PyAny>, Bound<'py, PyAny>)],
}

impl<'a, 'py> Call<'a, 'py> {
    /// A call with arguments by position.
    pub fn of(positional: &'a [Bound<'py, PyAny>]) -> Call<'a, 'py> {
        Call { receiver: None, positional, named: &[] }
    }

    fn n_positional(&self) -> usize {
        self.positional.len() + usize::from(self.receiver.is_some())
    }

    #[inline]
    fn at(&self, position: usize) -> &'a Bound<'py, PyAny> {
        match self.receiver {
            Some(receiver) if position == 0 => receiver,
            Some(_) => &self.positional[position - 1],
            None => &self.positional[position],
        }
    }

    fn has_name(&self, name: &str) -> bool {
        self.named.iter().any(|(own, _)| own.extract::<&str>().is_ok_and(|own| own == name))
    }
}

/// Every operator of the `aten` namespace.
pub struct Operators {
    names: Vec<Named>,
    by_name: HashMap<String, usize>,
}

impl Operators {
    /// The operators, which are read from the dispatcher once.
    ///
    /// # Errors
    /// If the built-in operators cannot be registered.
    pub fn get() -> Result<&'static Operators> {
        static OPERATORS: OnceLock<Result<Operators>> = OnceLock::new();
        OPERATORS.get_or_init(Operators::new).as_ref().map_err(Clone::clone)
    }

    fn new() -> Result<Operators> {
        opfuse::dispatch::load()?;
        let dispatcher = Dispatcher::global();
        let mut found: BTreeMap<String, Vec<Overload>> = BTreeMap::new();
        for name in dispatcher.operator_names() {
            let Some(short) = name.name.strip_prefix("aten::") else { continue };
            let operator = dispatcher.find(&name);
            let overload = operator.and_then(|operator| Overload::new(&operator));
            found.entry(short.to_owned()).or_default().extend(overload);
        }
        let mut names = Vec::with_capacity(found.len());
        for (name, mut overloads) in found {
            overloads.sort_by_key(Overload::rank);
            names.push(Named { name, overloads });
        }
        let by_name = names.iter().enumerate().map(|(at, named)| (named.name.clone(), at)).collect();
        Ok(Operators { names, by_name })
    }

    /// All names, sorted.
    pub fn names(&self) -> &[Named] {
        &self.names
    }

    /// The operator of that name.
    pub fn find(&self, name: &str) -> Option<&Named> {
        self.by_name.get(name).map(|&at| &self.names[at])
    }
}

impl Overload {
    fn new(operator: &Operator) -> Option<Overload> {
        let schema = operator.schema()?;
        let argument = |parameter: &Parameter| Argument {
            name: parameter.name.clone(),
            ty: parameter.ty.clone(),
            default: parameter.default.as_ref().and_then(|literal| parameter.ty.literal_value(literal)),
            kwarg_only: parameter.kwarg_only,
        };
        let parameters: Vec<Argument> = schema.arguments.iter().map(argument).collect();
        let n_positional = parameters.iter().filter(|parameter| !parameter.kwarg_only).count();
        let written = |parameter: &Parameter| parameter.alias.clone().filter(|alias| alias.is_write);
        let argument_of = |result: &Parameter| {
            let alias = written(result)?;
            let same = |argument: &Parameter| written(argument).is_some_and(|own| own.before == alias.before);
            schema.arguments.iter().position(same)
        };
        Some(Overload {
            n_positional,
            returned: schema.returns.iter().map(argument_of).collect(),
            has_out: schema.arguments.iter().any(|argument| argument.kwarg_only && written(argument).is_some()),
            results: PyOnceLock::new(),
            operator: operator.clone(),
            parameters,
        })
    }

    /// The declaration.
    pub fn schema(&self) -> Option<&Schema> {
        self.operator.schema()
    }

    /// The name of the overload.
    pub fn overload_name(&self) -> &str {
        &self.operator.name().overload
    }

    /// Whether a tensor named `self` comes first, so that it is a method.
    pub fn is_method(&self) -> bool {
        self.parameters.first().is_some_and(|first| first.name == "self" && first.ty == Type::Tensor)
    }

    /// Overloads without a name are tried first, then those that take tensors, and last those with `out`.
    fn rank(&self) -> (bool, bool, usize, String) {
        let overload = &self.operator.name().overload;
        let n_tensors = self.parameters.iter().filter(|parameter| parameter.ty == Type::Tensor).count();
        (self.has_out, !overload.is_empty(), usize::MAX - n_tensors, overload.clone())
    }

    /// Puts the arguments on `stack`, in the order of the schema. Returns whether they fit.
    ///
    /// A stack has its first values inside it, so it is not returned: moving it would cost more than the binding.
    fn bind(&self, call: &Call<'_, '_>, fit: Fit, stack: &mut Stack) -> PyResult<bool> {
        let given = call.n_positional();
        let spread = self.spread_from(call);
        if given > self.n_positional && spread.is_none() || self.has_out && !call.has_name("out") && !self.is_full(call)
        {
            return Ok(false);
        }
        let mut n_named = 0;
        for (position, parameter) in self.parameters.iter().enumerate() {
            let value = if spread == Some(position) {
                let Type::List(element, _) = &parameter.ty else { return Ok(false) };
                let rest = (position..given).map(|at| value_of(call.at(at), element, fit));
                let rest = rest.collect::<PyResult<Option<Vec<Value>>>>()?;
                rest.and_then(|values| Value::list_of(element, values))
            } else if position < given && !parameter.kwarg_only {
                value_of(call.at(position), &parameter.ty, fit)?
            } else if let Some((_, object)) = self.named(call, parameter) {
                n_named += 1;
                value_of(object, &parameter.ty, fit)?
            } else {
                parameter.default.clone()
            };
            match value {
                Some(value) => stack.push(value),
                None => return Ok(false),
            }
        }
        Ok(n_named == call.named.len())
    }

    /// Whether a call gives the written arguments by name, whatever they are called.
    fn is_full(&self, call: &Call<'_, '_>) -> bool {
        let mut last = self.parameters.iter().filter(|parameter| parameter.kwarg_only && parameter.default.is_none());
        last.all(|parameter| call.has_name(&parameter.name))
    }

    fn named<'a, 'py>(
        &self,
        call: &Call<'a, 'py>,
        parameter: &Argument,
    ) -> Option<&'a (Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let named =
            |own: &str| call.named.iter().find(|(name, _)| name.extract::<&str>().is_ok_and(|name| name == own));
        named(&parameter.name).or_else(|| {
            let aliases = ALIASES.iter().find(|(name, _)| *name == parameter.name)?.1;
            // A name that another parameter has is not an alias.
            let free = |alias: &&&str| !self.parameters.iter().any(|other| other.name == **alias);
            aliases.iter().filter(free).find_map(|alias| named(alias))
        })
    }

    /// The position of a list whose items are given one by one: `x.reshape(2, 3)`, `zeros(2, 3)`.
    fn spread_from(&self, call: &Call<'_, '_>) -> Option<usize> {
        let last = self.n_positional.checked_sub(1)?;
        let Type::List(element, None) = &self.parameters[last].ty else { return None };
        if call.n_positional() <= last {
            return None;
        }
        let first = call.at(last);
        let is_spread = match **element {
            Type::Int | Type::SymInt => {
                let is_alone = last == usize::from(call.receiver.is_some() || self.is_method());
                let is_size = || integer_of(first, Fit::Converted).is_ok_and(|number| number.is_some());
                is_alone && (first.is_instance_of::<PyInt>() || is_size())
            }
            // Tensors that are given one by one: `einsum("ij,jk", x, y)`.
            Type::Tensor => first.is_instance_of::<PyTensor>(),
            _ => false,
        };
        is_spread.then_some(last)
    }

    /// Calls the operator. `None` if the arguments do not fit.
    fn call<'py>(&self, py: Python<'py>, call: &Call<'_, 'py>, fit: Fit) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut stack = Stack::new();
        if !self.bind(call, fit, &mut stack)? {
            return Ok(None);
        }
        self.run(py, &mut stack)?;
        let given = |argument: usize| match argument < call.n_positional() && argument < self.n_positional {
            true => Some(call.at(argument).clone()),
            false => self.named(call, &self.parameters[argument]).map(|(_, object)| object.clone()),
        };
        self.results(py, &mut stack, given).map(Some)
    }

    fn run(&self, py: Python<'_>, stack: &mut Stack) -> PyResult<()> {
        let result = at_caller(py, || match is_short(stack) {
            true => self.operator.call_boxed(stack),
            false => py.detach(|| self.operator.call_boxed(stack)),
        });
        result.or_raise(py)
    }

    /// The object of the results. An argument that was written to is returned as it was given.
    fn results<'py>(
        &self,
        py: Python<'py>,
        stack: &mut Stack,
        given: impl Fn(usize) -> Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = |at: usize, value: Value| match self.returned.get(at).copied().flatten().and_then(&given) {
            Some(argument) => Ok(argument),
            None => object_of(py, value),
        };
        if stack.len() == 1
            && let Some(value) = stack.pop()
        {
            return object(0, value);
        }
        let objects = stack.drain(..).enumerate().map(|(at, value)| object(at, value)).collect::<PyResult<Vec<_>>>();
        let objects = PyTuple::new(py, objects?)?;
        if objects.is_empty() {
            return Ok(py.None().into_bound(py));
        }
        match self.result_class(py)? {
            Some(class) => class.call1(objects),
            None => Ok(objects.into_any()),
        }
    }

    /// The class of the results, if they have names: a named tuple.
    fn result_class<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let class = self.results.get_or_try_init(py, || {
            let names: Vec<&str> = self
                .schema()
                .map_or(Vec::new(), |schema| schema.returns.iter().map(|result| result.name.as_str()).collect());
            if names.iter().any(|name| name.is_empty()) || self.returned.iter().any(Option::is_some) {
                return Ok::<_, PyErr>(None);
            }
            let name = self.operator.name().name.trim_start_matches("aten::").trim_start_matches('_').to_owned();
            let make = py.import("collections")?.getattr("namedtuple")?;
            Ok(Some(make.call1((format!("{name}_result"), names))?.unbind()))
        })?;
        Ok(class.as_ref().map(|class| class.bind(py).clone()))
    }
}

/// Whether a call is too short for other threads to profit from the GIL meanwhile.
fn is_short(stack: &Stack) -> bool {
    let mut count = 0usize;
    for value in stack {
        match value {
            Value::Tensor(tensor) => count = count.saturating_add(tensor.numel().max(1)),
            Value::TensorList(_) | Value::OptionalTensorList(_) => return false,
            // Sizes, which may be those of a large result.
            Value::IntList(sizes) => {
                let most = sizes.iter().map(|&size| size.unsigned_abs() as usize).max();
                count = count.saturating_add(most.unwrap_or(0));
            }
            _ => {}
        }
    }
    (1..=SHORT_CALL).contains(&count)
}

impl Named {
    /// Calls the operator.
    ///
    /// # Errors
    /// If the arguments fit no overload, or if the call fails.
    pub fn call<'py>(&self, py: Python<'py>, call: &Call<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        for fit in [Fit::Exact, Fit::Converted] {
            for overload in &self.overloads {
                if let Some(result) = overload.call(py, call, fit)? {
                    return Ok(result);
                }
            }
        }
        Err(self.refused(py, call))
    }

    /// The error of a call that fits no overload. It says what was given, and what can be.
    fn refused(&self, py: Python<'_>, call: &Call<'_, '_>) -> PyErr {
        if let Some(unknown) = call.named.iter().find_map(|(name, object)| {
            let is_dtype = name.extract::<&str>().is_ok_and(|name| name == "dtype");
            (is_dtype && !object.is_none() && dtype_of(object).ok()?.is_none()).then_some(object)
        }) {
            let text = no_dtype(unknown).value(py).to_string();
            return type_error(py, format!("{}: {text}", self.name));
        }
        let class = |object: &Bound<'_, PyAny>| {
            object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
        };
        let positional = (0..call.n_positional()).map(|at| class(call.at(at)));
        let named = call.named.iter().map(|(name, object)| format!("{name}: {}", class(object)));
        let given: Vec<String> = positional.chain(named).collect();
        let taken: Vec<String> =
            self.overloads.iter().map(|overload| format!("  {}", overload.signature(&self.name))).collect();
        let mut text =
            format!("{}: no form takes ({}). It can be called as\n{}", self.name, given.join(", "), taken.join("\n"));
        let arrays = (0..call.n_positional()).any(|at| {
            call.at(at).hasattr("__array_interface__").unwrap_or(false) && !call.at(at).is_instance_of::<PyTensor>()
        });
        if arrays {
            text.push_str("\nWrap arrays of other libraries with opfuse.asarray, which does not copy them.");
        }
        type_error(py, text)
    }

    /// The text of `help()`: the forms of the operator.
    pub fn doc(&self) -> String {
        let forms: Vec<String> = self.overloads.iter().map(|overload| overload.signature(&self.name)).collect();
        let schemas = self.overloads.iter().filter_map(Overload::schema);
        let declared: Vec<String> = schemas.map(|schema| format!("    {schema}")).collect();
        let about = match self.name.ends_with('_') && !self.name.ends_with("__") {
            true => "Writes its result to the first argument, and returns that.",
            false => "An operator of ATen, with PyTorch's meaning.",
        };
        format!("{}\n\n{about}\n\nDeclared as::\n\n{}", forms.join("\n"), declared.join("\n"))
    }
}

impl Overload {
    /// The form of a call, in Python's notation.
    pub fn signature(&self, name: &str) -> String {
        let mut parts = Vec::new();
        for (at, parameter) in self.parameters.iter().enumerate() {
            if parameter.kwarg_only && (at == 0 || !self.parameters[at - 1].kwarg_only) {
                parts.push("*".to_owned());
            }
            let default = self.schema().and_then(|schema| schema.arguments[at].default.as_ref());
            let default = default.map_or(String::new(), |literal| format!(" = {literal}"));
            parts.push(format!("{}: {}{default}", parameter.name, type_text(&parameter.ty)));
        }
        let results: Vec<String> = self
            .schema()
            .map_or(Vec::new(), |schema| schema.returns.iter().map(|result| type_text(&result.ty)).collect());
        let results = match &results[..] {
            [] => "None".to_owned(),
            [one] => one.clone(),
            several => format!("tuple[{}]", several.join(", ")),
        };
        format!("{name}({}) -> {results}", parts.join(", "))
    }
}

/// Calls the operator of that name with arguments by position.
///
/// # Errors
/// If there is no such operator, or if the call fails.
pub fn call_by_name<'py>(py: Python<'py>, name: &str, arguments: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
    let operators = Operators::get().or_raise(py)?;
    let named = operators.find(name).ok_or_else(|| type_error(py, format!("there is no operator {name}")))?;
    named.call(py, &Call::of(arguments))
}

/// One overload of an operator, for callers that know which they mean.
#[pyclass(frozen, name = "_Operator", module = "opfuse")]
pub struct PyOperator {
    named: &'static Named,
    overload: &'static Overload,
}

#[pymethods]
impl PyOperator {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let positional: Vec<_> = args.iter().collect();
        let named: Vec<_> = kwargs.map_or_else(Vec::new, |kwargs| kwargs.iter().collect());
        let call = Call { receiver: None, positional: &positional, named: &named };
        for fit in [Fit::Exact, Fit::Converted] {
            if let Some(result) = self.overload.call(py, &call, fit)? {
                return Ok(result);
            }
        }
        Err(self.named.refused(py, &call))
    }

    /// The names of the parameters, in the order of the schema.
    #[getter]
    fn parameters(&self) -> Vec<&'static str> {
        self.overload.parameters.iter().map(|parameter| parameter.name.as_str()).collect()
    }

    fn __repr__(&self) -> String {
        self.overload.signature(&self.named.name)
    }
}

/// The overload of that name, `""` for the one without, or `None`.
#[pyfunction]
pub fn _operator(py: Python<'_>, name: &str, overload: &str) -> PyResult<Option<PyOperator>> {
    let Some(named) = Operators::get().or_raise(py)?.find(name) else { return Ok(None) };
    let found = named.overloads.iter().find(|own| own.overload_name() == overload);
    Ok(found.map(|overload| PyOperator { named, overload }))
}

/// The registered schemas: a list of (name, overload, declaration, arguments, results). The stub file is made of it.
#[pyfunction]
pub fn _schemas(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = PyList::empty(py);
    for named in Operators::get().or_raise(py)?.names() {
        for overload in &named.overloads {
            let Some(schema) = overload.schema() else { continue };
            let row = PyDict::new(py);
            row.set_item("name", &named.name)?;
            row.set_item("overload", overload.overload_name())?;
            row.set_item("declaration", schema.to_string())?;
            row.set_item("is_method", overload.is_method())?;
            let argument = |parameter: &Parameter| {
                let default = parameter.default.as_ref().map(ToString::to_string);
                (parameter.name.clone(), type_text(&parameter.ty), default, parameter.kwarg_only)
            };
            row.set_item("arguments", schema.arguments.iter().map(argument).collect::<Vec<_>>())?;
            let result = |parameter: &Parameter| (parameter.name.clone(), type_text(&parameter.ty));
            row.set_item("results", schema.returns.iter().map(result).collect::<Vec<_>>())?;
            rows.append(row)?;
        }
    }
    Ok(rows)
}
