//! A call as a list of words: op, arguments and operand types. It is the key of tables that cache calls.
//!
//! Two keys are equal exactly if all of that is equal, so a table compares keys and nothing else. The key of an
//! ordinary call is stored inline, without an allocation.

use super::attr::Attr;
use super::dtype::DType;
use super::op::Op;
use super::scalar::Scalar;
use std::ops::Deref;

/// How many words are stored inline.
const N_INLINE: usize = 24;

/// The words of a call.
#[derive(Debug, Clone, Default)]
pub struct CallKey {
    inline: [u64; N_INLINE],
    n_inline: usize,
    /// All words, once there are more than fit inline.
    spilled: Vec<u64>,
}

impl CallKey {
    /// Begins with the op and its arguments. `n_operands` operands follow.
    #[inline]
    pub fn call(&mut self, op: Op, attrs: &[Attr], n_operands: usize) {
        self.word(op as u64 | (attrs.len() as u64) << 16 | (n_operands as u64) << 32);
        for attr in attrs {
            self.attr(attr);
        }
    }

    /// Adds an operand: its dtype and layout, and whether it stands for a plain number.
    #[inline]
    pub fn operand(&mut self, dtype: DType, sizes: &[usize], strides: &[usize], number: bool) {
        let header = dtype as u64 | (number as u64) << 8 | (sizes.len() as u64) << 16;
        let end = self.n_inline + 1 + 2 * sizes.len();
        if let Some([first, rest @ ..]) = self.inline.get_mut(self.n_inline..end) {
            *first = header;
            for ((pair, &size), &stride) in rest.chunks_exact_mut(2).zip(sizes).zip(strides) {
                (pair[0], pair[1]) = (size as u64, stride as u64);
            }
            self.n_inline = end;
            return;
        }
        self.word(header);
        sizes.iter().zip(strides).for_each(|(&size, &stride)| {
            self.word(size as u64);
            self.word(stride as u64);
        });
    }

    /// Adds a word that distinguishes calls.
    #[inline]
    pub fn word(&mut self, word: u64) {
        if self.n_inline < N_INLINE {
            self.inline[self.n_inline] = word;
            self.n_inline += 1;
        } else {
            self.spill(word);
        }
    }

    #[cold]
    fn spill(&mut self, word: u64) {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(&self.inline);
        }
        self.spilled.push(word);
    }

    /// Adds an argument. Every kind has its own low byte, and lists and strings begin with their length, so no two
    /// arguments have the same words.
    #[inline]
    fn attr(&mut self, attr: &Attr) {
        match attr {
            Attr::None => self.word(0),
            Attr::Scalar(Scalar::Bool(value)) => self.word(1 | (*value as u64) << 8),
            Attr::Scalar(Scalar::Int(value)) => {
                self.word(2);
                self.word(*value as u64);
            }
            Attr::Scalar(Scalar::Float(value)) => {
                self.word(3);
                self.word(value.to_bits());
            }
            Attr::DType(dtype) => self.word(4 | (*dtype as u64) << 8),
            Attr::Ints(values) => {
                self.word(5 | (values.len() as u64) << 8);
                values.iter().for_each(|&value| self.word(value as u64));
            }
            Attr::MemoryFormat(format) => self.word(7 | (*format as u64) << 8),
            Attr::Str(word) => {
                self.word(6 | (word.len() as u64) << 8);
                for chunk in word.as_bytes().chunks(8) {
                    let mut bytes = [0; 8];
                    bytes[..chunk.len()].copy_from_slice(chunk);
                    self.word(u64::from_ne_bytes(bytes));
                }
            }
        }
    }
}

impl Deref for CallKey {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        if self.spilled.is_empty() { &self.inline[..self.n_inline] } else { &self.spilled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::MemoryFormat;

    /// Keys of calls that differ in one thing each are different, and equal calls have equal keys.
    #[test]
    fn different_calls_have_different_keys() {
        let attrs: Vec<Vec<Attr>> = vec![
            vec![],
            vec![Attr::None],
            vec![Attr::None, Attr::None],
            vec![Attr::int(0)],
            vec![Attr::int(1)],
            vec![Attr::bool(false)],
            vec![Attr::bool(true)],
            vec![Attr::float(0.0)],
            vec![Attr::float(-0.0)],
            vec![Attr::float(1.0)],
            vec![Attr::DType(DType::F32)],
            vec![Attr::DType(DType::F64)],
            vec![Attr::MemoryFormat(MemoryFormat::Contiguous)],
            vec![Attr::MemoryFormat(MemoryFormat::ChannelsLast)],
            vec![Attr::ints(&[])],
            vec![Attr::ints(&[0])],
            vec![Attr::ints(&[0, 0])],
            vec![Attr::ints(&[0]), Attr::None],
            vec![Attr::Str("".into())],
            vec![Attr::Str("a".into())],
            vec![Attr::Str("a\0".into())],
            vec![Attr::Str("longer than a word".into())],
            vec![Attr::ints(&[7; 23])],
            vec![Attr::ints(&[7; 24])],
            vec![Attr::ints(&[7; 99])],
        ];
        const WIDE: usize = 1 << 32;
        let operands: [(DType, &[usize], &[usize], bool); 10] = [
            (DType::F32, &[], &[], false),
            (DType::F32, &[], &[], true),
            (DType::F64, &[], &[], false),
            (DType::F32, &[2], &[1], false),
            (DType::F32, &[1], &[2], false),
            (DType::F32, &[2, 1], &[1, 2], false),
            (DType::F32, &[2, 2], &[1, 1], false),
            (DType::F32, &[WIDE], &[1], false),
            (DType::F32, &[1], &[WIDE], false),
            (DType::F32, &[WIDE + 1], &[1], false),
        ];
        let mut keys = Vec::new();
        for op in [Op::Add, Op::Sub] {
            for attrs in &attrs {
                let mut key = CallKey::default();
                key.call(op, attrs, 0);
                keys.push(key);
                for (dtype, sizes, strides, number) in operands {
                    let mut key = CallKey::default();
                    key.call(op, attrs, 1);
                    key.operand(dtype, sizes, strides, number);
                    keys.push(key);
                }
            }
        }
        for (at, key) in keys.iter().enumerate() {
            assert!(keys[..at].iter().all(|other| other[..] != key[..]), "{key:?} stands for two calls");
        }
    }
}
