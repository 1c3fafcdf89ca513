// The scheduler of threads of emulated blocks; included after `emulator.h`.
//
// Threads are fibers of one thread of the system, which run in the order of a schedule. Their stacks and shared memory
// end at guarded pages. The including file defines what a failure does, and has memory for the sites of shared memory.
EmulatedThread* emulator_self;
Emulated3 emulator_block;
EmulatedCopies emulator_copies[1024];

static void* scheduler_stack;
static EmulatedThread threads[1024];
static EmulatedWarp warps[32];
static unsigned n_threads, block_generation, n_at_barrier;
static long n_blocks_run;
// The function that each thread runs, and its argument.
static void (*emulated_call)(const unsigned long long*);
static const unsigned long long* emulated_words;

static const size_t PAGE = 4096, STACK = 256 * 1024;
static char* pages(size_t bytes) {
    void* const memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) emulator_fail("no memory");
    return (char*)memory;
}
// Memory of so many bytes, rounded up to pages, between two guarded pages; also returns its end.
static char* guarded(size_t bytes, char** end) {
    const size_t inner = (bytes + PAGE - 1) / PAGE * PAGE;
    char* const memory = pages(inner + 2 * PAGE);
    mprotect(memory, PAGE, PROT_NONE);
    mprotect(memory + PAGE + inner, PAGE, PROT_NONE);
    *end = memory + PAGE + inner;
    return memory + PAGE;
}

#if defined(__x86_64__)
extern "C" void emulator_switch(void** from, void* to);
asm(".text\n"
    "emulator_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");
static void* new_stack(char* end, void (*start)()) {
    // Six registers, the return address, and one word, so that the stack is aligned as after a call.
    void** const top = (void**)end - 8;
    memset(top, 0, 64);
    top[6] = (void*)start;
    return top;
}
#else
#include <ucontext.h>
static void emulator_switch(void** from, void* to) {
    ucontext_t own;
    *from = &own;
    swapcontext(&own, (ucontext_t*)to);
}
static void* new_stack(char* end, void (*start)()) {
    ucontext_t* const context = (ucontext_t*)((uintptr_t)(end - sizeof(ucontext_t)) & ~(uintptr_t)63);
    getcontext(context);
    context->uc_stack.ss_sp = end - STACK;
    context->uc_stack.ss_size = (char*)context - (end - STACK) - 64;
    context->uc_link = 0;
    makecontext(context, start, 0);
    return context;
}
#endif

static void leave() { emulator_switch(&emulator_self->stack_pointer, scheduler_stack); }
static void start_thread() {
    emulated_call(emulated_words);
    emulator_self->state = DONE;
    leave();
}
void emulator_wait(EmulatedState state) {
    emulator_self->state = state;
    leave();
}
void __syncthreads() {
    emulator_self->waits_for = block_generation + 1;
    if (++n_at_barrier == n_threads) {
        n_at_barrier = 0;
        block_generation++;
    } else {
        emulator_wait(AT_BARRIER);
    }
}
// Asynchronous work besides the threads (`groups_machine.h`).
static bool is_passed(unsigned number);
static bool is_part_there(unsigned generation);
static bool perform_some_copy(bool last);
static void begin_groups();
static void end_groups();

static bool may_run(const EmulatedThread& thread) {
    switch (thread.state) {
        case READY: return true;
        case AT_SHUFFLE: return (int)(thread.warp->generation - thread.waits_for) >= 0;
        case AT_BARRIER: return (int)(block_generation - thread.waits_for) >= 0;
        case AT_PART_BARRIER: return is_part_there(thread.waits_for);
        case AT_GATE: return is_passed(thread.number);
        case DONE: return false;
    }
    return false;
}
static bool run_thread(unsigned number) {
    EmulatedThread& thread = threads[number];
    if (!may_run(thread)) return false;
    thread.state = READY;
    emulator_self = &thread;
    emulator_switch(&scheduler_stack, thread.stack_pointer);
    return true;
}

struct SharedSite {
    char *start, *end;
    size_t bytes;
    long block;
};
// The sites of the running source.
static SharedSite* shared_sites;
static size_t shared_bytes;
// The dynamic shared memory of the launch.
static size_t launched_bytes;
char* emulator_shared(int site, size_t bytes) {
    SharedSite& shared = shared_sites[site];
    // A template has one site for kernels of many sizes.
    if (shared.bytes != bytes) {
        shared.start = guarded(bytes, &shared.end);
        shared.bytes = bytes;
        shared.block = -1;
    }
    if (shared.block != n_blocks_run) {
        shared.block = n_blocks_run;
        shared_bytes += bytes;
        if (shared_bytes > 48 * 1024) emulator_fail("a block has more than 48 KiB of shared memory that its launch does not ask for");
        if (shared_bytes + launched_bytes > 227 * 1024) emulator_fail("a block has more than 227 KiB of shared memory");
        memset(shared.start, 0xff, shared.end - shared.start);
    }
    return shared.end - (bytes + 15) / 16 * 16;
}

// 0: threads in turn; 1: in turn from the last; 2: each warp as long as it can; 3: the same from the last warp.
static void run_block(int schedule) {
    const bool reverse = schedule & 1;
    const unsigned group = schedule & 2 ? 32 : n_threads;
    for (bool any = true; any;) {
        any = false;
        for (unsigned at = 0; at < n_threads; at += group) {
            const unsigned first = reverse ? n_threads - group - at : at;
            for (bool more = true; more;) {
                more = false;
                for (unsigned lane = 0; lane < group; lane++) {
                    more |= run_thread(first + (reverse ? group - 1 - lane : lane));
                }
                any |= more;
            }
        }
        // No thread can go on without a pending copy.
        if (!any) any = perform_some_copy(reverse);
    }
    for (unsigned number = 0; number < n_threads; number++) {
        if (threads[number].state == AT_SHUFFLE) emulator_fail("a shuffle is not met by all threads of its warp");
        if (threads[number].state == AT_BARRIER) emulator_fail("a barrier is not met by all threads of its block");
        if (threads[number].state == AT_PART_BARRIER) emulator_fail("a barrier is not met by all threads of its part");
        if (threads[number].state == AT_GATE) emulator_fail("a gate is never passed");
    }
    end_groups();
}
static char* stacks[1024];
static void launch(unsigned long long blocks, unsigned x, unsigned y, int schedule) {
    n_threads = x * y;
    if (n_threads == 0 || n_threads > 1024 || n_threads % 32 || blocks == 0 || blocks > 0x7fffffffu) {
        emulator_fail("a grid that no device takes");
    }
    for (unsigned long long at = 0; at < blocks; at++) {
        n_blocks_run++;
        shared_bytes = 0;
        emulator_block = {(unsigned)(schedule & 1 ? blocks - 1 - at : at), 0, 0};
        block_generation = n_at_barrier = 0;
        memset(warps, 0, sizeof warps);
        for (unsigned number = 0; number < n_threads; number++) {
            if (!stacks[number]) guarded(STACK, &stacks[number]);
            threads[number] = {new_stack(stacks[number], start_thread), {number % x, number / x, 0}, number, 0,
                               &warps[number / 32], READY};
            emulator_copies[number].n = emulator_copies[number].groups = 0;
        }
        begin_groups();
        run_block(schedule);
    }
}
