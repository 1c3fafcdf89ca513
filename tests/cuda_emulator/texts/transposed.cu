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
  out0: f32 = r7
}
Geometry { rows: [2, 37], inner: [300], operands: [Access { rows: [48000, 4], inner: [160], base: 0, gather: None }, Access { rows: [44400, 4], inner: [148], base: 0, gather: None }, Access { rows: [44400, 1200], inner: [4], base: 4, gather: None }], outputs: [Access { rows: [44400, 1200], inner: [4], base: 0, gather: None }], lanes: Inner }
Plan { variant: Variant { form: Pointwise { width: 1 }, layout: Layout { rows: 2, inner: 1 }, index: Narrow, classes: [Strided, Strided, Contiguous, Contiguous] }, words: [74, 300, 0, 0, 0, 2, 1, 1, 37, 3134165325, 6, 300, 3035110223, 9, 300, 3035110223, 9, 0, 48000, 4, 160, 0, 44400, 4, 148, 4, 44400, 1200, 4, 0, 44400, 1200, 4], steps: [Step { entry: 0, items: 22200, grid: 87, block: [256, 1] }], scratch_bytes: 0 }
*/
KERNEL(256) transposed(const Words<33> w) {
    const u32 item = (u32)block_x() * 256u + thread_x();
    if (item >= (u32)w.at[2]) return;
    const u32 row = divide(item, w.at[15], w.at[16]);
    const int i = (int)(item - row * (u32)w.at[14]) * 1;
    const u32 p1_above = divide((u32)row, w.at[9], w.at[10]);
    const int p1 = (int)(row - p1_above * (u32)w.at[8]);
    const int p0 = (int)p1_above;
    char* const a0 = address(w.at[17]) + (p0 * (int)w.at[18] + p1 * (int)w.at[19]);
    char* const a1 = address(w.at[21]) + (p0 * (int)w.at[22] + p1 * (int)w.at[23]);
    char* const a2 = address(w.at[25]) + (p0 * (int)w.at[26] + p1 * (int)w.at[27]);
    char* const a3 = address(w.at[29]) + (p0 * (int)w.at[30] + p1 * (int)w.at[31]);
    const float v0 = load_one<dt_f32>(a0 + i * (int)w.at[20]);
    const float v1 = load_one<dt_f32>(a1 + i * (int)w.at[24]);
    const float v2 = load_one<dt_f32>(a2 + i * (int)w.at[28]);
    const float v3 = op_mul(v0, v1);
    const float v4 = op_canon(v3);
    const float v5 = op_add(v4, v2);
    const float v6 = op_canon(v5);
    const float v7 = op_canon(v6);
    store_one<dt_f32>(a3 + i * (int)w.at[32], v7);
}
