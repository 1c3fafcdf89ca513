//! The model: its inputs out of JSON, and its outputs by row.
//!
//! A request is `{"inputs": {"x": [[1, 2], [3, 4]]}}`: for each input of the program an array of rows. An answer is
//! `{"outputs": [[[…], […]]]}`: for each output an array of rows. Numbers come back as they are: a 32-bit float is
//! printed as the 64-bit float of the same value, from which any reader gets the same bits. JSON has no infinities and
//! no NaN; they are `null`.

use opfuse::autograd::no_grad;
use opfuse::exported::{InputInfo, Program};
use opfuse::{DType, Tensor, cat};
use serde_json::{Value, json};

/// A program whose inputs and outputs have one row for each row of a request.
pub struct Model {
    program: Program,
}

/// The inputs of a request, in the order of the program.
pub struct Rows {
    pub tensors: Vec<Tensor>,
    /// Dim 0 of each.
    pub count: usize,
}

/// Why rows have no outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The program refuses the rows.
    Rows(String),
    /// The service cannot answer, whatever the rows are.
    Service(String),
}

/// The outputs of a request, in the order of the program.
pub type Outputs = Vec<Tensor>;

impl Rows {
    /// Whether the rows of two requests can be one batch: rows are not padded, because that would change their bits.
    pub fn fits(&self, other: &Rows) -> bool {
        self.tensors.iter().zip(&other.tensors).all(|(one, other)| one.sizes()[1..] == other.sizes()[1..])
    }
}

impl Model {
    /// Loads a `.pt2` file.
    ///
    /// # Errors
    /// If it cannot be loaded, or if an input has no dim for the rows of a batch.
    pub fn load(path: &str) -> Result<Model, String> {
        let program = Program::load(path).map_err(|error| error.to_string())?;
        let fixed = program.inputs().iter().find(|input| input.sizes().first() != Some(&None));
        if let Some(input) = fixed {
            return Err(format!("input {input} has no symbolic dim 0; export the model with a dynamic batch"));
        }
        match program.inputs().is_empty() {
            true => Err("the program takes no inputs".into()),
            false => Ok(Model { program }),
        }
    }

    /// What is served, for a person.
    pub fn describe(&self) -> String {
        format!("{:?}", self.program)
    }

    /// The rows of a request.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub fn rows(&self, body: &[u8], max_rows: usize) -> Result<Rows, String> {
        let body: Value = serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
        let Some(given) = body.get("inputs").and_then(Value::as_object) else {
            return Err("the body has no object `inputs` with an array for each input".into());
        };
        let inputs = self.program.inputs();
        if let Some(name) = given.keys().find(|name| inputs.iter().all(|input| input.name() != *name)) {
            return Err(format!("input {name:?} is unknown; {}", self.takes()));
        }
        let mut tensors = Vec::with_capacity(inputs.len());
        for input in inputs {
            let value = given.get(input.name());
            let value = value.ok_or_else(|| format!("input {:?} is missing; {}", input.name(), self.takes()))?;
            tensors.push(tensor(input, value)?);
        }
        let count = tensors[0].sizes()[0];
        if let Some(other) = tensors.iter().position(|tensor| tensor.sizes()[0] != count) {
            let (first, name, found) = (inputs[0].name(), inputs[other].name(), tensors[other].sizes()[0]);
            return Err(format!("input {first:?} has {count} rows, and {name:?} has {found}"));
        }
        match count {
            0 => Err("there are no rows".into()),
            _ if count > max_rows => Err(format!("there are {count} rows; send at most {max_rows} at once")),
            _ => Ok(Rows { tensors, count }),
        }
    }

    /// Runs the rows of some requests as one batch. Returns the outputs of each request.
    ///
    /// # Errors
    /// Those of the program, and if an output has not one row for each row of its inputs.
    pub fn run(&self, batch: &[&Rows]) -> Result<Vec<Outputs>, Failure> {
        let _unrecorded = no_grad();
        let say = |error: opfuse::Error| Failure::Rows(error.to_string());
        let count: usize = batch.iter().map(|rows| rows.count).sum();
        let n_inputs = self.program.inputs().len();
        let joined = |input: usize| cat(&batch.iter().map(|rows| &rows.tensors[input]).collect::<Vec<_>>(), 0);
        let inputs = (0..n_inputs).map(joined).collect::<opfuse::Result<Vec<_>>>().map_err(say)?;
        let outputs = self.program.call(&inputs).map_err(say)?;
        if let Some(output) = outputs.iter().find(|output| output.sizes().first() != Some(&count)) {
            let what = format!("an output has sizes {:?}, and the batch {count} rows", output.sizes());
            return Err(Failure::Service(what));
        }
        let mut at = 0;
        let part = |rows: &&Rows| {
            let start = at as i64;
            at += rows.count;
            outputs.iter().map(|output| output.narrow(0, start, rows.count)).collect::<opfuse::Result<Outputs>>()
        };
        batch.iter().map(part).collect::<opfuse::Result<_>>().map_err(say)
    }

    /// The body of an answer.
    ///
    /// # Errors
    /// If an output has a dtype that JSON has not.
    pub fn body(outputs: &[Tensor]) -> Result<String, String> {
        let outputs = outputs.iter().map(array).collect::<Result<Vec<_>, _>>()?;
        Ok(json!({ "outputs": outputs }).to_string())
    }

    fn takes(&self) -> String {
        let all: Vec<String> = self.program.inputs().iter().map(ToString::to_string).collect();
        format!("the program takes {}", all.join(", "))
    }
}

