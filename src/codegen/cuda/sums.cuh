// How the sums of a product are stored.
#ifndef SUMS
#define SUMS
template <class D> struct Rounded { template <class T> DEVICE T of(T x) { return x; } };
template <> struct Rounded<dt_f32> { DEVICE float of(float x) { return op_canon(x); } };
template <> struct Rounded<dt_f64> { DEVICE double of(double x) { return op_canon(x); } };
template <> struct Rounded<dt_f16> { DEVICE float of(float x) { return op_round_f16(x); } };
template <> struct Rounded<dt_bf16> { DEVICE float of(float x) { return op_round_bf16(x); } };
#endif
