// Writes by index, and indices into several dims as one. A thread has a line and takes its elements in order, so sums
// have one order and the last write stays.

// The dtype that elements accumulate in.
template <class D> struct Collected { typedef D Type; };
template <> struct Collected<dt_f16> { typedef dt_f32 Type; };
template <> struct Collected<dt_bf16> { typedef dt_f32 Type; };

// A copy, element by element: lines have length one.
template <class From, class To, int DIMS, class W>
DEVICE void copy(const W& w) {
    if (item() >= w.at[0]) return;
    Lines<2, DIMS> lines(w, item());
    store_one<To>(lines.at[1], load_one<From>(lines.at[0]));
}
// The accumulated elements, rounded once. What was not written keeps its bits, also those of a NaN. Arrays are the
// accumulated elements, those before, result.
template <class D, int DIMS, class W>
DEVICE void settle(const W& w) {
    if (item() >= w.at[0]) return;
    Lines<3, DIMS> lines(w, item());
    const float collected = load_one<typename Collected<D>::Type>(lines.at[0]), before = load_one<D>(lines.at[1]);
    const bool is_kept = bits_of(collected) == bits_of(before);
    store_one<D>(lines.at[2], is_kept ? before : Settled<D>::of(collected));
}
struct Overwriting { template <class T> DEVICE T of(T, T x) { return x; } };
template <class T> DEVICE T canonical(T x) { return x; }
DEVICE float canonical(float x) { return op_canon(x); }
DEVICE double canonical(double x) { return op_canon(x); }
struct Adding { template <class T> DEVICE T of(T there, T x) { return canonical(plus(there, x)); } };

// Writes the elements of a source at indices along a dim, whose size is the word LINE. Arrays are index, source,
// target.
template <class I, class D, class To, class How, int DIMS, class W>
DEVICE void scatter(const W& w) {
    if (item() >= w.at[0]) return;
    Lines<3, DIMS> lines(w, item());
    for (u64 i = 0; i < w.at[1]; i++) {
        const i64 place = load_one<I>(lines.at[0]);
        if ((u64)place >= w.at[LINE]) {
            fault_index(w.at[FAULTS], w.at[SITE], 0, place, w.at[LINE]);
        } else {
            char* const to = lines.at[2] + place * lines.step[2];
            store_one<To>(to, How::of(load_one<To>(to), (typename To::Value)load_one<D>(lines.at[1])));
        }
        lines.at[0] += lines.step[0];
        lines.at[1] += lines.step[1];
    }
}

struct Multiplying { template <class T> DEVICE T of(T there, T x) { return canonical(times(there, x)); } };
struct Most { template <class T> DEVICE T of(T there, T x) { return canonical(is_nan(there) || there >= x ? there : x); } };
struct Fewest { template <class T> DEVICE T of(T there, T x) { return canonical(is_nan(there) || there <= x ? there : x); } };

// A quotient; integers are rounded down.
DEVICE float over(float x, i64 n) { return op_canon(op_div(x, op_to_f32(n))); }
DEVICE double over(double x, i64 n) { return op_canon(op_div(x, op_to_f64(n))); }
DEVICE i64 over(i64 x, i64 n) { return x / n - (x % n < 0); }
DEVICE int over(int x, i64 n) { return (int)over((i64)x, n); }
DEVICE bool over(bool x, i64) { return x; }

// Like `scatter`, with a function that folds elements. Without the target's own elements, a fold starts from the
// element in the last word. For means, a fourth array counts the elements of each place.
template <class I, class D, class To, class How, bool WITH_SELF, bool IS_MEAN, int DIMS, class W>
DEVICE void scatter_reduce(const W& w) {
    enum { ARRAYS = IS_MEAN ? 4 : 3 };
    if (item() >= w.at[0]) return;
    const Lines<ARRAYS, DIMS> lines(w, item());
    const u64 n = w.at[1], size = w.at[LINE];
    if (!WITH_SELF) {
        const u64 first = w.at[STEPS + 2 * ARRAYS + DIMS * (1 + ARRAYS)];
        for (u64 i = 0; i < n; i++) {
            const i64 place = load_one<I>(lines.at[0] + (i64)i * lines.step[0]);
            if ((u64)place < size) store_one<To>(lines.at[2] + place * lines.step[2], load_one<To>((const char*)&first));
        }
    }
    if (IS_MEAN) {
        for (u64 i = 0; i < size; i++) store_one<dt_i64>(lines.at[ARRAYS - 1] + (i64)i * lines.step[ARRAYS - 1], WITH_SELF);
    }
    for (u64 i = 0; i < n; i++) {
        const i64 place = load_one<I>(lines.at[0] + (i64)i * lines.step[0]);
        if ((u64)place >= size) {
            fault_index(w.at[FAULTS], w.at[SITE], 0, place, size);
            continue;
        }
        char* const to = lines.at[2] + place * lines.step[2];
        const typename To::Value x = (typename To::Value)load_one<D>(lines.at[1] + (i64)i * lines.step[1]);
        store_one<To>(to, How::of(load_one<To>(to), x));
        if (IS_MEAN) {
            char* const count = lines.at[ARRAYS - 1] + place * lines.step[ARRAYS - 1];
            store_one<dt_i64>(count, load_one<dt_i64>(count) + 1);
        }
    }
    if (IS_MEAN) {
        for (u64 i = 0; i < size; i++) {
            const i64 count = load_one<dt_i64>(lines.at[ARRAYS - 1] + (i64)i * lines.step[ARRAYS - 1]);
            char* const to = lines.at[2] + (i64)i * lines.step[2];
            if (count > 1) store_one<To>(to, over(load_one<To>(to), count));
        }
    }
}

// An index into several dims, whose sizes follow the strides. With WRAPS, a negative one counts from the end.
template <class I, int N, bool WRAPS, int DIMS, class W>
DEVICE void flat_index(const W& w) {
    if (item() >= w.at[0]) return;
    Lines<N + 1, DIMS> lines(w, item());
    i64 sum = 0;
    bool is_inside = true;
    UNROLL for (int dim = 0; dim < N; dim++) {
        const i64 size = (i64)w.at[STEPS + 2 * (N + 1) + DIMS * (N + 2) + dim];
        const i64 place = load_one<I>(lines.at[dim]);
        if (place < (WRAPS ? -size : 0) || place >= size) {
            fault_index(w.at[FAULTS], w.at[SITE], dim, place, (u64)size);
            is_inside = false;
        }
        sum = op_add(op_mul(sum, size), place < 0 ? place + size : place);
    }
    // An index of -1 is neither read nor written.
    store_one<dt_i64>(lines.at[N], is_inside ? sum : -1);
}
