//! A compiled kernel.

#![allow(unsafe_code, reason = "the door through which launches reach generated code")]

use super::Compile;
use super::along_inner::AlongInner;
use super::along_rows::AlongRows;
use super::deinterleaved::Deinterleave;
use super::long_rows::Splitting;
use crate::codegen::geometry::{Class, Geometry, Lanes};
use crate::codegen::kernel::Kernel;
use crate::codegen::launch::{Faults, Part, Pointers};
use crate::error::Reason;
use std::fmt;

/// A kernel compiled for one set of access classes. It owns its machine code and can run on many threads at once.
pub struct NativeProgram {
    n_accesses: usize,
    vectors: Vectors,
}

/// The loop along which vectors run.
enum Vectors {
    AlongInner(Box<AlongInner>),
    AlongRows(Box<AlongRows>),
}

impl Vectors {
    fn lanes(&self) -> Lanes {
        match self {
            Vectors::AlongInner(_) => Lanes::Inner,
            Vectors::AlongRows(_) => Lanes::Rows,
        }
    }
}

impl NativeProgram {
    /// Compiles a valid `kernel` with `compile` for accesses of these `classes`, operands first. If it `is_streaming`,
    /// launches that are large enough use non-temporal stores.
    pub(in crate::codegen) fn new(
        compile: Compile,
        is_streaming: bool,
        kernel: &Kernel,
        lanes: Lanes,
        classes: &[Class],
        deinterleave: Deinterleave,
    ) -> Result<NativeProgram, Reason> {
        let n_accesses = kernel.operands.len() + kernel.outputs.len();
        assert_eq!(classes.len(), n_accesses, "a class per operand and output");
        let vectors = match lanes {
            Lanes::Inner => {
                let program = AlongInner::new(compile, is_streaming, kernel, classes, deinterleave)?;
                Vectors::AlongInner(Box::new(program))
            }
            Lanes::Rows => Vectors::AlongRows(Box::new(AlongRows::new(compile, kernel, classes)?)),
        };
        Ok(NativeProgram { n_accesses, vectors })
    }

    /// Bytes of machine code and constants.
    pub fn code_bytes(&self) -> usize {
        match &self.vectors {
            Vectors::AlongInner(program) => program.code_bytes(),
            Vectors::AlongRows(program) => program.code_bytes(),
        }
    }

    /// How threads share a row of a launch, if they may.
    pub(in crate::codegen) fn splitting(&self, geometry: &Geometry) -> Option<Splitting<'_>> {
        match &self.vectors {
            Vectors::AlongInner(program) => program.splitting(geometry),
            Vectors::AlongRows(_) => None,
        }
    }

    /// Runs a part of a launch.
    ///
    /// # Safety
    /// `geometry` belongs to the compiled kernel and has the classes it was compiled for. From every pointer, all
    /// elements that `geometry` leads to in `part` are alive. Those of outputs may be written, and nothing else
    /// accesses them during the call. An output may coincide with an operand element for element if the kernel has no
    /// folds, and overlaps none otherwise.
    pub unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part, faults: &Faults) {
        assert_eq!(geometry.lanes, self.vectors.lanes(), "the program was compiled for vectors along another loop");
        assert_eq!(geometry.operands.len() + geometry.outputs.len(), self.n_accesses, "another kernel's geometry");
        match &self.vectors {
            // SAFETY: passed on from the caller.
            Vectors::AlongInner(program) => unsafe { program.run(geometry, pointers, part, faults) },
            // SAFETY: passed on from the caller.
            Vectors::AlongRows(program) => unsafe { program.run(geometry, pointers, part, faults) },
        }
    }
}

impl fmt::Debug for NativeProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = self.vectors.lanes();
        f.debug_struct("NativeProgram").field("code_bytes", &self.code_bytes()).field("lanes", &lanes).finish()
    }
}
