//! What does a program that PyTorch exported compute?
//!
//! `torch.export.save` writes a program as data: calls of ATen operators, and the bytes of their tensors. The operators
//! here have the same names and schemas, so each call is bound to one and runs like a call that the user makes:
//! eagerly or compiled, with gradients, and with the same bits.
//!
//! | file | what it answers |
//! |---|---|
//! | `archive` | what is in the file? |
//! | `model` | what does its JSON say? |
//! | `bind` | which operator is each call, and where do its arguments come from? |
//! | `sizes` | which sizes may inputs have? |
//! | `numbers` | what is computed with sizes? |
//! | `control` | what do operators do that take graphs, such as loops? |
//! | `mapped` | what happens between the start and the end of a `vmap`? |
//! | `run` | how does it run? |
//! | `by_numbers` | which captures are there for numbers as arguments? |
//! | `state` | how do tensors come in by name? |

mod archive;
mod bind;
mod by_numbers;
mod control;
mod mapped;
mod model;
mod numbers;
mod run;
mod sizes;
mod state;
mod views;

use crate::compile::{CompileOptions, Compiled, Explain, compile_with};
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::formats::StateDict;
use crate::formats::file::Mapped;
use crate::ir::DType;
use crate::ops::element::item;
use crate::tensor::handle::Tensor;
use archive::Archive;
use bind::{Block, Missing, bind};
use by_numbers::ByNumbers;
use model::{Arg, InputSpec, Model, OutputSpec, Size, TensorMeta};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Builds a `.pt2` file into this program: [`Program`](crate::exported::Program) from the bytes of a file, whose path
/// is relative to the source file. The result is an error where the file is no program.
///
/// ```ignore
/// let program = opfuse::include_model!("model.pt2")?;
/// ```
#[macro_export]
macro_rules! include_model {
    ($path:literal $(,)?) => {
        $crate::exported::Program::from_bytes($path, include_bytes!($path))
    };
}

/// A function of the tensors of a call.
type BoxedFunction = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync>;

/// A program that `torch.export.save` wrote to a `.pt2` file.
///
/// It takes the tensors of the exported module's arguments and returns those of its results, flattened in the order in
/// which Python lists the leaves of tuples and dicts. Parameters require gradients as they did in PyTorch, so that a
/// loaded program trains. Threads can share it.
///
/// ```no_run
/// use opfuse::exported::Program;
/// use opfuse::{Result, Tensor};
///
/// # fn main() -> Result<()> {
/// let program = Program::load("model.pt2")?;
/// let ids = Tensor::try_from([[101i64, 2023, 102]])?;
/// let outputs = program.call(&[ids])?;
/// println!("{:?}", outputs[0].sizes());
/// # Ok(())
/// # }
/// ```
pub struct Program {
    inner: Arc<Inner>,
    compiled: Compiled<BoxedFunction, Vec<Tensor>>,
    /// The program for certain numbers as arguments.
    by_numbers: ByNumbers,
}

struct Inner {
    block: Block,
    /// What each input of the block is.
    inputs: Vec<Given>,
    /// What happens to each output of the block.
    outputs: Vec<Taken>,
    users: Vec<InputInfo>,
    /// Every argument that can be an array: those that the program takes, and the numbers that it was exported for.
    leaves: Vec<Leaf>,
    ranges: BTreeMap<String, (Option<i64>, Option<i64>)>,
    state: StateDict,
    torch_version: String,
}

/// An argument of the exported module that can be an array.
enum Leaf {
    User,
    /// A number that the program was exported for.
    Number(Value),
}

/// What an input of the graph is.
enum Given {
    /// The argument of that number.
    User(usize),
    State(Tensor),
    Constant(Value),
}

/// What happens to an output of the graph.
enum Taken {
    Returned,
    /// It is copied into this tensor.
    Stored(Tensor),
    /// It is copied into the argument of that number.
    StoredInto(usize),
    Dropped,
}

/// An argument that a program takes: its name, and dtype and sizes if it is a tensor.
#[derive(Debug, Clone)]
pub struct InputInfo {
    name: String,
    meta: Option<TensorMeta>,
}

impl InputInfo {
    /// The name in the program.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dtype, if it is a tensor.
    pub fn dtype(&self) -> Option<DType> {
        self.meta.as_ref()?.dtype
    }

