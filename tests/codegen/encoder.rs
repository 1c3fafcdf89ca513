//! The bytes of the x64 tier's encoder, decoded by an independent disassembler.
//!
//! Every row of the opcode table is encoded for every level that has it, with registers from both ends of the file,
//! memory of every form, masks and broadcasts. The disassembler must find the row's mnemonic and the given operands.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind, Register};
use opfuse::internals::codegen::x64::Level;
use opfuse::internals::codegen::x64::encoder::*;
use opfuse::internals::codegen::x64::opcode;
use opfuse::internals::codegen::x64::opcode::{Encoding, Opcode, Space, Tuple};

fn decoded(bytes: &[u8]) -> Instruction {
    let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
    let instruction = decoder.decode();
    assert!(!instruction.is_invalid(), "{bytes:02x?} is no instruction");
    assert_eq!(instruction.len(), bytes.len(), "{bytes:02x?} is longer than {instruction:?}");
    instruction
}

fn encoded(level: Level, write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut encoder = Encoder::new(level);
    write(&mut encoder);
    encoder.finish()
}

/// The mnemonic as in the table; the disassembler appends the form to some.
fn mnemonic(instruction: &Instruction) -> String {
    format!("{:?}", instruction.mnemonic()).to_lowercase()
}

fn number(register: Register) -> u8 {
    u8::try_from(register.full_register().number()).expect("register numbers are small")
}

/// The operands in the order of the manual.
fn order(encoding: Encoding, operands: Operands) -> Vec<Rm> {
    let (reg, vvvv) = (Rm::Reg(operands.reg), Rm::Reg(operands.vvvv));
    match encoding {
        Encoding::Rvm | Encoding::Rvmr => vec![reg, vvvv, operands.rm],
        Encoding::Rm => vec![reg, operands.rm],
        Encoding::Mr => vec![operands.rm, reg],
        Encoding::Mvr => vec![operands.rm, vvvv, reg],
        Encoding::Rmv => vec![reg, operands.rm, vvvv],
        Encoding::Vm(_) => vec![vvvv, operands.rm],
    }
}

fn check(level: Level, opcode: &Opcode, width: Width, operands: Operands, mask: Option<Masked>, imm: Option<u8>) {
    let bytes = encoded(level, |encoder| encoder.vector(opcode, width, operands, mask, imm));
    let instruction = decoded(&bytes);
    let what = format!("{level:?} {} {width:?} {operands:?} {mask:?}: {bytes:02x?}, {instruction:?}", opcode.name);
    assert_eq!(mnemonic(&instruction), opcode.form(level).expect("the level has it").name, "{what}");
    for (place, &operand) in order(opcode.encoding, operands).iter().enumerate() {
        let place = place as u32;
        match operand {
            Rm::Reg(register) => {
                assert_eq!(instruction.op_kind(place), OpKind::Register, "{what}");
                assert_eq!(number(instruction.op_register(place)), register, "{what}");
            }
            Rm::Mem(memory) => check_memory(&instruction, memory, &what),
        }
    }
    let mask_register = mask.map_or(0, |mask| mask.register);
    let found = instruction.op_mask();
    assert_eq!(if found == Register::None { 0 } else { number(found) }, mask_register, "{what}");
    assert_eq!(instruction.zeroing_masking(), mask.is_some_and(|mask| mask.zero), "{what}");
    match (imm, opcode.encoding) {
        (None, _) => {}
        (Some(imm), Encoding::Rvmr) => assert_eq!(number(instruction.op_register(3)), imm >> 4, "{what}"),
        (Some(imm), _) => assert_eq!(instruction.immediate8(), imm, "{what}"),
    }
}

fn check_memory(instruction: &Instruction, memory: Memory, what: &str) {
    let Base::Gpr(base) = memory.base else { unreachable!("constants are checked apart") };
    assert_eq!(number(instruction.memory_base()), base.0, "{what}");
    assert_eq!(instruction.memory_displacement64() as i64, memory.disp as i64, "{what}");
    assert_eq!(instruction.is_broadcast(), memory.broadcast, "{what}");
    match memory.index {
        Index::None => assert_eq!(instruction.memory_index(), Register::None, "{what}"),
        Index::Gpr(index, scale) => {
            assert_eq!(number(instruction.memory_index()), index.0, "{what}");
            assert_eq!(instruction.memory_index_scale(), 1 << scale, "{what}");
        }
        Index::Vector(index) => {
            assert!(instruction.memory_index().is_vector_register(), "{what}");
            assert_eq!(number(instruction.memory_index()), index, "{what}");
        }
    }
}

