//! Complex numbers: how they are made, and their parts.
//!
//! A complex tensor is a tensor of pairs of real numbers ([`crate::tensor::complex`]). What operators do to pairs is in
//! `src/transforms/complex`. Here are the operators that lead from real tensors to complex ones and back.

use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ir::shape::broadcast;
use crate::ops::composite::Composite;
use crate::ops::joins::stack;
use crate::tensor::complex::are_side_by_side;
use crate::tensor::handle::Tensor;

static COMPLEX: Composite = Composite::new("complex(Tensor real, Tensor imag) -> Tensor");
static POLAR: Composite = Composite::new("polar(Tensor abs, Tensor angle) -> Tensor");
static VIEW_AS_COMPLEX: Composite = Composite::new("view_as_complex(Tensor(a) self) -> Tensor(a)");
static VIEW_AS_REAL: Composite = Composite::new("view_as_real(Tensor(a) self) -> Tensor(a)");
static REAL: Composite = Composite::new("real(Tensor(a) self) -> Tensor(a)");
static IMAG: Composite = Composite::new("imag(Tensor(a) self) -> Tensor(a)");
static CONJ: Composite = Composite::new("conj(Tensor(a) self) -> Tensor(a)");
static ANGLE: Composite = Composite::new("angle(Tensor self) -> Tensor");

/// Complex numbers. `f32` parts make `complex64`, `f64` parts `complex128`.
impl Tensor {
    /// The complex numbers with these real and imaginary parts, which are broadcast against each other.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::Tensor;
    /// let z = Tensor::complex(&Tensor::try_from([3.0f32, 0.0])?, &Tensor::try_from([4.0f32, 1.0])?)?;
    /// assert_eq!(z.abs()?.to_vec::<f32>()?, [5.0, 1.0]);
    /// assert_eq!(z.mul(&z)?.to_string(), "[-7.+24.j -1. +0.j]");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the parts are not both f32 or both f64, or if the sizes do not broadcast.
    #[track_caller]
    pub fn complex(real: &Tensor, imag: &Tensor) -> Result<Tensor> {
        COMPLEX.call((real, imag))
    }

    /// The complex numbers with these absolute values and angles in radians, which are broadcast.
    ///
    /// # Errors
    /// If they are not both f32 or both f64, or if the sizes do not broadcast.
    #[track_caller]
    pub fn polar(abs: &Tensor, angle: &Tensor) -> Result<Tensor> {
        POLAR.call((abs, angle))
    }

    /// Pairs of real numbers in the last dim, which has size 2 and stride 1, as complex numbers. A view.
    ///
    /// # Errors
    /// If the last dim is another, if another stride is odd, or if the dtype is neither f32 nor f64.
    #[track_caller]
    pub fn view_as_complex(&self) -> Result<Tensor> {
        VIEW_AS_COMPLEX.call((self,))
    }

    /// Complex numbers as pairs of real numbers in a new last dim of size 2. A view.
    ///
    /// # Errors
    /// If the dtype is real.
    #[track_caller]
    pub fn view_as_real(&self) -> Result<Tensor> {
        VIEW_AS_REAL.call((self,))
    }

    /// The real parts, as a view. A real tensor is its own real part.
    ///
    /// # Errors
    /// If a kernel from outside fails.
    #[track_caller]
    pub fn real(&self) -> Result<Tensor> {
        REAL.call((self,))
    }

    /// The imaginary parts, as a view.
    ///
    /// # Errors
    /// If the dtype is real.
    #[track_caller]
    pub fn imag(&self) -> Result<Tensor> {
        IMAG.call((self,))
    }

