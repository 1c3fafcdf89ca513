// The prelude of generated kernels: every machine operation has a wrapper here.
//
// No CUDA header is included, only builtins of the compiler are used. Meanings are those of `ir::scalar::eval`,
// whatever the options of a program. Sums and products are intrinsics that are never contracted. Signs and NaNs are
// handled as bits. Integers wrap, through unsigned ones. Conversions define the result for NaN.

#define DEVICE static __device__ __forceinline__
// Threads of a block and, optionally, the fewest blocks that a multiprocessor should hold.
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#define UNROLL _Pragma("unroll")
// For loops whose iterations depend on each other: unrolling takes long to compile and saves nothing.
#define ROLLED _Pragma("unroll 1")
// Shared memory of a block; an emulator may define its own.
#ifndef SHARED
#define SHARED(type, name, count) __shared__ type name[count]
#endif

typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

// The argument buffer of a kernel.
template <int N>
struct Words {
    u64 at[N];
};

DEVICE u32 block_x() { return blockIdx.x; }
DEVICE u32 thread_x() { return threadIdx.x; }
DEVICE u32 thread_y() { return threadIdx.y; }
DEVICE void barrier() { __syncthreads(); }
DEVICE char* address(u64 word) { return (char*)word; }

// n / d, by the multiplier and the shift of d; n is below half of the range of its type.
DEVICE u32 divide(u32 n, u64 multiplier, u64 shift) { return (__umulhi(n, (u32)multiplier) + n) >> (u32)shift; }
DEVICE u64 divide(u64 n, u64 multiplier, u64 shift) { return (__umul64hi(n, multiplier) + n) >> (u32)shift; }

// Faults, recorded for a host that may be polling. The first launch with a fault is recorded. Its threads may write at
// once, but what they write of one place is of one kind, so the last one leaves consistent words.
DEVICE void fault_zero_divisor(u64 faults, u64 site) {
    volatile u64* const record = (volatile u64*)faults;
    if (record[0] == 0) record[0] = site << 8 | 255;
}
DEVICE void fault_index(u64 faults, u64 site, int number, i64 index, u64 size) {
    volatile u64* const record = (volatile u64*)faults;
    const int place = number < 7 ? number : 7;
    if (record[0] != 0) return;
    record[1 + 2 * place] = (u64)index;
    record[2 + 2 * place] = size;
    __threadfence_system();
    record[0] = site << 8 | (u64)place;
}
// The first index of a thread that is out of range, recorded after a loop: recording it in every step is too much code.
struct Outside {
    int number = -1;
    i64 index = 0;
    __device__ __forceinline__ void note(bool is_outside, int of, i64 at) {
        if (is_outside && number < 0) number = of, index = at;
    }
};

DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
DEVICE u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
DEVICE float lit_f32(u32 bits) { return __uint_as_float(bits); }
DEVICE double lit_f64(u64 bits) { return __longlong_as_double((i64)bits); }

// Integers.
DEVICE i64 power(i64 base, i64 exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
    u64 result = 1, square = (u64)base;
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 == 1) result *= square;
        square *= square;
    }
    return (i64)result;
}
#define INTEGER(T, U, BITS) \
    DEVICE T op_add(T a, T b) { return (T)((U)a + (U)b); } \
    DEVICE T op_sub(T a, T b) { return (T)((U)a - (U)b); } \
    DEVICE T op_mul(T a, T b) { return (T)((U)a * (U)b); } \
    DEVICE T op_neg(T a) { return (T)(0 - (U)a); } \
    DEVICE T op_abs(T a) { return a < 0 ? op_neg(a) : a; } \
    DEVICE T op_and(T a, T b) { return a & b; } \
    DEVICE T op_or(T a, T b) { return a | b; } \
    DEVICE T op_xor(T a, T b) { return a ^ b; } \
    DEVICE T op_not(T a) { return ~a; } \
    DEVICE T op_shl(T a, T b) { return (T)((U)a << ((u32)b & (BITS - 1))); } \
    DEVICE T op_shr(T a, T b) { return a >> ((u32)b & (BITS - 1)); } \
    DEVICE T op_shru(T a, T b) { return (T)((U)a >> ((u32)b & (BITS - 1))); } \
    DEVICE T op_quot(T a, T b) { return b == 0 ? 0 : b == -1 ? op_neg(a) : a / b; } \
    DEVICE T op_rem(T a, T b) { return b == 0 || b == -1 ? 0 : a % b; } \
    DEVICE T op_ipow(T a, T b) { return (T)power(a, b); } \
    DEVICE bool is_nan(T) { return false; }
