// What products that sum in the hardware's order share: the words of their argument buffer, the tile of a block, and
// how sums get from registers through shared memory to an epilogue.
#ifndef PRODUCT_TILES
#define PRODUCT_TILES

// An emulator may define its own.
#ifndef WARP_OPERATIONS
DEVICE void warp_barrier() { __syncwarp(); }
#endif

// A loop that is not unrolled, to save registers.
#define IN_TURN _Pragma("unroll 1")

enum { WARP = 32 };

// Words of the argument buffer from BASE on; see `product_grid.rs`.
enum { T_M, T_N, T_K, T_DOWN, T_ACROSS, T_LEFT, T_RIGHT = T_LEFT + 4, T_WORDS = T_RIGHT + 4 };

// Consecutive tiles of a grid share columns, as long as their rows are few enough to stay in a cache.
enum { TILES_TOGETHER = 8 };

// The tile of this block: its matrix, and its first row and column.
struct ProductTile { u64 matrix; i64 row, column; };
template <int ROWS, int COLUMNS, int BASE, int N>
DEVICE ProductTile product_tile(const Words<N>& w) {
    const u64 down = w.at[BASE + T_DOWN], across = w.at[BASE + T_ACROSS];
    const u64 tile = block_x(), matrix = tile / (down * across), in_matrix = tile - matrix * (down * across);
    const u64 band = in_matrix / (TILES_TOGETHER * across), above = band * TILES_TOGETHER;
    const u64 high = down - above < TILES_TOGETHER ? down - above : TILES_TOGETHER;
    const u64 in_band = in_matrix - above * across;
    return {matrix, (i64)(above + in_band % high) * ROWS, (i64)(in_band / high) * COLUMNS};
}

// Passes 16 rows of sums, which a warp has put into shared memory, to the epilogue, WIDTH neighbours at a time. The
// first of them belongs at the given row and column of the tile's matrix. EPILOGUE::store(w, element, n, sums) stores n
// results. The first is that of the element-th element of the product, counted over all matrices.
template <int COLUMNS, int PITCH, int WIDTH, class EPILOGUE, int BASE, int N>
DEVICE void store_sums(const Words<N>& w, const float* rows, int lane, u64 matrix, i64 first_row, i64 first_column) {
    const i64 m = (i64)w.at[BASE + T_M], n = (i64)w.at[BASE + T_N];
    warp_barrier();
    IN_TURN for (int k = 0; k < 16 * COLUMNS / WIDTH / WARP; k++) {
        const int index = k * WARP + lane, in_row = index / (COLUMNS / WIDTH), in_column = index % (COLUMNS / WIDTH) * WIDTH;
        const i64 row = first_row + in_row, column = first_column + in_column;
        if (row < m && column < n) {
            typedef Vector<float, WIDTH> Raw;
            Raw raw;
            const typename Raw::Wide* const at = (const typename Raw::Wide*)(rows + in_row * PITCH + in_column);
            UNROLL for (int piece = 0; piece < Raw::PIECES; piece++) raw.piece[piece] = at[piece];
            EPILOGUE::template store<N, WIDTH>(
                w, ((u64)matrix * (u64)m + (u64)row) * (u64)n + (u64)column,
                n - column < WIDTH ? (int)(n - column) : WIDTH, raw.element
            );
        }
    }
    warp_barrier();
}

// Stores the sums, rounded, without an epilogue; the address is the word AT.
template <class D, int AT>
struct AsItIs {
    template <int N, int WIDTH>
    static __device__ __forceinline__ void store(const Words<N>& w, u64 element, int n, float (&x)[WIDTH]) {
        UNROLL for (int k = 0; k < WIDTH; k++) x[k] = Rounded<D>::of(x[k]);
        store_vector<D, WIDTH>(address(w.at[AT]) + element * sizeof(typename D::Stored), x, n);
    }
};
#endif
