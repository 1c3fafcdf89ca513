//! Programs as data: their text, their plans as text, the algebraic rules, how exact the scalar functions are, absurd
//! calls, and parsers of what comes from outside.

mod absurd;
#[path = "../common/effort.rs"]
mod effort;
mod graph_text;
mod math_accuracy;
mod mutations;
#[path = "../common/panics.rs"]
mod panics;
mod parsers;
#[path = "../common/parsers.rs"]
mod parsers_of_bytes;
#[path = "../common/values.rs"]
mod values;
