//! The rows on opfuse: the functions of `benches/workloads`, called eagerly or compiled.
//!
//! Single small operations (W20) are called as a user would, with tensors in and a tensor out. All others take a slice
//! and return a list. A training step (W14) goes on from the parameters that the last one left. A row may be scaled.
//! Calls may go through several sets of operands, so that a device's cache holds none of them.

use crate::large;
use crate::scale::Scale;
use crate::session::{Peer, Row};
use crate::workloads::{self, Function, TOLERANCE, Workload};
use opfuse::device::{Device, DeviceKind, Stream, allocator};
use opfuse::internals::codegen::cache;
use opfuse::{CompileOptions, Numerics, Result, Tensor, compile_with};
use std::rc::Rc;

/// How functions are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As they are.
    Eager,
    /// Through `compile`, with these numerics.
    Compiled(Numerics),
}

pub(crate) struct Opfuse {
    mode: Mode,
    device: Device,
}

impl Opfuse {
    /// The first call of a process registers operators, starts threads and finds devices; that is no row's first call.
    ///
    /// # Errors
    /// If the device is not there.
    pub(crate) fn new(mode: Mode, device: Device) -> std::result::Result<Opfuse, String> {
        let mut opfuse = Opfuse { mode, device };
        opfuse.row("W20c").and_then(|mut row| (row.call)()).map(drop)?;
        opfuse.wait().map(|()| opfuse)
    }

    fn is_on_cpu(&self) -> bool {
        self.device.kind == DeviceKind::Cpu
    }
}

/// What a call gives; a single tensor comes without a list around it.
pub(crate) enum Outputs {
    One(Tensor),
    Many(Vec<Tensor>),
}

impl Outputs {
    fn check(&self, workload: &Workload) -> Result<f64> {
        match self {
            Outputs::One(tensor) => workload.check_of(std::slice::from_ref(tensor)),
            Outputs::Many(tensors) => workload.check_of(tensors),
        }
    }
}

/// A function of `benches/workloads` in one of the modes.
type Called = Rc<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;
/// The same with its inputs.
type Call = Box<dyn FnMut() -> Result<Outputs>>;

impl Peer for Opfuse {
    type Output = Outputs;
    const VERSION: &'static str = "opfuse";

    fn forget(&mut self) {
        cache::clear();
        allocator::trim();
    }

    fn row(&mut self, name: &str) -> std::result::Result<Row<Outputs>, String> {
        let (id, scale) = Scale::of_name(name)?;
        let mut all = workloads::all().into_iter().chain(large::WORKLOADS);
        let workload = all.find(|workload| workload.id == id).ok_or(format!("no row {id}"))?;
        let mut sets = scale.sets((workload.inputs)().map_err(text)?, self.device).map_err(text)?;
        // What making them has left in the cache is no memory of the row.
        allocator::trim();
        let mut calls: Vec<Call> = Vec::new();
        let function = called(workload.run, self.mode);
        for inputs in sets.drain(..) {
            calls.push(match (id, self.mode) {
                ("W20a" | "W20b", mode) => sum(inputs, mode),
                ("W20c", mode) => relu_of_small_fma(inputs, mode),
                ("W14", _) => steps(inputs, function.clone()),
                _ => whole(inputs, function.clone()),
            });
        }
        let mut turn = 0;
        let is_known = self.is_on_cpu() && scale.is_plain();
        Ok(Row {
            call: Box::new(move || {
                turn = (turn + 1) % calls.len();
                calls[turn]().map_err(text)
            }),
            check: Box::new(move |outputs| {
                let found = outputs.check(&workload).map_err(text)?;
                if is_known { right(found, &workload) } else { Ok(found) }
            }),
        })
    }

    fn wait(&self) -> std::result::Result<(), String> {
        if self.is_on_cpu() {
            return Ok(());
        }
        Stream::current(self.device).and_then(|stream| stream.synchronize()).map_err(text)
    }

    fn sample(&self) -> f64 {
        if self.is_on_cpu() { 300e-6 } else { 2e-3 }
    }
}

/// What was found, if it is what other libraries found.
fn right(found: f64, workload: &Workload) -> std::result::Result<f64, String> {
    let Workload { id, check, .. } = workload;
    let is_right = check.is_nan() || (found - check).abs() <= TOLERANCE * check.abs();
    is_right.then_some(found).ok_or_else(|| format!("{id} adds up to {found}, not {check}"))
}

#[cold]
fn text(error: opfuse::Error) -> String {
    error.to_string()
}

fn called(function: Function, mode: Mode) -> Called {
    match mode {
        Mode::Eager => Rc::new(function),
        Mode::Compiled(numerics) => {
            let compiled = compile_with::<Vec<Tensor>, _>(function, options(numerics));
            Rc::new(move |inputs| compiled.call(inputs))
        }
    }
}

fn options(numerics: Numerics) -> CompileOptions {
    CompileOptions { numerics: Some(numerics), ..CompileOptions::default() }
}

fn whole(inputs: Vec<Tensor>, function: Called) -> Call {
    Box::new(move || function(&inputs).map(Outputs::Many))
}

/// Training: the parameters that a step leaves are the next one's.
fn steps(mut inputs: Vec<Tensor>, function: Called) -> Call {
    Box::new(move || {
        let mut outputs = function(&inputs)?;
        for (held, new) in inputs[1..].iter_mut().zip(outputs.drain(1..)) {
            *held = new;
        }
        Ok(Outputs::Many(outputs))
    })
}

fn sum(inputs: Vec<Tensor>, mode: Mode) -> Call {
    match mode {
        Mode::Eager => Box::new(move || (&inputs[0] + &inputs[1]).map(Outputs::One)),
        Mode::Compiled(numerics) => {
            let compiled = compile_with(|a: &Tensor, b: &Tensor| a + b, options(numerics));
            Box::new(move || compiled.call((&inputs[0], &inputs[1])).map(Outputs::One))
        }
    }
}

fn relu_of_small_fma(inputs: Vec<Tensor>, mode: Mode) -> Call {
    let fma = |a: &Tensor, b: &Tensor, c: &Tensor| ((a * b)? + c)?.relu();
    match mode {
        Mode::Eager => Box::new(move || fma(&inputs[0], &inputs[1], &inputs[2]).map(Outputs::One)),
        Mode::Compiled(numerics) => {
            let compiled = compile_with(fma, options(numerics));
            Box::new(move || compiled.call((&inputs[0], &inputs[1], &inputs[2])).map(Outputs::One))
        }
    }
}
