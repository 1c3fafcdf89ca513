//! The bytes of the x64 tier's encoder, taken apart by a disassembler that knows nothing of it.
//!
//! Every row of the opcode table is encoded with registers from both ends of the file, memory of every form, masks and
//! broadcasts; what comes back must be the row's mnemonic and the operands that were asked for.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind, Register};
use opfuse::codegen::x64::encoder::*;
use opfuse::codegen::x64::opcode::{self, Encoding, Opcode, Space, Tuple};

fn decoded(bytes: &[u8]) -> Instruction {
    let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
    let instruction = decoder.decode();
    assert!(!instruction.is_invalid(), "{bytes:02x?} is no instruction");
    assert_eq!(instruction.len(), bytes.len(), "{bytes:02x?} is longer than {instruction:?}");
    instruction
}

fn encoded(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut encoder = Encoder::default();
    write(&mut encoder);
    encoder.finish()
}

/// The mnemonic as tables spell it; some of the disassembler's are followed by their form.
fn mnemonic(instruction: &Instruction) -> String {
    format!("{:?}", instruction.mnemonic()).to_lowercase()
}

fn number(register: Register) -> u8 {
    u8::try_from(register.number()).expect("register numbers are small")
}

/// The operands in the order of the manual's text.
fn order(encoding: Encoding, operands: Operands) -> Vec<Rm> {
    let (reg, vvvv) = (Rm::Reg(operands.reg), Rm::Reg(operands.vvvv));
    match encoding {
        Encoding::Rvm => vec![reg, vvvv, operands.rm],
        Encoding::Rm => vec![reg, operands.rm],
        Encoding::Mr => vec![operands.rm, reg],
        Encoding::Vm(_) => vec![vvvv, operands.rm],
    }
}

