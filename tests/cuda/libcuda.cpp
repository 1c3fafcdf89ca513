// A fake of the CUDA driver: its devices use memory of the host, and their kernels run on the emulator.
//
// It is compiled with `emulator.h` and `machine.h` of the emulator, and has the functions that the runtime calls.
//
// - Streams are lazy: work runs when the host waits for it. So a missing wait reads old data.
// - Memory ends at a guarded page. New memory is filled with ones, and freed memory is unmapped.
// - A kernel that fails makes its device fail from then on, as a real one does.
// - A cubin is the path of a library that `libnvrtc.cpp` made.
//
// OPFUSE_FAKE_DEVICES=n     number of devices; 2 if not set
// OPFUSE_FAKE_MEMORY=bytes  memory per device; 1 GiB if not set
// OPFUSE_FAKE_FAIL=n        the n-th launch fails, as one that leaves its memory does
// OPFUSE_FAKE_SCHEDULE=n    the order in which threads run, as `run_block` says
// OPFUSE_FAKE_REFUSE=name   a function that fails: instantiate, set or launch of CUDA graphs, or map of tensor maps
// OPFUSE_FAKE_CAPABILITY=n  ten times the compute capability; 90 if not set
//
// For `libcublasLt.cpp`: `fake_give` adds work to a stream, and `fake_let_others` runs other streams in the middle of
// it. `fake_is_memory` says whether memory is allocated, and `fake_context` which context is current.
//
// For tests: `fake_calls(name)` counts the calls of a driver function, and `fake_graphs()` the executable graphs.
// `fake_run()` runs the work of all streams, as a device does by itself.
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
};
#define API extern "C" __attribute__((visibility("default"))) Result
typedef unsigned long long Address;

static long setting(const char* name, long otherwise) {
    const char* const text = getenv(name);
    return text ? atol(text) : otherwise;
}

// Every call holds this lock, so one thread runs at a time. Calls are counted by the names of their functions.
static std::recursive_mutex everything;
static std::map<std::string, long> calls;
struct Locked : std::lock_guard<std::recursive_mutex> {
    Locked(std::recursive_mutex& mutex, const char* name = __builtin_FUNCTION()) : lock_guard(mutex) { calls[name]++; }
};
extern "C" __attribute__((visibility("default"))) long fake_calls(const char* name) {
    std::lock_guard<std::recursive_mutex> locked(everything);
    const auto found = calls.find(name);
    return found == calls.end() ? 0 : found->second;
}

struct Context {
    Result failed;
    size_t used;
};
static Context contexts[8];
static int n_devices = -1;
static thread_local Context* current;

struct Stream {
    Context* context;
    std::deque<std::function<void()>> work;
    // Work counts as done once it has started.
    unsigned long n_given, n_done;
    int n_begun;
};
static std::set<Stream*> streams;
static void run_until(Stream* stream, unsigned long n) {
    while (stream->n_done < n) {
        const std::function<void()> work = std::move(stream->work.front());
        stream->work.pop_front();
        stream->n_done++;
        stream->n_begun++;
        if (stream->context->failed == SUCCESS) work();
        stream->n_begun--;
    }
}
static void give(Stream* stream, std::function<void()> work) {
    stream->work.push_back(std::move(work));
    stream->n_given++;
}
extern "C" __attribute__((visibility("default"))) void fake_run() {
    std::lock_guard<std::recursive_mutex> locked(everything);
    for (Stream* const stream : streams) run_until(stream, stream->n_given);
}
static bool is_usable(Stream* stream) { return streams.count(stream) && stream->context == current; }

struct Event {
    Stream* stream;
    unsigned long n;
    std::chrono::steady_clock::time_point time;
};
static std::set<Event*> events;