INTEGER(int, u32, 32)
INTEGER(i64, u64, 64)

// Floats; P is the prefix of intrinsics, S the suffix of functions.
#define FLOAT(T, U, P, S, FMA, LIT, SIGN, INFINITE, NAN_BITS) \
    DEVICE T op_add(T a, T b) { return __##P##add_rn(a, b); } \
    DEVICE T op_sub(T a, T b) { return __##P##sub_rn(a, b); } \
    DEVICE T op_mul(T a, T b) { return __##P##mul_rn(a, b); } \
    DEVICE T op_div(T a, T b) { return __##P##div_rn(a, b); } \
    DEVICE T op_sqrt(T a) { return __##P##sqrt_rn(a); } \
    DEVICE T op_fma(T a, T b, T c) { return FMA(a, b, c); } \
    DEVICE T op_rem(T a, T b) { return fmod##S(a, b); } \
    DEVICE T op_floor(T a) { return floor##S(a); } \
    DEVICE T op_ceil(T a) { return ceil##S(a); } \
    DEVICE T op_trunc(T a) { return trunc##S(a); } \
    DEVICE T op_round(T a) { return rint##S(a); } \
    DEVICE T op_neg(T a) { return LIT(bits_of(a) ^ SIGN); } \
    DEVICE T op_abs(T a) { return LIT(bits_of(a) & ~SIGN); } \
    DEVICE T op_canon(T a) { return (bits_of(a) & ~SIGN) > INFINITE ? LIT(NAN_BITS) : a; } \
    DEVICE bool is_nan(T a) { return (bits_of(a) & ~SIGN) > INFINITE; }
FLOAT(float, u32, f, f, __fmaf_rn, lit_f32, 0x80000000u, 0x7f800000u, 0x7fc00000u)
FLOAT(double, u64, d, , __fma_rn, lit_f64, 0x8000000000000000ull, 0x7ff0000000000000ull, 0x7ff8000000000000ull)

#define NUMBER(T) \
    DEVICE T op_max(T a, T b) { return a > b ? a : b; } \
    DEVICE T op_min(T a, T b) { return a < b ? a : b; } \
    DEVICE bool op_lt(T a, T b) { return a < b; } \
    DEVICE bool op_le(T a, T b) { return a <= b; }
#define ANY(T) \
    DEVICE bool op_eq(T a, T b) { return a == b; } \
    DEVICE bool op_ne(T a, T b) { return a != b; } \
    DEVICE bool op_to_bool(T a) { return a != (T)0; } \
    DEVICE T op_select(bool mask, T yes, T no) { return mask ? yes : no; }
NUMBER(int) NUMBER(i64) NUMBER(float) NUMBER(double)
ANY(bool) ANY(int) ANY(i64) ANY(float) ANY(double)

DEVICE bool op_and(bool a, bool b) { return a && b; }
DEVICE bool op_or(bool a, bool b) { return a || b; }
DEVICE bool op_xor(bool a, bool b) { return a != b; }
DEVICE bool op_not(bool a) { return !a; }

DEVICE float op_bitcast(int a) { return lit_f32((u32)a); }
DEVICE int op_bitcast(float a) { return (int)bits_of(a); }
DEVICE double op_bitcast(i64 a) { return lit_f64((u64)a); }
DEVICE i64 op_bitcast(double a) { return (i64)bits_of(a); }

DEVICE int op_to_i32(bool a) { return a; }
DEVICE int op_to_i32(int a) { return a; }
DEVICE int op_to_i32(i64 a) { return (int)a; }
DEVICE int op_to_i32(float a) { return is_nan(a) ? 0 : __float2int_rz(a); }
DEVICE int op_to_i32(double a) { return is_nan(a) ? 0 : __double2int_rz(a); }
DEVICE i64 op_to_i64(bool a) { return a; }
DEVICE i64 op_to_i64(int a) { return a; }
DEVICE i64 op_to_i64(i64 a) { return a; }
DEVICE i64 op_to_i64(float a) { return is_nan(a) ? 0 : __float2ll_rz(a); }
DEVICE i64 op_to_i64(double a) { return is_nan(a) ? 0 : __double2ll_rz(a); }
DEVICE float op_to_f32(bool a) { return a ? 1.0f : 0.0f; }
DEVICE float op_to_f32(int a) { return __int2float_rn(a); }
DEVICE float op_to_f32(i64 a) { return __ll2float_rn(a); }
DEVICE float op_to_f32(float a) { return a; }
DEVICE float op_to_f32(double a) { return __double2float_rn(a); }
DEVICE double op_to_f64(bool a) { return a ? 1.0 : 0.0; }
DEVICE double op_to_f64(int a) { return __int2double_rn(a); }
DEVICE double op_to_f64(i64 a) { return __ll2double_rn(a); }
DEVICE double op_to_f64(float a) { return (double)a; }
DEVICE double op_to_f64(double a) { return a; }

DEVICE int op_wrap_u8(int a) { return (unsigned char)a; }
DEVICE int op_wrap_i8(int a) { return (signed char)a; }
DEVICE int op_wrap_i16(int a) { return (short)a; }

// The two 16-bit floats, as `ir::scalar::half_bits` has them.
DEVICE float widen_bf16(unsigned short bits) { return lit_f32((u32)bits << 16); }
DEVICE unsigned short narrow_bf16(float a) { return (unsigned short)(bits_of(a) >> 16); }
DEVICE float op_round_bf16(float a) {
    const u32 bits = bits_of(a);
    return lit_f32(is_nan(a) ? 0x7fc00000u : (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}
DEVICE float widen_f16(unsigned short bits) {
    const u32 magnitude = bits & 0x7fffu;
    // 2^112 rebiases the exponent; the product is exact, also for subnormals.
    const u32 finite = bits_of(op_mul(lit_f32(magnitude << 13), lit_f32(0x77800000u)));
    return lit_f32(((u32)bits & 0x8000u) << 16 | (magnitude >= 0x7c00u ? 0x7f800000u | magnitude << 13 : finite));
}
DEVICE unsigned short round_f16(float a) {
    const u32 bits = bits_of(a), magnitude = bits & 0x7fffffffu;
    const u32 normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    // Adding 0.5 leaves a subnormal result in units of 2^-24 in the low bits, rounded by the addition.
    const u32 subnormal = bits_of(op_add(lit_f32(magnitude), 0.5f)) - 0x3f000000u;
    const u32 finite = magnitude < 0x38800000u ? subnormal : normal;
    const u32 clamped = magnitude >= 0x47800000u ? 0x7c00u : finite;
    return (unsigned short)(is_nan(a) ? 0x7e00u : (bits >> 16 & 0x8000u) | clamped);
}
DEVICE unsigned short narrow_f16(float a) {
    const u32 bits = bits_of(a);
    const u32 special = (bits >> 16 & 0x8000u) | 0x7c00u | (bits >> 13 & 0x3ffu);
    return (bits & 0x7fffffffu) >= 0x7f800000u ? (unsigned short)special : round_f16(a);
}
DEVICE float op_round_f16(float a) { return widen_f16(round_f16(a)); }

// Element types in memory: how an element is stored, the type it is computed in, and the conversions.
#define DTYPE(name, STORED, VALUE, WIDEN, NARROW) \
    struct name { \
        typedef STORED Stored; \
        typedef VALUE Value; \
        DEVICE Value widen(Stored x) { return WIDEN; } \
        DEVICE Stored narrow(Value x) { return (Stored)(NARROW); } \
    };
DTYPE(dt_bool, unsigned char, bool, x != 0, x)
DTYPE(dt_u8, unsigned char, int, x, x)
DTYPE(dt_i8, signed char, int, x, x)
DTYPE(dt_i16, short, int, x, x)
DTYPE(dt_i32, int, int, x, x)
DTYPE(dt_i64, i64, i64, x, x)
DTYPE(dt_f16, unsigned short, float, widen_f16(x), narrow_f16(x))
DTYPE(dt_bf16, unsigned short, float, widen_bf16(x), narrow_bf16(x))
DTYPE(dt_f32, float, float, x, x)
DTYPE(dt_f64, double, double, x, x)

// Memory accesses to one element, or to the first n of V neighbours; lanes from n on are zero bits. Elements are
// widened where they are used, because widening waits for memory.
template <class D>
DEVICE typename D::Stored stored(const char* from) { return *(const typename D::Stored*)from; }
template <class D>
DEVICE typename D::Value load_one(const char* from) { return D::widen(stored<D>(from)); }
template <class D>
DEVICE void store_one(char* to, typename D::Value x) { *(typename D::Stored*)to = D::narrow(x); }

// The element at an index of the gathered dimension, whose size is given. An index out of range is a fault, and reads
// zero.
template <class D>
DEVICE typename D::Value gather_one(const char* from, i64 index, u64 size, u64 stride) {
    return (u64)index < size ? load_one<D>(from + index * (i64)stride) : D::widen(0);
}

template <int BYTES> struct Piece { typedef uint4 Type; };
template <> struct Piece<1> { typedef unsigned char Type; };
template <> struct Piece<2> { typedef unsigned short Type; };
template <> struct Piece<4> { typedef u32 Type; };
template <> struct Piece<8> { typedef uint2 Type; };
// V elements, and the widest accesses that move them.
template <class T, int V>
union Vector {
    typedef typename Piece<V * sizeof(T)>::Type Wide;
    enum { PIECES = V * sizeof(T) / sizeof(Wide) };
    T element[V];
    Wide piece[PIECES];
};
template <class T, int V>
DEVICE void load_vector(Vector<T, V>& x, const char* from) {
    UNROLL for (int k = 0; k < x.PIECES; k++) x.piece[k] = ((const typename Vector<T, V>::Wide*)from)[k];
}
template <class T, int V>
DEVICE void load_vector(Vector<T, V>& x, const char* from, int n) {
    if (n == V) {
        load_vector(x, from);
    } else {
        UNROLL for (int k = 0; k < V; k++) x.element[k] = k < n ? ((const T*)from)[k] : 0;
    }
}
template <class T, int V>
DEVICE void store_raw(char* to, const Vector<T, V>& raw) {
    UNROLL for (int k = 0; k < raw.PIECES; k++) ((typename Vector<T, V>::Wide*)to)[k] = raw.piece[k];
}
template <class D, int V>
DEVICE void store_vector(char* to, const typename D::Value (&x)[V]) {
    Vector<typename D::Stored, V> raw;
    UNROLL for (int k = 0; k < V; k++) raw.element[k] = D::narrow(x[k]);
    store_raw(to, raw);
}
template <class D, int V>
DEVICE void store_vector(char* to, const typename D::Value (&x)[V], int n) {
    Vector<typename D::Stored, V> raw;
    UNROLL for (int k = 0; k < V; k++) raw.element[k] = D::narrow(x[k]);
    if (n == V) {
        store_raw(to, raw);
    } else {
        UNROLL for (int k = 0; k < V; k++) if (k < n) ((typename D::Stored*)to)[k] = raw.element[k];
    }
}
// V neighbours at an index of the gathered dimension, or the first n of them.
template <class T, int V>
DEVICE void gather_vector(Vector<T, V>& x, const char* from, i64 index, u64 size, u64 stride) {
    if ((u64)index < size) {
        load_vector(x, from + index * (i64)stride);
    } else {
        UNROLL for (int k = 0; k < V; k++) x.element[k] = 0;
    }
}
template <class T, int V>
DEVICE void gather_vector(Vector<T, V>& x, const char* from, i64 index, u64 size, u64 stride, int n) {
    const bool is_inside = (u64)index < size;
    load_vector(x, is_inside ? from + index * (i64)stride : from, is_inside ? n : 0);
}
