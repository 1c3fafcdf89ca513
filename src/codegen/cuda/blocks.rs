//! Kernels with folds over a few long rows: a warp computes a block of one row.
//!
//! A pass is two launches. In the first, every warp stores the results of its block in memory. In the second, a team
//! per row folds them in order. Later launches read the row's results from memory, so no launch waits for another
//! block.

use super::elements;
use super::rows::{self, fold_of, index_of};
use super::text::Text;
use super::variant::{LANES, TOTAL_WARPS, WARPS};
use super::words;
use crate::codegen::kernel::Level;
use crate::codegen::native::flat::{Id, Op};
use crate::codegen::native::passes::Passes;

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
pub(super) fn emit(text: &mut Text<'_>, passes: &Passes, entry: Entry, is_last: bool, name: &str) {
    match entry {
        Entry::Loop(pass) => emit_loop(text, passes, pass, is_last, name),
        Entry::Totals(pass) => emit_totals(text, passes, pass, is_last, name),
    }
}

fn emit_loop(text: &mut Text<'_>, passes: &Passes, number: usize, is_last: bool, name: &str) {
    let unsigned = text.unsigned();
    let pass = &passes.passes[number];
    rows::open(text, name, WARPS * LANES);
    rows::item_of_warp(text);
    let size = text.layout().size_of_loop(text.layout().items_of_row());
    text.line(format!("const {unsigned} blocks = ({unsigned})w.at[{size}];"));
    text.line(format!("const {unsigned} row = divide(item, w.at[{}], w.at[{}]);", size + 1, size + 2));
    text.line(format!("const {unsigned} block = item - row * blocks;"));
    rows::row(text);
    let mut results: Vec<usize> = pass.stores.clone();
    if is_last {
        results.extend(&passes.row_stores);
    }
    known(text, passes, &needed(text, &pass.folds, &results), &[]);
    rows::foldings(text, pass);
    if pass.has_loop() {
        text.line("{");
        rows::uniform(text, pass);
        text.line(format!("const {unsigned} start = block * BLOCK;"));
        text.line(format!("const {unsigned} end = n - start < BLOCK ? n : start + BLOCK;"));
        elements::noting(text, pass, |text| rows::loop_between(text, pass, "start", "end"));
        text.line("}");
    }
    for &id in &pass.folds {
        let (fold, first) = (fold_of(text, id), first_part(passes, id));
        text.line(format!("const {fold}::Part r{id} = team.tree<{fold}>(f{id}.element);"));
        text.line(format!("if (team.lane == 0) *part<{fold}>(w.at[{}], {first} + block) = r{id};", words::SCRATCH));
    }
    if is_last {
        rows::row_stores(text, &passes.row_stores, "team.lane == 0 && block == 0");
    }
    text.line("}");
}

fn emit_totals(text: &mut Text<'_>, passes: &Passes, number: usize, is_last: bool, name: &str) {
    let unsigned = text.unsigned();
    let folds = &passes.passes[number].folds;
    rows::open(text, name, TOTAL_WARPS * LANES);
    text.line(format!("SHARED(uint4, slots, {});", 2 * (TOTAL_WARPS + 1) * LANES));
    text.line(format!("const {unsigned} row = block_x();"));
    text.line(format!(
        "Crew<{TOTAL_WARPS}, BLOCK / LANES / {TOTAL_WARPS}> team = {{thread_x() % {LANES}u, thread_x() / {LANES}u, (char*)slots}};"
    ));
    let size = text.layout().size_of_loop(text.layout().items_of_row());
    text.line(format!("const {unsigned} blocks = ({unsigned})w.at[{size}];"));
    rows::row(text);
    for &id in folds {
        let (fold, first) = (fold_of(text, id), first_part(passes, id));
        text.line(format!(
            "const {fold}::Part r{id} = total_of_parts<{fold}>(w.at[{}], {first}, n == 0 ? 0 : blocks, team);",
            words::SCRATCH
        ));
        let (declaration, index) = (text.declaration(id), index_of(text, id));
        text.line(format!("{declaration} = r{id}{index};"));
        let total = total_part(text, passes, id);
        text.line(format!("if (thread_x() == 0) *part<{fold}>(w.at[{}], {total}) = r{id};", words::SCRATCH));
    }
    if is_last {
        known(text, passes, &needed(text, &[], &passes.row_stores), folds);
        rows::row_stores(text, &passes.row_stores, "thread_x() == 0");
    }
    text.line("}");
}

/// The number of a fold among those of all passes.
fn number_of(passes: &Passes, id: Id) -> usize {
    let mut all = passes.passes.iter().flat_map(|pass| &pass.folds);
    all.position(|&other| other == id).expect("a fold belongs to a pass")
}

/// Where the results of a row's blocks start.
fn first_part(passes: &Passes, id: Id) -> String {
    format!("((u64){} * w.at[{}] + row) * blocks", number_of(passes, id), words::ROWS)
}

/// Where the result of a row is: after those of all blocks.
fn total_part(passes_of: &Text<'_>, passes: &Passes, id: Id) -> String {
    let size = passes_of.layout().size_of_loop(passes_of.layout().items_of_row());
    format!("({} * w.at[{size}] + {}) * w.at[{}] + row", n_folds(passes), number_of(passes, id), words::ROWS)
}

/// The row values that folds and outputs need, operands first, without those that the folds are computed from.
fn needed(text: &Text<'_>, folds: &[Id], outputs: &[usize]) -> Vec<Id> {
    let flat = text.flat;
    let mut needed = vec![false; flat.nodes.len()];
    let mut stack: Vec<Id> = folds.iter().flat_map(|&id| flat.nodes[id].args.iter().copied()).collect();
    stack.extend(outputs.iter().map(|&slot| flat.outputs[slot]));
    while let Some(id) = stack.pop() {
        let is_fold = matches!(flat.nodes[id].op, Op::Fold(_));
        if !std::mem::replace(&mut needed[id], true) && !is_fold {
            stack.extend(flat.nodes[id].args.iter().copied());
        }
    }
    let of_row = |&id: &Id| needed[id] && flat.nodes[id].level == Level::Row && flat.as_lit(id).is_none();
    (0..needed.len()).filter(of_row).collect()
}

/// Computes row values. Folds are read from memory, except for those in `there`, which are available.
fn known(text: &mut Text<'_>, passes: &Passes, ids: &[Id], there: &[Id]) {
    for &id in ids.iter().filter(|id| !there.contains(id)) {
        if let Op::Fold(_) = text.flat.nodes[id].op {
            let (declaration, index, fold) = (text.declaration(id), index_of(text, id), fold_of(text, id));
            let total = total_part(text, passes, id);
            text.line(format!("{declaration} = (*part<{fold}>(w.at[{}], {total})){index};", words::SCRATCH));
        } else {
            text.row_values(&[id]);
        }
    }
}
