//! Greatest common divisors and least common multiples of whole numbers.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::composite::Composite;
use crate::ops::in_place::in_place_methods;
use crate::tensor::handle::Tensor;

static GCD: Composite = Composite::new("gcd(Tensor self, Tensor other) -> Tensor").with_writes();
static LCM: Composite = Composite::new("lcm(Tensor self, Tensor other) -> Tensor").with_writes();

/// Divisors and multiples.
impl Tensor {
    /// The greatest common divisor of each pair of whole numbers, which is not negative; 0 of two zeros. Sizes are
    /// broadcast, and dtypes promoted.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::Tensor;
    /// let (a, b) = (Tensor::try_from([12i64, -9, 0])?, Tensor::try_from([18i64, 6, 0])?);
    /// assert_eq!(a.gcd(&b)?.to_vec::<i64>()?, [6, 3, 0]);
    /// assert_eq!(a.lcm(&b)?.to_vec::<i64>()?, [36, 18, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a dtype is not of whole numbers, or if the sizes do not broadcast.
    #[track_caller]
    pub fn gcd(&self, other: &Tensor) -> Result<Tensor> {
        GCD.call((self, other))
    }

    /// The least common multiple of each pair of whole numbers, which is not negative unless it overflows; 0 if one of
    /// them is 0.
    ///
    /// # Errors
    /// Same as [`Tensor::gcd`].
    #[track_caller]
    pub fn lcm(&self, other: &Tensor) -> Result<Tensor> {
        LCM.call((self, other))
    }

    in_place_methods! {
        gcd gcd_ GCD (other: &Tensor) (self, other);
        lcm lcm_ LCM (other: &Tensor) (self, other);
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library.composite(&GCD, |x: &Tensor, y: &Tensor| gcd("gcd", x, y))?.composite(&LCM, |x: &Tensor, y: &Tensor| {
        let gcd = gcd("lcm", x, y)?;
        let divisor = gcd.eq(0)?.where_(1, &gcd)?;
        x.div_rounded(&divisor, "trunc")?.mul(y)?.abs()
    })?;
    Ok(())
}

/// The greatest number of steps of Euclid's algorithm: two neighbours in the sequence of Fibonacci take the most.
fn steps(op: &str, dtype: DType) -> Result<usize> {
    match dtype {
        DType::I8 => Ok(11),
        DType::U8 => Ok(13),
        DType::I16 => Ok(23),
        DType::I32 => Ok(46),
        DType::I64 => Ok(92),
        DType::Bool | DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::Complex64 | DType::Complex128 => {
            Err(Error::dtype(op, dtype, "whole numbers", "convert with to_dtype(DType::I64) first"))
        }
    }
}

/// Euclid's algorithm, for as many steps as any pair may take. A pair that is done stays as it is.
fn gcd(op: &str, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    for dtype in [x.dtype(), y.dtype()] {
        steps(op, dtype)?;
    }
    let sum = x.mul(0)?.add(&y.mul(0)?)?;
    let (mut a, mut b) = (x.abs()?.add(&sum)?, y.abs()?.add(&sum)?);
    for _ in 0..steps(op, a.dtype())? {
        let is_done = b.eq(0)?;
        let divisor = is_done.where_(1, &b)?;
        let rest = a.fmod(&divisor)?;
        (a, b) = (is_done.where_(&a, &b)?, rest);
    }
    a.abs()
}
