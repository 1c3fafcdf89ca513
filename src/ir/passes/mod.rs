//! Passes: pure functions from graph to graph, each named by a verb.
//!
//! [`PASSES`] lists them in order. Every pass walks the nodes once, operands first, and builds a new graph. Inputs keep
//! their order and number. A pass takes no flags and does not change its argument.

mod decompose;
mod eliminate;
mod fold;
mod index_directly;
mod narrow;
mod omit;
mod simplify;
mod split;
mod stages;
mod table;
mod unroll;
mod unroll_products;
mod windows;

pub use decompose::decompose;
pub use eliminate::{drop_unused, eliminate_common, eliminate_dead};
pub use fold::fold_constants;
pub use index_directly::index_directly;
pub use narrow::narrow_products;
pub use omit::omit;
pub use simplify::{RULES, Rewrite, simplify};
pub use split::{Halves, Kept, extract, split};
pub use stages::{Stage, StageInput, Stages, stages};
pub use table::{PASSES, Pass, Target, passes_for};
pub use unroll::unroll;
pub use unroll_products::unroll_products;
pub use windows::copy_windows;
