//! The format of a file of machine code: magic number, checksum, two lengths, key, content.
//!
//! All numbers are 64 bits, little-endian. The checksum covers everything after it. The key is everything that decides
//! which code is generated. The file holds the whole key, which is compared; the file's name is only a hash of it.

use super::Miss;
use std::hash::{Hash, Hasher};

/// The magic number; another format of files has another one.
const MARK: [u8; 8] = *b"opfuse 1";
/// Bytes before the key.
const HEAD: usize = 32;

/// What code is for: this version of the library, and everything [written](Hasher::write) to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::codegen) struct Key {
    bytes: Vec<u8>,
}

impl Key {
    /// The key of `subject`. Its `Hash` must feed different bytes for different subjects, as derived ones do, because
    /// the bytes are kept and not hashed.
    pub(in crate::codegen) fn new(subject: impl Hash) -> Key {
        let mut key = Key { bytes: Vec::with_capacity(1024) };
        // The numbers of variants and the meaning of code follow from the sources, which change within a version.
        for part in [env!("CARGO_PKG_VERSION"), env!("OPFUSE_SOURCES"), std::env::consts::OS, std::env::consts::ARCH] {
            part.hash(&mut key);
        }
        subject.hash(&mut key);
        key
    }

    /// The name of the file.
    pub(super) fn name(&self) -> u64 {
        checksum(&self.bytes)
    }
}

impl Hasher for Key {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        self.name()
    }
}

/// The bytes of a file.
pub(super) fn pack(key: &Key, content: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEAD + key.bytes.len() + content.len());
    file.extend(MARK);
    file.extend([0; 8]);
    file.extend((key.bytes.len() as u64).to_le_bytes());
    file.extend((content.len() as u64).to_le_bytes());
    file.extend_from_slice(&key.bytes);
    file.extend_from_slice(content);
    let sum = checksum(&file[16..]);
    file[8..16].copy_from_slice(&sum.to_le_bytes());
    file
}

/// The content of a file, if the file is intact and belongs to the key.
pub(super) fn unpack<'a>(key: &Key, file: &'a [u8]) -> Result<&'a [u8], Miss> {
    let word = |at: usize| file.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let (Some(mark), Some(sum), Some(n_key), Some(n_content)) = (word(0), word(8), word(16), word(24)) else {
        return Err(Miss::Damaged);
    };
    if mark.to_le_bytes() != MARK {
        return Err(Miss::Other);
    }
    let whole = (HEAD as u64).checked_add(n_key).and_then(|end| end.checked_add(n_content));
    if whole != Some(file.len() as u64) || sum != checksum(&file[16..]) {
        return Err(Miss::Damaged);
    }
    let (found, content) = file[HEAD..].split_at(n_key as usize);
    if found == key.bytes { Ok(content) } else { Err(Miss::Other) }
}

/// A checksum of 64 bits over words of eight bytes, the last one padded with zeros, and the length.
///
/// Every step is a bijection, both of the sum so far and of the word. So bytes that differ within one word always
/// differ in the sum; others do except once in 2⁶⁴ times. It detects accidents. Against malice, the owner of the file
/// is checked.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, word: u64| {
        let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    };
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    step(words.fold(0x5bd1_e995, step), bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_whole() {
        for content in [&b""[..], b"c", b"content of more than one word"] {
            for subject in [vec![], vec![1u16], vec![1, 2, 3]] {
                let key = Key::new(&subject);
                let file = pack(&key, content);
                assert_eq!(unpack(&key, &file), Ok(content));
                assert_eq!(unpack(&Key::new((&subject, 1u8)), &file), Err(Miss::Other));
            }
        }
    }

    #[test]
    fn every_bit_and_every_length_counts() {
        let key = Key::new("a kernel");
        let file = pack(&key, b"its code, and a byte");
        for bit in 0..8 * file.len() {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(unpack(&key, &damaged).is_err(), "bit {bit}");
        }
        for n in 0..file.len() {
            assert_eq!(unpack(&key, &file[..n]), Err(Miss::Damaged), "{n} bytes");
        }
        for extra in [0, 1, 255] {
            assert_eq!(unpack(&key, &[&file[..], &[extra]].concat()), Err(Miss::Damaged));
        }
    }

    #[test]
    fn bits_that_differ_in_two_words_do_not_cancel() {
        let words = [0x1234_5678_9abc_def0u64, 7, 0, u64::MAX];
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let sum = checksum(&bytes(&words));
        for (first, second) in (0..64).flat_map(|first| (0..64).map(move |second| (first, second))) {
            let mut others = words;
            others[1] ^= 1 << first;
            others[2] ^= 1 << second;
            assert_ne!(sum, checksum(&bytes(&others)), "{first} and {second}");
        }
        assert_ne!(checksum(&[0; 7]), checksum(&[0; 8]));
    }
}
