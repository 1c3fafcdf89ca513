// Runs the launches of a file and writes the contents of their buffers; included after the kernels, their table and
// `machine.h`.
//
// The file is a list of 64-bit words, case by case:
//
// - the number of buffers; of each, its bytes, the remainder of its address by 16, the bytes between its halves, and
//   its content, which fills whole words;
// - the number of words of the argument buffer, and the words;
// - the number of pointers; of each, the word and the buffer;
// - the number of tensor maps; of each, the word with its address, its first word, three sizes, two strides, three
//   sides of its box, and the bytes of an element;
// - the number of launches; of each, the entry, blocks, threads in x and y, and the items.
//
// The answer is the content of all buffers, in order.
//
// A buffer ends at most 15 bytes before a guarded page. The bytes around it in its pages must not change, unless its
// halves lie apart: then most pages do not exist.

static long case_number = -1;
void emulator_fail(const char* what) {
    fprintf(stderr, "case %ld: %s\n", case_number, what);
    _exit(4);
}

static FILE *input, *output;
static unsigned long long take() {
    unsigned long long word;
    if (fread(&word, 8, 1, input) != 1) emulator_fail("the file of launches ends too early");
    return word;
}
struct Buffer {
    char *from, *end, *start;
    size_t bytes, apart;
    // The address of a byte, by its position in the content.
    char* at(size_t distance) const { return start + distance + (distance < bytes / 2 ? 0 : apart); }
};
static const unsigned char AROUND = 0x5c;
static Buffer take_buffer() {
    Buffer buffer;
    buffer.bytes = take();
    const size_t remainder = take();
    buffer.apart = take();
    buffer.from = guarded(buffer.bytes + buffer.apart + 16, &buffer.end);
    if (buffer.apart == 0) memset(buffer.from, AROUND, buffer.end - buffer.from);
    size_t start = (size_t)buffer.end - buffer.bytes - buffer.apart;
    while (start % 16 != remainder) start--;
    buffer.start = (char*)start;
    const size_t halves[] = {buffer.bytes / 2, buffer.bytes - buffer.bytes / 2};
    for (int half = 0; half < 2; half++) {
        char* const to = buffer.at(half * halves[0]);
        if (halves[half] && fread(to, halves[half], 1, input) != 1) emulator_fail("a buffer has no content");
    }
    for (size_t at = buffer.bytes; at % 8; at++) fgetc(input);
    return buffer;
}
static void give_buffer(const Buffer& buffer) {
    for (char* at = buffer.from; buffer.apart == 0 && at < buffer.end; at++) {
        const bool inside = at >= buffer.start && at < buffer.start + buffer.bytes;
        if (!inside && (unsigned char)*at != AROUND) emulator_fail("memory beside a buffer was written to");
    }
    fwrite(buffer.start, buffer.bytes / 2, 1, output);
    fwrite(buffer.at(buffer.bytes / 2), buffer.bytes - buffer.bytes / 2, 1, output);
    munmap(buffer.from - PAGE, buffer.end - buffer.from + 2 * PAGE);
}
static SharedSite sites[4096];
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
        EmulatedMap map = {MAP_MAGIC};
        map.from = (char*)words[take()];
        unsigned long long* const to = words + take();
        for (unsigned long long& size : map.sizes) size = take();
        for (unsigned long long& stride : map.strides) stride = take();
        for (unsigned& side : map.tile) side = (unsigned)take();
        map.element_bytes = (unsigned)take();
        if (const char* const wrong = wrong_map(map)) emulator_fail(wrong);
        memcpy(to, &map, sizeof map);
    }
    for (size_t left = take(); left > 0; left--) {
        const Emulated* const entry = &EMULATED[take()];
        if (entry->n_words != n_words) emulator_fail("an argument of another size");
        const unsigned long long blocks = take();
        const unsigned x = take(), y = take();
        words[ITEMS_WORD] = take();
        emulated_call = entry->call;
        launched_bytes = entry->launched_bytes;
        emulated_words = words;
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
    shared_sites = sites;
    const size_t n_cases = take();
    for (case_number = 0; (size_t)case_number < n_cases; case_number++) run_case(schedule);
    return fclose(output) == 0 ? 0 : 5;
}
