//! Parsers of what comes from outside, on mutated seeds. `fuzz` drives the same functions by coverage.

use crate::effort::{first_seed, is_fuzzed, n_cases};
use crate::mutations::mutated;
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

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("it can be read")).collect()
}

#[test]
fn no_bytes_make_a_parser_panic_or_work_for_long() {
    let mut found = BTreeMap::new();
    for (name, target) in TARGETS.into_iter().filter(|(name, _)| is_fuzzed(name)) {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        let mut numbers = Numbers::new(first_seed(11));
        let n_cases = n_cases(10_000, 50_000);
        let cases = (0..n_cases).map(|_| mutated(name, &mut numbers, &seeds));
        for bytes in seeds.iter().cloned().chain(cases) {
            let start = Instant::now();
            let outcome = catch_unwind(|| target(&bytes)).map_err(|panic| message(&*panic));
            let outcome = outcome.and_then(|()| match start.elapsed() {
                time if time > MAX_TIME => Err(format!("it took {time:?}")),
                _ => Ok(()),
            });
            if let Err(what) = outcome {
                let line: String = what.lines().next().unwrap_or_default().chars().take(80).collect();
                let bytes = bytes.escape_ascii().to_string();
                let shorter = |old: &String| old.len() <= bytes.len();
                if !found.get(&format!("{name}: {line}")).is_some_and(shorter) {
                    found.insert(format!("{name}: {line}"), bytes);
                }
            }
        }
    }
    assert!(found.is_empty(), "{} findings:\n{found:#?}", found.len());
}
