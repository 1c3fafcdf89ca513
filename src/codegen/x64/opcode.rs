//! The vector and mask instructions of this tier: a row each.
//!
//! A row has what the encoder needs: encoding space, opcode map (1: `0F`, 2: `0F38`, 3: `0F3A`), prefix (0: none,
//! 1: `66`, 2: `F3`, 3: `F2`), the bit `W`, the opcode itself, which field an operand goes to, and how much memory the
//! instruction touches. Where two rows differ in the type alone they stand in a pair: 32-bit lanes, 64-bit lanes.

/// How an instruction is prefixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// EVEX: vectors of AVX-512.
    Evex,
    /// VEX, with its bit `L`: mask registers.
    Vex(bool),
}

/// Which field the result and the operands go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `reg = vvvv op rm`.
    Rvm,
    /// `reg = op rm`.
    Rm,
    /// `rm = op reg`.
    Mr,
    /// `vvvv = op rm`, and a digit in `reg`.
    Vm(u8),
}

/// Memory an instruction touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuple {
    /// Unspecified: distances are not compressed.
    None,
    /// A whole vector, or one element for all lanes.
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

/// One instruction.
#[derive(Debug, PartialEq, Eq)]
pub struct Opcode {
    /// The mnemonic.
    pub name: &'static str,
    /// How it is prefixed.
    pub space: Space,
    /// The opcode map.
    pub map: u8,
    /// The prefix that is folded into the encoding.
    pub prefix: u8,
    /// The bit `W`.
    pub wide: bool,
    /// The opcode.
    pub code: u8,
    /// The fields of its operands.
    pub encoding: Encoding,
    /// The memory it touches.
    pub tuple: Tuple,
}

impl Opcode {
    /// Cycles until a result is there, and half cycles in which no other instruction can start: rough figures of
    /// machines with two vector ports of 512 bits, from Intel's optimization manual.
    pub fn timing(&self) -> (usize, usize) {
        let one_of = |pairs: &[&Pair]| pairs.iter().any(|pair| pair.contains(self));
        if one_of(&[&DIV_F, &SQRT]) {
            return if self.wide { (24, 36) } else { (18, 22) };
        }
        if one_of(&[&GATHER, &SCATTER]) {
            return (26, 20);
        }
        if one_of(&[&LOAD, &STORE]) {
            return (7, 1);
        }
        let quick = [&AND, &OR, &XOR, &ADD_I, &SUB_I, &MIN_I, &MAX_I, &BLEND, &MOVE, &SHL_IMM, &SHR_IMM, &SAR_IMM];
        if one_of(&quick) { (1, 1) } else { (4, 1) }
    }
}

/// The same instruction for 32-bit and for 64-bit lanes.
pub type Pair = [Opcode; 2];

const fn row(name: &'static str, map: u8, prefix: u8, wide: u8, code: u8, encoding: Encoding, tuple: Tuple) -> Opcode {
    Opcode { name, space: Space::Evex, map, prefix, wide: wide == 1, code, encoding, tuple }
}

const fn mask(name: &'static str, long: bool, map: u8, prefix: u8, wide: u8, code: u8, encoding: Encoding) -> Opcode {
    Opcode { name, space: Space::Vex(long), map, prefix, wide: wide == 1, code, encoding, tuple: Tuple::None }
}

