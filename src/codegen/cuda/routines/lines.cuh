// What routines share: lines, which are the disjoint sequences of elements along one dim, and the arithmetic of
// elements, which is that of `runtime::routine`.
enum { FAULTS = 3, SITE = 5, LINE = 6, STEPS = 7 };

// Word 0 is the number of lines, and word 1 their length. From STEPS on, each array has its address and its stride
// along a line. Then each dim besides the line's has its size and a stride per array.
template <int ARRAYS, int DIMS>
struct Lines {
    char* at[ARRAYS];
    i64 step[ARRAYS];

    template <class W>
    __device__ __forceinline__ Lines(const W& w, u64 line) {
        UNROLL for (int array = 0; array < ARRAYS; array++) {
            at[array] = address(w.at[STEPS + 2 * array]);
            step[array] = (i64)w.at[STEPS + 2 * array + 1];
        }
        UNROLL for (int dim = DIMS - 1; dim >= 0; dim--) {
            const int word = STEPS + 2 * ARRAYS + dim * (1 + ARRAYS);
            const u64 size = w.at[word], place = line % size;
            line /= size;
            UNROLL for (int array = 0; array < ARRAYS; array++) at[array] += place * w.at[word + 1 + array];
        }
    }
};
enum { THREADS = 256 };
DEVICE u64 item() { return (u64)block_x() * (u32)THREADS + thread_x(); }

// The type that scans accumulate in: double for floats, so that long sums stay exact.
template <class D> struct Running { typedef typename D::Value Type; };
template <> struct Running<dt_f32> { typedef double Type; };
DEVICE double running_of(float x, double) { return (double)x; }
template <class R> DEVICE R running_of(R x, R) { return x; }

// An element of a result: a NaN becomes canonical, and 16-bit floats are rounded.
template <class D> struct Settled { template <class T> DEVICE T of(T x) { return x; } };
template <> struct Settled<dt_f32> {
    DEVICE float of(double x) { return op_canon(op_to_f32(x)); }
    DEVICE float of(float x) { return op_canon(x); }
};
template <> struct Settled<dt_f64> { DEVICE double of(double x) { return op_canon(x); } };
template <> struct Settled<dt_f16> { DEVICE float of(float x) { return op_round_f16(op_canon(x)); } };
template <> struct Settled<dt_bf16> { DEVICE float of(float x) { return op_round_bf16(op_canon(x)); } };

DEVICE bool is_nan(bool) { return false; }
template <class T> DEVICE T plus(T a, T b) { return op_add(a, b); }
DEVICE bool plus(bool a, bool b) { return a || b; }
template <class T> DEVICE T times(T a, T b) { return op_mul(a, b); }
DEVICE bool times(bool a, bool b) { return a && b; }
struct Plus { template <class T> DEVICE T of(T a, T b) { return plus(a, b); } enum { START = 0 }; };
struct Times { template <class T> DEVICE T of(T a, T b) { return times(a, b); } enum { START = 1 }; };
