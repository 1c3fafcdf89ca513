//! The vector and mask instructions of this tier, one per row.
//!
//! A row has what the encoder needs: encoding space, opcode map, prefix, the bit `W`, the opcode, which field an
//! operand goes to, and how much memory the instruction accesses. Opcode maps are 1 (`0F`), 2 (`0F38`) and 3 (`0F3A`);
//! prefixes are 0 (none), 1 (`66`), 2 (`F3`) and 3 (`F2`). Two rows that differ in the type alone are a pair: 32-bit
//! lanes, 64-bit lanes. Most AVX-512 instructions are AVX2 instructions with another prefix; a row says so, with the
//! other differences.

use super::level::Level;

/// The prefix of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// EVEX: vectors of AVX-512.
    Evex,
    /// VEX, whose bit `L` is the width: vectors of AVX2.
    Vex,
    /// VEX with this bit `L`: instructions on mask registers and general registers.
    Fixed(bool),
}

/// The mnemonic and the bit `W` of an AVX-512 instruction in AVX2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Older {
    name: &'static str,
    wide: bool,
}

/// The form of an instruction at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstructionForm {
    /// The mnemonic.
    pub name: &'static str,
    /// The prefix.
    pub space: Space,
    /// The bit `W`.
    pub wide: bool,
}

/// The fields of the result and the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `reg = vvvv op rm`.
    Rvm,
    /// `reg = op rm`.
    Rm,
    /// `rm = op reg`.
    Mr,
    /// `reg = vvvv op rm`, with one more register in the upper half of the immediate.
    Rvmr,
    /// `rm = reg` in the lanes of the mask `vvvv`.
    Mvr,
    /// `reg = rm` in the lanes of the mask `vvvv`, which is clobbered.
    Rmv,
    /// `vvvv = op rm`, and a digit in `reg`.
    Vm(u8),
}

/// The memory that an instruction accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuple {
    /// Unspecified: displacements are not compressed.
    None,
    /// A whole vector, or one element that is broadcast.
    Full,
    /// A whole vector.
    Whole,
    /// Half a vector.
    Half,
    /// A quarter.
    Quarter,
    /// One element at a time.
    Element,
}

/// One instruction: a row of the table below. Rows are compared by address.
#[derive(Debug)]
pub struct Opcode {
    /// The mnemonic.
    pub name: &'static str,
    /// The prefix.
    pub space: Space,
    /// The opcode map.
    pub map: u8,
    /// The legacy prefix in the encoding.
    pub prefix: u8,
    /// The bit `W`, and whether lanes have 64 bits.
    pub wide: bool,
    /// The AVX2 form of an AVX-512 instruction.
    pub older: Option<Older>,
    /// The opcode.
    pub code: u8,
    /// The fields of its operands.
    pub encoding: Encoding,
    /// The memory it accesses.
    pub tuple: Tuple,
}

impl PartialEq for Opcode {
    fn eq(&self, other: &Opcode) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Opcode {}

impl Opcode {
    /// Its form at a level, if it has one. AVX2 forms of AVX-512 code are left out, because they reach half of the
    /// registers.
    pub const fn form(&self, level: Level) -> Option<InstructionForm> {
        match (self.space, level, self.older) {
            (Space::Evex, Level::Avx2, Some(Older { name, wide })) => {
                Some(InstructionForm { name, space: Space::Vex, wide })
            }
            (Space::Evex, Level::Avx2, None) | (Space::Vex, Level::Avx512, _) => None,
            (space, _, _) => Some(InstructionForm { name: self.name, space, wide: self.wide }),
        }
    }

    /// Whether it reads the general register with a computed address.
    pub fn is_from_gpr(&self) -> bool {
        *self == BROADCAST_GPR || *self == MOVE_GPR
    }

    const fn older(self, name: &'static str, wide: u8) -> Opcode {
        Opcode { older: Some(Older { name, wide: wide == 1 }), ..self }
    }

