#![allow(unsafe_code, reason = "answers for the addresses that bytes are copied to and from")]
//! Bytes to a device and back, through pinned memory.
//!
//! A copy is cut into pieces that go through two pieces of pinned memory in turns: while one is on its way, the other is
//! filled or emptied. What is sent was taken over when the call returns; what is asked for is there.

use super::driver::{Context, Pinned, Queue};
use crate::device::block::Block;
use crate::error::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a piece.
const PIECE: usize = 1 << 20;

/// The pinned memory of a device; made when it is first needed.
#[derive(Default)]
pub(super) struct Staging(Mutex<Vec<Pinned>>);

impl Staging {
    /// Copies bytes to the memory of a block, from its byte `at` on, in the order of a stream.
    pub(super) fn send(
        &self,
        context: &Arc<Context>,
        queue: &Queue,
        bytes: &[u8],
        to: &Block,
        at: usize,
    ) -> Result<()> {
        assert!(at + bytes.len() <= to.capacity(), "a copy stays inside its block");
        self.with(context, |pieces| {
            for (number, part) in bytes.chunks(PIECE).enumerate() {
                let address = (to.as_ptr().addr() + at + number * PIECE) as u64;
                // SAFETY: inside the block, see above; whoever drops a block of a pool leaves it to the pool, which keeps
                // it until the stream has come past.
                unsafe { pieces[number % 2].send(queue, part, address)? };
            }
            Ok(())
        })
    }

    /// Copies the memory of a block, from its byte `at` on, to `bytes`, in the order of a stream, and waits for it.
    pub(super) fn fetch(
        &self,
        context: &Arc<Context>,
        queue: &Queue,
        from: &Block,
        at: usize,
        bytes: &mut [u8],
    ) -> Result<()> {
        assert!(at + bytes.len() <= from.capacity(), "a copy stays inside its block");
        self.with(context, |pieces| {
            let lengths: Vec<usize> = bytes.chunks(PIECE).map(<[u8]>::len).collect();
            let ask = |pieces: &mut [Pinned], number: usize| match lengths.get(number) {
                // SAFETY: inside the block, which is borrowed until everything has arrived.
                Some(&len) => unsafe {
                    pieces[number % 2].ask(queue, (from.as_ptr().addr() + at + number * PIECE) as u64, len)
                },
                None => Ok(()),
            };
            ask(pieces, 0)?;
            for (number, part) in bytes.chunks_mut(PIECE).enumerate() {
                ask(pieces, number + 1)?;
                pieces[number % 2].take(part)?;
            }
            Ok(())
        })
    }

    fn with<T>(&self, context: &Arc<Context>, work: impl FnOnce(&mut [Pinned]) -> Result<T>) -> Result<T> {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while pieces.len() < 2 {
            pieces.push(Pinned::new(context, PIECE)?);
        }
        work(&mut pieces)
    }
}
