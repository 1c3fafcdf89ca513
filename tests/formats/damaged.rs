//! Damaged and hostile files: each is loaded as some tensors, or is an error that names the file.

use crate::archives::crc32;
use crate::{Folder, check_error, effort, put};
use opfuse::device::allocator;
use opfuse::exported::Program;
use opfuse::formats::{npy, npz, safetensors};
use opfuse::{DType, Error, Result, StateDict, Tensor, load};
use std::collections::BTreeMap;
use std::path::Path;

/// Cases of each kind of file in a short run and in a long one.
const CASES: [u64; 2] = [1_500, 20_000];

/// A file of safetensors with this header, and so many bytes of elements.
fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn headers_of_safetensors_are_checked_as_a_whole() {
    let folder = Folder::new("headers");
    let path = folder.file("m.safetensors");
    let f32s = |name: &str, size: &str, from: &str, to: &str| {
        format!(r#""{name}":{{"dtype":"F32","shape":[{size}],"data_offsets":[{from},{to}]}}"#)
    };
    let cases: [(String, usize, &[&str]); 17] = [
        (format!("{{{}}}", f32s("w", "2", "0", "8")), 7, &["\"w\"", "ends at 8", "7 bytes", "truncated"]),
        (format!("{{{}}}", f32s("w", "2", "0", "8")), 9, &["1 bytes at the end"]),
        (format!("{{{}}}", f32s("w", "3", "0", "8")), 8, &["\"w\"", "[3]", "12 bytes", "offsets 8"]),
        (format!("{{{}}}", f32s("w", "2", "4", "12")), 12, &["\"w\"", "begins at 4", "before it"]),
        (
            format!("{{{},{}}}", f32s("a", "2", "0", "8"), f32s("b", "2", "4", "12")),
            12,
            &["\"b\"", "inside of another"],
        ),
        (format!("{{{},{}}}", f32s("a", "2", "0", "8"), f32s("a", "2", "8", "16")), 16, &["same name"]),
        (format!("{{{}}}", f32s("w", "4294967296,4294967296", "0", "8")), 8, &["\"w\"", "4294967296"]),
        (format!("{{{}}}", f32s("w", "18446744073709551616", "0", "8")), 8, &["below 2^64"]),
        (format!("{{{}}}", f32s("w", "-1", "0", "8")), 8, &["at byte"]),
        (format!("{{{}}}", f32s("w", "2", "8", "0")), 8, &["offsets in order"]),
        (format!("{{{}}}", f32s("w", &vec!["1"; 100].join(","), "0", "4")), 4, &["dims"]),
        (r#"{"w":{"dtype":"F7","shape":[],"data_offsets":[0,4]}}"#.into(), 4, &["F7"]),
        (r#"{"w":{"dtype":"F32","data_offsets":[0,4]}}"#.into(), 4, &["\"w\"", "needs"]),
        (r#"{"w":{"dtype":"F32","shape":[],"data_offsets":[0,4],"x":0}}"#.into(), 4, &["\"x\""]),
        (r#"{"__metadata__":{"a":[]}}"#.into(), 0, &["`\"` is expected"]),
        (r#"{"w":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}"#.into(), 1, &["whole number of bytes"]),
        ("{} x".into(), 0, &["after the end"]),
    ];
    for (header, data, parts) in cases {
        put(&path, &with_header(&header, data));
        check_error(load(&path), &[&["m.safetensors"], parts].concat());
    }
    let mut long = u64::MAX.to_le_bytes().to_vec();
    long.extend(b"{}");
    put(&path, &long);
    check_error(safetensors::SafeTensors::open(&path), &["m.safetensors", "18446744073709551615 bytes", "2 follow"]);
    put(&path, &with_header(&"[".repeat(300_000), 0));
    check_error(safetensors::SafeTensors::open(&path), &["header", "at byte 0"]);
    put(&path, b"{\"weight_map\": {}, \"deep\": [[[[[[[");
    check_error(load(&path), &["index"]);
    put(&path, format!("{{\"deep\":{}", "[".repeat(1 << 20)).as_bytes());
    check_error(load(&path), &["nested too deeply"]);
    // A dtype that is not there is an error of the tensor, and not of the file.
    put(&path, &with_header(r#"{"w":{"dtype":"U32","shape":[1],"data_offsets":[0,4]}}"#, 4));
    let file = safetensors::SafeTensors::open(&path).expect("the header is right");
    check_error(file.tensor("w"), &["\"w\"", "U32", "convert"]);
}

#[test]
fn what_is_no_file_of_tensors_is_refused() -> Result<()> {
    let folder = Folder::new("others");
    let path = folder.file("x");
    for bytes in [&b""[..], b"\x80\x02}q\x00.", b"text", &[0; 100]] {
        put(&path, bytes);
        check_error(load(&path), &["x: is no file of safetensors"]);
    }
    check_error(load(&folder.0), &["no regular file"]);
    check_error(load(folder.file("none")), &["none: cannot be opened"]);
    #[cfg(unix)]
    check_error(load("/dev/zero"), &["/dev/zero", "no regular file"]);
    put(&path, b"\x93NUMPY\x04\x00\x00\x00");
    check_error(npy::load(&path), &["version 4"]);
    npy::save(&path, &Tensor::zeros(&[3], DType::F32)?)?;
    let mut bytes = std::fs::read(&path).expect("it was written just now");
    bytes.push(0);
    put(&path, &bytes);
    check_error(npy::load(&path), &["1 bytes follow"]);
    put(&path, &bytes[..bytes.len() - 2]);
    check_error(npy::load(&path), &["need 12 bytes, but 11", "truncated"]);
    Ok(())
}

#[test]
fn archives_that_say_too_much_are_refused() -> Result<()> {
    let folder = Folder::new("archives");
    let path = folder.file("x.npz");
    let x = Tensor::arange(0, 100, 1)?;
    npz::save(&path, &StateDict::from([("a".to_owned(), x.clone()), ("b".to_owned(), x)]))?;
    let bytes = std::fs::read(&path).expect("it was written just now");
    let directory = bytes.windows(4).position(|part| part == b"PK\x01\x02").expect("it has one");
    let change = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        put(&path, &bytes);
    };
    // Encrypted, another method, a size that does not fit, a start in another member.
    change(directory + 8, &[1, 8]);
    check_error(load(&path), &["x.npz", "\"a.npy\"", "encrypted"]);
    change(directory + 10, &[14]);
    check_error(load(&path), &["\"a.npy\"", "method 14"]);
    // The field of 64-bit numbers has the unpacked and packed sizes and the start.
    let field = directory + 46 + "a.npy".len() + 4;
    change(field, &u64::MAX.to_le_bytes());
    check_error(load(&path), &["\"a.npy\""]);
    change(field + 8, &(1u64 << 40).to_le_bytes());
    check_error(load(&path), &["\"a.npy\"", "truncated"]);
    change(field + 16, &7u64.to_le_bytes());
    check_error(load(&path), &["\"a.npy\"", "not where"]);
    // A bomb: a kilobyte that says that it is a terabyte.
    change(directory + 10, &[8]);
    let mut bomb = std::fs::read(&path).expect("it was written just now");
    bomb[field..field + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    put(&path, &bomb);
    check_error(load(&path), &["\"a.npy\"", "packed bytes cannot be"]);
    // Both members are the same bytes.
    let second = directory + 4 + bytes[directory + 4..].windows(4).position(|part| part == b"PK\x01\x02").expect("two");
    let mut same = bytes.clone();
    let (first, rest) = same.split_at_mut(second);
    rest[..bytes.len() - second].get_mut(..second - directory).expect("as long").copy_from_slice(&first[directory..]);
    put(&path, &same);
    check_error(load(&path), &["overlap"]);
    Ok(())
}

/// A generator that gives the same numbers everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % n.max(1) as u64) as usize
    }
}

/// Changes a file a little: a bit, a number, a digit, a piece that is missing, doubled or moved.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        if bytes.is_empty() {
            return;
        }
        // Most of what matters is at the beginning and at the end.
        let at = match random.below(3) {
            0 => random.below(bytes.len().min(160)),
            1 => bytes.len() - 1 - random.below(bytes.len().min(160)),
            _ => random.below(bytes.len()),
        };
        let len = (1 + random.below(12)).min(bytes.len() - at);
        match random.below(8) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes[at..at + len].fill([0, 0xff, b'9', b'['][random.below(4)]),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..at + len)),
            5 => {
                let piece = bytes[at..at + len].to_vec();
                let to = random.below(bytes.len());
                drop(bytes.splice(to..to, piece));
            }
            6 => {
                // A number of the text becomes another one.
                if let Some(digit) = bytes[at..].iter().position(u8::is_ascii_digit) {
                    bytes[at + digit] = b'0' + random.below(10) as u8;
                }
            }
            _ => {
                let piece = bytes[at..at + len].to_vec();
                let to = random.below(bytes.len() - len + 1);
                bytes[to..to + len].copy_from_slice(&piece);
            }
        }
    }
}

