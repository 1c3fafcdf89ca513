//! The op table: one row per op.
//!
//! # Grammar
//!
//! A row under `unary` or `binary` is
//!
//! ```text
//! /// Documentation, which is also that of the method.
//! Variant method method_ rule |x| body; derivative;
//! ```
//!
//! It declares the op `method`. The schema follows from its arity. `rule` is its promotion rule, a variant of
//! [`Rule`](super::Rule), and `body` its scalar body on promoted operands. `method_` is the in-place form of the
//! method, which is written out because a macro cannot derive a name. The derivative is written over graph expressions
//! ([`Expr`](super::autodiff::Expr)) for the operands and the result `y`, in the dtype of the computation:
//!
//! ```text
//! none                                not differentiable
//! zero                                the gradient is zero everywhere
//! (|x, y| slope)                      unary: the slope, which the gradient `g` of the result is multiplied by
//! (|x, y, g| gradient)                unary: the gradient, where a product with the slope would be wrong (0 * inf)
//! (|a, b, y| [slope, slope])          binary: one slope per operand
//! (|a, b, y, g| [gradient, gradient]) binary: one gradient per operand, or any expression of two
//! ```
//!
//! A row under `other` has its [`Row`](super::Row) in full. Longer formulas are in [`super::autodiff`]. Non-tensor
//! arguments are declared before the row, with their types and defaults:
//!
//! ```text
//! Variant = Row { .. }                                       tensors only
//! Variant { name: type, name: type = default } = Row { .. }  declares a struct `Variant` in `super::attrs`
//! Variant: Struct = Row { .. }                               uses a struct of another row or of `super::attrs`
//! ```
//!
//! The scalar body of such a row reads them by name: `body!(Rule, |x, Variant { name, .. }| expression)`.
//!
//! The table is the text of a macro and imports nothing, so every floor may expand it. These do: `ir::op` (the enum of
//! names), `ir::attrs` (the structs of arguments), `ir::table` (the rows), `autodiff::expr` and `ops::methods` (the
//! methods of the regular rows).

