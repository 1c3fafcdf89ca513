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
Plan { variant: Variant { form: Tiles { along: 1, transposed: 3 }, layout: Layout { rows: 2, inner: 1 }, index: Narrow, classes: [Strided, Strided, Contiguous, Contiguous], numbers: [], is_full: false }, argument: [74, 300, 0, 0, 0, 0, 2, 1, 1, 37, 1, 1, 300, 2576980378, 4, 1, 1, 0, 0, 48000, 4, 160, 0, 44400, 4, 148, 4, 44400, 1200, 4, 0, 44400, 1200, 4], steps: [EntryLaunch { entry: 0, items: 40, grid: 40, block: [32, 8] }], scratch_bytes: 0 }
*/
KERNEL(256) transposed(const Words<34> w) {
    SHARED(dt_f32::Stored, tile0, 1056);
    SHARED(dt_f32::Stored, tile1, 1056);
    const u32 begin_above = divide((u32)block_x(), w.at[13], w.at[14]);
    const u32 begin_tiles = ((u32)w.at[12] + 31) / 32;
    const int begin = (int)(block_x() - begin_above * begin_tiles) * 32;
    const u32 top_above = divide((u32)begin_above, w.at[10], w.at[11]);
    const u32 top_tiles = ((u32)w.at[9] + 31) / 32;
    const int top = (int)(begin_above - top_above * top_tiles) * 32;
    const int p0 = (int)top_above;
    char* const a0 = address(w.at[18]) + p0 * (int)w.at[19];
    char* const a1 = address(w.at[22]) + p0 * (int)w.at[23];
    char* const a2 = address(w.at[26]) + p0 * (int)w.at[27];
    char* const a3 = address(w.at[30]) + p0 * (int)w.at[31];
    UNROLL for (int k = 0; k < 4; k++) {
        const u32 line = thread_y() + k * 8u;
        const int down = top + thread_x(), across = begin + line;
        if (across < int(w.at[1]) && down < int(w.at[9])) tile0[line * 33 + thread_x()] = *(const dt_f32::Stored*)(a0 + (down * (int)w.at[20] + across * (int)w.at[21]));
        if (across < int(w.at[1]) && down < int(w.at[9])) tile1[line * 33 + thread_x()] = *(const dt_f32::Stored*)(a1 + (down * (int)w.at[24] + across * (int)w.at[25]));
    }
    dt_f32::Stored x2[4];
    UNROLL for (int k = 0; k < 4; k++) {
        const u32 line = thread_y() + k * 8u;
        const int down = top + line, across = begin + thread_x();
        const bool here = across < int(w.at[1]) && down < int(w.at[9]);
        x2[k] = here ? stored<dt_f32>(a2 + (down * (int)w.at[28] + across * 4)) : 0;
    }
    barrier();
    UNROLL for (int k = 0; k < 4; k++) {
        const u32 line = thread_y() + k * 8u;
        const int down = top + line, across = begin + thread_x();
        const bool here = across < int(w.at[1]) && down < int(w.at[9]);
        const float v0 = here ? dt_f32::widen(tile0[thread_x() * 33 + line]) : 0;
        const float v1 = here ? dt_f32::widen(tile1[thread_x() * 33 + line]) : 0;
        const float v2 = dt_f32::widen(x2[k]);
        const float v3 = op_mul(v0, v1);
        const float v4 = op_canon(v3);
        const float v5 = op_add(v4, v2);
        const float v6 = op_canon(v5);
        const float v7 = op_canon(v6);
        if (here) store_one<dt_f32>(a3 + (down * (int)w.at[32] + across * 4), v7);
    }
}
