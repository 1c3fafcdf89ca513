//! Plain numbers in structures that change from call to call, such as a learning rate.
//!
//! A plain value of a structure is part of the guard, and the function sees it as a Rust number, so it may do anything
//! with it. When a second capture differs from the first in such values, the numbers that differ in the two traces are
//! found by the order in which the traces met them. From then on they are inputs of one program. Each call with new
//! values traces the function again, on shapes alone, which finds the numbers of the call. If the trace is that of the
//! program in all else, the program runs with these numbers, and nothing is planned or compiled.
//!
//! A number that is an input has the bits of eager calls: it is a plain number in f64 or i64, and promotes as one.
//! Numbers that became arguments of an op, such as the slope of `leaky_relu`, are not found here.

use super::program::{Joint, Program};
use crate::ir::{Scalar, Strides};
use crate::tensor::ids::Mark;
use crate::tensor::structure::Words;
use crate::transforms::tracer::{Lifted, NewGradient, OutputKind, Outside, Owner, Trace};
use std::sync::Arc;

/// How many traces that fit no program are tried before the values count as part of the guard for good.
const MAX_MISSES: u32 = 8;

/// Programs that differ in plain numbers alone.
#[derive(Default)]
pub(super) struct Template {
    /// The plain values of the last capture.
    words: Words,
    /// The numbers of the last trace, in the order in which it met them.
    numbers: Vec<Scalar>,
    /// Which of them differed between traces.
    changing: Vec<usize>,
    program: Option<(Arc<Program>, Arc<Outline>)>,
    misses: u32,
}

impl Template {
    /// Notes the numbers of a trace with these plain values.
    pub(super) fn note(&mut self, words: &Words, numbers: &[Scalar]) {
        if self.numbers.len() == numbers.len() && self.words != *words {
            self.compare(numbers);
        }
        self.words = words.clone();
        self.numbers = numbers.to_vec();
    }

    /// Adds the numbers that differ from those of the last trace. Returns whether there are new ones.
    pub(super) fn compare(&mut self, numbers: &[Scalar]) -> bool {
        if self.numbers.len() != numbers.len() {
            return false;
        }
        let before = self.changing.len();
        for (at, (one, other)) in self.numbers.iter().zip(numbers).enumerate() {
            if !is_same(one, other) && !self.changing.contains(&at) {
                self.changing.push(at);
            }
        }
        self.changing.len() > before
    }

    /// The numbers that shall become inputs. `None` if there are none, or if traces do not fit programs.
    pub(super) fn changing(&self) -> Option<Vec<usize>> {
        (!self.changing.is_empty() && self.misses < MAX_MISSES).then(|| self.changing.clone())
    }

    /// The program, if it is that of a trace with this outline.
    pub(super) fn fitting(&self, outline: &Outline) -> Option<Arc<Program>> {
        self.program.as_ref().filter(|(_, known)| **known == *outline).map(|(program, _)| program.clone())
    }

    /// Whether there is a program.
    pub(super) fn has_program(&self) -> bool {
        self.program.is_some()
    }

    /// The number of inputs that are plain numbers of the function.
    pub(super) fn n_inputs(&self) -> usize {
        self.changing.len()
    }

    /// The program, for reports.
    pub(super) fn program(&self) -> Option<&Program> {
        self.program.as_ref().map(|(program, _)| &**program)
    }

    /// Sets the program of a trace with this outline.
    pub(super) fn put(&mut self, program: Arc<Program>, outline: Outline) {
        self.program = Some((program, Arc::new(outline)));
    }

    /// Counts a trace that fits no program. The next one gets a program of its own.
    pub(super) fn misses(&mut self) {
        self.misses += 1;
        self.program = None;
    }
}

fn is_same(one: &Scalar, other: &Scalar) -> bool {
    match (one, other) {
        (Scalar::Float(one), Scalar::Float(other)) => one.to_bits() == other.to_bits(),
        _others => one == other,
    }
}

/// All of a trace but its graph and the values of its inputs.
#[derive(PartialEq)]
pub(super) struct Outline {
    written: Vec<usize>,
    n_writes: Vec<u64>,
    owners: Vec<Owner>,
    strides: Vec<Strides>,
    inference: Vec<usize>,
    gradients: Vec<(Key, NewGradient, bool)>,
    aliases: Vec<OutputKind>,
    differentiable: Vec<usize>,
    n_outputs: usize,
    n_results: usize,
    words: Words,
    operands: Vec<usize>,
}

/// A tensor from outside: the position of an input, or the id of a captured tensor.
#[derive(PartialEq)]
enum Key {
    Given(usize),
    Captured(u64),
}

impl Outline {
    pub(super) fn of(trace: &Trace, joint: &Joint) -> Outline {
        let key = |of: &Outside| match of {
            Outside::Given(index) => Key::Given(*index),
            Outside::Captured(tensor) => Key::Captured(tensor.id()),
        };
        Outline {
            written: trace.written.clone(),
            n_writes: trace.n_writes.clone(),
            owners: trace.owners.clone(),
            strides: trace.strides.clone(),
            inference: trace.inference.clone(),
            gradients: trace.gradients.iter().map(|change| (key(&change.of), change.to, change.is_inference)).collect(),
            aliases: trace.aliases.iter().map(|alias| alias.kind()).collect(),
            differentiable: joint.differentiable.clone(),
            n_outputs: joint.n_outputs,
            n_results: joint.n_results,
            words: joint.words.clone(),
            operands: joint.operands.iter().map(|(operand, _)| *operand).collect(),
        }
    }
}

/// Whether the lifted inputs of a trace can take the places of those of a program. The trace was made after
/// `start`.
pub(super) fn are_alike(known: &[Lifted], found: &[Lifted], start: &Mark) -> bool {
    let is_alike = |(known, found): (&Lifted, &Lifted)| match (known, found) {
        (Lifted::Tensor(one), Lifted::Tensor(other)) if one.id() != other.id() => {
            start.is_before(other.id()) && known.is_same(found)
        }
        _others => known.is_same(found),
    };
    // A program does not keep its cotangents.
    let found = || found.iter().filter(|lifted| !matches!(lifted, Lifted::Declared));
    known.len() == found().count() && known.iter().zip(found()).all(is_alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_differ_are_found_once() {
        let mut template = Template::default();
        let (mut one, mut two) = (Words::new(), Words::new());
        one.push(1);
        two.push(2);
        template.note(&one, &[Scalar::Float(0.5), Scalar::Int(3), Scalar::Float(0.0)]);
        assert_eq!(template.changing(), None, "one trace says nothing");
        template.note(&two, &[Scalar::Float(0.5), Scalar::Int(4), Scalar::Float(-0.0)]);
        assert_eq!(template.changing(), Some(vec![1, 2]), "by bits");
        assert!(!template.compare(&[Scalar::Float(0.5), Scalar::Int(9), Scalar::Float(1.0)]));
        assert!(template.compare(&[Scalar::Float(f64::NAN), Scalar::Int(4), Scalar::Float(-0.0)]));
        assert!(!template.compare(&[Scalar::Int(1)]), "a trace with other calls");
        (0..MAX_MISSES).for_each(|_| template.misses());
        assert_eq!(template.changing(), None, "traces fit no program");
    }
}
