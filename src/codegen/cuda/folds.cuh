// Folds in the canonical order of `codegen::kernel`, by teams of 32 threads: each thread is a partial result.
//
// Element i goes to thread i mod 32; then the upper half of the threads is combined into the lower half until one is
// left. Blocks of 8192 elements are folded separately. Their results are folded in order in the same way, and so are
// the results of 8192 blocks. So what a thread holds depends on the length alone, not on teams, blocks or the grid.

enum { LANES = 32, BLOCK = 8192 };

// A value and its index.
template <class T>
struct At {
    T value;
    i64 index;
};
template <class T>
DEVICE At<T> at(T value, i64 index) {
    At<T> pair;
    pair.value = value;
    pair.index = index;
    return pair;
}

template <class T> struct Ends;
#define ENDS(T, LOWEST, HIGHEST) \
    template <> struct Ends<T> { \
        DEVICE T lowest() { return LOWEST; } \
        DEVICE T highest() { return HIGHEST; } \
    };
ENDS(int, -2147483647 - 1, 2147483647)
ENDS(i64, -9223372036854775807ll - 1, 9223372036854775807ll)
ENDS(float, lit_f32(0xff800000u), lit_f32(0x7f800000u))
ENDS(double, lit_f64(0xfff0000000000000ull), lit_f64(0x7ff0000000000000ull))

// The folds. A NaN stays in a maximum, and the later of two equal values is taken.
#define FOLD(name, IDENTITY, COMBINE) \
    template <class T> \
    struct name { \
        typedef T Part; \
        DEVICE T identity() { return IDENTITY; } \
        DEVICE T combine(T acc, T x) { return COMBINE; } \
    };
FOLD(Sum, (T)0, op_add(acc, x))
FOLD(Prod, (T)1, op_mul(acc, x))
FOLD(Max, Ends<T>::lowest(), acc > x || is_nan(acc) ? acc : x)
FOLD(Min, Ends<T>::highest(), acc < x || is_nan(acc) ? acc : x)
FOLD(Any, false, acc || x)
FOLD(All, true, acc && x)
// In index folds, a NaN beats everything else, and ties go to the lower index.
#define INDEX_FOLD(name, WORST, BEFORE) \
    template <class T> \
    struct name { \
        typedef At<T> Part; \
        DEVICE bool before(T a, T b) { return a BEFORE b; } \
        DEVICE Part identity() { return at<T>(WORST, 9223372036854775807ll); } \
        DEVICE Part combine(Part acc, Part x) { \
            const bool nan = is_nan(x.value), acc_nan = is_nan(acc.value); \
            const bool tie = !before(acc.value, x.value) && x.index < acc.index; \
            const bool ordered = before(x.value, acc.value) || tie; \
            return (nan && !acc_nan) || (nan == acc_nan && ordered) ? x : acc; \
        } \
    };
INDEX_FOLD(ArgMax, Ends<T>::lowest(), >)
INDEX_FOLD(ArgMin, Ends<T>::highest(), <)

// The value of a lane further up, and that of the first lane.
DEVICE int lane_down(int x, u32 by) { return __shfl_down_sync(0xffffffffu, x, by); }
DEVICE int lane_first(int x) { return __shfl_sync(0xffffffffu, x, 0); }
DEVICE bool lane_down(bool x, u32 by) { return lane_down((int)x, by) != 0; }
DEVICE float lane_down(float x, u32 by) { return op_bitcast(lane_down(op_bitcast(x), by)); }
DEVICE i64 lane_down(i64 x, u32 by) {
    const u64 low = (u32)lane_down((int)x, by), high = (u32)lane_down((int)(x >> 32), by);
    return (i64)(high << 32 | low);
}
DEVICE double lane_down(double x, u32 by) { return op_bitcast(lane_down(op_bitcast(x), by)); }
template <class T>
DEVICE At<T> lane_down(At<T> x, u32 by) { return at(lane_down(x.value, by), lane_down(x.index, by)); }
DEVICE bool lane_first(bool x) { return lane_first((int)x) != 0; }
DEVICE float lane_first(float x) { return op_bitcast(lane_first(op_bitcast(x))); }
DEVICE i64 lane_first(i64 x) {
    const u64 low = (u32)lane_first((int)x), high = (u32)lane_first((int)(x >> 32));
    return (i64)(high << 32 | low);
}
DEVICE double lane_first(double x) { return op_bitcast(lane_first(op_bitcast(x))); }
template <class T>
DEVICE At<T> lane_first(At<T> x) { return at(lane_first(x.value), lane_first(x.index)); }

// A warp that computes one row.
struct Warp {
    u32 lane;
    template <class F>
    __device__ __forceinline__ typename F::Part tree(typename F::Part x) {
        UNROLL for (u32 half = LANES / 2; half > 0; half /= 2) x = F::combine(x, lane_down(x, half));
        return lane_first(x);
    }
};