struct Piece {
    Context* context;
    char *from, *end;
    size_t bytes;
};
static std::map<Address, Piece> memory, pinned;
static bool is_inside(const std::map<Address, Piece>& pieces, Address address, size_t bytes) {
    auto next = pieces.upper_bound(address);
    if (next == pieces.begin()) return bytes == 0;
    const auto& [start, piece] = *--next;
    return address + bytes <= start + piece.bytes;
}

// Runs a kernel: a failure ends it at once.
static SharedSite no_sites[1];
static bool in_kernel;
static sigjmp_buf behind_kernel;
static char failure[256];
void emulator_fail(const char* what) {
    snprintf(failure, sizeof failure, "%s", what);
    if (in_kernel) siglongjmp(behind_kernel, 1);
    fprintf(stderr, "fake of the CUDA driver: %s\n", what);
    abort();
}
static void on_fault(int) {
    emulator_fail("memory outside all buffers was touched, or at an address that is not aligned");
}
static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};

struct Module {
    Context* context;
    void* library;
    std::vector<SharedSite> sites;
};
struct Function {
    Module* module;
    void (*call)(const unsigned long long*);
    size_t bytes;
    std::string name;
    // The most dynamic shared memory of a launch.
    unsigned most_shared;
};
static std::set<Module*> modules;

// Whether the named work finished without a failure.
template <class Work>
static bool is_guarded_end(const char* name, const Work& work) {
    static char stack[65536];
    stack_t own = {}, before;
    own.ss_sp = stack;
    own.ss_size = sizeof stack;
    sigaltstack(&own, &before);
    struct sigaction action = {}, old[5];
    action.sa_handler = on_fault;
    action.sa_flags = SA_ONSTACK;
    for (int at = 0; at < 5; at++) sigaction(FAULTS[at], &action, &old[at]);
    failure[0] = 0;
    in_kernel = true;
    if (sigsetjmp(behind_kernel, 1) == 0) work();
    in_kernel = false;
    for (int at = 0; at < 5; at++) sigaction(FAULTS[at], &old[at], 0);
    sigaltstack(&before, 0);
    if (failure[0]) fprintf(stderr, "fake of the CUDA driver: %s: %s\n", name, failure);
    return failure[0] == 0;
}
static bool launch_guarded(const Function& function, const unsigned long long* words, unsigned blocks, unsigned x, unsigned y, unsigned shared) {
    launched_bytes = shared;
    shared_sites = function.module->sites.data();
    emulated_call = function.call;
    emulated_words = words;
    const int schedule = (int)setting("OPFUSE_FAKE_SCHEDULE", 0);
    const bool ended = is_guarded_end(function.name.c_str(), [=] { launch(blocks, x, y, schedule); });
    shared_sites = no_sites;
    return ended;
}

API cuInit(unsigned) {
    Locked locked(everything);
    n_devices = (int)setting("OPFUSE_FAKE_DEVICES", 2);
    if (n_devices > 8) n_devices = 8;
    return n_devices > 0 ? SUCCESS : (Result)100;
}
API cuDriverGetVersion(int* version) { return *version = 13000, SUCCESS; }
API cuDeviceGetCount(int* count) { return *count = n_devices, n_devices < 0 ? NOT_INITIALIZED : SUCCESS; }
API cuDeviceGet(int* device, int number) {
    if (number < 0 || number >= n_devices) return INVALID_DEVICE;
    return *device = number, SUCCESS;
}
API cuDeviceGetName(char* name, int length, int device) {
    return snprintf(name, length, "fake %d", device), SUCCESS;
}
API cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
        case 75: *value = (int)setting("OPFUSE_FAKE_CAPABILITY", 90) / 10; break;
        case 76: *value = (int)setting("OPFUSE_FAKE_CAPABILITY", 90) % 10; break;
        default: *value = 0;
    }
    return SUCCESS;
}
API cuDevicePrimaryCtxRetain(Context** context, int device) {
    if (device < 0 || device >= n_devices) return INVALID_DEVICE;
    return *context = &contexts[device], SUCCESS;
}
API cuCtxSetCurrent(Context* context) {
    Locked locked(everything);
    return current = context, SUCCESS;
}
API cuGetErrorName(Result code, const char** name) {
    switch (code) {
        case SUCCESS: *name = "CUDA_SUCCESS"; break;
        case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
        case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
        case NOT_INITIALIZED: *name = "CUDA_ERROR_NOT_INITIALIZED"; break;
        case INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; break;
        case INVALID_IMAGE: *name = "CUDA_ERROR_INVALID_IMAGE"; break;
        case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
        case INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; break;
        case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; break;
        case NOT_READY: *name = "CUDA_ERROR_NOT_READY"; break;
        case LAUNCH_FAILED: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
        case NOT_SUPPORTED: *name = "CUDA_ERROR_NOT_SUPPORTED"; break;
        default: *name = "CUDA_ERROR_NO_DEVICE";
    }
    return SUCCESS;
}

