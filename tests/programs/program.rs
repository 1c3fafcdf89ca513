//! A program as data: statements over tensors and numbers, and how it is called.
//!
//! A program is a function of inputs and captured tensors. Its variables are numbered: first the inputs, then the
//! captured tensors, then what statements make. Numbers that are read have numbers of their own.

use super::customs;
use super::methods::Method;
use opfuse::{DType, MemoryFormat, Scalar};

/// The number of a tensor variable.
pub(crate) type Var = usize;

/// One argument of an operator.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Arg {
    None,
    Tensor(Var),
    Tensors(Vec<Var>),
    OptionalTensors(Vec<Option<Var>>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Bools(Vec<bool>),
    Scalar(Scalar),
    /// A number that was read, as a scalar.
    Number(usize),
    /// The number that the function is given beside its inputs; see [`Settings::rates`].
    Rate,
    DType(DType),
    Format(MemoryFormat),
}

/// What holds while a guard lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    NoGrad,
    EnableGrad,
    Inference,
    Autocast(DType),
    NoAutocast,
    /// Another default dtype.
    Default(DType),
    Mode,
}

/// What a function inside the function becomes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wrapper {
    Compile,
    /// The mapped dim of each argument.
    Vmap(Vec<Option<i64>>),
}

/// How a value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Of a tensor with one element.
    Item,
    /// The first of all elements, or 0.
    First,
}

/// One step of a program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Statement {
    /// A call through the dispatcher. Results that are tensors, lists flattened, are taken in order.
    Call {
        outs: Vec<Var>,
        name: String,
        args: Vec<Arg>,
    },
    /// A method call.
    Method {
        outs: Vec<Var>,
        method: &'static Method,
        tensors: Vec<Var>,
        ints: Vec<i64>,
        scalar: Arg,
    },
    /// A function with a derivative of its own, by number.
    Custom {
        outs: Vec<Var>,
        kind: usize,
        of: Var,
    },
    /// A tensor made of values in Rust.
    Make {
        out: Var,
        dtype: DType,
        sizes: Vec<usize>,
        start: i64,
    },
    /// Another handle of the same tensor.
    Clone {
        out: Var,
        of: Var,
    },
    /// The handle is dropped.
    Drop {
        of: Var,
    },
    Read {
        number: usize,
        of: Var,
        how: Reading,
    },
    /// Runs one of the blocks, whose results are `outs`.
    Branch {
        number: usize,
        above: f64,
        then: Block,
        otherwise: Block,
        outs: Vec<Var>,
    },
    Open {
        guard: usize,
        kind: Guard,
    },
    Close {
        guard: usize,
    },
    /// A function of `params` that sees the variables around it, called with `args`.
    Nested {
        wrapper: Wrapper,
        params: Vec<Var>,
        args: Vec<Var>,
        body: Block,
        outs: Vec<Var>,
    },
    Backward {
        of: Var,
    },
    Grad {
        outs: Vec<Var>,
        of: Var,
        wrt: Vec<Var>,
        create_graph: bool,
    },
    /// The gradient of a leaf; an error if there is none.
    TakeGrad {
        out: Var,
        of: Var,
    },
    ClearGrad {
        of: Var,
    },
    RequireGrad {
        of: Var,
        required: bool,
    },
}

/// Statements, and what they give.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Block {
    pub(crate) statements: Vec<Statement>,
    pub(crate) results: Vec<Var>,
}

/// Which values a storage holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    Normal,
    Wild,
    Positive,
    /// Whole numbers from 0, below this one.
    Below(usize),
}

/// The memory of inputs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Memory {
    pub(crate) dtype: DType,
    /// Whether tensors in it are complex, if the dtype is that of a part.
    pub(crate) pairs: bool,
    pub(crate) len: usize,
    pub(crate) values: Values,
    pub(crate) seed: u64,
}

impl Memory {
    /// Whether its elements are the parts of complex numbers.
    pub(crate) fn is_complex(&self) -> bool {
        self.pairs && matches!(self.dtype, DType::F32 | DType::F64)
    }
}

/// Where a given tensor lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Place {
    /// In a storage of this call, or of the captured tensors.
    Memory(usize),
    /// It is the input of that number, an earlier one.
    Input(usize),
    /// It is a captured tensor.
    Captured(usize),
    /// It is a plain number.
    Number(Scalar),
}

/// What takes the place of an input from the second call on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feed {
    /// A new tensor.
    Fresh,
    /// The input of that number in the call before.
    Input(usize),
    /// The result of that number of the call before, if there is one.
    Result(usize),
}

/// What gradients know of a given tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Plain,
    /// A leaf that requires gradients.
    Leaf,
    /// Computed from a leaf.
    Computed,
    /// A view of a leaf.
    View,
    /// Made in inference mode.
    Inference,
}

/// A tensor that the function is given or captures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Given {
    pub(crate) place: Place,
    pub(crate) sizes: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) offset: usize,
    pub(crate) role: Role,
    pub(crate) feed: Feed,
}