/// Changes the text of an exported program, with checksums to match, and runs what can be loaded.
#[test]
fn damaged_programs_are_errors() {
    const LIMIT: usize = 1 << 28;
    let folder = Folder::new("program");
    let (path, dir) = (folder.file("x.pt2"), concat!(env!("CARGO_MANIFEST_DIR"), "/tests/formats/exported"));
    let whole = std::fs::read(format!("{dir}/perceptron.pt2")).expect("it is checked in");
    let arrays = npz::load(format!("{dir}/perceptron.npz")).expect("it is checked in");
    let inputs = [arrays["0.in.0"].clone(), arrays["0.in.1"].clone()];
    let find = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).position(|window| window == part);
    let start = find(&whole, b"{\"graph_module\"").expect("the program is stored");
    let len = find(&whole[start..], b"PK\x07\x08").or_else(|| find(&whole[start..], b"PK\x03\x04"));
    let len = len.expect("another member follows");
    let len = whole[start..start + len].iter().rposition(|byte| *byte == b'}').expect("the text ends") + 1;
    let before = crc32(&whole[start..start + len]).to_le_bytes();
    allocator::set_limit(LIMIT);
    let (mut loaded, mut ran) = (0, 0);
    for seed in effort::seeds(CASES[0], CASES[1]) {
        let mut random = Random(seed);
        let mut bytes = whole.clone();
        let text = &mut bytes[start..start + len];
        for _ in 0..1 + random.below(2) {
            let at = random.below(len);
            match random.below(3) {
                // Letters, digits and signs become others; the form stays, so that what is bound is wrong.
                0 => text[at] = if text[at].is_ascii_digit() { b'0' + random.below(10) as u8 } else { text[at] },
                1 => text[at] = if text[at].is_ascii_lowercase() { b'a' + random.below(26) as u8 } else { text[at] },
                _ => text[at] = random.below(128) as u8,
            }
        }
        let after = crc32(&bytes[start..start + len]).to_le_bytes();
        for at in 0..bytes.len() - 4 {
            if bytes[at..at + 4] == before {
                bytes[at..at + 4].copy_from_slice(&after);
            }
        }
        put(&path, &bytes);
        let Ok(program) = Program::load(&path) else { continue };
        loaded += 1;
        ran += usize::from(program.call_eager(&inputs).is_ok());
        let _text = format!("{program:?} {:?}", program.operators());
    }
    allocator::set_limit(usize::MAX);
    assert!(ran > 0 && loaded > ran, "of {loaded} programs {ran} ran; damage is too much or too little");
}

