//! Routines on a device: source, argument buffers and grids.
//!
//! | file | question |
//! |---|---|
//! | `lines` | which lines are there, and where is each? |
//! | `scans` | how are scans launched? |
//! | `sorts` | how are sorts launched? |
//! | `writes` | how are writes by index, and indices of several dims, launched? |
//!
//! What always holds: the bits are those of `runtime::routine`. Where they depend on the order of elements, one thread
//! goes through a line in order. If lines are few and long, most of a device would be idle, and the routine is declined
//! with a reason. An index out of range is recorded as in other kernels.
//!
//! | word | content |
//! |---|---|
//! | 0, 1 | lines, or whatever has a thread; elements of a line |
//! | [`FAULTS`](super::argument::FAULTS) | address of the fault record |
//! | [`SITE`](super::argument::SITE) | the name of the launch in it |
//! | [`LINE`] | a word of the kind: the size of the dimension that is written along, or the parts of a line |
//! | from [`STEPS`] | per array its address, and the stride along a line in bytes |
//! | then | per dim besides the line's: its size, and per array a stride in bytes; then further words of the kind |

mod lines;
mod scans;
mod sorts;
mod writes;

use super::argument::ITEMS;
use super::{EntryLaunch, Source, Target};
use crate::error::{Reason, TierLimit};
use crate::ir::attrs::{Along, Argsort, Attributes, Recurrence};
use crate::ir::routine::Routine;
use crate::ir::shape::normalize_dim;
use crate::ir::{Attr, DType, Layout, Op};
use smallvec::SmallVec;
use std::sync::Arc;

/// The word of the kind.
const LINE: usize = 6;
/// The first word of arrays.
const STEPS: usize = 7;
/// Threads of a block.
const THREADS: usize = 256;
/// Most dims and index tensors.
const MAX_DIMS: usize = 8;

/// An array as a routine needs it.
pub type RoutineArray<'a> = (DType, &'a Layout);

/// What the source of a routine depends on: calls of templates, one per entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RoutineVariant {
    file: TemplateFile,
    /// Each call with its number of words.
    entries: SmallVec<[(String, usize); 3]>,
}

/// The file of templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TemplateFile {
    Scans,
    Sorts,
    Writes,
    Random,
}

impl TemplateFile {
    fn templates(self) -> &'static str {
        match self {
            TemplateFile::Scans => include_str!("scans.cuh"),
            TemplateFile::Sorts => include_str!("sorts.cuh"),
            TemplateFile::Writes => include_str!("writes.cuh"),
            TemplateFile::Random => include_str!("random.cuh"),
        }
    }
}

/// What an address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// An operand.
    Operand(usize),
    /// An element of an operand on the host, which replaces the address.
    Element(usize, usize),
    /// The result.
    Result,
    /// Scratch memory.
    Scratch,
}

/// One launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutineLaunch {
    /// How it starts.
    pub step: EntryLaunch,
    /// The argument buffer, without addresses.
    pub argument: Vec<u64>,
    /// Which addresses are added to which words.
    pub places: SmallVec<[(usize, Of); 4]>,
}

/// How a routine is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutinePlan {
    /// What the source depends on.
    pub variant: RoutineVariant,
    /// Launches in order; none if there are no elements.
    pub launches: Vec<RoutineLaunch>,
    /// Bytes of scratch memory.
    pub scratch_bytes: usize,
    /// Whether an index may be out of range.
    pub can_fault: bool,
}

impl RoutinePlan {
    /// Plans the routine of an op for operands and a result of these types. `key_on_host`: a key of random words is on
    /// the host, and its elements replace addresses.
    ///
    /// # Errors
    /// The reason why there is no source for it.
    pub fn new(
        op: Op,
        routine: &Routine,
        attrs: &[Attr],
        operands: &[RoutineArray<'_>],
        result: RoutineArray<'_>,
        key_on_host: bool,
    ) -> Result<RoutinePlan, Reason> {
        let file = match routine {
            Routine::Scan(_) | Routine::Recurrence => TemplateFile::Scans,
            Routine::Argsort => TemplateFile::Sorts,
            Routine::First => return Err(TierLimit::NoSelection.into()),
            // The pass `copy_windows` replaces it on devices.
            Routine::WindowProduct => return Err(TierLimit::NoWindows.into()),
            Routine::Matrix(_) => return Err(TierLimit::NoFactorizations.into()),
            Routine::Fourier(_) => return Err(TierLimit::NoTransforms.into()),
            Routine::Scatter(_) | Routine::FlatIndex => TemplateFile::Writes,
            Routine::Bits => TemplateFile::Random,
        };
        let mut plan = RoutinePlan {
            variant: RoutineVariant { file, entries: SmallVec::new() },
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
            // Refused above.
            Routine::First | Routine::WindowProduct | Routine::Matrix(_) | Routine::Fourier(_) => {}
            Routine::Scatter(write) => {
                plan.scatter(*write, dim(Along::read(attrs).dim, operands[0].1)?, attrs, operands, result)?;
            }
            Routine::FlatIndex => plan.flat_index(attrs, operands, result)?,
            Routine::Bits => plan.random_words(operands[0], result, key_on_host)?,
        }
        Ok(plan)
    }

    /// One thread per four words.
    fn random_words(
        &mut self,
        key: RoutineArray<'_>,
        result: RoutineArray<'_>,
        key_on_host: bool,
    ) -> Result<(), Reason> {
        let n_words = result.1.numel() * result.0.size() / 4;
        let stride = key.1.strides[0] * key.0.size();
        let mut argument = vec![0; LINE + 3];
        let items = n_words.div_ceil(4);
        (argument[0], argument[1], argument[ITEMS]) = (items as u64, n_words as u64, items as u64);
        argument[LINE + 1] = if key_on_host { 0 } else { stride as u64 };
        let mut places: SmallVec<[(usize, Of); 4]> = SmallVec::new();
        if key_on_host {
            places.extend([(LINE, Of::Element(0, 0)), (LINE + 1, Of::Element(0, 1))]);
        } else {
            places.push((LINE, Of::Operand(0)));
        }
        places.push((LINE + 2, Of::Result));
        self.variant.entries.push((format!("random_words<{key_on_host}>"), argument.len()));
        if items > 0 {
            let step = EntryLaunch { entry: 0, items: items as u64, grid: grid(items)?, block: [THREADS as u32, 1] };
            self.launches.push(RoutineLaunch { step, argument, places });
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
    /// Writes the source of a routine; its entries are called `name` with a number appended.
    pub fn of_routine(variant: &RoutineVariant, name: &str) -> Source {
        let mut code = format!("{}\n{}\n", include_str!("lines.cuh"), variant.file.templates());
        let mut entries = Vec::new();
        for (number, (call, n_words)) in variant.entries.iter().enumerate() {
            let entry = format!("{name}_{number}");
            code += &format!("KERNEL({THREADS}) {entry}(const Words<{n_words}> w) {{\n    {call}(w);\n}}\n");
            entries.push(entry);
        }
        let n_words = variant.entries.iter().map(|&(_, n_words)| n_words).max().unwrap_or(0);
        Source { code, entries, n_words, target: Target::Any }
    }
}
