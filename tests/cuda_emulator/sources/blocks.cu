/*
kernel {
  in0: f16
  in1: iota
  r0: f32 = load in0
  r1: i64 = load in1
  r2: i64 per row = fold_argmax r0, r1
  out0: i64 = r2
}
Geometry { rows: [], inner: [100000], operands: [Access { rows: [], inner: [2], base: 0, gather: None }, Access { rows: [], inner: [1], base: 0, gather: None }], outputs: [Access { rows: [], inner: [8], base: 0, gather: None }], lanes: Inner }
Plan { variant: Variant { form: Blocks, layout: Layout { rows: 0, inner: 1 }, index: Narrow, classes: [Contiguous, Strided, Contiguous], numbers: [], is_full: false }, argument: [1, 100000, 0, 0, 0, 0, 100000, 1334532239, 17, 13, 991146300, 4, 0, 2, 0, 1, 0, 8], steps: [EntryLaunch { entry: 0, items: 13, grid: 4, block: [128, 1] }, EntryLaunch { entry: 1, items: 1, grid: 1, block: [256, 1] }, EntryLaunch { entry: 2, items: 13, grid: 4, block: [128, 1] }], scratch_bytes: 224 }
*/
KERNEL(128) blocks_0(const Words<18> w) {
    const u32 item = (u32)block_x() * 4u + thread_x() / 32u;
    if (item >= (u32)w.at[2]) return;
    Warp team = {thread_x() % 32u};
    const u32 blocks = (u32)w.at[9];
    const u32 row = divide(item, w.at[10], w.at[11]);
    const u32 block = item - row * blocks;
    const u32 n = (u32)w.at[1];
    char* const a0 = address(w.at[12]);
    const u64 a1 = w.at[14];
    char* const a2 = address(w.at[16]);
    Folding<ArgMax<float>> f2;
    {
        const u32 start = block * BLOCK;
        const u32 end = n - start < BLOCK ? n : start + BLOCK;
        for (u32 next = start + team.lane; next < end; next += 8 * LANES) {
            const int first = (int)next;
            const int mine = ((int)end - first + (LANES - 1)) / LANES;
            dt_f16::Stored l0[8];
            UNROLL for (int k = 0; k < 8; k++) {
                const int i = first + k * LANES;
                const bool here = k < mine;
                l0[k] = 0;
                if (here) {
                    l0[k] = stored<dt_f16>(a0 + i * 2);
                }
            }
            UNROLL for (int k = 0; k < 8; k++) {
                const int i = first + k * LANES;
                const bool here = k < mine;
                const float v0 = dt_f16::widen(l0[k]);
                const i64 v1 = (i64)(a1 + (u64)i * w.at[15]);
                if (here) f2.add(at(v0, v1));
            }
        }
    }
    const ArgMax<float>::Part r2 = team.tree<ArgMax<float>>(f2.element);
    if (team.lane == 0) *part<ArgMax<float>>(w.at[4], ((u64)0 * w.at[0] + row) * blocks + block) = r2;
}
KERNEL(256) blocks_1(const Words<18> w) {
    SHARED(uint4, slots, 576);
    const u32 row = block_x();
    Crew<8, BLOCK / LANES / 8> team = {thread_x() % 32u, thread_x() / 32u, (char*)slots};
    const u32 blocks = (u32)w.at[9];
    const u32 n = (u32)w.at[1];
    char* const a0 = address(w.at[12]);
    const u64 a1 = w.at[14];
    char* const a2 = address(w.at[16]);
    const ArgMax<float>::Part r2 = total_of_parts<ArgMax<float>>(w.at[4], ((u64)0 * w.at[0] + row) * blocks, n == 0 ? 0 : blocks, team);
    const i64 v2 = r2.index;
    if (thread_x() == 0) *part<ArgMax<float>>(w.at[4], (1 * w.at[9] + 0) * w.at[0] + row) = r2;
}
KERNEL(128) blocks_2(const Words<18> w) {
    const u32 item = (u32)block_x() * 4u + thread_x() / 32u;
    if (item >= (u32)w.at[2]) return;
    Warp team = {thread_x() % 32u};
    const u32 blocks = (u32)w.at[9];
    const u32 row = divide(item, w.at[10], w.at[11]);
    const u32 block = item - row * blocks;
    const u32 n = (u32)w.at[1];
    char* const a0 = address(w.at[12]);
    const u64 a1 = w.at[14];
    char* const a2 = address(w.at[16]);
    const i64 v2 = (*part<ArgMax<float>>(w.at[4], (1 * w.at[9] + 0) * w.at[0] + row)).index;
    {
        const u32 start = block * BLOCK;
        const u32 end = n - start < BLOCK ? n : start + BLOCK;
        for (u32 next = start + team.lane; next < end; next += 8 * LANES) {
            const int first = (int)next;
            const int mine = ((int)end - first + (LANES - 1)) / LANES;
            UNROLL for (int k = 0; k < 8; k++) {
                const int i = first + k * LANES;
                const bool here = k < mine;
                if (here) store_one<dt_i64>(a2 + i * 8, v2);
            }
        }
    }
}
