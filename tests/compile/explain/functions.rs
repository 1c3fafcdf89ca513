//! The functions whose reports are looked at, called once.

use crate::values::ramp;
use opfuse::{Explain, Result, Tensor, cat, compile};

pub(crate) fn softmax(x: &Tensor) -> Result<Tensor> {
    x.softmax(-1)
}

/// A residual block: two products, an activation, a norm. The right operand of the first product is
/// computed.
pub(crate) fn block(x: &Tensor, w: &Tensor, v: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let hidden = x.mm(&w.exp()?)?.gelu_tanh()?;
    let sum = hidden.mm(v)?.add(x)?;
    sum.layer_norm([16], Some(scale), Some(scale), 1e-5)
}

/// A reduction of a value that is written part by part, and a scan.
pub(crate) fn joined(x: &Tensor) -> Result<(Tensor, Tensor)> {
    let both = cat(&[&x.exp()?, x], 1)?;
    let sum = both.sum([0], false)?;
    Ok((sum.mul(2.0)?, both.transpose(0, 1)?.cumsum(0)?))
}

/// Every case by name: `(name, report)`.
pub(crate) fn reports() -> Result<Vec<(&'static str, Explain)>> {
    let x = ramp(&[8, 16]);
    let soft = compile(softmax);
    soft.call(&x)?;
    let norm = compile(block);
    norm.call((&x, &ramp(&[16, 32]), &ramp(&[32, 16]), &ramp(&[16])))?;
    let parts = compile(joined);
    parts.call(&x)?;
    let nothing = compile(|x: &Tensor| Ok(x.clone()));
    nothing.call(&x)?;
    let trained = compile(|x: &Tensor, w: &Tensor| x.mm(w)?.tanh()?.sum_all());
    let w = ramp(&[16, 4]);
    w.set_requires_grad(true)?;
    trained.call((&x, &w))?;
    Ok(vec![
        ("softmax", soft.explain()),
        ("block", norm.explain()),
        ("parts", parts.explain()),
        ("nothing", nothing.explain()),
        ("trained", trained.explain()),
    ])
}
