/*
kernel {
  in0: f32
  in1: f32
  in2: f32
  r0: f32 = load in0
  r1: f32 = load in1
  r2: f32 = load in2
  r3: f32 = mul r0, r1
  r4: f32 = canon r3
  r5: f32 = add r4, r2
  r6: f32 = canon r5
  r7: f32 = canon r6
  r8: f32 = round_bf16 r4
  out0: f32 = r7
  out1: bf16 = r8
}
Geometry { rows: [40], inner: [1000], operands: [Access { rows: [4000], inner: [4], base: 0, gather: None }, Access { rows: [0], inner: [4], base: 0, gather: None }, Access { rows: [4], inner: [0], base: 0, gather: None }], outputs: [Access { rows: [4000], inner: [4], base: 0, gather: None }, Access { rows: [2000], inner: [2], base: 0, gather: None }], lanes: Inner }
Plan { variant: Variant { form: Pointwise { width: 4, vectors: 2 }, layout: Layout { rows: 1, inner: 1 }, index: Narrow, classes: [Contiguous, Contiguous, Uniform, Contiguous, Contiguous], numbers: [], is_full: true }, argument: [40, 1000, 0, 0, 0, 0, 40, 2576980378, 6, 1000, 103079216, 10, 250, 103079216, 8, 0, 4000, 4, 0, 0, 4, 0, 4, 0, 0, 4000, 4, 0, 2000, 2], steps: [EntryLaunch { entry: 0, items: 10000, grid: 20, block: [256, 1] }], scratch_bytes: 0 }
*/
KERNEL(256) broadcast(const Words<30> w) {
    const u32 first = (u32)block_x() * 512u + thread_x();
    float s2[2];
    Vector<dt_f32::Stored, 4> x0[2];
    Vector<dt_f32::Stored, 4> x1[2];
    UNROLL for (int u = 0; u < 2; u++) {
        const u32 next = first + u * 256u, items = (u32)w.at[2];
        const bool live = next < items;
        const u32 item = live ? next : items - 1;
        const u32 row = divide(item, w.at[13], w.at[14]);
        const int i = (int)(item - row * (u32)w.at[12]) * 4;
        const int p0 = (int)row;
        char* const a0 = address(w.at[15]) + p0 * (int)w.at[16];
        char* const a1 = address(w.at[18]) + p0 * (int)w.at[19];
        char* const a2 = address(w.at[21]) + p0 * (int)w.at[22];
        char* const a3 = address(w.at[24]) + p0 * (int)w.at[25];
        char* const a4 = address(w.at[27]) + p0 * (int)w.at[28];
        const float v2 = load_one<dt_f32>(a2);
        s2[u] = v2;
        load_vector(x0[u], a0 + i * 4);
        load_vector(x1[u], a1 + i * 4);
    }
    UNROLL for (int u = 0; u < 2; u++) {
        const u32 next = first + u * 256u, items = (u32)w.at[2];
        const bool live = next < items;
        const u32 item = live ? next : items - 1;
        const u32 row = divide(item, w.at[13], w.at[14]);
        const int i = (int)(item - row * (u32)w.at[12]) * 4;
        const int p0 = (int)row;
        char* const a0 = address(w.at[15]) + p0 * (int)w.at[16];
        char* const a1 = address(w.at[18]) + p0 * (int)w.at[19];
        char* const a2 = address(w.at[21]) + p0 * (int)w.at[22];
        char* const a3 = address(w.at[24]) + p0 * (int)w.at[25];
        char* const a4 = address(w.at[27]) + p0 * (int)w.at[28];
        const float v2 = s2[u];
        float y0[4];
        float y1[4];
        UNROLL for (int k = 0; k < 4; k++) {
            const float v0 = dt_f32::widen(x0[u].element[k]);
            const float v1 = dt_f32::widen(x1[u].element[k]);
            const float v3 = op_mul(v0, v1);
            const float v4 = op_canon(v3);
            const float v5 = op_add(v4, v2);
            const float v6 = op_canon(v5);
            const float v7 = op_canon(v6);
            const float v8 = op_round_bf16(v4);
            y0[k] = v7;
            y1[k] = v8;
        }
        if (live) store_vector<dt_f32>(a3 + i * 4, y0);
        if (live) store_vector<dt_bf16>(a4 + i * 2, y1);
    }
}
