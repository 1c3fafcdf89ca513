//! The vm: the tier that generates no code, and runs a kernel over tiles that fit the first-level cache.
//!
//! A kernel becomes a list of steps. Each step is one call of a precompiled vector routine over a tile of the vector
//! loop. Every kernel can be expressed on every processor, and compiling is one walk over the instructions. Start with
//! [`VmProgram`]; `build` makes the steps, `interpreter` walks the loops, and `steps` runs each step.

mod build;
mod copying;
mod crosswise;
mod direct;
mod division;
mod folds;
mod gathered;
mod interpreter;
mod isa;
mod merged;
mod moves;
pub(super) mod narrow;
mod nodes;
mod operations;
mod pairs;
mod picking;
mod plan;
mod program;
mod routine;
mod scratch;
mod steps;
mod table;

pub use direct::PreparedRow;
pub(super) use interpreter::prefetch_range;
pub use isa::Isa;
pub use program::VmProgram;
