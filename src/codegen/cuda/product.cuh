// Matrix products: an element is one chain of fused multiply-adds over the inner dimension, from its beginning, starting at +0,
// as everywhere else. No step is added at the end of the inner dimension: 0 * 0 + -0 is +0.
//
// A block of 256 threads computes 64 by 64 elements, each thread 4 by 4. Of both operands 16 steps lie in shared memory.

enum { SIDE = 64, STEP = 16, OWN = 4, THREADS = 256 };

DEVICE float chained(float a, float b, float sum) { return op_fma(a, b, sum); }
DEVICE double chained(double a, double b, double sum) { return op_fma(a, b, sum); }
DEVICE int chained(int a, int b, int sum) { return op_add(op_mul(a, b), sum); }
DEVICE i64 chained(i64 a, i64 b, i64 sum) { return op_add(op_mul(a, b), sum); }

// What is stored of a chain: a NaN has no sign and payload, 16-bit floats are rounded once, integers wrap where they are narrowed.
DEVICE float finished(dt_f32, float x) { return op_canon(x); }
DEVICE double finished(dt_f64, double x) { return op_canon(x); }
DEVICE float finished(dt_f16, float x) { return op_round_f16(x); }
DEVICE float finished(dt_bf16, float x) { return op_round_bf16(x); }
template <class D>
DEVICE typename D::Value finished(D, typename D::Value x) { return x; }

// One element of an operand, 0 outside of it: what is there is never used.
template <class D>
DEVICE typename D::Value element(const char* from, bool is_inside, i64 distance) {
    return is_inside ? load_one<D>(from + distance) : (typename D::Value)0;
}

template <class D, int N>
DEVICE void product(const Words<N>& w) {
    typedef typename D::Value Value;
    SHARED(Value, left, STEP * SIDE);
    SHARED(Value, right, STEP * SIDE);
    const i64 m = (i64)w.at[0], k = (i64)w.at[1], n = (i64)w.at[2], across = (i64)w.at[9], down = (i64)w.at[10];
    const i64 matrix = block_x() / (across * down), tile = block_x() % (across * down);
    const i64 row = tile / across * SIDE, column = tile % across * SIDE;
    const char* const a = address(w.at[11]) + matrix * (i64)w.at[3];
    const char* const b = address(w.at[12]) + matrix * (i64)w.at[6];
    const int own_row = (int)thread_x() / (SIDE / OWN) * OWN, own_column = (int)thread_x() % (SIDE / OWN) * OWN;
    Value sum[OWN][OWN];
    UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++) sum[i][j] = (Value)0;
    for (i64 from = 0; from < k; from += STEP) {
        const int steps = k - from < STEP ? (int)(k - from) : STEP;
        for (int at = (int)thread_x(); at < SIDE * STEP; at += THREADS) {
            const int line = at / STEP, step = at % STEP;
            const i64 distance = (row + line) * (i64)w.at[4] + (from + step) * (i64)w.at[5];
            left[step * SIDE + line] = element<D>(a, row + line < m && step < steps, distance);
        }
        for (int at = (int)thread_x(); at < SIDE * STEP; at += THREADS) {
            const int line = at % SIDE, step = at / SIDE;
            const i64 distance = (from + step) * (i64)w.at[7] + (column + line) * (i64)w.at[8];
            right[step * SIDE + line] = element<D>(b, column + line < n && step < steps, distance);
        }
        barrier();
        for (int step = 0; step < steps; step++) {
            Value x[OWN], y[OWN];
            UNROLL for (int i = 0; i < OWN; i++) x[i] = left[step * SIDE + own_row + i];
            UNROLL for (int j = 0; j < OWN; j++) y[j] = right[step * SIDE + own_column + j];
            UNROLL for (int i = 0; i < OWN; i++) {
                UNROLL for (int j = 0; j < OWN; j++) sum[i][j] = chained(x[i], y[j], sum[i][j]);
            }
        }
        barrier();
    }
    UNROLL for (int i = 0; i < OWN; i++) {
        UNROLL for (int j = 0; j < OWN; j++) {
            const i64 at_row = row + own_row + i, at_column = column + own_column + j;
            if (at_row < m && at_column < n) {
                const i64 at = (matrix * m + at_row) * n + at_column;
                store_one<D>(address(w.at[13]) + at * (i64)sizeof(typename D::Stored), finished(D(), sum[i][j]));
            }
        }
    }
}