    /// The conjugates: the imaginary parts change their sign. A real tensor is its own conjugate.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn conj(&self) -> Result<Tensor> {
        CONJ.call((self,))
    }

    /// The angles to the positive real axis, in radians between -π and π: π for a negative real number.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn angle(&self) -> Result<Tensor> {
        ANGLE.call((self,))
    }

    /// Whether the dtype is complex.
    pub fn is_complex(&self) -> bool {
        self.dtype().is_complex()
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    let itself = |x: &Tensor| Ok(x.clone());
    library
        .composite(&COMPLEX, complex)?
        .composite(&POLAR, |abs: &Tensor, angle: &Tensor| {
            Tensor::complex(&abs.mul(&angle.cos()?)?, &abs.mul(&angle.sin()?)?)
        })?
        .composite(&VIEW_AS_COMPLEX, view_as_complex)?
        .composite(&VIEW_AS_REAL, |x: &Tensor| Err::<Tensor, _>(only_complex("view_as_real", x)))?
        .composite(&REAL, itself)?
        .composite(&IMAG, |x: &Tensor| Err::<Tensor, _>(only_complex("imag", x)))?
        .composite(&CONJ, itself)?
        .composite(&ANGLE, angle)?
        .def_kernel("_conj(Tensor(a) self) -> Tensor(a)", itself)?
        .def_kernel("conj_physical(Tensor self) -> Tensor", itself)?
        .def_kernel("resolve_conj(Tensor(a) self) -> Tensor(a)", itself)?
        .def_kernel("resolve_neg(Tensor(a) self) -> Tensor(a)", itself)?;
    Ok(())
}

/// The complex tensor of pairs, which are copied if they do not lie side by side.
pub(crate) fn of_pairs(pairs: &Tensor) -> Result<Tensor> {
    if are_side_by_side(pairs) { Tensor::of_pairs(pairs) } else { Tensor::of_pairs(&pairs.contiguous()?) }
}

/// The complex tensor with these parts of one dtype.
pub(crate) fn of_parts(real: &Tensor, imag: &Tensor) -> Result<Tensor> {
    of_pairs(&stack(&[real, imag], -1)?)
}

/// The tensor as pairs whose parts have the dtype of those of `dtype`. A real number has the imaginary part 0.
pub(crate) fn as_pairs(x: &Tensor, dtype: DType) -> Result<Tensor> {
    match x.pairs() {
        Some(pairs) => pairs.to_dtype(dtype.part()),
        None => {
            let real = x.to_dtype(dtype.part())?;
            stack(&[&real, &real.zeros_like()?], -1)
        }
    }
}

fn complex(real: &Tensor, imag: &Tensor) -> Result<Tensor> {
    let is_part = |x: &Tensor| x.dtype().complex().part() == x.dtype();
    if let Some(other) = [real, imag].into_iter().find(|&x| !is_part(x) || x.dtype() != real.dtype()) {
        let expected = "two tensors of f32 or two of f64";
        return Err(Error::dtype("complex", other.dtype(), expected, "convert both with to_dtype"));
    }
    let sizes = broadcast("complex", real.sizes(), imag.sizes())?;
    of_parts(&real.expand(&sizes[..])?, &imag.expand(&sizes[..])?)
}

fn view_as_complex(x: &Tensor) -> Result<Tensor> {
    if x.is_complex() {
        return Err(Error::dtype("view_as_complex", x.dtype(), "f32 or f64", "it is complex already"));
    }
    Tensor::of_pairs(x)
}

fn only_complex(op: &str, x: &Tensor) -> Error {
    let hint = "a real tensor has no imaginary part; make it complex with to_dtype(DType::Complex64)";
    Error::dtype(op, x.dtype(), "complex64 or complex128", hint)
}

/// The angles of real numbers.
fn angle(x: &Tensor) -> Result<Tensor> {
    let x = if x.dtype().is_float() { x.clone() } else { x.to_dtype(default_dtype())? };
    // A NaN stays, and so does the sign of no zero: the angle of -0 is 0.
    x.isnan()?.where_(&x, &x.lt(0)?.where_(&x.full_like(std::f64::consts::PI)?, 0.0)?)
}