fn check(opcode: &Opcode, width: Width, operands: Operands, mask: Option<Masked>, imm: Option<u8>) {
    let bytes = encoded(|encoder| encoder.vector(opcode, width, operands, mask, imm));
    let instruction = decoded(&bytes);
    let what = format!("{} {width:?} {operands:?} {mask:?}: {bytes:02x?}, {instruction:?}", opcode.name);
    assert_eq!(mnemonic(&instruction), opcode.name, "{what}");
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
    if let Some(imm) = imm {
        assert_eq!(instruction.immediate8(), imm, "{what}");
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

/// Opcodes that end in a number.
fn has_imm(opcode: &Opcode) -> bool {
    let shifts = matches!(opcode.encoding, Encoding::Vm(_));
    shifts || opcode.map == 3 || ["vcmpps", "vcmppd", "vpshufd"].contains(&opcode.name)
}

/// Widths that exist of an instruction.
fn widths(opcode: &Opcode) -> &'static [Width] {
    let lanes_cross = ["vextracti64x4", "vinserti64x4"].contains(&opcode.name);
    match opcode.space {
        Space::Vex(_) => &[Width::X],
        Space::Evex if lanes_cross => &[Width::Z],
        Space::Evex if opcode.name == "vshufi64x2" => &[Width::Y, Width::Z],
        Space::Evex => &[Width::X, Width::Y, Width::Z],
    }
}

fn memories(opcode: &Opcode) -> Vec<Memory> {
    let plain = |base: Gpr, disp: i32| Memory::at(base, disp);
    let mut all = vec![plain(RAX, 0), plain(RBP, 0), plain(R13, 0), plain(RSP, 64), plain(R12, -64), plain(RBX, 4096)];
    all.extend([1, 3, 127, -128, 128, 8192, -8192].map(|disp| plain(R11, disp)));
    for scale in 0..4 {
        all.extend([RAX, R9].map(|index| Memory { index: Index::Gpr(index, scale), ..plain(R14, 256 * scale as i32) }));
    }
    if opcode.tuple == Tuple::Full {
        all.extend(all.clone().into_iter().map(|memory| Memory { broadcast: true, ..memory }));
    }
    all
}

#[test]
fn vector_instructions_are_what_their_rows_say() {
    let registers = [0, 7, 8, 15, 16, 31];
    let rows = opcode::all();
    assert!(rows.len() > 100, "{} rows", rows.len());
    for opcode in rows {
        let indexed = opcode.name.starts_with("vgather") || opcode.name.starts_with("vscatter");
        let small = matches!(opcode.space, Space::Vex(_));
        let of_masks = |n: u8| n % 8;
        let imm = has_imm(opcode).then_some(5);
        for &width in widths(opcode) {
            for (turn, &n) in registers.iter().enumerate() {
                let other = registers[(turn + 2) % registers.len()];
                let third = registers[(turn + 3) % registers.len()];
                let to_mask = small || opcode.name.contains("cmp") || opcode.name.starts_with("vptestm");
                let reg = if to_mask || opcode.name == "vpmovd2m" { of_masks(n) } else { n };
                let reg = if let Encoding::Vm(digit) = opcode.encoding { digit } else { reg };
                let vvvv = match opcode.encoding {
                    Encoding::Rvm | Encoding::Vm(_) => {
                        if small {
                            of_masks(other)
                        } else {
                            other
                        }
                    }
                    Encoding::Rm | Encoding::Mr => 0,
                };
                let of_mask = small || opcode.name == "vpmovm2d";
                let rm = if of_mask {
                    of_masks(third)
                } else if *opcode == opcode::BROADCAST_GPR {
                    third % 16
                } else {
                    third
                };
                if indexed {
                    let index = Memory { index: Index::Vector(other), ..Memory::at(R11, 8) };
                    let mask = Some(Masked { register: 3, zero: false });
                    let reg = if reg == other { reg ^ 1 } else { reg };
                    check(opcode, width, Operands { reg, vvvv: 0, rm: Rm::Mem(index) }, mask, None);
                    continue;
                }
                if opcode.name != "kmovw" || opcode.encoding == Encoding::Rm {
                    check(opcode, width, Operands { reg, vvvv, rm: Rm::Reg(rm) }, None, imm);
                }
                let maskable = !small && opcode.name != "vpmovm2d" && opcode.name != "vpmovd2m";
                if maskable {
                    let mask = Masked { register: 1 + n % 7, zero: !to_mask && turn % 2 == 0 };
                    check(opcode, width, Operands { reg, vvvv, rm: Rm::Reg(rm) }, Some(mask), imm);
                }
            }
            if !indexed && takes_memory(opcode) {
                let reg = if let Encoding::Vm(digit) = opcode.encoding { digit } else { 2 };
                let vvvv = if matches!(opcode.encoding, Encoding::Rvm | Encoding::Vm(_)) { 3 } else { 0 };
                for memory in memories(opcode) {
                    check(opcode, width, Operands { reg, vvvv, rm: Rm::Mem(memory) }, None, imm);
                }
            }
        }
    }
}

fn takes_memory(opcode: &Opcode) -> bool {
    let mask_moves = opcode.name == "kmovw";
    match opcode.space {
        Space::Vex(_) => mask_moves,
        Space::Evex => opcode.tuple != Tuple::None,
    }
}

#[test]
fn constants_lie_behind_the_code() {
    let mut encoder = Encoder::default();
    let numbers = [Constant::Word(7), Constant::Double(9), Constant::Word(7), Constant::Vector([1; 8])]
        .map(|constant| encoder.constant(constant));
    assert_eq!(numbers, [0, 1, 0, 2]);
    let mut starts = Vec::new();
    for number in numbers {
        let memory = encoder.constant_memory(number);
        let add = &opcode::ADD_F[(number == 1) as usize];
        let before = encoder.n_bytes();
        encoder.vector(add, Width::Z, Operands { reg: 1, vvvv: 2, rm: Rm::Mem(memory) }, None, None);
        starts.push(before);
    }
    // A number behind the distance counts as part of the instruction.
    let memory = encoder.constant_memory(0);
    starts.push(encoder.n_bytes());
    encoder.vector(&opcode::CMP_F[0], Width::Z, Operands { reg: 1, vvvv: 2, rm: Rm::Mem(memory) }, None, Some(1));
    let bytes = encoder.finish();
    let expected: [&[u8]; 5] = [&[7, 0, 0, 0], &[9, 0, 0, 0, 0, 0, 0, 0], &[7, 0, 0, 0], &[1, 0, 0, 0], &[7, 0, 0, 0]];
    for (start, expected) in starts.into_iter().zip(expected) {
        let mut decoder = Decoder::with_ip(64, &bytes[start..], start as u64, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let at = instruction.ip_rel_memory_address() as usize;
        assert_eq!(&bytes[at..at + expected.len()], expected, "{instruction:?}");
    }
}

#[test]
fn integer_instructions_name_their_registers() {
    for register in [RAX, RSP, RBP, RDI, R8, R12, R13, R15] {
        for int in [Int::Add, Int::Sub, Int::Cmp, Int::Mov, Int::Store, Int::AddTo, Int::Imul, Int::CmovGreater] {
            let name = ["add", "sub", "cmp", "mov", "mov", "add", "imul", "cmovg"][[
                Int::Add,
                Int::Sub,
                Int::Cmp,
                Int::Mov,
                Int::Store,
                Int::AddTo,
                Int::Imul,
                Int::CmovGreater,
            ]
            .iter()
            .position(|&other| other == int)
            .expect("it is listed")];
            let to_memory = matches!(int, Int::Store | Int::AddTo);
            let own = to_memory as u32;
            for rm in [Rm::Reg(R9.0), Rm::Mem(Memory::at(R12, 8)), Rm::Mem(Memory::at(RBP, 0))] {
                let instruction = decoded(&encoded(|encoder| encoder.int(int, register, rm)));
                assert_eq!(mnemonic(&instruction), name);
                assert_eq!(number(instruction.op_register(own)), register.0, "{instruction:?}");
            }
        }
        let named = |write: &dyn Fn(&mut Encoder), name: &str| {
            let instruction = decoded(&encoded(|encoder| write(encoder)));
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
        let instruction = decoded(&encoded(|encoder| encoder.low_bits(register, R10, R11)));
        assert_eq!(mnemonic(&instruction), "bzhi");
        assert_eq!([0, 1, 2].map(|at| number(instruction.op_register(at))), [register.0, R10.0, R11.0]);
    }
    for base in [RAX, RSP, R11, R13] {
        let at = |index| Memory { index, ..Memory::at(base, 192) };
        for memory in [at(Index::None), at(Index::Gpr(RAX, 2)), at(Index::Gpr(R9, 3))] {
            let instruction = decoded(&encoded(|encoder| encoder.prefetch(memory)));
            assert_eq!(mnemonic(&instruction), "prefetcht0");
            check_memory(&instruction, memory, "prefetcht0");
        }
    }
    assert_eq!(mnemonic(&decoded(&encoded(Encoder::ret))), "ret");
    assert_eq!(mnemonic(&decoded(&encoded(Encoder::zero_upper))), "vzeroupper");
}

#[test]
fn jumps_lead_to_their_labels() {
    let mut encoder = Encoder::default();
    let (top, end) = (encoder.label(), encoder.label());
    encoder.add(RAX, 1);
    encoder.place_loop(top);
    let top_at = encoder.n_bytes();
    encoder.jump_if(Condition::Less, end);
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
