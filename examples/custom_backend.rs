//! A device that the library does not know: `cargo run --release --example custom_backend`.
//!
//! The device is an accelerator that can add, multiply and take the greater of two numbers, for row-major f32 alone. It
//! registers under `PrivateUse1`: a runtime with memory of its own, kernels for what it can do, and one boxed fallback
//! that runs everything else on the CPU. A model written for any device then runs on it. The counts at the end say how
//! much of it ran there.
//!
//! Three things make a backend:
//!
//! 1. a [`Runtime`]: how many devices, how their streams are ordered, where their memory comes from;
//! 2. kernels on the key `PrivateUse1`, typed like the operators' schemas, and views, which only lay out memory anew;
//! 3. a fallback on that key, for the rest. Without one, a missing kernel is an error that names it.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use opfuse::device::runtime::{self, Registration};
use opfuse::device::{Allocator, DeviceKind, Runtime, Shared, Storage, StreamPool, allocator};
use opfuse::dispatch::Array;
use opfuse::dispatch::{
    DispatchKey, Kernel, KeySet, Library, Operator, Stack, Value, cpu_fallback, load, operator, rows,
};
use opfuse::ir::{Layout, Meaning, Op};
use opfuse::{DType, Device, Error, Result, Scalar, Tensor};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const DEVICE: Device = Device { kind: DeviceKind::PrivateUse1, index: Some(0) };

fn main() -> Result<()> {
    let backend = Backend::new()?;
    let x = Tensor::from_slice(&[1.0f32, -2.0, 3.0, 0.5, -0.25, 4.0], &[2, 3])?;
    let weight = Tensor::from_slice(&[0.5f32, 1.5, -1.0], &[3])?;
    let on_cpu = model(&x, &weight)?;

    let there = model(&x.to_device(DEVICE)?, &weight.to_device(DEVICE)?)?;
    println!("the result is on {}: {:?}", there.device(), there.sizes());
    let back = there.to_device(Device::CPU)?;
    println!("same bits as on the cpu: {}", back.to_vec::<f32>()? == on_cpu.to_vec::<f32>()?);

    println!("{:<24}{:>8}{:>8}", "operator", "there", "on cpu");
    for (name, count) in backend.calls.counts() {
        println!("{name:<24}{:>8}{:>8}", count.native, count.fallback);
    }
    drop((there, back));
    let stats = backend.runtime.memory.stats();
    println!("{} allocations, {} bytes still in use", stats.allocations, stats.live_bytes);
    Ok(())
}

/// Some of it is native, some is not.
fn model(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let hidden = ((x + x)? * weight)?;
    let positive = hidden.maximum(&Tensor::zeros_like(&hidden)?)?;
    positive.softmax(-1)?.t()?.contiguous()
}

/// Everything that is registered; dropping it takes the backend away.
struct Backend {
    runtime: Arc<Toy>,
    calls: Arc<Calls>,
    _libraries: Vec<Library>,
    _registration: Registration,
}

impl Backend {
    fn new() -> Result<Backend> {
        // The operators of the library must be there before kernels are added to them.
        load()?;
        let runtime = Arc::new(Toy::new());
        let registration = runtime::register(DeviceKind::PrivateUse1, runtime.clone())?;
        let calls = Arc::new(Calls::default());
        let mut kernels = Library::impl_block("aten", DispatchKey::PrivateUse1)?;
        arithmetic(&mut kernels, &calls)?;
        views(&mut kernels, &calls)?;
        // A fallback belongs to a key, not to a namespace: the block says `_`.
        let mut fallback = Library::impl_block("_", DispatchKey::PrivateUse1)?;
        let counted = calls.clone();
        fallback.fallback(Kernel::boxed(move |operator: &Operator, keys: KeySet, stack: &mut Stack| {
            counted.count(&operator.name().name, |count| &mut count.fallback);
            cpu_fallback(operator, keys, stack)
        }))?;
        Ok(Backend { runtime, calls, _libraries: vec![kernels, fallback], _registration: registration })
    }
}

