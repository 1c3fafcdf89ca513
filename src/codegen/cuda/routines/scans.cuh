// Scans. A thread has a line and takes its elements in order, so sums have one order.
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

struct Greatest { template <class T> DEVICE bool of(T a, T b) { return a >= b; } };
struct Least { template <class T> DEVICE bool of(T a, T b) { return a <= b; } };

// The place of the best element so far, the last of equal ones; a NaN is better than any number.
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

// Each element is the one before times a factor, plus a term.
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

// Scans whose parts may be combined in any grouping, for a few long lines. Blocks fold the chunks of a line, one block
// per line scans these results, and blocks scan the chunks. Word LINE is the number of chunks of a line. The results of
// chunks are at the address in the last word.
template <class D, class Combine>
struct Sums {
    typedef typename D::Value Part;
    typedef D To;
    DEVICE Part identity() { return (Part)Combine::START; }
    DEVICE Part of(Part x, i64) { return x; }
    DEVICE Part combine(Part before, Part x) { return Combine::of(before, x); }
    DEVICE Part result(Part x) { return x; }
};
// A value and its place; a place below 0 means none.
template <class D, class Better>
struct Bests {
    typedef At<typename D::Value> Part;
    typedef dt_i64 To;
    DEVICE Part identity() { return at((typename D::Value)0, (i64)-1); }
    DEVICE Part of(typename D::Value x, i64 place) { return at(x, place); }
    DEVICE Part combine(Part before, Part x) {
        if (before.index < 0 || x.index < 0) return x.index < 0 ? before : x;
        return is_nan(x.value) || (!is_nan(before.value) && Better::of(x.value, before.value)) ? x : before;
    }
    DEVICE i64 result(Part x) { return x.index; }
};

enum { EACH = 8, CHUNK = THREADS * EACH };
// The combined parts of the threads before this one; those of all threads are the last of `slots` then.
template <class S>
DEVICE typename S::Part before(typename S::Part own, typename S::Part* slots) {
    const u32 thread = thread_x();
    slots[thread] = own;
    barrier();
    for (u32 by = 1; by < THREADS; by *= 2) {
        const typename S::Part other = thread >= by ? slots[thread - by] : S::identity();
        barrier();
        if (thread >= by) slots[thread] = S::combine(other, slots[thread]);
        barrier();
    }
    return thread > 0 ? slots[thread - 1] : S::identity();
}
// The elements of a thread in the chunk of its block: neighbours, from `first` on.
template <class D, class S, int DIMS>
struct Chunk {
    u64 first;
    typename S::Part part[EACH], whole;
    template <class W>
    __device__ __forceinline__ Chunk(const W& w, const Lines<2, DIMS>& lines) : whole(S::identity()) {
        first = block_x() % w.at[LINE] * CHUNK + thread_x() * EACH;
        UNROLL for (int k = 0; k < EACH; k++) {
            const i64 i = (i64)first + k;
            part[k] = i < (i64)w.at[1] ? S::of(load_one<D>(lines.at[0] + i * lines.step[0]), i) : S::identity();
        }
        UNROLL for (int k = 0; k < EACH; k++) whole = S::combine(whole, part[k]);
    }
};
template <class S, int DIMS, class W>
DEVICE typename S::Part* of_chunks(const W& w) { return (typename S::Part*)w.at[STEPS + 4 + 3 * DIMS]; }

template <class D, class S, int DIMS, class W>
DEVICE void scan_chunks(const W& w) {
    SHARED(typename S::Part, slots, THREADS);
    const Lines<2, DIMS> lines(w, block_x() / w.at[LINE]);
    const Chunk<D, S, DIMS> chunk(w, lines);
    before<S>(chunk.whole, slots);
    if (thread_x() == 0) of_chunks<S, DIMS>(w)[block_x()] = slots[THREADS - 1];
}
template <class S, int DIMS, class W>
DEVICE void scan_totals(const W& w) {
    SHARED(typename S::Part, slots, THREADS);
    const u64 chunks = w.at[LINE];
    typename S::Part* const totals = of_chunks<S, DIMS>(w) + block_x() * chunks;
    typename S::Part sum = S::identity();
    for (u64 start = 0; start < chunks; start += THREADS) {
        const u64 chunk = start + thread_x();
        const typename S::Part own = chunk < chunks ? totals[chunk] : S::identity(), others = before<S>(own, slots);
        if (chunk < chunks) totals[chunk] = S::combine(sum, others);
        sum = S::combine(sum, slots[THREADS - 1]);
        barrier();
    }
}
template <class D, class S, int DIMS, class W>
DEVICE void scan_with_offset(const W& w) {
    SHARED(typename S::Part, slots, THREADS);
    const Lines<2, DIMS> lines(w, block_x() / w.at[LINE]);
    const Chunk<D, S, DIMS> chunk(w, lines);
    typename S::Part sum = S::combine(of_chunks<S, DIMS>(w)[block_x()], before<S>(chunk.whole, slots));
    UNROLL for (int k = 0; k < EACH; k++) {
        const i64 i = (i64)chunk.first + k;
        sum = S::combine(sum, chunk.part[k]);
        if (i < (i64)w.at[1]) store_one<typename S::To>(lines.at[1] + i * lines.step[1], S::result(sum));
    }
}
