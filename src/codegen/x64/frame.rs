//! The stack frame of a function.

/// Bytes of a vector in the frame.
const VECTOR_BYTES: i32 = 64;

/// The stack frame: memory above the stack pointer, allocated upwards.
#[derive(Debug, Default)]
pub(super) struct Frame {
    size: i32,
    /// Spill slots; every block uses them anew.
    spills: Vec<i32>,
}

impl Frame {
    /// Allocates `bytes` bytes and returns their offset.
    pub(super) fn take(&mut self, bytes: i32, align: i32) -> i32 {
        let at = (self.size + align - 1) / align * align;
        self.size = at + bytes;
        at
    }

    /// Allocates a vector.
    pub(super) fn take_vector(&mut self) -> i32 {
        self.take(VECTOR_BYTES, VECTOR_BYTES)
    }

    /// The size of the whole frame.
    pub(super) fn size(&self) -> i32 {
        self.size
    }

    /// The spill slot of the `number`-th value that a block spills.
    pub(super) fn spill(&mut self, number: usize) -> i32 {
        while self.spills.len() <= number {
            let at = self.take_vector();
            self.spills.push(at);
        }
        self.spills[number]
    }
}