/// Opcodes with an immediate.
fn has_imm(opcode: &Opcode) -> bool {
    let shifts = matches!(opcode.encoding, Encoding::Vm(_));
    shifts || opcode.map == 3 || ["vcmpps", "vcmppd", "vpshufd", "vshufps"].contains(&opcode.name)
}

/// The vector widths of an instruction.
fn widths(level: Level, opcode: &Opcode) -> &'static [Width] {
    let whole = ["vextracti64x4", "vinserti64x4"].contains(&opcode.name);
    let halves = ["vextracti128", "vinserti128", "vpermq"].contains(&opcode.name);
    match (level, opcode.space) {
        (_, Space::Fixed(_)) => &[Width::X],
        (_, Space::Vex) if opcode.name == "vmovq" => &[Width::X],
        (_, Space::Vex) if halves => &[Width::Y],
        (Level::Avx2, _) => &[Width::X, Width::Y],
        (Level::Avx512, _) if whole => &[Width::Z],
        (Level::Avx512, _) if opcode.name == "vshufi64x2" => &[Width::Y, Width::Z],
        (Level::Avx512, _) => &[Width::X, Width::Y, Width::Z],
    }
}

fn memories(level: Level, opcode: &Opcode) -> Vec<Memory> {
    let plain = |base: Gpr, disp: i32| Memory::at(base, disp);
    let mut all = vec![plain(RAX, 0), plain(RBP, 0), plain(R13, 0), plain(RSP, 64), plain(R12, -64), plain(RBX, 4096)];
    all.extend([1, 3, 127, -128, 128, 8192, -8192].map(|disp| plain(R11, disp)));
    for scale in 0..4 {
        all.extend([RAX, R9].map(|index| Memory { index: Index::Gpr(index, scale), ..plain(R14, 256 * scale as i32) }));
    }
    if opcode.tuple == Tuple::Full && level == Level::Avx512 {
        all.extend(all.clone().into_iter().map(|memory| Memory { broadcast: true, ..memory }));
    }
    all
}

#[test]
fn vector_instructions_are_what_their_rows_say() {
    let rows = opcode::all();
    assert!(rows.len() > 100, "{} rows", rows.len());
    for level in Level::ALL {
        let of_level: Vec<&Opcode> = rows.iter().copied().filter(|opcode| opcode.form(level).is_some()).collect();
        assert!(of_level.len() > 90, "{} rows of {level:?}", of_level.len());
        for opcode in of_level {
            for &width in widths(level, opcode) {
                registers_are_right(level, opcode, width);
                if takes_memory(opcode) && !is_indexed(opcode) && (level == Level::Avx512 || !is_shift(opcode)) {
                    let reg = if let Encoding::Vm(digit) = opcode.encoding { digit } else { 2 };
                    let vvvv = if has_vvvv(opcode) { 3 } else { 0 };
                    for memory in memories(level, opcode) {
                        let operands = Operands { reg, vvvv, rm: Rm::Mem(memory) };
                        check(level, opcode, width, operands, None, has_imm(opcode).then_some(0x50));
                    }
                }
            }
        }
    }
}

fn is_indexed(opcode: &Opcode) -> bool {
    opcode.name.starts_with("vgather") || opcode.name.starts_with("vscatter")
}

/// Shifts by an immediate, which AVX2 has for registers only.
fn is_shift(opcode: &Opcode) -> bool {
    matches!(opcode.encoding, Encoding::Vm(_))
}

fn has_vvvv(opcode: &Opcode) -> bool {
    match opcode.encoding {
        Encoding::Rvm | Encoding::Rvmr | Encoding::Vm(_) | Encoding::Mvr | Encoding::Rmv => true,
        Encoding::Rm | Encoding::Mr => false,
    }
}