API cuStreamCreate(Stream** stream, unsigned) {
    Locked locked(everything);
    if (!current) return INVALID_CONTEXT;
    streams.insert(*stream = new Stream{current, {}, 0, 0});
    return SUCCESS;
}
// The struct stays: events may refer to it, and pending work still runs.
API cuStreamDestroy_v2(Stream* stream) {
    Locked locked(everything);
    return is_usable(stream) ? SUCCESS : INVALID_HANDLE;
}
API cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
    Locked locked(everything);
    if (!is_usable(stream) || !events.count(event)) return INVALID_HANDLE;
    Stream* const other = event->stream;
    const unsigned long n = event->n;
    if (other && other != stream) give(stream, [=] { run_until(other, n); });
    return SUCCESS;
}

API cuEventCreate(Event** event, unsigned) {
    Locked locked(everything);
    if (!current) return INVALID_CONTEXT;
    events.insert(*event = new Event{});
    return SUCCESS;
}
// The struct stays: pending work may refer to it.
API cuEventDestroy_v2(Event* event) {
    Locked locked(everything);
    return events.erase(event) ? SUCCESS : INVALID_HANDLE;
}
API cuEventRecord(Event* event, Stream* stream) {
    Locked locked(everything);
    if (!is_usable(stream) || !events.count(event)) return INVALID_HANDLE;
    give(stream, [=] { event->time = std::chrono::steady_clock::now(); });
    event->stream = stream;
    event->n = stream->n_given;
    return stream->context->failed;
}
API cuEventQuery(Event* event) {
    Locked locked(everything);
    if (!events.count(event)) return INVALID_HANDLE;
    if (!event->stream || event->stream->n_done >= event->n) return event->stream ? event->stream->context->failed : SUCCESS;
    return NOT_READY;
}
API cuEventSynchronize(Event* event) {
    Locked locked(everything);
    if (!events.count(event)) return INVALID_HANDLE;
    if (!event->stream) return SUCCESS;
    run_until(event->stream, event->n);
    return event->stream->context->failed;
}
API cuEventElapsedTime_v2(float* milliseconds, Event* from, Event* to) {
    Locked locked(everything);
    if (!events.count(from) || !events.count(to)) return INVALID_HANDLE;
    *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
    return SUCCESS;
}

