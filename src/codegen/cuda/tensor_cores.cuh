// Matrix products of 16-bit floats on tensor cores: exact products, summed in 32 bits in the hardware's order.
//
// A block computes a tile of the result, and each of its warps a part of WARP_ROWS x WARP_COLUMNS elements in steps of
// 16 x 8 x 16. Strips of DEEP steps along the inner dimension are in shared memory, in several stages: while one is
// multiplied, the next ones are copied, without registers where memory is aligned for it. A strip has the layout of its
// operand in memory, in lines of pieces of 16 bytes. Pieces are permuted within a line (swizzled), so that eight that
// are read at once are in different banks. What is outside an operand is zero. At the end, sums go through shared
// memory, a few rows at a time, so that a thread gets neighbours of a row for the epilogue, which stores them.
#ifndef TENSOR_CORES
#define TENSOR_CORES

// Operations of a whole warp, and of asynchronous copies; an emulator may define its own.
#ifndef WARP_OPERATIONS
#define WARP_OPERATIONS
// An address in shared memory.
typedef u32 Place;
DEVICE Place place_of(const void* at) {
    Place place;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(place) : "l"(at));
    return place;
}
// Copies the given bytes of a 16-byte piece to shared memory and clears the others, in the group that `copies_commit`
// closes.
DEVICE void copy_async(Place to, const void* from, int bytes) {
    asm volatile("{ .reg .u64 wide; cvta.to.global.u64 wide, %1; cp.async.cg.shared.global [%0], [wide], 16, %2; }" ::
                 "r"(to), "l"(from), "r"(bytes) : "memory");
}
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most that many groups of this thread, the last ones, are in flight.
template <int GROUPS>
DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory"); }
// Four matrices of 8 x 8 elements of 16 bits. The threads point at their rows of 16 bytes, eight threads per matrix. Of
// each, a thread gets two neighbours of a row, or of a column if they are transposed.
DEVICE void load_matrices(u32 (&x)[4], Place row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(row) : "memory");
}
DEVICE void load_matrices_turned(u32 (&x)[4], Place row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(row) : "memory");
}
// sum += a * b, of 16 x 16 and 16 x 8 elements.
#define MULTIPLY_MATRICES(D, NAME) \
    DEVICE void multiply_matrices(D, float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) { \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
                     "{%0, %1, %2, %3};" \
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
    }
MULTIPLY_MATRICES(dt_f16, "f16")
MULTIPLY_MATRICES(dt_bf16, "bf16")
#endif

enum { DEEP = 32, STAGES = 3, PIECE = 8 };

// One operand's part of a tile: LENGTH of its rows (left operand) or columns. ALONG: its smallest stride is along the
// inner dimension, so a line of a strip runs along it. WIDE: it is contiguous along a line, and every line starts at a
// multiple of 16 bytes.
template <class D, int LENGTH, bool ALONG, bool WIDE, int THREADS>
struct StripOf {
    enum {
        LINES = ALONG ? LENGTH : DEEP,
        PIECES = (ALONG ? DEEP : LENGTH) / PIECE,
        EACH = LINES * PIECES / THREADS,
    };
    // The address of the thread's first piece, and the offsets of its others and of the next strip.
    const char* from;
    i64 between, onward;
    // The stride along a line, in bytes.
    i64 element;
    // What is left of the operand from the tile's edge, and from the strip's start.
    int length;
    i64 depth;

    __device__ __forceinline__ StripOf(const char* corner, i64 stride, i64 step, i64 length, i64 depth, int thread)
        : onward(DEEP * step), element(ALONG ? step : stride), length(length < LENGTH ? (int)length : LENGTH), depth(depth) {
        const i64 line = ALONG ? stride : step;
        from = corner + (thread / PIECES * line + thread % PIECES * (WIDE ? (i64)sizeof(uint4) : PIECE * element));
        between = THREADS / PIECES * line;
    }

    // The offset of a piece in a stage, in pieces.
    static __device__ __forceinline__ int place(int line, int piece) {
        return line * PIECES + (piece ^ (ALONG ? line / 2 % 4 : line % 8));
    }
    // Copies the next strip to a stage.
    __device__ __forceinline__ void fetch(uint4* stage, int thread) {
        const int deep = depth < DEEP ? (int)depth : DEEP;
        const int lines = ALONG ? length : deep, left = (ALONG ? deep : length) - thread % PIECES * PIECE;
        const int in_line = left < 0 ? 0 : left < PIECE ? left : PIECE;
        UNROLL for (int k = 0; k < EACH; k++) {
            const int line = thread / PIECES + k * (THREADS / PIECES), at = place(line, thread % PIECES);
            const int count = line < lines ? in_line : 0;
            const char* const start = from + k * between;
            if (WIDE) {
                copy_async(place_of(stage) + at * (int)sizeof(uint4), start, count * (int)sizeof(typename D::Stored));
            } else {
                Vector<typename D::Stored, PIECE> raw;
                UNROLL for (int i = 0; i < PIECE; i++)
                    raw.element[i] = i < count ? *(const typename D::Stored*)(start + i * element) : (typename D::Stored)0;
                stage[at] = raw.piece[0];
            }
        }
        from += onward;
        depth -= DEEP;
    }
    // A thread's elements of 16 rows of the left operand, from `first` on, 16 deep. The four matrices are its upper and
    // lower rows, then the same 8 steps deeper.
    static __device__ __forceinline__ void take_rows(u32 (&x)[4], Place stage, int first, int deep, int lane) {
        const int in = lane % 8, lower = lane / 8 % 2, deeper = lane / 16;
        if (ALONG) load_matrices(x, stage + place(first + in + lower * 8, deep * 2 + deeper) * (int)sizeof(uint4));
        else load_matrices_turned(x, stage + place(deep * 16 + in + deeper * 8, first / PIECE + lower) * (int)sizeof(uint4));
    }
    // The same of 16 columns of the right operand: the left columns, the same deeper, then the right ones.
    static __device__ __forceinline__ void take_columns(u32 (&x)[4], Place stage, int first, int deep, int lane) {
        const int in = lane % 8, deeper = lane / 8 % 2, right = lane / 16;
        if (ALONG) load_matrices(x, stage + place(first + in + right * 8, deep * 2 + deeper) * (int)sizeof(uint4));
        else load_matrices_turned(x, stage + place(deep * 16 + in + deeper * 8, first / PIECE + right) * (int)sizeof(uint4));
    }
};

