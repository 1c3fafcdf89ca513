//! Conversions between f32 and the two 16-bit floating formats, as integer arithmetic.
//!
//! A load widens exactly and keeps NaN payloads. Rounding is to nearest, ties to even, and makes NaN canonical. A store
//! narrows a rounded value exactly. Integer arithmetic is the same on every tier.

/// The canonical f16 NaN.
pub const F16_NAN: u16 = 0x7e00;
/// The canonical bf16 NaN.
pub const BF16_NAN: u16 = 0x7fc0;

/// The f32 of a bf16, exactly.
#[inline(always)]
pub fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The f32 of an f16, exactly.
#[inline(always)]
pub fn widen_f16(bits: u16) -> f32 {
    let sign = ((bits as u32) & 0x8000) << 16;
    let magnitude = (bits as u32) & 0x7fff;
    // 2^112 rebiases the exponent; the product is exact, also for subnormals.
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)).to_bits();
    let special = 0x7f80_0000 | (magnitude << 13);
    f32::from_bits(sign | if magnitude >= 0x7c00 { special } else { finite })
}

/// The nearest bf16, ties to even.
#[inline(always)]
pub fn round_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    if value.is_nan() { BF16_NAN } else { rounded }
}

/// The nearest f16, ties to even.
#[inline(always)]
pub fn round_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    // Normal results: round the mantissa to 10 bits in integers, then rebias the exponent by 112.
    let normal = magnitude.wrapping_add(0xfff + ((magnitude >> 13) & 1)).wrapping_sub(112 << 23) >> 13;
    // Subnormal results: adding 0.5 leaves the value in units of 2^-24 in the low bits, rounded by the addition.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < 0x3880_0000 { subnormal } else { normal };
    let clamped = if magnitude >= 0x4780_0000 { 0x7c00 } else { finite };
    if value.is_nan() { F16_NAN } else { sign | clamped as u16 }
}

/// The bf16 bits of an f32 that holds a bf16 value. Exact; a NaN keeps its payload.
#[inline(always)]
pub fn narrow_bf16(value: f32) -> u16 {
    (value.to_bits() >> 16) as u16
}

/// The f16 bits of an f32 that holds an f16 value. Exact; a NaN keeps its payload.
#[inline(always)]
pub fn narrow_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let sign = ((bits >> 16) & 0x8000) as u16;
    let special = (0x7c00 | ((magnitude >> 13) & 0x3ff)) as u16;
    if magnitude >= 0x7f80_0000 { sign | special } else { round_f16(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_16_bit_pattern_survives_the_round_trip() {
        for bits in 0..=u16::MAX {
            assert_eq!(narrow_bf16(widen_bf16(bits)), bits);
            assert_eq!(narrow_f16(widen_f16(bits)), bits, "{bits:#x}");
            let (h, b) = (half::f16::from_bits(bits), half::bf16::from_bits(bits));
            if !h.is_nan() {
                assert_eq!(widen_f16(bits).to_bits(), h.to_f32().to_bits(), "{bits:#x}");
            }
            if !b.is_nan() {
                assert_eq!(widen_bf16(bits).to_bits(), b.to_f32().to_bits());
            }
        }
    }

    #[test]
    fn rounding_agrees_with_the_half_crate() {
        for step in 0..=(u32::MAX / 97) {
            let value = f32::from_bits(step * 97);
            if value.is_nan() {
                assert_eq!((round_f16(value), round_bf16(value)), (F16_NAN, BF16_NAN));
                continue;
            }
            assert_eq!(round_f16(value), half::f16::from_f32(value).to_bits(), "{value:e}");
            assert_eq!(round_bf16(value), half::bf16::from_f32(value).to_bits(), "{value:e}");
        }
    }
}
