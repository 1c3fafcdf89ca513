// The asynchronous part of the emulator: gates, copies of boxes, and products of groups; included after `machine.h`.

// A tensor map in the emulator's format.
struct EmulatedMap {
    unsigned long long magic;
    char* from;
    unsigned long long sizes[3], strides[2];
    unsigned tile[3], element_bytes;
};
static_assert(sizeof(EmulatedMap) <= 128, "a map has 16 words");
static const unsigned long long MAP_MAGIC = 0x746c65734d617073ull;

// The rule of the driver's documentation that a map with permuted lines of 128 bytes breaks; null if it breaks none.
static const char* wrong_map(const EmulatedMap& map) {
    if ((uintptr_t)map.from % 16) return "its address is no multiple of 16";
    for (int dim = 0; dim < 3; dim++) {
        if (map.sizes[dim] == 0 || map.sizes[dim] > 1ull << 32) return "it has no elements, or too many";
        if (map.tile[dim] == 0 || map.tile[dim] > 256) return "its box has no elements, or more than 256 along a side";
    }
    for (int dim = 0; dim < 2; dim++) {
        if (map.strides[dim] % 16 || map.strides[dim] == 0 || map.strides[dim] >= 1ull << 40) return "a stride is none that it takes";
    }
    if (map.strides[1] % map.strides[0]) return "a stride is no multiple of the one before";
    if (map.tile[0] * map.element_bytes > 128 || map.tile[0] * map.element_bytes % 16) return "lines of its box are too long";
    return 0;
}

// A gate in its 8 bytes.
struct Gate {
    unsigned phase : 1, magic : 7, left : 12, count : 12;
    int bytes;
};
static_assert(sizeof(Gate) == 8, "a gate has 8 bytes");
enum { GATE_MAGIC = 0x2b };
static bool gates_are_seen;
static Gate& gate_at(void* at) {
    Gate& gate = *(Gate*)at;
    if ((uintptr_t)at % 8 || gate.magic != GATE_MAGIC) emulator_fail("a gate that was not begun");
    return gate;
}
static void pass_if_done(Gate& gate) {
    if (gate.left != 0 || gate.bytes != 0) return;
    gate.phase ^= 1;
    gate.left = gate.count;
}
void gate_begin(unsigned long long* at, int count) {
    Gate gate = {0, GATE_MAGIC, (unsigned)count, (unsigned)count, 0};
    memcpy(at, &gate, 8);
    gates_are_seen = false;
}
void gates_ready() { gates_are_seen = true; }
void gate_announce(unsigned long long* at, int bytes) {
    Gate& gate = gate_at(at);
    if (gate.left == 0) emulator_fail("more arrive at a gate than it waits for");
    gate.left--;
    gate.bytes += bytes;
    pass_if_done(gate);
}
void gate_arrive(unsigned long long* at) { gate_announce(at, 0); }
// Per thread, the gate where it waits.
static struct { Gate* gate; unsigned parity; } at_gate[1024];
static bool is_passed(unsigned number) { return at_gate[number].gate->phase != at_gate[number].parity; }
void gate_wait(unsigned long long* at, unsigned parity) {
    const unsigned number = emulator_self->number;
    at_gate[number] = {&gate_at(at), parity & 1};
    if (!is_passed(number)) emulator_wait(AT_GATE);
}

// Shared memory of a launch begins 16 bytes after a multiple of 1024.
static const SharedPlace FIRST_PLACE = 5 * 1024 + 16;
static char *launched_start, *launched_end;
static size_t launched_capacity;
static long launched_block = -1;
unsigned char* emulator_launched() {
    if (launched_bytes == 0) emulator_fail("a launch gives no shared memory to a kernel that wants some");
    if (launched_capacity < launched_bytes) {
        launched_start = guarded(launched_bytes + 16, &launched_end);
        launched_capacity = launched_bytes;
        launched_block = -1;
    }
    char* const from = launched_end - (launched_bytes + 15) / 16 * 16;
    if (launched_block != n_blocks_run) {
        launched_block = n_blocks_run;
        memset(from, 0xff, launched_end - from);
    }
    return (unsigned char*)from;
}
SharedPlace shared_place(const void* at) {
    const size_t distance = (const unsigned char*)at - emulator_launched();
    if (distance > launched_bytes) emulator_fail("a place outside the shared memory of a launch");
    return FIRST_PLACE + (SharedPlace)distance;
}
void* emulator_from_place(SharedPlace place, size_t bytes) {
    const size_t distance = (size_t)place - FIRST_PLACE;
    if (distance > launched_bytes || distance + bytes > launched_bytes) emulator_fail("a place outside the shared memory of a launch");
    return emulator_launched() + distance;
}

