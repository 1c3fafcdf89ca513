//! Zip archives, as far as files of tensors use them: members that are stored or deflated, read in place.
//!
//! The directory at the end of the archive says all there is; it is checked as a whole. Members lie inside the archive
//! and do not overlap, so what they hold is bounded by what the archive is. Names are keys and never paths. Encrypted
//! members and other methods are refused. Archives are written with stored members alone, which can be mapped.

use crate::device::roomy;
use crate::error::Result;
use crate::formats::file::{Output, shown};
use std::ops::Range;

const LOCAL: [u8; 4] = *b"PK\x03\x04";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR_64: [u8; 4] = *b"PK\x06\x07";
/// Bytes of the records before their names.
const LOCAL_LEN: usize = 30;
const CENTRAL_LEN: usize = 46;
const END_LEN: usize = 22;
const END_64_LEN: usize = 56;
const LOCATOR_LEN: usize = 20;
/// Deflate makes no more bytes than this of one.
const MAX_RATIO: usize = 1032;
/// Where a stored member begins is a multiple of this in archives that are written here.
const ALIGNMENT: u64 = 64;
/// The field that pads a local header.
const PADDING_FIELD: u16 = 0x7066;

/// A member of an archive.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Where its bytes are in the archive.
    pub(crate) range: Range<usize>,
    /// How many bytes it has when it is not packed.
    pub(crate) len: usize,
    pub(crate) is_deflated: bool,
    checksum: u32,
}

/// The members of an archive, in the order of its directory.
///
/// # Errors
/// What is wrong with the archive, and with which member.
pub(crate) fn members(bytes: &[u8]) -> Result<Vec<Member>, String> {
    let (mut at, end, count) = directory(bytes)?;
    let mut members: Vec<Member> = Vec::new();
    while at < end {
        let record = bytes.get(at..end).unwrap_or_default();
        let (member, len) = central(bytes, record).map_err(|what| format!("member {}: {what}", members.len()))?;
        members.push(member);
        at += len;
    }
    if members.len() as u64 != count {
        return Err(format!("the directory has {} members, and says that it has {count}", members.len()));
    }
    let mut sorted: Vec<&Member> = members.iter().collect();
    sorted.sort_by_key(|member| (member.range.start, member.range.end));
    match sorted.windows(2).find(|pair| pair[1].range.start < pair[0].range.end) {
        None => Ok(members),
        Some(pair) => Err(format!("the members {} and {} overlap", shown(&pair[0].name), shown(&pair[1].name))),
    }
}

/// Begin and end of the directory, and how many members it has.
fn directory(bytes: &[u8]) -> Result<(usize, usize, u64), String> {
    // A comment of up to 64 KiB may follow the record.
    let first = bytes.len().saturating_sub(END_LEN + usize::from(u16::MAX));
    let mut tail = bytes.get(first..).unwrap_or_default().windows(END_LEN).enumerate().rev();
    let is_end = |(at, window): &(usize, &[u8])| {
        window.starts_with(&END) && first + at + END_LEN + usize::from(u16_at(window, 20)) == bytes.len()
    };
    let (at, record) = tail.find(is_end).ok_or("the archive has no directory; it is truncated")?;
    let at = first + at;
    let (mut count, mut size, mut start) =
        (u64::from(u16_at(record, 10)), u64::from(u32_at(record, 12)), u64::from(u32_at(record, 16)));
    let mut end = at;
    let is_large = count == u64::from(u16::MAX) || size == u64::from(u32::MAX) || start == u64::from(u32::MAX);
    let locator = at.checked_sub(LOCATOR_LEN).and_then(|from| bytes.get(from..at));
    // Some writers add the record of large archives to small ones.
    if let Some(locator) = locator.filter(|locator| locator.starts_with(&LOCATOR_64)) {
        let from = usize::try_from(u64_at(locator, 8)).unwrap_or(usize::MAX);
        let record = from.checked_add(END_64_LEN).and_then(|to| bytes.get(from..to));
        let record = record.filter(|record| record.starts_with(&END_64)).ok_or("a large archive has no directory")?;
        (count, size, start) = (u64_at(record, 32), u64_at(record, 40), u64_at(record, 48));
        end = from;
    } else if is_large {
        return Err("a large archive has no locator".into());
    }
    match (usize::try_from(start), start.checked_add(size)) {
        (Ok(start), Some(stop)) if stop == end as u64 => Ok((start, end, count)),
        _ => Err("the directory is not where the archive says; it is damaged".into()),
    }
}

