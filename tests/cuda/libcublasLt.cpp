// A fake of cublasLt: matrix products on the streams of the fake driver, where they are as lazy as kernels.
//
// It checks its arguments as the library's documentation says: sizes, leading dimensions, types, alignment, workspaces.
// Sums go from the last element to the first in three strands, an order that no kernel of opfuse has. Sums of f64 have
// no epilogue. `relu` makes a NaN 0.
//
// An algorithm with a workspace keeps half of each sum there between two pieces of work. Other streams run in between,
// so runs that share a workspace are wrong.
//
// OPFUSE_FAKE_LT_VERSION=n          the version that it reports; 130000 if not set
// OPFUSE_FAKE_LT_WORKSPACE=bytes    the workspace of its algorithms, where it is allowed; none if not set
// OPFUSE_FAKE_LT_NOTHING=what       when it names no algorithm: always (all), with an `epilogue`, without a `workspace`
// OPFUSE_FAKE_LT_SHARED=1           a planted bug: all products use the same workspace
// OPFUSE_FAKE_LT_FAIL=n             the n-th product is refused
//
// `fake_lt_calls(name)` counts the calls of a function, and `fake_lt_live()` the descriptions. With OLD it lacks a
// function.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

struct Stream;
typedef unsigned long long Address;
extern "C" bool fake_give(Stream* stream, const std::function<void()>* work);
extern "C" void fake_let_others(Stream* stream);
extern "C" bool fake_is_memory(Address address, size_t bytes);
extern "C" void* fake_context();

enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
#define VISIBLE extern "C" __attribute__((visibility("default")))
#define API VISIBLE Status

static std::recursive_mutex everything;
static std::map<std::string, long> calls;
struct Locked : std::lock_guard<std::recursive_mutex> {
    Locked(const char* name = __builtin_FUNCTION()) : lock_guard(everything) { calls[name]++; }
};
VISIBLE long fake_lt_calls(const char* name) {
    std::lock_guard<std::recursive_mutex> locked(everything);
    const auto found = calls.find(name);
    return found == calls.end() ? 0 : found->second;
}
static long setting(const char* name, long otherwise) {
    const char* const text = getenv(name);
    return text ? atol(text) : otherwise;
}
static bool names_nothing_for(const char* what) {
    const char* const text = getenv("OPFUSE_FAKE_LT_NOTHING");
    return text && !strcmp(text, what);
}

enum Type { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
enum Compute { COMPUTE_32F = 68, COMPUTE_64F = 70 };
enum Epilogue { RELU = 2, BIAS = 4, GELU = 32 };
static size_t size_of(int type) { return type == F64 ? 8 : type == F32 ? 4 : 2; }
static bool is_float(int type) { return type == F32 || type == F64 || type == F16 || type == BF16; }

struct Handle { void* context; };
struct Description { int compute, scale, transposed[2], epilogue; Address bias; };
struct Layout { int type; uint64_t rows, columns; int64_t pitch, stride; int batches; };
struct Preference { uint64_t workspace; uint32_t alignments[4]; };
static std::set<void*> handles, descriptions, layouts, preferences;
VISIBLE long fake_lt_live() {
    std::lock_guard<std::recursive_mutex> locked(everything);
    return (long)(descriptions.size() + layouts.size() + preferences.size());
}
template <class T>
static Status destroy(std::set<void*>& all, T* one) {
    if (!all.erase(one)) return INVALID_VALUE;
    delete one;
    return SUCCESS;
}
// Sets a field of exactly the given size.
template <class T>
static Status set(T* field, const void* from, size_t bytes) {
    if (bytes != sizeof(T)) return INVALID_VALUE;
    memcpy(field, from, bytes);
    return SUCCESS;
}

VISIBLE size_t cublasLtGetVersion() { return (size_t)setting("OPFUSE_FAKE_LT_VERSION", 130000); }
#ifndef OLD
VISIBLE const char* cublasLtGetStatusName(Status status) {
    switch (status) {
        case SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        default: return "CUBLAS_STATUS_INVALID_VALUE";
    }
}
#endif
API cublasLtCreate(Handle** handle) {
    Locked locked;
    if (!fake_context()) return NOT_INITIALIZED;
    handles.insert(*handle = new Handle{fake_context()});
    return SUCCESS;
}
API cublasLtDestroy(Handle* handle) {
    Locked locked;
    return destroy(handles, handle);
}
API cublasLtMatmulDescCreate(Description** description, int compute, int scale) {
    Locked locked;
    if (!(compute == COMPUTE_32F && scale == F32) && !(compute == COMPUTE_64F && scale == F64)) return INVALID_VALUE;
    descriptions.insert(*description = new Description{compute, scale, {0, 0}, 1, 0});
    return SUCCESS;
}
API cublasLtMatmulDescDestroy(Description* description) {
    Locked locked;
    return destroy(descriptions, description);
}
API cublasLtMatmulDescSetAttribute(Description* description, int attribute, const void* from, size_t bytes) {
    Locked locked;
    if (!descriptions.count(description)) return INVALID_VALUE;
    switch (attribute) {
        case 3: case 4: return set(&description->transposed[attribute - 3], from, bytes);
        case 7: return set(&description->epilogue, from, bytes);
        case 8: return set(&description->bias, from, bytes);
        default: return INVALID_VALUE;
    }
}
API cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns, int64_t pitch) {
    Locked locked;
    if (!is_float(type) || !rows || !columns || pitch < (int64_t)rows) return INVALID_VALUE;
    layouts.insert(*layout = new Layout{type, rows, columns, pitch, 0, 1});
    return SUCCESS;
}
API cublasLtMatrixLayoutDestroy(Layout* layout) {
    Locked locked;
    return destroy(layouts, layout);
}
API cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* from, size_t bytes) {
    Locked locked;
    if (!layouts.count(layout)) return INVALID_VALUE;
    switch (attribute) {
        case 5: return set(&layout->batches, from, bytes);
        case 6: return set(&layout->stride, from, bytes);
        default: return INVALID_VALUE;
    }
}
API cublasLtMatmulPreferenceCreate(Preference** preference) {
    Locked locked;
    preferences.insert(*preference = new Preference{0, {256, 256, 256, 256}});
    return SUCCESS;
}
API cublasLtMatmulPreferenceDestroy(Preference* preference) {
    Locked locked;
    return destroy(preferences, preference);
}
API cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* from, size_t bytes) {
    Locked locked;
    if (!preferences.count(preference)) return INVALID_VALUE;
    if (attribute == 1) return set(&preference->workspace, from, bytes);
    if (attribute < 5 || attribute > 8) return INVALID_VALUE;
    uint32_t alignment;
    if (const Status status = set(&alignment, from, bytes)) return status;
    if (!alignment || alignment & (alignment - 1)) return INVALID_VALUE;
    preference->alignments[attribute - 5] = alignment;
    return SUCCESS;
}

