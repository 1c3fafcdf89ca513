// Matrix products of 16-bit floats by groups of four warps (`wgmma`), for compute capability 9.0: exact products, sums in 32 bits in
// an order of the machine's own.
//
// A block computes a tile of 128 rows. Its first group of warps has the machine copy strips of the operands, 64 steps along the
// inner dimension each, into a ring of stages in shared memory (`cp.async.bulk.tensor`); the other two multiply them, 64 rows each,
// and hold the sums in their registers. Two barriers in memory belong to a stage: one tells that its bytes have arrived, the other that
// every warp is done with it. What is outside an operand arrives as zeros.
//
// A strip lies in panels: lines of 128 bytes, pieces of 16 bytes permuted within a line by the number of the line modulo 8, the same
// way by who copies and by who multiplies. ALONG: neighbours along the inner dimension are next to each other, so a line is a row (of
// the left operand) or a column of 64 steps, and one panel holds all of them. Else a line is a step of 64 rows or columns, and so
// many of those make a panel.
//
// One thread of the first group asks for all copies. Nothing here was ever run on a device.
#ifndef WARP_GROUPS
#define WARP_GROUPS

// The argument: words, the last of which are the maps of the operands, at addresses that the machine asks for.
template <int N>
struct alignas(128) MappedWords {
    Words<N> words;
};
enum { MAP_WORDS = 16, GROUP = 128 };

// A way to multiply: COLUMNS at once, and whether an operand lies along the inner dimension.
template <class D, int COLUMNS, bool LEFT_ALONG, bool RIGHT_ALONG> struct GroupStep {};

// What the machine does by itself, or a group of warps as a whole; another machine may bring its own.
#ifndef GROUP_OPERATIONS
#define GROUP_OPERATIONS
#define GROUP_ASSEMBLY
// An argument that is not copied, so that the machine finds maps in it.
#define IN_PLACE const __grid_constant__
// Memory of a block whose size its launch says.
#define LAUNCHED_SHARED(name) extern __shared__ unsigned char name[]
// Where something lies in shared memory.
typedef u32 SharedPlace;
DEVICE SharedPlace shared_place(const void* at) {
    SharedPlace place;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(place) : "l"(at));
    return place;
}
// A barrier in memory, which is passed when so many have arrived, and as many bytes as they have announced.
DEVICE void gate_begin(u64* gate, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_place(gate)), "r"(count) : "memory");
}
// Lets the machine's copying see gates that were begun; others see them behind a barrier.
DEVICE void gates_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void gate_arrive(u64* gate) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_place(gate)) : "memory");
}
DEVICE void gate_announce(u64* gate, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(gate)), "r"(bytes) : "memory");
}
// Waits until the gate was passed in a round of this parity; the round before the first counts as passed.
DEVICE void gate_wait(u64* gate, u32 parity) {
    u32 passed;
    do {
        asm volatile("{ .reg .pred passed; mbarrier.try_wait.parity.shared::cta.b64 passed, [%1], %2; selp.u32 %0, 1, 0, passed; }"
                     : "=r"(passed) : "r"(shared_place(gate)), "r"(parity) : "memory");
    } while (!passed);
}
// Has the machine copy a box of a map, which begins at an element, to a place, and tell a gate of its bytes.
DEVICE void copy_box(SharedPlace to, const u64* map, int x, int y, int z, u64* gate) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
                 "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_place(gate)) : "memory");
}
// Makes what was computed of registers, and nothing else, the sums that are added to.
DEVICE void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most so many committed products, the last ones, are under way.
template <int PRODUCTS>
DEVICE void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PRODUCTS) : "memory"); }
// Keeps the compiler from moving sums across this.
template <int COUNT>
DEVICE void group_pin(float (&sum)[COUNT]) {
    UNROLL for (int k = 0; k < COUNT; k++) asm volatile("" : "+f"(sum[k]) :: "memory");
}
// Gives registers of this group back, or takes more of them.
template <int REGISTERS>
DEVICE void registers_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS)); }
template <int REGISTERS>
DEVICE void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS)); }
// A barrier of so many threads of a block.
template <int THREADS>
DEVICE void part_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }
#endif

