//! Functions of functions: gradients, Jacobians and their products with vectors, and loops and branches.
//!
//! Each transform takes a function of structures of tensors, as [`vmap`](crate::vmap) and [`compile`](crate::compile())
//! do, and most give a function again. So they compose: `compile(grad(f))`, `vmap(grad(f))`, `jacrev(grad(f))`. They
//! differentiate by the *first argument*, which may be a tensor, a tuple, or any structure of tensors. A function of
//! one slice is differentiated by all of its tensors.
//!
//! ```
//! use opfuse::func::{grad, hessian};
//! use opfuse::{Result, Tensor, compile};
//!
//! # fn main() -> Result<()> {
//! let energy = |x: &Tensor| x.pow(3)?.sum_all();
//! let x = Tensor::try_from([1.0, 2.0])?;
//! assert_eq!(grad(energy).call(&x)?.to_vec::<f64>()?, [3.0, 12.0]);
//! assert_eq!(hessian(energy).call(&x)?.to_vec2::<f64>()?, [[6.0, 0.0], [0.0, 12.0]]);
//! assert_eq!(compile(grad(energy)).call(&x)?.to_vec::<f64>()?, [3.0, 12.0]);
//! # Ok(())
//! # }
//! ```
//!
//! What always holds: a function is called with tensors of its own, so nothing accumulates in `x.grad()`. Tensors that
//! are not floating, and those that the result does not depend on, have gradients of zeros. A transform inside another
//! is differentiated by the outer one; so is one whose arguments require gradients. What a function captures is
//! constant for the outermost transform.
//!
//! Forward mode is deliberately absent: [`jvp`], [`jacfwd`] and [`linearize`] run the reverse pass of the reverse pass,
//! which costs about twice a forward pass of duals, and has the same value.
//!
//! Loops and branches take functions of structures, too, and the values that they begin with: [`scan`],
//! [`scan_times`], [`fori_loop`], [`while_loop`], [`cond`]. They have gradients, and compose with all of the above.

mod control;
mod forward;
mod jacobian;
mod reverse;

pub use control::{cond, fori_loop, scan, scan_times, while_loop};
pub use forward::{Linear, jvp, linearize};
pub use jacobian::{JacFwd, JacRev, hessian, jacfwd, jacrev};
pub use reverse::{First, Grad, Pullback, SliceOfAll, ValueAndGrad, grad, value_and_grad, vjp};