// A product whose descriptions fit together: D is m x n, of sums of k products, stored by columns.
struct Product {
    int type, result, epilogue;
    bool transposed[2];
    size_t m, n, k, batches;
    struct Side { size_t pitch, stride; } a, b, d;
};
static Status product_of(Product* product, const Description* description, const Layout* a, const Layout* b, const Layout* c,
                         const Layout* d) {
    if (!descriptions.count((void*)description)) return INVALID_VALUE;
    for (const Layout* layout : {a, b, c, d}) {
        if (!layouts.count((void*)layout) || layout->batches != a->batches) return INVALID_VALUE;
    }
    if (b->type != a->type || c->type != d->type) return INVALID_VALUE;
    if (d->type != a->type && (d->type != F32 || size_of(a->type) != 2)) return NOT_SUPPORTED;
    const bool is_wide = a->type == F64;
    if (is_wide != (description->compute == COMPUTE_64F)) return NOT_SUPPORTED;
    for (int transposed : description->transposed) {
        if (transposed != 0 && transposed != 1) return INVALID_VALUE;
    }
    const bool ta = description->transposed[0], tb = description->transposed[1];
    const uint64_t m = ta ? a->columns : a->rows, k = ta ? a->rows : a->columns;
    const uint64_t other = tb ? b->columns : b->rows, n = tb ? b->rows : b->columns;
    if (other != k || d->rows != m || d->columns != n || c->rows != m || c->columns != n) return INVALID_VALUE;
    if (a->batches < 1 || a->stride < 0 || b->stride < 0) return INVALID_VALUE;
    if (a->batches > 1 && d->stride < (int64_t)((n - 1) * d->pitch + m)) return INVALID_VALUE;
    if (description->epilogue != 1 && description->epilogue & ~(RELU | BIAS | GELU)) return NOT_SUPPORTED;
    const auto side = [](const Layout* layout) { return Product::Side{(size_t)layout->pitch, (size_t)layout->stride}; };
    *product = Product{a->type, d->type, description->epilogue == 1 ? 0 : description->epilogue, {ta, tb}, m, n, k, (size_t)a->batches,
                       side(a), side(b), side(d)};
    return SUCCESS;
}

