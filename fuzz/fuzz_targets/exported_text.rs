#![no_main]

#[path = "../../tests/common/parsers.rs"]
mod parsers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| parsers::readers::exported_text(bytes));
