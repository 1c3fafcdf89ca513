//! Linear algebra of complex matrices: the rows take pairs, if they are told so by an argument.

use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::{Stack, Value};
use crate::error::Result;
use crate::ir::{Meaning, Op, Routine};
use crate::ops::complex_numbers::{as_pairs, of_pairs};
use crate::tensor::handle::Tensor;
use crate::transforms::autocast::no_autocast;
use crate::transforms::complex::operands::common;

/// The argument that says so.
const PAIRS: &str = "pairs";

pub(super) fn register(library: &mut Library) -> Result<()> {
    let is_of_matrices = |op: &&Op| matches!(op.row().meaning, Meaning::Routine(Routine::Matrix(_)));
    for op in Op::ALL.iter().filter(is_of_matrices).filter(|op| op.attr_names().contains(&PAIRS)) {
        library.impl_(op.name(), Kernel::boxed(kernel).named("complex"))?;
    }
    Ok(())
}

fn kernel(operator: &Operator, _: KeySet, stack: &mut Stack) -> Result<()> {
    // There are no complex numbers of 16-bit parts.
    let _wide = no_autocast();
    let arguments = operator.schema().map_or(&[][..], |schema| &schema.arguments);
    let tensors: Vec<&Tensor> = stack.iter().flat_map(Value::tensors).collect();
    let dtype = common(&tensors);
    for tensor in stack.iter_mut().flat_map(Value::tensors_mut) {
        *tensor = as_pairs(tensor, dtype)?;
    }
    for (value, _) in stack.iter_mut().zip(arguments).filter(|(_, argument)| argument.name == PAIRS) {
        *value = Value::Bool(true);
    }
    operator.call_boxed(stack)?;
    stack.iter_mut().flat_map(Value::tensors_mut).try_for_each(|tensor| {
        *tensor = of_pairs(tensor)?;
        Ok(())
    })
}
