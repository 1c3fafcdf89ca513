//! Floats by their bits: neighbours, mantissas and exponents.

use crate::dispatch::library::Library;
use crate::error::Result;
use crate::ir::DType;
use crate::ops::arguments::need_float;
use crate::ops::composite::Composite;
use crate::ops::in_place::in_place_methods;
use crate::tensor::handle::Tensor;

static NEXTAFTER: Composite = Composite::new("nextafter(Tensor self, Tensor other) -> Tensor").with_writes();
static FREXP: Composite = Composite::new("frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)");

/// Floats by their bits.
impl Tensor {
    /// The next float after each element in the direction of `other`: the element itself if both are equal, and NaN if
    /// one is NaN. Sizes are broadcast, and dtypes promoted.
    ///
    /// # Errors
    /// If a dtype is not floating, or if the sizes do not broadcast.
    #[track_caller]
    pub fn nextafter(&self, other: &Tensor) -> Result<Tensor> {
        NEXTAFTER.call((self, other))
    }

    in_place_methods! {
        nextafter nextafter_ NEXTAFTER (other: &Tensor) (self, other);
    }

    /// Each element as `m * 2^e` with `m` from 1/2 up to 1 in magnitude: the mantissas, and the exponents (i32). Zeros,
    /// infinities and NaNs have the exponent 0.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::Tensor;
    /// let (mantissas, exponents) = Tensor::try_from([6.0f32, -0.25, 0.0])?.frexp()?;
    /// assert_eq!(mantissas.to_vec::<f32>()?, [0.75, -0.5, 0.0]);
    /// assert_eq!(exponents.to_vec::<i32>()?, [3, -1, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the dtype is not floating.
    #[track_caller]
    pub fn frexp(&self) -> Result<(Tensor, Tensor)> {
        FREXP.call((self,))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library.composite(&NEXTAFTER, nextafter)?.composite(&FREXP, frexp)?;
    Ok(())
}

/// The whole numbers of the same width, and the bits of the least negative float.
fn whole(dtype: DType) -> (DType, i64) {
    match dtype.size() {
        2 => (DType::I16, i64::from(i16::MIN)),
        4 => (DType::I32, i64::from(i32::MIN)),
        _ => (DType::I64, i64::MIN),
    }
}

/// Floats of one sign are in the order of their bits.
fn nextafter(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let op = "nextafter";
    need_float(op, &[x, y])?;
    let nothing = x.mul(0.0)?.add(&y.mul(0.0)?)?;
    let dtype = nothing.dtype();
    let common = |x: &Tensor| x.detach()?.to_dtype(dtype)?.expand(nothing.sizes())?.contiguous();
    let (x, y) = (common(x)?, common(y)?);
    let (whole, least) = whole(dtype);
    let bits = x.view_dtype(whole)?;
    let is_up = y.gt(&x)?;
    let away = is_up.eq(&x.gt(0.0)?)?;
    let stepped = away.where_(&bits.add(1)?, &bits.sub(1)?)?;
    let from_zero = is_up.where_(1i64, least + 1)?.to_dtype(whole)?;
    let next = x.eq(0.0)?.where_(&from_zero, &stepped)?.view_dtype(dtype)?;
    let next = x.eq(&y)?.where_(&y, &next)?;
    x.isnan()?.logical_or(&y.isnan()?)?.where_(&x.add(&y)?, &next)
}

/// `2^e` for an exponent whose power is a normal float.
fn power_of_two(e: &Tensor, dtype: DType) -> Result<Tensor> {
    let (whole, bias, place) = exponent_bits(dtype);
    e.to_dtype(whole)?.add(bias)?.mul(1i64 << place)?.view_dtype(dtype)
}

/// The whole numbers of the same width, the bias of exponents, and the place of their lowest bit.
fn exponent_bits(dtype: DType) -> (DType, i64, i64) {
    let (bias, place) = if dtype == DType::F64 { (1023, 52) } else { (127, 23) };
    (whole(dtype).0, bias, place)
}

fn frexp(x: &Tensor) -> Result<(Tensor, Tensor)> {
    need_float("frexp", &[x])?;
    let wide = x.to_dtype(x.dtype().widened())?;
    let dtype = wide.dtype();
    let (whole, bias, place) = exponent_bits(dtype);
    let least = if dtype == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
    let still = wide.detach()?.contiguous()?;
    // Subnormal numbers are raised first.
    let is_small = still.abs()?.lt(least)?;
    let raised = is_small.where_(&still.mul(2f64.powi(place as i32 + 2))?, &still)?;
    let bits = raised.abs()?.view_dtype(whole)?.bitwise_right_shift(place)?;
    let exponent = bits.sub(bias - 1)?.sub(&is_small.to_dtype(whole)?.mul(place + 2)?)?;
    let has_none = still.eq(0.0)?.logical_or(&still.isfinite()?.logical_not()?)?;
    let exponent = has_none.where_(0, &exponent)?;
    // In two steps, because the power itself may overflow.
    let half = exponent.bitwise_right_shift(1)?;
    let rest = exponent.sub(&half)?;
    let scaled = wide.mul(&power_of_two(&half.neg()?, dtype)?)?.mul(&power_of_two(&rest.neg()?, dtype)?)?;
    Ok((scaled.to_dtype(x.dtype())?, exponent.to_dtype(DType::I32)?))
}
