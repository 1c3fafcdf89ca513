//! Kernels with folds over a few long rows: a warp computes a block of one row.
//!
//! A pass is two launches. In the first, every warp stores the results of its block in memory. In the second, a team
//! per row folds them in order. Later launches read the row's results from memory, so no launch waits for another
//! block.

use super::argument;
use super::elements;
use super::rows::{self, fold_of, index_of};
use super::variant::{LANES, TOTAL_WARPS, WARPS};
use super::writer::Writer;
use crate::codegen::kernel::Level;
use crate::codegen::native::flat::{FlatNodeId, FlatOp};
use crate::codegen::native::passes::Passes;
use crate::ir::SideTable;

/// An entry point of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// The loop of a pass: one warp per block of a row.
    Loop(usize),
    /// The folds of a pass over the results of blocks: one thread block per row.
    Totals(usize),
}

/// The entries in the order of their launches. The last one writes the outputs per row.
pub(super) fn entries(passes: &Passes) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (number, pass) in passes.passes.iter().enumerate() {
        if pass.has_loop() {
            entries.push(Entry::Loop(number));
        }
        if !pass.folds.is_empty() {
            entries.push(Entry::Totals(number));
        }
    }
    if entries.is_empty() {
        entries.push(Entry::Loop(0));
    }
    entries
}

/// The number of folds.
pub(super) fn n_folds(passes: &Passes) -> usize {
    passes.passes.iter().map(|pass| pass.folds.len()).sum()
}

/// Writes one entry. The last one also writes the outputs per row.
pub(super) fn emit(writer: &mut Writer<'_>, passes: &Passes, entry: Entry, is_last: bool, name: &str) {
    match entry {
        Entry::Loop(pass) => emit_loop(writer, passes, pass, is_last, name),
        Entry::Totals(pass) => emit_totals(writer, passes, pass, is_last, name),
    }
}

fn emit_loop(writer: &mut Writer<'_>, passes: &Passes, number: usize, is_last: bool, name: &str) {
    let unsigned = writer.unsigned();
    let pass = &passes.passes[number];
    rows::open(writer, name, WARPS * LANES);
    rows::item_of_warp(writer);
    let size = writer.layout().size_of_loop(writer.layout().items_of_row());
    writer.line(format!("const {unsigned} blocks = ({unsigned})w.at[{size}];"));
    writer.line(format!("const {unsigned} row = divide(item, w.at[{}], w.at[{}]);", size + 1, size + 2));
    writer.line(format!("const {unsigned} block = item - row * blocks;"));
    rows::row(writer);
    let mut results: Vec<usize> = pass.stores.clone();
    if is_last {
        results.extend(&passes.row_stores);
    }
    row_values(writer, passes, &needed(writer, &pass.folds, &results), &[]);
    rows::foldings(writer, pass);
    if pass.has_loop() {
        writer.line("{");
        rows::uniform(writer, pass);
        writer.line(format!("const {unsigned} start = block * BLOCK;"));
        writer.line(format!("const {unsigned} end = n - start < BLOCK ? n : start + BLOCK;"));
        elements::noting(writer, pass, |writer| rows::loop_between(writer, pass, "start", "end"));
        writer.line("}");
    }
    for &id in &pass.folds {
        let (fold, first) = (fold_of(writer, id), first_part(passes, id));
        writer.line(format!("const {fold}::Part r{id} = team.tree<{fold}>(f{id}.element);"));
        writer
            .line(format!("if (team.lane == 0) *part<{fold}>(w.at[{}], {first} + block) = r{id};", argument::SCRATCH));
    }
    if is_last {
        rows::row_stores(writer, &passes.row_stores, "team.lane == 0 && block == 0");
    }
    writer.line("}");
}

