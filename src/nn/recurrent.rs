//! Recurrent layers: LSTM, GRU, and the plain one.
//!
//! Parameters have PyTorch's names (`weight_ih_l0_reverse`), order of gates, and initial range `1 / sqrt(hidden)`.

use super::init::uniform_parameter;
use super::linear::within;
use super::module::{Module, Role, Visitor, VisitorMut};
use crate::dispatch::Dispatcher;
use crate::error::{Error, Result};
use crate::profile::stands_for;
use crate::tensor::Tensor;

/// The options of a recurrent layer. Defaults are PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecurrentOptions {
    /// How many layers follow one another.
    pub layers: usize,
    /// Whether there are biases.
    pub bias: bool,
    /// Whether dim 0 is the batch, and not dim 1.
    pub batch_first: bool,
    /// The probability of dropout between layers, in training.
    pub dropout: f64,
    /// Whether each layer also runs backwards in time.
    pub bidirectional: bool,
}

impl Default for RecurrentOptions {
    fn default() -> Self {
        RecurrentOptions { layers: 1, bias: true, batch_first: false, dropout: 0.0, bidirectional: false }
    }
}

/// The weights of all layers and directions.
#[derive(Clone)]
struct Weights {
    tensors: Vec<Tensor>,
    names: Vec<String>,
}

impl Weights {
    fn new(inputs: usize, hidden: usize, gates: usize, options: &RecurrentOptions) -> Result<Weights> {
        let n_directions = 1 + usize::from(options.bidirectional);
        let (mut tensors, mut names) = (Vec::new(), Vec::new());
        for layer in 0..options.layers {
            let inputs = if layer == 0 { inputs } else { hidden * n_directions };
            for suffix in ["", "_reverse"].iter().take(n_directions) {
                let rows = gates * hidden;
                let kinds: [(&str, &[usize]); 4] = [
                    ("weight_ih", &[rows, inputs]),
                    ("weight_hh", &[rows, hidden]),
                    ("bias_ih", &[rows]),
                    ("bias_hh", &[rows]),
                ];
                for (kind, sizes) in &kinds[..if options.bias { 4 } else { 2 }] {
                    tensors.push(uniform_parameter(sizes, within(hidden))?);
                    names.push(format!("{kind}_l{layer}{suffix}"));
                }
            }
        }
        Ok(Weights { tensors, names })
    }
}

macro_rules! recurrent {
    ($($(#[$doc:meta])* $name:ident $gates:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            weights: Weights,
            /// The options.
            pub options: RecurrentOptions,
            /// The number of features of a state.
            pub hidden: usize,
            /// Whether it is in training.
            pub training: bool,
        }

        impl $name {
            /// A layer for so many inputs, whose states have `hidden` features.
            ///
            /// # Errors
            /// If there is not enough memory.
            #[track_caller]
            pub fn new(inputs: usize, hidden: usize, options: RecurrentOptions) -> Result<$name> {
                let weights = Weights::new(inputs, hidden, $gates, &options)?;
                Ok($name { weights, options, hidden, training: true })
            }
        }

        impl Module for $name {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                let Weights { names, tensors } = &self.weights;
                names.iter().zip(tensors).for_each(|(name, tensor)| visitor.field(name, Role::Parameter, tensor));
            }
            fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
                let Weights { names, tensors } = &mut self.weights;
                names.iter().zip(tensors).for_each(|(name, tensor)| visitor.field(name, Role::Parameter, tensor));
                visitor.training(&mut self.training);
            }
        }
    )*};
}
recurrent! {
    /// Long short-term memory (Hochreiter, Schmidhuber 1997) over `(L, N, inputs)`.
    LSTM 4;
    /// Gated recurrent units (Cho et al. 2014) over `(L, N, inputs)`.
    GRU 3;
    /// Recurrent layers with a hyperbolic tangent over `(L, N, inputs)`.
    RNN 1;
}

/// Zeros for the first state.
fn start(x: &Tensor, hidden: usize, options: &RecurrentOptions) -> Result<Tensor> {
    if x.dim() != 3 {
        let what = format!("the input has sizes {:?}", x.sizes());
        return Err(Error::shape("recurrent", what, "it has three dims: steps, batch and features"));
    }
    let states = options.layers * (1 + usize::from(options.bidirectional));
    let batch = x.sizes()[usize::from(!options.batch_first)];
    Tensor::zeros(&[states, batch, hidden], x.dtype())?.to_device(x.device())
}

