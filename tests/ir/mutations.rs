//! Mutations of seeds: of bytes and text alike, and of the lengths, offsets and checksums that files have.

use crate::parsers_of_bytes::archives::{Member, archive, members};
use crate::values::Numbers;

/// The most bytes of a case, besides what frames it.
const MAX_BYTES: usize = 4096;
/// What mutations of texts insert: pieces of all grammars, and awkward numbers.
const PIECES: &[&str] = &[
    "n0",
    "n1",
    "n999999",
    "graph {",
    "}",
    "return ",
    " = ",
    "input",
    ": f32[2,3]",
    ": i64[]#",
    ": f32[4:1]",
    "[0]",
    "add(n0, n0; 1)",
    ";",
    ",",
    "\"",
    "\\",
    "\n",
    "\r\n",
    "none",
    "true",
    "[",
    "]",
    "(",
    ")",
    "()",
    "->",
    "...",
    "*",
    "Tensor",
    "(a!)",
    "(a -> *)",
    "int[2]",
    "?",
    "=None",
    "=[0, 1]",
    "::",
    ".",
    "é",
    "\u{0}",
    "ij",
    "cuda:",
    ":0",
    "extent ",
    "number ",
    "launch ",
    " ",
];
/// Pieces of the headers and indexes of files, and of programs of `torch.export`.
const FILE_PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    "\"",
    "'",
    "\\ud800",
    "null",
    "true",
    "True",
    "\"\":",
    "__metadata__",
    "\"shape\":[0]",
    "\"dtype\":\"BOOL\"",
    "\"dtype\":\"C64\"",
    "'<c16'",
    "'|b1'",
    "(0, 9223372036854775807)",
    "../a",
    "a.safetensors",
    "\u{0}",
    "{\"as_int\":0}",
    "{\"as_none\":true}",
    "{\"as_tensor\":{\"name\":\"x\"}}",
    "{\"as_expr\":{\"expr_str\":\"Mul(Integer(2), Symbol('s7'))\"}}",
    "Add(",
    "Pow(s7, 63)",
    "FloorDiv(s7, 0)",
    "\"sizes\":[{\"as_int\":1},{\"as_int\":1}],",
    "\"requires_grad\":true,",
    "\"dtype\":12,",
    "\"dtype\":10,",
    "\"use_pickle\":true,",
    "weight_0",
    "\"tensor_meta\":{},",
    ".default",
    "torch.ops.aten.neg.default",
];
/// Numbers as text where another was, or between letters.
const AWKWARD: &[&str] = &[
    "-1",
    "0",
    "1",
    "2",
    "7",
    "4611686018427387904",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e999",
    "nan",
    "inf",
    "-0.0",
];
/// How a record of an archive begins, and the places and widths of its numbers.
type Record = (&'static [u8; 4], &'static [(usize, usize)]);

const RECORDS: [Record; 5] = [
    (b"PK\x01\x02", &[(8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)]),
    (b"PK\x03\x04", &[(6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)]),
    (b"PK\x05\x06", &[(8, 2), (10, 2), (12, 4), (16, 4), (20, 2)]),
    (b"PK\x06\x06", &[(4, 8), (24, 8), (32, 8), (40, 8), (48, 8)]),
    (b"PK\x06\x07", &[(8, 8), (16, 4)]),
];

/// A seed after some edits, for the target of that name. Half of the cases of files keep the form of the file, so that
/// what it says is what is wrong.
pub(crate) fn mutated(target: &str, numbers: &mut Numbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    let seed = seeds[any(numbers, seeds.len())].clone();
    let others: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let keeps_form = numbers.next().is_multiple_of(2);
    match target {
        "safetensors_file" if keeps_form => with_header(numbers, &seed, 0, 8),
        "npy_file" if keeps_form => match seed.get(6) {
            Some(1) => with_header(numbers, &seed, 8, 2),
            _ => with_header(numbers, &seed, 8, 4),
        },
        "npz_file" | "exported_file" if keeps_form => repacked(numbers, &seed),
        "safetensors_index" | "exported_text" if keeps_form => exchanged(numbers, seed),
        "npz_file" | "exported_file" if numbers.next().is_multiple_of(2) => with_other_numbers(numbers, seed),
        _ => {
            let pieces = if target.ends_with("_text") && target != "exported_text" { PIECES } else { FILE_PIECES };
            edited(numbers, seed, &others, pieces)
        }
    }
}

