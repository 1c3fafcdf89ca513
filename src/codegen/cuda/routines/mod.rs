//! Procedures on whole arrays on a device: text, words and grids, as of other kernels.
//!
//! | file | question |
//! |---|---|
//! | `lines` | which lines are there, and where does each lie? |
//! | `scans` | how are scans launched? |
//! | `sorts` | how are sorts? |
//! | `writes` | how are writes by index, and indices of several dims? |
//!
//! What always holds: the bits are those of `runtime::routine`. Where an order of elements decides them, one thread takes a line's
//! elements one after the other; lines that are few and long leave most of a device idle then, and there is no code: the reason
//! says so. An index outside its dimension is recorded as in other kernels.
//!
//! | word | what it holds |
//! |---|---|
//! | 0, 1 | lines, or whatever has a thread; elements of a line |
//! | [`FAULTS`](super::words::FAULTS) | address of the record of faults |
//! | [`SITE`](super::words::SITE) | what the launch is called there |
//! | [`LINE`] | what the kind needs: the size of the dimension that is written along, the parts of a line |
//! | from [`STEPS`] | per array its address and the distance of neighbours in a line, in bytes |
//! | then | per dim besides the line's its size, and per array a stride in bytes; then what the kind needs |

mod lines;
mod scans;
mod sorts;
mod writes;

use super::words::ITEMS;
use super::{Source, Step, Target};
use crate::error::{Reason, TierLimit};
use crate::ir::attrs::{Along, Argsort, Attributes, Recurrence};
use crate::ir::routine::Routine;
use crate::ir::shape::normalize_dim;
use crate::ir::{Attr, DType, Layout, Op};
use smallvec::SmallVec;
use std::sync::Arc;

/// Where the word of a kind is.
const LINE: usize = 6;
/// Where the words of arrays begin.
const STEPS: usize = 7;
/// Threads of a block.
const THREADS: usize = 256;
/// Most dims and index tensors.
const MAX_DIMS: usize = 8;

/// An array as far as a routine looks at it.
pub type Place<'a> = (DType, &'a Layout);

/// What the text of a routine depends on: calls of the templates, an entry each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RoutineVariant {
    piece: Piece,
    /// Each with the number of its words.
    entries: SmallVec<[(String, usize); 3]>,
}

/// Which templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Piece {
    Scans,
    Sorts,
    Writes,
    Random,
}

impl Piece {
    fn text(self) -> &'static str {
        match self {
            Piece::Scans => include_str!("scans.cuh"),
            Piece::Sorts => include_str!("sorts.cuh"),
            Piece::Writes => include_str!("writes.cuh"),
            Piece::Random => include_str!("random.cuh"),
        }
    }
}

/// Which array an address is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// An operand.
    Operand(usize),
    /// An element of an operand that lies on the host, in the place of an address.
    Element(usize, usize),
    /// The result.
    Result,
    /// Memory for what is collected.
    Scratch,
}

/// One launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutineLaunch {
    /// How it starts.
    pub step: Step,
    /// The argument, addresses not yet added.
    pub words: Vec<u64>,
    /// Which addresses are to be added to which words.
    pub places: SmallVec<[(usize, Of); 4]>,
}

/// How a routine is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutinePlan {
    /// The text that is launched.
    pub variant: RoutineVariant,
    /// Launches in order; none where there is nothing to do.
    pub launches: Vec<RoutineLaunch>,
    /// Bytes of memory for what is collected.
    pub scratch_bytes: usize,
    /// Whether an index may be outside its dimension.
    pub can_fault: bool,
}

