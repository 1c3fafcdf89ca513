//! An operator of your own, with everything that the library's own have: `cargo run --release --example custom_op`.
//!
//! `mylib::charbonnier(x, eps)` is `√(x² + eps²)`, a smooth absolute value. It gets, each under its dispatch key,
//!
//! 1. a schema, so that anyone can call it by name, with defaults and checks;
//! 2. a CPU kernel, here a plain Rust loop;
//! 3. a Meta kernel, which answers with shapes alone;
//! 4. a derivative of its own;
//! 5. a body of operators of the library, which a trace records. So it takes part in fusion: the compiler knows nothing
//!    of the loop, but all about the body. Without a body the call would be one node between fused parts, and the
//!    compiled function would call the loop.
//!
//! Kernel and body must agree, because a compiled function has the bits of the eager one. Here each step of the loop is
//! one IEEE operation, and so is each operator of the body.
//!
//! `mylib::smooth_loss(x, target)` is a composite. An operator that is made of others needs its schema and one
//! function: every key sees the parts.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use opfuse::autograd::{self, Context, Function};
use opfuse::dispatch::{DispatchKey, Dispatcher, Library, below_autograd};
use opfuse::ir::TensorType;
use opfuse::{DType, Error, Result, Tensor, compile};

fn main() -> Result<()> {
    // The operators exist for as long as the libraries do.
    let _libraries = register()?;
    let x = Tensor::from_slice(&[3.0f32, -0.5, 0.0, 2.0], &[4])?;
    let target = Tensor::zeros(&[4], DType::F32)?;
    println!("eager:     {:?}", charbonnier(&x, 0.5)?.to_vec::<f32>()?);
    println!("on meta:   {}", charbonnier(&Tensor::meta(&TensorType::contiguous(DType::F32, &[8, 2]))?, 0.5)?.ty());

    let leaf = x.copy()?;
    leaf.set_requires_grad(true)?;
    charbonnier(&leaf, 0.5)?.sum_all()?.backward()?;
    println!("gradient:  {:?}", leaf.grad().map(|grad| grad.to_vec::<f32>()).transpose()?);

    let fused = compile(|x: &Tensor, target: &Tensor| smooth_loss(&x.mul(2.0)?, target)?.exp());
    let (compiled, eager) = (fused.call((&x, &target))?, smooth_loss(&x.mul(2.0)?, &target)?.exp()?);
    println!("compiled:  {:?}, eager {:?}", compiled.to_vec::<f32>()?, eager.to_vec::<f32>()?);
    println!("kernels:   {}", fused.explain().kernels_after);

    // A wrong call says what would be right.
    let wrong = charbonnier(&Tensor::ones(&[2], DType::I64)?, 0.5);
    println!("refused:   {}", wrong.err().map_or_else(String::new, |error| error.to_string()));
    Ok(())
}

const CHARBONNIER: &str = "mylib::charbonnier";

fn register() -> Result<Vec<Library>> {
    let mut definitions = Library::def_block("mylib")?;
    definitions.def("charbonnier(Tensor x, float eps=0.001) -> Tensor")?;
    definitions.impl_for(CHARBONNIER, DispatchKey::CPU, on_cpu)?;
    definitions.impl_for(CHARBONNIER, DispatchKey::Meta, on_meta)?;
    definitions.impl_for(CHARBONNIER, DispatchKey::Autograd, with_derivative)?;
    definitions.impl_for(CHARBONNIER, DispatchKey::Tracer, body)?;
    // A kernel given with the schema is the decomposition.
    definitions.def_kernel("smooth_loss(Tensor x, Tensor target) -> Tensor", |x: &Tensor, target: &Tensor| {
        charbonnier(&x.sub(target)?, 1e-3)?.mean_all()
    })?;
    Ok(vec![definitions])
}

/// What users call. A library would look its operators up once and keep them.
fn charbonnier(x: &Tensor, eps: f64) -> Result<Tensor> {
    Dispatcher::global().lookup(CHARBONNIER)?.call((x, eps))
}

fn smooth_loss(x: &Tensor, target: &Tensor) -> Result<Tensor> {
    Dispatcher::global().lookup("mylib::smooth_loss")?.call((x, target))
}