// The problem that an algorithm was returned for.
struct Algorithm { uint64_t of, workspace; uint32_t alignments[4]; uint64_t rest[4]; };
struct Found { Algorithm algorithm; size_t workspace; Status status; float waves; int reserved[4]; };
static_assert(sizeof(Algorithm) == 64, "as the library has it");
static uint64_t hash_of(const Product& product) {
    const uint64_t words[] = {(uint64_t)product.type, (uint64_t)product.result, (uint64_t)product.epilogue,
                              product.transposed[0], product.transposed[1], product.m, product.n, product.k, product.batches, product.a.pitch, product.a.stride,
                              product.b.pitch, product.b.stride, product.d.pitch, product.d.stride};
    uint64_t hash = 0xcbf29ce484222325ull;
    for (const uint64_t word : words) hash = (hash ^ word) * 0x100000001b3ull;
    return hash;
}
API cublasLtMatmulAlgoGetHeuristic(Handle* handle, Description* description, Layout* a, Layout* b, Layout* c, Layout* d,
                                   Preference* preference, int n_wanted, Found* found, int* n_found) {
    Locked locked;
    *n_found = 0;
    if (!handles.count(handle) || handle->context != fake_context() || !preferences.count(preference) || n_wanted < 1) {
        return INVALID_VALUE;
    }
    Product product;
    if (const Status status = product_of(&product, description, a, b, c, d)) return status;
    if (product.epilogue & BIAS && !description->bias) return INVALID_VALUE;
    if (names_nothing_for("all") || (product.epilogue && (names_nothing_for("epilogue") || product.type == F64))) {
        return NOT_SUPPORTED;
    }
    for (int place = 0; place < 4; place++) {
        if (preference->alignments[place] < size_of(place < 2 ? product.type : product.result)) return NOT_SUPPORTED;
    }
    uint64_t workspace = (uint64_t)setting("OPFUSE_FAKE_LT_WORKSPACE", 0);
    if (workspace > preference->workspace) workspace = 0;
    if (!workspace && names_nothing_for("workspace")) return SUCCESS;
    found->algorithm = Algorithm{hash_of(product), workspace, {}, {}};
    memcpy(found->algorithm.alignments, preference->alignments, sizeof preference->alignments);
    found->workspace = workspace;
    found->status = SUCCESS;
    *n_found = 1;
    return SUCCESS;
}

static double bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static double half(uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                                        : exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits >> 15 ? -value : value;
}
static double load(int type, Address at) {
    uint64_t bits = 0;
    memcpy(&bits, (const void*)at, size_of(type));
    double wide;
    memcpy(&wide, &bits, 8);
    return type == F64 ? wide : type == F32 ? bits_to_float((uint32_t)bits) : type == BF16 ? bits_to_float((uint32_t)bits << 16) : half((uint16_t)bits);
}
static void store(int type, Address at, double value) {
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    uint16_t small;
    if (type == BF16) {
        small = isnan(value) ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    } else {
        // A unit of the last place is at least 2^-24; 65520 is half-way from the largest number to the next.
        const double size = fabs(value);
        int exponent;
        frexp(size, &exponent);
        const double step = ldexp(1, exponent < -13 ? -24 : exponent - 11);
        const double rounded = isfinite(size) ? nearbyint(size / step) * step : size;
        if (isnan(value)) small = 0x7fff;
        else if (rounded >= 65520) small = 0x7c00;
        else if (rounded < ldexp(1, -14)) small = (uint16_t)(rounded * ldexp(1, 24));
        else {
            frexp(rounded, &exponent);
            small = (uint16_t)((exponent + 14) << 10 | ((int)ldexp(rounded, 11 - exponent) & 1023));
        }
        if (!isnan(value) && signbit(value)) small |= 0x8000;
    }
    if (type == F64) memcpy((void*)at, &value, 8);
    else if (type == F32) memcpy((void*)at, &bits, 4);
    else memcpy((void*)at, &small, 2);
}