// Several warps that compute one row. Each thread has up to EACH elements, and each warp a contiguous range of the row.
// If the row has several blocks of a fold, ranges do not cross them. `slots` has two sets of 16 bytes per thread plus
// 32 more, which folds use alternately: all threads have met at a barrier between a set's reads and its next writes.
// With FULL, all threads have EACH elements.
template <int WARPS, int PER_THREAD, bool FULL = false>
struct Crew {
    enum { EACH = PER_THREAD, OF_BLOCK = BLOCK / LANES / EACH, SHARING = WARPS < OF_BLOCK ? WARPS : OF_BLOCK };
    u32 lane;
    u32 warp;
    char* slots;
    u32 set = 0;
    __device__ __forceinline__ u32 first() const { return warp * (EACH * LANES) + lane; }
    template <class F>
    __device__ __forceinline__ typename F::Part tree_of_warp(typename F::Part x) {
        UNROLL for (u32 half = LANES / 2; half > 0; half /= 2) x = F::combine(x, lane_down(x, half));
        return lane_first(x);
    }
    // The fold of n elements, from the partial results of each of their blocks.
    template <class F>
    __device__ __forceinline__ typename F::Part of_blocks(typename F::Part x, typename F::Part* line, u64 n) {
        const typename F::Part of_block = tree_of_warp<F>(x);
        if (WARPS == SHARING || n <= BLOCK) return of_block;
        if (warp % SHARING == 0 && lane == 0) line[warp / SHARING] = of_block;
        barrier();
        return tree_of_warp<F>(lane < WARPS / SHARING ? F::combine(F::identity(), line[lane]) : F::identity());
    }
    template <class F>
    __device__ __forceinline__ typename F::Part* next_set() {
        set ^= 1;
        return (typename F::Part*)(slots + set * ((WARPS + 1) * LANES * 16));
    }
    // A fold whose order does not matter: all warps fold their ranges at once.
    template <class F>
    __device__ __forceinline__ typename F::Part tree(typename F::Part own, u64 n) {
        typename F::Part* const parts = next_set<F>();
        parts[warp * LANES + lane] = own;
        barrier();
        const u32 first_warp = warp / SHARING * SHARING;
        typename F::Part x = parts[first_warp * LANES + lane];
        UNROLL for (u32 other = 1; other < SHARING; other++) x = F::combine(x, parts[(first_warp + other) * LANES + lane]);
        return of_blocks<F>(x, parts + WARPS * LANES, n);
    }
    // Any fold: a warp continues with the partial results of the one before.
    template <class F>
    __device__ __forceinline__ typename F::Part in_turn(const typename F::Part (&x)[EACH], u64 n) {
        typename F::Part* const parts = next_set<F>();
        typename F::Part* const own = parts + (warp / SHARING * LANES + lane);
        const int mine = ((int)n - (int)first() + (LANES - 1)) / LANES;
        ROLLED for (u32 turn = 0; turn < SHARING; turn++) {
            if (warp % SHARING == turn) {
                typename F::Part acc = turn == 0 ? F::identity() : *own;
                UNROLL for (int k = 0; k < EACH; k++) if (FULL || k < mine) acc = F::combine(acc, x[k]);
                *own = acc;
            }
            barrier();
        }
        return of_blocks<F>(*own, parts + WARPS * LANES, n);
    }
};

// The threads of a block that compute one of its rows. Neighbouring threads compute neighbouring rows, so that accesses
// are coalesced. `slots` has 16 bytes per thread.
template <int ROWS>
struct Column {
    u32 lane;
    u32 row;
    char* slots;
    template <class F>
    __device__ __forceinline__ typename F::Part tree(typename F::Part x) {
        typedef typename F::Part Part;
        Part* const own = (Part*)slots + (lane * ROWS + row);
        *own = x;
        barrier();
        ROLLED for (u32 half = LANES / 2; half > 0; half /= 2) {
            if (lane < half) *own = F::combine(*own, own[half * ROWS]);
            barrier();
        }
        const Part result = ((Part*)slots)[row];
        // The next tree writes the same slots.
        barrier();
        return result;
    }
};

// What a thread holds of a fold: its partial results of elements, of blocks, and of chunks of blocks.
template <class F>
struct Folding {
    typedef typename F::Part Part;
    Part element, block, chunk;
    __device__ __forceinline__ Folding() : element(F::identity()), block(F::identity()), chunk(F::identity()) {}
    __device__ __forceinline__ void add(Part x) { element = F::combine(element, x); }
};
// Ends a block of a sequence of n elements; only called if it has several.
template <class F, class Team>
DEVICE void close_block(Folding<F>& fold, u64 number, u64 n, Team& team) {
    const u64 blocks = (n + BLOCK - 1) / BLOCK;
    const typename F::Part of_block = team.template tree<F>(fold.element);
    fold.element = F::identity();
    if (number % LANES == team.lane) fold.block = F::combine(fold.block, of_block);
    if (blocks > BLOCK && ((number + 1) % BLOCK == 0 || number + 1 == blocks)) {
        const typename F::Part of_chunk = team.template tree<F>(fold.block);
        fold.block = F::identity();
        if (number / BLOCK % LANES == team.lane) fold.chunk = F::combine(fold.chunk, of_chunk);
    }
}
// The result of a sequence of n elements, for every thread of the team.
template <class F, class Team>
DEVICE typename F::Part total(const Folding<F>& fold, u64 n, Team& team) {
    return team.template tree<F>(n <= BLOCK ? fold.element : n <= (u64)BLOCK * BLOCK ? fold.block : fold.chunk);
}

// Results of blocks that other teams stored in memory, 16 bytes each.
template <class F>
DEVICE typename F::Part* part(u64 scratch, u64 number) { return (typename F::Part*)(scratch + 16 * number); }
template <class F, class Team>
DEVICE typename F::Part total_of_parts(u64 scratch, u64 first, u64 n, Team& team) {
    typedef typename F::Part Part;
    Part total = F::identity(), chunk = F::identity();
    for (u64 start = 0, number = 0; start < n; start += BLOCK, number++) {
        const u64 end = n - start < BLOCK ? n : start + BLOCK, own = start + team.first();
        Part x[Team::EACH];
        UNROLL for (int k = 0; k < Team::EACH; k++) {
            x[k] = own + k * LANES < end ? *part<F>(scratch, first + own + k * LANES) : F::identity();
        }
        total = team.template in_turn<F>(x, end - start);
        if (number % LANES == team.lane) chunk = F::combine(chunk, total);
    }
    return n <= BLOCK ? total : team.template tree_of_warp<F>(chunk);
}
