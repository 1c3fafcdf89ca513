// Runs the launches of a file and writes what they leave in their buffers; it stands behind the kernels and their table.
//
// The file is a list of 64-bit words. Per case: the number of buffers, and of each its bytes, the remainder of its address by 16,
// and its content; the number of words of the argument, and the words; the number of pointers, and of each the word and the
// buffer; the number of launches, and of each the entry, blocks, threads in x and y, and the items. Content fills whole words. The
// answer is the content of all buffers, in order.
//
// A buffer ends at most 15 bytes before a page that cannot be touched, and what is around it in its pages must stay as it is.

EmulatedThread* emulator_self;
Emulated3 emulator_block;

static long case_number = -1;
static void* scheduler_stack;
static EmulatedThread threads[1024];
static EmulatedWarp warps[32];
static unsigned n_threads, block_generation, n_at_barrier;
static long n_blocks_run;
static const Emulated* entry;
static const unsigned long long* entry_words;

void emulator_fail(const char* what) {
    fprintf(stderr, "case %ld: %s\n", case_number, what);
    _exit(4);
}

static const size_t PAGE = 4096, STACK = 256 * 1024;
static char* pages(size_t bytes) {
    void* const memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) emulator_fail("no memory");
    return (char*)memory;
}
// So many bytes between two pages that cannot be touched, rounded up to pages; the end is told.
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
    // Six registers, the address to return to, and one word, so that it looks as behind a call.
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
    entry->call(entry_words);
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
static bool may_run(const EmulatedThread& thread) {
    switch (thread.state) {
        case READY: return true;
        case AT_SHUFFLE: return (int)(thread.warp->generation - thread.waits_for) >= 0;
        case AT_BARRIER: return (int)(block_generation - thread.waits_for) >= 0;
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
    long block;
};
static SharedSite shared_sites[4096];
static size_t shared_bytes;
char* emulator_shared(int site, size_t bytes) {
    SharedSite& shared = shared_sites[site];
    if (!shared.end) shared.start = guarded(bytes, &shared.end);
    if (shared.block != n_blocks_run) {
        shared.block = n_blocks_run;
        shared_bytes += bytes;
        if (shared_bytes > 48 * 1024) emulator_fail("a block has more than 48 KiB of shared memory");
        memset(shared.start, 0xff, shared.end - shared.start);
    }
    return shared.end - (bytes + 15) / 16 * 16;
}

// 0 threads in turn, 1 from the last to the first, 2 a warp as long as it can, 3 the same from the last to the first.
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
    }
    for (unsigned number = 0; number < n_threads; number++) {
        if (threads[number].state == AT_SHUFFLE) emulator_fail("a shuffle is not met by all threads of its warp");
        if (threads[number].state == AT_BARRIER) emulator_fail("a barrier is not met by all threads of its block");
    }
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
        }
        run_block(schedule);
    }
}

static FILE *input, *output;
static unsigned long long take() {
    unsigned long long word;
    if (fread(&word, 8, 1, input) != 1) emulator_fail("the file of launches ends too early");
    return word;
}
struct Buffer {
    char *from, *end, *start;
    size_t bytes;
};
static const unsigned char AROUND = 0x5c;
static Buffer take_buffer() {
    Buffer buffer;
    buffer.bytes = take();
    const size_t remainder = take();
    buffer.from = guarded(buffer.bytes + 16, &buffer.end);
    memset(buffer.from, AROUND, buffer.end - buffer.from);
    size_t start = (size_t)buffer.end - buffer.bytes;
    while (start % 16 != remainder) start--;
    buffer.start = (char*)start;
    if (buffer.bytes && fread(buffer.start, buffer.bytes, 1, input) != 1) emulator_fail("a buffer has no content");
    for (size_t at = buffer.bytes; at % 8; at++) fgetc(input);
    return buffer;
}
static void give_buffer(const Buffer& buffer) {
    for (char* at = buffer.from; at < buffer.end; at++) {
        const bool inside = at >= buffer.start && at < buffer.start + buffer.bytes;
        if (!inside && (unsigned char)*at != AROUND) emulator_fail("memory beside a buffer was written to");
    }
    fwrite(buffer.start, buffer.bytes, 1, output);
    munmap(buffer.from - PAGE, buffer.end - buffer.from + 2 * PAGE);
}
static void run_case(int schedule) {
    static Buffer buffers[256];
    static unsigned long long words[512];
    const size_t n_buffers = take();
    for (size_t number = 0; number < n_buffers; number++) buffers[number] = take_buffer();
    const size_t n_words = take();
    for (size_t number = 0; number < n_words; number++) words[number] = take();
    for (size_t left = take(); left > 0; left--) {
        const size_t word = take(), buffer = take();
        words[word] += (unsigned long long)buffers[buffer].start;
    }
    for (size_t left = take(); left > 0; left--) {
        entry = &EMULATED[take()];
        if (entry->n_words != n_words) emulator_fail("an argument of another size");
        const unsigned long long blocks = take();
        const unsigned x = take(), y = take();
        words[ITEMS_WORD] = take();
        entry_words = words;
        launch(blocks, x, y, schedule);
    }
    for (size_t number = 0; number < n_buffers; number++) give_buffer(buffers[number]);
}

#include <signal.h>
static void on_fault(int) { emulator_fail("memory outside all buffers was touched, or at an address that is not aligned"); }
int main(int, char** arguments) {
    static char stack[65536];
    stack_t handler_stack = {};
    handler_stack.ss_sp = stack;
    handler_stack.ss_size = sizeof stack;
    sigaltstack(&handler_stack, 0);
    struct sigaction action = {};
    action.sa_handler = on_fault;
    action.sa_flags = SA_ONSTACK;
    const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
    for (int signal : signals) sigaction(signal, &action, 0);
    input = fopen(arguments[1], "rb");
    output = fopen(arguments[2], "wb");
    if (!input || !output) emulator_fail("a file cannot be opened");
    const int schedule = atoi(arguments[3]);
    const size_t n_cases = take();
    for (case_number = 0; (size_t)case_number < n_cases; case_number++) run_case(schedule);
    return fclose(output) == 0 ? 0 : 5;
}
