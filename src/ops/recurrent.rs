//! Recurrent layers over whole sequences: LSTM, GRU and the plain recurrent layer, made of products and activations.
//!
//! The formulas and the order of gates are PyTorch's. The products with the inputs of all steps are one product; the
//! steps follow one after another.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ops::joins::{cat, stack};
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, \
             bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
            lstm,
        )?
        .def_kernel(
            "gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, \
             bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            |x: &Tensor, h: &Tensor, w: &[Tensor], bias: bool, n: i64, p: f64, train: bool, both: bool, first: bool| {
                one_state("gru", Cell::Gru, x, h, w, [bias, train, both, first], n, p)
            },
        )?
        .def_kernel(
            "rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, \
             bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            |x: &Tensor, h: &Tensor, w: &[Tensor], bias: bool, n: i64, p: f64, train: bool, both: bool, first: bool| {
                one_state("rnn_tanh", Cell::Tanh, x, h, w, [bias, train, both, first], n, p)
            },
        )?
        .def_kernel(
            "rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, \
             bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            |x: &Tensor, h: &Tensor, w: &[Tensor], bias: bool, n: i64, p: f64, train: bool, both: bool, first: bool| {
                one_state("rnn_relu", Cell::Relu, x, h, w, [bias, train, both, first], n, p)
            },
        )?;
    cells(library)
}

/// Single steps.
fn cells(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> \
             (Tensor, Tensor)",
            lstm_cell,
        )?
        .def_kernel(
            "gru_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> \
             Tensor",
            |x: &Tensor, h: &Tensor, w: &Tensor, u: &Tensor, b: Option<&Tensor>, c: Option<&Tensor>| {
                one_step("gru_cell", Cell::Gru, x, h, [w, u], [b, c])
            },
        )?
        .def_kernel(
            "rnn_tanh_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) \
             -> Tensor",
            |x: &Tensor, h: &Tensor, w: &Tensor, u: &Tensor, b: Option<&Tensor>, c: Option<&Tensor>| {
                one_step("rnn_tanh_cell", Cell::Tanh, x, h, [w, u], [b, c])
            },
        )?
        .def_kernel(
            "rnn_relu_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) \
             -> Tensor",
            |x: &Tensor, h: &Tensor, w: &Tensor, u: &Tensor, b: Option<&Tensor>, c: Option<&Tensor>| {
                one_step("rnn_relu_cell", Cell::Relu, x, h, [w, u], [b, c])
            },
        )?;
    Ok(())
}

fn lstm_cell(
    input: &Tensor,
    hx: &[Tensor],
    of_input: &Tensor,
    of_state: &Tensor,
    input_bias: Option<&Tensor>,
    state_bias: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    let [hidden, cell] = hx else {
        return Err(Error::argument("lstm_cell", format!("hx holds {} tensors; pass h_0 and c_0", hx.len())));
    };
    let before = State { hidden: hidden.clone(), cell: Some(cell.clone()) };
    let from_state = hidden.linear(of_state, state_bias)?;
    let after = step("lstm_cell", Cell::Lstm, &input.linear(of_input, input_bias)?, &from_state, &before)?;
    let cell = after.cell.ok_or_else(|| Error::Internal { message: "an LSTM step gives a cell".into() })?;
    Ok((after.hidden, cell))
}

/// A step whose state is one tensor. The weights and the biases are those of the input and of the state.
fn one_step(
    op: &'static str,
    cell: Cell,
    input: &Tensor,
    hidden: &Tensor,
    weights: [&Tensor; 2],
    biases: [Option<&Tensor>; 2],
) -> Result<Tensor> {
    let before = State { hidden: hidden.clone(), cell: None };
    let from_state = hidden.linear(weights[1], biases[1])?;
    Ok(step(op, cell, &input.linear(weights[0], biases[0])?, &from_state, &before)?.hidden)
}

/// What one step computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// A stack of layers.
struct Layers<'a> {
    op: &'static str,
    cell: Cell,
    params: &'a [Tensor],
    has_biases: bool,
    is_bidirectional: bool,
    /// Whether states are projected, which LSTMs may have.
    is_projected: bool,
    n_layers: usize,
    /// The probability of dropout between layers; 0 outside of training.
    dropout: f64,
}

