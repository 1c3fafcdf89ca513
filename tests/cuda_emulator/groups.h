// The instructions of `wgmma.cuh`, as the PTX ISA describes them; included after `emulator.h`.
//
// Copies of boxes are late: a copy arrives when no thread can go on without it, and until then its target is filled
// with ones. Products read shared memory when their group is waited for, and not before. A thread that waits at a gate
// runs others.
#define GROUP_OPERATIONS
#define IN_PLACE const
#define LAUNCHED_SHARED(name) unsigned char* const name = emulator_launched()

// Dynamic shared memory of a launch, and its address for the instructions, which is not aligned.
unsigned char* emulator_launched();
typedef unsigned SharedPlace;
SharedPlace shared_place(const void* at);
void* emulator_from_place(SharedPlace place, size_t bytes);

void gate_begin(unsigned long long* gate, int count);
void gates_ready();
void gate_arrive(unsigned long long* gate);
void gate_announce(unsigned long long* gate, int bytes);
void gate_wait(unsigned long long* gate, unsigned parity);
void copy_box(SharedPlace to, const unsigned long long* map, int x, int y, int z, unsigned long long* gate);

// Per thread, a group of products that its warp has not waited for.
struct EmulatedProduct {
    float* sum;
    unsigned long long left, right;
    unsigned group;
    void (*perform)(void**);
};
void emulator_product(const EmulatedProduct& product);
void group_begin();
void group_commit();
void emulator_group_wait(unsigned products);
template <int PRODUCTS>
static void group_wait() { emulator_group_wait(PRODUCTS); }
template <int COUNT>
static void group_pin(float (&)[COUNT]) {}
void emulator_registers(int registers, bool more);
template <int REGISTERS>
static void registers_give() { emulator_registers(REGISTERS, false); }
template <int REGISTERS>
static void registers_take() { emulator_registers(REGISTERS, true); }
void emulator_part_barrier(unsigned count);
template <int THREADS>
static void part_barrier() { emulator_part_barrier(THREADS); }

// The place of element `inner` of line or row `other` of a described matrix. Lines have 128 bytes and are permuted.
// With ALONG, a line has 64 steps of the inner dimension, and a stride is eight lines. Otherwise a line has 64 rows or
// columns, a stride is eight steps, and each further 64 rows or columns are another panel.
static unsigned short emulator_described(unsigned long long matrix, bool along, unsigned other, unsigned inner) {
    const unsigned start = (unsigned)(matrix & 0x3fff) << 4, panel = (unsigned)(matrix >> 16 & 0x3fff) << 4;
    const unsigned stride = (unsigned)(matrix >> 32 & 0x3fff) << 4;
    if (matrix >> 62 != 1 || (matrix >> 46 & 0xffff)) emulator_fail("a product of what is described in another way");
    unsigned place = start;
    if (along) place += other / 8 * stride + other % 8 * 128 + inner * 2;
    else place += other / 64 * panel + other % 64 * 2 + inner / 8 * stride + inner % 8 * 128;
    return *(unsigned short*)emulator_from_place(place ^ (place / 128 % 8 * 16), 2);
}
// A warp has 16 of the 64 rows, by its number in its group.
template <class D, int COLUMNS, bool LEFT_ALONG, bool RIGHT_ALONG>
static void emulator_multiply_group(void** threads) {
    const EmulatedProduct& product = *(EmulatedProduct*)threads[0];
    const unsigned first = emulator_self->number / 32 % 4 * 16;
    static float left[16][16], right[16][COLUMNS];
    for (unsigned inner = 0; inner < 16; inner++) {
        for (unsigned row = 0; row < 16; row++) {
            left[row][inner] = D::widen(emulator_described(product.left, LEFT_ALONG, first + row, inner));
        }
        for (unsigned column = 0; column < COLUMNS; column++) {
            right[inner][column] = D::widen(emulator_described(product.right, RIGHT_ALONG, column, inner));
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        const EmulatedProduct& own = *(EmulatedProduct*)threads[lane];
        if (own.left != product.left || own.right != product.right) emulator_fail("threads multiply different matrices");
        for (int part = 0; part < COLUMNS / 2; part++) {
            const int row = lane / 4 + part / 2 % 2 * 8, column = part / 4 * 8 + lane % 4 * 2 + part % 2;
            double sum = own.sum[part];
            for (int inner = 0; inner < 16; inner++) sum += (double)left[row][inner] * right[inner][column];
            own.sum[part] = emulator_cut_off(sum);
        }
    }
}
template <class D, int COLUMNS, bool LEFT_ALONG, bool RIGHT_ALONG> struct GroupStep;
template <class D, int COLUMNS, bool LEFT_ALONG, bool RIGHT_ALONG, int COUNT>
static void multiply_groups(
    GroupStep<D, COLUMNS, LEFT_ALONG, RIGHT_ALONG>, float (&sum)[COUNT], unsigned long long left, unsigned long long right
) {
    static_assert(COUNT == COLUMNS / 2, "a thread has this many sums");
    emulator_product({sum, left, right, 0, emulator_multiply_group<D, COLUMNS, LEFT_ALONG, RIGHT_ALONG>});
}