API cuMemAlloc_v2(Address* address, size_t bytes) {
    Locked locked(everything);
    if (!current) return INVALID_CONTEXT;
    if (current->failed) return current->failed;
    if (!bytes) return INVALID_VALUE;
    if (current->used + bytes > (size_t)setting("OPFUSE_FAKE_MEMORY", 1l << 30)) return OUT_OF_MEMORY;
    Piece piece = {current, 0, 0, bytes};
    piece.from = guarded(bytes, &piece.end);
    memset(piece.from, 0xff, piece.end - piece.from);
    *address = (Address)(piece.end - bytes) & ~(Address)15;
    memory[*address] = piece;
    current->used += bytes;
    return SUCCESS;
}
API cuMemFree_v2(Address address) {
    Locked locked(everything);
    const auto found = memory.find(address);
    if (found == memory.end()) return INVALID_VALUE;
    // The driver waits for its device.
    for (Stream* stream : streams) {
        if (stream->context == found->second.context) run_until(stream, stream->n_given);
    }
    const Piece piece = found->second;
    piece.context->used -= piece.bytes;
    memory.erase(found);
    mprotect(piece.from, piece.end - piece.from, PROT_NONE);
    return piece.context->failed;
}
API cuMemHostAlloc(void** start, size_t bytes, unsigned) {
    Locked locked(everything);
    Piece piece = {current, 0, 0, bytes};
    piece.from = guarded(bytes, &piece.end);
    *start = (void*)((Address)(piece.end - bytes) & ~(Address)15);
    pinned[(Address)*start] = piece;
    return SUCCESS;
}
API cuMemFreeHost(void* start) {
    Locked locked(everything);
    const auto found = pinned.find((Address)start);
    if (found == pinned.end()) return INVALID_VALUE;
    munmap(found->second.from, found->second.end - found->second.from);
    pinned.erase(found);
    return SUCCESS;
}
static Result copy(Address to, Address from, size_t bytes, Stream* stream) {
    if (!is_usable(stream)) return INVALID_HANDLE;
    give(stream, [=] { memmove((void*)to, (void*)from, bytes); });
    return stream->context->failed;
}
// Unpinned memory is refused, because copies from it are not asynchronous.
API cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream* stream) {
    Locked locked(everything);
    if (!is_inside(memory, to, bytes) || !is_inside(pinned, (Address)from, bytes)) return INVALID_VALUE;
    return copy(to, (Address)from, bytes, stream);
}
API cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream* stream) {
    Locked locked(everything);
    if (!is_inside(memory, from, bytes) || !is_inside(pinned, (Address)to, bytes)) return INVALID_VALUE;
    return copy((Address)to, from, bytes, stream);
}

API cuModuleLoadData(Module** module, const char* cubin) {
    Locked locked(everything);
    static const char MAGIC[] = "fake:";
    if (!current) return INVALID_CONTEXT;
    if (strncmp(cubin, MAGIC, sizeof MAGIC - 1)) return INVALID_IMAGE;
    void* const library = dlopen(cubin + sizeof MAGIC - 1, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "fake of the CUDA driver: %s\n", dlerror());
        return INVALID_IMAGE;
    }
    modules.insert(*module = new Module{current, library, std::vector<SharedSite>(256)});
    return SUCCESS;
}
// It stays loaded: pending work may run it.
API cuModuleUnload(Module* module) {
    Locked locked(everything);
    return modules.erase(module) ? SUCCESS : INVALID_HANDLE;
}
API cuModuleGetFunction(Function** function, Module* module, const char* name) {
    Locked locked(everything);
    if (!modules.count(module)) return INVALID_HANDLE;
    void* const call = dlsym(module->library, (std::string("call_") + name).c_str());
    void* const bytes = dlsym(module->library, (std::string("bytes_") + name).c_str());
    if (!call || !bytes) return NOT_FOUND;
    *function = new Function{module, (void (*)(const unsigned long long*))call, *(size_t*)bytes, name, 48 << 10};
    return SUCCESS;
}
API cuFuncSetAttribute(Function* function, int attribute, int value) {
    Locked locked(everything);
    if (attribute != 8 || value < 0 || value > 227 << 10) return INVALID_VALUE;
    return function->most_shared = (unsigned)value, SUCCESS;
}

