/*
kernel {
  in0: f32
  in1: f32
  r0: f32 = load in0
  r1: f32 = load in1
  r2: f32 = mul r0, r1
  r3: f32 = canon r2
  r4: f32 per row = 1.0
  r5: f32 = add r3, r4
  r6: f32 = canon r5
  r7: f32 = max r6, r0
  r8: f32 = canon r7
  out0: f32 = r8
}
Geometry { rows: [], inner: [1003], operands: [Access { rows: [], inner: [4], base: 0, gather: None }, Access { rows: [], inner: [4], base: 0, gather: None }], outputs: [Access { rows: [], inner: [4], base: 0, gather: None }], lanes: Inner }
Plan { variant: Variant { form: Pointwise { width: 4, vectors: 1 }, layout: Layout { rows: 0, inner: 1 }, index: Narrow, classes: [Contiguous, Contiguous, Contiguous], numbers: [], is_full: false }, argument: [1, 1003, 0, 0, 0, 0, 1003, 89924540, 10, 251, 85557118, 8, 0, 4, 0, 4, 0, 4], steps: [EntryLaunch { entry: 0, items: 251, grid: 1, block: [256, 1] }], scratch_bytes: 0 }
*/
KERNEL(256) vectors(const Words<18> w) {
    const u32 first = (u32)block_x() * 256u + thread_x();
    char* const a0 = address(w.at[12]);
    char* const a1 = address(w.at[14]);
    char* const a2 = address(w.at[16]);
    Vector<dt_f32::Stored, 4> x0[1];
    Vector<dt_f32::Stored, 4> x1[1];
    UNROLL for (int u = 0; u < 1; u++) {
        const u32 next = first + u * 256u, items = (u32)w.at[2];
        const bool live = next < items;
        const u32 item = live ? next : items - 1;
        const int i = (int)item * 4;
        const int left = (int)w.at[1] - i;
        const int n = !live ? 0 : left < 4 ? (int)left : 4;
        load_vector(x0[u], a0 + i * 4, n);
        load_vector(x1[u], a1 + i * 4, n);
    }
    UNROLL for (int u = 0; u < 1; u++) {
        const u32 next = first + u * 256u, items = (u32)w.at[2];
        const bool live = next < items;
        const u32 item = live ? next : items - 1;
        const int i = (int)item * 4;
        const int left = (int)w.at[1] - i;
        const int n = !live ? 0 : left < 4 ? (int)left : 4;
        float y0[4];
        UNROLL for (int k = 0; k < 4; k++) {
            const float v0 = dt_f32::widen(x0[u].element[k]);
            const float v1 = dt_f32::widen(x1[u].element[k]);
            const float v2 = op_mul(v0, v1);
            const float v3 = op_canon(v2);
            const float v5 = op_add(v3, lit_f32(0x3f800000u /* 1.0 */));
            const float v6 = op_canon(v5);
            const float v7 = op_max(v6, v0);
            const float v8 = op_canon(v7);
            y0[k] = v8;
        }
        store_vector<dt_f32>(a2 + i * 4, y0, n);
    }
}