/// The weights of one direction of a layer.
struct Weights<'a> {
    of_input: &'a Tensor,
    of_state: &'a Tensor,
    input_bias: Option<&'a Tensor>,
    state_bias: Option<&'a Tensor>,
    projection: Option<&'a Tensor>,
}

/// The state between steps. Only LSTMs have a cell.
#[derive(Clone)]
struct State {
    hidden: Tensor,
    cell: Option<Tensor>,
}

#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn lstm(
    input: &Tensor,
    hx: &[Tensor],
    params: &[Tensor],
    has_biases: bool,
    num_layers: i64,
    dropout: f64,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    let [hidden, cell] = hx else {
        return Err(Error::argument("lstm", format!("hx holds {} tensors; pass h_0 and c_0", hx.len())));
    };
    let layers = Layers {
        op: "lstm",
        cell: Cell::Lstm,
        params,
        has_biases,
        is_bidirectional: bidirectional,
        is_projected: hidden.sizes().last() != cell.sizes().last(),
        n_layers: layer_count("lstm", num_layers)?,
        dropout: if train { dropout } else { 0.0 },
    };
    let (output, states) = layers.run(input, hidden, Some(cell), batch_first)?;
    let hidden: Vec<&Tensor> = states.iter().map(|state| &state.hidden).collect();
    let cells: Vec<&Tensor> = states.iter().filter_map(|state| state.cell.as_ref()).collect();
    Ok((output, stack(&hidden, 0)?, stack(&cells, 0)?))
}

/// A stack of layers whose state is one tensor. The flags are: biases, training, both directions, batch first.
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn one_state(
    op: &'static str,
    cell: Cell,
    input: &Tensor,
    hidden: &Tensor,
    params: &[Tensor],
    [has_biases, train, is_bidirectional, batch_first]: [bool; 4],
    num_layers: i64,
    dropout: f64,
) -> Result<(Tensor, Tensor)> {
    let n_layers = layer_count(op, num_layers)?;
    let dropout = if train { dropout } else { 0.0 };
    let layers = Layers { op, cell, params, has_biases, is_bidirectional, is_projected: false, n_layers, dropout };
    let (output, states) = layers.run(input, hidden, None, batch_first)?;
    let hidden: Vec<&Tensor> = states.iter().map(|state| &state.hidden).collect();
    Ok((output, stack(&hidden, 0)?))
}

fn layer_count(op: &str, num_layers: i64) -> Result<usize> {
    let count = usize::try_from(num_layers).ok().filter(|&count| count > 0);
    count.ok_or_else(|| Error::argument(op, format!("num_layers is {num_layers}, and must be at least 1")))
}

