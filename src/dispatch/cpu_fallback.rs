//! Runs operators on the CPU for a backend that has no kernel for them.
//!
//! A backend registers [`cpu_fallback`] as the boxed fallback of its key. The tensors of a call are copied to the CPU,
//! the operator's CPU kernel runs, and its results and writes are copied back. Tensors that share memory share it on
//! the CPU too, so a write through one is seen by the others. Views are an error, because a copy is not a view: a
//! backend registers kernels for them, which only make a new layout of the same storage.

use crate::device::{Device, DeviceKind, Shared, Storage};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::runtime::Array;
use crate::tensor::handle::Tensor;

/// Runs an operator on the CPU, and copies its results to the device of its first tensor that is not on the CPU.
///
/// # Errors
/// If the operator returns a view or has no CPU kernel, if the host cannot access the memory of the device, or if the
/// CPU kernel fails.
pub fn cpu_fallback(operator: &Operator, _: KeySet, stack: &mut Stack) -> Result<()> {
    let name = || operator.name().to_string();
    let schema = operator.schema().ok_or_else(|| Error::argument(name(), "has no schema"))?;
    let elsewhere = |tensor: &&Tensor| tensor.device().kind != DeviceKind::Cpu;
    let Some(device) = stack.iter().flat_map(Value::tensors).find(elsewhere).map(Tensor::device) else {
        return operator.redispatch_boxed(KeySet::of(DispatchKey::CPU), stack);
    };
    if let Some(view) = schema.returns.iter().find(|value| value.alias.as_ref().is_some_and(|alias| !alias.is_write)) {
        let what = format!("a {} that shares memory of {device} cannot be made on the cpu", view.ty);
        let hint = format!("register a kernel of {} for {}", operator.name(), device.kind);
        return Err(Error::Device { op: name(), what, hint });
    }
    let mut host = Host { device, copies: Vec::new() };
    let mut written: Vec<Tensor> = Vec::new();
    for (argument, value) in schema.arguments.iter().zip(stack.iter_mut()) {
        if argument.alias.as_ref().is_some_and(|alias| alias.is_write) {
            written.extend(value.tensors().cloned());
        }
        host.bring_in(value)?;
    }
    operator.redispatch_boxed(KeySet::of(DispatchKey::CPU), stack)?;
    for tensor in &written {
        host.write_back(tensor)?;
    }
    // A result that is a written argument has the same position among the results as among the written arguments.
    let mut written = written.into_iter();
    for (value, result) in schema.returns.iter().zip(stack.iter_mut()) {
        let is_written = value.alias.as_ref().is_some_and(|alias| alias.is_write);
        match if is_written { written.next() } else { None } {
            Some(tensor) => *result = Value::Tensor(tensor),
            None => host.bring_out(result)?,
        }
    }
    Ok(())
}

/// The CPU copies of the device's storages during one call.
struct Host {
    device: Device,
    copies: Vec<(Shared<Storage>, Shared<Storage>)>,
}

impl Host {
    /// Replaces all tensors of the value by CPU copies.
    fn bring_in(&mut self, value: &mut Value) -> Result<()> {
        match value {
            Value::Device(device) if device.kind == self.device.kind => *device = Device::CPU,
            value => map(value, |tensor| self.on_host(tensor))?,
        }
        Ok(())
    }

    fn on_host(&mut self, tensor: &Tensor) -> Result<Tensor> {
        if tensor.device().kind == DeviceKind::Cpu {
            return Ok(tensor.clone());
        }
        let array = tensor.array();
        let storage = array.storage();
        let known = self.copies.iter().find(|(original, _)| Shared::ptr_eq(original, storage));
        let copy = match known {
            Some((_, copy)) => copy.clone(),
            None => {
                let copy = Shared::new(copy_storage(storage, Device::CPU)?);
                self.copies.push((storage.clone(), copy.clone()));
                copy
            }
        };
        Array::from_storage(copy, array.dtype(), array.layout().clone()).map(Tensor::from_array)
    }

    /// Replaces all tensors of the value by tensors on the device.
    fn bring_out(&self, value: &mut Value) -> Result<()> {
        map(value, |tensor| {
            let array = tensor.array();
            let storage = Shared::new(copy_storage(array.storage(), self.device)?);
            Array::from_storage(storage, array.dtype(), array.layout().clone()).map(Tensor::from_array)
        })
    }

    /// Copies the CPU's writes into the memory of a tensor on the device.
    fn write_back(&self, tensor: &Tensor) -> Result<()> {
        let storage = tensor.array().storage();
        let Some((_, copy)) = self.copies.iter().find(|(original, _)| Shared::ptr_eq(original, storage)) else {
            return Ok(());
        };
        copy.read(|from| storage.store(from))
    }
}

/// Replaces every tensor of a value except plain numbers.
fn map(value: &mut Value, mut work: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<()> {
    for tensor in value.tensors_mut().filter(|tensor| tensor.as_number().is_none()) {
        *tensor = work(tensor)?;
    }
    Ok(())
}

/// A copy of a storage on a device.
pub(crate) fn copy_storage(storage: &Storage, device: Device) -> Result<Storage> {
    if storage.device().kind == DeviceKind::Meta && !storage.is_empty() {
        let what = format!("{} has no data to copy to {device}", storage.device());
        return Err(Error::Device { op: "to".into(), what, hint: "meta tensors have shapes only".into() });
    }
    storage.copy_to(device)
}