/// One instruction with registers, masks and indices of many numbers.
fn registers_are_right(level: Level, opcode: &Opcode, width: Width) {
    let registers = match level {
        Level::Avx2 => [0, 7, 8, 13, 14, 15],
        Level::Avx512 => [0, 7, 8, 15, 16, 31],
    };
    let fixed = matches!(opcode.space, Space::Fixed(_));
    let of_masks = |n: u8| n % 8;
    let imm = has_imm(opcode).then_some(if opcode.encoding == Encoding::Rvmr { 0xb0 } else { 5 });
    let evex = level == Level::Avx512 && opcode.space == Space::Evex;
    for (turn, &n) in registers.iter().enumerate() {
        let other = registers[(turn + 2) % registers.len()];
        let third = registers[(turn + 3) % registers.len()];
        let compares = opcode.name.contains("cmp") || opcode.name.starts_with("vptestm");
        let to_mask = fixed || (evex && compares);
        let reg = if to_mask || opcode.name == "vpmovd2m" { of_masks(n) } else { n };
        let reg = if let Encoding::Vm(digit) = opcode.encoding { digit } else { reg };
        let vvvv = match (has_vvvv(opcode), fixed) {
            (false, _) => 0,
            (true, true) => of_masks(other),
            (true, false) => other,
        };
        let of_mask = fixed || opcode.name == "vpmovm2d";
        let rm = match () {
            () if of_mask => of_masks(third),
            () if opcode.is_from_gpr() => third % 16,
            () => third,
        };
        if is_indexed(opcode) {
            let index = Memory { index: Index::Vector(other), ..Memory::at(R11, 8) };
            let mask = evex.then_some(Masked { register: 3, zero: false });
            let reg = if reg == other { reg ^ 1 } else { reg };
            let vvvv = if evex { 0 } else { third };
            check(level, opcode, width, Operands { reg, vvvv, rm: Rm::Mem(index) }, mask, None);
            continue;
        }
        // Non-temporal stores have no register forms and no masks.
        let streams = opcode.name.starts_with("vmovnt");
        let of_memory = streams || opcode.name == "kmovw" && opcode.encoding == Encoding::Mr;
        if !of_memory && !opcode.name.starts_with("vpmaskmov") {
            check(level, opcode, width, Operands { reg, vvvv, rm: Rm::Reg(rm) }, None, imm);
        }
        if evex && !streams && opcode.name != "vpmovm2d" && opcode.name != "vpmovd2m" {
            let mask = Masked { register: 1 + n % 7, zero: !to_mask && turn % 2 == 0 };
            check(level, opcode, width, Operands { reg, vvvv, rm: Rm::Reg(rm) }, Some(mask), imm);
        }
    }
}

fn takes_memory(opcode: &Opcode) -> bool {
    let mask_moves = opcode.name == "kmovw";
    match opcode.space {
        Space::Fixed(_) => mask_moves,
        Space::Vex | Space::Evex => opcode.tuple != Tuple::None,
    }
}

#[test]
fn constants_follow_the_code() {
    for level in Level::ALL {
        let mut encoder = Encoder::new(level);
        let numbers = [Constant::Word(7), Constant::Double(9), Constant::Word(7), Constant::Vector([1; 8])]
            .map(|constant| encoder.constant(constant));
        assert_eq!(numbers, [0, 1, 0, 2]);
        let width = if level == Level::Avx2 { Width::Y } else { Width::Z };
        let mut starts = Vec::new();
        for number in numbers {
            let memory = encoder.constant_memory(number);
            let add = &opcode::ADD_F[(number == 1) as usize];
            let before = encoder.n_bytes();
            encoder.vector(add, width, Operands { reg: 1, vvvv: 2, rm: Rm::Mem(memory) }, None, None);
            starts.push(before);
        }
        // An immediate after the displacement is part of the instruction.
        let memory = encoder.constant_memory(0);
        starts.push(encoder.n_bytes());
        encoder.vector(&opcode::CMP_F[0], width, Operands { reg: 1, vvvv: 2, rm: Rm::Mem(memory) }, None, Some(1));
        let bytes = encoder.finish();
        // For instructions that cannot broadcast, a constant fills a vector.
        let copies = if level == Level::Avx2 { 4 } else { 1 };
        let words = [7, 0, 0, 0].repeat(2 * copies);
        let doubles = [9, 0, 0, 0, 0, 0, 0, 0].repeat(copies);
        let words = if level == Level::Avx2 { &words[..] } else { &words[..4] };
        let expected: [&[u8]; 5] = [words, &doubles, words, &[1, 0, 0, 0], words];
        for (start, expected) in starts.into_iter().zip(expected) {
            let mut decoder = Decoder::with_ip(64, &bytes[start..], start as u64, DecoderOptions::NONE);
            let instruction = decoder.decode();
            let at = instruction.ip_rel_memory_address() as usize;
            assert_eq!(&bytes[at..at + expected.len()], expected, "{instruction:?}");
        }
    }
}

