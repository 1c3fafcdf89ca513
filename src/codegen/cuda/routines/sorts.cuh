// Sorts: the places of elements in the order of their values. Equal elements keep their order.
// A key with the order of the elements.
template <class D> struct Rank {
    DEVICE u64 of(typename D::Value x) { return (u64)(i64)x ^ 0x8000000000000000ull; }
};
DEVICE u64 rank_of(u64 bits, u64 sign, bool nan, u64 all) { return nan ? all : bits & sign ? ~bits & all : (bits | sign); }
template <> struct Rank<dt_bool> { DEVICE u64 of(bool x) { return x; } };
template <> struct Rank<dt_f32> {
    DEVICE u64 of(float x) { return rank_of(x == 0 ? 0 : bits_of(x), 0x80000000u, is_nan(x), 0xffffffffu); }
};
template <> struct Rank<dt_f16> { DEVICE u64 of(float x) { return Rank<dt_f32>::of(x); } };
template <> struct Rank<dt_bf16> { DEVICE u64 of(float x) { return Rank<dt_f32>::of(x); } };
template <> struct Rank<dt_f64> {
    DEVICE u64 of(double x) { return rank_of(x == 0 ? 0 : bits_of(x), 1ull << 63, is_nan(x), ~0ull); }
};

// The rank that is sorted by.
template <class D, bool DESCENDING>
DEVICE u64 rank_at(const char* from) {
    const u64 rank = Rank<D>::of(load_one<D>(from));
    return DESCENDING ? ~rank : rank;
}
// Sorts pairs of rank and place by a bitonic network. No two pairs are equal, so the order is unique. The line is
// padded with pairs that come last. It contains block barriers, after which all threads see the sorted pairs.
template <int SIZE>
DEVICE void sort_pairs(u64* ranks, int* places) {
    barrier();
    for (int size = 2; size <= SIZE; size *= 2) {
        for (int apart = size / 2; apart > 0; apart /= 2) {
            for (int pair = (int)thread_x(); pair < SIZE / 2; pair += THREADS) {
                const int low = pair / apart * apart * 2 + pair % apart, high = low + apart;
                const u64 a = ranks[low], b = ranks[high];
                const int at_a = places[low], at_b = places[high];
                const bool is_above = a != b ? a > b : at_a > at_b;
                if (is_above == ((low & size) == 0)) {
                    ranks[low] = b;
                    ranks[high] = a;
                    places[low] = at_b;
                    places[high] = at_a;
                }
            }
            barrier();
        }
    }
}

// A block sorts a line.
template <class D, bool DESCENDING, int SIZE, int DIMS, class W>
DEVICE void argsort(const W& w) {
    SHARED(u64, ranks, SIZE);
    SHARED(int, places, SIZE);
    Lines<2, DIMS> lines(w, block_x());
    const int n = (int)w.at[1];
    for (int i = (int)thread_x(); i < SIZE; i += THREADS) {
        ranks[i] = i < n ? rank_at<D, DESCENDING>(lines.at[0] + i * lines.step[0]) : ~0ull;
        places[i] = i < n ? i : 0x7fffffff;
    }
    sort_pairs<SIZE>(ranks, places);
    for (int i = (int)thread_x(); i < n; i += THREADS) store_one<dt_i64>(lines.at[1] + i * lines.step[1], places[i]);
}

// Longer lines: blocks sort runs of SIZE elements, then each pass merges pairs of runs. Between passes, the ranks of
// all lines are at one address and the places at another.
template <class D, bool DESCENDING, int SIZE, int DIMS, class W>
DEVICE void sort_runs(const W& w) {
    SHARED(u64, ranks, SIZE);
    SHARED(int, places, SIZE);
    const u64 line = block_x() / w.at[LINE], start = block_x() % w.at[LINE] * SIZE;
    const Lines<1, DIMS> lines(w, line);
    const int n = w.at[1] - start < SIZE ? (int)(w.at[1] - start) : SIZE;
    for (int i = (int)thread_x(); i < SIZE; i += THREADS) {
        ranks[i] = i < n ? rank_at<D, DESCENDING>(lines.at[0] + (i64)(start + i) * lines.step[0]) : ~0ull;
        places[i] = i < n ? (int)start + i : 0x7fffffff;
    }
    sort_pairs<SIZE>(ranks, places);
    const int behind = STEPS + 2 + 2 * DIMS;
    const u64 first = line * w.at[1] + start;
    for (int i = (int)thread_x(); i < n; i += THREADS) {
        ((u64*)w.at[behind])[first + i] = ranks[i];
        ((int*)w.at[behind + 1])[first + i] = places[i];
    }
}
// A thread has an element, and counts the elements of the other run that come before it. Runs have as many elements as
// the word LINE says; the last ones may have fewer.
template <bool IS_LAST, int DIMS, class W>
DEVICE void merge_runs(const W& w) {
    if (item() >= w.at[0]) return;
    const u64 n = w.at[1], width = w.at[LINE], line = item() / n, i = item() % n;
    const int behind = STEPS + 2 + 2 * DIMS;
    const u64* const ranks = (const u64*)w.at[behind] + line * n;
    const int place = ((const int*)w.at[behind + 1])[item()];
    const u64 first = i / (2 * width) * (2 * width), middle = first + width < n ? first + width : n;
    const u64 end = middle + width < n ? middle + width : n, rank = ranks[i];
    const bool is_left = i < middle;
    const u64 start = is_left ? middle : first;
    u64 low = start, high = is_left ? end : middle;
    while (low < high) {
        const u64 half = low + (high - low) / 2;
        // Of equal ones, those of the left run come first.
        if (is_left ? ranks[half] < rank : ranks[half] <= rank) {
            low = half + 1;
        } else {
            high = half;
        }
    }
    const u64 to = (is_left ? i : i - (middle - first)) + (low - start);
    if (IS_LAST) {
        const Lines<1, DIMS> lines(w, line);
        store_one<dt_i64>(lines.at[0] + (i64)to * lines.step[0], place);
    } else {
        ((u64*)w.at[behind + 2])[line * n + to] = rank;
        ((int*)w.at[behind + 3])[line * n + to] = place;
    }
}