/// A number below another, or 0.
fn any(numbers: &mut Numbers, below: usize) -> usize {
    (numbers.next() % below.max(1) as u64) as usize
}

/// Bytes after some edits, which take pieces of others.
fn edited(numbers: &mut Numbers, mut bytes: Vec<u8>, others: &[&[u8]], pieces: &[&str]) -> Vec<u8> {
    for _ in 0..1 + any(numbers, 4) {
        let at = any(numbers, bytes.len() + 1);
        let end = (at + any(numbers, 12)).min(bytes.len());
        match numbers.next() % 11 {
            0 => drop(bytes.drain(at..end)),
            1 => bytes.truncate(at),
            2 => bytes[at..end].iter_mut().for_each(|byte| *byte = b' ' + (*byte ^ 21) % 95),
            3 => drop(bytes.splice(at..at, numbers.pick(pieces).bytes())),
            4 => drop(bytes.splice(at..at, numbers.pick(AWKWARD).bytes())),
            5 => drop(bytes.splice(at..end, numbers.pick(pieces).bytes())),
            6 => {
                let piece = bytes[at..end].repeat(1 + any(numbers, 300));
                drop(bytes.splice(at..at, piece));
            }
            7 => {
                let other = others[any(numbers, others.len())];
                let from = any(numbers, other.len() + 1);
                drop(bytes.splice(at.., other[from..].iter().copied()));
            }
            8 => {
                // A piece comes from elsewhere in the same bytes.
                let from = any(numbers, bytes.len() + 1);
                let piece = bytes[from..(from + any(numbers, 120)).min(bytes.len())].to_vec();
                drop(bytes.splice(at..end, piece));
            }
            9 => {
                // A number becomes another one.
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                if let Some(from) = bytes[at..].iter().position(is_digit).map(|from| at + from) {
                    let len = bytes[from..].iter().take_while(|byte| is_digit(byte)).count();
                    drop(bytes.splice(from..from + len, numbers.pick(AWKWARD).bytes()));
                }
            }
            _ => drop(bytes.splice(at..end, (0..any(numbers, 9)).map(|_| numbers.next() as u8))),
        }
        bytes.truncate(MAX_BYTES);
    }
    bytes
}

/// What a text of a file is made of, which another part of its kind may take the place of.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Number,
    Quoted,
    /// What is between brackets, with them.
    Bracketed,
}