// Pending copies.
struct BoxCopy {
    SharedPlace to;
    EmulatedMap map;
    int at[3];
    Gate* gate;
};
static BoxCopy box_copies[256];
static unsigned n_box_copies;
static unsigned box_bytes(const EmulatedMap& map) { return map.tile[0] * map.tile[1] * map.tile[2] * map.element_bytes; }
void copy_box(SharedPlace to, const unsigned long long* words, int x, int y, int z, unsigned long long* gate) {
    BoxCopy copy = {to, {}, {x, y, z}, &gate_at(gate)};
    memcpy(&copy.map, words, sizeof copy.map);
    if (copy.map.magic != MAP_MAGIC) emulator_fail("a copy by what is no map");
    if (!gates_are_seen) emulator_fail("a copy tells a gate that it does not see yet");
    if (to % 128) emulator_fail("a box comes to a place that is not aligned");
    if (n_box_copies == 256) emulator_fail("too many copies are under way");
    memset(emulator_from_place(to, box_bytes(copy.map)), 0xff, box_bytes(copy.map));
    box_copies[n_box_copies++] = copy;
}
static void perform_copy(const BoxCopy& copy) {
    const EmulatedMap& map = copy.map;
    unsigned line = 0;
    for (unsigned z = 0; z < map.tile[2]; z++) {
        for (unsigned y = 0; y < map.tile[1]; y++, line++) {
            for (unsigned x = 0; x < map.tile[0]; x++) {
                const long long at[3] = {copy.at[0] + (long long)x, copy.at[1] + (long long)y, copy.at[2] + (long long)z};
                bool inside = true;
                for (int dim = 0; dim < 3; dim++) inside &= at[dim] >= 0 && at[dim] < (long long)map.sizes[dim];
                const SharedPlace place = copy.to + (line * map.tile[0] + x) * map.element_bytes;
                char* const to = (char*)emulator_from_place(place ^ (place / 128 % 8 * 16), map.element_bytes);
                if (inside) {
                    memcpy(to, map.from + at[0] * map.element_bytes + at[1] * map.strides[0] + at[2] * map.strides[1], map.element_bytes);
                } else {
                    memset(to, 0, map.element_bytes);
                }
            }
        }
    }
    copy.gate->bytes -= (int)box_bytes(map);
    pass_if_done(*copy.gate);
}
// Completes a pending copy, the first or the last that was started; returns whether there was one.
static bool perform_some_copy(bool last) {
    if (n_box_copies == 0) return false;
    const unsigned at = last ? n_box_copies - 1 : 0;
    const BoxCopy copy = box_copies[at];
    memmove(box_copies + at, box_copies + at + 1, (n_box_copies - at - 1) * sizeof copy);
    n_box_copies--;
    perform_copy(copy);
    return true;
}

// Products that each thread has not waited for.
static struct {
    EmulatedProduct product[64];
    unsigned n, groups;
    bool has_begun;
} of_thread[1024];
void group_begin() { of_thread[emulator_self->number].has_begun = true; }
void emulator_product(const EmulatedProduct& product) {
    auto& own = of_thread[emulator_self->number];
    if (!own.has_begun) emulator_fail("a product of sums that are still being written");
    if (own.n == 64) emulator_fail("too many products are under way");
    own.product[own.n] = product;
    own.product[own.n++].group = own.groups;
}
void group_commit() {
    auto& own = of_thread[emulator_self->number];
    own.groups++;
    own.has_begun = false;
}
void emulator_group_wait(unsigned products) {
    auto& own = of_thread[emulator_self->number];
    unsigned done = 0;
    while (done < own.n && own.product[done].group + products < own.groups) {
        EmulatedProduct product = own.product[done++];
        emulator_together(product.perform, &product);
    }
    memmove(own.product, own.product + done, (own.n - done) * sizeof(EmulatedProduct));
    own.n -= done;
}
// Registers of groups: a group can take only what another has given back.
static int given_registers[8];
static unsigned n_registers_told[8];
void emulator_registers(int registers, bool more) {
    const unsigned group = emulator_self->number / 128;
    if (registers % 8 || registers < 24 || registers > 256) emulator_fail("a number of registers that no group has");
    const int each = 65536 / (int)n_threads / 8 * 8;
    if (more != (registers > each)) emulator_fail("registers are taken where some are to be given, or the other way round");
    given_registers[group] = registers;
    n_registers_told[group]++;
    int all = 0;
    for (unsigned at = 0; at < n_threads / 128; at++) all += (n_registers_told[at] ? given_registers[at] : 0) * 128;
    if (all > 65536) emulator_fail("groups take more registers than there are");
}
static unsigned part_count, n_at_part, part_generation;
void emulator_part_barrier(unsigned count) {
    if (n_at_part == 0) part_count = count;
    if (part_count != count) emulator_fail("threads of a part expect different numbers of them");
    emulator_self->waits_for = part_generation + 1;
    if (++n_at_part == count) {
        n_at_part = 0;
        part_generation++;
    } else {
        emulator_wait(AT_PART_BARRIER);
    }
}
static bool is_part_there(unsigned generation) { return (int)(part_generation - generation) >= 0; }

static void begin_groups() {
    n_box_copies = n_at_part = part_generation = 0;
    memset(n_registers_told, 0, sizeof n_registers_told);
    for (unsigned number = 0; number < n_threads; number++) of_thread[number].n = of_thread[number].groups = of_thread[number].has_begun = 0;
}
static void end_groups() {
    if (n_box_copies) emulator_fail("a copy that nobody waits for");
    for (unsigned number = 0; number < n_threads; number++) {
        if (of_thread[number].n) emulator_fail("a product that nobody waits for");
    }
    for (unsigned group = 0; group < n_threads / 128; group++) {
        if (n_registers_told[group] % 128) emulator_fail("registers are not given or taken by a whole group");
    }
}
