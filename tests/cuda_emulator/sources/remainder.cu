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
Plan { variant: Variant { form: Pointwise { width: 2, vectors: 1 }, layout: Layout { rows: 0, inner: 1 }, index: Narrow, classes: [Contiguous, Contiguous, Contiguous], numbers: [], is_full: true }, argument: [1, 10, 0, 0, 0, 0, 10, 2576980378, 4, 5, 2576980378, 3, 0, 8, 0, 8, 0, 8], steps: [EntryLaunch { entry: 0, items: 5, grid: 1, block: [256, 1] }], scratch_bytes: 0 }
*/
KERNEL(256) remainder(const Words<18> w) {
    const u32 first = (u32)block_x() * 256u + thread_x();
    char* const a0 = address(w.at[12]);
    char* const a1 = address(w.at[14]);
    char* const a2 = address(w.at[16]);
    Vector<dt_i64::Stored, 2> x0[1];
    Vector<dt_i64::Stored, 2> x1[1];
    UNROLL for (int u = 0; u < 1; u++) {
        const u32 next = first + u * 256u, items = (u32)w.at[2];
        const bool live = next < items;
        const u32 item = live ? next : items - 1;
        const int i = (int)item * 2;
        load_vector(x0[u], a0 + i * 8);
        load_vector(x1[u], a1 + i * 8);
    }
    UNROLL for (int u = 0; u < 1; u++) {
        const u32 next = first + u * 256u, items = (u32)w.at[2];
        const bool live = next < items;
        const u32 item = live ? next : items - 1;
        const int i = (int)item * 2;
        i64 y0[2];
        UNROLL for (int k = 0; k < 2; k++) {
            const i64 v0 = dt_i64::widen(x0[u].element[k]);
            const i64 v1 = dt_i64::widen(x1[u].element[k]);
            const i64 v2 = op_rem(v0, v1);
            if (live && v1 == 0) fault_zero_divisor(w.at[3], w.at[5]);
            y0[k] = v2;
        }
        if (live) store_vector<dt_i64>(a2 + i * 8, y0);
    }
}
