//! The constants of each float width: layout, ranges and polynomial coefficients.
//!
//! All polynomials are minimax fits of the relative error of the *result*. They are made by Remez exchange in 80-digit
//! arithmetic. The coefficients were rounded one by one from the lowest, and the rest was fitted again each time.
//! Coefficients run from the constant upwards. Constants of 32 bits are written as the shortest decimal that rounds to
//! them. There are no lookup tables.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, LOG2_E, LOG10_E};

/// The constants of one width. A pair is a sum of two floats of the width, the larger first.
pub(super) trait Width {
    /// Explicit bits of the significand.
    const MANTISSA: u32;
    /// The exponent field of 1.
    const BIAS: i64;
    /// Bit pattern of √½ rounded to the width.
    const SQRT_HALF: i64;
    /// The least normal number.
    const MIN_NORMAL: f64;
    /// `2^(MANTISSA + 1)`, which makes subnormals normal.
    const TWO_MANTISSA_1: f64;
    /// The float whose last place is 1 over the whole of ±2^(MANTISSA-1): adding it rounds to an integer.
    const ROUND: f64;
    /// Where `exp` has underflowed to 0 and overflowed to infinity.
    const EXP_RANGE: (f64, f64);
    /// The same for `exp2`.
    const EXP2_RANGE: (f64, f64);
    /// Where `expm1` is -1.
    const EXPM1_LOW: f64;
    /// `(k, 2^-k)`: activations are less than the least number where an exponential times `2^-k` overflows.
    const LIFT: (i64, f64);
    /// Where the least power of two times `2^-k` is less than `e^x`, but more than half of it.
    const MISH_LOW: f64;
    /// Where the exponential of `gelu_tanh`, divided by the largest power of two and times `2^k`, is between 2 and 3.
    const GELU_LOW: f64;
    /// From here on `gelu_tanh` is the identity.
    const GELU_HIGH: f64;
    /// `√(8/π) log2 e`. The first part is short enough that subtracting it from the rounded sum is exact.
    const GELU_FIRST: (f64, f64);
    /// That times 0.044715.
    const GELU_THIRD: (f64, f64);
    /// Where `tanh` is 1.
    const TANH_HIGH: f64;
    /// Where `erf` is 1.
    const ERF_HIGH: f64;
    /// ln 2.
    const LN2: (f64, f64);
    /// Whether the second part of ln 2 matters for logarithms of numbers near 1.
    const LN2_TAIL: bool;
    /// log2 e.
    const LOG2E: (f64, f64);
    /// log10 e.
    const LOG10E: (f64, f64);
    /// log10 2; the first part is short enough for exact products with exponents.
    const LOG10_2: (f64, f64);
    /// π/2 in three parts.
    const PI_2: [f64; 3];
    /// The largest angle that the three parts and a rounded quotient reduce without loss.
    const SMALL_ANGLE_MAX: f64;
    /// 2/√π.
    const TWO_SQRT_PI: (f64, f64);
    /// 2/ln 2.
    const TWO_LOG2E: (f64, f64);
    /// 2/(3 ln 2).
    const TWO_THIRDS_LOG2E: (f64, f64);
    /// `(e^r - 1 - r) / r²` for `|r| <= ln 2 / 2`.
    const EXP: &'static [f64];
    /// `(2^f - 1) / f` for `|f| <= 1/2`.
    const EXP2: &'static [f64];
    /// `(ln(1 + f) - f) / f²` for `√½ <= 1 + f <= √2`.
    const LOG: &'static [f64];
    /// `(sin √z / √z - 1) / z` for `√z <= 0.8`.
    const SIN: &'static [f64];
    /// `(cos √z - 1 + z/2) / z²` for `√z <= 0.8`.
    const COS: &'static [f64];
    /// `(-ln(erfc a) / a - 2/√π) / a` for `0 <= a <= ERF_HIGH`.
    const ERF: &'static [f64];
    /// `((log2((1 + s) / (1 - s)) / s - 2/ln 2) / z - 2/(3 ln 2)) / z` with `z = s²`, `|s| <= 0.1716`.
    const POW: &'static [f64];
}