/// The CPU kernel: f32 in any layout.
fn on_cpu(x: &Tensor, eps: f64) -> Result<Tensor> {
    need_f32(x)?;
    let square = (eps * eps) as f32;
    let values: Vec<f32> = x.to_vec::<f32>()?.into_iter().map(|x| (x * x + square).sqrt()).collect();
    Tensor::from_vec(values, x.sizes())
}

/// The Meta kernel: the type of the result.
fn on_meta(x: &Tensor, _: f64) -> Result<Tensor> {
    need_f32(x)?;
    Tensor::meta(&TensorType::contiguous(DType::F32, x.sizes()))
}

fn need_f32(x: &Tensor) -> Result<()> {
    if x.dtype() == DType::F32 {
        return Ok(());
    }
    Err(Error::dtype(CHARBONNIER, x.dtype(), "f32", "convert with to_dtype(DType::F32) first"))
}

/// The body, for traces.
fn body(x: &Tensor, eps: f64) -> Result<Tensor> {
    need_f32(x)?;
    x.square()?.add(eps * eps)?.sqrt()?.contiguous()
}

/// The kernel of the autograd keys: the call below them, recorded with its derivative.
fn with_derivative(x: &Tensor, eps: f64) -> Result<Tensor> {
    let mut results = autograd::apply(Charbonnier { eps }, &[x])?;
    results.pop().ok_or_else(|| Error::argument(CHARBONNIER, "forward gave nothing"))
}

struct Charbonnier {
    eps: f64,
}

impl Function for Charbonnier {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let _below = below_autograd();
        context.save(&inputs[0]);
        context.save_result(0);
        Ok(vec![charbonnier(&inputs[0], self.eps)?])
    }

    /// `x / √(x² + eps²)`.
    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradients[0].mul(&saved[0].div(&saved[1])?)?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opfuse::autograd::{GradOptions, grad};
    use opfuse::dispatch::Value;

    /// One test, since there is one `mylib`.
    #[test]
    fn the_operator_is_like_any_other() -> Result<()> {
        let _libraries = register()?;
        let numbers: Vec<f32> = (0..60).map(|i| (i as f32 - 30.0) / 7.0).collect();
        let x = Tensor::from_vec(numbers.clone(), &[6, 10])?;

        // Eager by the kernel, compiled by the body: the same bits, in one kernel, also of a transposed operand.
        for x in [x.clone(), x.t()?] {
            let chain = |x: &Tensor| charbonnier(&x.mul(3.0)?, 0.25)?.add(1.0)?.relu();
            let fused = compile(chain);
            assert_eq!(fused.call(&x)?.to_vec::<f32>()?, chain(&x)?.to_vec::<f32>()?);
            assert!(fused.explain().eager.is_none(), "{}", fused.explain());
            assert_eq!(fused.explain().kernels_after, 1, "{}", fused.explain());
        }

        // The derivative, eagerly and as part of a compiled step.
        let slope = |x: &Tensor| -> Result<Tensor> {
            let leaf = x.copy()?;
            leaf.set_requires_grad(true)?;
            let sum = charbonnier(&leaf, 0.25)?.sum_all()?;
            let slope = grad(&[&sum], &[&leaf], &[], GradOptions::default())?.remove(0);
            slope.ok_or_else(|| Error::argument("slope", "x was used"))
        };
        let expected: Vec<f32> = numbers.iter().map(|&x| x / (x * x + 0.0625).sqrt()).collect();
        let close = |found: Vec<f32>| found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close(slope(&x)?.to_vec()?));
        assert!(close(compile(slope).call(&x)?.to_vec()?));

        // By name, with its default, on meta, and with the wrong dtype.
        let by_name = Dispatcher::global().lookup(CHARBONNIER)?.invoke(vec![Value::Tensor(x.clone())], vec![])?;
        assert_eq!(by_name.len(), 1);
        let meta = charbonnier(&Tensor::meta(&x.ty())?, 1.0)?;
        assert!(meta.sizes() == x.sizes() && !meta.has_data());
        assert!(matches!(charbonnier(&x.to_dtype(DType::F64)?, 1.0), Err(Error::DType { .. })));
        Ok(())
    }
}
