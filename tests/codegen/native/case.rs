//! Kernels on buffers: compiled, run, and compared with the interpreter.

use crate::kernels::Case;
use opfuse::internals::codegen::geometry::{Class, Lanes};
use opfuse::internals::codegen::launch::{Faults, Part, Pointers};
use opfuse::internals::codegen::native::NativeProgram;
use opfuse::internals::codegen::{cranelift, x64};

/// How the tests run a case.
pub(crate) trait Checked {
    fn classes(&self) -> Vec<Class>;
    fn programs(&self) -> Vec<(&'static str, NativeProgram)>;
    fn run(&self, program: &NativeProgram, cut: usize) -> Vec<Vec<u8>>;
    fn check_all(&self, what: &str, cut: usize);
    fn check(&self, program: &NativeProgram, what: &str, cut: usize);
}

impl Checked for Case {
    fn classes(&self) -> Vec<Class> {
        self.geometry.classes(&self.kernel).to_vec()
    }

    /// The programs of the tiers that make machine code.
    fn programs(&self) -> Vec<(&'static str, NativeProgram)> {
        let classes = self.classes();
        let by_cranelift = cranelift::compile(&self.kernel, Lanes::Inner, &classes)
            .unwrap_or_else(|reason| panic!("{reason}\n{}", self.kernel));
        let mut programs = vec![("cranelift", by_cranelift)];
        for level in x64::Level::ALL {
            match x64::compile(level, &self.kernel, Lanes::Inner, &classes) {
                Ok(program) => programs.push((level.name(), program)),
                Err(reason) => {
                    let narrow = self
                        .kernel
                        .dtypes()
                        .zip(&classes)
                        .any(|(dtype, &class)| class == Class::Strided && dtype.size() < 4);
                    let scatters = classes[self.kernel.operands.len()..].contains(&Class::Strided);
                    let cannot = narrow || (scatters && level == x64::Level::Avx2);
                    assert!(cannot || !level.is_available(), "{reason}\n{}", self.kernel);
                }
            }
        }
        programs
    }

    /// The outputs of a launch that is cut into two parts.
    fn run(&self, program: &NativeProgram, cut: usize) -> Vec<Vec<u8>> {
        let mut outputs = self.outputs.clone();
        let operands: Vec<*const u8> = self.inputs.iter().map(|bytes| bytes.as_ptr()).collect();
        let pointers: Vec<*mut u8> = outputs.iter_mut().map(|bytes| bytes.as_mut_ptr()).collect();
        let n_rows = self.geometry.n_rows();
        let lanes = *self.geometry.inner.last().expect("an inner loop");
        let parts = if self.kernel.has_folds() || n_rows > 1 {
            let at = cut % (n_rows + 1);
            [Part { outer: 0..at, lanes: 0..lanes }, Part { outer: at..n_rows, lanes: 0..lanes }]
        } else {
            let at = cut % (lanes + 1);
            [Part { outer: 0..n_rows, lanes: 0..at }, Part { outer: 0..n_rows, lanes: at..lanes }]
        };
        for part in parts {
            let pointers = Pointers { operands: &operands, outputs: &pointers };
            // SAFETY: `interp` ran the same geometry on slices of the same buffers without leaving them, and the
            // outputs are exclusively borrowed here.
            unsafe { program.run(&self.geometry, pointers, &part, &Faults::new()) };
        }
        outputs
    }

    /// Compares every tier's outputs with the interpreter's.
    fn check_all(&self, what: &str, cut: usize) {
        for (tier, program) in self.programs() {
            self.check(&program, &format!("{tier}, {what}"), cut);
        }
    }

    fn check(&self, program: &NativeProgram, what: &str, cut: usize) {
        let (expected, found) = (self.expected().0, self.run(program, cut));
        for (slot, (expected, found)) in expected.iter().zip(&found).enumerate() {
            if let Some(at) = (0..expected.len()).find(|&at| expected[at] != found[at]) {
                let near = at.saturating_sub(8)..(at + 8).min(expected.len());
                panic!(
                    "{what}: output {slot} differs at byte {at}: expected {:02x?}, found {:02x?}\n{}\n{:?}",
                    &expected[near.clone()],
                    &found[near],
                    self.kernel,
                    self.geometry
                );
            }
        }
    }
}
