//! Capture: a compiled function does what the function does.
//!
//! [`CASES`](cases::CASES) are functions that return, write, draw, capture, read and fail. [`check`](check::check)
//! calls each one eagerly and compiled, side by side, and compares everything observable.

mod cache;
mod cases;
mod changing;
mod check;
mod classes;
mod custom;
mod deferred;
mod first_call;
mod found;
mod gathers;
mod gradients;
mod history;
mod in_place;
mod made;
mod numbers;
mod policies;
mod questions;
mod structs;
mod threads;
mod tuning;
mod twins;
