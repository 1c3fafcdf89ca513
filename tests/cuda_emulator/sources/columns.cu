/*
kernel {
  in0: f32
  r0: f32 = load in0
  r1: f32 per row = fold_sum r0
  r2: f32 per row = canon r1
  r3: f32 per row = 0.0009765625
  r4: f32 per row = mul r2, r3
  r5: f32 per row = canon r4
  r6: f32 = sub r0, r5
  r7: f32 = canon r6
  r8: f32 = mul r7, r7
  r9: f32 = canon r8
  r10: f32 per row = fold_sum r9
  r11: f32 per row = canon r10
  r12: f32 per row = 1e-5
  r13: f32 per row = add r11, r12
  r14: f32 per row = canon r13
  r15: f32 per row = rsqrt r14
  r16: f32 per row = canon r15
  r17: f32 = mul r7, r16
  r18: f32 = canon r17
  r19: f32 per row = fold_max r18
  r20: f32 per row = canon r19
  r21: f32 = sub r18, r20
  r22: f32 = canon r21
  r23: f32 = exp r22
  r24: f32 = canon r23
  r25: f32 per row = fold_sum r24
  r26: f32 per row = canon r25
  r27: f32 = div r24, r26
  r28: f32 = canon r27
  r29: f32 = canon r18
  r30: f32 = canon r28
  r31: f32 per row = canon r14
  out0: f32 = r29
  out1: f32 = r30
  out2: f32 = r31
}
Geometry { rows: [5, 7], inner: [4, 25], operands: [Access { rows: [3232, 460], inner: [112, 4], base: 0, gather: None }], outputs: [Access { rows: [3232, 460], inner: [112, 4], base: 4, gather: None }, Access { rows: [2800, 400], inner: [100, 4], base: 8, gather: None }, Access { rows: [2800, 400], inner: [100, 4], base: 4, gather: None }], lanes: Inner }
Plan { variant: Variant { form: Columns, layout: Layout { rows: 2, inner: 2 }, index: Narrow, classes: [Strided, Strided, Strided, Strided], numbers: [], is_full: false }, argument: [35, 100, 0, 0, 0, 0, 5, 2576980378, 3, 7, 613566757, 3, 4, 1, 2, 25, 1202590843, 5, 1, 1, 0, 0, 3232, 460, 112, 4, 4, 3232, 460, 112, 4, 8, 2800, 400, 100, 4, 4, 2800, 400, 100, 4], steps: [EntryLaunch { entry: 0, items: 35, grid: 2, block: [32, 32] }], scratch_bytes: 0 }
*/
KERNEL(1024) columns(const Words<41> w) {
    SHARED(uint4, slots, 1024);
    const u32 item = (u32)block_x() * 32u + thread_x();
    const bool live = item < (u32)w.at[0];
    // A row past the end is computed like the last row, and not written.
    const u32 row = live ? item : (u32)w.at[0] - 1;
    Column<32> team = {thread_y(), thread_x(), (char*)slots};
    const u32 n = (u32)w.at[1];
    const u32 p1_above = divide((u32)row, w.at[10], w.at[11]);
    const int p1 = (int)(row - p1_above * (u32)w.at[9]);
    const int p0 = (int)p1_above;
    char* const a0 = address(w.at[21]) + (p0 * (int)w.at[22] + p1 * (int)w.at[23]);
    char* const a1 = address(w.at[26]) + (p0 * (int)w.at[27] + p1 * (int)w.at[28]);
    char* const a2 = address(w.at[31]) + (p0 * (int)w.at[32] + p1 * (int)w.at[33]);
    char* const a3 = address(w.at[36]) + (p0 * (int)w.at[37] + p1 * (int)w.at[38]);
    Folding<Sum<float>> f1;
    {
        for (u32 start = 0, block = 0; start < n; start += BLOCK, block++) {
            const u32 end = n - start < BLOCK ? n : start + BLOCK;
            for (u32 next = start + team.lane; next < end; next += 4 * LANES) {
                const int first = (int)next;
                const int mine = ((int)end - first + (LANES - 1)) / LANES;
                dt_f32::Stored l0[4];
                UNROLL for (int k = 0; k < 4; k++) {
                    const int i = first + k * LANES;
                    const bool here = k < mine;
                    const u32 j1_above = divide((u32)i, w.at[16], w.at[17]);
                    const int j1 = (int)(i - j1_above * (u32)w.at[15]);
                    const int j0 = (int)j1_above;
                    l0[k] = 0;
                    if (here) {
                        l0[k] = stored<dt_f32>(a0 + (j0 * (int)w.at[24] + j1 * (int)w.at[25]));
                    }
                }
                UNROLL for (int k = 0; k < 4; k++) {
                    const int i = first + k * LANES;
                    const bool here = k < mine;
                    const u32 j1_above = divide((u32)i, w.at[16], w.at[17]);
                    const int j1 = (int)(i - j1_above * (u32)w.at[15]);
                    const int j0 = (int)j1_above;
                    const float v0 = dt_f32::widen(l0[k]);
                    if (here) f1.add(v0);
                }
            }
            if (n > BLOCK) {
                close_block(f1, block, n, team);
            }
        }
    }
    const float v1 = total(f1, n, team);
    const float v2 = op_canon(v1);
    const float v4 = op_mul(v2, lit_f32(0x3a800000u /* 0.0009765625 */));
    const float v5 = op_canon(v4);
    Folding<Sum<float>> f10;
    {
        for (u32 start = 0, block = 0; start < n; start += BLOCK, block++) {
            const u32 end = n - start < BLOCK ? n : start + BLOCK;
            for (u32 next = start + team.lane; next < end; next += 4 * LANES) {
                const int first = (int)next;
                const int mine = ((int)end - first + (LANES - 1)) / LANES;
                dt_f32::Stored l0[4];
                UNROLL for (int k = 0; k < 4; k++) {
                    const int i = first + k * LANES;
                    const bool here = k < mine;
                    const u32 j1_above = divide((u32)i, w.at[16], w.at[17]);
                    const int j1 = (int)(i - j1_above * (u32)w.at[15]);
                    const int j0 = (int)j1_above;
                    l0[k] = 0;
                    if (here) {
                        l0[k] = stored<dt_f32>(a0 + (j0 * (int)w.at[24] + j1 * (int)w.at[25]));
                    }
                }
                UNROLL for (int k = 0; k < 4; k++) {
                    const int i = first + k * LANES;
                    const bool here = k < mine;
                    const u32 j1_above = divide((u32)i, w.at[16], w.at[17]);
                    const int j1 = (int)(i - j1_above * (u32)w.at[15]);
                    const int j0 = (int)j1_above;
                    const float v0 = dt_f32::widen(l0[k]);
                    const float v6 = op_sub(v0, v5);
                    const float v7 = op_canon(v6);
                    const float v8 = op_mul(v7, v7);
                    const float v9 = op_canon(v8);
                    if (here) f10.add(v9);
                }
            }
            if (n > BLOCK) {
                close_block(f10, block, n, team);
            }
        }
    }
    const float v10 = total(f10, n, team);
    const float v11 = op_canon(v10);
    const float v13 = op_add(v11, lit_f32(0x3727c5acu /* 1e-5 */));
    const float v14 = op_canon(v13);
    const float v16 = op_sqrt(v14);
    const float v17 = op_div(lit_f32(0x3f800000u /* 1.0 */), v16);
    const float v18 = op_canon(v17);
    const float v59 = op_canon(v14);
    Folding<Max<float>> f21;
    {
        for (u32 start = 0, block = 0; start < n; start += BLOCK, block++) {
            const u32 end = n - start < BLOCK ? n : start + BLOCK;
            for (u32 next = start + team.lane; next < end; next += 4 * LANES) {
                const int first = (int)next;
                const int mine = ((int)end - first + (LANES - 1)) / LANES;
                dt_f32::Stored l0[4];
                UNROLL for (int k = 0; k < 4; k++) {
                    const int i = first + k * LANES;
                    const bool here = k < mine;
                    const u32 j1_above = divide((u32)i, w.at[16], w.at[17]);
                    const int j1 = (int)(i - j1_above * (u32)w.at[15]);
                    const int j0 = (int)j1_above;
                    l0[k] = 0;
                    if (here) {
                        l0[k] = stored<dt_f32>(a0 + (j0 * (int)w.at[24] + j1 * (int)w.at[25]));
                    }
                }
                UNROLL for (int k = 0; k < 4; k++) {
                    const int i = first + k * LANES;
                    const bool here = k < mine;
                    const u32 j1_above = divide((u32)i, w.at[16], w.at[17]);
                    const int j1 = (int)(i - j1_above * (u32)w.at[15]);
                    const int j0 = (int)j1_above;
                    const float v0 = dt_f32::widen(l0[k]);
                    const float v6 = op_sub(v0, v5);
                    const float v7 = op_canon(v6);
                    const float v19 = op_mul(v7, v18);
                    const float v20 = op_canon(v19);
                    const float v57 = op_canon(v20);
                    if (here) f21.add(v20);
                    if (here && live) store_one<dt_f32>(a1 + (j0 * (int)w.at[29] + j1 * (int)w.at[30]), v57);
                    if (here && live) store_one<dt_f32>(a3 + (j0 * (int)w.at[39] + j1 * (int)w.at[40]), v59);
                }
            }
            if (n > BLOCK) {
                close_block(f21, block, n, team);
            }
        }
    }
    const float v21 = total(f21, n, team);
    const float v22 = op_canon(v21);
    Folding<Sum<float>> f53;
    {
        for (u32 start = 0, block = 0; start < n; start += BLOCK, block++) {
            const u32 end = n - start < BLOCK ? n : start + BLOCK;
            for (u32 next = start + team.lane; next < end; next += 4 * LANES) {
                const int first = (int)next;
                const int mine = ((int)end - first + (LANES - 1)) / LANES;
                dt_f32::Stored l0[4];
                UNROLL for (int k = 0; k < 4; k++) {
                    const int i = first + k * LANES;
                    const bool here = k < mine;
                    const u32 j1_above = divide((u32)i, w.at[16], w.at[17]);
                    const int j1 = (int)(i - j1_above * (u32)w.at[15]);
                    const int j0 = (int)j1_above;
                    l0[k] = 0;
                    if (here) {
                        l0[k] = stored<dt_f32>(a0 + (j0 * (int)w.at[24] + j1 * (int)w.at[25]));
                    }
                }
                UNROLL for (int k = 0; k < 4; k++) {
                    const int i = first + k * LANES;
                    const bool here = k < mine;
                    const u32 j1_above = divide((u32)i, w.at[16], w.at[17]);
                    const int j1 = (int)(i - j1_above * (u32)w.at[15]);
                    const int j0 = (int)j1_above;
                    const float v0 = dt_f32::widen(l0[k]);
                    const float v6 = op_sub(v0, v5);
                    const float v7 = op_canon(v6);
                    const float v19 = op_mul(v7, v18);
                    const float v20 = op_canon(v19);
                    const float v23 = op_sub(v20, v22);
                    const float v24 = op_canon(v23);
                    const float v26 = op_max(lit_f32(0xc2db08d6u /* -109.51726 */), v24);
                    const float v29 = op_fma(v26, lit_f32(0x3fb8aa3bu /* 1.442695 */), lit_f32(0x4b40009eu /* 12583070.0 */));
                    const float v30 = op_sub(v29, lit_f32(0x4b40009eu /* 12583070.0 */));
                    const int v31 = op_bitcast(v29);
                    const float v33 = op_fma(v30, lit_f32(0xbf317218u /* -0.6931472 */), v26);
                    const float v35 = op_fma(v30, lit_f32(0x3102e308u /* 1.9046542e-9 */), v33);
                    const float v39 = op_fma(lit_f32(0x2b368038u /* 6.483733e-13 */), v35, lit_f32(0x2c8913c7u /* 3.89597e-12 */));
                    const float v41 = op_fma(v39, v35, lit_f32(0x2daaaa9bu /* 1.9402526e-11 */));
                    const float v43 = op_fma(v41, v35, lit_f32(0x2eaaaa58u /* 7.760964e-11 */));
                    const float v45 = op_fma(v43, v35, lit_f32(0x2f800000u /* 2.3283064e-10 */));
                    const float v46 = op_fma(v35, v45, lit_f32(0x30000000u /* 4.656613e-10 */));
                    const float v47 = op_fma(v35, v46, lit_f32(0x30000000u /* 4.656613e-10 */));
                    const int v49 = op_shl(v31, 23);
                    const float v50 = op_bitcast(v49);
                    const float v51 = op_mul(v47, v50);
                    const float v52 = op_canon(v51);
                    if (here) f53.add(v52);
                }
            }
            if (n > BLOCK) {
                close_block(f53, block, n, team);
            }
        }
    }
    const float v53 = total(f53, n, team);
    const float v54 = op_canon(v53);
    {
        for (u32 next = 0 + team.lane; next < n; next += 4 * LANES) {
            const int first = (int)next;
            const int mine = ((int)n - first + (LANES - 1)) / LANES;
            dt_f32::Stored l0[4];
            UNROLL for (int k = 0; k < 4; k++) {
                const int i = first + k * LANES;
                const bool here = k < mine;
                const u32 j1_above = divide((u32)i, w.at[16], w.at[17]);
                const int j1 = (int)(i - j1_above * (u32)w.at[15]);
                const int j0 = (int)j1_above;
                l0[k] = 0;
                if (here) {
                    l0[k] = stored<dt_f32>(a0 + (j0 * (int)w.at[24] + j1 * (int)w.at[25]));
                }
            }
            UNROLL for (int k = 0; k < 4; k++) {
                const int i = first + k * LANES;
                const bool here = k < mine;
                const u32 j1_above = divide((u32)i, w.at[16], w.at[17]);
                const int j1 = (int)(i - j1_above * (u32)w.at[15]);
                const int j0 = (int)j1_above;
                const float v0 = dt_f32::widen(l0[k]);
                const float v6 = op_sub(v0, v5);
                const float v7 = op_canon(v6);
                const float v19 = op_mul(v7, v18);
                const float v20 = op_canon(v19);
                const float v23 = op_sub(v20, v22);
                const float v24 = op_canon(v23);
                const float v26 = op_max(lit_f32(0xc2db08d6u /* -109.51726 */), v24);
                const float v29 = op_fma(v26, lit_f32(0x3fb8aa3bu /* 1.442695 */), lit_f32(0x4b40009eu /* 12583070.0 */));
                const float v30 = op_sub(v29, lit_f32(0x4b40009eu /* 12583070.0 */));
                const int v31 = op_bitcast(v29);
                const float v33 = op_fma(v30, lit_f32(0xbf317218u /* -0.6931472 */), v26);
                const float v35 = op_fma(v30, lit_f32(0x3102e308u /* 1.9046542e-9 */), v33);
                const float v39 = op_fma(lit_f32(0x2b368038u /* 6.483733e-13 */), v35, lit_f32(0x2c8913c7u /* 3.89597e-12 */));
                const float v41 = op_fma(v39, v35, lit_f32(0x2daaaa9bu /* 1.9402526e-11 */));
                const float v43 = op_fma(v41, v35, lit_f32(0x2eaaaa58u /* 7.760964e-11 */));
                const float v45 = op_fma(v43, v35, lit_f32(0x2f800000u /* 2.3283064e-10 */));
                const float v46 = op_fma(v35, v45, lit_f32(0x30000000u /* 4.656613e-10 */));
                const float v47 = op_fma(v35, v46, lit_f32(0x30000000u /* 4.656613e-10 */));
                const int v49 = op_shl(v31, 23);
                const float v50 = op_bitcast(v49);
                const float v51 = op_mul(v47, v50);
                const float v52 = op_canon(v51);
                const float v55 = op_div(v52, v54);
                const float v56 = op_canon(v55);
                const float v58 = op_canon(v56);
                if (here && live) store_one<dt_f32>(a2 + (j0 * (int)w.at[34] + j1 * (int)w.at[35]), v58);
            }
        }
    }
}