/// Loads damaged forms of a file, and looks at every element of what comes.
fn survive(name: &str, whole: &[u8], path: &Path) {
    let mut loaded = 0;
    for seed in effort::seeds(CASES[0], CASES[1]) {
        let mut bytes = whole.to_vec();
        damage(&mut bytes, &mut Random(seed));
        put(path, &bytes);
        match load(path) {
            Ok(tensors) => {
                loaded += 1;
                for (tensor_name, tensor) in tensors {
                    let most = bytes.len() * 1032;
                    let has = tensor.numel() * tensor.dtype().size();
                    assert!(has <= most, "{name}, seed {seed}: {tensor_name} has {has} bytes");
                    let read = tensor.to_dtype(DType::F64).and_then(|x| x.to_vec::<f64>());
                    assert!(read.is_ok(), "{name}, seed {seed}: {read:?}");
                }
            }
            Err(Error::File { path: named, message }) => {
                assert!(named == path.display().to_string() && !message.is_empty(), "{name}, seed {seed}: {named}");
                assert!(message.len() < 2000, "{name}, seed {seed}: {message}");
            }
            Err(other) => panic!("{name}, seed {seed}: {other}"),
        }
    }
    assert!(loaded > 0, "{name}: not one damaged file could be loaded; is it damaged too much?");
}

#[test]
fn damaged_files_are_errors_that_name_them() -> Result<()> {
    let folder = Folder::new("damaged");
    let tensors = StateDict::from([
        ("layers.0.weight".to_owned(), Tensor::arange(0, 12, 1)?.reshape([3, 4])?),
        ("layers.0.bias".to_owned(), Tensor::full(&[3], 1.5, DType::F32)?),
        ("mask".to_owned(), Tensor::full(&[5], true, DType::Bool)?),
        ("half".to_owned(), Tensor::zeros(&[2, 3], DType::F16)?),
    ]);
    let path = folder.file("x");
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::save(&path, &tensors, &metadata)?;
    let read = || std::fs::read(&path).expect("it was written just now");
    survive("safetensors", &read(), &path);
    npy::save(&path, &tensors["layers.0.weight"])?;
    survive("npy", &read(), &path);
    npz::save(&path, &tensors)?;
    survive("npz", &read(), &path);
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/numpy");
    for name in ["deflated.npz", "stored.npz"] {
        survive(name, &std::fs::read(golden.join(name)).expect("it is checked in"), &path);
    }
    Ok(())
}
