//! Kernels with folds: a team of 32 threads, or of several warps, computes a row, or a block of one.
//!
//! A thread of a warp is a partial result of every fold. So element `i` belongs to lane `i mod 32` in every pass, and
//! what a pass writes for an element is read by the same thread in the next. A pass is a loop over the elements. In
//! [`Form::Held`], a thread holds what later passes need of its elements; in other forms it is recomputed from
//! operands. Rows of one launch are independent.

use super::elements::{self, Span};
use super::held;
use super::text::{Text, c_type, fold_name};
use super::variant::{Form, LANES, WARPS, rows_of_columns};
use super::words;
use crate::codegen::native::flat::{Id, Op};
use crate::codegen::native::passes::{Pass, Passes};
use crate::ir::Combine;
use crate::ir::scalar::{Prim, Ty};

/// Elements that a thread computes at a time in a loop.
pub(super) const AT_ONCE: usize = 8;
/// The same for [`Form::Columns`], whose blocks have so many threads that each has few registers.
const AT_ONCE_OF_COLUMNS: usize = 4;
/// Most f64 values per element for which that many elements fit into a thread's registers.
const FEW_DOUBLES: usize = 16;

/// Writes the only entry of a kernel where one team computes each row.
pub(super) fn emit_whole(text: &mut Text<'_>, passes: &Passes, name: &str) {
    let is_column = text.variant.form == Form::Columns;
    let unsigned = text.unsigned();
    let side = rows_of_columns(text.kernel);
    open(text, name, if is_column { side * LANES } else { WARPS * LANES });
    if is_column {
        text.line(format!("SHARED(uint4, slots, {});", side * LANES));
        text.line(format!("const {unsigned} item = ({unsigned})block_x() * {side}u + thread_x();"));
        text.line(format!("const bool live = item < ({unsigned})w.at[{}];", words::ROWS));
        // Its threads have to reach the barriers of the others.
        text.line("// A row behind the last is computed as the last one is, and not written.");
        text.line(format!("const {unsigned} row = live ? item : ({unsigned})w.at[{}] - 1;", words::ROWS));
        text.line(format!("Column<{side}> team = {{thread_y(), thread_x(), (char*)slots}};"));
    } else {
        item_of_warp(text);
        text.line(format!("const {unsigned} row = item;"));
    }
    row(text);
    for pass in &passes.passes {
        text.row_values(&pass.row);
        foldings(text, pass);
        if pass.has_loop() {
            text.line("{");
            uniform(text, pass);
            elements::noting(text, pass, |text| whole_loop(text, pass));
            text.line("}");
        }
        for &id in &pass.folds {
            let (declaration, index) = (text.declaration(id), index_of(text, id));
            text.line(format!("{declaration} = total(f{id}, n, team){index};"));
        }
    }
    row_stores(text, &passes.row_stores, if is_column { "team.lane == 0 && live" } else { "team.lane == 0" });
    text.line("}");
}

