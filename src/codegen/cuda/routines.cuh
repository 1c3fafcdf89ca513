// Procedures on whole arrays, in the order of `eager::routine`: scans, writes by index, indices, sorts, random words.
//
// A thread has a line: the elements along one dim, one after the other, so sums have one order and the last write stays. Lines have
// no element in common. Sorts have a block per line, random words a thread per block of them.
#ifndef ROUTINES
#define ROUTINES

enum { FAULTS = 3, SITE = 5, LINE = 6, STEPS = 7 };

// Lines are counted at word 0 and have as many elements as word 1 says. From STEPS on there is per array its address and the distance
// of neighbours in a line; then per dim besides the line's its size, and per array a stride.
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
DEVICE u64 item() { return (u64)block_x() * 256u + thread_x(); }

// What runs along with a scan of elements: doubles with floats, so that long sums stay exact.
template <class D> struct Running { typedef typename D::Value Type; };
template <> struct Running<dt_f32> { typedef double Type; };
DEVICE double running_of(float x, double) { return (double)x; }
template <class R> DEVICE R running_of(R x, R) { return x; }

// An element of a result, with the one NaN that arithmetic makes; 16-bit floats are rounded here.
template <class D> struct Settled { template <class T> DEVICE T of(T x) { return x; } };
template <> struct Settled<dt_f32> {
    DEVICE float of(double x) { return op_canon(op_to_f32(x)); }
    DEVICE float of(float x) { return op_canon(x); }
};
template <> struct Settled<dt_f64> { DEVICE double of(double x) { return op_canon(x); } };
template <> struct Settled<dt_f16> { DEVICE float of(float x) { return op_round_f16(op_canon(x)); } };
template <> struct Settled<dt_bf16> { DEVICE float of(float x) { return op_round_bf16(op_canon(x)); } };

template <class T> DEVICE T plus(T a, T b) { return op_add(a, b); }
DEVICE bool plus(bool a, bool b) { return a || b; }
template <class T> DEVICE T times(T a, T b) { return op_mul(a, b); }
DEVICE bool times(bool a, bool b) { return a && b; }
struct Plus { template <class T> DEVICE T of(T a, T b) { return plus(a, b); } enum { START = 0 }; };
struct Times { template <class T> DEVICE T of(T a, T b) { return times(a, b); } enum { START = 1 }; };

template <class D, class Combine, int DIMS, class W>
DEVICE void scan(const W& w) {
    typedef typename Running<D>::Type R;
    if (item() >= w.at[0]) return;
    Lines<2, DIMS> lines(w, item());
    R sum = (R)Combine::START;
    for (u64 i = 0; i < w.at[1]; i++) {
        sum = Combine::of(sum, running_of(load_one<D>(lines.at[0]), sum));
        store_one<D>(lines.at[1], Settled<D>::of(sum));
        lines.at[0] += lines.step[0];
        lines.at[1] += lines.step[1];
    }
}

DEVICE bool is_nan(bool) { return false; }
struct Greatest { template <class T> DEVICE bool of(T a, T b) { return a >= b; } };
struct Least { template <class T> DEVICE bool of(T a, T b) { return a <= b; } };

// The place of the best so far, the last of equal ones; a NaN is better than any number.
template <class D, class Better, int DIMS, class W>
DEVICE void scan_places(const W& w) {
    typedef typename D::Value Value;
    if (item() >= w.at[0]) return;
    Lines<2, DIMS> lines(w, item());
    Value best = (Value)0;
    i64 place = 0;
    for (u64 i = 0; i < w.at[1]; i++) {
        const Value x = load_one<D>(lines.at[0]);
        if (i == 0 || is_nan(x) || (!is_nan(best) && Better::of(x, best))) {
            best = x;
            place = (i64)i;
        }
        store_one<dt_i64>(lines.at[1], place);
        lines.at[0] += lines.step[0];
        lines.at[1] += lines.step[1];
    }
}

// Each element is a factor times the one before, plus a term.
template <class D, bool REVERSE, int DIMS, class W>
DEVICE void recurrence(const W& w) {
    typedef typename Running<D>::Type R;
    if (item() >= w.at[0]) return;
    Lines<3, DIMS> lines(w, item());
    R x = (R)0;
    for (u64 i = 0; i < w.at[1]; i++) {
        const i64 at = (i64)(REVERSE ? w.at[1] - 1 - i : i);
        const R factor = running_of(load_one<D>(lines.at[0] + at * lines.step[0]), x);
        const R term = running_of(load_one<D>(lines.at[1] + at * lines.step[1]), x);
        x = op_add(op_mul(factor, x), term);
        store_one<D>(lines.at[2] + at * lines.step[2], Settled<D>::of(x));
    }
}

// What elements are collected as, and what they lie in meanwhile.
template <class D> struct Collected { typedef D Type; };
template <> struct Collected<dt_f16> { typedef dt_f32 Type; };
template <> struct Collected<dt_bf16> { typedef dt_f32 Type; };

