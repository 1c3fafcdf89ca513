#![allow(unsafe_code, reason = "answers for the addresses that bytes are copied to and from")]
//! Copies bytes to a device and back, through pinned memory.
//!
//! A copy is cut into pieces that alternate between two pinned buffers: while one is in flight, the other is filled or
//! emptied. When a call returns, what is sent was copied from its source, and what is fetched has arrived.

use super::driver::{Context, Pinned, Queue};
use crate::device::block::Block;
use crate::error::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a piece.
const PIECE: usize = 1 << 20;

/// The pinned buffers of a device, made on first use.
#[derive(Default)]
pub(super) struct Staging(Mutex<Vec<Pinned>>);

impl Staging {
    /// Copies bytes to a block, starting at its byte `at`, in the order of a stream.
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
                // SAFETY: inside the block, see above. A pool keeps a dropped block until the stream has passed this
                // point.
                unsafe { pieces[number % 2].send(queue, part, address)? };
            }
            Ok(())
        })
    }

    /// Copies bytes of a block, starting at its byte `at`, in the order of a stream, and waits for them.
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
            let start = |pieces: &mut [Pinned], number: usize| match lengths.get(number) {
                // SAFETY: inside the block, which is borrowed until everything has arrived.
                Some(&len) => unsafe {
                    pieces[number % 2].start_fetch(queue, (from.as_ptr().addr() + at + number * PIECE) as u64, len)
                },
                None => Ok(()),
            };
            start(pieces, 0)?;
            for (number, part) in bytes.chunks_mut(PIECE).enumerate() {
                start(pieces, number + 1)?;
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
