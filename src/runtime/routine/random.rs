//! Random words.

#![allow(unsafe_code, reason = "vector instructions are chosen at run time")]

use super::elements::Operands;
use crate::codegen::vm::Isa;
use crate::device::pool;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ir::philox;
use std::sync::{Mutex, PoisonError};

/// Words that are worth a task: about 50 µs of work.
const TASK: usize = 1 << 16;

/// Fills the result with the random words of the key in operand 0.
pub(super) fn run(mut operands: Operands<'_>) -> Result<()> {
    let stride = operands.inputs.array(0).layout().strides[0];
    let key = operands.inputs.elements::<i64>(0);
    let (seed, first) = (key[0] as u64, key[stride] as u64);
    match operands.output.array().dtype() {
        DType::I32 => fill(operands.output.elements::<u32>(), |start, part| fill32(seed, first, start, part)),
        DType::I64 => fill(operands.output.elements::<u64>(), |start, part| fill64(seed, first, start, part)),
        found @ (DType::Bool
        | DType::U8
        | DType::I8
        | DType::I16
        | DType::F16
        | DType::BF16
        | DType::F32
        | DType::F64
        | DType::Complex64
        | DType::Complex128) => return Err(Error::invalid("plan", format!("random words of dtype {found}"))),
    }
    Ok(())
}

/// Calls `work` with parts of `words` and the position of each part. A part does not depend on the others.
fn fill<T: Send>(words: &mut [T], work: impl Fn(usize, &mut [T]) + Sync) {
    let threads = (words.len() / TASK).clamp(1, pool::num_threads());
    if threads == 1 {
        return work(0, words);
    }
    let parts: Vec<Mutex<&mut [T]>> = words.chunks_mut(TASK).map(Mutex::new).collect();
    pool::run(parts.len(), threads, &|task| {
        work(task * TASK, &mut parts[task].lock().unwrap_or_else(PoisonError::into_inner));
    });
}

/// Instantiates a function of [`philox`] for the instruction set of this processor.
macro_rules! leveled {
    ($fill:ident, $word:ty) => {
        fn $fill(seed: u64, first: u64, start: usize, words: &mut [$word]) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2(seed: u64, first: u64, start: usize, words: &mut [$word]) {
                    philox::$fill(seed, first, start, words);
                }

                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
                fn avx512(seed: u64, first: u64, start: usize, words: &mut [$word]) {
                    philox::$fill(seed, first, start, words);
                }

                match Isa::best() {
                    Isa::Baseline => {}
                    // SAFETY: the processor has the instructions.
                    Isa::Avx2 => return unsafe { avx2(seed, first, start, words) },
                    // SAFETY: the same.
                    Isa::Avx512 => return unsafe { avx512(seed, first, start, words) },
                }
            }
            philox::$fill(seed, first, start, words);
        }
    };
}

leveled!(fill32, u32);
leveled!(fill64, u64);