// A copy, element by element; lines have one.
template <class From, class To, int DIMS, class W>
DEVICE void copy(const W& w) {
    if (item() >= w.at[0]) return;
    Lines<2, DIMS> lines(w, item());
    store_one<To>(lines.at[1], load_one<From>(lines.at[0]));
}
// What was collected, rounded once.
template <class D, int DIMS, class W>
DEVICE void settle(const W& w) {
    if (item() >= w.at[0]) return;
    Lines<2, DIMS> lines(w, item());
    store_one<D>(lines.at[1], Settled<D>::of(load_one<typename Collected<D>::Type>(lines.at[0])));
}
struct Overwriting { template <class T> DEVICE T of(T, T x) { return x; } };
template <class T> DEVICE T canonical(T x) { return x; }
DEVICE float canonical(float x) { return op_canon(x); }
DEVICE double canonical(double x) { return op_canon(x); }
struct Adding { template <class T> DEVICE T of(T there, T x) { return canonical(plus(there, x)); } };

// Elements of a source to where an index says along a dim, whose size is at LINE; arrays are index, source, target.
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

// A number that is less for a lesser element and equal for an equal one.
template <class D> struct Rank {
    DEVICE u64 of(typename D::Value x) { return (u64)(i64)x ^ 0x8000000000000000ull; }
};
DEVICE u64 rank_of(u64 bits, u64 sign, bool nan, u64 all) { return nan ? all : bits & sign ? ~bits & all : (bits | sign); }
template <> struct Rank<dt_bool> { DEVICE u64 of(bool x) { return x; } };
template <> struct Rank<dt_f32> {
    DEVICE u64 of(float x) { return rank_of(x == 0 ? 0 : bits_of(x), 0x80000000u, is_nan(x), 0xffffffffu); }
};
template <> struct Rank<dt_f16> { DEVICE u64 of(float x) { return Rank<dt_f32>::of(x); } };
template <> struct Rank<dt_bf16> { DEVICE u64 of(float x) { return Rank<dt_f32>::of(x); } };
template <> struct Rank<dt_f64> {
    DEVICE u64 of(double x) { return rank_of(x == 0 ? 0 : bits_of(x), 1ull << 63, is_nan(x), ~0ull); }
};

// The places of a line's elements in the order of their values, by a bitonic network: no two pairs of rank and place are equal,
// so there is one order. Behind the line's elements stand pairs that come last.
template <class D, bool DESCENDING, int SIZE, int DIMS, class W>
DEVICE void argsort(const W& w) {
    SHARED(u64, ranks, SIZE);
    SHARED(int, places, SIZE);
    Lines<2, DIMS> lines(w, block_x());
    const int n = (int)w.at[1];
    for (int i = (int)thread_x(); i < SIZE; i += 256) {
        const u64 rank = i < n ? Rank<D>::of(load_one<D>(lines.at[0] + i * lines.step[0])) : 0;
        ranks[i] = i < n ? (DESCENDING ? ~rank : rank) : ~0ull;
        places[i] = i < n ? i : 0x7fffffff;
    }
    barrier();
    for (int size = 2; size <= SIZE; size *= 2) {
        for (int apart = size / 2; apart > 0; apart /= 2) {
            for (int pair = (int)thread_x(); pair < SIZE / 2; pair += 256) {
                const int low = pair / apart * apart * 2 + pair % apart, high = low + apart;
                const u64 a = ranks[low], b = ranks[high];
                const int at_a = places[low], at_b = places[high];
                const bool is_above = a != b ? a > b : at_a > at_b;
                if (is_above == ((low & size) == 0)) {
                    ranks[low] = b;
                    ranks[high] = a;
                    places[low] = at_b;
                    places[high] = at_a;
                }
            }
            barrier();
        }
    }
    for (int i = (int)thread_x(); i < n; i += 256) store_one<dt_i64>(lines.at[1] + i * lines.step[1], places[i]);
}

// An index into several dims, whose sizes lie behind the strides. A negative one counts from the end if it may.
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
    // What is nowhere is nowhere read or written.
    store_one<dt_i64>(lines.at[N], is_inside ? sum : -1);
}

// Philox4x32-10, as `ir::philox` has it: a thread makes the four words of a counter. Word 1 is how many words there are; the key
// is at LINE and the word behind, or in memory at LINE, its halves so many bytes apart.
template <bool IN_WORDS, class W>
DEVICE void random_words(const W& w) {
    const u64 number = item(), n = w.at[1];
    if (number >= w.at[0]) return;
    const u64 seed = IN_WORDS ? w.at[LINE] : *(const u64*)w.at[LINE];
    const u64 counter = (IN_WORDS ? w.at[LINE + 1] : *(const u64*)(w.at[LINE] + w.at[LINE + 1])) + number;
    u32 a = (u32)counter, b = (u32)(counter >> 32), c = 0, d = 0, left = (u32)seed, right = (u32)(seed >> 32);
    UNROLL for (int round = 0; round < 10; round++) {
        const u64 first = (u64)0xd2511f53u * a, second = (u64)0xcd9e8d57u * c;
        a = (u32)(second >> 32) ^ b ^ left;
        b = (u32)second;
        c = (u32)(first >> 32) ^ d ^ right;
        d = (u32)first;
        left += 0x9e3779b9u;
        right += 0xbb67ae85u;
    }
    u32* const to = (u32*)w.at[LINE + 2] + 4 * number;
    const u64 behind = n - 4 * number;
    to[0] = a;
    if (behind > 1) to[1] = b;
    if (behind > 2) to[2] = c;
    if (behind > 3) to[3] = d;
}
#endif
