//! Quotients and remainders by the floating-point divider, where that is exact.
//!
//! The processor divides integers, and the C library computes remainders of floats, bit by bit. A quotient of doubles
//! takes a few cycles. Rounded toward zero, it is the exact quotient in these cases:
//!
//! - Integers below 2^53. The quotient `n - 1/b`, which is the nearest one below a whole number `n`, differs from it by
//!   the fraction `1/a`, more than the rounding error of 2^-53.
//! - Floats with quotients below 2^28. What is missing to a whole number is at least a last place of the dividend, or
//!   2^-24 of the divisor. The product of such a quotient and an f32 has at most 53 bits, so the remainder is exact.
//!
//! Doubles have no wider type to divide in. Their quotient may be one too large, which the sign of the exact remainder
//! shows: the fused multiply-add rounds once, and the remainder is a double.

/// Integers of a smaller magnitude are doubles.
const EXACT: u64 = 1 << 53;
/// Integers of a smaller magnitude are converted by an addition, which vectors have, unlike the conversion.
const NEAR: i64 = 1 << 51;
/// Added to a whole double below 2^51, it leaves that number in the low bits of the sum.
const WHOLE_BITS: f64 = (3u64 << 51) as f64;
/// Quotients of f32 below this are exact.
const EXACT_QUOTIENT: f64 = (1 << 28) as f64;
/// Quotients of f64 below this are whole numbers that are off by at most one.
const NEAR_QUOTIENT: f64 = (1u64 << 52) as f64;

/// The quotient of integers, toward zero; 0 for a divisor of 0.
pub(super) trait Quotient: Sized {
    /// Whether the forms for usual operands are quicker.
    const HAS_USUAL: bool;
    fn quotient(self, divisor: Self) -> Self;
    fn remainder(self, divisor: Self) -> Self;
    /// The quotient of usual operands, without branches, and whether they are usual.
    fn usual_quotient(self, divisor: Self) -> (Self, bool);
    /// The remainder of usual operands, without branches, and whether they are usual.
    fn usual_remainder(self, divisor: Self) -> (Self, bool);
}

impl Quotient for i32 {
    const HAS_USUAL: bool = false;
    #[inline(always)]
    fn quotient(self, divisor: i32) -> i32 {
        // The least number by -1 wraps, because higher bits are dropped.
        let quotient = ((f64::from(self) / f64::from(divisor)).trunc() + WHOLE_BITS).to_bits() as i32;
        if divisor == 0 { 0 } else { quotient }
    }
    #[inline(always)]
    fn remainder(self, divisor: i32) -> i32 {
        let remainder = self.wrapping_sub(self.quotient(divisor).wrapping_mul(divisor));
        if divisor == 0 { 0 } else { remainder }
    }
    #[inline(always)]
    fn usual_quotient(self, divisor: i32) -> (i32, bool) {
        (self.quotient(divisor), true)
    }
    #[inline(always)]
    fn usual_remainder(self, divisor: i32) -> (i32, bool) {
        (self.remainder(divisor), true)
    }
}

/// The double of an integer below [`NEAR`], and whether it is below.
#[inline(always)]
fn near(integer: i64) -> (f64, bool) {
    let double = f64::from_bits(WHOLE_BITS.to_bits().wrapping_add_signed(integer)) - WHOLE_BITS;
    (double, (integer < NEAR) & (integer > -NEAR))
}

/// The integer of a whole double below [`NEAR`].
#[inline(always)]
fn of_near(double: f64) -> i64 {
    (double + WHOLE_BITS).to_bits().wrapping_sub(WHOLE_BITS.to_bits()) as i64
}

impl Quotient for i64 {
    const HAS_USUAL: bool = true;
    #[inline(always)]
    fn quotient(self, divisor: i64) -> i64 {
        if self.unsigned_abs() < EXACT && divisor.unsigned_abs() < EXACT && divisor != 0 {
            return (self as f64 / divisor as f64) as i64;
        }
        if divisor == 0 { 0 } else { self.wrapping_div(divisor) }
    }
    #[inline(always)]
    fn remainder(self, divisor: i64) -> i64 {
        if divisor == 0 { 0 } else { self.wrapping_sub(self.quotient(divisor).wrapping_mul(divisor)) }
    }
    #[inline(always)]
    fn usual_quotient(self, divisor: i64) -> (i64, bool) {
        let ((a, a_is_near), (b, b_is_near)) = (near(self), near(divisor));
        let quotient = of_near((a / b).trunc());
        (if divisor == 0 { 0 } else { quotient }, a_is_near & b_is_near)
    }
    #[inline(always)]
    fn usual_remainder(self, divisor: i64) -> (i64, bool) {
        let ((a, a_is_near), (b, b_is_near)) = (near(self), near(divisor));
        // The product is no larger than the dividend, so it is exact.
        let remainder = of_near(a - (a / b).trunc() * b);
        (if divisor == 0 { 0 } else { remainder }, a_is_near & b_is_near)
    }
}

