//! Operators of a user, which programs call beside the built-in ones: with kernels for the CPU and `Meta`, which calls
//! of compiled functions need, and some with a derivative.

use super::calls::call;
use opfuse::autograd::{Context, Function, apply};
use opfuse::dispatch::{DispatchKey, Dispatcher, Library, Operator, Value, below_autograd};
use opfuse::ir::TensorType;
use opfuse::{DType, Error, Result, Scalar, Tensor};
use std::sync::OnceLock;

/// The declarations.
const SCHEMAS: [&str; 6] = [
    "twice(Tensor self) -> Tensor",
    "turned(Tensor self) -> Tensor",
    "halves(Tensor self) -> (Tensor, Tensor)",
    "blend(Tensor self, Tensor other, Scalar weight) -> Tensor",
    "positive(Tensor self) -> Tensor",
    "learned(Tensor self) -> Tensor",
];

/// The operators, which are registered at the first call.
pub(crate) fn own() -> &'static [Operator] {
    static OWN: OnceLock<(Vec<Operator>, Library)> = OnceLock::new();
    let (operators, _) = OWN.get_or_init(|| {
        let library = registered().expect("the names are free, and the kernels fit the schemas");
        let names = SCHEMAS.iter().map(|schema| &schema[..schema.find('(').expect("it has arguments")]);
        let found = names.map(|name| Dispatcher::global().lookup(&format!("programs::{name}")));
        (found.collect::<Result<_>>().expect("they are registered"), library)
    });
    operators
}

fn registered() -> Result<Library> {
    let mut library = Library::def_block("programs")?;
    for schema in SCHEMAS {
        library.def(schema)?;
    }
    for name in ["programs::twice", "programs::positive", "programs::learned"] {
        library.impl_for(name, DispatchKey::Meta, |x: &Tensor| like(x, x.sizes()))?;
    }
    library.impl_for("programs::twice", DispatchKey::CPU, |x: &Tensor| row_major(&x.add(x)?))?;
    // Its result has other sizes than its operand.
    library.impl_for("programs::turned", DispatchKey::CPU, |x: &Tensor| {
        let turned = if x.dim() == 2 { x.t()? } else { x.clone() };
        // Not a view of the copy: views that a kernel makes are views for autograd, too.
        row_major(&turned.reshape([-1i64])?)
    })?;
    library.impl_for("programs::turned", DispatchKey::Meta, |x: &Tensor| like(x, &[x.numel()]))?;
    library.impl_for("programs::halves", DispatchKey::CPU, |x: &Tensor| {
        let floats = x.to_dtype(DType::F32)?;
        Ok((row_major(&floats.mul(0.5)?)?, row_major(&floats.floor()?.to_dtype(DType::I64)?)?))
    })?;
    library.impl_for("programs::halves", DispatchKey::Meta, |x: &Tensor| {
        let [halves, whole] = [DType::F32, DType::I64].map(|dtype| TensorType::contiguous(dtype, x.sizes()));
        Ok((Tensor::meta(&halves)?, Tensor::meta(&whole)?))
    })?;
    library.impl_for("programs::blend", DispatchKey::CPU, |x: &Tensor, y: &Tensor, weight: Scalar| {
        check_same(x, y)?;
        let y = y.to_dtype(x.dtype())?;
        row_major(&x.add(y.mul(weight.as_f64())?.to_dtype(x.dtype())?)?)
    })?;
    library.impl_for("programs::blend", DispatchKey::Meta, |x: &Tensor, y: &Tensor, _: Scalar| {
        check_same(x, y)?;
        like(x, x.sizes())
    })?;
    // A kernel that fails for some values.
    library.impl_for("programs::positive", DispatchKey::CPU, |x: &Tensor| {
        match x.numel() > 0 && x.min_all()?.to_scalar()?.as_f64() < 0.0 {
            true => Err(Error::argument("positive", "an element is negative")),
            false => row_major(x),
        }
    })?;
    library.impl_for("programs::learned", DispatchKey::CPU, |x: &Tensor| row_major(&x.mul(x)?))?;
    library.impl_for("programs::learned", DispatchKey::Autograd, |x: &Tensor| Ok(apply(Learned, &[x])?.remove(0)))?;
    Ok(library)
}

/// A copy that is row-major in dims of one element, too, as `like` tells it.
fn row_major(x: &Tensor) -> Result<Tensor> {
    let copy = Tensor::zeros(x.sizes(), x.dtype())?;
    copy.copy_(x)?;
    Ok(copy)
}

/// A row-major tensor without elements, of the dtype of another.
fn like(x: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    Tensor::meta(&TensorType::contiguous(x.dtype(), sizes))
}

fn check_same(x: &Tensor, y: &Tensor) -> Result<()> {
    match x.sizes() == y.sizes() {
        true => Ok(()),
        false => Err(Error::argument("blend", format!("sizes {:?} and {:?} differ", x.sizes(), y.sizes()))),
    }
}

/// The derivative of `learned`, which calls another operator of this library.
struct Learned;

impl Function for Learned {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let _below = below_autograd();
        context.save(&inputs[0]);
        call("programs::learned", vec![Value::Tensor(inputs[0].clone())])
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let twice = call("programs::twice", vec![Value::Tensor(saved[0].detach()?)])?.remove(0);
        Ok(vec![Some(twice.mul(&gradients[0])?)])
    }
}
