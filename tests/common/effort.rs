//! How much the tests do.
//!
//! By default they take minutes. `OPFUSE_TEST_LONG=1` runs what is slow, as CI does: all random cases, planted bugs and
//! the long suites of the emulator. `OPFUSE_TEST_LONG=all` also runs every layout and every golden call on the fakes of
//! CUDA, which takes hours. `OPFUSE_FUZZ=n` sets how many cases each random test has, `OPFUSE_FIRST_SEED=n`
//! sets the first seed, and `OPFUSE_SEED=n` runs the case of one seed alone. `OPFUSE_FUZZ_TARGETS=npy_file,npz_file`
//! names the parsers that are fuzzed.

#![allow(dead_code, reason = "every test uses a part of it")]

use std::ops::Range;

/// Whether what is slow runs.
pub(crate) fn is_long() -> bool {
    std::env::var("OPFUSE_TEST_LONG").is_ok_and(|value| !value.is_empty() && value != "0")
}

/// Whether what takes hours runs too.
pub(crate) fn is_exhaustive() -> bool {
    std::env::var("OPFUSE_TEST_LONG").is_ok_and(|value| value == "all")
}

/// Whether a test that is slow is left out; says so if it is.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn is_left_out() -> bool {
    if !is_long() {
        eprintln!("skipped: it is slow, and runs with OPFUSE_TEST_LONG=1");
    }
    !is_long()
}

/// How many cases a random test has.
pub(crate) fn n_cases(short: u64, long: u64) -> u64 {
    number("OPFUSE_FUZZ").unwrap_or(if is_long() { long } else { short })
}

/// The seeds of the cases of a random test.
pub(crate) fn seeds(short: u64, long: u64) -> Range<u64> {
    seeds_below(n_cases(short, long))
}

/// So many seeds, or the one that is asked for.
pub(crate) fn seeds_below(count: u64) -> Range<u64> {
    let first = number("OPFUSE_FIRST_SEED").unwrap_or(0);
    number("OPFUSE_SEED").map_or(first..first + count, |seed| seed..seed + 1)
}

/// The seed of a random test whose cases are drawn from one stream of numbers.
pub(crate) fn first_seed(otherwise: u64) -> u64 {
    number("OPFUSE_FIRST_SEED").unwrap_or(otherwise)
}

/// Whether a parser is among those that are fuzzed: all, or those that `OPFUSE_FUZZ_TARGETS` names.
pub(crate) fn is_fuzzed(name: &str) -> bool {
    std::env::var("OPFUSE_FUZZ_TARGETS").map_or(true, |names| names.split(',').any(|one| one == name))
}

/// Whether the environment says which random cases run.
pub(crate) fn is_chosen() -> bool {
    number("OPFUSE_FUZZ").or(number("OPFUSE_SEED")).is_some()
}

/// Whether the environment names one random case.
pub(crate) fn is_single() -> bool {
    number("OPFUSE_SEED").is_some()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, not a number")))
}