/// The remainder of a division toward zero; it has the sign of the dividend.
pub(super) trait FloatRemainder: Sized {
    fn remainder(self, divisor: Self) -> Self;
    /// The remainder where the divider finds it, without branches, and whether it does.
    fn usual_remainder(self, divisor: Self) -> (Self, bool);
}

impl FloatRemainder for f32 {
    #[inline(always)]
    fn remainder(self, divisor: f32) -> f32 {
        match self.usual_remainder(divisor) {
            (remainder, true) => remainder,
            (_, false) => self % divisor,
        }
    }
    #[inline(always)]
    fn usual_remainder(self, divisor: f32) -> (f32, bool) {
        let (a, b) = (f64::from(self), f64::from(divisor));
        let quotient = (a / b).trunc();
        // Also right for an infinite divisor, whose product with 0 would be NaN.
        let rest = if quotient == 0.0 { self } else { ((a - quotient * b) as f32).copysign(self) };
        // False for NaN: of a divisor of 0, of an infinite dividend, and of NaNs.
        (rest, quotient.abs() < EXACT_QUOTIENT)
    }
}

impl FloatRemainder for f64 {
    #[inline(always)]
    fn remainder(self, divisor: f64) -> f64 {
        match self.usual_remainder(divisor) {
            (remainder, true) => remainder,
            (_, false) => self % divisor,
        }
    }
    #[inline(always)]
    fn usual_remainder(self, divisor: f64) -> (f64, bool) {
        let quotient = (self / divisor).trunc();
        // Below the least normal number the product's error would not be a double.
        let is_normal = self.abs() >= f64::MIN_POSITIVE * NEAR_QUOTIENT;
        let rest = (-quotient).mul_add(divisor, self);
        let is_over = (rest != 0.0) & ((rest < 0.0) != (self < 0.0));
        let rest = if is_over { rest + divisor.abs().copysign(self) } else { rest };
        let rest = if quotient == 0.0 { self } else { rest.copysign(self) };
        (rest, (quotient.abs() < NEAR_QUOTIENT) & is_normal)
    }
}

#[cfg(test)]
mod tests {
    use super::{FloatRemainder, Quotient};

    /// Numbers of all magnitudes, near powers of two and near multiples of each other.
    fn words() -> impl Iterator<Item = u64> {
        let mut state = 0x1234_5678_9abc_def0u64;
        (0..200_000).map(move |_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state ^ state >> 29
        })
    }

    #[test]
    fn integers_divide_exactly() {
        let edges = [0, 1, -1, 2, 7, -7, i64::MIN, i64::MAX, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, 1 << 52];
        let shifted = words().map(|word| (word as i64) >> (word % 60));
        let all: Vec<i64> = edges.into_iter().chain(shifted).collect();
        for (&a, &b) in all.iter().zip(all.iter().cycle().skip(1)).chain(edges.iter().zip(edges.iter().cycle().skip(5)))
        {
            let (quotient, remainder) = if b == 0 { (0, 0) } else { (a.wrapping_div(b), a.wrapping_rem(b)) };
            assert_eq!((a.quotient(b), a.remainder(b)), (quotient, remainder), "{a} by {b}");
            let usual = [(a.usual_quotient(b), quotient), (a.usual_remainder(b), remainder)];
            for ((found, is_usual), expected) in usual {
                assert!(!is_usual || found == expected, "{a} by {b}: {found}, not {expected}");
                assert_eq!(is_usual, [a, b].iter().all(|x| x.unsigned_abs() < 1 << 51), "{a} by {b}");
            }
            let (a, b) = (a as i32, b as i32);
            let (quotient, remainder) = if b == 0 { (0, 0) } else { (a.wrapping_div(b), a.wrapping_rem(b)) };
            assert_eq!((a.quotient(b), a.remainder(b)), (quotient, remainder), "{a} by {b}");
        }
        assert_eq!((i32::MIN.quotient(-1), i32::MIN.remainder(-1)), (i32::MIN, 0));
    }

    #[test]
    fn remainders_of_floats_are_exact() {
        let special = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NAN, f64::MIN_POSITIVE, 5e-324, f64::MAX, 0.1, 3.0];
        let of_word = |word: u64| match word % 4 {
            0 => f64::from_bits(word),
            1 => (word >> 40) as f64 * 0.1,
            2 => (word % 1000) as f64 - 500.0,
            _ => f64::from(f32::from_bits(word as u32)),
        };
        let all: Vec<f64> = special.into_iter().chain(words().map(of_word)).collect();
        let near = all.iter().zip(all.iter().cycle().skip(1)).map(|(&a, &b)| (a * b, b));
        let pairs = all.iter().copied().zip(all.iter().copied().cycle().skip(1)).chain(near);
        for (a, b) in pairs.chain(special.iter().flat_map(|&a| special.map(|b| (a, b)))) {
            let same = |found: f64, expected: f64| {
                found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan()
            };
            assert!(same(FloatRemainder::remainder(a, b), a % b), "{a:e} by {b:e}");
            let (a, b) = (a as f32, b as f32);
            assert!(same(FloatRemainder::remainder(a, b).into(), (a % b).into()), "{a:e} by {b:e}");
        }
    }
}