    /// The size of each dim. `None` stands for a symbolic size.
    pub fn sizes(&self) -> Vec<Option<usize>> {
        let fixed = |size: &Size| if let Size::Is(size) = size { usize::try_from(*size).ok() } else { None };
        self.meta.iter().flat_map(|meta| meta.sizes.iter().map(fixed)).collect()
    }
}

impl fmt::Display for InputInfo {
    /// `x: f32[s0, 8]`. What is no tensor has no type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(meta) = &self.meta else { return write!(f, "{}: number", self.name) };
        let sizes: Vec<String> = meta.sizes.iter().map(sizes::text).collect();
        let dtype = meta.dtype.map_or("?".to_owned(), |dtype| dtype.to_string());
        write!(f, "{}: {dtype}[{}]", self.name, sizes.join(", "))
    }
}

impl Program {
    /// Loads a program from a `.pt2` file. Its tensors are over the mapped file, and take no memory before they are
    /// used; the file must not change while they live. Writes to them stay in the process.
    ///
    /// # Errors
    /// If there is no such file, if it is no exported program or is damaged, or if it needs what is not supported. All
    /// operators that are missing are in one message, with their Python lines.
    pub fn load(path: impl AsRef<Path>) -> Result<Program> {
        Program::load_with(path, CompileOptions::default())
    }

    /// Like [`Program::load`], with options for [`Program::call`].
    ///
    /// # Errors
    /// Same as [`Program::load`].
    pub fn load_with(path: impl AsRef<Path>, options: CompileOptions) -> Result<Program> {
        Program::of(&Mapped::open(path.as_ref())?, options)
    }

    /// Loads a program from bytes that are part of this one; [`include_model!`](crate::include_model) calls it. Each
    /// member of the archive with tensors is copied once, so that they can be written. Errors call the bytes `name`.
    ///
    /// # Errors
    /// Same as [`Program::load`].
    pub fn from_bytes(name: &str, bytes: &'static [u8]) -> Result<Program> {
        Program::of(&Mapped::embedded(name, bytes), CompileOptions::default())
    }

    fn of(file: &Mapped, options: CompileOptions) -> Result<Program> {
        crate::dispatch::load()?;
        let archive = Archive::read(file)?;
        let inner = Arc::new(Inner::new(archive).map_err(|what| file.fail(what))?);
        let shared = inner.clone();
        let function: BoxedFunction = Box::new(move |inputs| shared.run(inputs, None));
        let by_numbers = ByNumbers::new(options.clone());
        Ok(Program { compiled: compile_with(function, options), inner, by_numbers })
    }

    /// Calls the program compiled. It is captured once for each set of input types. A number as an argument is a
    /// tensor of one element; the first numbers that are passed become constants of a capture.
    ///
    /// # Errors
    /// If the inputs are not those that the program was exported for, or if a call in it fails. The message has the
    /// line of the Python source.
    pub fn call(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let inputs = &*self.inner.checked(inputs)?;
        match self.by_numbers.find(&self.inner, inputs)? {
            Some(compiled) => compiled.call(inputs),
            None => self.compiled.call(inputs),
        }
    }

    /// Like [`Program::call`], with the inputs by the names that [`Program::inputs`] has.
    ///
    /// # Errors
    /// Same as [`Program::call`], and if names are missing or unknown.
    pub fn call_named(&self, inputs: &StateDict) -> Result<Vec<Tensor>> {
        let names: Vec<&str> = self.inner.users.iter().map(InputInfo::name).collect();
        state::compare_names("exported program", &names, inputs)?;
        let inputs: Vec<Tensor> = names.iter().filter_map(|name| inputs.get(*name).cloned()).collect();
        self.call(&inputs)
    }

    /// Calls the program call by call, with the same bits.
    ///
    /// # Errors
    /// Same as [`Program::call`].
    pub fn call_eager(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.inner.run(&self.inner.checked(inputs)?, None)
    }

    /// Captures the program for inputs of these types, so that the first call is as fast as the next. Nothing is
    /// computed; see [`Compiled::prepare`].
    ///
    /// # Errors
    /// If the inputs are not those that the program was exported for, or if a call in it fails.
    pub fn prepare(&self, inputs: &[Tensor]) -> Result<()> {
        let inputs = &*self.inner.checked(inputs)?;
        match self.by_numbers.find(&self.inner, inputs)? {
            Some(compiled) => compiled.prepare(inputs),
            None => self.compiled.prepare(inputs),
        }
    }

    /// The arguments that the program takes, in order.
    pub fn inputs(&self) -> &[InputInfo] {
        &self.inner.users
    }

