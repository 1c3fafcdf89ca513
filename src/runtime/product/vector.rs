//! Vector registers, for the kernels of products.
//!
//! There is one trait over element and width. Every operation is an instruction or two. It is inlined into a function
//! that was compiled for the instruction set (`tile`), which makes calling it sound. Operations on the first `n`
//! elements access only these, in memory too. If `n` is a whole vector, no mask is used: AMD's processors take a dozen
//! cycles for a masked store of AVX2.

#![allow(unsafe_code, reason = "SIMD primitives")]

/// An element of a product.
pub(super) trait Element: Copy + Sync + 'static {
    const ZERO: Self;
}
impl Element for f32 {
    const ZERO: f32 = 0.0;
}
impl Element for f64 {
    const ZERO: f64 = 0.0;
}

/// A register of some elements.
///
/// # Safety
/// For all methods: the processor has the instructions of the type's level, and the pointers are valid for the elements
/// of the method.
pub(super) trait Vector: Copy {
    type Element: Element;
    /// Which lanes are accessed.
    type Mask: Copy;
    /// Vectors that [`Vector::turn`] returns.
    type Columns: AsRef<[Self]>;
    const LANES: usize;
    /// Elements of a row that [`Vector::transpose`] moves.
    const DEPTH: usize;
    /// Elements of a row that [`Vector::turn`] takes.
    const TURNED: usize;
    /// Chains of a single row of a product that run beside each other. A step of a chain waits for the one before it,
    /// so one alone keeps up with the memory only where `turn` takes whole cache lines.
    const CHAINS: usize;
    /// Panels that packing writes at the same time. Where a core has large caches, all of a row is read at once.
    /// Processors with AVX2 alone mostly lack them, and many streams of stores would evict each other there.
    const BESIDE: usize;

    unsafe fn zero() -> Self;
    /// One element in every lane.
    unsafe fn splat(from: *const Self::Element) -> Self;
    unsafe fn load(from: *const Self::Element) -> Self;
    /// The first `n` elements, at most all, and zeros.
    unsafe fn load_first(from: *const Self::Element, n: usize) -> Self;
    /// The first `n` lanes, at most all.
    unsafe fn mask(n: usize) -> Self::Mask;
    /// The elements of a mask, and zeros.
    unsafe fn load_masked(from: *const Self::Element, mask: Self::Mask) -> Self;
    /// The first `n` of elements that are `stride` apart, at most all, and zeros.
    /// What lies between them may be read.
    unsafe fn load_every(from: *const Self::Element, stride: usize, n: usize) -> Self;
    unsafe fn store(self, to: *mut Self::Element);
    /// Stores the first `n` elements, at most all.
    unsafe fn store_first(self, to: *mut Self::Element, n: usize);
    /// Prefetches the cache line of an element that will be read soon. Any address is allowed.
    fn prefetch(at: *const Self::Element);
    /// `self * factor + sum`, rounded once.
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self;
    /// Whether one of two vectors has a NaN.
    unsafe fn has_nan(self, other: Self) -> bool;
    /// NaN without sign and payload.
    unsafe fn canonical(self) -> Self;
    /// Transposes `DEPTH` columns of `LANES` rows, which are `pitch` elements apart, to rows that are `step` elements
    /// apart.
    unsafe fn transpose(from: *const Self::Element, pitch: usize, to: *mut Self::Element, step: usize);
    /// `TURNED` columns of `LANES` rows, which are `pitch` elements apart.
    unsafe fn turn(from: *const Self::Element, pitch: usize) -> Self::Columns;
}

/// An array of elements, for processors without vectors that this module supports.
#[derive(Clone, Copy)]
pub(super) struct Plain<T>([T; 4]);