impl RoutinePlan {
    /// Plans the routine of an op on operands and a result of these types. `key_on_host`: a key of random words lies on the
    /// host, and its elements take the places of addresses.
    ///
    /// # Errors
    /// The reason why there is no code for it.
    pub fn new(
        op: Op,
        routine: &Routine,
        attrs: &[Attr],
        operands: &[Place<'_>],
        result: Place<'_>,
        key_on_host: bool,
    ) -> Result<RoutinePlan, Reason> {
        let piece = match routine {
            Routine::Scan(_) | Routine::Recurrence => Piece::Scans,
            Routine::Argsort => Piece::Sorts,
            Routine::Scatter(_) | Routine::FlatIndex => Piece::Writes,
            Routine::Bits => Piece::Random,
        };
        let mut plan = RoutinePlan {
            variant: RoutineVariant { piece, entries: SmallVec::new() },
            launches: Vec::new(),
            scratch_bytes: 0,
            can_fault: false,
        };
        let dims = operands.iter().chain([&result]).map(|(_, layout)| layout.rank()).max().unwrap_or(0);
        if dims > MAX_DIMS {
            return Err(TierLimit::TooManyDims { dims, limit: MAX_DIMS }.into());
        }
        let dim = |dim: i64, layout: &Layout| {
            normalize_dim(op.name(), dim, layout.rank())
                .map_err(|error| TierLimit::NotLowered { error: Arc::new(error) })
        };
        match routine {
            Routine::Scan(kind) => {
                plan.scan(*kind, dim(Along::read(attrs).dim, operands[0].1)?, operands[0], result)?
            }
            Routine::Recurrence => {
                let Recurrence { dim: along, reverse } = Recurrence::read(attrs);
                plan.recurrence(dim(along, operands[1].1)?, reverse, operands, result)?;
            }
            Routine::Argsort => {
                let Argsort { dim: along, descending, .. } = Argsort::read(attrs);
                plan.sort(dim(along, operands[0].1)?, descending, operands[0], result)?;
            }
            Routine::Scatter(write) => {
                plan.scatter(*write, dim(Along::read(attrs).dim, operands[0].1)?, attrs, operands, result)?;
            }
            Routine::FlatIndex => plan.flat_index(attrs, operands, result)?,
            Routine::Bits => plan.random_words(operands[0], result, key_on_host)?,
        }
        Ok(plan)
    }

    /// A thread per four words.
    fn random_words(&mut self, key: Place<'_>, result: Place<'_>, key_on_host: bool) -> Result<(), Reason> {
        let n_words = result.1.numel() * result.0.size() / 4;
        let stride = key.1.strides[0] * key.0.size();
        let mut words = vec![0; LINE + 3];
        let items = n_words.div_ceil(4);
        (words[0], words[1], words[ITEMS]) = (items as u64, n_words as u64, items as u64);
        words[LINE + 1] = if key_on_host { 0 } else { stride as u64 };
        let mut places: SmallVec<[(usize, Of); 4]> = SmallVec::new();
        if key_on_host {
            places.extend([(LINE, Of::Element(0, 0)), (LINE + 1, Of::Element(0, 1))]);
        } else {
            places.push((LINE, Of::Operand(0)));
        }
        places.push((LINE + 2, Of::Result));
        self.variant.entries.push((format!("random_words<{key_on_host}>"), words.len()));
        if items > 0 {
            let step = Step { entry: 0, items: items as u64, grid: grid(items)?, block: [THREADS as u32, 1] };
            self.launches.push(RoutineLaunch { step, words, places });
        }
        Ok(())
    }
}

fn name(dtype: DType) -> String {
    format!("dt_{}", dtype.name())
}

/// A grid of so many blocks.
fn blocks(count: usize) -> Result<u32, Reason> {
    let count = i32::try_from(count);
    count.map(|count| count as u32).map_err(|_| TierLimit::GridTooLarge.into())
}

/// Blocks for so many threads.
fn grid(items: usize) -> Result<u32, Reason> {
    blocks(items.div_ceil(THREADS))
}

impl Source {
    /// Writes the text of a routine; its entries are called `name`, with a number behind it.
    pub fn of_routine(variant: &RoutineVariant, name: &str) -> Source {
        let mut text = format!("{}\n{}\n", include_str!("lines.cuh"), variant.piece.text());
        let mut entries = Vec::new();
        for (number, (call, n_words)) in variant.entries.iter().enumerate() {
            let entry = format!("{name}_{number}");
            text += &format!("KERNEL({THREADS}) {entry}(const Words<{n_words}> w) {{\n    {call}(w);\n}}\n");
            entries.push(entry);
        }
        let n_words = variant.entries.iter().map(|&(_, n_words)| n_words).max().unwrap_or(0);
        Source { text, entries, n_words, target: Target::Any }
    }
}