/// The tensor of an input.
fn tensor(input: &InputInfo, value: &Value) -> Result<Tensor, String> {
    let say = |error: opfuse::Error| format!("input {:?}: {error}", input.name());
    let sizes = sizes(value);
    let wanted = input.sizes();
    let fits = sizes.len() == wanted.len()
        && sizes.iter().zip(&wanted).all(|(size, wanted)| wanted.is_none_or(|wanted| wanted == *size));
    if !fits {
        return Err(format!("input {:?} has sizes {sizes:?}, and the program takes {input}", input.name()));
    }
    let dtype = input.dtype().ok_or_else(|| format!("input {:?} has no dtype", input.name()))?;
    let mut path = Vec::new();
    let wrong = |what: String| format!("input {:?}{what}", input.name());
    let tensor = if dtype.is_float() {
        let mut all = Vec::new();
        flatten(value, &sizes, &mut path, &mut all, &Value::as_f64).map_err(wrong)?;
        Tensor::from_vec(all, &sizes)
    } else {
        let mut all = Vec::new();
        let number = |value: &Value| value.as_i64().or(value.as_bool().map(i64::from));
        flatten(value, &sizes, &mut path, &mut all, &number).map_err(wrong)?;
        Tensor::from_vec(all, &sizes)
    };
    tensor.and_then(|tensor| tensor.to_dtype(dtype)).map_err(say)
}

/// The sizes of nested arrays, as the first element of each says.
fn sizes(mut value: &Value) -> Vec<usize> {
    let mut sizes = Vec::new();
    while let Value::Array(parts) = value {
        sizes.push(parts.len());
        let Some(first) = parts.first() else { break };
        value = first;
    }
    sizes
}

/// Appends the numbers of nested arrays of these sizes. An error begins with the place: `[1][0] is …`.
fn flatten<T>(
    value: &Value,
    sizes: &[usize],
    path: &mut Vec<usize>,
    out: &mut Vec<T>,
    number: &dyn Fn(&Value) -> Option<T>,
) -> Result<(), String> {
    let at = |path: &[usize]| path.iter().map(|index| format!("[{index}]")).collect::<String>();
    let Some((&size, inner)) = sizes.split_first() else {
        let found = number(value).ok_or_else(|| format!("{} is {}, and no number of its dtype", at(path), kind(value)));
        out.push(found?);
        return Ok(());
    };
    let parts = value.as_array().filter(|parts| parts.len() == size);
    let Some(parts) = parts else {
        let found = value.as_array().map_or(kind(value), |parts| format!("an array of {}", parts.len()));
        return Err(format!("{} is {found}, and others are arrays of {size}", at(path)));
    };
    for (index, part) in parts.iter().enumerate() {
        path.push(index);
        flatten(part, inner, path, out, number)?;
        path.pop();
    }
    Ok(())
}

fn kind(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
        Value::String(_) => "text".into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A tensor as nested arrays.
fn array(tensor: &Tensor) -> Result<Value, String> {
    let say = |error: opfuse::Error| error.to_string();
    let numbers: Vec<Value> = match tensor.dtype() {
        DType::Bool => tensor.to_vec::<bool>().map_err(say)?.into_iter().map(Value::from).collect(),
        dtype if dtype.is_float() => {
            let wide = tensor.to_dtype(DType::F64).and_then(|wide| wide.to_vec::<f64>()).map_err(say)?;
            wide.into_iter().map(Value::from).collect()
        }
        dtype if dtype.is_complex() => return Err(format!("an output is {dtype}, which JSON has not")),
        _ => {
            let wide = tensor.to_dtype(DType::I64).and_then(|wide| wide.to_vec::<i64>()).map_err(say)?;
            wide.into_iter().map(Value::from).collect()
        }
    };
    Ok(nested(&mut numbers.into_iter(), tensor.sizes()))
}

fn nested(numbers: &mut impl Iterator<Item = Value>, sizes: &[usize]) -> Value {
    match sizes.split_first() {
        None => numbers.next().unwrap_or_default(),
        Some((&size, inner)) => (0..size).map(|_| nested(numbers, inner)).collect(),
    }
}