/// The member that a record of the directory describes, and the record's length.
fn central(bytes: &[u8], record: &[u8]) -> Result<(Member, usize), String> {
    if record.len() < CENTRAL_LEN || !record.starts_with(&CENTRAL) {
        return Err("the directory is damaged".into());
    }
    let [n_name, n_extra, n_comment] = [28, 30, 32].map(|at| usize::from(u16_at(record, at)));
    let len = CENTRAL_LEN + n_name + n_extra + n_comment;
    let tail = record.get(CENTRAL_LEN..len).ok_or("the directory is truncated")?;
    let name = std::str::from_utf8(&tail[..n_name]).map_err(|_| "its name is no UTF-8")?.to_owned();
    let say = |what: &str| format!("{}: {what}", shown(&name));
    let (flags, method) = (u16_at(record, 8), u16_at(record, 10));
    if flags & 1 != 0 {
        return Err(say("it is encrypted"));
    }
    if !matches!(method, 0 | 8) {
        return Err(say(&format!("it is packed by method {method}; stored and deflated members are read")));
    }
    let [packed, unpacked, start] = wide_numbers(record, &tail[n_name..n_name + n_extra]).map_err(|what| say(&what))?;
    let local = start.checked_add(LOCAL_LEN).and_then(|to| bytes.get(start..to));
    let local =
        local.filter(|local| local.starts_with(&LOCAL)).ok_or_else(|| say("it is not where the directory says"))?;
    let (n_own, n_more) = (usize::from(u16_at(local, 26)), usize::from(u16_at(local, 28)));
    let from = start + LOCAL_LEN + n_own + n_more;
    if bytes.get(start + LOCAL_LEN..start + LOCAL_LEN + n_own) != Some(name.as_bytes()) {
        return Err(say("it has another name in the archive"));
    }
    let range = from..from.checked_add(packed).filter(|&to| to <= bytes.len()).ok_or_else(|| say("it is truncated"))?;
    let is_deflated = method == 8;
    if !is_deflated && packed != unpacked {
        return Err(say(&format!("it is stored in {packed} bytes, and has {unpacked}")));
    }
    if is_deflated && unpacked / MAX_RATIO > packed {
        return Err(say(&format!("{packed} packed bytes cannot be {unpacked}")));
    }
    Ok((Member { name, range, len: unpacked, is_deflated, checksum: u32_at(record, 16) }, len))
}

/// Packed and unpacked length and the start of a member, which may stand in a field of 64-bit numbers.
fn wide_numbers(record: &[u8], extra: &[u8]) -> Result<[usize; 3], String> {
    let mut wide = None;
    let mut rest = extra;
    while let Some((head, tail)) = rest.split_first_chunk::<4>() {
        let len = usize::from(u16_at(head, 2));
        let field = tail.get(..len).ok_or("its extra field is truncated")?;
        if u16_at(head, 0) == 1 {
            wide = Some(field);
        }
        rest = &tail[len..];
    }
    let mut wide = wide.unwrap_or_default().chunks_exact(8);
    // In the field they stand in this order, and only those that do not fit.
    let mut number = |at: usize| match u32_at(record, at) {
        u32::MAX => wide.next().map(|bytes| u64_at(bytes, 0)).ok_or("a 64-bit number is missing".to_owned()),
        short => Ok(u64::from(short)),
    };
    let (unpacked, packed, start) = (number(24)?, number(20)?, number(42)?);
    let fit = |number: u64| usize::try_from(number).map_err(|_| "its numbers are too large".to_owned());
    Ok([fit(packed)?, fit(unpacked)?, fit(start)?])
}

impl Member {
    /// The bytes of the member, unpacked.
    ///
    /// # Errors
    /// If they are damaged, or there is not enough memory.
    pub(crate) fn unpacked(&self, archive: &[u8]) -> Result<Vec<u8>, String> {
        let packed = &archive[self.range.clone()];
        let mut out: Vec<u8> = roomy(self.len).map_err(|error| error.to_string())?;
        if self.is_deflated {
            out.resize(self.len, 0);
            let n = miniz_oxide::inflate::decompress_slice_iter_to_slice(&mut out, [packed].into_iter(), false, true);
            if n != Ok(self.len) {
                return Err("its packed bytes are damaged".into());
            }
        } else {
            out.extend_from_slice(packed);
        }
        self.check(&out).map(|()| out)
    }

    /// Compares bytes of the member with its checksum.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), String> {
        let found = checksum(!0, bytes) ^ !0;
        if found == self.checksum { Ok(()) } else { Err("its checksum is wrong; it is damaged".into()) }
    }
}

/// Writes an archive of stored members, one after another.
pub(crate) struct Writer<'w, 'p> {
    output: &'w mut Output<'p>,
    directory: Vec<u8>,
    count: u64,
}

impl<'w, 'p> Writer<'w, 'p> {
    pub(crate) fn new(output: &'w mut Output<'p>) -> Writer<'w, 'p> {
        Writer { output, directory: Vec::new(), count: 0 }
    }

