//! Zip archives that tests write and read, with lengths and checksums that are right.

#![allow(dead_code, reason = "every test uses a part of it")]

/// A member of an archive.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: Vec<u8>,
    pub(crate) content: Vec<u8>,
    /// Whether it is kept as blocks of deflate, none of which is smaller than its content.
    pub(crate) is_deflated: bool,
}

impl Member {
    /// A member whose bytes are kept as they are.
    pub(crate) fn stored(name: &str, content: &[u8]) -> Member {
        Member { name: name.as_bytes().to_vec(), content: content.to_vec(), is_deflated: false }
    }
}

/// The archive of some members.
pub(crate) fn archive(members: &[Member]) -> Vec<u8> {
    let packed: Vec<(Vec<u8>, &Member)> = members
        .iter()
        .map(|member| (if member.is_deflated { deflated(&member.content) } else { member.content.clone() }, member))
        .collect();
    of_packed(&packed)
}

/// The archive of members with these bytes in place of packed ones.
pub(crate) fn of_packed(members: &[(Vec<u8>, &Member)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (packed, member) in members {
        let start = out.len() as u32;
        let method: u16 = if member.is_deflated { 8 } else { 0 };
        // Version, flags, method, date; then the checksum and lengths.
        let mut common: Vec<u8> = [20u16, 0, method, 0, 0x21].iter().flat_map(|number| number.to_le_bytes()).collect();
        let lengths = [crc32(&member.content), packed.len() as u32, member.content.len() as u32];
        common.extend(lengths.iter().flat_map(|number| number.to_le_bytes()));
        common.extend((member.name.len() as u16).to_le_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend([0; 2]);
        out.extend(&member.name);
        out.extend(packed);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&common);
        directory.extend([0; 12]);
        directory.extend(start.to_le_bytes());
        directory.extend(&member.name);
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([members.len() as u16; 2].iter().flat_map(|number| number.to_le_bytes()));
    out.extend([directory.len() as u32, start].iter().flat_map(|number| number.to_le_bytes()));
    out.extend([0; 2]);
    out
}

/// The members of an archive, if all of them are stored and the directory is as [`archive`] writes it.
pub(crate) fn members(bytes: &[u8]) -> Option<Vec<Member>> {
    let short = |at: usize| Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
    let long = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let end = bytes.len().checked_sub(22).filter(|&end| bytes[end..].starts_with(b"PK\x05\x06"))?;
    let (mut at, mut members) = (long(end + 16)?, Vec::new());
    for _ in 0..short(end + 10)? {
        if short(at + 10)? != 0 {
            return None;
        }
        let (n_name, local) = (short(at + 28)?, long(at + 42)?);
        let from = local + 30 + short(local + 26)? + short(local + 28)?;
        members.push(Member {
            name: bytes.get(at + 46..at + 46 + n_name)?.to_vec(),
            content: bytes.get(from..from + long(at + 20)?)?.to_vec(),
            is_deflated: false,
        });
        at += 46 + n_name + short(at + 30)? + short(at + 32)?;
    }
    Some(members)
}

/// Bytes as deflate that packs nothing.
fn deflated(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let n_blocks = content.len().div_ceil(0xffff).max(1);
    for at in 0..n_blocks {
        let block = &content[at * 0xffff..content.len().min((at + 1) * 0xffff)];
        let len = block.len() as u16;
        out.push(u8::from(at + 1 == n_blocks));
        out.extend([len.to_le_bytes(), (!len).to_le_bytes()].concat());
        out.extend(block);
    }
    out
}

/// Zeros as deflate, which takes 13 bits for a run of 258, and how many there are.
pub(crate) fn deflated_zeros(n_runs: usize) -> (Vec<u8>, usize) {
    // A block of the fixed code: one literal zero, then copies of 258 bytes from the byte before.
    let mut bits: Vec<bool> = vec![true, true, false];
    let code = |bits: &mut Vec<bool>, value: u32, len: u32| {
        bits.extend((0..len).rev().map(|bit| value >> bit & 1 == 1));
    };
    code(&mut bits, 0x30, 8);
    for _ in 0..n_runs {
        code(&mut bits, 0xc5, 8);
        code(&mut bits, 0, 5);
    }
    code(&mut bits, 0, 7);
    let bytes = bits.chunks(8).map(|byte| byte.iter().enumerate().map(|(at, &bit)| u8::from(bit) << at).sum());
    (bytes.collect(), 1 + 258 * n_runs)
}

/// The checksum of zip archives.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |s, _| (s >> 1) ^ (0xedb8_8320 & (s & 1).wrapping_neg()))
    };
    !bytes.iter().fold(!0, step)
}
