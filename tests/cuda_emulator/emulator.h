// The part of CUDA that generated kernels use, on a CPU. It is included before a kernel's source, which is unmodified.
//
// A thread of a block is a fiber. It runs until it waits for others, at a shuffle or a barrier. The order in which
// ready threads run is the schedule, and a kernel must be right under each. Shared memory is filled with ones at the
// start of a block, and ends at a guarded page. Not modelled are the visibility of writes between blocks, limits of
// registers, and time.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define SHARED(type, name, count) type* const name = (type*)emulator_shared(__COUNTER__, sizeof(type) * (count))
#define threadIdx (emulator_self->index)
#define blockIdx emulator_block

struct Emulated3 { unsigned x, y, z; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

enum EmulatedState { READY, AT_SHUFFLE, AT_BARRIER, AT_PART_BARRIER, AT_GATE, DONE };
struct EmulatedWarp {
    // Two sets of values, because a thread that waits for the next shuffle has read the last one.
    int values[2][32];
    int arrived;
    unsigned generation;
    // The operands of threads in a warp-wide operation, and the operation.
    void* brought[32];
    void (*together)(void**);
};
struct EmulatedThread {
    void* stack_pointer;
    Emulated3 index;
    unsigned number, waits_for;
    EmulatedWarp* warp;
    EmulatedState state;
};
extern EmulatedThread* emulator_self;
extern Emulated3 emulator_block;

// Ends the process with a message.
[[noreturn]] void emulator_fail(const char* what);
// Runs other threads until this one may go on.
void emulator_wait(EmulatedState state);
char* emulator_shared(int site, size_t bytes);
void __syncthreads();

static int emulator_shuffle(unsigned mask, int value, unsigned from) {
    if (mask != 0xffffffffu) emulator_fail("a shuffle of less than a warp");
    EmulatedWarp* const warp = emulator_self->warp;
    int* const values = warp->values[warp->generation % 2];
    values[emulator_self->number % 32] = value;
    emulator_self->waits_for = warp->generation + 1;
    if (++warp->arrived == 32) {
        warp->arrived = 0;
        warp->generation++;
    } else {
        emulator_wait(AT_SHUFFLE);
    }
    return from < 32 ? values[from] : value;
}
// A warp-wide operation: the last thread that arrives computes it from the operands of all, before any goes on.
static void emulator_together(void (*perform)(void**), void* brought) {
    EmulatedWarp* const warp = emulator_self->warp;
    if (warp->arrived == 0) warp->together = perform;
    if (warp->together != perform) emulator_fail("threads of a warp meet at different operations");
    warp->brought[emulator_self->number % 32] = brought;
    emulator_self->waits_for = warp->generation + 1;
    if (++warp->arrived == 32) {
        warp->arrived = 0;
        perform(warp->brought);
        warp->generation++;
    } else {
        emulator_wait(AT_SHUFFLE);
    }
}
static int __shfl_down_sync(unsigned mask, int value, unsigned by) {
    return emulator_shuffle(mask, value, emulator_self->number % 32 + by);
}
static int __shfl_sync(unsigned mask, int value, unsigned from) { return emulator_shuffle(mask, value, from % 32); }

// One thread of the system runs all fibers.
static void __threadfence_system() {}

static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

template <class To, class From>
static To emulator_bits(From from) {
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static unsigned __float_as_uint(float x) { return emulator_bits<unsigned>(x); }
static float __uint_as_float(unsigned x) { return emulator_bits<float>(x); }
static long long __double_as_longlong(double x) { return emulator_bits<long long>(x); }
static double __longlong_as_double(long long x) { return emulator_bits<double>(x); }

// The compiler does not contract, and rounds to nearest, ties to even.
static float __fadd_rn(float a, float b) { return a + b; }
static float __fsub_rn(float a, float b) { return a - b; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fdiv_rn(float a, float b) { return a / b; }
static float __fsqrt_rn(float a) { return sqrtf(a); }
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __ddiv_rn(double a, double b) { return a / b; }
static double __dsqrt_rn(double a) { return sqrt(a); }
static double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

// Conversions to integers saturate; a NaN is 0 only from 32 bits to 32 bits.
template <class To, class From>
static To emulator_cut(From x, To least, To greatest, To of_nan) {
    if (x != x) return of_nan;
    if (x >= -(From)least) return greatest;
    return x <= (From)least ? least : (To)x;
}
static int __float2int_rz(float x) { return emulator_cut<int>(x, INT32_MIN, INT32_MAX, 0); }
static int __double2int_rz(double x) { return emulator_cut<int>(x, INT32_MIN, INT32_MAX, INT32_MIN); }
static long long __float2ll_rz(float x) { return emulator_cut<long long>(x, INT64_MIN, INT64_MAX, INT64_MIN); }
static long long __double2ll_rz(double x) { return emulator_cut<long long>(x, INT64_MIN, INT64_MAX, INT64_MIN); }
static float __int2float_rn(int x) { return (float)x; }
static float __ll2float_rn(long long x) { return (float)x; }
static double __int2double_rn(int x) { return (double)x; }
static double __ll2double_rn(long long x) { return (double)x; }
static float __double2float_rn(double x) { return (float)x; }

// The instructions of `tensor_cores.cuh`, as the PTX ISA describes them.
#define WARP_OPERATIONS
typedef char* Place;
static Place place_of(const void* at) { return (char*)at; }
// A copy arrives when its group is waited for. Until then its target is filled with ones.
struct EmulatedCopies {
    struct { void* to; const void* from; int bytes; unsigned group; } copy[64];
    unsigned n, groups;
};
extern EmulatedCopies emulator_copies[1024];
static void copy_async(Place to, const void* from, int bytes) {
    if ((uintptr_t)to % 16 || (bytes && (uintptr_t)from % 16)) emulator_fail("a copy at an address that is not aligned");
    EmulatedCopies& copies = emulator_copies[emulator_self->number];
    if (bytes < 0 || bytes > 16 || copies.n == 64) emulator_fail("a copy of more than 16 bytes, or too many of them");
    copies.copy[copies.n++] = {to, from, bytes, copies.groups};
    memset(to, 0xff, 16);
}
static void copies_commit() { emulator_copies[emulator_self->number].groups++; }
template <int GROUPS>
static void copies_wait() {
    EmulatedCopies& copies = emulator_copies[emulator_self->number];
    unsigned kept = 0;
    for (unsigned at = 0; at < copies.n; at++) {
        const auto copy = copies.copy[at];
        if (copy.group + GROUPS >= copies.groups) {
            copies.copy[kept++] = copy;
        } else {
            memset(copy.to, 0, 16);
            memcpy(copy.to, copy.from, copy.bytes);
        }
    }
    copies.n = kept;
}
static void emulator_nothing(void**) {}
static void warp_barrier() { emulator_together(emulator_nothing, 0); }

struct EmulatedRows { unsigned* x; const unsigned short* row; };
// Element `column` of row `row` of the number-th matrix; threads 8 * number to 8 * number + 7 point at its rows.
static unsigned emulator_element(void** threads, int number, int row, int column) {
    const unsigned short* const from = ((EmulatedRows*)threads[8 * number + row])->row;
    if ((uintptr_t)from % 16) emulator_fail("a row of a matrix at an address that is not aligned");
    return from[column];
}
static void emulator_load(void** threads) {
    for (int lane = 0; lane < 32; lane++) {
        for (int number = 0; number < 4; number++) {
            const int row = lane / 4, column = lane % 4 * 2;
            ((EmulatedRows*)threads[lane])->x[number] =
                emulator_element(threads, number, row, column) | emulator_element(threads, number, row, column + 1) << 16;
        }
    }
}
static void emulator_load_turned(void** threads) {
    for (int lane = 0; lane < 32; lane++) {
        for (int number = 0; number < 4; number++) {
            const int row = lane % 4 * 2, column = lane / 4;
            ((EmulatedRows*)threads[lane])->x[number] =
                emulator_element(threads, number, row, column) | emulator_element(threads, number, row + 1, column) << 16;
        }
    }
}
static void load_matrices(unsigned (&x)[4], Place row) {
    EmulatedRows own = {x, (const unsigned short*)row};
    emulator_together(emulator_load, &own);
}
static void load_matrices_turned(unsigned (&x)[4], Place row) {
    EmulatedRows own = {x, (const unsigned short*)row};
    emulator_together(emulator_load_turned, &own);
}
struct EmulatedFragments { float* sum; unsigned a[4], b[2]; };
// Sums are truncated to 32 bits rather than rounded, as some tensor cores do.
static float emulator_cut_off(double sum) {
    const float rounded = (float)sum;
    return !isinf(rounded) && fabs(rounded) > fabs(sum) ? nextafterf(rounded, 0.0f) : rounded;
}
template <class D>
static void emulator_multiply(void** threads) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const EmulatedFragments& own = *(EmulatedFragments*)threads[lane];
        for (int half = 0; half < 2; half++) {
            const int inner = lane % 4 * 2 + half;
            for (int part = 0; part < 4; part++) {
                a[lane / 4 + part % 2 * 8][inner + part / 2 * 8] = D::widen((unsigned short)(own.a[part] >> 16 * half));
            }
            for (int part = 0; part < 2; part++) b[inner + part * 8][lane / 4] = D::widen((unsigned short)(own.b[part] >> 16 * half));
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        for (int part = 0; part < 4; part++) {
            const int row = lane / 4 + part / 2 * 8, column = lane % 4 * 2 + part % 2;
            float& own = ((EmulatedFragments*)threads[lane])->sum[part];
            double sum = own;
            for (int inner = 0; inner < 16; inner++) sum += (double)a[row][inner] * b[inner][column];
            own = emulator_cut_off(sum);
        }
    }
}
template <class D>
static void multiply_matrices(D, float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    EmulatedFragments own = {sum, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    emulator_together(emulator_multiply<D>, &own);
}