    /// Latency in cycles and reciprocal throughput in half cycles, roughly, for processors with two vector ports; from
    /// Intel's optimization manual.
    pub fn timing(&self) -> (usize, usize) {
        let one_of = |pairs: &[&Pair]| pairs.iter().any(|pair| pair.contains(self));
        if one_of(&[&DIV_F, &SQRT]) {
            return if self.wide { (24, 36) } else { (18, 22) };
        }
        if one_of(&[&GATHER, &SCATTER, &GATHER_SOME]) {
            return (26, 20);
        }
        if one_of(&[&LOAD, &STORE, &STREAM]) {
            return (7, 1);
        }
        let quick =
            [&AND, &OR, &XOR, &ADD_I, &SUB_I, &MIN_I, &MAX_I, &BLEND, &MOVE, &SHL_IMM, &SHR_IMM, &SAR_IMM, &EQ_I];
        if one_of(&quick) { (1, 1) } else { (4, 1) }
    }
}

/// The same instruction for 32-bit and for 64-bit lanes.
pub type Pair = [Opcode; 2];

const fn row(name: &'static str, map: u8, prefix: u8, wide: u8, code: u8, encoding: Encoding, tuple: Tuple) -> Opcode {
    Opcode { name, space: Space::Evex, map, prefix, wide: wide == 1, older: None, code, encoding, tuple }
}

/// An instruction with the same name in AVX2, where `W` is ignored or 0.
const fn both(name: &'static str, map: u8, prefix: u8, wide: u8, code: u8, encoding: Encoding, tuple: Tuple) -> Opcode {
    row(name, map, prefix, wide, code, encoding, tuple).older(name, 0)
}

/// An instruction with the same name and `W` in AVX2.
const fn same(name: &'static str, map: u8, prefix: u8, wide: u8, code: u8, encoding: Encoding, tuple: Tuple) -> Opcode {
    row(name, map, prefix, wide, code, encoding, tuple).older(name, wide)
}

/// An instruction of AVX2 alone.
const fn avx2(name: &'static str, map: u8, prefix: u8, wide: u8, code: u8, encoding: Encoding, tuple: Tuple) -> Opcode {
    Opcode { space: Space::Vex, ..row(name, map, prefix, wide, code, encoding, tuple) }
}

const fn mask(name: &'static str, long: bool, map: u8, prefix: u8, wide: u8, code: u8, encoding: Encoding) -> Opcode {
    let row = row(name, map, prefix, wide, code, encoding, Tuple::None);
    Opcode { space: Space::Fixed(long), ..row }
}

use Encoding::{Mr, Mvr, Rm, Rmv, Rvm, Rvmr, Vm};
use Tuple::{Element, Full, Half, Quarter, Whole};

macro_rules! opcodes {
    ($($name:ident: $ty:ty = $value:expr;)*) => {
        $(#[doc = concat!("`", stringify!($name), "`")] pub static $name: $ty = $value;)*
        /// Every row, for tests.
        pub fn all() -> Vec<&'static Opcode> {
            let mut all: Vec<&'static Opcode> = Vec::new();
            $(all.extend(Rows::rows(&$name));)*
            all
        }
    };
}

trait Rows {
    fn rows(&self) -> &[Opcode];
}
impl Rows for Opcode {
    fn rows(&self) -> &[Opcode] {
        std::slice::from_ref(self)
    }
}
impl Rows for Pair {
    fn rows(&self) -> &[Opcode] {
        self
    }
}

opcodes! {
    // Arithmetic of floats.
    ADD_F: Pair = [both("vaddps", 1, 0, 0, 0x58, Rvm, Full), both("vaddpd", 1, 1, 1, 0x58, Rvm, Full)];
    SUB_F: Pair = [both("vsubps", 1, 0, 0, 0x5c, Rvm, Full), both("vsubpd", 1, 1, 1, 0x5c, Rvm, Full)];
    MUL_F: Pair = [both("vmulps", 1, 0, 0, 0x59, Rvm, Full), both("vmulpd", 1, 1, 1, 0x59, Rvm, Full)];
    DIV_F: Pair = [both("vdivps", 1, 0, 0, 0x5e, Rvm, Full), both("vdivpd", 1, 1, 1, 0x5e, Rvm, Full)];
    MIN_F: Pair = [both("vminps", 1, 0, 0, 0x5d, Rvm, Full), both("vminpd", 1, 1, 1, 0x5d, Rvm, Full)];
    MAX_F: Pair = [both("vmaxps", 1, 0, 0, 0x5f, Rvm, Full), both("vmaxpd", 1, 1, 1, 0x5f, Rvm, Full)];
    NEAR_INVERSE: Opcode = row("vrcp14ps", 2, 1, 0, 0x4c, Rm, Full);
    SQRT: Pair = [both("vsqrtps", 1, 0, 0, 0x51, Rm, Full), both("vsqrtpd", 1, 1, 1, 0x51, Rm, Full)];
    ROUND: Pair = [row("vrndscaleps", 3, 1, 0, 0x08, Rm, Full).older("vroundps", 0), row("vrndscalepd", 3, 1, 1, 0x09, Rm, Full).older("vroundpd", 0)];
    SCALE: Pair = [row("vscalefps", 2, 1, 0, 0x2c, Rvm, Full), row("vscalefpd", 2, 1, 1, 0x2c, Rvm, Full)];
    CMP_F: Pair = [both("vcmpps", 1, 0, 0, 0xc2, Rvm, Full), both("vcmppd", 1, 1, 1, 0xc2, Rvm, Full)];
    // `reg` is an operand as well: `vvvv * rm + reg`, `vvvv * reg + rm`, `reg * rm + vvvv`.
    FMADD_231: Pair = [same("vfmadd231ps", 2, 1, 0, 0xb8, Rvm, Full), same("vfmadd231pd", 2, 1, 1, 0xb8, Rvm, Full)];
    FMADD_213: Pair = [same("vfmadd213ps", 2, 1, 0, 0xa8, Rvm, Full), same("vfmadd213pd", 2, 1, 1, 0xa8, Rvm, Full)];
    FMADD_132: Pair = [same("vfmadd132ps", 2, 1, 0, 0x98, Rvm, Full), same("vfmadd132pd", 2, 1, 1, 0x98, Rvm, Full)];
    FNMADD_231: Pair = [same("vfnmadd231ps", 2, 1, 0, 0xbc, Rvm, Full), same("vfnmadd231pd", 2, 1, 1, 0xbc, Rvm, Full)];
    FNMADD_213: Pair = [same("vfnmadd213ps", 2, 1, 0, 0xac, Rvm, Full), same("vfnmadd213pd", 2, 1, 1, 0xac, Rvm, Full)];
    FNMADD_132: Pair = [same("vfnmadd132ps", 2, 1, 0, 0x9c, Rvm, Full), same("vfnmadd132pd", 2, 1, 1, 0x9c, Rvm, Full)];
    FMSUB_231: Pair = [same("vfmsub231ps", 2, 1, 0, 0xba, Rvm, Full), same("vfmsub231pd", 2, 1, 1, 0xba, Rvm, Full)];
    FMSUB_213: Pair = [same("vfmsub213ps", 2, 1, 0, 0xaa, Rvm, Full), same("vfmsub213pd", 2, 1, 1, 0xaa, Rvm, Full)];
    FMSUB_132: Pair = [same("vfmsub132ps", 2, 1, 0, 0x9a, Rvm, Full), same("vfmsub132pd", 2, 1, 1, 0x9a, Rvm, Full)];
    FNMSUB_231: Pair = [same("vfnmsub231ps", 2, 1, 0, 0xbe, Rvm, Full), same("vfnmsub231pd", 2, 1, 1, 0xbe, Rvm, Full)];
    FNMSUB_213: Pair = [same("vfnmsub213ps", 2, 1, 0, 0xae, Rvm, Full), same("vfnmsub213pd", 2, 1, 1, 0xae, Rvm, Full)];
    FNMSUB_132: Pair = [same("vfnmsub132ps", 2, 1, 0, 0x9e, Rvm, Full), same("vfnmsub132pd", 2, 1, 1, 0x9e, Rvm, Full)];
    // Arithmetic of integers.
    ADD_I: Pair = [both("vpaddd", 1, 1, 0, 0xfe, Rvm, Full), both("vpaddq", 1, 1, 1, 0xd4, Rvm, Full)];
    SUB_I: Pair = [both("vpsubd", 1, 1, 0, 0xfa, Rvm, Full), both("vpsubq", 1, 1, 1, 0xfb, Rvm, Full)];
    MUL_I: Pair = [both("vpmulld", 2, 1, 0, 0x40, Rvm, Full), row("vpmullq", 2, 1, 1, 0x40, Rvm, Full)];
    MIN_I: Pair = [both("vpminsd", 2, 1, 0, 0x39, Rvm, Full), row("vpminsq", 2, 1, 1, 0x39, Rvm, Full)];
    MAX_I: Pair = [both("vpmaxsd", 2, 1, 0, 0x3d, Rvm, Full), row("vpmaxsq", 2, 1, 1, 0x3d, Rvm, Full)];
    ABS_I: Pair = [both("vpabsd", 2, 1, 0, 0x1e, Rm, Full), row("vpabsq", 2, 1, 1, 0x1f, Rm, Full)];
    CMP_I: Pair = [row("vpcmpd", 3, 1, 0, 0x1f, Rvm, Full), row("vpcmpq", 3, 1, 1, 0x1f, Rvm, Full)];
    // Bits.
    AND: Pair = [row("vpandd", 1, 1, 0, 0xdb, Rvm, Full).older("vpand", 0), row("vpandq", 1, 1, 1, 0xdb, Rvm, Full).older("vpand", 0)];
    OR: Pair = [row("vpord", 1, 1, 0, 0xeb, Rvm, Full).older("vpor", 0), row("vporq", 1, 1, 1, 0xeb, Rvm, Full).older("vpor", 0)];
    XOR: Pair = [row("vpxord", 1, 1, 0, 0xef, Rvm, Full).older("vpxor", 0), row("vpxorq", 1, 1, 1, 0xef, Rvm, Full).older("vpxor", 0)];
    SHL_IMM: Pair = [both("vpslld", 1, 1, 0, 0x72, Vm(6), Full), both("vpsllq", 1, 1, 1, 0x73, Vm(6), Full)];
    SHR_IMM: Pair = [both("vpsrld", 1, 1, 0, 0x72, Vm(2), Full), both("vpsrlq", 1, 1, 1, 0x73, Vm(2), Full)];
    SAR_IMM: Pair = [both("vpsrad", 1, 1, 0, 0x72, Vm(4), Full), row("vpsraq", 1, 1, 1, 0x72, Vm(4), Full)];
    SHL: Pair = [same("vpsllvd", 2, 1, 0, 0x47, Rvm, Full), same("vpsllvq", 2, 1, 1, 0x47, Rvm, Full)];
    SHR: Pair = [same("vpsrlvd", 2, 1, 0, 0x45, Rvm, Full), same("vpsrlvq", 2, 1, 1, 0x45, Rvm, Full)];
    SAR: Pair = [both("vpsravd", 2, 1, 0, 0x46, Rvm, Full), row("vpsravq", 2, 1, 1, 0x46, Rvm, Full)];
    TEST: Pair = [row("vptestmd", 2, 1, 0, 0x27, Rvm, Full), row("vptestmq", 2, 1, 1, 0x27, Rvm, Full)];
    TEST_BYTES: Opcode = row("vptestmb", 2, 1, 0, 0x26, Rvm, Whole);
    // Moves.
    BLEND: Pair = [row("vpblendmd", 2, 1, 0, 0x64, Rvm, Full), row("vpblendmq", 2, 1, 1, 0x64, Rvm, Full)];
    MOVE: Pair = [row("vmovdqa32", 1, 1, 0, 0x6f, Rm, Whole).older("vmovdqa", 0), row("vmovdqa64", 1, 1, 1, 0x6f, Rm, Whole).older("vmovdqa", 0)];
    LOAD: Pair = [both("vmovups", 1, 0, 0, 0x10, Rm, Whole), both("vmovupd", 1, 1, 1, 0x10, Rm, Whole)];
    STORE: Pair = [both("vmovups", 1, 0, 0, 0x11, Mr, Whole), both("vmovupd", 1, 1, 1, 0x11, Mr, Whole)];
    STREAM: Pair = [both("vmovntps", 1, 0, 0, 0x2b, Mr, Whole), both("vmovntpd", 1, 1, 1, 0x2b, Mr, Whole)];
    BROADCAST: Pair = [both("vpbroadcastd", 2, 1, 0, 0x58, Rm, Element), both("vpbroadcastq", 2, 1, 1, 0x59, Rm, Element)];
    BROADCAST_GPR: Opcode = row("vpbroadcastq", 2, 1, 1, 0x7c, Rm, Tuple::None);
    GATHER: Pair = [row("vgatherqps", 2, 1, 0, 0x93, Rm, Element), row("vgatherqpd", 2, 1, 1, 0x93, Rm, Element)];
    SCATTER: Pair = [row("vscatterqps", 2, 1, 0, 0xa3, Mr, Element), row("vscatterqpd", 2, 1, 1, 0xa3, Mr, Element)];
    EXTRACT_Y: Opcode = row("vextracti64x4", 3, 1, 1, 0x3b, Mr, Half);
    INSERT_Y: Opcode = row("vinserti64x4", 3, 1, 1, 0x3a, Rvm, Half);
    SHUFFLE_X: Opcode = row("vshufi64x2", 3, 1, 1, 0x43, Rvm, Full);
    SHUFFLE: Opcode = both("vpshufd", 1, 1, 0, 0x70, Rm, Full);
    MASK_TO_LANES: Opcode = row("vpmovm2d", 2, 2, 0, 0x38, Rm, Tuple::None);
    LANES_TO_MASK: Opcode = row("vpmovd2m", 2, 2, 0, 0x39, Rm, Tuple::None);
    // Narrow elements, and conversions.
    LOAD_U8: Opcode = both("vpmovzxbd", 2, 1, 0, 0x31, Rm, Quarter);
    LOAD_I8: Opcode = both("vpmovsxbd", 2, 1, 0, 0x21, Rm, Quarter);
    LOAD_U16: Opcode = both("vpmovzxwd", 2, 1, 0, 0x33, Rm, Half);
    LOAD_I16: Opcode = both("vpmovsxwd", 2, 1, 0, 0x23, Rm, Half);
    LOAD_BYTES: Opcode = row("vmovdqu8", 1, 3, 0, 0x6f, Rm, Whole);
    STORE_BYTES: Opcode = row("vmovdqu8", 1, 3, 0, 0x7f, Mr, Whole);
    STORE_8: Opcode = row("vpmovdb", 2, 2, 0, 0x31, Mr, Quarter);
    STORE_16: Opcode = row("vpmovdw", 2, 2, 0, 0x33, Mr, Half);
    I64_TO_I32: Opcode = row("vpmovqd", 2, 2, 0, 0x35, Mr, Half);
    I32_TO_I64: Opcode = both("vpmovsxdq", 2, 1, 0, 0x25, Rm, Half);
    F16_TO_F32: Opcode = both("vcvtph2ps", 2, 1, 0, 0x13, Rm, Half);
    F32_TO_F16: Opcode = both("vcvtps2ph", 3, 1, 0, 0x1d, Mr, Half);
    I32_TO_F32: Opcode = both("vcvtdq2ps", 1, 0, 0, 0x5b, Rm, Full);
    I32_TO_F64: Opcode = both("vcvtdq2pd", 1, 2, 0, 0xe6, Rm, Half);
    I64_TO_F32: Opcode = row("vcvtqq2ps", 1, 0, 1, 0x5b, Rm, Full);
    I64_TO_F64: Opcode = row("vcvtqq2pd", 1, 2, 1, 0xe6, Rm, Full);
    F32_TO_I32: Opcode = both("vcvttps2dq", 1, 2, 0, 0x5b, Rm, Full);
    F32_TO_I64: Opcode = row("vcvttps2qq", 1, 1, 0, 0x7a, Rm, Half);
    F64_TO_I32: Opcode = both("vcvttpd2dq", 1, 1, 1, 0xe6, Rm, Full);
    F64_TO_I64: Opcode = row("vcvttpd2qq", 1, 1, 1, 0x7a, Rm, Full);
    F32_TO_F64: Opcode = both("vcvtps2pd", 1, 0, 0, 0x5a, Rm, Half);
    F64_TO_F32: Opcode = both("vcvtpd2ps", 1, 1, 1, 0x5a, Rm, Full);
    // AVX2 forms of what AVX-512 does in another way.
    EQ_I: Pair = [avx2("vpcmpeqd", 1, 1, 0, 0x76, Rvm, Full), avx2("vpcmpeqq", 2, 1, 1, 0x29, Rvm, Full)];
    GT_I: Pair = [avx2("vpcmpgtd", 1, 1, 0, 0x66, Rvm, Full), avx2("vpcmpgtq", 2, 1, 1, 0x37, Rvm, Full)];
    PICK: Opcode = avx2("vblendvps", 3, 1, 0, 0x4a, Rvmr, Full);
    MUL_LOW: Opcode = avx2("vpmuludq", 1, 1, 1, 0xf4, Rvm, Full);
    LOAD_SOME: Pair = [avx2("vpmaskmovd", 2, 1, 0, 0x8c, Rvm, Whole), avx2("vpmaskmovq", 2, 1, 1, 0x8c, Rvm, Whole)];
    STORE_SOME: Pair = [avx2("vpmaskmovd", 2, 1, 0, 0x8e, Mvr, Whole), avx2("vpmaskmovq", 2, 1, 1, 0x8e, Mvr, Whole)];
    GATHER_SOME: Pair = [
        avx2("vgatherqps", 2, 1, 0, 0x93, Rmv, Element),
        avx2("vgatherqpd", 2, 1, 1, 0x93, Rmv, Element),
    ];
    EXTRACT_X: Opcode = avx2("vextracti128", 3, 1, 0, 0x39, Mr, Half);
    INSERT_X: Opcode = avx2("vinserti128", 3, 1, 0, 0x38, Rvm, Half);
    PERMUTE: Opcode = avx2("vpermq", 3, 1, 1, 0x00, Rm, Whole);
    SHUFFLE_TWO: Opcode = avx2("vshufps", 1, 0, 0, 0xc6, Rvm, Whole);
    SHUFFLE_BYTES: Opcode = avx2("vpshufb", 2, 1, 0, 0x00, Rvm, Full);
    MOVE_GPR: Opcode = avx2("vmovq", 1, 1, 1, 0x6e, Rm, Tuple::None);
    STORE_HALF: Opcode = avx2("vmovq", 1, 1, 0, 0xd6, Mr, Half);
    SIGNS: Opcode = avx2("vmovmskps", 1, 0, 0, 0x50, Rm, Tuple::None);
    // Mask registers.
    MASK_AND: Opcode = mask("kandw", true, 1, 0, 0, 0x41, Rvm);
    MASK_OR: Opcode = mask("korw", true, 1, 0, 0, 0x45, Rvm);
    MASK_XOR: Opcode = mask("kxorw", true, 1, 0, 0, 0x47, Rvm);
    MASK_XNOR: Opcode = mask("kxnorw", true, 1, 0, 0, 0x46, Rvm);
    MASK_NOT: Opcode = mask("knotw", false, 1, 0, 0, 0x44, Rm);
    MASK_JOIN: Opcode = mask("kunpckbw", true, 1, 1, 0, 0x4b, Rvm);
    MASK_SHIFT_RIGHT: Opcode = mask("kshiftrw", false, 3, 1, 1, 0x30, Rm);
    MASK_ALL: Opcode = mask("kortestw", false, 1, 0, 0, 0x98, Rm);
    MASK_MOVE: Opcode = mask("kmovw", false, 1, 0, 0, 0x90, Rm);
    MASK_STORE: Opcode = mask("kmovw", false, 1, 0, 0, 0x91, Mr);
}