/// Writes the only entry of a kernel whose threads hold `held` elements of a row each, in so many warps.
pub(super) fn emit_held(text: &mut Text<'_>, passes: &Passes, name: &str, held: usize, warps: usize) {
    let (unsigned, signed) = (text.unsigned(), text.signed());
    if warps == 1 {
        open(text, name, WARPS * LANES);
        item_of_warp(text);
        text.line(format!("const {unsigned} row = item;"));
        text.line(format!("const {signed} first = ({signed})team.lane;"));
    } else {
        open(text, name, warps as u32 * LANES);
        text.line(format!("SHARED(uint4, slots, {});", 2 * (warps + 1) * LANES as usize));
        text.line(format!("const {unsigned} row = block_x();"));
        let of_rows = if text.variant.is_full { ", true" } else { "" };
        text.line(format!(
            "Crew<{warps}, {held}{of_rows}> team = {{thread_x() % {LANES}u, thread_x() / {LANES}u, (char*)slots}};"
        ));
        text.line(format!("const {signed} first = ({signed})(team.warp * {}u + team.lane);", held as u32 * LANES));
    }
    row(text);
    if !text.variant.is_full {
        text.line(format!("const {signed} end = ({signed})n;"));
    }
    for pass in &passes.passes {
        text.row_values(&pass.row);
        for &(id, _) in &pass.keeps {
            text.line(format!("{} h{id}[{held}];", c_type(text.flat.nodes[id].ty)));
        }
        let waiting = if warps == 1 { Vec::new() } else { held::waiting(text.flat, pass) };
        for &id in &waiting {
            text.line(format!("{} q{id}[{held}];", c_type(text.flat.nodes[id].ty)));
        }
        foldings(text, pass);
        if pass.has_loop() {
            text.line("{");
            uniform(text, pass);
            elements::noting(text, pass, |text| held_elements(text, pass, held, &waiting));
            text.line("}");
        }
        for &id in &pass.folds {
            let (declaration, index, fold) = (text.declaration(id), index_of(text, id), fold_of(text, id));
            let folded = text.flat.nodes[id].args[0];
            let total = if !elements::is_waiting(text, id) {
                format!("team.tree<{fold}>(f{id}.element")
            } else if waiting.contains(&folded) {
                format!("team.in_turn<{fold}>(q{folded}")
            } else {
                format!("team.in_turn<{fold}>(h{folded}")
            };
            let length = if warps == 1 { "" } else { ", n" };
            text.line(format!("{declaration} = {total}{length}){index};"));
        }
    }
    let condition = if warps == 1 { "team.lane == 0" } else { "first == 0" };
    row_stores(text, &passes.row_stores, condition);
    text.line("}");
}

fn held_elements(text: &mut Text<'_>, pass: &Pass, held: usize, waiting: &[Id]) {
    let count = elements::batch(text, pass, held);
    let end = if text.variant.is_full { None } else { Some("end") };
    let mut span = Span { end, count, at: "k", stored: "", waiting };
    if count == held {
        elements::emit(text, pass, &span);
        return;
    }
    span.at = "g + k";
    text.line(format!("UNROLL for (int g = 0; g < {held}; g += {count}) {{"));
    elements::emit(text, pass, &span);
    text.line("}");
}

/// Writes the loop of one team over all elements of its row.
fn whole_loop(text: &mut Text<'_>, pass: &Pass) {
    let unsigned = text.unsigned();
    if pass.folds.is_empty() {
        loop_between(text, pass, "0", "n");
        return;
    }
    text.line(format!("for ({unsigned} start = 0, block = 0; start < n; start += BLOCK, block++) {{"));
    text.line(format!("const {unsigned} end = n - start < BLOCK ? n : start + BLOCK;"));
    loop_between(text, pass, "start", "end");
    text.line("if (n > BLOCK) {");
    for &id in &pass.folds {
        text.line(format!("close_block(f{id}, block, n, team);"));
    }
    text.line("}");
    text.line("}");
}

/// Writes a loop over the elements of a team's lane between two positions.
pub(super) fn loop_between(text: &mut Text<'_>, pass: &Pass, start: &str, end: &str) {
    let (signed, unsigned) = (text.signed(), text.unsigned());
    let is_column = text.variant.form == Form::Columns;
    let at_once = if !is_column {
        AT_ONCE
    } else if computes_with_doubles(text, pass) {
        1
    } else {
        AT_ONCE_OF_COLUMNS
    };
    let count = elements::batch(text, pass, at_once);
    text.line(format!("for ({unsigned} next = {start} + team.lane; next < {end}; next += {count} * LANES) {{"));
    text.line(format!("const {signed} first = ({signed})next;"));
    let end = format!("({signed}){end}");
    let stored = if is_column { "live" } else { "" };
    elements::emit(text, pass, &Span { end: Some(&end), count, at: "k", stored, waiting: &[] });
    text.line("}");
}

