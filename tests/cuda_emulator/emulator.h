// The part of CUDA that generated kernels use, on a CPU. It stands in front of a kernel's text, which is compiled as it is.
//
// A thread of a block is a fiber. It runs until it waits for others, at a shuffle or a barrier; in which order those that can
// go on do so is the schedule, and a kernel must be right under each. Shared memory is full of ones at the start of a block and
// ends at a page that cannot be touched. What is not modelled: what blocks of a grid see of each other, limits of registers,
// and time.
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

enum EmulatedState { READY, AT_SHUFFLE, AT_BARRIER, DONE };
struct EmulatedWarp {
    // Two sets of values: who waits for the next shuffle has read the last.
    int values[2][32];
    int arrived;
    unsigned generation;
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
// Lets others run until this thread may go on.
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
static int __shfl_down_sync(unsigned mask, int value, unsigned by) {
    return emulator_shuffle(mask, value, emulator_self->number % 32 + by);
}
static int __shfl_sync(unsigned mask, int value, unsigned from) { return emulator_shuffle(mask, value, from % 32); }

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

// The compiler is told not to contract and rounds to nearest, ties to even.
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

// To integers they saturate; a NaN is 0 only from 32 bits to 32 bits.
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