macro_rules! plain {
    ($($element:ident)*) => {$(
        impl Vector for Plain<$element> {
            type Element = $element;
            type Mask = usize;
            type Columns = [Self; 1];
            const LANES: usize = 4;
            const DEPTH: usize = 1;
            const TURNED: usize = 1;
            const CHAINS: usize = 2;
            const BESIDE: usize = 4;

            #[inline(always)]
            unsafe fn zero() -> Self {
                Plain([0.0; 4])
            }
            #[inline(always)]
            unsafe fn splat(from: *const $element) -> Self {
                // SAFETY: passed on from the caller.
                Plain([unsafe { *from }; 4])
            }
            #[inline(always)]
            unsafe fn load(from: *const $element) -> Self {
                // SAFETY: passed on from the caller.
                Plain(unsafe { from.cast::<[$element; 4]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn load_first(from: *const $element, n: usize) -> Self {
                let mut lanes = [0.0; 4];
                // SAFETY: passed on from the caller, for `n` elements.
                unsafe { from.copy_to_nonoverlapping(lanes.as_mut_ptr(), n.min(4)) };
                Plain(lanes)
            }
            #[inline(always)]
            unsafe fn mask(n: usize) -> usize {
                n
            }
            #[inline(always)]
            unsafe fn load_masked(from: *const $element, mask: usize) -> Self {
                // SAFETY: passed on from the caller.
                unsafe { Self::load_first(from, mask) }
            }
            #[inline(always)]
            unsafe fn load_every(from: *const $element, stride: usize, n: usize) -> Self {
                let mut lanes = [0.0; 4];
                for (lane, to) in lanes.iter_mut().enumerate().take(n) {
                    // SAFETY: passed on from the caller.
                    *to = unsafe { *from.wrapping_add(lane * stride) };
                }
                Plain(lanes)
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $element) {
                // SAFETY: passed on from the caller.
                unsafe { to.cast::<[$element; 4]>().write_unaligned(self.0) };
            }
            #[inline(always)]
            unsafe fn store_first(self, to: *mut $element, n: usize) {
                // SAFETY: passed on from the caller, for `n` elements.
                unsafe { to.copy_from_nonoverlapping(self.0.as_ptr(), n.min(4)) };
            }
            #[inline(always)]
            fn prefetch(_at: *const $element) {}
            #[inline(always)]
            unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
                Plain(std::array::from_fn(|lane| self.0[lane].mul_add(factor.0[lane], sum.0[lane])))
            }
            #[inline(always)]
            unsafe fn has_nan(self, other: Self) -> bool {
                self.0.iter().chain(&other.0).any(|x| x.is_nan())
            }
            #[inline(always)]
            unsafe fn canonical(self) -> Self {
                let canonical = |x: $element| if x.is_nan() { $element::NAN.abs() } else { x };
                Plain(self.0.map(canonical))
            }
            #[inline(always)]
            unsafe fn transpose(from: *const $element, pitch: usize, to: *mut $element, _step: usize) {
                for lane in 0..Self::LANES {
                    // SAFETY: passed on from the caller.
                    unsafe { *to.add(lane) = *from.add(lane * pitch) };
                }
            }
            #[inline(always)]
            unsafe fn turn(from: *const $element, pitch: usize) -> [Self; 1] {
                // SAFETY: passed on from the caller.
                [Plain(std::array::from_fn(|lane| unsafe { *from.add(lane * pitch) }))]
            }
        }
    )*};
}
plain!(f32 f64);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    /// A vector of the processor, in terms of its instructions.
    macro_rules! vector {
        ($vector:ident: $lanes:literal $element:ident, depth $depth:literal, turned $turned:literal,
            chains $chains:literal, beside $beside:literal;
            mask $mask_type:ident |$n:ident| $mask:expr;
            zero $zero:expr;
            splat |$number:ident| $splat:expr;
            load |$at:ident| $load:expr;
            load_masked |$from:ident, $some:ident| $load_masked:expr;
            store |$all:ident, $there:ident| $store:expr;
            store_masked |$value:ident, $to:ident, $these:ident| $store_masked:expr;
            mul_add |$a:ident, $b:ident, $c:ident| $mul_add:expr;
            has_nan |$one:ident, $other:ident| $has_nan:expr;
            canonical |$x:ident| $canonical:expr;
            halved |$even:ident, $next:ident| $halved:expr;
            columns $columns:ident, turn $turn:ident) => {
            impl Vector for $vector {
                type Element = $element;
                type Mask = $mask_type;
                type Columns = [Self; $turned];
                const LANES: usize = $lanes;
                const DEPTH: usize = $depth;
                const TURNED: usize = $turned;
                const CHAINS: usize = $chains;
                const BESIDE: usize = $beside;

                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY: passed on from the caller, here and below.
                    unsafe { $zero }
                }
                #[inline(always)]
                unsafe fn splat(from: *const $element) -> Self {
                    // SAFETY: see `zero`.
                    let $number = unsafe { *from };
                    // SAFETY: see `zero`.
                    unsafe { $splat }
                }
                #[inline(always)]
                unsafe fn load($at: *const $element) -> Self {
                    // SAFETY: see `zero`.
                    unsafe { $load }
                }
                #[inline(always)]
                unsafe fn load_first($from: *const $element, $n: usize) -> Self {
                    if $n >= $lanes {
                        // SAFETY: see `zero`.
                        return unsafe { Self::load($from) };
                    }
                    // SAFETY: see `zero`.
                    unsafe { Self::load_masked($from, Self::mask($n)) }
                }
                #[inline(always)]
                unsafe fn mask($n: usize) -> $mask_type {
                    // SAFETY: see `zero`.
                    unsafe { $mask }
                }
                #[inline(always)]
                unsafe fn load_masked($from: *const $element, $some: $mask_type) -> Self {
                    // SAFETY: see `zero`.
                    unsafe { $load_masked }
                }
                #[inline(always)]
                unsafe fn load_every(from: *const $element, stride: usize, n: usize) -> Self {
                    if stride == 2 {
                        // Up to the last of the elements, and no further.
                        let all = (2 * n).saturating_sub(1);
                        // SAFETY: see `zero`. What lies between the elements is in the same storage.
                        unsafe {
                            let $even = Self::load_first(from, all);
                            let $next = Self::load_first(from.wrapping_add($lanes), all.saturating_sub($lanes));
                            return $halved;
                        }
                    }
                    let mut lanes = [0.0; $lanes];
                    for (lane, to) in lanes.iter_mut().enumerate().take(n) {
                        // SAFETY: see `zero`.
                        *to = unsafe { *from.wrapping_add(lane * stride) };
                    }
                    // SAFETY: see `zero`.
                    unsafe { Self::load(lanes.as_ptr()) }
                }
                #[inline(always)]
                unsafe fn store(self, $there: *mut $element) {
                    let $all = self;
                    // SAFETY: see `zero`.
                    unsafe { $store }
                }
                #[inline(always)]
                unsafe fn store_first(self, $to: *mut $element, $n: usize) {
                    if $n >= $lanes {
                        // SAFETY: see `zero`.
                        return unsafe { self.store($to) };
                    }
                    let $value = self;
                    // SAFETY: see `zero`.
                    let $these = unsafe { $mask };
                    // SAFETY: see `zero`.
                    unsafe { $store_masked }
                }
                #[inline(always)]
                fn prefetch(at: *const $element) {
                    // SAFETY: every x86-64 has the instruction, and the address may be invalid.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
                }
                #[inline(always)]
                unsafe fn mul_add(self, $b: Self, $c: Self) -> Self {
                    let $a = self;
                    // SAFETY: see `zero`.
                    unsafe { $mul_add }
                }
                #[inline(always)]
                unsafe fn has_nan(self, $other: Self) -> bool {
                    let $one = self;
                    // SAFETY: see `zero`.
                    unsafe { $has_nan }
                }
                #[inline(always)]
                unsafe fn canonical(self) -> Self {
                    let $x = self;
                    // SAFETY: see `zero`.
                    unsafe { $canonical }
                }
                #[inline(always)]
                unsafe fn transpose(from: *const $element, pitch: usize, to: *mut $element, step: usize) {
                    // SAFETY: see `zero`.
                    unsafe {
                        let columns: [Self; $depth] = $columns(from, pitch);
                        for (nth, column) in columns.into_iter().enumerate() {
                            column.store(to.add(nth * step));
                        }
                    }
                }
                #[inline(always)]
                unsafe fn turn(from: *const $element, pitch: usize) -> [Self; $turned] {
                    // SAFETY: see `zero`.
                    unsafe { $turn(from, pitch) }
                }
            }
        };
    }

    // Loops, and no closures: the compiler does not inline instructions into functions without their level.

    /// The first four elements of 16 rows, which are `pitch` elements apart, as columns.
    ///
    /// # Safety
    /// The processor has AVX-512, and the elements may be read; the same below, for the level of the vectors.
    #[inline(always)]
    unsafe fn columns_of_16_f32(from: *const f32, pitch: usize) -> [__m512; 4] {
        // SAFETY: passed on from the caller, here and below.
        unsafe {
            let mut rows = [_mm512_setzero_ps(); 4];
            for (row, values) in rows.iter_mut().enumerate() {
                let (at, pitch) = (from.add(row * pitch), 4 * pitch);
                let all = _mm512_castps128_ps512(_mm_loadu_ps(at));
                let all = _mm512_insertf32x4::<1>(all, _mm_loadu_ps(at.add(pitch)));
                let all = _mm512_insertf32x4::<2>(all, _mm_loadu_ps(at.add(2 * pitch)));
                *values = _mm512_insertf32x4::<3>(all, _mm_loadu_ps(at.add(3 * pitch)));
            }
            quarters_of_f32(rows)
        }
    }

    /// In each quarter, the columns of four rows of four elements.
    #[inline(always)]
    unsafe fn quarters_of_f32(rows: [__m512; 4]) -> [__m512; 4] {
        // SAFETY: see above.
        unsafe {
            let (a, b) = (_mm512_unpacklo_ps(rows[0], rows[1]), _mm512_unpacklo_ps(rows[2], rows[3]));
            let (c, d) = (_mm512_unpackhi_ps(rows[0], rows[1]), _mm512_unpackhi_ps(rows[2], rows[3]));
            [
                _mm512_shuffle_ps::<0x44>(a, b),
                _mm512_shuffle_ps::<0xee>(a, b),
                _mm512_shuffle_ps::<0x44>(c, d),
                _mm512_shuffle_ps::<0xee>(c, d),
            ]
        }
    }

    /// The first 16 elements of 16 rows, as columns.
    #[inline(always)]
    unsafe fn square_of_f32(from: *const f32, pitch: usize) -> [__m512; 16] {
        // SAFETY: see above.
        unsafe {
            let mut quarters = [[_mm512_setzero_ps(); 4]; 4];
            for (nth, values) in quarters.iter_mut().enumerate() {
                let mut rows = [_mm512_setzero_ps(); 4];
                for (row, values) in rows.iter_mut().enumerate() {
                    *values = _mm512_loadu_ps(from.add((4 * nth + row) * pitch));
                }
                *values = quarters_of_f32(rows);
            }
            let [a, b, c, d] = quarters;
            let mut columns = [_mm512_setzero_ps(); 16];
            for nth in 0..4 {
                let (even, odd) =
                    (_mm512_shuffle_f32x4::<0x88>(a[nth], b[nth]), _mm512_shuffle_f32x4::<0xdd>(a[nth], b[nth]));
                let (more_even, more_odd) =
                    (_mm512_shuffle_f32x4::<0x88>(c[nth], d[nth]), _mm512_shuffle_f32x4::<0xdd>(c[nth], d[nth]));
                columns[nth] = _mm512_shuffle_f32x4::<0x88>(even, more_even);
                columns[4 + nth] = _mm512_shuffle_f32x4::<0x88>(odd, more_odd);
                columns[8 + nth] = _mm512_shuffle_f32x4::<0xdd>(even, more_even);
                columns[12 + nth] = _mm512_shuffle_f32x4::<0xdd>(odd, more_odd);
            }
            columns
        }
    }

    /// The first two elements of eight rows, as columns.
    #[inline(always)]
    unsafe fn columns_of_8_f64(from: *const f64, pitch: usize) -> [__m512d; 2] {
        // SAFETY: see above.
        unsafe {
            let mut rows = [_mm512_setzero_pd(); 2];
            for (row, values) in rows.iter_mut().enumerate() {
                let (at, pitch) = (from.add(row * pitch), 2 * pitch);
                let all = _mm512_castpd128_pd512(_mm_loadu_pd(at));
                let all = _mm512_insertf64x2::<1>(all, _mm_loadu_pd(at.add(pitch)));
                let all = _mm512_insertf64x2::<2>(all, _mm_loadu_pd(at.add(2 * pitch)));
                *values = _mm512_insertf64x2::<3>(all, _mm_loadu_pd(at.add(3 * pitch)));
            }
            [_mm512_unpacklo_pd(rows[0], rows[1]), _mm512_unpackhi_pd(rows[0], rows[1])]
        }
    }

    /// The first eight elements of eight rows, as columns.
    #[inline(always)]
    unsafe fn square_of_f64(from: *const f64, pitch: usize) -> [__m512d; 8] {
        // SAFETY: see above.
        unsafe {
            let mut pairs = [[_mm512_setzero_pd(); 2]; 4];
            for (nth, values) in pairs.iter_mut().enumerate() {
                let first = from.add(2 * nth * pitch);
                let (one, two) = (_mm512_loadu_pd(first), _mm512_loadu_pd(first.add(pitch)));
                *values = [_mm512_unpacklo_pd(one, two), _mm512_unpackhi_pd(one, two)];
            }
            let [a, b, c, d] = pairs;
            let mut columns = [_mm512_setzero_pd(); 8];
            for nth in 0..2 {
                let (even, odd) =
                    (_mm512_shuffle_f64x2::<0x88>(a[nth], b[nth]), _mm512_shuffle_f64x2::<0xdd>(a[nth], b[nth]));
                let (more_even, more_odd) =
                    (_mm512_shuffle_f64x2::<0x88>(c[nth], d[nth]), _mm512_shuffle_f64x2::<0xdd>(c[nth], d[nth]));
                columns[nth] = _mm512_shuffle_f64x2::<0x88>(even, more_even);
                columns[2 + nth] = _mm512_shuffle_f64x2::<0x88>(odd, more_odd);
                columns[4 + nth] = _mm512_shuffle_f64x2::<0xdd>(even, more_even);
                columns[6 + nth] = _mm512_shuffle_f64x2::<0xdd>(odd, more_odd);
            }
            columns
        }
    }

    /// The first four elements of eight rows, as columns.
    #[inline(always)]
    unsafe fn columns_of_8_f32(from: *const f32, pitch: usize) -> [__m256; 4] {
        // SAFETY: see above.
        unsafe {
            let mut rows = [_mm256_setzero_ps(); 4];
            for (row, values) in rows.iter_mut().enumerate() {
                let all = _mm256_castps128_ps256(_mm_loadu_ps(from.add(row * pitch)));
                *values = _mm256_insertf128_ps::<1>(all, _mm_loadu_ps(from.add((4 + row) * pitch)));
            }
            let (a, b) = (_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpacklo_ps(rows[2], rows[3]));
            let (c, d) = (_mm256_unpackhi_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[2], rows[3]));
            [
                _mm256_shuffle_ps::<0x44>(a, b),
                _mm256_shuffle_ps::<0xee>(a, b),
                _mm256_shuffle_ps::<0x44>(c, d),
                _mm256_shuffle_ps::<0xee>(c, d),
            ]
        }
    }

    /// The first two elements of four rows, as columns.
    #[inline(always)]
    unsafe fn columns_of_4_f64(from: *const f64, pitch: usize) -> [__m256d; 2] {
        // SAFETY: see above.
        unsafe {
            let mut rows = [_mm256_setzero_pd(); 2];
            for (row, values) in rows.iter_mut().enumerate() {
                let all = _mm256_castpd128_pd256(_mm_loadu_pd(from.add(row * pitch)));
                *values = _mm256_insertf128_pd::<1>(all, _mm_loadu_pd(from.add((2 + row) * pitch)));
            }
            [_mm256_unpacklo_pd(rows[0], rows[1]), _mm256_unpackhi_pd(rows[0], rows[1])]
        }
    }

    vector! {
        __m512: 16 f32, depth 4, turned 16, chains 1, beside 64;
        mask __mmask16 |n| _cvtu32_mask16((1 << n) - 1);
        zero _mm512_setzero_ps();
        splat |x| _mm512_set1_ps(x);
        load |at| _mm512_loadu_ps(at);
        load_masked |at, mask| _mm512_maskz_loadu_ps(mask, at);
        store |x, to| _mm512_storeu_ps(to, x);
        store_masked |x, to, mask| _mm512_mask_storeu_ps(to, mask, x);
        mul_add |a, b, c| _mm512_fmadd_ps(a, b, c);
        has_nan |x, y| _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, y) != 0;
        canonical |x| _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x), _mm512_set1_ps(f32::NAN.abs()));
        halved |a, b| {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            _mm512_permutex2var_ps(a, even, b)
        };
        columns columns_of_16_f32, turn square_of_f32
    }

    vector! {
        __m512d: 8 f64, depth 2, turned 8, chains 1, beside 64;
        mask __mmask8 |n| _cvtu32_mask8((1 << n) - 1);
        zero _mm512_setzero_pd();
        splat |x| _mm512_set1_pd(x);
        load |at| _mm512_loadu_pd(at);
        load_masked |at, mask| _mm512_maskz_loadu_pd(mask, at);
        store |x, to| _mm512_storeu_pd(to, x);
        store_masked |x, to, mask| _mm512_mask_storeu_pd(to, mask, x);
        mul_add |a, b, c| _mm512_fmadd_pd(a, b, c);
        has_nan |x, y| _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(x, y) != 0;
        canonical |x| _mm512_mask_mov_pd(x, _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(x, x), _mm512_set1_pd(f64::NAN.abs()));
        halved |a, b| _mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), b);
        columns columns_of_8_f64, turn square_of_f64
    }

    vector! {
        __m256: 8 f32, depth 4, turned 4, chains 2, beside 4;
        mask __m256i |n| _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        zero _mm256_setzero_ps();
        splat |x| _mm256_set1_ps(x);
        load |at| _mm256_loadu_ps(at);
        load_masked |at, mask| _mm256_maskload_ps(at, mask);
        store |x, to| _mm256_storeu_ps(to, x);
        store_masked |x, to, mask| _mm256_maskstore_ps(to, mask, x);
        mul_add |a, b, c| _mm256_fmadd_ps(a, b, c);
        has_nan |x, y| _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, y)) != 0;
        canonical |x| _mm256_blendv_ps(x, _mm256_set1_ps(f32::NAN.abs()), _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
        halved |a, b| {
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(a, b));
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(even))
        };
        columns columns_of_8_f32, turn columns_of_8_f32
    }

    vector! {
        __m256d: 4 f64, depth 2, turned 2, chains 2, beside 4;
        mask __m256i |n| _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3));
        zero _mm256_setzero_pd();
        splat |x| _mm256_set1_pd(x);
        load |at| _mm256_loadu_pd(at);
        load_masked |at, mask| _mm256_maskload_pd(at, mask);
        store |x, to| _mm256_storeu_pd(to, x);
        store_masked |x, to, mask| _mm256_maskstore_pd(to, mask, x);
        mul_add |a, b, c| _mm256_fmadd_pd(a, b, c);
        has_nan |x, y| _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_UNORD_Q>(x, y)) != 0;
        canonical |x| _mm256_blendv_pd(x, _mm256_set1_pd(f64::NAN.abs()), _mm256_cmp_pd::<_CMP_UNORD_Q>(x, x));
        halved |a, b| _mm256_permute4x64_pd::<0xd8>(_mm256_unpacklo_pd(a, b));
        columns columns_of_4_f64, turn columns_of_4_f64
    }
}