fn emit_totals(writer: &mut Writer<'_>, passes: &Passes, number: usize, is_last: bool, name: &str) {
    let unsigned = writer.unsigned();
    let folds = &passes.passes[number].folds;
    rows::open(writer, name, TOTAL_WARPS * LANES);
    writer.line(format!("SHARED(uint4, slots, {});", 2 * (TOTAL_WARPS + 1) * LANES));
    writer.line(format!("const {unsigned} row = block_x();"));
    writer.line(format!(
        "Crew<{TOTAL_WARPS}, BLOCK / LANES / {TOTAL_WARPS}> team = {{thread_x() % {LANES}u, thread_x() / {LANES}u, (char*)slots}};"
    ));
    let size = writer.layout().size_of_loop(writer.layout().items_of_row());
    writer.line(format!("const {unsigned} blocks = ({unsigned})w.at[{size}];"));
    rows::row(writer);
    for &id in folds {
        let (fold, first) = (fold_of(writer, id), first_part(passes, id));
        writer.line(format!(
            "const {fold}::Part r{id} = total_of_parts<{fold}>(w.at[{}], {first}, n == 0 ? 0 : blocks, team);",
            argument::SCRATCH
        ));
        let (declaration, index) = (writer.declaration(id), index_of(writer, id));
        writer.line(format!("{declaration} = r{id}{index};"));
        let total = total_part(writer, passes, id);
        writer.line(format!("if (thread_x() == 0) *part<{fold}>(w.at[{}], {total}) = r{id};", argument::SCRATCH));
    }
    if is_last {
        row_values(writer, passes, &needed(writer, &[], &passes.row_stores), folds);
        rows::row_stores(writer, &passes.row_stores, "thread_x() == 0");
    }
    writer.line("}");
}

/// The number of a fold among those of all passes.
fn number_of(passes: &Passes, id: FlatNodeId) -> usize {
    let mut all = passes.passes.iter().flat_map(|pass| &pass.folds);
    all.position(|&other| other == id).expect("a fold belongs to a pass")
}

/// Where the results of a row's blocks start.
fn first_part(passes: &Passes, id: FlatNodeId) -> String {
    format!("((u64){} * w.at[{}] + row) * blocks", number_of(passes, id), argument::ROWS)
}

/// Where the result of a row is: after those of all blocks.
fn total_part(passes_of: &Writer<'_>, passes: &Passes, id: FlatNodeId) -> String {
    let size = passes_of.layout().size_of_loop(passes_of.layout().items_of_row());
    format!("({} * w.at[{size}] + {}) * w.at[{}] + row", n_folds(passes), number_of(passes, id), argument::ROWS)
}

/// The row values that folds and outputs need, operands first, without those that the folds are computed from.
fn needed(writer: &Writer<'_>, folds: &[FlatNodeId], outputs: &[usize]) -> Vec<FlatNodeId> {
    let flat = writer.flat;
    let mut needed = SideTable::with_len(flat.nodes.len(), || false);
    let mut stack: Vec<FlatNodeId> = folds.iter().flat_map(|&id| flat.nodes[id].args.iter().copied()).collect();
    stack.extend(outputs.iter().map(|&slot| flat.outputs[slot]));
    while let Some(id) = stack.pop() {
        let is_fold = matches!(flat.nodes[id].op, FlatOp::Fold(_));
        if !std::mem::replace(&mut needed[id], true) && !is_fold {
            stack.extend(flat.nodes[id].args.iter().copied());
        }
    }
    let of_row = |&id: &FlatNodeId| needed[id] && flat.nodes[id].level == Level::Row && flat.as_lit(id).is_none();
    flat.nodes.ids().filter(of_row).collect()
}

/// Computes row values. Folds are read from memory, except for those in `there`, which are available.
fn row_values(writer: &mut Writer<'_>, passes: &Passes, ids: &[FlatNodeId], there: &[FlatNodeId]) {
    for &id in ids.iter().filter(|id| !there.contains(id)) {
        if let FlatOp::Fold(_) = writer.flat.nodes[id].op {
            let (declaration, index, fold) = (writer.declaration(id), index_of(writer, id), fold_of(writer, id));
            let total = total_part(writer, passes, id);
            writer.line(format!("{declaration} = (*part<{fold}>(w.at[{}], {total})){index};", argument::SCRATCH));
        } else {
            writer.row_values(&[id]);
        }
    }
}
