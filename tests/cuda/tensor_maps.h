// Tensor maps, by which kernels on the emulator copy boxes; a part of `libcuda.cpp`.
//
// The arguments must be those that the driver's documentation allows. The array must also lie in allocated memory,
// which a real driver does not check.
static const char* wrong_call(
    const void* map, int dtype, unsigned rank, const unsigned* steps, int interleave, int permuted, int outside
) {
    if ((uintptr_t)map % 64) return "a map lies at an address that is not aligned";
    if (dtype != 6 && dtype != 9) return "elements are neither f16 nor bf16";
    if (rank != 3 || interleave != 0 || permuted != 3 || outside != 0) return "a kind of map that the emulator has not";
    for (unsigned dim = 0; dim < rank; dim++) {
        if (steps[dim] != 1) return "a box leaves elements out";
    }
    return 0;
}
API cuTensorMapEncodeTiled(
    void* to, int dtype, unsigned rank, void* address, const unsigned long long* sizes, const unsigned long long* strides,
    const unsigned* tile, const unsigned* steps, int interleave, int permuted, int, int outside
) {
    Locked locked(everything);
    if (is_refused("map")) return INVALID_VALUE;
    const char* wrong = wrong_call(to, dtype, rank, steps, interleave, permuted, outside);
    EmulatedMap map = {MAP_MAGIC, (char*)address};
    if (!wrong) {
        memcpy(map.sizes, sizes, sizeof map.sizes);
        memcpy(map.strides, strides, sizeof map.strides);
        memcpy(map.tile, tile, sizeof map.tile);
        map.element_bytes = 2;
        wrong = wrong_map(map);
    }
    if (!wrong) {
        size_t bytes = map.sizes[0] * map.element_bytes;
        for (int dim = 0; dim < 2; dim++) bytes += (map.sizes[dim + 1] - 1) * map.strides[dim];
        if (!is_inside(memory, (Address)address, bytes)) wrong = "it is of what is no memory";
    }
    if (wrong) {
        fprintf(stderr, "fake of the CUDA driver: no map: %s\n", wrong);
        return INVALID_VALUE;
    }
    memset(to, 0, 128);
    memcpy(to, &map, sizeof map);
    return SUCCESS;
}