impl LSTM {
    /// The outputs of all steps, and the last hidden states and cells. States are `(layers * directions, N, hidden)`.
    /// Without first states these are zeros.
    ///
    /// # Errors
    /// If sizes or dtypes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<(&Tensor, &Tensor)>) -> Result<(Tensor, (Tensor, Tensor))> {
        let _place = stands_for();
        let states = match state {
            Some((hidden, cell)) => [hidden.clone(), cell.clone()],
            None => {
                let zeros = start(x, self.hidden, &self.options)?;
                [zeros.clone(), zeros]
            }
        };
        let RecurrentOptions { layers, bias, batch_first, dropout, bidirectional } = self.options;
        let lstm = Dispatcher::global().find_schema("aten::lstm", "input")?;
        let params = &self.weights.tensors[..];
        let (y, hidden, cell): (Tensor, Tensor, Tensor) = lstm.call((
            x,
            &states[..],
            params,
            bias,
            layers as i64,
            dropout,
            self.training,
            bidirectional,
            batch_first,
        ))?;
        Ok((y, (hidden, cell)))
    }
}

macro_rules! one_state {
    ($($name:ident $operator:literal;)*) => {$(
        impl $name {
            /// The outputs of all steps, and the last states, `(layers * directions, N, hidden)`. Without first states
            /// these are zeros.
            ///
            /// # Errors
            /// If sizes or dtypes do not fit.
            #[track_caller]
            pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                let _place = stands_for();
                let state = state.map_or_else(|| start(x, self.hidden, &self.options), |state| Ok(state.clone()))?;
                let RecurrentOptions { layers, bias, batch_first, dropout, bidirectional } = self.options;
                let operator = Dispatcher::global().find_schema($operator, "input")?;
                let params = &self.weights.tensors[..];
                operator.call((
                    x, &state, params, bias, layers as i64, dropout, self.training, bidirectional, batch_first,
                ))
            }
        }
    )*};
}
one_state! {
    GRU "aten::gru";
    RNN "aten::rnn_tanh";
}

macro_rules! cells {
    ($($(#[$doc:meta])* $name:ident $gates:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Module)]
        pub struct $name {
            /// Weights of the input, `(gates * hidden, inputs)`.
            pub weight_ih: Tensor,
            /// Weights of the state, `(gates * hidden, hidden)`.
            pub weight_hh: Tensor,
            /// Biases of the input.
            pub bias_ih: Option<Tensor>,
            /// Biases of the state.
            pub bias_hh: Option<Tensor>,
        }

        impl $name {
            /// A cell with biases for so many inputs, whose states have `hidden` features.
            ///
            /// # Errors
            /// If there is not enough memory.
            #[track_caller]
            pub fn new(inputs: usize, hidden: usize) -> Result<$name> {
                let (rows, bound) = ($gates * hidden, within(hidden));
                Ok($name {
                    weight_ih: uniform_parameter(&[rows, inputs], bound)?,
                    weight_hh: uniform_parameter(&[rows, hidden], bound)?,
                    bias_ih: Some(uniform_parameter(&[rows], bound)?),
                    bias_hh: Some(uniform_parameter(&[rows], bound)?),
                })
            }

            /// The cell without its biases.
            #[must_use]
            pub fn without_bias(self) -> $name {
                $name { bias_ih: None, bias_hh: None, ..self }
            }
        }
    )*};
}
cells! {
    /// A step of [`LSTM`]: inputs `(N, inputs)`, states `(N, hidden)`.
    LSTMCell 4;
    /// A step of [`GRU`]: inputs `(N, inputs)`, states `(N, hidden)`.
    GRUCell 3;
    /// A step of [`RNN`]: inputs `(N, inputs)`, states `(N, hidden)`.
    RNNCell 1;
}

impl LSTMCell {
    /// The next hidden state and cell.
    ///
    /// # Errors
    /// If sizes or dtypes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: (&Tensor, &Tensor)) -> Result<(Tensor, Tensor)> {
        let states = [state.0.clone(), state.1.clone()];
        let (bias_ih, bias_hh) = (self.bias_ih.as_ref(), self.bias_hh.as_ref());
        let operator = Dispatcher::global().find_schema("aten::lstm_cell", "")?;
        operator.call((x, &states[..], &self.weight_ih, &self.weight_hh, bias_ih, bias_hh))
    }
}

macro_rules! cells_of_one_state {
    ($($name:ident $operator:literal;)*) => {$(
        impl $name {
            /// The next state.
            ///
            /// # Errors
            /// If sizes or dtypes do not fit.
            #[track_caller]
            pub fn forward(&self, x: &Tensor, state: &Tensor) -> Result<Tensor> {
                let (bias_ih, bias_hh) = (self.bias_ih.as_ref(), self.bias_hh.as_ref());
                let operator = Dispatcher::global().find_schema($operator, "")?;
                operator.call((x, state, &self.weight_ih, &self.weight_hh, bias_ih, bias_hh))
            }
        }
    )*};
}
cells_of_one_state! {
    GRUCell "aten::gru_cell";
    RNNCell "aten::rnn_tanh_cell";
}