/// 32 bits.
pub(super) struct Single;

impl Width for Single {
    const MANTISSA: u32 = 23;
    const BIAS: i64 = 127;
    const SQRT_HALF: i64 = (FRAC_1_SQRT_2 as f32).to_bits() as i64;
    const MIN_NORMAL: f64 = f32::MIN_POSITIVE as f64;
    const TWO_MANTISSA_1: f64 = 16777216.0;
    const ROUND: f64 = 12582912.0;
    const EXP_RANGE: (f64, f64) = (-104.0, 89.0);
    const EXP2_RANGE: (f64, f64) = (-151.0, 129.0);
    const EXPM1_LOW: f64 = -20.0;
    const LIFT: (i64, f64) = (31, 1.0 / 2147483648.0);
    const MISH_LOW: f64 = -109.4;
    const GELU_LOW: f64 = -10.94;
    const GELU_HIGH: f64 = 8.0;
    const GELU_FIRST: (f64, f64) = (2.3022079467773438, 2.5136697e-07);
    const GELU_THIRD: (f64, f64) = (0.10294324, -2.0161985e-09);
    const TANH_HIGH: f64 = 10.0;
    const ERF_HIGH: f64 = 3.93;
    const LN2: (f64, f64) = (LN_2, -1.9046542e-9);
    const LN2_TAIL: bool = false;
    const LOG2E: (f64, f64) = (LOG2_E, 1.925963e-8);
    const LOG10E: (f64, f64) = (LOG10_E, -1.010305e-8);
    const LOG10_2: (f64, f64) = (0.301025390625, 4.605039e-6);
    const PI_2: [f64; 3] = [std::f64::consts::FRAC_PI_2, -4.371139e-8, -1.7151245e-15];
    const SMALL_ANGLE_MAX: f64 = 1048576.0;
    const TWO_SQRT_PI: (f64, f64) = (FRAC_2_SQRT_PI, -5.8635383e-8);
    const TWO_LOG2E: (f64, f64) = (2.0 * LOG2_E, 3.851926e-8);
    const TWO_THIRDS_LOG2E: (f64, f64) = (0.9617967, -7.0284618e-9);
    const EXP: &'static [f64] = &[0.5, 0.16666543, 0.04166661, 0.008366532, 0.001392371];
    const EXP2: &'static [f64] = &[LN_2, 0.2402265, 0.055503584, 0.009618076, 0.001339188, 0.00015458498];
    const LOG: &'static [f64] = &[
        -0.49999988,
        0.33333325,
        -0.25001612,
        0.20001765,
        -0.16608737,
        0.14184527,
        -0.13238288,
        0.1289412,
        -0.076525606,
    ];
    const SIN: &'static [f64] = &[-0.16666654, 0.008332098, -0.00019506006];
    const COS: &'static [f64] = &[0.04166664, -0.001388713, 2.4412086e-5];
    const ERF: &'static [f64] = &[
        0.6366195,
        0.10277688,
        -0.019149989,
        -0.00016544726,
        0.0016715566,
        -0.00063506584,
        0.0001182030,
        -9.312631e-6,
    ];
    const POW: &'static [f64] = &[0.5770802, 0.4118499, 0.33782238];
}

/// 64 bits.
pub(super) struct Double;

