//! Graphs that were once compiled wrong, shrunk as far as possible.

/// The mistake, and the graph.
pub(crate) const ONCE_WRONG: &[(&str, &str)] = &[
    (
        "a cast to a narrower dtype of the same computation type was not rounded inside a kernel",
        "n0 = input: f32[9]
         n1 = _to_copy(n0; f16): f16[9]
         n2 = silu(n1): f16[9]
         n3 = input: i32[9]
         n4 = _to_copy(n3; i8): i8[9]
         n5 = mul(n4, n4): i8[9]
         n6 = gt(n4, n3): bool[9]
         return n2, n5, n6",
    ),
    (
        "a concatenation did not convert its operands",
        "n0 = input: bool[5]
         n1 = input: f32[5]
         n2 = cat(n1, n0, n1; 0): f32[15]
         return n2",
    ),
    ("a range that is stored walked memory in units", "n0 = arange(; 0, -7, -1, none): i64[7]\n return n0"),
    (
        "a range that is read from memory was taken for a position",
        "n0 = arange(; -3, 0, 1, i16): i16[3]
         n1 = cat(n0, n0; 0): i16[6]
         n2 = arange(; 0.5, 3.5, 1.0, f32): f32[3]
         n3 = arange(; 0, 3, 1, none): i64[3]
         n4 = index_select(n2, n3; 0): f32[3]
         return n1, n4",
    ),
    (
        "a group that lost a view in its middle waited for itself",
        "n0 = input: f16[31,1]
         n1 = log1p(n0): f16[31,1]
         n2 = unsqueeze(n1; 2): f16[31,1,1]
         n3 = _to_copy(n2; i64): i64[31,1,1]
         n4 = clamp(n3; 0, 0): i64[31,1,1]
         n5 = gather(n2, n4; 2, false): f16[31,1,1]
         return n5",
    ),
    (
        "an edge over a view had no reason",
        "n0 = input: f32[9,7:44,3]
         n1 = log1p(n0): f32[9,7]
         n2 = expand(n1; [1, 9, 7], false): f32[1,9,7:0,7,1]
         n3 = squeeze(n2; [0]): f32[9,7]
         n4 = tan(n2): f32[1,9,7]
         return n4, n3",
    ),
    (
        "a composite op had other strides than it promised where a size is 1",
        "n0 = input: f16[33,1,1,1:1,1,33,33]
         n1 = triu(n0; 0): f16[33,1,1,1]
         return n1",
    ),
    ("a sum in bool did not type", "n0 = input: i32[2,3]\n n1 = sum(n0; [1], false, bool): bool[2]\n return n1"),
    (
        "a kernel with an early and a late result hid a path between two others, which then waited for each other",
        "n0 = input: f32[6,60]
         n1 = input: f32[6,6]
         n2 = input: f32[6,60]
         n3 = exp(n0): f32[6,60]
         n4 = sin(n1): f32[6,6]
         n5 = arange(; 0, 6, 1, none): i64[6]
         n6 = index_select(n3, n5; 1): f32[6,6]
         n7 = mul(n6, n4): f32[6,6]
         n8 = mm(n4, n2): f32[6,60]
         n9 = add(n8, n3; 1): f32[6,60]
         return n7, n9",
    ),
    (
        "an operand at indices that no instruction read had short rows to copy",
        "n0 = input: f32[7,7,1,4:56,8,4,1]
         n1 = input: i64[7,7,1,2]
         n2 = clamp(n1; 0, 3): i64[7,7,1,2]
         n3 = gather(n0, n2; 3, false): f32[7,7,1,2]
         n4 = fill_scalar(n3; 0): f32[7,7,1,2]
         return n4",
    ),
];
