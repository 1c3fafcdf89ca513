//! Parsers of what comes from outside, on mutated seeds. `fuzz` drives the same functions by coverage.

use crate::effort::n_cases;
use crate::panics::message;
use crate::parsers_of_bytes::TARGETS;
use crate::values::Numbers;
use std::collections::BTreeMap;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most time for one case, in a build without optimization on a busy machine.
const MAX_TIME: Duration = Duration::from_secs(5);
/// The most bytes of a case.
const MAX_BYTES: usize = 4096;
/// What mutations insert: pieces of all grammars, and awkward numbers.
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
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e999",
    "nan",
    "inf",
    "-0.0",
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

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("it can be read")).collect()
}

/// A seed after some edits.
fn mutated(numbers: &mut Numbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    let any = |numbers: &mut Numbers, below: usize| (numbers.next() % below.max(1) as u64) as usize;
    let mut bytes = seeds[any(numbers, seeds.len())].clone();
    for _ in 0..1 + any(numbers, 4) {
        let at = any(numbers, bytes.len() + 1);
        let end = (at + any(numbers, 12)).min(bytes.len());
        match numbers.next() % 8 {
            0 => drop(bytes.drain(at..end)),
            1 => bytes.truncate(at),
            2 => bytes[at..end].iter_mut().for_each(|byte| *byte = b' ' + (*byte ^ 21) % 95),
            3 | 4 => drop(bytes.splice(at..at, numbers.pick(PIECES).bytes())),
            5 => drop(bytes.splice(at..end, numbers.pick(PIECES).bytes())),
            6 => {
                let piece = bytes[at..end].repeat(1 + any(numbers, 300));
                drop(bytes.splice(at..at, piece));
            }
            _ => {
                let other = &seeds[any(numbers, seeds.len())];
                let from = any(numbers, other.len() + 1);
                drop(bytes.splice(at.., other[from..].iter().copied()));
            }
        }
        bytes.truncate(MAX_BYTES);
    }
    bytes
}

#[test]
fn no_bytes_make_a_parser_panic_or_work_for_long() {
    let mut found = BTreeMap::new();
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        let mut numbers = Numbers::new(11);
        let n_cases = n_cases(10_000, 300_000);
        let cases = (0..n_cases).map(|_| mutated(&mut numbers, &seeds));
        for bytes in seeds.iter().cloned().chain(cases) {
            let start = Instant::now();
            let outcome = catch_unwind(|| target(&bytes)).map_err(|panic| message(&*panic));
            let outcome = outcome.and_then(|()| match start.elapsed() {
                time if time > MAX_TIME => Err(format!("it took {time:?}")),
                _ => Ok(()),
            });
            if let Err(what) = outcome {
                let line: String = what.lines().next().unwrap_or_default().chars().take(80).collect();
                let shorter = |old: &String| old.len() <= bytes.len();
                if !found.get(&format!("{name}: {line}")).is_some_and(shorter) {
                    found.insert(format!("{name}: {line}"), String::from_utf8_lossy(&bytes).into_owned());
                }
            }
        }
    }
    assert!(found.is_empty(), "{} findings:\n{found:#?}", found.len());
}