impl Layers<'_> {
    /// The outputs of all steps, and the last states of each layer and direction.
    fn run(
        &self,
        input: &Tensor,
        hidden: &Tensor,
        cell: Option<&Tensor>,
        batch_first: bool,
    ) -> Result<(Tensor, Vec<State>)> {
        let n_directions = if self.is_bidirectional { 2 } else { 1 };
        let n_states = self.n_layers.saturating_mul(n_directions);
        self.check(input, hidden, cell, n_states)?;
        let mut x = if batch_first { input.transpose(0, 1)? } else { input.clone() };
        let mut states = Vec::new();
        for layer in 0..self.n_layers {
            let mut outputs = Vec::new();
            for direction in 0..n_directions {
                let at = layer * n_directions + direction;
                let pick = |all: &Tensor| all.select(0, at as i64);
                let state = State { hidden: pick(hidden)?, cell: cell.map(pick).transpose()? };
                let (output, state) = self.direction(&x, state, &self.weights(at), direction == 1)?;
                outputs.push(output);
                states.push(state);
            }
            x = if let [output] = &outputs[..] { output.clone() } else { cat(&outputs.iter().collect::<Vec<_>>(), 2)? };
            if layer + 1 < self.n_layers && self.dropout > 0.0 {
                x = x.dropout(self.dropout, true)?;
            }
        }
        Ok((if batch_first { x.transpose(0, 1)? } else { x }, states))
    }

    fn check(&self, input: &Tensor, hidden: &Tensor, cell: Option<&Tensor>, n_states: usize) -> Result<()> {
        let bad = |what: String, hint: &str| Err(Error::shape(self.op, what, hint));
        if input.dim() != 3 {
            let what = format!("the input has shape {:?}", input.sizes());
            return bad(what, "it has three dims: steps, batch and features");
        }
        for state in [Some(hidden), cell].into_iter().flatten() {
            if state.dim() != 3 || state.sizes()[0] != n_states {
                let what = format!("a state has shape {:?}", state.sizes());
                return bad(what, &format!("its dims are {n_states} layers and directions, batch and features"));
            }
        }
        let n_params = n_states.saturating_mul(self.n_params());
        if self.params.len() != n_params {
            let what = format!("{} weights and biases were passed", self.params.len());
            return bad(what, &format!("{n_params} are needed for {n_states} layers and directions"));
        }
        Ok(())
    }

    /// How many parameters one direction of a layer has.
    fn n_params(&self) -> usize {
        let n = if self.has_biases { 4 } else { 2 };
        n + usize::from(self.is_projected)
    }

    fn weights(&self, at: usize) -> Weights<'_> {
        let own = &self.params[at * self.n_params()..][..self.n_params()];
        let (input_bias, state_bias) = if self.has_biases { (Some(&own[2]), Some(&own[3])) } else { (None, None) };
        let projection = if self.is_projected { own.last() } else { None };
        Weights { of_input: &own[0], of_state: &own[1], input_bias, state_bias, projection }
    }

    /// One direction of a layer: the outputs of all steps in the order of time, and the last state.
    fn direction(&self, x: &Tensor, state: State, weights: &Weights<'_>, is_reverse: bool) -> Result<(Tensor, State)> {
        let from_inputs = x.linear(weights.of_input, weights.input_bias)?;
        let mut inputs = from_inputs.unbind(0)?;
        if is_reverse {
            inputs.reverse();
        }
        let (mut state, mut outputs) = (state, Vec::with_capacity(inputs.len()));
        for from_input in &inputs {
            let from_state = state.hidden.linear(weights.of_state, weights.state_bias)?;
            state = step(self.op, self.cell, from_input, &from_state, &state)?;
            if let Some(projection) = weights.projection {
                state.hidden = state.hidden.linear(projection, None)?;
            }
            outputs.push(state.hidden.clone());
        }
        if is_reverse {
            outputs.reverse();
        }
        if outputs.is_empty() {
            return Err(Error::shape(self.op, "the input has no steps", "pass at least one"));
        }
        Ok((stack(&outputs.iter().collect::<Vec<_>>(), 0)?, state))
    }
}

/// One step, from the products with the input and with the state.
fn step(op: &'static str, cell: Cell, from_input: &Tensor, from_state: &Tensor, before: &State) -> Result<State> {
    let hidden = match (cell, &before.cell) {
        (Cell::Lstm, Some(cell)) => {
            let gates = from_state.add(from_input)?.chunk(4, 1)?;
            let [input, forget, candidate, output] = parts(op, &gates)?;
            let cell = forget.sigmoid()?.mul(cell)?.add(&input.sigmoid()?.mul(&candidate.tanh()?)?)?;
            let hidden = output.sigmoid()?.mul(&cell.tanh()?)?;
            return Ok(State { hidden, cell: Some(cell) });
        }
        (Cell::Gru, _) => {
            let (inputs, states) = (from_input.chunk(3, 1)?, from_state.chunk(3, 1)?);
            let ([reset_x, update_x, new_x], [reset_h, update_h, new_h]) = (parts(op, &inputs)?, parts(op, &states)?);
            let reset = reset_h.add(reset_x)?.sigmoid()?;
            let update = update_h.add(update_x)?.sigmoid()?;
            let new = new_x.add(&new_h.mul(&reset)?)?.tanh()?;
            before.hidden.sub(&new)?.mul(&update)?.add(&new)?
        }
        (Cell::Relu, _) => from_state.add(from_input)?.relu()?,
        (Cell::Tanh | Cell::Lstm, _) => from_state.add(from_input)?.tanh()?,
    };
    Ok(State { hidden, cell: None })
}

fn parts<'t, const N: usize>(op: &str, parts: &'t [Tensor]) -> Result<[&'t Tensor; N]> {
    let found = parts.iter().collect::<Vec<_>>();
    let n = found.len();
    found.try_into().map_err(|_| {
        Error::shape(op, format!("the weights give {n} gates"), format!("{N} gates of equal size are needed"))
    })
}