/// The parts of a text, each with its begin and its end.
fn parts(text: &[u8]) -> Vec<(Part, usize, usize)> {
    let (mut parts, mut open, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(&byte) = text.get(at) {
        let from = at;
        at += 1;
        match byte {
            b'"' | b'\'' => {
                at += text[at..].iter().position(|&other| other == byte).map_or(0, |len| len + 1);
                parts.push((Part::Quoted, from, at));
            }
            b'-' | b'0'..=b'9' => {
                at += text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                parts.push((Part::Number, from, at));
            }
            b'{' | b'[' | b'(' => open.push(from),
            b'}' | b']' | b')' => parts.extend(open.pop().map(|from| (Part::Bracketed, from, at))),
            _ => {}
        }
    }
    parts
}

/// A text in which other parts take the places of some. Its grammar is kept, so what it says is what is wrong.
fn exchanged(numbers: &mut Numbers, mut text: Vec<u8>) -> Vec<u8> {
    for _ in 0..1 + any(numbers, 3) {
        let parts = parts(&text);
        let Some(&(kind, from, end)) = parts.get(any(numbers, parts.len())) else { break };
        let alike: Vec<_> = parts.iter().filter(|(other, ..)| *other == kind).collect();
        let &&(_, other_from, other_end) = &alike[any(numbers, alike.len())];
        let new = match numbers.next() % 4 {
            0 if kind == Part::Number => numbers.pick(AWKWARD).as_bytes().to_vec(),
            0 if kind == Part::Bracketed && text[from + 1..end - 1].is_empty() => text[from..end].to_vec(),
            0 if kind == Part::Bracketed => [text[from], text[end - 1]].to_vec(),
            1 if kind == Part::Bracketed => [&text[from..end], b",", &text[from..end]].concat(),
            _ => text[other_from..other_end].to_vec(),
        };
        drop(text.splice(from..end, new));
        text.truncate(2 * MAX_BYTES);
    }
    text
}

/// A file with an edited header, whose length is right. The length has so many bytes at a place.
fn with_header(numbers: &mut Numbers, seed: &[u8], at: usize, width: usize) -> Vec<u8> {
    let start = at + width;
    let len = |bytes: &[u8]| bytes.iter().rev().fold(0, |len, &byte| len << 8 | usize::from(byte));
    let parts = seed.get(start..).and_then(|rest| rest.split_at_checked(len(&seed[at..start])));
    let Some((header, data)) = parts else { return edited(numbers, seed.to_vec(), &[seed], FILE_PIECES) };
    let header = match numbers.next() % 3 {
        0 => edited(numbers, header.to_vec(), &[header], FILE_PIECES),
        _ => exchanged(numbers, header.to_vec()),
    };
    let mut bytes = seed[..at].to_vec();
    bytes.extend(&header.len().to_le_bytes()[..width]);
    bytes.extend(header);
    bytes.extend(data);
    match numbers.next() % 4 {
        0 => bytes.truncate(start + any(numbers, bytes.len())),
        1 => bytes.extend(vec![1; any(numbers, 40)]),
        _ => {}
    }
    bytes
}

/// An archive with some numbers of its records changed.
fn with_other_numbers(numbers: &mut Numbers, mut bytes: Vec<u8>) -> Vec<u8> {
    let places = |bytes: &[u8]| -> Vec<(usize, usize)> {
        let windows = bytes.windows(4).enumerate();
        let record = |(at, window): (usize, &[u8])| {
            RECORDS.iter().position(|(magic, _)| window == *magic).map(|kind| (at, kind))
        };
        windows.filter_map(record).collect()
    };
    let starts = places(&bytes);
    for _ in 0..1 + any(numbers, 3) {
        let (start, kind) = numbers.pick(&starts);
        let (at, width) = numbers.pick(RECORDS[kind].1);
        let Some(place) = bytes.get_mut(start + at..start + at + width) else { continue };
        let old = place.iter().rev().fold(0u64, |old, &byte| old << 8 | u64::from(byte));
        let new = match numbers.next() % 8 {
            0 => 0,
            1 => old.wrapping_add(1),
            2 => old.wrapping_sub(1),
            3 => u64::MAX,
            4 => u64::MAX >> 1 >> (64 - 8 * width),
            5 => numbers.pick(&starts).0 as u64,
            6 => numbers.next() % 2000,
            _ => old ^ 1 << (numbers.next() % (8 * width as u64)),
        };
        place.copy_from_slice(&new.to_le_bytes()[..width]);
    }
    bytes
}

/// An archive with some members edited, renamed, doubled, exchanged or dropped. Its lengths and checksums are right.
fn repacked(numbers: &mut Numbers, seed: &[u8]) -> Vec<u8> {
    let Some(mut members) = members(seed).filter(|members| !members.is_empty()) else {
        return with_other_numbers(numbers, seed.to_vec());
    };
    for _ in 0..1 + any(numbers, 2) {
        let (at, other) = (any(numbers, members.len()), any(numbers, members.len()));
        let Some(member) = members.get(at).cloned() else { break };
        match numbers.next() % 12 {
            0 => members[at].is_deflated = true,
            1 => members.iter_mut().for_each(|member| member.is_deflated = true),
            2 => members.swap(at, other),
            3 => drop(members.remove(at)),
            4 => members.push(member),
            5 => members[at].content = members[other].content.clone(),
            6 | 7 => members[at].name = edited(numbers, member.name, &[&members[other].name], FILE_PIECES),
            _ => members[at].content = content(numbers, member),
        }
    }
    archive(&members)
}

/// The edited content of a member. An array keeps the form of its header in half of the cases.
fn content(numbers: &mut Numbers, member: Member) -> Vec<u8> {
    let is_array = member.content.starts_with(b"\x93NUMPY\x01");
    if is_array && numbers.next().is_multiple_of(2) {
        return with_header(numbers, &member.content, 8, 2);
    }
    match numbers.next() % 3 {
        0 => edited(numbers, member.content.clone(), &[&member.content], FILE_PIECES),
        _ => exchanged(numbers, member.content),
    }
}