/// Calls a macro with the whole table.
#[macro_export]
macro_rules! for_each_op {
    ($callback:ident) => {
        $callback! {
            unary {
                /// Absolute value. That of the least integer wraps to itself.
                Abs abs abs_ PromoteNum |x| x.prim(Prim::Abs, &[]); (|x, y, g| pointwise::abs(x, g));
                /// The negated number.
                Neg neg neg_ PromoteNum |x| -x; (|x, y, g| -g);
                /// −1, 0 or 1 by sign; 0 for NaN.
                Sign sign sign_ Promote |x| sign(x); zero;
                /// `e` to the power of each element.
                Exp exp exp_ PromoteFloat |x| x.exp(); (|x, y| y);
                /// 2 to the power of each element.
                Exp2 exp2 exp2_ PromoteFloat |x| x.exp2(); (|x, y| y * std::f64::consts::LN_2);
                /// `exp(x) - 1`, accurate near 0.
                Expm1 expm1 expm1_ PromoteFloat |x| x.expm1(); (|x, y| y + 1.0);
                /// Natural logarithm.
                Log log log_ PromoteFloat |x| x.log(); (|x, y, g| g / x);
                /// Logarithm to base 2.
                Log2 log2 log2_ PromoteFloat |x| x.log2(); (|x, y, g| g / (x * std::f64::consts::LN_2));
                /// Logarithm to base 10.
                Log10 log10 log10_ PromoteFloat |x| x.log10(); (|x, y, g| g / (x * std::f64::consts::LN_10));
                /// `log(1 + x)`, accurate near 0.
                Log1p log1p log1p_ PromoteFloat |x| x.log1p(); (|x, y, g| g / (x + 1.0));
                /// Square root.
                Sqrt sqrt sqrt_ PromoteFloat |x| x.prim(Prim::Sqrt, &[]); (|x, y, g| g / (y * 2.0));
                /// Reciprocal of the square root.
                Rsqrt rsqrt rsqrt_ PromoteFloat |x| x.rsqrt(); (|x, y| -0.5 * y.square() * y);
                /// `1 / x`.
                Reciprocal reciprocal reciprocal_ PromoteFloat |x| 1.0 / x; (|x, y| -y.square());
                /// `x * x`.
                Square square square_ PromoteCounting |x| x * x; (|x, y| x * 2.0);
                /// Sine of radians.
                Sin sin sin_ PromoteFloat |x| x.sin(); (|x, y| x.cos());
                /// Cosine of radians.
                Cos cos cos_ PromoteFloat |x| x.cos(); (|x, y| -x.sin());
                /// Tangent of radians.
                Tan tan tan_ PromoteFloat |x| x.tan(); (|x, y| y.square() + 1.0);
                /// Inverse sine; NaN outside of −1 to 1.
                Asin asin asin_ PromoteFloat |x| x.asin(); (|x, y| (1.0 - x.square()).rsqrt());
                /// Inverse cosine; NaN outside of −1 to 1.
                Acos acos acos_ PromoteFloat |x| x.acos(); (|x, y| -(1.0 - x.square()).rsqrt());
                /// Inverse tangent.
                Atan atan atan_ PromoteFloat |x| x.atan(); (|x, y, g| g / (x.square() + 1.0));
                /// Hyperbolic sine.
                Sinh sinh sinh_ PromoteFloat |x| sinh(x); (|x, y| x.cosh());
                /// Hyperbolic cosine.
                Cosh cosh cosh_ PromoteFloat |x| cosh(x); (|x, y| x.sinh());
                /// Hyperbolic tangent.
                Tanh tanh tanh_ PromoteFloat |x| x.tanh(); (|x, y, g| activations::by_row(Op::TanhBackward, y, Attrs::new(), g));
                /// Inverse hyperbolic sine.
                Asinh asinh asinh_ PromoteFloat |x| asinh(x); (|x, y| (x.square() + 1.0).rsqrt());
                /// Inverse hyperbolic cosine; NaN below 1.
                Acosh acosh acosh_ PromoteFloat |x| acosh(x); (|x, y| (x.square() - 1.0).rsqrt());
                /// Inverse hyperbolic tangent; NaN outside of −1 to 1.
                Atanh atanh atanh_ PromoteFloat |x| atanh(x); (|x, y, g| g / (1.0 - x.square()));
                /// `sin(πx) / (πx)`, 1 at 0.
                Sinc sinc sinc_ PromoteFloat |x| sinc(x); (|x, y, g| pointwise::sinc(x, g));
                /// Error function.
                Erf erf erf_ PromoteFloat |x| x.erf(); (|x, y| (-x.square()).exp() * std::f64::consts::FRAC_2_SQRT_PI);
                /// Complementary error function, `1 - erf(x)`, accurate where that is small.
                Erfc erfc erfc_ PromoteFloat |x| x.erfc(); (|x, y| (-x.square()).exp() * -std::f64::consts::FRAC_2_SQRT_PI);
                /// Inverse of the error function; NaN outside of −1 to 1.
                Erfinv erfinv erfinv_ PromoteFloat |x| x.erfinv(); (|x, y| y.square().exp() * (1.0 / std::f64::consts::FRAC_2_SQRT_PI));
                /// Logarithm of the absolute value of the gamma function.
                Lgamma lgamma lgamma_ PromoteFloat |x| x.lgamma(); (|x, y| x.digamma());
                /// Derivative of the logarithm of the gamma function.
                Digamma digamma digamma_ PromoteFloat |x| x.digamma(); (|x, y| x.polygamma(1));
                /// Converts degrees to radians.
                Deg2rad deg2rad deg2rad_ PromoteFloat |x| x * (std::f64::consts::PI / 180.0); (|x, y, g| g * (std::f64::consts::PI / 180.0));
                /// Converts radians to degrees.
                Rad2deg rad2deg rad2deg_ PromoteFloat |x| x * (180.0 / std::f64::consts::PI); (|x, y, g| g * (180.0 / std::f64::consts::PI));
                /// Logistic function, `1 / (1 + exp(-x))`.
                Sigmoid sigmoid sigmoid_ PromoteFloat |x| x.sigmoid(); (|x, y, g| activations::by_row(Op::SigmoidBackward, y, Attrs::new(), g));
                /// `x * sigmoid(x)`.
                Silu silu silu_ FloatOnly |x| x.silu(); (|x, y, g| activations::by_row(Op::SiluBackward, x, Attrs::new(), g));
                /// `max(x, 0)`. NaN propagates.
                Relu relu relu_ PromoteNum |x| relu(x); (|x, y, g| activations::above(y, 0.0, g));
                /// `min(max(x, 0), 6)`. NaN propagates.
                Relu6 relu6 relu6_ PromoteNum |x| least(x.num(6.0), greatest(x.num(0.0), x)); (|x, y, g| activations::by_row(Op::HardtanhBackward, x, Hardtanh { min_val: Some(0.0.into()), max_val: Some(6.0.into()) }.into(), g));
                /// `x * tanh(log(1 + exp(x)))`.
                Mish mish mish_ FloatOnly |x| x.mish(); (|x, y| pointwise::mish_slope(x));
                /// [`Op::Elu`] with the constants for which activations keep mean 0 and variance 1 (Klambauer et al.
                /// 2017).
                Selu selu selu_ FloatOnly |x| elu(x, SELU.0, SELU.1, 1.0); (|x, y| x.gt(0.0).then(SELU.1, x.exp() * (SELU.0 * SELU.1)));
                /// `relu6(x + 3) / 6`: a piecewise linear logistic function.
                Hardsigmoid hardsigmoid hardsigmoid_ FloatOnly |x| relu6_of_plus_3(x) / 6.0;
                    (|x, y, g| x.gt(-3.0).logical_and(x.lt(3.0)).then(g * pointwise::SIXTH, 0.0));
                /// `x * relu6(x + 3) / 6`.
                Hardswish hardswish hardswish_ FloatOnly |x| x * relu6_of_plus_3(x) / 6.0;
                    (|x, y, g| pointwise::hardswish(x, g));
                /// Logarithm of the logistic function.
                LogSigmoid log_sigmoid log_sigmoid_ FloatOnly |x| log_sigmoid(x); (|x, y| (-x).sigmoid());
                /// The fractional part, `x - trunc(x)`.
                Frac frac frac_ FloatOnly |x| x - x.prim(Prim::Trunc, &[]); (|x, y, g| g);
                /// Rounds down to a whole number.
                Floor floor floor_ PromoteNum |x| whole(x, Prim::Floor); zero;
                /// Rounds up to a whole number.
                Ceil ceil ceil_ PromoteNum |x| whole(x, Prim::Ceil); zero;
                /// Rounds to the nearest whole number, ties to even.
                Round round round_ PromoteNum |x| whole(x, Prim::RoundEven); zero;
                /// Rounds toward 0 to a whole number.
                Trunc trunc trunc_ PromoteNum |x| whole(x, Prim::Trunc); zero;
                /// Whether the element is a NaN.
                Isnan isnan isnan_ Predicate |x| x.is_nan(); none;
                /// Whether the element is infinite.
                Isinf isinf isinf_ Predicate |x| isinf(x); none;
                /// Whether the element is positive infinity.
                Isposinf isposinf isposinf_ Predicate |x| is_infinity(x, f64::INFINITY); none;
                /// Whether the element is negative infinity.
                Isneginf isneginf isneginf_ Predicate |x| is_infinity(x, f64::NEG_INFINITY); none;
                /// Whether the sign bit is set, as in −0 and some NaNs. For integers, whether they are negative.
                Signbit signbit signbit_ Predicate |x| signbit(x); none;
                /// Whether the element is neither infinite nor NaN.
                Isfinite isfinite isfinite_ Predicate |x| !(isinf(x) | x.is_nan()); none;
                /// Whether the element is zero or false.
                LogicalNot logical_not logical_not_ Predicate |x| !truth(x); none;
                /// Bitwise complement; logical not for bools.
                BitwiseNot bitwise_not bitwise_not_ Integral |x| !x; none;
            }
            binary {
                /// Elementwise product; logical and for bools.
                Mul mul mul_ "Tensor" Factor |a, b| product(a, b); (|a, b, y| [b, a]);
                /// True division. Integers become the default float.
                Div div div_ "Tensor" Division |a, b| a / b; (|a, b, y, g| pointwise::quotient(b, y, g));
                /// Greater of two elements; NaN propagates.
                Maximum maximum maximum_ "" Promote |a, b| greatest(a, b); (|a, b, y, g| [pointwise::chosen(b, a, g), pointwise::chosen(a, b, g)]);
                /// Lesser of two elements; NaN propagates.
                Minimum minimum minimum_ "" Promote |a, b| least(a, b); (|a, b, y, g| [pointwise::chosen(a, b, g), pointwise::chosen(b, a, g)]);
                /// Greater of two elements. The result is NaN only if both are.
                Fmax fmax fmax_ "" Promote |a, b| greatest_number(a, b); (|a, b, y, g| pointwise::chosen_number(b, a, a, b, g));
                /// Lesser of two elements. The result is NaN only if both are.
                Fmin fmin fmin_ "" Promote |a, b| least_number(a, b); (|a, b, y, g| pointwise::chosen_number(a, b, a, b, g));
                /// Quotient rounded down. Integers are divided as integers; dividing one by 0 is an error.
                FloorDivide floor_divide floor_divide_ "" PromoteNum |a, b| floor_divide(a, b); zero;
                /// Remainder of a division rounded down. It has the sign of the divisor.
                Remainder remainder remainder_ "Tensor" PromoteNum |a, b| remainder(a, b); (|a, b, y, g| [g, -(g * a.floor_divide(b))]);
                /// Remainder of a division rounded toward 0. It is exact and has the sign of the dividend.
                Fmod fmod fmod_ "Tensor" PromoteNum |a, b| fmod(a, b); (|a, b, y, g| [g, -(g * (a / b).trunc())]);
                /// Angle of the point `(other, self)`, from −π to π.
                Atan2 atan2 atan2_ "" PromoteFloat |a, b| a.atan2(b); (|a, b, y, g| pointwise::atan2(a, b, g));
                /// `sqrt(self² + other²)`, without overflow of the squares.
                Hypot hypot hypot_ "" FloatOnly |a, b| hypot(a, b); (|a, b, y| [a / y, b / y]);
                /// The magnitude of one with the sign of the other.
                Copysign copysign copysign_ "Tensor" PromoteFloat |a, b| with_sign(a, b); (|a, b, y, g| [a.eq(0.0).then(0.0, g * (y / a)), b.zeros()]);
                /// `log(exp(self) + exp(other))`, without overflow of the exponentials.
                Logaddexp logaddexp logaddexp_ "" FloatOnly |a, b| logaddexp(a, b); (|a, b, y| [(a - b).sigmoid(), (b - a).sigmoid()]);
                /// `log2(2^self + 2^other)`, without overflow of the powers.
                Logaddexp2 logaddexp2 logaddexp2_ "" FloatOnly |a, b| logaddexp2(a, b); (|a, b, y| [((a - b) * std::f64::consts::LN_2).sigmoid(), ((b - a) * std::f64::consts::LN_2).sigmoid()]);
                /// `self * log(other)`, 0 where `self` is 0.
                Xlogy xlogy xlogy_ "Tensor" PromoteFloat |a, b| xlogy(a, b); (|a, b, y, g| pointwise::xlogy(a, b, g));
                /// Left shift by `other` bits. An amount that is negative or not below the width gives 0.
                BitwiseLeftShift bitwise_left_shift bitwise_left_shift_ "Tensor" Whole |a, b| shift_left(a, b); none;
                /// Arithmetic right shift by `other` bits. An amount that is negative or not below the width gives 0 or
                /// −1 by sign.
                BitwiseRightShift bitwise_right_shift bitwise_right_shift_ "Tensor" Whole |a, b| shift_right(a, b); none;
                /// Whether the elements are equal.
                Eq eq eq_ "Tensor" Compare |a, b| a.prim(Prim::Eq, &[b]); none;
                /// Whether the elements differ. A NaN differs from everything, itself included.
                Ne ne ne_ "Tensor" Compare |a, b| a.prim(Prim::Ne, &[b]); none;
                /// `self < other`.
                Lt lt lt_ "Tensor" Compare |a, b| less(a, b); none;
                /// `self <= other`.
                Le le le_ "Tensor" Compare |a, b| at_most(a, b); none;
                /// `self > other`.
                Gt gt gt_ "Tensor" Compare |a, b| less(b, a); none;
                /// `self >= other`.
                Ge ge ge_ "Tensor" Compare |a, b| at_most(b, a); none;
                /// Whether both are nonzero.
                LogicalAnd logical_and logical_and_ "" Predicate |a, b| truth(a) & truth(b); none;
                /// Whether either is nonzero.
                LogicalOr logical_or logical_or_ "" Predicate |a, b| truth(a) | truth(b); none;
                /// Whether exactly one is nonzero.
                LogicalXor logical_xor logical_xor_ "" Predicate |a, b| truth(a) ^ truth(b); none;
                /// Bitwise and.
                BitwiseAnd bitwise_and bitwise_and_ "Tensor" Integral |a, b| a & b; none;
                /// Bitwise or.
                BitwiseOr bitwise_or bitwise_or_ "Tensor" Integral |a, b| a | b; none;
                /// Bitwise exclusive or.
                BitwiseXor bitwise_xor bitwise_xor_ "Tensor" Integral |a, b| a ^ b; none;
            }
            other {
                /// `self + alpha * other`.
                Add { alpha: Scalar = Scalar::Int(1) } = Row {
                    name: "add",
                    schema: Schema::Text("add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"),
                    infer: |call| infer::scaled(call, Add::read(call.attrs).alpha),
                    meaning: body!(Promote, |x, Add { alpha }| sum(x[0], scaled(x[1], alpha))),
                    derivative: Derivative::Pointwise(pointwise::add),
                };
                /// `self - alpha * other`. Bools are an error.
                Sub: Add = Row {
                    name: "sub",
                    schema: Schema::Text("sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"),
                    infer: |call| infer::scaled(call, Add::read(call.attrs).alpha),
                    meaning: body!(PromoteNum, |x, Add { alpha }| x[0] - scaled(x[1], alpha)),
                    derivative: Derivative::Pointwise(pointwise::sub),
                };
                /// A quotient, rounded toward 0 or down if `rounding_mode` is `trunc` or `floor`.
                DivMode { rounding_mode: Option<Rounding> } = Row {
                    name: "div_mode",
                    schema: Schema::Text("div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor"),
                    infer: infer::division,
                    meaning: body!(Division, |x, DivMode { rounding_mode }| divide(x[0], x[1], rounding_mode)),
                    derivative: Derivative::Pointwise(pointwise::division),
                };
                /// `self ^ exponent`. For integers a negative exponent gives `1 / self ^ |exponent|` rounded toward 0.
                Pow = Row {
                    name: "pow",
                    schema: Schema::Text("pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: Meaning::Body(Rule::PromoteNum, |x, _| power(x[0], x[1])),
                    derivative: Derivative::Pointwise(pointwise::power),
                };
                /// `self ^ exponent` with a number as exponent.
                PowScalar { exponent: Scalar = Scalar::Int(1) } = Row {
                    name: "pow_scalar",
                    schema: Schema::Text("pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor"),
                    infer: infer::power_of_number,
                    meaning: body!(PromoteNumbers, |x, PowScalar { exponent }| power_of_number(x[0], exponent)),
                    derivative: Derivative::Pointwise(pointwise::power_of_number),
                };
                /// `self + weight * (end - self)` with a number as weight.
                LerpScalar { weight: Scalar } = Row {
                    name: "lerp_scalar",
                    schema: Schema::Text("lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor"),
                    infer: infer::one_dtype,
                    meaning: body!(FloatOnly, |x, LerpScalar { weight }| lerp(x[0], x[1], number(x[0], weight))),
                    derivative: Derivative::Pointwise(pointwise::lerp_scalar),
                };
                /// `self + weight * (end - self)`.
                Lerp = Row {
                    name: "lerp",
                    schema: Schema::Text("lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor"),
                    infer: infer::one_dtype,
                    meaning: Meaning::Body(Rule::FloatOnly, |x, _| lerp(x[0], x[1], x[2])),
                    derivative: Derivative::Pointwise(pointwise::lerp),
                };
                /// `self * other + addend`, rounded once.
                Fma = Row {
                    name: "_fma",
                    schema: Schema::Text("_fma(Tensor self, Tensor other, Tensor addend) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: Meaning::Body(Rule::FloatOnly, |x, _| fma(x[0], x[1], x[2])),
                    derivative: Derivative::Pointwise(pointwise::fma),
                };
                /// `self + value * tensor1 * tensor2`.
                Addcmul { value: Scalar = Scalar::Int(1) } = Row {
                    name: "addcmul",
                    schema: Schema::Text("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor"),
                    infer: |call| infer::scaled(call, Addcmul::read(call.attrs).value),
                    meaning: body!(PromoteNum, |x, Addcmul { value }| addcmul(x, value)),
                    derivative: Derivative::Pointwise(pointwise::addcmul),
                };
                /// `self + value * tensor1 / tensor2`. Floats only.
                Addcdiv: Addcmul = Row {
                    name: "addcdiv",
                    schema: Schema::Text("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(FloatOnly, |x, Addcmul { value }| addcdiv(x, value)),
                    derivative: Derivative::Pointwise(pointwise::addcdiv),
                };
                /// 0 for negative elements, 1 for positive ones, and the element of `values` for 0.
                Heaviside = Row {
                    name: "heaviside",
                    schema: Schema::Text("heaviside(Tensor self, Tensor values) -> Tensor"),
                    infer: infer::one_dtype,
                    meaning: Meaning::Body(Rule::Promote, |x, _| heaviside(x[0], x[1])),
                    derivative: Derivative::None,
                };
                /// The derivative of order `n` of the digamma function.
                Polygamma { n: i64 } = Row {
                    name: "polygamma",
                    schema: Schema::Text("polygamma(int n, Tensor self) -> Tensor"),
                    infer: infer::polygamma,
                    meaning: body!(PromoteFloat, |x, Polygamma { n }| polygamma(x[0], n)),
                    derivative: Derivative::Pointwise(pointwise::polygamma),
                };
                /// `log(x / (1 - x))`. If `eps` is given, elements are first clamped to `eps..=1 - eps`.
                Logit { eps: Option<f64> } = Row {
                    name: "logit",
                    schema: Schema::Text("logit(Tensor self, float? eps=None) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(PromoteFloat, |x, Logit { eps }| logit(x[0], eps)),
                    derivative: Derivative::Pointwise(pointwise::logit),
                };
                /// Rounds to a number of decimals, ties to even.
                RoundDecimals { decimals: i64 } = Row {
                    name: "round_decimals",
                    schema: Schema::Text("round.decimals(Tensor self, *, int decimals) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(PromoteNum, |x, RoundDecimals { decimals }| round_decimals(x[0], decimals)),
                    derivative: Derivative::Zero,
                };
                /// `x` where it is positive, else `negative_slope * x`.
                LeakyRelu { negative_slope: Scalar } = Row {
                    name: "leaky_relu",
                    schema: Schema::Text("leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(FloatOnly, |x, LeakyRelu { negative_slope }| leaky_relu(x[0], negative_slope)),
                    derivative: Derivative::Pointwise(activations::leaky_relu),
                };
                /// `scale * x` where `x` is positive, else `scale * alpha * (exp(input_scale * x) - 1)`.
                Elu { alpha: Scalar = Scalar::Int(1), scale: Scalar = Scalar::Int(1), input_scale: Scalar = Scalar::Int(1) } = Row {
                    name: "elu",
                    schema: Schema::Text("elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(FloatOnly, |x, Elu { alpha, scale, input_scale }| elu(x[0], alpha.as_f64(), scale.as_f64(), input_scale.as_f64())),
                    derivative: Derivative::Pointwise(activations::elu),
                };
                /// Clamps elements to a range. The bounds are converted to the dtype of `self`.
                Hardtanh { min_val: Option<Scalar>, max_val: Option<Scalar> } = Row {
                    name: "hardtanh",
                    schema: Schema::Text("hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor"),
                    infer: infer::hardtanh,
                    meaning: body!(PromoteNum, |x, Hardtanh { min_val, max_val }| clamp(x[0], min_val, max_val)),
                    derivative: Derivative::Pointwise(|call| activations::plain(call, Op::HardtanhBackward)),
                };
                /// `log(1 + exp(beta * x)) / beta`, or `x` where `beta * x` is above the threshold.
                Softplus { beta: Scalar, threshold: Scalar } = Row {
                    name: "softplus",
                    schema: Schema::Text("softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(FloatOnly, |x, Softplus { beta, threshold }| softplus(x[0], beta, threshold)),
                    derivative: Derivative::Pointwise(|call| activations::plain(call, Op::SoftplusBackward)),
                };
                /// `x` moved toward 0 by `lambd`, or 0 where `|x| <= lambd`.
                Softshrink { lambd: Scalar } = Row {
                    name: "softshrink",
                    schema: Schema::Text("softshrink(Tensor self, Scalar lambd=0.5) -> Tensor"),
                    infer: infer::softshrink,
                    meaning: body!(FloatOnly, |x, Softshrink { lambd }| softshrink(x[0], lambd)),
                    derivative: Derivative::Pointwise(pointwise::shrink),
                };
                /// `x`, or 0 where `|x| <= lambd`.
                Hardshrink: Softshrink = Row {
                    name: "hardshrink",
                    schema: Schema::Text("hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(FloatOnly, |x, Softshrink { lambd }| hardshrink(x[0], lambd)),
                    derivative: Derivative::Pointwise(pointwise::shrink),
                };
                /// `x` where it is above the threshold, else the value.
                Threshold { threshold: Scalar, value: Scalar } = Row {
                    name: "threshold",
                    schema: Schema::Text("threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(PromoteNum, |x, Threshold { threshold: bound, value }| threshold(x[0], bound, value)),
                    derivative: Derivative::Pointwise(activations::threshold),
                };
                /// A tensor of one number, in the dtype and layout of `self`.
                FillScalar: Value = Row {
                    name: "fill_scalar",
                    schema: Schema::Text("fill.Scalar(Tensor self, Scalar value) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(Promote, |x, Value { value }| number(x[0], value)),
                    derivative: Derivative::Zero,
                };
                /// A tensor of the element of a 0-dim tensor, in the dtype and layout of `self`.
                Fill = Row {
                    name: "fill",
                    schema: Schema::Text("fill.Tensor(Tensor self, Tensor value) -> Tensor"),
                    infer: infer::fill,
                    meaning: Meaning::Body(Rule::Destination, |x, _| x[1]),
                    derivative: Derivative::Pointwise(pointwise::fill),
                };
                /// Gaussian error linear unit `x Φ(x)`, exact or by its tanh approximation (Hendrycks and Gimpel 2016).
                Gelu { approximate: Approximation } = Row {
                    name: "gelu",
                    schema: Schema::Text("gelu(Tensor self, *, str approximate='none') -> Tensor"),
                    infer: infer::gelu,
                    meaning: body!(FloatOnly, |x, Gelu { approximate }| gelu(x[0], approximate)),
                    derivative: Derivative::Pointwise(activations::gelu),
                };
                /// `-(t log x + (1 - t) log(1 - x))` of a probability `x` and a target `t`. Logarithms are clamped to
                /// −100.
                BinaryCrossEntropy = Row {
                    name: "_binary_cross_entropy",
                    schema: Schema::Text("_binary_cross_entropy(Tensor self, Tensor target) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: Meaning::Body(Rule::FloatOnly, |x, _| binary_cross_entropy(x[0], x[1])),
                    derivative: Derivative::Pointwise(pointwise::binary_cross_entropy),
                };
                /// Gradient of a threshold: `grad_output` where the element is above it, else 0.
                ThresholdBackward { threshold: Scalar } = Row {
                    name: "threshold_backward",
                    schema: Schema::Text("threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor"),
                    infer: infer::second_leads,
                    meaning: body!(FloatOnly, |x, ThresholdBackward { threshold }| slopes::threshold(x[0], x[1], threshold)),
                    derivative: Derivative::Pointwise(|call| activations::straight(call, Op::ThresholdBackward)),
                };
                /// Gradient of [`Op::Gelu`].
                GeluBackward: Gelu = Row {
                    name: "gelu_backward",
                    schema: Schema::Text("gelu_backward(Tensor grad_output, Tensor self, *, str approximate='none') -> Tensor"),
                    infer: infer::gelu,
                    meaning: body!(FloatOnly, |x, Gelu { approximate }| slopes::gelu(x[0], x[1], approximate)),
                    derivative: Derivative::Pointwise(activations::gelu_twice),
                };
                /// Gradient of [`Op::Silu`].
                SiluBackward = Row {
                    name: "silu_backward",
                    schema: Schema::Text("silu_backward(Tensor grad_output, Tensor self) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: Meaning::Body(Rule::FloatOnly, |x, _| slopes::silu(x[0], x[1])),
                    derivative: Derivative::Pointwise(activations::silu_twice),
                };
                /// Gradient of [`Op::Sigmoid`], from its result.
                SigmoidBackward = Row {
                    name: "sigmoid_backward",
                    schema: Schema::Text("sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: Meaning::Body(Rule::FloatOnly, |x, _| slopes::sigmoid(x[0], x[1])),
                    derivative: Derivative::Pointwise(activations::sigmoid_twice),
                };
                /// Gradient of [`Op::Tanh`], from its result.
                TanhBackward = Row {
                    name: "tanh_backward",
                    schema: Schema::Text("tanh_backward(Tensor grad_output, Tensor output) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: Meaning::Body(Rule::FloatOnly, |x, _| slopes::tanh(x[0], x[1])),
                    derivative: Derivative::Pointwise(activations::tanh_twice),
                };
                /// Gradient of [`Op::LeakyRelu`], from its operand or its result.
                LeakyReluBackward { negative_slope: Scalar, self_is_result: bool } = Row {
                    name: "leaky_relu_backward",
                    schema: Schema::Text("leaky_relu_backward(Tensor grad_output, Tensor self, Scalar negative_slope, bool self_is_result) -> Tensor"),
                    infer: infer::second_leads,
                    meaning: body!(FloatOnly, |x, LeakyReluBackward { negative_slope, .. }| slopes::leaky_relu(x[0], x[1], negative_slope)),
                    derivative: Derivative::Pointwise(|call| activations::straight(call, Op::LeakyReluBackward)),
                };
                /// Gradient of [`Op::Elu`], from its operand or its result.
                EluBackward { alpha: Scalar = Scalar::Int(1), scale: Scalar = Scalar::Int(1), input_scale: Scalar = Scalar::Int(1), is_result: bool } = Row {
                    name: "elu_backward",
                    schema: Schema::Text("elu_backward(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, Tensor self_or_result) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(FloatOnly, |x, attrs| slopes::elu(x[0], x[1], attrs)),
                    derivative: Derivative::Pointwise(activations::elu_twice),
                };
                /// Gradient of [`Op::Hardtanh`]: `grad_output` strictly between the bounds, else 0.
                HardtanhBackward: Hardtanh = Row {
                    name: "hardtanh_backward",
                    schema: Schema::Text("hardtanh_backward(Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(FloatOnly, |x, attrs| slopes::hardtanh(x[0], x[1], attrs)),
                    derivative: Derivative::Pointwise(|call| activations::straight(call, Op::HardtanhBackward)),
                };
                /// Gradient of [`Op::Softplus`].
                SoftplusBackward: Softplus = Row {
                    name: "softplus_backward",
                    schema: Schema::Text("softplus_backward(Tensor grad_output, Tensor self, Scalar beta, Scalar threshold) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(FloatOnly, |x, Softplus { beta, threshold }| slopes::softplus(x[0], x[1], beta, threshold)),
                    derivative: Derivative::Pointwise(activations::softplus_twice),
                };
                /// `self` where the condition holds, else `other`.
                Where = Row {
                    name: "where",
                    schema: Schema::Text("where.self(Tensor condition, Tensor self, Tensor other) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: Meaning::Body(Rule::Where, |x, _| x[0].then(x[1], x[2])),
                    derivative: Derivative::Pointwise(pointwise::where_),
                };
                /// `value` where the mask holds, else the element.
                MaskedFill: Value = Row {
                    name: "masked_fill",
                    schema: Schema::Text("masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor"),
                    infer: infer::masked_fill,
                    meaning: body!(Masked, |x, Value { value }| x[1].then(number(x[0], value), x[0])),
                    derivative: Derivative::Pointwise(pointwise::masked_fill),
                };
                /// Clamps elements to a range. A missing bound does not limit. NaN propagates.
                Clamp { min: Option<Scalar>, max: Option<Scalar> } = Row {
                    name: "clamp",
                    schema: Schema::Text("clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor"),
                    infer: infer::clamp,
                    meaning: body!(PromoteNumbers, |x, Clamp { min, max }| clamp(x[0], min, max)),
                    derivative: Derivative::Pointwise(pointwise::clamp),
                };
                /// A copy in another dtype and memory format. `aten::_to_copy` chooses the device.
                ToCopy { dtype: Option<DType>, memory_format: MemoryFormat } = Row {
                    name: "_to_copy",
                    schema: Schema::Text("_convert(Tensor self, *, ScalarType? dtype=None, MemoryFormat? memory_format=None) -> Tensor"),
                    infer: infer::to_copy,
                    meaning: Meaning::Body(Rule::Cast, |x, _| x[0]),
                    derivative: Derivative::Formula(pointwise::same),
                };
                /// A copy in a memory format.
                Clone: Ordered = Row {
                    name: "clone",
                    schema: Schema::Text("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor"),
                    infer: infer::clone,
                    meaning: Meaning::Body(Rule::Promote, |x, _| x[0]),
                    derivative: Derivative::Formula(pointwise::same),
                };
                /// Sum over dims. The sum of integers and bools is i64.
                Sum: FoldTo = Row {
                    name: "sum",
                    schema: Schema::Text("sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"),
                    infer: infer::sum,
                    meaning: Meaning::Fold(Combine::Sum),
                    derivative: Derivative::Formula(reductions::sum),
                };
                /// Product over dims. The product of integers and bools is i64.
                Prod { dim: i64, keepdim: bool, dtype: Option<DType> } = Row {
                    name: "prod",
                    schema: Schema::Text("prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"),
                    infer: infer::sum,
                    meaning: Meaning::Fold(Combine::Prod),
                    derivative: Derivative::Formula(reductions::prod),
                };
                /// Greatest element over dims; NaN propagates.
                Amax: Fold = Row {
                    name: "amax",
                    schema: Schema::Text("amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"),
                    infer: infer::extremum,
                    meaning: Meaning::Fold(Combine::Max),
                    derivative: Derivative::Formula(reductions::extremum),
                };
                /// Least element over dims; NaN propagates.
                Amin: Fold = Row {
                    name: "amin",
                    schema: Schema::Text("amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"),
                    infer: infer::extremum,
                    meaning: Meaning::Fold(Combine::Min),
                    derivative: Derivative::Formula(reductions::extremum),
                };
                /// Whether any element over dims is nonzero.
                Any: Fold = Row {
                    name: "any",
                    schema: Schema::Text("any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor"),
                    infer: infer::truth,
                    meaning: Meaning::Fold(Combine::Any),
                    derivative: Derivative::None,
                };
                /// Whether all elements over dims are nonzero.
                All: Fold = Row {
                    name: "all",
                    schema: Schema::Text("all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor"),
                    infer: infer::truth,
                    meaning: Meaning::Fold(Combine::All),
                    derivative: Derivative::None,
                };
                /// Index of the first greatest element over a dim, or over all of them flattened.
                Argmax { dim: Option<i64>, keepdim: bool } = Row {
                    name: "argmax",
                    schema: Schema::Text("argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"),
                    infer: infer::arg_extremum,
                    meaning: Meaning::Fold(Combine::ArgMax),
                    derivative: Derivative::None,
                };
                /// Index of the first least element over a dim, or over all of them flattened.
                Argmin: Argmax = Row {
                    name: "argmin",
                    schema: Schema::Text("argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"),
                    infer: infer::arg_extremum,
                    meaning: Meaning::Fold(Combine::ArgMin),
                    derivative: Derivative::None,
                };
                /// Mean over dims. Floats only.
                Mean: FoldTo = Row {
                    name: "mean",
                    schema: Schema::Text("mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"),
                    infer: infer::mean,
                    meaning: Meaning::Decompose(decompose::mean),
                    derivative: Derivative::Formula(reductions::mean),
                };
                /// Variance over dims, `sum((x - mean)²) / (n - correction)`. The default `correction` is 1.
                Var { dim: Ints, correction: Option<Scalar>, keepdim: bool } = Row {
                    name: "var",
                    schema: Schema::Text("var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor"),
                    infer: infer::var,
                    meaning: Meaning::Decompose(decompose::var),
                    derivative: Derivative::Formula(reductions::var),
                };
                /// Standard deviation over dims; see [`Op::Var`].
                Std: Var = Row {
                    name: "std",
                    schema: Schema::Text("std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor"),
                    infer: infer::var,
                    meaning: Meaning::Decompose(decompose::std),
                    derivative: Derivative::Formula(reductions::std),
                };
                /// `log(sum(exp(x)))` over dims, without overflow of the exponentials.
                Logsumexp: Fold = Row {
                    name: "logsumexp",
                    schema: Schema::Text("logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor"),
                    infer: infer::logsumexp,
                    meaning: Meaning::Decompose(decompose::logsumexp),
                    derivative: Derivative::Formula(reductions::logsumexp),
                };
                /// `exp(x) / sum(exp(x))` along a dim. 16-bit floats are computed in f32.
                Softmax { dim: i64 = -1, half_to_float: bool } = Row {
                    name: "_softmax",
                    schema: Schema::Text("_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"),
                    infer: infer::softmax,
                    meaning: Meaning::Decompose(decompose::softmax),
                    derivative: Derivative::Formula(reductions::softmax),
                };
                /// `x - log(sum(exp(x)))` along a dim. 16-bit floats are computed in f32.
                LogSoftmax: Softmax = Row {
                    name: "_log_softmax",
                    schema: Schema::Text("_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"),
                    infer: infer::softmax,
                    meaning: Meaning::Decompose(decompose::log_softmax),
                    derivative: Derivative::Formula(reductions::log_softmax),
                };
                /// Gradient of [`Op::Softmax`], from its result.
                SoftmaxBackwardData { dim: i64 = -1, input_dtype: Option<DType> } = Row {
                    name: "_softmax_backward_data",
                    schema: Schema::Text("_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor"),
                    infer: infer::softmax_data,
                    meaning: Meaning::Decompose(reductions::softmax_data),
                    derivative: Derivative::Parts,
                };
                /// Gradient of [`Op::LogSoftmax`], from its result.
                LogSoftmaxBackwardData: SoftmaxBackwardData = Row {
                    name: "_log_softmax_backward_data",
                    schema: Schema::Text("_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor"),
                    infer: infer::softmax_data,
                    meaning: Meaning::Decompose(reductions::log_softmax_data),
                    derivative: Derivative::Parts,
                };
                /// `(x - mean) / sqrt(var + eps) * weight + bias` over the trailing dims. Weight and bias are optional.
                LayerNorm { normalized_shape: Ints, weight: bool, bias: bool, eps: f64 = 1e-5, cudnn_enable: bool } = Row {
                    name: "layer_norm",
                    schema: Schema::Text("layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enable=True) -> Tensor"),
                    infer: infer::layer_norm,
                    meaning: Meaning::Decompose(decompose::layer_norm),
                    derivative: Derivative::Formula(reductions::layer_norm),
                };
                /// The same elements under another shape.
                View: Shape = Row {
                    name: "view",
                    schema: Schema::Text("view(Tensor(a) self, SymInt[] size) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::view),
                    derivative: Derivative::Formula(views::reshaped),
                };
                /// The dims in another order.
                Permute: Dims = Row {
                    name: "permute",
                    schema: Schema::Text("permute(Tensor(a) self, int[] dims) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::permute),
                    derivative: Derivative::Formula(views::permute),
                };
                /// Two dims swapped.
                Transpose { dim0: i64, dim1: i64 } = Row {
                    name: "transpose",
                    schema: Schema::Text("transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::transpose),
                    derivative: Derivative::Formula(views::transpose),
                };
                /// A matrix transposed. Tensors of fewer dims are returned as they are.
                T = Row {
                    name: "t",
                    schema: Schema::Text("t(Tensor(a) self) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::t),
                    derivative: Derivative::Formula(views::t),
                };
                /// Dims of size 1 repeated without a copy. A size of −1 keeps that of the operand.
                Expand { size: Ints, implicit: bool } = Row {
                    name: "expand",
                    schema: Schema::Text("expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::expand),
                    derivative: Derivative::Formula(views::expand),
                };
                /// A view of the whole tensor.
                Alias = Row {
                    name: "alias",
                    schema: Schema::Text("alias(Tensor(a) self) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::alias),
                    derivative: Derivative::Formula(views::reshaped),
                };
                /// A view of the whole tensor that gradients do not flow through.
                Detach = Row {
                    name: "detach",
                    schema: Schema::Text("detach(Tensor(a) self) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::alias),
                    derivative: Derivative::None,
                };
                /// Like [`Op::View`], but the result is not tracked as a view.
                UnsafeView: Shape = Row {
                    name: "_unsafe_view",
                    schema: Schema::Text("_unsafe_view(Tensor self, SymInt[] size) -> Tensor"),
                    infer: infer::view,
                    meaning: Meaning::View(view::view),
                    derivative: Derivative::Formula(views::reshaped),
                };
                /// The diagonal of two dims, as the last dim.
                Diagonal { offset: i64, dim1: i64, dim2: i64 } = Row {
                    name: "diagonal",
                    schema: Schema::Text("diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::diagonal),
                    derivative: Derivative::Formula(views::diagonal),
                };
                /// Windows of a dim as a view. The elements of a window are the last dim.
                Unfold { dimension: i64, size: i64, step: i64 } = Row {
                    name: "unfold",
                    schema: Schema::Text("unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::unfold),
                    derivative: Derivative::Formula(views::unfold),
                };
                /// The storage under given sizes, strides and offset.
                AsStrided { size: Ints, stride: Ints, storage_offset: Option<i64> } = Row {
                    name: "as_strided",
                    schema: Schema::Text("as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)"),
                    infer: infer::window,
                    meaning: Meaning::Window(view::as_strided),
                    derivative: Derivative::Formula(strided::as_strided),
                };
                /// The same bytes as elements of another dtype.
                ViewDtype { dtype: Option<DType> } = Row {
                    name: "view_dtype",
                    schema: Schema::Text("view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)"),
                    infer: infer::window,
                    meaning: Meaning::Window(view::reinterpret),
                    derivative: Derivative::None,
                };
                /// Drops the given dims that have size 1.
                Squeeze: DimList = Row {
                    name: "squeeze",
                    schema: Schema::Text("squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::squeeze),
                    derivative: Derivative::Formula(views::reshaped),
                };
                /// Adds a dim of size 1.
                Unsqueeze: Along = Row {
                    name: "unsqueeze",
                    schema: Schema::Text("unsqueeze(Tensor(a) self, int dim) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::unsqueeze),
                    derivative: Derivative::Formula(views::reshaped),
                };
                /// One index of a dim, which is dropped.
                Select { dim: i64, index: i64 } = Row {
                    name: "select",
                    schema: Schema::Text("select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::select),
                    derivative: Derivative::Formula(views::select),
                };
                /// Every `step`-th index of a dim from `start` to `end`. Bounds are clamped; negative ones count from
                /// the end.
                Slice { dim: i64, start: Option<i64>, end: Option<i64>, step: i64 = 1 } = Row {
                    name: "slice",
                    schema: Schema::Text("slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::slice),
                    derivative: Derivative::Formula(views::slice),
                };
                /// Gradient of [`Op::Select`]: zeros of the given sizes, and the gradient at the index.
                SelectBackward { input_sizes: Ints, dim: i64, index: i64 } = Row {
                    name: "select_backward",
                    schema: Schema::Text("select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor"),
                    infer: views::select_zeros_type,
                    meaning: Meaning::Decompose(views::select_zeros),
                    derivative: Derivative::Formula(views::select_twice),
                };
                /// Gradient of [`Op::Slice`]: zeros of the given sizes, and the gradient in the slice.
                SliceBackward { input_sizes: Ints, dim: i64, start: Option<i64>, end: Option<i64>, step: i64 = 1 } = Row {
                    name: "slice_backward",
                    schema: Schema::Text("slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt end, SymInt step) -> Tensor"),
                    infer: views::slice_zeros_type,
                    meaning: Meaning::Decompose(views::slice_zeros),
                    derivative: Derivative::Formula(views::slice_twice),
                };
                /// Matrix product of 2-d tensors of one dtype.
                Mm = Row {
                    name: "mm",
                    schema: Schema::Text("mm(Tensor self, Tensor mat2) -> Tensor"),
                    infer: infer::mm,
                    meaning: Meaning::Product,
                    derivative: Derivative::Formula(products::matmul),
                };
                /// Batched matrix product of 3-d tensors of one dtype. Batches are not broadcast.
                Bmm = Row {
                    name: "bmm",
                    schema: Schema::Text("bmm(Tensor self, Tensor mat2) -> Tensor"),
                    infer: infer::bmm,
                    meaning: Meaning::Product,
                    derivative: Derivative::Formula(products::matmul),
                };
                /// Products of matrices and windows, which are read where they lie.
                WindowProduct { inner: i64 } = Row {
                    name: "_window_product",
                    schema: Schema::Text("_window_product(Tensor self, Tensor windows, int inner) -> Tensor"),
                    infer: window_product::infer,
                    meaning: Meaning::Routine(Routine::WindowProduct),
                    derivative: Derivative::None,
                };
                /// Matrix product of 2-d tensors of 16-bit floats with a result of f32.
                MmDtype { out_dtype: Option<DType> } = Row {
                    name: "mm.dtype",
                    schema: Schema::Text("mm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor"),
                    infer: infer::mm,
                    meaning: Meaning::Product,
                    derivative: Derivative::Formula(products::matmul),
                };
                /// Batched matrix product of 3-d tensors of 16-bit floats with a result of f32.
                BmmDtype: MmDtype = Row {
                    name: "bmm.dtype",
                    schema: Schema::Text("bmm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor"),
                    infer: infer::bmm,
                    meaning: Meaning::Product,
                    derivative: Derivative::Formula(products::matmul),
                };
                /// Inner product of two 1-d tensors of floats: a sum of products. 16-bit floats are summed in f32.
                Dot = Row {
                    name: "_dot",
                    schema: Schema::Text("_dot(Tensor self, Tensor tensor) -> Tensor"),
                    infer: infer::dot,
                    meaning: Meaning::Decompose(decompose::dot),
                    derivative: Derivative::Formula(products::dot),
                };
                /// `beta * self + alpha * (mat1 @ mat2)`.
                Addmm { beta: Scalar = Scalar::Int(1), alpha: Scalar = Scalar::Int(1) } = Row {
                    name: "addmm",
                    schema: Schema::Text("addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"),
                    infer: infer::addmm,
                    meaning: Meaning::Decompose(decompose::addmm),
                    derivative: Derivative::Formula(products::addmm),
                };
                /// `beta * self + alpha * (batch1 @ batch2)`, a batched product.
                Baddbmm: Addmm = Row {
                    name: "baddbmm",
                    schema: Schema::Text("baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"),
                    infer: infer::addmm,
                    meaning: Meaning::Decompose(decompose::addmm),
                    derivative: Derivative::Formula(products::addmm),
                };
                /// Slices of a dim, selected by an index vector.
                IndexSelect: Along = Row {
                    name: "index_select",
                    schema: Schema::Text("index_select(Tensor self, int dim, Tensor index) -> Tensor"),
                    infer: infer::index_select,
                    meaning: Meaning::Gather(GatherKind::Select),
                    derivative: Derivative::Formula(scatters::index_select),
                };
                /// Reads one element along a dim for every element of the index.
                Gather { dim: i64, sparse_grad: bool } = Row {
                    name: "gather",
                    schema: Schema::Text("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor"),
                    infer: infer::gather,
                    meaning: Meaning::Gather(GatherKind::Elementwise),
                    derivative: Derivative::Formula(scatters::gather),
                };
                /// Rows of a table, selected by an index tensor of any shape.
                Embedding { padding_idx: i64 = -1, scale_grad_by_freq: bool, sparse: bool } = Row {
                    name: "embedding",
                    schema: Schema::Text("embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor"),
                    infer: infer::embedding,
                    meaning: Meaning::Gather(GatherKind::Rows),
                    derivative: Derivative::Formula(scatters::embedding),
                };
                /// Cumulative sums along a dim. Those of integers and bools are i64.
                Cumsum { dim: i64, dtype: Option<DType> } = Row {
                    name: "cumsum",
                    schema: Schema::Text("cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"),
                    infer: infer::scan,
                    meaning: Meaning::Routine(Routine::Scan(Scan::Sum)),
                    derivative: Derivative::Formula(scans::cumsum),
                };
                /// Cumulative products along a dim. Those of integers and bools are i64.
                Cumprod: Cumsum = Row {
                    name: "cumprod",
                    schema: Schema::Text("cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"),
                    infer: infer::scan,
                    meaning: Meaning::Routine(Routine::Scan(Scan::Prod)),
                    derivative: Derivative::Formula(scans::cumprod),
                };
                /// `y[i] = factor[i] * y[i - 1] + term[i]` along a dim, with 0 before the first. From the end if
                /// `reverse`.
                Recurrence { dim: i64, reverse: bool } = Row {
                    name: "_recurrence",
                    schema: Schema::Text("_recurrence(Tensor factor, Tensor term, int dim, bool reverse=False) -> Tensor"),
                    infer: infer::recurrence,
                    meaning: Meaning::Routine(Routine::Recurrence),
                    derivative: Derivative::Formula(scans::recurrence),
                };
                /// Index along a dim of the greatest element so far, the last of equal ones. A NaN is greater than any
                /// number.
                CummaxIndices: Along = Row {
                    name: "_cummax_indices",
                    schema: Schema::Text("_cummax_indices(Tensor self, int dim) -> Tensor"),
                    infer: infer::cumulative_indices,
                    meaning: Meaning::Routine(Routine::Scan(Scan::ArgMax)),
                    derivative: Derivative::None,
                };
                /// Index along a dim of the least element so far, the last of equal ones. A NaN is less than any
                /// number.
                CumminIndices: Along = Row {
                    name: "_cummin_indices",
                    schema: Schema::Text("_cummin_indices(Tensor self, int dim) -> Tensor"),
                    infer: infer::cumulative_indices,
                    meaning: Meaning::Routine(Routine::Scan(Scan::ArgMin)),
                    derivative: Derivative::None,
                };
                /// Indices that sort a dim. The sort is stable, and a NaN is greater than any number.
                Argsort { stable: bool, dim: i64 = -1, descending: bool } = Row {
                    name: "argsort",
                    schema: Schema::Text("argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor"),
                    infer: infer::argsort,
                    meaning: Meaning::Routine(Routine::Argsort),
                    derivative: Derivative::None,
                };
                /// Indices of the `k` greatest or least elements of a dim, sorted as by [`Op::Argsort`].
                TopkIndices { k: i64, dim: i64 = -1, largest: bool = true } = Row {
                    name: "_topk_indices",
                    schema: Schema::Text("_topk_indices(Tensor self, SymInt k, int dim=-1, bool largest=True) -> Tensor"),
                    infer: infer::topk_indices,
                    meaning: Meaning::Routine(Routine::First),
                    derivative: Derivative::None,
                };
                /// A copy with the elements of `src` written along a dim to the index. The last write to a place stays.
                Scatter: Along = Row {
                    name: "scatter",
                    schema: Schema::Text("scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"),
                    infer: infer::scatter,
                    meaning: Meaning::Routine(Routine::Scatter(Write::Overwrite)),
                    derivative: Derivative::Formula(scatters::scatter),
                };
                /// A copy with the elements of `src` added along a dim at the index.
                ScatterAdd: Along = Row {
                    name: "scatter_add",
                    schema: Schema::Text("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"),
                    infer: infer::scatter,
                    meaning: Meaning::Routine(Routine::Scatter(Write::Add)),
                    derivative: Derivative::Formula(scatters::scatter_add),
                };
                /// A copy with the elements of `src` reduced along a dim into the places of the index.
                ScatterReduce { dim: i64, reduce: Option<Reducer>, include_self: bool } = Row {
                    name: "scatter_reduce",
                    schema: Schema::Text("scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor"),
                    infer: infer::scatter,
                    meaning: Meaning::Routine(Routine::Scatter(Write::Reduce)),
                    derivative: Derivative::Formula(scatters::scatter_reduce),
                };
                /// Gradient of [`Op::Embedding`] by its table.
                EmbeddingDenseBackward { num_weights: i64, padding_idx: i64 = -1, scale_grad_by_freq: bool } = Row {
                    name: "embedding_dense_backward",
                    schema: Schema::Text("embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq) -> Tensor"),
                    infer: indexing::embedding_dense_backward_type,
                    meaning: Meaning::Decompose(indexing::embedding_dense_backward),
                    derivative: Derivative::Parts,
                };
                /// One index tensor per dim, as one index into the flattened dims. If `wrap`, negative ones count from
                /// the end.
                FlatIndex { sizes: Ints, wrap: bool } = Row {
                    name: "_flat_index",
                    schema: Schema::Text("_flat_index(Tensor[] indices, int[] sizes, bool wrap=True) -> Tensor"),
                    infer: infer::flat_index,
                    meaning: Meaning::Routine(Routine::FlatIndex),
                    derivative: Derivative::None,
                };
                /// The transposed factor of a positive definite matrix: of `L Lᵀ`, from its lower triangle, or of
                /// `Uᵀ U` from its upper one. If `check`, other matrices are errors; else the factor is NaN from the
                /// first bad minor on.
                CholeskyFactor { upper: bool, check: bool = true, pairs: bool } = Row {
                    name: "_linalg_cholesky",
                    schema: Schema::Text("_linalg_cholesky(Tensor self, bool upper=False, bool check=True, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::square_to_square,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Cholesky)),
                    derivative: Derivative::Formula(matrices::cholesky),
                };
                /// The transposed solution of a triangular system.
                SolveTriangular { upper: bool, unitriangular: bool, pairs: bool } = Row {
                    name: "_linalg_solve_triangular",
                    schema: Schema::Text("_linalg_solve_triangular(Tensor self, Tensor B, bool upper, bool unitriangular=False, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::solution,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::SolveTriangular)),
                    derivative: Derivative::Formula(matrices::solve_triangular),
                };
                /// The transposed solution of a square system. If `check`, a singular matrix is an error.
                Solve: Checked = Row {
                    name: "_linalg_solve",
                    schema: Schema::Text("_linalg_solve(Tensor self, Tensor B, bool check=True, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::solution,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Solve)),
                    derivative: Derivative::Formula(matrices::solve),
                };
                /// The transposed inverse. If `check`, a singular matrix is an error.
                Inverse: Checked = Row {
                    name: "_linalg_inv",
                    schema: Schema::Text("_linalg_inv(Tensor self, bool check=True, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::square_to_square,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Inverse)),
                    derivative: Derivative::Formula(matrices::inverse),
                };
                /// The determinant.
                Determinant: OfPairs = Row {
                    name: "_linalg_det_of",
                    schema: Schema::Text("_linalg_det_of(Tensor self, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::square_to_number,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Determinant)),
                    derivative: Derivative::Formula(matrices::determinant),
                };
                /// The derivatives of the determinant by each element.
                Cofactors: OfPairs = Row {
                    name: "_linalg_cofactors",
                    schema: Schema::Text("_linalg_cofactors(Tensor self, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::square_to_square,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Cofactors)),
                    derivative: Derivative::Formula(matrices::cofactors),
                };
                /// The sign of the determinant and the logarithm of its magnitude, in a dim of size 2.
                LogDeterminant: OfPairs = Row {
                    name: "_linalg_slogdet_pair",
                    schema: Schema::Text("_linalg_slogdet_pair(Tensor self, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::square_to_pair,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::LogDeterminant)),
                    derivative: Derivative::Formula(matrices::log_determinant),
                };
                /// The parts of `P L U` in one dim: the transposed triangles, and the pivots, counted from 1. If
                /// `check`, a zero on the diagonal of `U` is an error.
                LuFactors: Checked = Row {
                    name: "_linalg_lu_factor",
                    schema: Schema::Text("_linalg_lu_factor(Tensor self, bool check=False, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::lu,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Lu)),
                    derivative: Derivative::Formula(factorizations::lu),
                };
                /// The order of rows after swaps with pivots, which count from 1.
                LuPermutation { rows: i64 } = Row {
                    name: "_linalg_lu_permutation",
                    schema: Schema::Text("_linalg_lu_permutation(Tensor self, SymInt rows) -> Tensor"),
                    infer: infer::matrices::permutation,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Permutation)),
                    derivative: Derivative::None,
                };
                /// The parts of `Q R` in one dim, both transposed.
                QrFactors { complete: bool, pairs: bool } = Row {
                    name: "_linalg_qr",
                    schema: Schema::Text("_linalg_qr(Tensor self, bool complete=False, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::qr,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Qr)),
                    derivative: Derivative::Formula(factorizations::qr),
                };
                /// The eigenvalues of a symmetric matrix and its transposed eigenvectors in one dim, from its lower
                /// triangle.
                Eigen: OfPairs = Row {
                    name: "_linalg_eigh_packed",
                    schema: Schema::Text("_linalg_eigh_packed(Tensor self, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::eigen,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Eigen)),
                    derivative: Derivative::Formula(factorizations::eigen),
                };
                /// The eigenvalues of a symmetric matrix, from its lower triangle.
                Eigenvalues: OfPairs = Row {
                    name: "_linalg_eigvalsh",
                    schema: Schema::Text("_linalg_eigvalsh(Tensor self, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::eigenvalues,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Eigenvalues)),
                    derivative: Derivative::Formula(factorizations::eigenvalues),
                };
                /// The eigenvalues of a square matrix and its transposed eigenvectors in one dim, as pairs.
                GeneralEigen: OfPairs = Row {
                    name: "_linalg_eig_packed",
                    schema: Schema::Text("_linalg_eig_packed(Tensor self, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::general_eigen,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::GeneralEigen)),
                    derivative: Derivative::Formula(factorizations::general_eigen),
                };
                /// The eigenvalues of a square matrix, as pairs.
                GeneralEigenvalues: OfPairs = Row {
                    name: "_linalg_eigvals",
                    schema: Schema::Text("_linalg_eigvals(Tensor self, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::general_eigenvalues,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::GeneralEigenvalues)),
                    derivative: Derivative::Formula(factorizations::general_eigenvalues),
                };
                /// The parts of `U S Vᴴ` in one dim: the transposed `U`, the diagonal of `S`, and `Vᴴ`.
                Svd: SvdFactors = Row {
                    name: "_linalg_svd_packed",
                    schema: Schema::Text("_linalg_svd_packed(Tensor self, bool full=False, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::svd,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Singular)),
                    derivative: Derivative::Formula(factorizations::svd),
                };
                /// The singular values.
                SingularValues: OfPairs = Row {
                    name: "_linalg_svdvals",
                    schema: Schema::Text("_linalg_svdvals(Tensor self, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::singular_values,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::SingularValues)),
                    derivative: Derivative::Formula(factorizations::singular_values),
                };
                /// The transposed pseudoinverse. Singular values up to `atol`, or up to `rtol` times the greatest,
                /// count as 0. There is one tolerance of each kind per matrix, in two dims of size 1.
                Pseudoinverse: OfPairs = Row {
                    name: "_linalg_pinv",
                    schema: Schema::Text("_linalg_pinv(Tensor self, Tensor atol, Tensor rtol, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::pseudoinverse,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Pseudoinverse)),
                    derivative: Derivative::Formula(matrices::pseudoinverse),
                };
                /// The transposed exponential of a matrix.
                MatrixExponential: OfPairs = Row {
                    name: "_linalg_matrix_exp",
                    schema: Schema::Text("_linalg_matrix_exp(Tensor self, bool pairs=False) -> Tensor"),
                    infer: infer::matrices::square_to_square,
                    meaning: Meaning::Routine(Routine::Matrix(MatrixWork::Exponential)),
                    derivative: Derivative::Formula(matrices::exponential),
                };
                /// The discrete Fourier transform along a dim of complex numbers, times `scale`. These are pairs in the
                /// last dim. The exponent is negative if `forward`.
                FftPairs { dim: i64, forward: bool, scale: f64 = 1.0 } = Row {
                    name: "_fft_pairs",
                    schema: Schema::Text("_fft_pairs(Tensor self, int dim, bool forward, float scale=1.0) -> Tensor"),
                    infer: infer::fourier::complex,
                    meaning: Meaning::Routine(Routine::Fourier(Fourier::Complex)),
                    derivative: Derivative::Formula(fourier::complex),
                };
                /// The forward transform along a dim of real numbers, times `scale`, as pairs in a new last dim. If
                /// `onesided`, the last elements are left out that are conjugates of others.
                RfftPairs { dim: i64, onesided: bool = true, scale: f64 = 1.0 } = Row {
                    name: "_rfft_pairs",
                    schema: Schema::Text("_rfft_pairs(Tensor self, int dim, bool onesided=True, float scale=1.0) -> Tensor"),
                    infer: infer::fourier::from_real,
                    meaning: Meaning::Routine(Routine::Fourier(Fourier::FromReal)),
                    derivative: Derivative::Formula(fourier::from_real),
                };
                /// The backward transform of `n` elements along a dim, times `scale`, which is real. Given are the
                /// `n / 2 + 1` first elements; the others are conjugates of them.
                IrfftPairs { dim: i64, n: i64, scale: f64 = 1.0 } = Row {
                    name: "_irfft_pairs",
                    schema: Schema::Text("_irfft_pairs(Tensor self, int dim, SymInt n, float scale=1.0) -> Tensor"),
                    infer: infer::fourier::to_real,
                    meaning: Meaning::Routine(Routine::Fourier(Fourier::ToReal)),
                    derivative: Derivative::Formula(fourier::to_real),
                };
                /// Random words of 32 or 64 bits from a key: a seed and a first counter.
                RandomBits: Drawn = Row {
                    name: "_random_bits",
                    schema: Schema::Text("_random_bits(Tensor key, SymInt[] size, ScalarType dtype) -> Tensor"),
                    infer: random::bits,
                    meaning: Meaning::Routine(Routine::Bits),
                    derivative: Derivative::None,
                };
                /// Uniform numbers in [0, 1).
                RandomUniform: Drawn = Row {
                    name: "_random_uniform",
                    schema: Schema::Text("_random_uniform(Tensor key, SymInt[] size, ScalarType? dtype=None) -> Tensor"),
                    infer: random::float,
                    meaning: Meaning::Decompose(random::uniform),
                    derivative: Derivative::None,
                };
                /// Standard normal numbers.
                RandomNormal: Drawn = Row {
                    name: "_random_normal",
                    schema: Schema::Text("_random_normal(Tensor key, SymInt[] size, ScalarType? dtype=None) -> Tensor"),
                    infer: random::float,
                    meaning: Meaning::Decompose(random::normal),
                    derivative: Derivative::None,
                };
                /// Truth values that are true with probability `p`, to within 2^-33.
                RandomBernoulli { size: Ints, p: f64 = f64::NAN } = Row {
                    name: "_random_bernoulli",
                    schema: Schema::Text("_random_bernoulli(Tensor key, SymInt[] size, float p) -> Tensor"),
                    infer: random::bernoulli,
                    meaning: Meaning::Decompose(random::chance),
                    derivative: Derivative::None,
                };
                /// Whole numbers in `low..high`.
                RandomRange { size: Ints, low: i64, high: i64 } = Row {
                    name: "_random_range",
                    schema: Schema::Text("_random_range(Tensor key, SymInt[] size, int low, int high) -> Tensor"),
                    infer: random::range,
                    meaning: Meaning::Decompose(random::scaled),
                    derivative: Derivative::None,
                };
                /// Maps 64-bit words to whole numbers in `low..high`.
                RandomScale { low: i64, high: i64 } = Row {
                    name: "_random_scale",
                    schema: Schema::Text("_random_scale(Tensor self, int low, int high) -> Tensor"),
                    infer: random::scale_words,
                    meaning: body!(Integral, |x, RandomScale { low, high }| random::scale(x[0], low, high)),
                    derivative: Derivative::None,
                };
                /// Gradient of a dropout: kept elements times `scale`, 0 elsewhere.
                NativeDropoutBackward { scale: Scalar } = Row {
                    name: "native_dropout_backward",
                    schema: Schema::Text("native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor"),
                    infer: infer::pointwise,
                    meaning: body!(PromoteFloat, |x, NativeDropoutBackward { scale }| x[0] * x[1] * number(x[0], scale)),
                    derivative: Derivative::Formula(pointwise::dropout),
                };
                /// Tensors concatenated along a dim.
                Cat: Along = Row {
                    name: "cat",
                    schema: Schema::Text("cat(Tensor[] tensors, int dim=0) -> Tensor"),
                    infer: infer::cat,
                    meaning: Meaning::Concat,
                    derivative: Derivative::Formula(views::cat),
                };
                /// A row-major copy of `self`, with the elements of `src` written at `offset` and `stride` of it.
                Overlay { stride: Ints, offset: i64 } = Row {
                    name: "_overlay",
                    schema: Schema::Text("_overlay(Tensor self, Tensor src, int[] stride, int offset) -> Tensor"),
                    infer: infer::overlay,
                    meaning: Meaning::Overlay,
                    derivative: Derivative::Formula(views::overlay),
                };
                /// A tensor padded with a value. Negative counts crop. Pairs of (before, after) begin with the last
                /// dim.
                ConstantPadNd { pad: Ints, value: Option<Scalar> } = Row {
                    name: "constant_pad_nd",
                    schema: Schema::Text("constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor"),
                    infer: moves::padded,
                    meaning: Meaning::Decompose(moves::constant_pad_nd),
                    derivative: Derivative::Parts,
                };
                /// The elements at `offset` and `stride` of a row-major tensor.
                Part { size: Ints, stride: Ints, offset: i64 } = Row {
                    name: "_part",
                    schema: Schema::Text("_part(Tensor(a) self, int[] size, int[] stride, int offset) -> Tensor(a)"),
                    infer: infer::view,
                    meaning: Meaning::View(view::part),
                    derivative: Derivative::Formula(views::part_of),
                };
                /// A copy with one index of a dim replaced.
                SelectScatter: Select = Row {
                    name: "select_scatter",
                    schema: Schema::Text("select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor"),
                    infer: moves::select_replaced,
                    meaning: Meaning::Decompose(moves::select_scatter),
                    derivative: Derivative::Parts,
                };
                /// A copy with a slice of a dim replaced.
                SliceScatter: Slice = Row {
                    name: "slice_scatter",
                    schema: Schema::Text("slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor"),
                    infer: moves::slice_replaced,
                    meaning: Meaning::Decompose(moves::slice_scatter),
                    derivative: Derivative::Parts,
                };
                /// A copy with a diagonal replaced.
                DiagonalScatter: Diagonal = Row {
                    name: "diagonal_scatter",
                    schema: Schema::Text("diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor"),
                    infer: moves::diagonal_replaced,
                    meaning: Meaning::Decompose(moves::diagonal_scatter),
                    derivative: Derivative::Parts,
                };
                /// Reverses the order of elements along dims.
                Flip: Dims = Row {
                    name: "flip",
                    schema: Schema::Text("flip(Tensor self, int[] dims) -> Tensor"),
                    infer: moves::flipped,
                    meaning: Meaning::Decompose(moves::flip),
                    derivative: Derivative::Formula(views::flip),
                };
                /// The tensor repeated along each dim. Missing dims are added in front.
                Repeat { repeats: Ints } = Row {
                    name: "repeat",
                    schema: Schema::Text("repeat(Tensor self, SymInt[] repeats) -> Tensor"),
                    infer: moves::repeated,
                    meaning: Meaning::Decompose(moves::repeat),
                    derivative: Derivative::Parts,
                };
                /// The lower triangle of the last two dims, up to `diagonal`. Other elements are 0.
                Tril: Triangle = Row {
                    name: "tril",
                    schema: Schema::Text("tril(Tensor self, int diagonal=0) -> Tensor"),
                    infer: infer::triangle,
                    meaning: Meaning::Decompose(decompose::tril),
                    derivative: Derivative::Formula(views::tril),
                };
                /// The upper triangle of the last two dims, from `diagonal` on. Other elements are 0.
                Triu: Triangle = Row {
                    name: "triu",
                    schema: Schema::Text("triu(Tensor self, int diagonal=0) -> Tensor"),
                    infer: infer::triangle,
                    meaning: Meaning::Decompose(decompose::triu),
                    derivative: Derivative::Formula(views::triu),
                };
                /// A convolution of `(N, C, …)` by a weight of `(out, C / groups, …)`, or a transposed one.
                Convolution { bias: bool, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, output_padding: Ints, groups: i64 = 1 } = Row {
                    name: "convolution",
                    schema: Schema::Text("convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor"),
                    infer: convolution::infer,
                    meaning: Meaning::Decompose(convolution::decompose),
                    derivative: Derivative::Formula(convolution::gradients),
                };
                /// Gradient of [`Op::Convolution`] by its weight.
                ConvolutionWeight { kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: i64 = 1 } = Row {
                    name: "_convolution_weight",
                    schema: Schema::Text("_convolution_weight(Tensor input, Tensor gradient, SymInt[] kernel, SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups) -> Tensor"),
                    infer: convolution::weight::infer,
                    meaning: Meaning::Decompose(convolution::weight::decompose),
                    derivative: Derivative::Formula(convolution::weight::gradients),
                };
                /// Index of the greatest element of each window, into the flattened pooled dims.
                MaxPoolIndex { kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, count: Ints } = Row {
                    name: "_max_pool_index",
                    schema: Schema::Text("_max_pool_index(Tensor self, SymInt[] kernel_size, SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt[] count) -> Tensor"),
                    infer: pooling::infer,
                    meaning: Meaning::Decompose(pooling::decompose),
                    derivative: Derivative::None,
                };
                /// The greatest element of each window: that at [`Op::MaxPoolIndex`].
                MaxPool: MaxPoolIndex = Row {
                    name: "_max_pool",
                    schema: Schema::Text("_max_pool(Tensor self, SymInt[] kernel_size, SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt[] count) -> Tensor"),
                    infer: pooling::infer_values,
                    meaning: Meaning::Decompose(pooling::decompose_values),
                    derivative: Derivative::Formula(pooling::gradient),
                };
                /// A tensor of one number.
                Full { size: Ints, fill_value: Scalar, dtype: Option<DType> } = Row {
                    name: "full",
                    schema: Schema::Text("_full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor"),
                    infer: infer::full,
                    meaning: Meaning::Fill,
                    derivative: Derivative::None,
                };
                /// `start`, `start + step`, … below `end`.
                Arange { start: Scalar = Scalar::Int(1), end: Scalar = Scalar::Int(1), step: Scalar = Scalar::Int(1), dtype: Option<DType> } = Row {
                    name: "arange",
                    schema: Schema::Text("_arange(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None) -> Tensor"),
                    infer: infer::arange,
                    meaning: Meaning::Range,
                    derivative: Derivative::None,
                };
                /// `self`, with `slope` as its derivative by `other`: for values whose formula is not to be derived.
                Sloped = Row {
                    name: "_sloped",
                    schema: Schema::Text("_sloped(Tensor self, Tensor other, Tensor slope) -> Tensor"),
                    infer: infer::one_dtype,
                    meaning: Meaning::Body(Rule::FloatOnly, |x, _| x[0]),
                    derivative: Derivative::Pointwise(pointwise::sloped),
                };
            }
        }
    };
}