    /// Parameters, buffers and constants by their names in the module. They are those that the program uses: a write
    /// to one is seen by the next call.
    pub fn state(&self) -> &StateDict {
        &self.inner.state
    }

    /// Copies tensors into the program's own, by name. The file stays as it is.
    ///
    /// # Errors
    /// If names are missing or unknown, or if dtypes or sizes differ. All of these are in one message, and nothing is
    /// copied then.
    pub fn load_state(&self, from: &StateDict) -> Result<()> {
        state::load(&self.inner.state, from)
    }

    /// The operators that the program calls, with how often each is called.
    pub fn operators(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        self.inner.block.count(&mut counts);
        counts
    }

    /// The version of PyTorch that exported the program.
    pub fn torch_version(&self) -> &str {
        &self.inner.torch_version
    }

    /// What became of the program in its captures. If it takes numbers, the captures are those for the last ones.
    pub fn explain(&self) -> Explain {
        self.by_numbers.last().map_or_else(|| self.compiled.explain(), |compiled| compiled.explain())
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs: Vec<String> = self.inner.users.iter().map(ToString::to_string).collect();
        write!(f, "Program({})", inputs.join(", "))
    }
}

impl Inner {
    fn new(archive: Archive) -> Result<Inner, String> {
        let Archive { model, tensors, pickled } = archive;
        let Model { graph, inputs: specs, outputs: results, ranges, torch_version } = model;
        let mut missing = Missing::new();
        let mut block = bind(&graph, &mut missing)?;
        if !missing.is_empty() {
            return Err(missing_operators(&missing));
        }
        block.relax_views().map_err(|error| error.to_string())?;
        if specs.len() != block.inputs.len() || results.len() != block.outputs.len() {
            return Err("its signature has not as many inputs and outputs as its graph".to_owned());
        }
        let (mut users, mut leaves): (Vec<InputInfo>, Vec<Leaf>) = Default::default();
        let find = |of: &str| match tensors.get(of) {
            Some(tensor) => Ok(tensor.clone()),
            None if pickled.iter().any(|name| name == of) => {
                Err(format!("tensor {of:?} was pickled, and nothing is unpickled here; save plain dense tensors"))
            }
            None => Err(format!("tensor {of:?} is missing")),
        };
        let mut state = StateDict::new();
        let mut inputs = Vec::with_capacity(specs.len());
        for spec in specs {
            inputs.push(match spec {
                InputSpec::User(Arg::Name(name)) => {
                    leaves.push(Leaf::User);
                    users.push(InputInfo { meta: graph.tensors.get(&name).cloned(), name });
                    Given::User(users.len() - 1)
                }
                // The program was exported for this value.
                InputSpec::User(arg) | InputSpec::Constant(arg) => {
                    let value = constant(&arg)?;
                    if matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_)) {
                        leaves.push(Leaf::Number(value.clone()));
                    }
                    Given::Constant(value)
                }
                InputSpec::State(of) => {
                    let tensor = find(&of)?;
                    state.insert(of, tensor.clone());
                    Given::State(tensor)
                }
                InputSpec::Token => Given::Constant(Value::None),
            });
        }
        // Of inputs with the same name, the first one counts.
        let places: BTreeMap<&str, usize> =
            users.iter().enumerate().rev().map(|(at, user)| (user.name.as_str(), at)).collect();
        let position = |of: &str| places.get(of).copied().ok_or(format!("no input is {of:?}"));
        let taken = |spec: OutputSpec| {
            Ok::<_, String>(match spec {
                OutputSpec::User => Taken::Returned,
                OutputSpec::State(of) => Taken::Stored(find(&of)?),
                OutputSpec::Input(of) => Taken::StoredInto(position(&of)?),
                OutputSpec::Token => Taken::Dropped,
            })
        };
        let outputs = results.into_iter().map(taken).collect::<Result<_, _>>()?;
        Ok(Inner { block, inputs, outputs, users, leaves, ranges, state, torch_version })
    }

    /// The inputs that the program takes, compared with those that it was exported for. Numbers that it was exported
    /// for may be among them.
    fn checked<'a>(&self, inputs: &'a [Tensor]) -> Result<Cow<'a, [Tensor]>> {
        if inputs.len() == self.users.len() || inputs.len() != self.leaves.len() {
            return self.check(inputs).map(|()| Cow::Borrowed(inputs));
        }
        let mut taken = Vec::with_capacity(self.users.len());
        for (at, (leaf, input)) in self.leaves.iter().zip(inputs).enumerate() {
            match leaf {
                Leaf::User => taken.push(input.clone()),
                Leaf::Number(value) => {
                    let wanted = item(run::tensor(value)?.as_ref())?.as_f64();
                    let found = item(input)?.as_f64();
                    if found != wanted {
                        let what = format!("argument {at} is {found}, and the program was exported for {wanted}");
                        return Err(Error::argument("exported program", what));
                    }
                }
            }
        }
        self.check(&taken).map(|()| Cow::Owned(taken))
    }

    /// Compares inputs with those that the program was exported for.
    fn check(&self, inputs: &[Tensor]) -> Result<()> {
        if inputs.len() != self.users.len() {
            let takes: Vec<String> = self.users.iter().map(ToString::to_string).collect();
            let what = format!("{} inputs were passed, and the program takes {}: ", inputs.len(), self.users.len());
            return Err(Error::argument("exported program", what + &takes.join(", ")));
        }
        let mut symbols = sizes::Symbols::new();
        for (user, input) in self.users.iter().zip(inputs) {
            let Some(meta) = &user.meta else { continue };
            let dtype = input.dtype();
            let checked = match meta.dtype.filter(|wanted| *wanted != dtype) {
                Some(wanted) => Err(format!("it is {dtype}, and the program takes {wanted}")),
                None => sizes::check(meta, input.sizes(), &mut symbols, &self.ranges),
            };
            checked.map_err(|what| Error::argument("exported program", format!("input '{}': {what}", user.name)))?;
        }
        Ok(())
    }

    /// The numbers among the arguments, in order.
    ///
    /// # Errors
    /// If one has not exactly one element.
    fn numbers(&self, inputs: &[Tensor]) -> Result<Vec<Value>> {
        let are_numbers = self.users.iter().zip(inputs).filter(|(user, _)| user.meta.is_none());
        are_numbers.map(|(_, input)| run::number(input)).collect()
    }

    /// Runs the program. The numbers among the arguments are read, unless they are given.
    fn run(&self, inputs: &[Tensor], numbers: Option<&[Value]>) -> Result<Vec<Tensor>> {
        let read = if numbers.is_some() { Vec::new() } else { self.numbers(inputs)? };
        let mut numbers = numbers.unwrap_or(&read).iter();
        let mut value = |given: &Given| {
            Ok(match given {
                Given::User(at) => match &self.users[*at].meta {
                    Some(_) => Value::Tensor(inputs[*at].clone()),
                    None => numbers.next().cloned().ok_or_else(run::malformed)?,
                },
                Given::State(tensor) => Value::Tensor(tensor.clone()),
                Given::Constant(value) => value.clone(),
            })
        };
        let values = self.block.run(self.inputs.iter().map(&mut value).collect::<Result<_>>()?)?;
        let mut returned = Vec::new();
        for (taken, value) in self.outputs.iter().zip(values) {
            let target = match taken {
                // Python's `None` is no tensor.
                Taken::Returned if matches!(value, Value::None) => continue,
                Taken::Returned => {
                    returned.push(run::tensor(&value)?.into_owned());
                    continue;
                }
                Taken::Stored(tensor) => tensor,
                Taken::StoredInto(at) => &inputs[*at],
                Taken::Dropped => continue,
            };
            target.copy_(run::tensor(&value)?.as_ref())?;
        }
        Ok(returned)
    }
}

/// The value of a constant.
fn constant(arg: &Arg) -> Result<Value, String> {
    Ok(match arg {
        Arg::None => Value::None,
        Arg::Int(number) => Value::Int(*number),
        Arg::Float(number) => Value::Float(*number),
        Arg::Bool(flag) => Value::Bool(*flag),
        Arg::Str(text) => Value::Str(text.as_str().into()),
        other => return Err(format!("a constant input is {other:?}, and must be a number or text")),
    })
}

fn missing_operators(missing: &Missing) -> String {
    let one = |(target, (count, line)): (&String, &(usize, String))| {
        let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
        let at = if line.is_empty() { Cow::Borrowed("") } else { Cow::Owned(format!(", first at {line}")) };
        format!("\n  {target} ({times}{at})")
    };
    let all: String = missing.iter().map(one).collect();
    let hint = "export with run_decompositions(), or register them with a Library before loading";
    format!("{} of its operators are missing; {hint}:{all}", missing.len())
}
