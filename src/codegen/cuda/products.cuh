// Matrix products in the canonical order: an element is one chain over the inner dimension, from its start.
//
// A block of 16 x 16 threads computes a tile of the result, each thread SIDE x SIDE elements of it. Strips of DEPTH
// columns of the left operand, and as many rows of the right one, are in shared memory twice: while one pair is
// multiplied, the next one is loaded through registers. No chain is cut, so tiles do not change bits. Past the end of a
// chain the padding adds nothing to any sum: +0 on the left and -0 on the right, whose product is -0.
#ifndef PRODUCTS
#define PRODUCTS

// One step of a chain: floats are fused, so the product is not rounded; integers wrap.
DEVICE float chain(float a, float b, float sum) { return op_fma(a, b, sum); }
DEVICE double chain(double a, double b, double sum) { return op_fma(a, b, sum); }
DEVICE int chain(int a, int b, int sum) { return op_add(sum, op_mul(a, b)); }
DEVICE i64 chain(i64 a, i64 b, i64 sum) { return op_add(sum, op_mul(a, b)); }

DEVICE float nothing(float) { return lit_f32(0x80000000u); }
DEVICE double nothing(double) { return lit_f64(0x8000000000000000ull); }
DEVICE int nothing(int) { return 0; }
DEVICE i64 nothing(i64) { return 0; }

enum { TEAM = 16, THREADS = TEAM * TEAM, DEPTH = 8 };

// One operand: LENGTH of its rows (or columns) by DEPTH steps along the inner dimension. ALONG: its smallest stride is
// along the inner dimension, so neighbouring threads read along it.
template <class D, int LENGTH, bool ALONG>
struct Strip {
    typedef typename D::Value Value;
    enum { EACH = LENGTH * DEPTH / THREADS, PITCH = LENGTH + 4 };
    // The address of the thread's first element, and the offsets of its others and of the next strip.
    const char* from;
    i64 between, onward;
    // What is left of the operand from the tile's edge, and from the strip's start.
    i64 length, depth;
    Value outside;
    Value held[EACH];

    static __device__ __forceinline__ int place(int index) { return ALONG ? index / DEPTH : index % LENGTH; }
    static __device__ __forceinline__ int level(int index) { return ALONG ? index % DEPTH : index / LENGTH; }

    __device__ __forceinline__ Strip(const char* corner, i64 stride, i64 step, i64 length, i64 depth, Value outside, int thread)
        : from(corner + (place(thread) * stride + level(thread) * step)),
          between(ALONG ? THREADS / DEPTH * stride : THREADS / LENGTH * step), onward(DEPTH * step), length(length),
          depth(depth), outside(outside) {}
    // Loads the next strip.
    __device__ __forceinline__ void fetch(int thread) {
        UNROLL for (int k = 0; k < EACH; k++) {
            const int index = k * THREADS + thread;
            const bool inside = place(index) < length && level(index) < depth;
            held[k] = inside ? load_one<D>(from + k * between) : outside;
        }
        from += onward;
        depth -= DEPTH;
    }
    __device__ __forceinline__ void put(Value* to, int thread) const {
        UNROLL for (int k = 0; k < EACH; k++) {
            const int index = k * THREADS + thread;
            to[level(index) * PITCH + place(index)] = held[k];
        }
    }
};

// The k-th of a thread's elements along a side of the tile: groups of four neighbours, so that shared memory is read in
// wide accesses without bank conflicts.
template <int SIDE>
DEVICE int spot(int k, int lane) {
    return SIDE < 4 ? k * TEAM + lane : k / 4 * (4 * TEAM) + lane * 4 + k % 4;
}

// A thread's elements of one step of a strip.
template <int SIDE, class T>
DEVICE void take(T (&x)[SIDE], const T* level, int lane) {
    enum { WIDE = SIDE < 4 ? 1 : 4 };
    UNROLL for (int k = 0; k < SIDE; k += WIDE) {
        typedef Vector<T, WIDE> Raw;
        Raw raw;
        const typename Raw::Wide* const from = (const typename Raw::Wide*)(level + spot<SIDE>(k, lane));
        UNROLL for (int piece = 0; piece < Raw::PIECES; piece++) raw.piece[piece] = from[piece];
        UNROLL for (int i = 0; i < WIDE; i++) x[k + i] = raw.element[i];
    }
}

