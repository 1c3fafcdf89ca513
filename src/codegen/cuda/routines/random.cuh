// Philox4x32-10, as in `ir::philox`: a thread computes the four words of a counter. Word 1 is the number of words. The
// key is in the word LINE and the next one, or in memory at LINE, with the halves at a stride.
template <bool IN_WORDS, class W>
DEVICE void random_words(const W& w) {
    const u64 number = item(), n = w.at[1];
    if (number >= w.at[0]) return;
    const u64 seed = IN_WORDS ? w.at[LINE] : *(const u64*)w.at[LINE];
    const u64 counter = (IN_WORDS ? w.at[LINE + 1] : *(const u64*)(w.at[LINE] + w.at[LINE + 1])) + number;
    u32 a = (u32)counter, b = (u32)(counter >> 32), c = 0, d = 0, left = (u32)seed, right = (u32)(seed >> 32);
    UNROLL for (int round = 0; round < 10; round++) {
        const u64 first = (u64)0xd2511f53u * a, second = (u64)0xcd9e8d57u * c;
        a = (u32)(second >> 32) ^ b ^ left;
        b = (u32)second;
        c = (u32)(first >> 32) ^ d ^ right;
        d = (u32)first;
        left += 0x9e3779b9u;
        right += 0xbb67ae85u;
    }
    u32* const to = (u32*)w.at[LINE + 2] + 4 * number;
    const u64 behind = n - 4 * number;
    to[0] = a;
    if (behind > 1) to[1] = b;
    if (behind > 2) to[2] = c;
    if (behind > 3) to[3] = d;
}