// WIDTH: neighbours of a row that the epilogue gets at once.
template <class D, int TILE, bool LEFT_ALONG, bool RIGHT_ALONG, bool LEFT_WIDE, bool RIGHT_WIDE, int WIDTH, class EPILOGUE, int BASE, int N>
DEVICE void tensor_product(const Words<N>& w) {
    enum {
        DOWN = 2, ACROSS = TILE / 32, THREADS = DOWN * ACROSS * WARP,
        WARP_ROWS = TILE / DOWN, WARP_COLUMNS = TILE / ACROSS,
        HIGH = WARP_ROWS / 16, LONG = WARP_COLUMNS / 8,
        STAGE = TILE * DEEP / PIECE,
        // Floats of a row of sums, padded to keep rows in different banks.
        PITCH = WARP_COLUMNS + 4,
    };
    typedef StripOf<D, TILE, LEFT_ALONG, LEFT_WIDE, THREADS> Left;
    typedef StripOf<D, TILE, RIGHT_ALONG, RIGHT_WIDE, THREADS> Right;
    SHARED(uint4, memory, STAGES * 2 * STAGE);
    const int thread = (int)thread_x(), lane = thread % WARP, warp = thread / WARP;
    const int warp_row = warp / ACROSS * WARP_ROWS, warp_column = warp % ACROSS * WARP_COLUMNS;

    const ProductTile tile = product_tile<TILE, TILE, BASE>(w);
    const u64 matrix = tile.matrix;
    const i64 first_row = tile.row, first_column = tile.column;
    const i64 m = (i64)w.at[BASE + T_M], n = (i64)w.at[BASE + T_N], depth = (i64)w.at[BASE + T_K];

    const i64 left_row = (i64)w.at[BASE + T_LEFT + 2], right_column = (i64)w.at[BASE + T_RIGHT + 3];
    Left left(
        address(w.at[BASE + T_LEFT]) + ((i64)matrix * (i64)w.at[BASE + T_LEFT + 1] + first_row * left_row), left_row,
        (i64)w.at[BASE + T_LEFT + 3], m - first_row, depth, thread
    );
    Right right(
        address(w.at[BASE + T_RIGHT]) + ((i64)matrix * (i64)w.at[BASE + T_RIGHT + 1] + first_column * right_column), right_column,
        (i64)w.at[BASE + T_RIGHT + 2], n - first_column, depth, thread
    );

    float sum[HIGH][LONG][4];
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int k = 0; k < LONG; k++)
            UNROLL for (int part = 0; part < 4; part++) sum[i][k][part] = 0.0f;

    const i64 strips = (depth + DEEP - 1) / DEEP;
    UNROLL for (int stage = 0; stage < STAGES - 1; stage++) {
        if (stage < strips) {
            left.fetch(memory + stage * 2 * STAGE, thread);
            right.fetch(memory + stage * 2 * STAGE + STAGE, thread);
        }
        copies_commit();
    }
    int now = 0, next = STAGES - 1;
    for (i64 strip = 0; strip < strips; strip++) {
        // A group is closed per strip, even past the last one, so counting groups finds the current strip.
        copies_wait<STAGES - 2>();
        barrier();
        // All warps are done with the strip before, whose stage the next copy overwrites.
        if (strip + STAGES - 1 < strips) {
            left.fetch(memory + next * 2 * STAGE, thread);
            right.fetch(memory + next * 2 * STAGE + STAGE, thread);
        }
        copies_commit();
        const Place lefts = place_of(memory) + now * 2 * STAGE * (int)sizeof(uint4), rights = lefts + STAGE * (int)sizeof(uint4);
        UNROLL for (int deep = 0; deep < DEEP / 16; deep++) {
            u32 a[HIGH][4];
            UNROLL for (int i = 0; i < HIGH; i++) Left::take_rows(a[i], lefts, warp_row + i * 16, deep, lane);
            UNROLL for (int k = 0; k < LONG; k += 2) {
                u32 b[4];
                Right::take_columns(b, rights, warp_column + k * 8, deep, lane);
                UNROLL for (int i = 0; i < HIGH; i++) {
                    multiply_matrices(D(), sum[i][k], a[i], b[0], b[1]);
                    multiply_matrices(D(), sum[i][k + 1], a[i], b[2], b[3]);
                }
            }
        }
        now = now + 1 == STAGES ? 0 : now + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    barrier();

    // 16 rows of a warp at a time, in the memory of the strips.
    float* const rows = (float*)memory + warp * 16 * PITCH;
    UNROLL for (int i = 0; i < HIGH; i++) {
        UNROLL for (int k = 0; k < LONG; k++)
            UNROLL for (int part = 0; part < 4; part++)
                rows[(lane / 4 + part / 2 * 8) * PITCH + k * 8 + lane % 4 * 2 + part % 2] = sum[i][k][part];
        store_sums<WARP_COLUMNS, PITCH, WIDTH, EPILOGUE, BASE>(
            w, rows, lane, matrix, first_row + warp_row + i * 16, first_column + warp_column
        );
    }
}
#endif