use Encoding::{Mr, Rm, Rvm, Vm};
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
    ADD_F: Pair = [row("vaddps", 1, 0, 0, 0x58, Rvm, Full), row("vaddpd", 1, 1, 1, 0x58, Rvm, Full)];
    SUB_F: Pair = [row("vsubps", 1, 0, 0, 0x5c, Rvm, Full), row("vsubpd", 1, 1, 1, 0x5c, Rvm, Full)];
    MUL_F: Pair = [row("vmulps", 1, 0, 0, 0x59, Rvm, Full), row("vmulpd", 1, 1, 1, 0x59, Rvm, Full)];
    DIV_F: Pair = [row("vdivps", 1, 0, 0, 0x5e, Rvm, Full), row("vdivpd", 1, 1, 1, 0x5e, Rvm, Full)];
    MIN_F: Pair = [row("vminps", 1, 0, 0, 0x5d, Rvm, Full), row("vminpd", 1, 1, 1, 0x5d, Rvm, Full)];
    MAX_F: Pair = [row("vmaxps", 1, 0, 0, 0x5f, Rvm, Full), row("vmaxpd", 1, 1, 1, 0x5f, Rvm, Full)];
    SQRT: Pair = [row("vsqrtps", 1, 0, 0, 0x51, Rm, Full), row("vsqrtpd", 1, 1, 1, 0x51, Rm, Full)];
    ROUND: Pair = [row("vrndscaleps", 3, 1, 0, 0x08, Rm, Full), row("vrndscalepd", 3, 1, 1, 0x09, Rm, Full)];
    SCALE: Pair = [row("vscalefps", 2, 1, 0, 0x2c, Rvm, Full), row("vscalefpd", 2, 1, 1, 0x2c, Rvm, Full)];
    CMP_F: Pair = [row("vcmpps", 1, 0, 0, 0xc2, Rvm, Full), row("vcmppd", 1, 1, 1, 0xc2, Rvm, Full)];
    // `reg` is an operand as well: `vvvv * rm + reg`, `vvvv * reg + rm`, `reg * rm + vvvv`.
    FMADD_231: Pair = [row("vfmadd231ps", 2, 1, 0, 0xb8, Rvm, Full), row("vfmadd231pd", 2, 1, 1, 0xb8, Rvm, Full)];
    FMADD_213: Pair = [row("vfmadd213ps", 2, 1, 0, 0xa8, Rvm, Full), row("vfmadd213pd", 2, 1, 1, 0xa8, Rvm, Full)];
    FMADD_132: Pair = [row("vfmadd132ps", 2, 1, 0, 0x98, Rvm, Full), row("vfmadd132pd", 2, 1, 1, 0x98, Rvm, Full)];
    FNMADD_231: Pair = [row("vfnmadd231ps", 2, 1, 0, 0xbc, Rvm, Full), row("vfnmadd231pd", 2, 1, 1, 0xbc, Rvm, Full)];
    FNMADD_213: Pair = [row("vfnmadd213ps", 2, 1, 0, 0xac, Rvm, Full), row("vfnmadd213pd", 2, 1, 1, 0xac, Rvm, Full)];
    FNMADD_132: Pair = [row("vfnmadd132ps", 2, 1, 0, 0x9c, Rvm, Full), row("vfnmadd132pd", 2, 1, 1, 0x9c, Rvm, Full)];
    // Arithmetic of integers.
    ADD_I: Pair = [row("vpaddd", 1, 1, 0, 0xfe, Rvm, Full), row("vpaddq", 1, 1, 1, 0xd4, Rvm, Full)];
    SUB_I: Pair = [row("vpsubd", 1, 1, 0, 0xfa, Rvm, Full), row("vpsubq", 1, 1, 1, 0xfb, Rvm, Full)];
    MUL_I: Pair = [row("vpmulld", 2, 1, 0, 0x40, Rvm, Full), row("vpmullq", 2, 1, 1, 0x40, Rvm, Full)];
    MIN_I: Pair = [row("vpminsd", 2, 1, 0, 0x39, Rvm, Full), row("vpminsq", 2, 1, 1, 0x39, Rvm, Full)];
    MAX_I: Pair = [row("vpmaxsd", 2, 1, 0, 0x3d, Rvm, Full), row("vpmaxsq", 2, 1, 1, 0x3d, Rvm, Full)];
    ABS_I: Pair = [row("vpabsd", 2, 1, 0, 0x1e, Rm, Full), row("vpabsq", 2, 1, 1, 0x1f, Rm, Full)];
    CMP_I: Pair = [row("vpcmpd", 3, 1, 0, 0x1f, Rvm, Full), row("vpcmpq", 3, 1, 1, 0x1f, Rvm, Full)];
    // Bits.
    AND: Pair = [row("vpandd", 1, 1, 0, 0xdb, Rvm, Full), row("vpandq", 1, 1, 1, 0xdb, Rvm, Full)];
    OR: Pair = [row("vpord", 1, 1, 0, 0xeb, Rvm, Full), row("vporq", 1, 1, 1, 0xeb, Rvm, Full)];
    XOR: Pair = [row("vpxord", 1, 1, 0, 0xef, Rvm, Full), row("vpxorq", 1, 1, 1, 0xef, Rvm, Full)];
    SHL_IMM: Pair = [row("vpslld", 1, 1, 0, 0x72, Vm(6), Full), row("vpsllq", 1, 1, 1, 0x73, Vm(6), Full)];
    SHR_IMM: Pair = [row("vpsrld", 1, 1, 0, 0x72, Vm(2), Full), row("vpsrlq", 1, 1, 1, 0x73, Vm(2), Full)];
    SAR_IMM: Pair = [row("vpsrad", 1, 1, 0, 0x72, Vm(4), Full), row("vpsraq", 1, 1, 1, 0x72, Vm(4), Full)];
    SHL: Pair = [row("vpsllvd", 2, 1, 0, 0x47, Rvm, Full), row("vpsllvq", 2, 1, 1, 0x47, Rvm, Full)];
    SHR: Pair = [row("vpsrlvd", 2, 1, 0, 0x45, Rvm, Full), row("vpsrlvq", 2, 1, 1, 0x45, Rvm, Full)];
    SAR: Pair = [row("vpsravd", 2, 1, 0, 0x46, Rvm, Full), row("vpsravq", 2, 1, 1, 0x46, Rvm, Full)];
    TEST: Pair = [row("vptestmd", 2, 1, 0, 0x27, Rvm, Full), row("vptestmq", 2, 1, 1, 0x27, Rvm, Full)];
    TEST_BYTES: Opcode = row("vptestmb", 2, 1, 0, 0x26, Rvm, Whole);
    // Moves.
    BLEND: Pair = [row("vpblendmd", 2, 1, 0, 0x64, Rvm, Full), row("vpblendmq", 2, 1, 1, 0x64, Rvm, Full)];
    MOVE: Pair = [row("vmovdqa32", 1, 1, 0, 0x6f, Rm, Whole), row("vmovdqa64", 1, 1, 1, 0x6f, Rm, Whole)];
    LOAD: Pair = [row("vmovups", 1, 0, 0, 0x10, Rm, Whole), row("vmovupd", 1, 1, 1, 0x10, Rm, Whole)];
    STORE: Pair = [row("vmovups", 1, 0, 0, 0x11, Mr, Whole), row("vmovupd", 1, 1, 1, 0x11, Mr, Whole)];
    BROADCAST: Pair = [row("vpbroadcastd", 2, 1, 0, 0x58, Rm, Element), row("vpbroadcastq", 2, 1, 1, 0x59, Rm, Element)];
    BROADCAST_GPR: Opcode = row("vpbroadcastq", 2, 1, 1, 0x7c, Rm, Tuple::None);
    GATHER: Pair = [row("vgatherqps", 2, 1, 0, 0x93, Rm, Element), row("vgatherqpd", 2, 1, 1, 0x93, Rm, Element)];
    SCATTER: Pair = [row("vscatterqps", 2, 1, 0, 0xa3, Mr, Element), row("vscatterqpd", 2, 1, 1, 0xa3, Mr, Element)];
    EXTRACT_Y: Opcode = row("vextracti64x4", 3, 1, 1, 0x3b, Mr, Half);
    INSERT_Y: Opcode = row("vinserti64x4", 3, 1, 1, 0x3a, Rvm, Half);
    SHUFFLE_X: Opcode = row("vshufi64x2", 3, 1, 1, 0x43, Rvm, Full);
    SHUFFLE: Opcode = row("vpshufd", 1, 1, 0, 0x70, Rm, Full);
    MASK_TO_LANES: Opcode = row("vpmovm2d", 2, 2, 0, 0x38, Rm, Tuple::None);
    LANES_TO_MASK: Opcode = row("vpmovd2m", 2, 2, 0, 0x39, Rm, Tuple::None);
    // Narrow elements, and conversions.
    LOAD_U8: Opcode = row("vpmovzxbd", 2, 1, 0, 0x31, Rm, Quarter);
    LOAD_I8: Opcode = row("vpmovsxbd", 2, 1, 0, 0x21, Rm, Quarter);
    LOAD_U16: Opcode = row("vpmovzxwd", 2, 1, 0, 0x33, Rm, Half);
    LOAD_I16: Opcode = row("vpmovsxwd", 2, 1, 0, 0x23, Rm, Half);
    LOAD_BYTES: Opcode = row("vmovdqu8", 1, 3, 0, 0x6f, Rm, Whole);
    STORE_BYTES: Opcode = row("vmovdqu8", 1, 3, 0, 0x7f, Mr, Whole);
    STORE_8: Opcode = row("vpmovdb", 2, 2, 0, 0x31, Mr, Quarter);
    STORE_16: Opcode = row("vpmovdw", 2, 2, 0, 0x33, Mr, Half);
    I64_TO_I32: Opcode = row("vpmovqd", 2, 2, 0, 0x35, Mr, Half);
    I32_TO_I64: Opcode = row("vpmovsxdq", 2, 1, 0, 0x25, Rm, Half);
    F16_TO_F32: Opcode = row("vcvtph2ps", 2, 1, 0, 0x13, Rm, Half);
    F32_TO_F16: Opcode = row("vcvtps2ph", 3, 1, 0, 0x1d, Mr, Half);
    I32_TO_F32: Opcode = row("vcvtdq2ps", 1, 0, 0, 0x5b, Rm, Full);
    I32_TO_F64: Opcode = row("vcvtdq2pd", 1, 2, 0, 0xe6, Rm, Half);
    I64_TO_F32: Opcode = row("vcvtqq2ps", 1, 0, 1, 0x5b, Rm, Full);
    I64_TO_F64: Opcode = row("vcvtqq2pd", 1, 2, 1, 0xe6, Rm, Full);
    F32_TO_I32: Opcode = row("vcvttps2dq", 1, 2, 0, 0x5b, Rm, Full);
    F32_TO_I64: Opcode = row("vcvttps2qq", 1, 1, 0, 0x7a, Rm, Half);
    F64_TO_I32: Opcode = row("vcvttpd2dq", 1, 1, 1, 0xe6, Rm, Full);
    F64_TO_I64: Opcode = row("vcvttpd2qq", 1, 1, 1, 0x7a, Rm, Full);
    F32_TO_F64: Opcode = row("vcvtps2pd", 1, 0, 0, 0x5a, Rm, Half);
    F64_TO_F32: Opcode = row("vcvtpd2ps", 1, 1, 1, 0x5a, Rm, Full);
    // Mask registers.
    MASK_AND: Opcode = mask("kandw", true, 1, 0, 0, 0x41, Rvm);
    MASK_OR: Opcode = mask("korw", true, 1, 0, 0, 0x45, Rvm);
    MASK_XOR: Opcode = mask("kxorw", true, 1, 0, 0, 0x47, Rvm);
    MASK_XNOR: Opcode = mask("kxnorw", true, 1, 0, 0, 0x46, Rvm);
    MASK_NOT: Opcode = mask("knotw", false, 1, 0, 0, 0x44, Rm);
    MASK_JOIN: Opcode = mask("kunpckbw", true, 1, 1, 0, 0x4b, Rvm);
    MASK_SHIFT_RIGHT: Opcode = mask("kshiftrw", false, 3, 1, 1, 0x30, Rm);
    MASK_MOVE: Opcode = mask("kmovw", false, 1, 0, 0, 0x90, Rm);
    MASK_STORE: Opcode = mask("kmovw", false, 1, 0, 0, 0x91, Mr);
}