#[test]
fn integer_instructions_name_their_registers() {
    for register in [RAX, RSP, RBP, RDI, R8, R12, R13, R15] {
        for (int, name) in [
            (Int::Add, "add"),
            (Int::Sub, "sub"),
            (Int::Cmp, "cmp"),
            (Int::Mov, "mov"),
            (Int::Store, "mov"),
            (Int::AddTo, "add"),
            (Int::Imul, "imul"),
            (Int::CmovGreater, "cmovg"),
            (Int::LoadByte, "movzx"),
            (Int::StoreByte, "mov"),
        ] {
            let to_memory = matches!(int, Int::Store | Int::AddTo | Int::StoreByte);
            let own = to_memory as u32;
            for rm in [Rm::Reg(R9.0), Rm::Mem(Memory::at(R12, 8)), Rm::Mem(Memory::at(RBP, 0))] {
                let instruction = decoded(&encoded(Level::Avx512, |encoder| encoder.int(int, register, rm)));
                assert_eq!(mnemonic(&instruction), name);
                assert_eq!(number(instruction.op_register(own)), register.0, "{instruction:?}");
            }
        }
        let named = |write: &dyn Fn(&mut Encoder), name: &str| {
            let instruction = decoded(&encoded(Level::Avx512, |encoder| write(encoder)));
            assert_eq!(mnemonic(&instruction), name);
            assert_eq!(number(instruction.op_register(0)), register.0, "{instruction:?}");
        };
        named(&|encoder| encoder.set(register, 0x1122_3344_5566_7788), "mov");
        named(&|encoder| encoder.add(register, -5), "add");
        named(&|encoder| _ = encoder.sub(register, 5), "sub");
        named(&|encoder| encoder.and(register, -64), "and");
        named(&|encoder| encoder.compare(register, 9), "cmp");
        named(&|encoder| encoder.shift_right(register, 13), "shr");
        named(&|encoder| encoder.negate(register), "neg");
        named(&|encoder| encoder.push(register), "push");
        named(&|encoder| encoder.pop(register), "pop");
        named(&|encoder| encoder.call(register), "call");
        let instruction = decoded(&encoded(Level::Avx512, |encoder| encoder.low_bits(register, R10, R11)));
        assert_eq!(mnemonic(&instruction), "bzhi");
        assert_eq!([0, 1, 2].map(|at| number(instruction.op_register(at))), [register.0, R10.0, R11.0]);
    }
    for base in [RAX, RSP, R11, R13] {
        let at = |index| Memory { index, ..Memory::at(base, 192) };
        for memory in [at(Index::None), at(Index::Gpr(RAX, 2)), at(Index::Gpr(R9, 3))] {
            for (want, name) in [(Want::Read, "prefetcht0"), (Want::Write, "prefetchw")] {
                let instruction = decoded(&encoded(Level::Avx512, |encoder| encoder.prefetch(want, memory)));
                assert_eq!(mnemonic(&instruction), name);
                check_memory(&instruction, memory, name);
            }
        }
    }
    assert_eq!(mnemonic(&decoded(&encoded(Level::Avx512, Encoder::ret))), "ret");
    assert_eq!(mnemonic(&decoded(&encoded(Level::Avx512, Encoder::zero_upper))), "vzeroupper");
    assert_eq!(mnemonic(&decoded(&encoded(Level::Avx512, Encoder::fence))), "sfence");
}

#[test]
fn jumps_lead_to_their_labels() {
    let mut encoder = Encoder::new(Level::Avx512);
    let (top, end) = (encoder.label(), encoder.label());
    encoder.add(RAX, 1);
    encoder.place_loop(top);
    let top_at = encoder.n_bytes();
    encoder.jump_if(ConditionCode::Less, end);
    let jump_at = encoder.n_bytes();
    encoder.jump(top);
    encoder.place(end);
    let end_at = encoder.n_bytes();
    let bytes = encoder.finish();
    assert_eq!(top_at % 32, 0);
    let target =
        |at: usize| Decoder::with_ip(64, &bytes[at..], at as u64, DecoderOptions::NONE).decode().near_branch_target();
    assert_eq!(target(top_at), end_at as u64);
    assert_eq!(target(jump_at), top_at as u64);
}
