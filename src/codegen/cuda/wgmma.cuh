// Matrix products of 16-bit floats by groups of four warps (`wgmma`), for compute capability 9.0: exact products,
// summed in 32 bits in the hardware's order.
//
// A block computes a tile of 128 rows. Its first group of warps starts copies of strips of the operands, 64 steps along
// the inner dimension each, into a ring of stages in shared memory (`cp.async.bulk.tensor`). The other two groups
// multiply them, 64 rows each, and hold the sums in registers. Each stage has two barriers in memory: one is passed
// when its bytes have arrived, the other when every warp is done with it. What is outside an operand arrives as zeros.
//
// A strip consists of panels. A panel has lines of 128 bytes, whose pieces of 16 bytes are permuted by the line's
// number modulo 8 (the 128-byte swizzle), for copies and for products alike. ALONG: the operand is contiguous along the
// inner dimension, so a line is a row (left operand) or column of 64 steps, and one panel holds all of them. Otherwise
// a line is one step of 64 rows or columns, and several panels hold all of them.
//
// One thread of the first group starts all copies. Nothing here ever ran on a device.
#ifndef WARP_GROUPS
#define WARP_GROUPS

// The argument buffer: its last words are the tensor maps of the operands, with the alignment that the hardware
// requires.
template <int N>
struct alignas(128) MappedWords {
    Words<N> words;
};
enum { MAP_WORDS = 16, GROUP = 128 };

// The type of a multiplication: COLUMNS at once, and whether each operand is contiguous along the inner dimension.
template <class D, int COLUMNS, bool LEFT_ALONG, bool RIGHT_ALONG> struct GroupStep {};

// Operations of the hardware, or of a whole group of warps; an emulator may define its own.
#ifndef GROUP_OPERATIONS
#define GROUP_OPERATIONS
#define GROUP_ASSEMBLY
// A parameter that is not copied, so that the hardware finds maps in it.
#define IN_PLACE const __grid_constant__
// Shared memory whose size the launch gives.
#define LAUNCHED_SHARED(name) extern __shared__ unsigned char name[]
// An address in shared memory.
typedef u32 SharedPlace;
DEVICE SharedPlace shared_place(const void* at) {
    SharedPlace place;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(place) : "l"(at));
    return place;
}
// A barrier in memory. It is passed when so many threads have arrived, and as many bytes as they announced.
DEVICE void gate_begin(u64* gate, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_place(gate)), "r"(count) : "memory");
}
// Makes initialized barriers visible to asynchronous copies; other threads see them after a block barrier.
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
// Waits until a barrier was passed in a phase of this parity; the phase before the first counts as passed.
DEVICE void gate_wait(u64* gate, u32 parity) {
    u32 passed;
    do {
        asm volatile("{ .reg .pred passed; mbarrier.try_wait.parity.shared::cta.b64 passed, [%1], %2; selp.u32 %0, 1, 0, passed; }"
                     : "=r"(passed) : "r"(shared_place(gate)), "r"(parity) : "memory");
    } while (!passed);
}
// Copies a box of a tensor map, which starts at an element, to shared memory, and reports its bytes to a barrier.
DEVICE void copy_box(SharedPlace to, const u64* map, int x, int y, int z, u64* gate) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
                 "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_place(gate)) : "memory");
}
// Orders register writes of the sums before the products that add to them.
DEVICE void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most so many committed products, the last ones, are in flight.
template <int PRODUCTS>
DEVICE void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PRODUCTS) : "memory"); }
// Keeps the compiler from moving sums across this point.
template <int COUNT>
DEVICE void group_pin(float (&sum)[COUNT]) {
    UNROLL for (int k = 0; k < COUNT; k++) asm volatile("" : "+f"(sum[k]) :: "memory");
}
// Releases registers of this group, or takes more of them.
template <int REGISTERS>
DEVICE void registers_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS)); }
template <int REGISTERS>
DEVICE void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS)); }
// A barrier of some threads of a block.
template <int THREADS>
DEVICE void part_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }
#endif

// The descriptor of an operand: its address, the stride between panels, and that between groups of eight lines, with
// the 128-byte swizzle.
DEVICE u64 matrix_at(SharedPlace at, u32 panel) {
    return (u64)((at & 0x3ffff) >> 4) | (u64)(panel >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

// One operand's part of a strip: LENGTH rows or columns.
template <int LENGTH, bool ALONG>
struct PanelsOf {
    enum { LINE = 128, PANEL = 64 * LINE, BYTES = LENGTH * LINE };

    // Copies a strip to its place.
    static __device__ __forceinline__ void fetch(SharedPlace to, const u64* map, int strip, int first, int matrix, u64* gate) {
        if (ALONG) copy_box(to, map, strip * 64, first, matrix, gate);
        else UNROLL for (int part = 0; part < LENGTH / 64; part++) copy_box(to + part * PANEL, map, first + part * 64, strip * 64, matrix, gate);
    }
    // The descriptor of 16 steps, from a multiple of 64 of its rows or columns on.
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
    // The swizzle depends on addresses.
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
            // A matrix that all batches share has no third dimension.
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
            // The strip before is multiplied, so its stage is free.
            group_wait<1>();
            group_pin(sum);
            if (strip > 0 && lane == 0) gate_arrive(empty + before);
            before = stage;
            if (++stage == STAGES) stage = 0, round ^= 1;
        }
        group_wait<0>();
        group_pin(sum);
        // Sums go to the memory of strips, which the other group may still read.
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