/// The tensors of one call, or the captured ones.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tensors {
    pub(crate) memories: Vec<Memory>,
    pub(crate) given: Vec<Given>,
}

impl Tensors {
    /// Whether some may be complex.
    pub(crate) fn is_complex(&self) -> bool {
        self.memories.iter().any(Memory::is_complex)
    }
}

/// What is done with the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Nothing,
    /// Gradients of the sum of the squares of the results.
    Backward,
    /// Gradients of gradients of that sum.
    Twice,
}

/// How the function is compiled and called.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The name of a tier, or none.
    pub(crate) tier: Option<&'static str>,
    pub(crate) threads: usize,
    /// Whether the default generator is drawn from. Then nothing else runs meanwhile.
    pub(crate) draws: bool,
    pub(crate) deferred: bool,
    pub(crate) checked: bool,
    /// Whether breaks make the function run eagerly.
    pub(crate) whole: bool,
    /// How many sets of input types have programs.
    pub(crate) capacity: usize,
    /// The options of fusion, by number.
    pub(crate) fusion: usize,
    /// What holds around each call.
    pub(crate) around: [Option<Guard>; 4],
    pub(crate) after: After,
    /// Whether gradients of captured tensors are cleared between calls.
    pub(crate) clears: bool,
    /// Whether the inputs are a structure with a plain number, which is another one in each call.
    pub(crate) rates: bool,
    /// Whether results have hooks and keep their gradients.
    pub(crate) hooks: bool,
    /// Whether several threads call the function at last. Only a function without captured tensors is called so.
    pub(crate) shared: bool,
}

/// A program and its calls.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    pub(crate) captured: Tensors,
    pub(crate) calls: Vec<Tensors>,
    pub(crate) body: Block,
    pub(crate) settings: Settings,
}

impl Case {
    pub(crate) fn n_inputs(&self) -> usize {
        self.calls[0].given.len()
    }
}

impl Statement {
    /// Whether it copies a tensor into itself.
    pub(crate) fn copies_itself(&self) -> bool {
        match self {
            Statement::Method { method, tensors, .. } => {
                method.text.starts_with("x.copy_(") && tensors.windows(2).any(|pair| pair[0] == pair[1])
            }
            _ => false,
        }
    }

    /// Whether it calls a function whose derivative is a constant.
    pub(crate) fn uses_no_gradient(&self) -> bool {
        matches!(self, Statement::Custom { kind, .. } if customs::uses_no_gradient(*kind))
    }

    /// The blocks inside.
    pub(crate) fn blocks(&self) -> Vec<&Block> {
        match self {
            Statement::Branch { then, otherwise, .. } => vec![then, otherwise],
            Statement::Nested { body, .. } => vec![body],
            _ => Vec::new(),
        }
    }

    /// The blocks inside, for changes.
    pub(crate) fn blocks_mut(&mut self) -> Vec<&mut Block> {
        match self {
            Statement::Branch { then, otherwise, .. } => vec![then, otherwise],
            Statement::Nested { body, .. } => vec![body],
            _ => Vec::new(),
        }
    }

    /// The variables that it makes.
    pub(crate) fn outs(&self) -> Vec<Var> {
        match self {
            Statement::Call { outs, .. }
            | Statement::Method { outs, .. }
            | Statement::Branch { outs, .. }
            | Statement::Nested { outs, .. }
            | Statement::Custom { outs, .. }
            | Statement::Grad { outs, .. } => outs.clone(),
            Statement::Clone { out, .. } | Statement::TakeGrad { out, .. } | Statement::Make { out, .. } => vec![*out],
            _ => Vec::new(),
        }
    }

    /// The variables that it uses itself, for changes; those in its blocks are not among them.
    pub(crate) fn uses_mut(&mut self) -> Vec<&mut Var> {
        match self {
            Statement::Call { args, .. } => args.iter_mut().flat_map(Arg::vars_mut).collect(),
            Statement::Method { tensors, .. } => tensors.iter_mut().collect(),
            Statement::Clone { of, .. }
            | Statement::Custom { of, .. }
            | Statement::Drop { of }
            | Statement::Read { of, .. }
            | Statement::Backward { of }
            | Statement::TakeGrad { of, .. }
            | Statement::ClearGrad { of }
            | Statement::RequireGrad { of, .. } => vec![of],
            Statement::Nested { args, .. } => args.iter_mut().collect(),
            Statement::Grad { of, wrt, .. } => std::iter::once(of).chain(wrt).collect(),
            Statement::Branch { .. } | Statement::Open { .. } | Statement::Close { .. } | Statement::Make { .. } => {
                Vec::new()
            }
        }
    }
}

impl Arg {
    fn vars_mut(&mut self) -> Vec<&mut Var> {
        match self {
            Arg::Tensor(var) => vec![var],
            Arg::Tensors(vars) => vars.iter_mut().collect(),
            Arg::OptionalTensors(vars) => vars.iter_mut().flatten().collect(),
            _ => Vec::new(),
        }
    }
}
