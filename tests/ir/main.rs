//! Programs as data: their text, their plans as text, the algebraic rules, how exact the scalar functions are, and
//! absurd calls.

mod absurd;
#[path = "../common/effort.rs"]
mod effort;
mod graph_text;
mod math_accuracy;
#[path = "../common/panics.rs"]
mod panics;
#[path = "../common/values.rs"]
mod values;