    /// Writes a member of two parts.
    pub(crate) fn put(&mut self, name: &str, parts: [&[u8]; 2]) -> Result<()> {
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let checksum = parts.iter().fold(!0, |state, part| checksum(state, part)) ^ !0;
        let start = self.output.at;
        let n_name = u16::try_from(name.len()).map_err(|_| too_long(name))?;
        // Sizes in 64 bits, whatever they are, and a field of zeros up to the next aligned byte.
        let before = start + (LOCAL_LEN + 20 + 4) as u64 + u64::from(n_name);
        let padding = (before.next_multiple_of(ALIGNMENT) - before) as u16;
        let mut local = LOCAL.to_vec();
        put_common(&mut local, checksum, n_name);
        local.extend((20 + 4 + padding).to_le_bytes());
        local.extend(name.as_bytes());
        local.extend([1u16.to_le_bytes(), 16u16.to_le_bytes()].concat());
        local.extend([len.to_le_bytes(), len.to_le_bytes()].concat());
        local.extend([PADDING_FIELD.to_le_bytes(), padding.to_le_bytes()].concat());
        local.extend(std::iter::repeat_n(0, usize::from(padding)));
        self.output.put(&local)?;
        parts.iter().try_for_each(|part| self.output.put(part))?;

        self.directory.extend(CENTRAL);
        self.directory.extend(45u16.to_le_bytes());
        put_common(&mut self.directory, checksum, n_name);
        self.directory.extend(28u16.to_le_bytes());
        // No comment, the first disk, and no attributes; then the start, which is in the field as well.
        self.directory.extend([0; 10]);
        self.directory.extend(u32::MAX.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.directory.extend([1u16.to_le_bytes(), 24u16.to_le_bytes()].concat());
        [len, len, start].iter().for_each(|number| self.directory.extend(number.to_le_bytes()));
        self.count += 1;
        Ok(())
    }

    /// Writes the directory.
    pub(crate) fn finish(self) -> Result<()> {
        let (start, size, count) = (self.output.at, self.directory.len() as u64, self.count);
        self.output.put(&self.directory)?;
        let is_large = count >= u64::from(u16::MAX) || start + size >= u64::from(u32::MAX);
        let mut end = Vec::new();
        if is_large {
            end.extend(END_64);
            end.extend((END_64_LEN as u64 - 12).to_le_bytes());
            end.extend([45u16.to_le_bytes(), 45u16.to_le_bytes()].concat());
            end.extend([0; 8]);
            [count, count, size, start].iter().for_each(|number| end.extend(number.to_le_bytes()));
            end.extend(LOCATOR_64);
            end.extend([0; 4]);
            end.extend((start + size).to_le_bytes());
            end.extend(1u32.to_le_bytes());
        }
        let short = |number: u64| u32::try_from(number).ok().filter(|_| !is_large).unwrap_or(u32::MAX);
        let n = u16::try_from(count).ok().filter(|_| !is_large).unwrap_or(u16::MAX);
        end.extend(END);
        end.extend([0; 4]);
        end.extend([n.to_le_bytes(), n.to_le_bytes()].concat());
        end.extend([short(size).to_le_bytes(), short(start).to_le_bytes()].concat());
        end.extend([0; 2]);
        self.output.put(&end)
    }
}

/// What a local header and the directory say in the same way: version, flags for UTF-8, no method, a date, the
/// checksum, lengths that are in a field, and the length of the name.
fn put_common(out: &mut Vec<u8>, checksum: u32, n_name: u16) {
    // 1980-01-01, the first day of the format: archives of equal tensors are equal.
    for short in [45u16, 1 << 11, 0, 0, 0x21] {
        out.extend(short.to_le_bytes());
    }
    out.extend(checksum.to_le_bytes());
    out.extend([0xff; 8]);
    out.extend(n_name.to_le_bytes());
}

fn too_long(name: &str) -> crate::Error {
    crate::Error::argument("save", format!("the name {} has {} bytes; an archive takes 65535", shown(name), name.len()))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Remainders for eight bytes at a time.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = (state >> 1) ^ (if state & 1 != 0 { 0xedb8_8320 } else { 0 });
            bit += 1;
        }
        tables[0][byte] = state;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The state of CRC-32 after more bytes.
fn checksum(state: u32, bytes: &[u8]) -> u32 {
    let mut chunks = bytes.chunks_exact(8);
    let state = chunks.by_ref().fold(state, |state, chunk| {
        let word = u64_at(chunk, 0) ^ u64::from(state);
        (0..8).fold(0, |sum, at| sum ^ TABLES[7 - at][(word >> (8 * at) & 0xff) as usize])
    });
    let byte = |state: u32, byte: &u8| (state >> 8) ^ TABLES[0][((state ^ u32::from(*byte)) & 0xff) as usize];
    chunks.remainder().iter().fold(state, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(checksum(!0, b"123456789") ^ !0, 0xcbf4_3926);
        assert_eq!(checksum(!0, b"") ^ !0, 0);
        let bytes: Vec<u8> = (0..=255).collect();
        let in_two = checksum(checksum(!0, &bytes[..13]), &bytes[13..]);
        assert_eq!((in_two, in_two ^ !0), (checksum(!0, &bytes), 0x2905_8c73));
    }
}