/// Kernels of the three operations. Each is a Rust function with the types of the operator's schema.
fn arithmetic(library: &mut Library, calls: &Arc<Calls>) -> Result<()> {
    let counted = calls.clone();
    library.impl_("aten::add.Tensor", move |a: &Tensor, b: &Tensor, alpha: Scalar| {
        let factor = alpha.as_f64() as f32;
        counted.run("aten::add", [a, b], |x, y| x + factor * y, |a, b| a.add_scaled(b, alpha))
    })?;
    let counted = calls.clone();
    library.impl_("aten::mul.Tensor", move |a: &Tensor, b: &Tensor| {
        counted.run("aten::mul", [a, b], |x, y| x * y, |a, b| a.mul(b))
    })?;
    let counted = calls.clone();
    library.impl_("aten::maximum", move |a: &Tensor, b: &Tensor| {
        let greater = |x: f32, y: f32| if x.is_nan() || x > y { x } else { y };
        counted.run("aten::maximum", [a, b], greater, |a, b| a.maximum(b))
    })?;
    Ok(())
}

/// Views: the layout that the op's row gives, over the same storage. A fallback cannot make them, since a copy on the
/// CPU would be no view.
fn views(library: &mut Library, calls: &Arc<Calls>) -> Result<()> {
    for &op in Op::ALL {
        let Meaning::View(rule) = op.row().meaning else { continue };
        let counted = calls.clone();
        let kernel = move |operator: &Operator, _: KeySet, stack: &mut Stack| {
            let (tensors, attrs) = rows::unpack(op, stack)?;
            let array = tensors[0].array();
            let layout = rule(array.layout(), &attrs)?;
            let view = Array::from_storage(array.storage().clone(), array.dtype(), layout)?;
            counted.count(&operator.name().name, |count| &mut count.native);
            stack.clear();
            stack.push(Value::Tensor(Tensor::from_array(view)));
            Ok(())
        };
        library.impl_(&operator(op)?.name().to_string(), Kernel::boxed(kernel))?;
    }
    Ok(())
}

/// How often an operator ran on the device and on the CPU.
#[derive(Default, Clone, Copy)]
struct Count {
    native: u32,
    fallback: u32,
}

#[derive(Default)]
struct Calls(Mutex<BTreeMap<String, Count>>);

impl Calls {
    fn count(&self, name: &str, which: impl FnOnce(&mut Count) -> &mut u32) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *which(calls.entry(name.into()).or_default()) += 1;
    }

    fn counts(&self) -> BTreeMap<String, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One operation: element by element over row-major f32 of one shape, or a row for every row. What the hardware
    /// cannot do, other dtypes and layouts, the kernel hands to the CPU itself.
    fn run(
        &self,
        name: &str,
        operands: [&Tensor; 2],
        native: impl Fn(f32, f32) -> f32,
        on_cpu: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let fits = |x: &Tensor| x.device() == DEVICE && x.dtype() == DType::F32 && x.is_contiguous() && x.numel() > 0;
        let [a, b] = operands;
        if !(fits(a) && fits(b) && a.sizes().ends_with(b.sizes())) {
            self.count(name, |count| &mut count.fallback);
            // A plain number stays one: it promotes weakly.
            let host = |x: &Tensor| if x.as_number().is_some() { Ok(x.clone()) } else { x.to_device(Device::CPU) };
            return on_cpu(&host(a)?, &host(b)?)?.to_device(DEVICE);
        }
        self.count(name, |count| &mut count.native);
        let read = |x: &Tensor| {
            let start = x.storage_offset() * 4;
            x.array().storage().read(|bytes| bytes[start..start + x.numel() * 4].to_vec())
        };
        let float = |bytes: &[u8]| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let (left, right) = (read(a), read(b));
        let pairs = left.chunks_exact(4).zip(right.chunks_exact(4).cycle());
        let bytes: Vec<u8> = pairs.flat_map(|(x, y)| native(float(x), float(y)).to_ne_bytes()).collect();
        let storage = Shared::new(Storage::copy_of(DEVICE, &bytes)?);
        Array::from_storage(storage, DType::F32, Layout::contiguous(a.sizes())).map(Tensor::from_array)
    }
}

/// The driver: one device that has done its work when a call returns, so all points are reached at once. Its memory is
/// host memory, kept apart by a pool that waits for streams, as a real device would need it.
struct Toy {
    memory: StreamPool,
}

