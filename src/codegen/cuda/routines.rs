//! Procedures on whole arrays on a device: text, words and grids, as of other kernels.
//!
//! What always holds: the bits are those of `eager::routine`, so a line's elements are taken one after the other by one thread.
//! Lines are independent. Where they are few and long that leaves most of a device idle, and there is no code: the reason says
//! so. An index outside its dimension is recorded as in other kernels; which of several is recorded, is not said.
//!
//! | word | what it holds |
//! |---|---|
//! | 0, 1 | lines, or whatever has a thread; elements of a line |
//! | [`FAULTS`](super::words::FAULTS) | address of the record of faults |
//! | [`SITE`](super::words::SITE) | what the launch is called there |
//! | [`LINE`] | what the kind needs: the size of the dimension that is written along |
//! | from [`STEPS`] | per array its address and the distance of neighbours in a line, in bytes |
//! | then | per dim besides the line's its size, and per array a stride in bytes; then what the kind needs |

use super::words::ITEMS;
use super::{Source, Step};
use crate::error::Reason;
use crate::ir::routine::{Routine, Scan, Write};
use crate::ir::shape::normalize_dim;
use crate::ir::{Attr, DType, Layout, Op};
use smallvec::SmallVec;

/// Where the word of a kind is.
const LINE: usize = 6;
/// Where the words of arrays begin.
const STEPS: usize = 7;
/// Threads of a block.
const THREADS: usize = 256;
/// Longest line that a block sorts in its own memory.
const MAX_SORTED: usize = 2048;
/// Steps that a thread takes, one after the other, before the rest of the device is missed, where lines are few.
const MAX_ALONE: usize = 1 << 14;
/// Lines that keep a device busy.
const MANY_LINES: usize = 1024;
/// Most dims and index tensors.
const MAX_DIMS: usize = 8;

/// An array as far as a routine looks at it.
pub type Place<'a> = (DType, &'a Layout);

