//! Capture: what a compiled function does is what the function does, whatever it does.
//!
//! [`CASES`](cases::CASES) are functions that return, write, draw, capture, read, fail; [`check`](check::check) calls
//! each one eagerly and compiled, side by side, and compares everything that can be seen.

mod cache;
mod cases;
mod check;
mod deferred;
mod first_call;
mod gradients;
mod in_place;
mod policies;
mod questions;
mod structs;
mod threads;
mod tuning;
