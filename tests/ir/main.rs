//! Programs as data: their text, their plans as text, the algebraic rules, and how exact the scalar functions are.

mod graph_text;
mod math_accuracy;
