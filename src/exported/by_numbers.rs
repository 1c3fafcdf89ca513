//! Captures of a program for certain numbers as arguments.
//!
//! A number that a program takes may be a size, a factor or a condition. A capture that reads it would end there, so
//! the first [`CAPACITY`] sets of numbers get a capture each, with the numbers as constants. Calls with later ones read
//! them, and run in segments.

use crate::compile::{CompileOptions, Compiled, compile_with};
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::exported::{BoxedFunction, Inner};
use crate::tensor::handle::Tensor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most sets of numbers that have a capture.
const CAPACITY: usize = 32;

type Variant = Arc<Compiled<BoxedFunction, Vec<Tensor>>>;

/// The kind and the bits of each number.
type Numbers = Vec<(u8, u64)>;

type Variants = Vec<(Numbers, Variant)>;

/// The captures, by numbers, in the order in which they came.
pub(super) struct ByNumbers {
    options: CompileOptions,
    variants: Mutex<Variants>,
}

impl ByNumbers {
    pub(super) fn new(options: CompileOptions) -> ByNumbers {
        ByNumbers { options, variants: Mutex::default() }
    }

    /// The capture for the numbers among the inputs. `None` if there are no numbers, or no room.
    ///
    /// # Errors
    /// If a number cannot be read.
    pub(super) fn find(&self, inner: &Arc<Inner>, inputs: &[Tensor]) -> Result<Option<Variant>> {
        if inner.users.iter().all(|user| user.meta.is_some()) {
            return Ok(None);
        }
        let numbers = inner.numbers(inputs)?;
        let key: Numbers = numbers.iter().map(bits).collect();
        let mut variants = self.lock();
        if let Some((_, found)) = variants.iter().find(|(known, _)| *known == key) {
            return Ok(Some(found.clone()));
        }
        if variants.len() == CAPACITY {
            return Ok(None);
        }
        let shared = inner.clone();
        let function: BoxedFunction = Box::new(move |inputs| shared.run(inputs, Some(&numbers)));
        let variant = Arc::new(compile_with(function, self.options.clone()));
        variants.push((key, variant.clone()));
        Ok(Some(variant))
    }

    /// The capture that came last.
    pub(super) fn last(&self) -> Option<Variant> {
        self.lock().last().map(|(_, variant)| variant.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Variants> {
        self.variants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kind of a number and its bits.
fn bits(number: &Value) -> (u8, u64) {
    match number {
        Value::Int(number) => (0, *number as u64),
        Value::Float(number) => (1, number.to_bits()),
        Value::Bool(flag) => (2, u64::from(*flag)),
        // `Inner::numbers` gives no others.
        _ => (3, 0),
    }
}