// A launch with its argument buffer, which was copied when it was launched.
struct Node {
    Function function;
    std::vector<unsigned long long> words;
    unsigned blocks, x, y, shared;
};
static Result node_of(
    Node* node, Function* function, const unsigned (&grid)[3], const unsigned (&block)[3], unsigned shared, void** arguments
) {
    const unsigned x = block[0], y = block[1];
    if (!function || !grid[0] || grid[0] > 0x7fffffffu || grid[1] != 1 || grid[2] != 1 || block[2] != 1 || !x || !y) {
        return INVALID_VALUE;
    }
    if (x * y > 1024 || x * y % 32 || shared > function->most_shared) return INVALID_VALUE;
    const auto words = (const unsigned long long*)arguments[0];
    *node = Node{*function, {words, words + function->bytes / 8}, grid[0], x, y, shared};
    return SUCCESS;
}
static void run_node(Context* context, const Node& node) {
    static long n_launches;
    if (context->failed) return;
    const bool fails = ++n_launches == setting("OPFUSE_FAKE_FAIL", 0);
    if (fails || !launch_guarded(node.function, node.words.data(), node.blocks, node.x, node.y, node.shared)) context->failed = LAUNCH_FAILED;
}
API cuLaunchKernel(Function* function, unsigned blocks, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z,
                   unsigned shared, Stream* stream, void** arguments, void**) {
    Locked locked(everything);
    if (!is_usable(stream) || function->module->context != current) return INVALID_HANDLE;
    Node node;
    if (const Result code = node_of(&node, function, {blocks, gy, gz}, {x, y, z}, shared, arguments)) return code;
    if (current->failed) return current->failed;
    Context* const context = current;
    give(stream, [=] { run_node(context, node); });
    return SUCCESS;
}