impl Width for Double {
    const MANTISSA: u32 = 52;
    const BIAS: i64 = 1023;
    const SQRT_HALF: i64 = FRAC_1_SQRT_2.to_bits() as i64;
    const MIN_NORMAL: f64 = f64::MIN_POSITIVE;
    const TWO_MANTISSA_1: f64 = 9007199254740992.0;
    const ROUND: f64 = 6755399441055744.0;
    const EXP_RANGE: (f64, f64) = (-746.0, 710.0);
    const EXP2_RANGE: (f64, f64) = (-1076.0, 1025.0);
    const EXPM1_LOW: f64 = -40.0;
    const LIFT: (i64, f64) = (63, 1.0 / 9223372036854775808.0);
    const MISH_LOW: f64 = -752.65;
    const GELU_LOW: f64 = -21.605;
    const GELU_HIGH: f64 = 8.0;
    const GELU_FIRST: (f64, f64) = (2.302208198144328, -2.977296208542741e-15);
    const GELU_THIRD: (f64, f64) = (0.1029432395800235, -5.978177400718744e-18);
    const TANH_HIGH: f64 = 20.0;
    const ERF_HIGH: f64 = 5.95;
    const LN2: (f64, f64) = (LN_2, 2.3190468138462996e-17);
    const LN2_TAIL: bool = true;
    const LOG2E: (f64, f64) = (LOG2_E, 2.0355273740931033e-17);
    const LOG10E: (f64, f64) = (LOG10_E, 1.098319650216765e-17);
    const LOG10_2: (f64, f64) = (0.30102999566395283, 2.8363394551044964e-14);
    const PI_2: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33];
    const SMALL_ANGLE_MAX: f64 = 562949953421312.0;
    const TWO_SQRT_PI: (f64, f64) = (FRAC_2_SQRT_PI, 1.533545961316588e-17);
    const TWO_LOG2E: (f64, f64) = (2.0 * LOG2_E, 4.0710547481862066e-17);
    const TWO_THIRDS_LOG2E: (f64, f64) = (0.9617966939259756, 5.0577616648125907e-17);
    const EXP: &'static [f64] = &[
        0.5,
        0.16666666666666677,
        0.04166666666666667,
        0.00833333333332138,
        0.0013888888888883449,
        0.00019841269886859532,
        2.480158732462852e-05,
        2.755724337000624e-06,
        2.755727576161664e-07,
        2.5109366046716505e-08,
        2.091365702859395e-09,
    ];
    const EXP2: &'static [f64] = &[
        LN_2,
        0.24022650695910122,
        0.0555041086648227,
        0.009618129107595026,
        0.0013333558146211165,
        0.0001540353046085085,
        1.5252734002087384e-05,
        1.3215431585161751e-06,
        1.0177997372909983e-07,
        7.074633089181574e-09,
        4.4640080816421193e-10,
    ];
    const LOG: &'static [f64] = &[
        -0.5000000000000003,
        0.3333333333333293,
        -0.24999999999978254,
        0.20000000000095577,
        -0.1666666667091647,
        0.14285714279125614,
        -0.12499999629670093,
        0.11111111120237917,
        -0.10000017154703456,
        0.09090926628855338,
        -0.08332878374685963,
        0.07691453181917385,
        -0.07149785861445823,
        0.06685654974589965,
        -0.06195219420684274,
        0.05661024889883269,
        -0.05676318330123032,
        0.06522984816794618,
        -0.06004646382035401,
        0.026208245197680044,
    ];
    const SIN: &'static [f64] = &[
        -0.16666666666666624,
        0.008333333333320325,
        -0.00019841269828066555,
        2.7557313069078584e-06,
        -2.505065821068396e-08,
        1.5890890859726944e-10,
    ];
    const COS: &'static [f64] = &[
        0.041666666666666574,
        -0.0013888888888869768,
        2.4801587286779705e-05,
        -2.755731357636854e-07,
        2.0875618416440877e-09,
        -1.1354249981885865e-11,
    ];
    const ERF: &'static [f64] = &[
        0.6366197723676013,
        0.10277260330043315,
        -0.01912844696923948,
        -0.0002091951726694908,
        0.001696210189594981,
        -0.0005901454462037115,
        2.5951288310941042e-05,
        6.429830973732876e-05,
        -2.9336844790618988e-05,
        2.812307480046608e-06,
        3.548822651842211e-06,
        -2.417752581046561e-06,
        8.464830728782282e-07,
        -1.7065716216056282e-07,
        7.0828375557769855e-09,
        8.160648721995601e-09,
        -3.2388515171484305e-09,
        6.957736294485573e-10,
        -9.731478856116931e-11,
        8.878189487043369e-12,
        -4.837488505385372e-13,
        1.2000646306625494e-14,
    ];
    const POW: &'static [f64] = &[
        0.577078016355618,
        0.4121985830919401,
        0.3205989022737316,
        0.26230770109013607,
        0.22198400035457663,
        0.19125507884324625,
        0.1903863802275645,
    ];
}