/// Whether elements need so many registers for f64 that none are left for further elements. The compiler calls
/// functions for some quotients, remainders and roots, around which registers are spilled; these functions have some 30
/// nodes.
fn computes_with_doubles(text: &Text<'_>, pass: &Pass) -> bool {
    let doubles = || pass.body.iter().map(|&id| &text.flat.nodes[id]).filter(|node| node.ty == Ty::F64);
    doubles().count() > FEW_DOUBLES
        || doubles().any(|node| matches!(node.op, Op::Prim(Prim::Div | Prim::Rem | Prim::Sqrt)))
}

pub(super) fn open(text: &mut Text<'_>, name: &str, threads: u32) {
    let n_words = text.n_words();
    text.line(format!("KERNEL({threads}) {name}(const Words<{n_words}> w) {{"));
}

/// Writes the item of a warp. Warps without an item return as a whole.
pub(super) fn item_of_warp(text: &mut Text<'_>) {
    let unsigned = text.unsigned();
    text.line(format!("const {unsigned} item = ({unsigned})block_x() * {WARPS}u + thread_x() / {LANES}u;"));
    text.line(format!("if (item >= ({unsigned})w.at[{}]) return;", words::ITEMS));
    text.line(format!("Warp team = {{thread_x() % {LANES}u}};"));
}

/// Writes the number of elements, and the address of the row.
pub(super) fn row(text: &mut Text<'_>) {
    let unsigned = text.unsigned();
    let n = match held_of_full(text) {
        Some(elements) => format!("{elements}u"),
        None => format!("({unsigned})w.at[{}]", words::INNER),
    };
    text.line(format!("const {unsigned} n = {n};"));
    text.positions("row", 0..text.layout().rows, "p");
    text.row_addresses();
}

/// The elements of a row, where its threads hold as many as they can.
fn held_of_full(text: &Text<'_>) -> Option<usize> {
    let Form::Held { held, warps } = text.variant.form else { return None };
    text.variant.is_full.then_some(held * warps * LANES as usize)
}

pub(super) fn foldings(text: &mut Text<'_>, pass: &Pass) {
    for &id in &pass.folds {
        let fold = fold_of(text, id);
        if !elements::is_waiting(text, id) {
            text.line(format!("Folding<{fold}> f{id};"));
        }
    }
}

/// Writes uniform values, if there is an element. Otherwise their operands may have none.
pub(super) fn uniform(text: &mut Text<'_>, pass: &Pass) {
    if pass.uniform.is_empty() {
        return;
    }
    for &id in &pass.uniform {
        let ty = c_type(text.flat.nodes[id].ty);
        text.line(format!("{ty} v{id} = 0;"));
    }
    text.line("if (n > 0) {");
    for &id in &pass.uniform {
        let value = text.still(id);
        text.line(format!("v{id} = {value};"));
        text.fault(id, "");
    }
    text.line("}");
}

pub(super) fn row_stores(text: &mut Text<'_>, slots: &[usize], condition: &str) {
    for &slot in slots {
        let (access, value) = (text.output(slot), text.value(text.flat.outputs[slot]));
        text.line(format!("if ({condition}) store_one<dt_{}>(a{access}, {value});", text.dtype(access).name()));
    }
}

pub(super) fn fold_of(text: &Text<'_>, id: Id) -> String {
    let node = &text.flat.nodes[id];
    let Op::Fold(combine) = node.op else { unreachable!("the node is a fold") };
    fold_name(combine, text.flat.nodes[node.args[0]].ty)
}

/// The suffix that takes the index of a pair.
pub(super) fn index_of(text: &Text<'_>, id: Id) -> &'static str {
    match text.flat.nodes[id].op {
        Op::Fold(Combine::ArgMax | Combine::ArgMin) => ".index",
        Op::Fold(Combine::Sum | Combine::Prod | Combine::Max | Combine::Min | Combine::Any | Combine::All) => "",
        Op::Load(_) | Op::Lit(_) | Op::Prim(_) => unreachable!("the node is a fold"),
    }
}