impl Toy {
    fn new() -> Toy {
        Toy { memory: StreamPool::new(DEVICE, allocator::allocate) }
    }
}

impl Runtime for Toy {
    fn device_count(&self) -> u16 {
        1
    }

    fn create_stream(&self, _: u16) -> Result<u64> {
        Err(Error::argument("stream", "this device has one stream"))
    }

    fn destroy_stream(&self, _: u16, _: u64) {}

    fn mark(&self, _: u16, _: u64) -> Result<u64> {
        Ok(0)
    }

    fn is_reached(&self, _: u16, _: u64) -> Result<bool> {
        Ok(true)
    }

    fn wait(&self, _: u16, _: u64) -> Result<()> {
        Ok(())
    }

    fn hold(&self, _: u16, _: u64, _: u16, _: u64) -> Result<()> {
        Ok(())
    }

    fn time_between(&self, _: u16, _: u64, _: u64) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn allocator(&self, _: u16) -> &dyn Allocator {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, since there is one `PrivateUse1`.
    #[test]
    fn the_backend_computes_what_the_cpu_computes() -> Result<()> {
        let backend = Backend::new()?;
        let x = Tensor::from_slice(&[1.0f32, -2.0, 3.0, 0.5, -0.25, 4.0], &[2, 3])?;
        let weight = Tensor::from_slice(&[0.5f32, 1.5, -1.0], &[3])?;
        let (there, row) = (x.to_device(DEVICE)?, weight.to_device(DEVICE)?);
        let result = model(&there, &row)?;
        assert_eq!((result.device(), result.sizes()), (DEVICE, &[3, 2][..]));
        assert_eq!(result.to_device(Device::CPU)?.to_vec::<f32>()?, model(&x, &weight)?.to_vec::<f32>()?);
        let counts = backend.calls.counts();
        for (name, native, fallback) in [("aten::add", 1, 0), ("aten::mul", 1, 0), ("aten::_softmax", 0, 1)] {
            assert_eq!((counts[name].native, counts[name].fallback), (native, fallback), "{name}");
        }

        // A column is no native operand; nor is a number, which still promotes as one.
        let column = there.t()?.add(&there.t()?)?;
        assert_eq!(column.to_device(Device::CPU)?.to_vec::<f32>()?, x.t()?.add(&x.t()?)?.to_vec::<f32>()?);
        assert_eq!((there.mul(2)?.dtype(), there.mul(2)?.device()), (DType::F32, DEVICE));
        assert_eq!(backend.calls.counts()["aten::add"].fallback, 1);
        // Views share memory; what a fallback would have to share is refused.
        assert!(there.t()?.is_alias_of(&there));
        let window = there.as_strided([2], [1], None).expect_err("no kernel makes windows");
        assert!(window.to_string().contains("register a kernel"), "{window}");
        // The generators of all devices give the same numbers.
        let random = Tensor::rand_like(&there)?;
        assert_eq!((random.device(), random.sizes()), (DEVICE, there.sizes()));

        // Writes reach the device's memory, and gradients flow through the backend's kernels.
        let written = there.add(&there)?;
        let part = written.select(0, 1)?;
        part.mul_(10.0)?;
        written.add_(&there)?;
        let expected = [3.0, -6.0, 9.0, 10.5, -5.25, 84.0];
        assert_eq!(written.to_device(Device::CPU)?.to_vec::<f32>()?, expected);
        let gradient = |device: Device| -> Result<Vec<f32>> {
            let leaf = x.copy()?;
            leaf.set_requires_grad(true)?;
            model(&leaf.to_device(device)?, &weight.to_device(device)?)?.square()?.sum_all()?.backward()?;
            leaf.grad().ok_or_else(|| Error::argument("gradient", "the leaf was used"))?.to_vec()
        };
        assert_eq!(gradient(DEVICE)?, gradient(Device::CPU)?);

        let live = backend.runtime.memory.stats().live_blocks;
        drop((there, row, result, column, random, written, part));
        assert!(live > 0 && backend.runtime.memory.stats().live_blocks == 0);
        Ok(())
    }
}
