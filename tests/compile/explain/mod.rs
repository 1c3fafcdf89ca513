//! Reports of compiled functions: typed data, and every view of it.
//!
//! The plans of `plans/` are accepted by `UPDATE_EXPECT=1`.

mod asserts;
mod blocks;
mod copies;
mod functions;
mod html;
mod json;
mod passes;
mod plan_text;
mod report;
mod segments;
mod why;