// A sum of elements of a range, from the last to the first, in the type of sums.
template <class T>
static T sum_of(const Product& product, Address a, Address b, size_t row, size_t column, size_t first, size_t end) {
    const size_t size = size_of(product.type);
    T strands[3] = {0, 0, 0};
    for (size_t at = end; at-- > first;) {
        const size_t left = product.transposed[0] ? at + row * product.a.pitch : row + at * product.a.pitch;
        const size_t right = product.transposed[1] ? column + at * product.b.pitch : at + column * product.b.pitch;
        strands[at % 3] += (T)load(product.type, a + left * size) * (T)load(product.type, b + right * size);
    }
    return strands[2] + strands[1] + strands[0];
}
template <class T>
static T ending(int epilogue, T x, T bias) {
    if (epilogue & BIAS) x += bias;
    if (epilogue & RELU) x = x > 0 ? x : 0;
    if (epilogue & GELU) x = (T)0.5 * x * (1 + tanh((T)0.7978845608028654 * (x + (T)0.044715 * x * x * x)));
    return x;
}
struct Run {
    Product product;
    double alpha, beta;
    Address a, b, c, d, bias, workspace;
    size_t n_kept;
};
// The second halves of the first sums, kept for `finish`.
template <class T>
static void begin(const Run& run) {
    const Product& p = run.product;
    const size_t size = size_of(p.type);
    for (size_t at = 0; at < run.n_kept; at++) {
        const size_t batch = at / (p.m * p.n), row = at % p.m, column = at / p.m % p.n;
        const T sum = sum_of<T>(p, run.a + batch * p.a.stride * size, run.b + batch * p.b.stride * size, row, column, p.k / 2, p.k);
        memcpy((void*)(run.workspace + at * sizeof(T)), &sum, sizeof(T));
    }
}
template <class T>
static void finish(const Run& run) {
    const Product& p = run.product;
    const size_t size = size_of(p.type);
    for (size_t at = 0; at < p.batches * p.m * p.n; at++) {
        const size_t batch = at / (p.m * p.n), row = at % p.m, column = at / p.m % p.n;
        const bool is_kept = at < run.n_kept;
        T sum = sum_of<T>(p, run.a + batch * p.a.stride * size, run.b + batch * p.b.stride * size, row, column, 0, is_kept ? p.k / 2 : p.k);
        if (is_kept) {
            T kept;
            memcpy(&kept, (const void*)(run.workspace + at * sizeof(T)), sizeof(T));
            sum += kept;
        }
        const size_t stored = size_of(p.result), place = (batch * p.d.stride + row + column * p.d.pitch) * stored;
        T value = (T)run.alpha * sum;
        if (run.beta != 0) value += (T)run.beta * (T)load(p.result, run.c + place);
        const T bias = p.epilogue & BIAS ? (T)load(p.result, run.bias + row * stored) : 0;
        store(p.result, run.d + place, ending(p.epilogue, value, bias));
    }
}
// Whether a matrix lies in allocated memory, with the stated alignment.
static bool is_there(Address address, int type, const Product& product, const Product::Side& side, size_t rows, size_t columns,
                     uint32_t alignment) {
    const size_t extent = (product.batches - 1) * side.stride + (columns - 1) * side.pitch + rows;
    return address && address % alignment == 0 && fake_is_memory(address, extent * size_of(type));
}
API cublasLtMatmul(Handle* handle, Description* description, const void* alpha, Address a, Layout* of_a, Address b, Layout* of_b,
                   const void* beta, Address c, Layout* of_c, Address d, Layout* of_d, const Algorithm* algorithm, Address workspace,
                   size_t bytes, Stream* stream) {
    Locked locked;
    static long n_products;
    if (!handles.count(handle) || handle->context != fake_context()) return INVALID_VALUE;
    if (!alpha || !beta || !algorithm) return INVALID_VALUE;
    Product p;
    if (const Status status = product_of(&p, description, of_a, of_b, of_c, of_d)) return status;
    if (algorithm->of != hash_of(p)) return INVALID_VALUE;
    const uint32_t* const alignments = algorithm->alignments;
    if (!is_there(a, p.type, p, p.a, of_a->rows, of_a->columns, alignments[0])) return INVALID_VALUE;
    if (!is_there(b, p.type, p, p.b, of_b->rows, of_b->columns, alignments[1])) return INVALID_VALUE;
    for (int place = 2; place < 4; place++) {
        if (!is_there(place == 2 ? c : d, p.result, p, p.d, p.m, p.n, alignments[place])) return INVALID_VALUE;
    }
    if (p.epilogue & BIAS) {
        const Address bias = description->bias;
        if (bias % alignments[3] || !fake_is_memory(bias, p.m * size_of(p.result))) return INVALID_VALUE;
    }
    const size_t needed = algorithm->workspace;
    const bool fits = workspace && workspace % 16 == 0 && bytes >= needed;
    if (needed && !(fits && fake_is_memory(workspace, needed))) return INVALID_VALUE;
    if (++n_products == setting("OPFUSE_FAKE_LT_FAIL", 0)) return EXECUTION_FAILED;
    const bool is_wide = p.type == F64;
    const auto number = [=](const void* at) { return is_wide ? *(const double*)at : *(const float*)at; };
    const size_t n_results = p.batches * p.m * p.n, n_fitting = needed / (is_wide ? 8 : 4);
    static char shared[1 << 16];
    if (needed && needed <= sizeof shared && setting("OPFUSE_FAKE_LT_SHARED", 0)) workspace = (Address)shared;
    const Run run = {p, number(alpha), number(beta), a, b, c, d, description->bias, workspace, n_fitting < n_results ? n_fitting : n_results};
    const std::function<void()> first = [=] { is_wide ? begin<double>(run) : begin<float>(run); };
    const std::function<void()> second = [=] { is_wide ? finish<double>(run) : finish<float>(run); };
    if (!fake_give(stream, &first)) return EXECUTION_FAILED;
    if (needed) fake_let_others(stream);
    return fake_give(stream, &second) ? SUCCESS : EXECUTION_FAILED;
}