/// What the text of a routine depends on: calls of the templates, an entry each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RoutineVariant {
    entries: SmallVec<[(String, usize); 3]>,
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
        let mut plan = RoutinePlan {
            variant: RoutineVariant { entries: SmallVec::new() },
            launches: Vec::new(),
            scratch_bytes: 0,
            can_fault: false,
        };
        if operands.iter().chain([&result]).any(|(_, layout)| layout.rank() > MAX_DIMS) {
            return Err(cannot("it has too many dims"));
        }
        let dim = |attr: &Attr, default: i64, layout: &Layout| {
            normalize_dim(op.name(), attr.as_int().unwrap_or(default), layout.rank())
                .map_err(|error| Reason::TierCannot(error.to_string()))
        };
        match routine {
            Routine::Scan(kind) => {
                let (dtype, input) = operands[0];
                let (form, how) = match kind {
                    Scan::Sum => ("scan", "Plus"),
                    Scan::Prod => ("scan", "Times"),
                    Scan::ArgMax => ("scan_places", "Greatest"),
                    Scan::ArgMin => ("scan_places", "Least"),
                };
                let lines = Lines::new(&input.sizes, Some(dim(&attrs[0], 0, input)?));
                lines.check_length()?;
                let call = format!("{form}<{}, {how}, {}>", name(dtype), lines.n_dims());
                plan.add(call, &lines, &[(Of::Operand(0), operands[0]), (Of::Result, result)], 0, &[]);
            }
            Routine::Recurrence => {
                let (dtype, term) = operands[1];
                let lines = Lines::new(&term.sizes, Some(dim(&attrs[0], 0, term)?));
                lines.check_length()?;
                let call = format!("recurrence<{}, {}, {}>", name(dtype), attrs[1].is_true(), lines.n_dims());
                let arrays = [(Of::Operand(0), operands[0]), (Of::Operand(1), operands[1]), (Of::Result, result)];
                plan.add(call, &lines, &arrays, 0, &[]);
            }
            Routine::Argsort => {
                let (dtype, input) = operands[0];
                let lines = Lines::new(&input.sizes, Some(dim(&attrs[1], -1, input)?));
                if lines.length > MAX_SORTED {
                    return Err(cannot(&format!("lines of more than {MAX_SORTED} elements are sorted by the cpu")));
                }
                let size = lines.length.next_power_of_two().max(64);
                let call = format!("argsort<{}, {}, {size}, {}>", name(dtype), attrs[2].is_true(), lines.n_dims());
                plan.add(call, &lines, &[(Of::Operand(0), operands[0]), (Of::Result, result)], 0, &[]);
                for launch in &mut plan.launches {
                    // A block per line.
                    launch.step.grid = grid(lines.count * THREADS)?;
                }
            }
            Routine::Scatter(write) => plan.scatter(*write, |layout| dim(&attrs[0], 0, layout), operands, result)?,
            Routine::FlatIndex => {
                let n = operands.len();
                let dtype = operands[0].0;
                if n > MAX_DIMS || operands.iter().any(|&(other, _)| other != dtype) {
                    return Err(cannot("its index tensors are many, or of several dtypes"));
                }
                let lines = Lines::new(&operands[0].1.sizes, None);
                let arrays: Vec<(Of, Place<'_>)> =
                    (0..n).map(|at| (Of::Operand(at), operands[at])).chain([(Of::Result, result)]).collect();
                let sizes: Vec<u64> = attrs[0].list().iter().map(|&size| size as u64).collect();
                let call = format!("flat_index<{}, {n}, {}, {}>", name(dtype), attrs[1].is_true(), lines.n_dims());
                plan.add(call, &lines, &arrays, 0, &sizes);
                plan.can_fault = true;
            }
            Routine::Bits => {
                let (dtype, layout) = result;
                let n_words = layout.numel() * dtype.size() / 4;
                let stride = operands[0].1.strides[0] * operands[0].0.size();
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
                plan.variant.entries.push((format!("random_words<{key_on_host}>"), words.len()));
                if items > 0 {
                    let step = Step { entry: 0, items: items as u64, grid: grid(items)?, block: [THREADS as u32, 1] };
                    plan.launches.push(RoutineLaunch { step, words, places });
                }
            }
        }
        for launch in &plan.launches {
            grid(launch.step.items as usize)?;
        }
        Ok(plan)
    }

    fn scatter(
        &mut self,
        write: Write,
        dim: impl Fn(&Layout) -> Result<usize, Reason>,
        operands: &[Place<'_>],
        result: Place<'_>,
    ) -> Result<(), Reason> {
        let [(dtype, into), (index_dtype, index), (_, source)] = *operands else {
            return Err(cannot("it has other operands than a write"));
        };
        let how = match write {
            Write::Overwrite => "Overwriting",
            Write::Add => "Adding",
            Write::Reduce => return Err(cannot("there is no CUDA kernel for it yet, so the cpu computes it")),
        };
        let has_writes = index.numel() > 0;
        // 16-bit floats are collected in f32 and rounded once.
        let collects = has_writes && write == Write::Add && matches!(dtype, DType::F16 | DType::BF16);
        let wide = if collects { DType::F32 } else { dtype };
        let dense = Layout::contiguous(&into.sizes);
        let (to, target) = if collects { (Of::Scratch, (DType::F32, &dense)) } else { (Of::Result, result) };
        if collects {
            self.scratch_bytes = into.numel() * wide.size();
        }
        let all = Lines::new(&into.sizes, None);
        let copy = format!("copy<{}, {}, {}>", name(dtype), name(wide), all.n_dims());
        self.add(copy, &all, &[(Of::Operand(0), operands[0]), (to, target)], 0, &[]);
        if !has_writes {
            return Ok(());
        }
        if index.rank() == 0 || index.rank() != into.rank() || index.rank() != source.rank() {
            return Err(cannot("a tensor without dims takes part"));
        }
        let along = dim(into)?;
        let lines = Lines::new(&index.sizes, Some(along));
        lines.check_length()?;
        let call =
            format!("scatter<{}, {}, {}, {how}, {}>", name(index_dtype), name(dtype), name(wide), lines.n_dims());
        let arrays = [(Of::Operand(1), operands[1]), (Of::Operand(2), operands[2]), (to, target)];
        self.add(call, &lines, &arrays, into.sizes[along] as u64, &[]);
        self.can_fault = true;
        if collects {
            let settle = format!("settle<{}, {}>", name(dtype), all.n_dims());
            self.add(settle, &all, &[(Of::Scratch, target), (Of::Result, result)], 0, &[]);
        }
        Ok(())
    }

    /// Adds an entry, and its launch if there is anything to do.
    fn add(&mut self, call: String, lines: &Lines, arrays: &[(Of, Place<'_>)], of_kind: u64, more: &[u64]) {
        let mut words = vec![0; STEPS];
        (words[0], words[1], words[ITEMS]) = (lines.count as u64, lines.length as u64, lines.count as u64);
        words[LINE] = of_kind;
        let mut places = SmallVec::new();
        let stride = |(dtype, layout): Place<'_>, dim: usize| {
            layout.strides.get(dim).map_or(0, |&stride| (stride * dtype.size()) as u64)
        };
        for &(of, place) in arrays {
            places.push((words.len(), of));
            words.extend([0, lines.dim.map_or(0, |dim| stride(place, dim))]);
        }
        for &(dim, size) in &lines.others {
            words.push(size as u64);
            words.extend(arrays.iter().map(|&(_, place)| stride(place, dim)));
        }
        words.extend(more);
        let entry = self.variant.entries.len();
        self.variant.entries.push((call, words.len()));
        if lines.count > 0 && lines.length > 0 {
            let grid = lines.count.div_ceil(THREADS) as u32;
            let step = Step { entry, items: lines.count as u64, grid, block: [THREADS as u32, 1] };
            self.launches.push(RoutineLaunch { step, words, places });
        }
    }
}

/// Lines along a dim, or single elements.
struct Lines {
    dim: Option<usize>,
    length: usize,
    count: usize,
    /// The other dims with their sizes.
    others: SmallVec<[(usize, usize); 4]>,
}

impl Lines {
    fn new(sizes: &[usize], dim: Option<usize>) -> Lines {
        // A tensor without dims is a line of one element.
        let dim = dim.filter(|_| !sizes.is_empty());
        let others: SmallVec<[(usize, usize); 4]> =
            sizes.iter().copied().enumerate().filter(|&(at, _)| Some(at) != dim).collect();
        let count = others.iter().map(|&(_, size)| size).product();
        Lines { dim, length: dim.map_or(1, |dim| sizes[dim]), count, others }
    }

    fn n_dims(&self) -> usize {
        self.others.len()
    }

    /// # Errors
    /// If few threads would take many steps while the rest of a device is idle.
    fn check_length(&self) -> Result<(), Reason> {
        if self.length > MAX_ALONE && self.count < MANY_LINES {
            let what = "{count} of {length} elements";
            let what = what.replace("{count}", &self.count.to_string()).replace("{length}", &self.length.to_string());
            return Err(cannot(&format!(
                "lines are few and long ({what}), and each is one chain: the cpu computes them"
            )));
        }
        Ok(())
    }
}

fn cannot(what: &str) -> Reason {
    Reason::TierCannot(what.into())
}

fn name(dtype: DType) -> String {
    format!("dt_{}", dtype.name())
}

/// Blocks for so many threads.
fn grid(items: usize) -> Result<u32, Reason> {
    let blocks = i32::try_from(items.div_ceil(THREADS));
    blocks.map(|blocks| blocks as u32).map_err(|_| cannot("a grid has fewer blocks than its elements need"))
}

impl Source {
    /// Writes the text of a routine; its entries are called `name`, with a number behind it.
    pub fn of_routine(variant: &RoutineVariant, name: &str) -> Source {
        let mut text = format!("{}\n", include_str!("routines.cuh"));
        let mut entries = Vec::new();
        for (number, (call, n_words)) in variant.entries.iter().enumerate() {
            let entry = format!("{name}_{number}");
            text += &format!("KERNEL({THREADS}) {entry}(const Words<{n_words}> w) {{\n    {call}(w);\n}}\n");
            entries.push(entry);
        }
        let n_words = variant.entries.iter().map(|&(_, n_words)| n_words).max().unwrap_or(0);
        Source { text, entries, n_words }
    }
}
