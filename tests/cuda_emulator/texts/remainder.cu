/*
kernel {
  in0: i64
  in1: i64
  r0: i64 = load in0
  r1: i64 = load in1
  r2: i64 = rem r0, r1
  out0: i64 = r2
}
Geometry { rows: [], inner: [10], operands: [Access { rows: [], inner: [8], base: 0, gather: None }, Access { rows: [], inner: [8], base: 0, gather: None }], outputs: [Access { rows: [], inner: [8], base: 0, gather: None }], lanes: Inner }
Plan { variant: Variant { form: Pointwise { width: 2 }, layout: Layout { rows: 0, inner: 1 }, index: Narrow, classes: [Contiguous, Contiguous, Contiguous] }, words: [1, 10, 0, 0, 0, 10, 2576980378, 4, 5, 2576980378, 3, 0, 8, 0, 8, 0, 8], steps: [Step { entry: 0, items: 5, grid: 1, block: [256, 1] }], scratch_bytes: 0 }
*/
KERNEL(256) remainder(const Words<17> w) {
    const u32 item = (u32)block_x() * 256u + thread_x();
    if (item >= (u32)w.at[2]) return;
    const int i = (int)item * 2;
    char* const a0 = address(w.at[11]);
    char* const a1 = address(w.at[13]);
    char* const a2 = address(w.at[15]);
    const int left = (int)w.at[1] - i;
    const int n = left < 2 ? (int)left : 2;
    i64 x0[2];
    load_vector<dt_i64>(x0, a0 + i * 8, n);
    i64 x1[2];
    load_vector<dt_i64>(x1, a1 + i * 8, n);
    i64 y0[2];
    UNROLL for (int k = 0; k < 2; k++) {
        const i64 v0 = x0[k];
        const i64 v1 = x1[k];
        const i64 v2 = op_rem(v0, v1);
        if (k < n && v1 == 0) fault_zero_divisor(w.at[3]);
        y0[k] = v2;
    }
    store_vector<dt_i64>(a2 + i * 8, y0, n);
}