// What a group multiplies, as the machine is told: where it begins, how many bytes further the next panel is, and the next eight
// lines; lines are permuted within 1024 bytes.
DEVICE u64 matrix_at(SharedPlace at, u32 panel) {
    return (u64)((at & 0x3ffff) >> 4) | (u64)(panel >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

// One operand's part of a strip, LENGTH rows or columns.
template <int LENGTH, bool ALONG>
struct PanelsOf {
    enum { LINE = 128, PANEL = 64 * LINE, BYTES = LENGTH * LINE };

    // Has a strip come to a place of its own.
    static __device__ __forceinline__ void fetch(SharedPlace to, const u64* map, int strip, int first, int matrix, u64* gate) {
        if (ALONG) copy_box(to, map, strip * 64, first, matrix, gate);
        else UNROLL for (int part = 0; part < LENGTH / 64; part++) copy_box(to + part * PANEL, map, first + part * 64, strip * 64, matrix, gate);
    }
    // 16 steps of it, from a multiple of 64 of its rows or columns on.
    static __device__ __forceinline__ u64 take(SharedPlace from, int first, int step) {
        const SharedPlace at = from + first / 64 * PANEL;
        return ALONG ? matrix_at(at + step * 32, PANEL) : matrix_at(at + step * 16 * LINE, PANEL);
    }
};

template <class D, int COLUMNS, int STAGES, bool LEFT_ALONG, bool RIGHT_ALONG, int WIDTH, class EPILOGUE, int BASE, int N>
DEVICE void group_product(const Words<N>& w) {
    enum {
        ROWS = 128, STEPS = 4, GROUPS = 2, WARPS = GROUPS * GROUP / WARP,
        PITCH = COLUMNS + 8,
    };
    typedef PanelsOf<ROWS, LEFT_ALONG> Left;
    typedef PanelsOf<COLUMNS, RIGHT_ALONG> Right;
    enum { STAGE = Left::BYTES + Right::BYTES };
    LAUNCHED_SHARED(launched);
    SHARED(u64, full, STAGES);
    SHARED(u64, empty, STAGES);
    // Lines are permuted by their addresses.
    unsigned char* const memory = launched + (1024 - shared_place(launched) % 1024) % 1024;
    const SharedPlace stages = shared_place(memory);
    const int thread = (int)thread_x(), lane = thread % WARP, group = thread / GROUP;
    if (thread == 0) {
        UNROLL for (int stage = 0; stage < STAGES; stage++) {
            gate_begin(full + stage, 1);
            gate_begin(empty + stage, WARPS);
        }
        gates_ready();
    }
    barrier();

    const ProductTile tile = product_tile<ROWS, COLUMNS, BASE>(w);
    const int strips = (int)((w.at[BASE + T_K] + 63) / 64);
    if (group == 0) {
        registers_give<40>();
        if (thread == 0) {
            const u64 *const left = w.at + (N - 2 * MAP_WORDS), *const right = w.at + (N - MAP_WORDS);
            // One matrix for all has no third dimension.
            const int left_matrix = w.at[BASE + T_LEFT + 1] ? (int)tile.matrix : 0;
            const int right_matrix = w.at[BASE + T_RIGHT + 1] ? (int)tile.matrix : 0;
            int stage = 0, round = 0;
            ROLLED for (int strip = 0; strip < strips; strip++) {
                gate_wait(empty + stage, round ^ 1);
                gate_announce(full + stage, STAGE);
                const SharedPlace at = stages + stage * STAGE;
                Left::fetch(at, left, strip, (int)tile.row, left_matrix, full + stage);
                Right::fetch(at + Left::BYTES, right, strip, (int)tile.column, right_matrix, full + stage);
                if (++stage == STAGES) stage = 0, round ^= 1;
            }
        }
    } else {
        registers_take<232>();
        float sum[COLUMNS / 2];
        UNROLL for (int k = 0; k < COLUMNS / 2; k++) sum[k] = 0.0f;
        const int first = (group - 1) * 64;
        int stage = 0, round = 0, before = STAGES - 1;
        ROLLED for (int strip = 0; strip < strips; strip++) {
            gate_wait(full + stage, round);
            const SharedPlace at = stages + stage * STAGE;
            group_pin(sum);
            group_begin();
            UNROLL for (int step = 0; step < STEPS; step++) {
                multiply_groups(
                    GroupStep<D, COLUMNS, LEFT_ALONG, RIGHT_ALONG>(), sum, Left::take(at, first, step), Right::take(at + Left::BYTES, 0, step)
                );
            }
            group_commit();
            // The strip before is multiplied, so another may come to its place.
            group_wait<1>();
            group_pin(sum);
            if (strip > 0 && lane == 0) gate_arrive(empty + before);
            before = stage;
            if (++stage == STAGES) stage = 0, round ^= 1;
        }
        group_wait<0>();
        group_pin(sum);
        // Sums come where strips have been, which the other group may still read.
        part_barrier<GROUPS * GROUP>();
        const int warp = thread / WARP - GROUP / WARP;
        float* const rows = (float*)memory + warp * 16 * PITCH;
        UNROLL for (int k = 0; k < COLUMNS / 8; k++) {
            UNROLL for (int half = 0; half < 2; half++) {
                Vector<float, 2> pair;
                UNROLL for (int part = 0; part < 2; part++) pair.element[part] = sum[k * 4 + half * 2 + part];
                *(uint2*)(rows + (lane / 4 + half * 8) * PITCH + k * 8 + lane % 4 * 2) = pair.piece[0];
            }
        }
        store_sums<COLUMNS, PITCH, WIDTH, EPILOGUE, BASE>(w, rows, lane, tile.matrix, tile.row + warp * 16, tile.column);
    }
}
#endif