// CUDA graphs of launches. An executable graph has launches of its own, identified by the nodes that they were made of.
// A run keeps the launches that it was started with. It starts when the graph's last run is done, on whatever stream.
struct Graph {
    Context* context;
    std::vector<Node*> order;
    std::map<Node*, std::vector<Node*>> before;
};
struct GraphExec {
    Context* context;
    Graph* graph;
    std::vector<Node*> order;
    std::map<Node*, Node> nodes;
    Stream* last;
    unsigned long n;
};
struct KernelNodeParams {
    Function* function;
    unsigned grid[3], block[3], shared_bytes;
    void **arguments, **extra;
    void *kernel, *context;
};
static std::set<Graph*> graphs;
static std::set<GraphExec*> execs;
static bool is_refused(const char* what) {
    const char* const name = getenv("OPFUSE_FAKE_REFUSE");
    return name && !strcmp(name, what);
}
extern "C" __attribute__((visibility("default"))) long fake_graphs() {
    std::lock_guard<std::recursive_mutex> locked(everything);
    return (long)execs.size();
}
API cuGraphCreate(Graph** graph, unsigned flags) {
    Locked locked(everything);
    if (flags) return INVALID_VALUE;
    if (!current) return INVALID_CONTEXT;
    graphs.insert(*graph = new Graph{current, {}, {}});
    return SUCCESS;
}
API cuGraphAddKernelNode_v2(Node** node, Graph* graph, Node* const* before, size_t n_before, const KernelNodeParams* params) {
    Locked locked(everything);
    if (!graphs.count(graph) || params->extra || params->kernel) return INVALID_VALUE;
    for (size_t at = 0; at < n_before; at++) {
        if (!graph->before.count(before[at])) return INVALID_VALUE;
    }
    Node made;
    if (const Result code = node_of(&made, params->function, params->grid, params->block, params->shared_bytes, params->arguments)) return code;
    if (params->function->module->context != graph->context) return INVALID_VALUE;
    graph->order.push_back(*node = new Node(made));
    graph->before[*node] = {before, before + n_before};
    return SUCCESS;
}
API cuGraphInstantiateWithFlags(GraphExec** exec, Graph* graph, unsigned long long flags) {
    Locked locked(everything);
    if (!graphs.count(graph) || flags) return INVALID_VALUE;
    if (is_refused("instantiate")) return NOT_SUPPORTED;
    GraphExec* const made = new GraphExec{graph->context, graph, {}, {}, 0, 0};
    // Independent nodes run in any order: here, in reverse order.
    std::vector<Node*> left(graph->order.rbegin(), graph->order.rend());
    std::set<Node*> done;
    while (!left.empty()) {
        for (size_t at = 0; at < left.size(); at++) {
            bool is_ready = true;
            for (Node* const other : graph->before[left[at]]) is_ready &= done.count(other) > 0;
            if (!is_ready) continue;
            done.insert(left[at]);
            made->order.push_back(left[at]);
            left.erase(left.begin() + (long)at);
            break;
        }
    }
    for (Node* const node : graph->order) made->nodes[node] = *node;
    execs.insert(*exec = made);
    return SUCCESS;
}
API cuGraphExecKernelNodeSetParams_v2(GraphExec* exec, Node* node, const KernelNodeParams* params) {
    Locked locked(everything);
    if (!execs.count(exec) || !graphs.count(exec->graph) || !exec->nodes.count(node)) return INVALID_VALUE;
    if (is_refused("set")) return INVALID_VALUE;
    Node made;
    if (const Result code = node_of(&made, params->function, params->grid, params->block, params->shared_bytes, params->arguments)) return code;
    if (params->function->module->context != exec->context) return INVALID_VALUE;
    exec->nodes[node] = made;
    return SUCCESS;
}
API cuGraphLaunch(GraphExec* exec, Stream* stream) {
    Locked locked(everything);
    if (!execs.count(exec)) return INVALID_VALUE;
    if (!is_usable(stream) || exec->context != current) return INVALID_HANDLE;
    if (is_refused("launch")) return INVALID_VALUE;
    if (current->failed) return current->failed;
    std::vector<Node> nodes;
    for (Node* const node : exec->order) nodes.push_back(exec->nodes[node]);
    Stream* const last = exec->last;
    const unsigned long n = exec->n;
    Context* const context = current;
    give(stream, [=] {
        if (last && last != stream) run_until(last, n);
        for (const Node& node : nodes) run_node(context, node);
    });
    exec->last = stream;
    exec->n = stream->n_given;
    return SUCCESS;
}
// Runs that were started hold what they need.
API cuGraphExecDestroy(GraphExec* exec) {
    Locked locked(everything);
    return execs.erase(exec) ? SUCCESS : INVALID_VALUE;
}
API cuGraphDestroy(Graph* graph) {
    Locked locked(everything);
    return graphs.erase(graph) ? SUCCESS : INVALID_VALUE;
}

// Adds work of another fake in the place of a kernel; returns whether the stream accepts it.
extern "C" __attribute__((visibility("default"))) bool fake_give(Stream* stream, const std::function<void()>* work) {
    std::lock_guard<std::recursive_mutex> locked(everything);
    if (!is_usable(stream) || current->failed) return false;
    Context* const context = current;
    give(stream, [context, work = *work] {
        if (!context->failed && !is_guarded_end("a library", work)) context->failed = LAUNCH_FAILED;
    });
    return true;
}
// Runs other streams of the device in the middle of a library's work on this one. Streams that are themselves in the
// middle of work, such as a wait for this one, are left out.
extern "C" __attribute__((visibility("default"))) void fake_let_others(Stream* stream) {
    std::lock_guard<std::recursive_mutex> locked(everything);
    give(stream, [=] {
        for (Stream* const other : std::vector<Stream*>(streams.begin(), streams.end())) {
            if (other->n_begun == 0 && other->context == stream->context) run_until(other, other->n_given);
        }
    });
}
extern "C" __attribute__((visibility("default"))) bool fake_is_memory(Address address, size_t bytes) {
    std::lock_guard<std::recursive_mutex> locked(everything);
    return is_inside(memory, address, bytes);
}
extern "C" __attribute__((visibility("default"))) void* fake_context() { return current; }

#include "tensor_maps.h"