template <int SIDE, class T>
DEVICE void multiply(const T* left, const T* right, int x, int y, T (&sum)[SIDE][SIDE]) {
    enum { PITCH = SIDE * TEAM + 4 };
    UNROLL for (int level = 0; level < DEPTH; level++) {
        T a[SIDE], b[SIDE];
        take(a, left + level * PITCH, y);
        take(b, right + level * PITCH, x);
        UNROLL for (int row = 0; row < SIDE; row++)
            UNROLL for (int column = 0; column < SIDE; column++)
                sum[row][column] = chain(a[row], b[column], sum[row][column]);
    }
}

// Words of the argument buffer; see `product.rs`.
enum { P_M, P_N, P_K, P_DOWN, P_ACROSS, P_LEFT, P_RIGHT = P_LEFT + 4, P_RESULT = P_RIGHT + 4, P_WORDS };

// D: the dtype of the operands; R: that of the result and of the sums.
template <class D, class R, int SIDE, bool LEFT_ALONG, bool RIGHT_ALONG>
DEVICE void product(const Words<P_WORDS>& w) {
    typedef typename D::Value Value;
    enum { TILE = SIDE * TEAM, PITCH = TILE + 4 };
    // In units of 16 bytes, so that they are aligned for reading four at once.
    SHARED(uint4, left_memory, 2 * DEPTH * PITCH * sizeof(Value) / 16);
    SHARED(uint4, right_memory, 2 * DEPTH * PITCH * sizeof(Value) / 16);
    Value *const lefts = (Value*)left_memory, *const rights = (Value*)right_memory;
    const int x = (int)thread_x(), y = (int)thread_y(), thread = y * TEAM + x;
    const u64 tile = block_x(), matrix = tile / (w.at[P_DOWN] * w.at[P_ACROSS]);
    const i64 first_row = (i64)(tile / w.at[P_ACROSS] % w.at[P_DOWN]) * TILE;
    const i64 first_column = (i64)(tile % w.at[P_ACROSS]) * TILE;
    const i64 m = (i64)w.at[P_M], n = (i64)w.at[P_N], depth = (i64)w.at[P_K];

    const i64 left_row = (i64)w.at[P_LEFT + 2], right_column = (i64)w.at[P_RIGHT + 3];
    Strip<D, TILE, LEFT_ALONG> left(
        address(w.at[P_LEFT]) + ((i64)matrix * (i64)w.at[P_LEFT + 1] + first_row * left_row), left_row,
        (i64)w.at[P_LEFT + 3], m - first_row, depth, Value(0), thread
    );
    Strip<D, TILE, RIGHT_ALONG> right(
        address(w.at[P_RIGHT]) + ((i64)matrix * (i64)w.at[P_RIGHT + 1] + first_column * right_column), right_column,
        (i64)w.at[P_RIGHT + 2], n - first_column, depth, nothing(Value(0)), thread
    );

    Value sum[SIDE][SIDE];
    UNROLL for (int row = 0; row < SIDE; row++)
        UNROLL for (int column = 0; column < SIDE; column++) sum[row][column] = Value(0);

    left.fetch(thread);
    right.fetch(thread);
    left.put(lefts, thread);
    right.put(rights, thread);
    barrier();
    int now = 0;
    for (i64 left_over = depth; left_over > 0; left_over -= DEPTH) {
        const bool is_last = left_over <= DEPTH;
        if (!is_last) {
            left.fetch(thread);
            right.fetch(thread);
        }
        multiply(lefts + now * DEPTH * PITCH, rights + now * DEPTH * PITCH, x, y, sum);
        now = 1 - now;
        if (!is_last) {
            left.put(lefts + now * DEPTH * PITCH, thread);
            right.put(rights + now * DEPTH * PITCH, thread);
        }
        barrier();
    }

    char* const result = address(w.at[P_RESULT]) + (i64)matrix * m * n * (i64)sizeof(typename R::Stored);
    UNROLL for (int i = 0; i < SIDE; i++) {
        const i64 row = first_row + spot<SIDE>(i, y);
        UNROLL for (int k = 0; k < SIDE; k++) {
            const i64 column = first_column + spot<SIDE>(k, x);
            if (row < m && column < n)
                store_one<R>(result + (row * n + column) * (i64)sizeof(typename R::Stored), Rounded<R>::of(sum[i][k]));
        }
    }
}
#endif
