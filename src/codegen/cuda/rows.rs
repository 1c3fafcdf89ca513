//! Kernels with folds: a team of 32 threads, or of several warps, computes a row, or a block of one.
//!
//! A thread of a warp is a partial result of every fold. So element `i` belongs to lane `i mod 32` in every pass, and
//! what a pass writes for an element is read by the same thread in the next. A pass is a loop over the elements. In
//! [`Form::Held`], a thread holds what later passes need of its elements; in other forms it is recomputed from
//! operands. Rows of one launch are independent.

use super::argument;
use super::elements::{self, Span};
use super::held;
use super::variant::{Form, LANES, WARPS, rows_of_columns};
use super::writer::{Writer, c_type, fold_name};
use crate::codegen::native::flat::{FlatNodeId, FlatOp};
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
pub(super) fn emit_whole(writer: &mut Writer<'_>, passes: &Passes, name: &str) {
    let is_column = writer.variant.form == Form::Columns;
    let unsigned = writer.unsigned();
    let side = rows_of_columns(writer.kernel);
    open(writer, name, if is_column { side * LANES } else { WARPS * LANES });
    if is_column {
        writer.line(format!("SHARED(uint4, slots, {});", side * LANES));
        writer.line(format!("const {unsigned} item = ({unsigned})block_x() * {side}u + thread_x();"));
        writer.line(format!("const bool live = item < ({unsigned})w.at[{}];", argument::ROWS));
        // Its threads have to reach the barriers of the others.
        writer.line("// A row past the end is computed like the last row, and not written.");
        writer.line(format!("const {unsigned} row = live ? item : ({unsigned})w.at[{}] - 1;", argument::ROWS));
        writer.line(format!("Column<{side}> team = {{thread_y(), thread_x(), (char*)slots}};"));
    } else {
        item_of_warp(writer);
        writer.line(format!("const {unsigned} row = item;"));
    }
    row(writer);
    for pass in &passes.passes {
        writer.row_values(&pass.row);
        foldings(writer, pass);
        if pass.has_loop() {
            writer.line("{");
            uniform(writer, pass);
            elements::noting(writer, pass, |writer| whole_loop(writer, pass));
            writer.line("}");
        }
        for &id in &pass.folds {
            let (declaration, index) = (writer.declaration(id), index_of(writer, id));
            writer.line(format!("{declaration} = total(f{id}, n, team){index};"));
        }
    }
    row_stores(writer, &passes.row_stores, if is_column { "team.lane == 0 && live" } else { "team.lane == 0" });
    writer.line("}");
}

/// Writes the only entry of a kernel whose threads hold `held` elements of a row each, in so many warps.
pub(super) fn emit_held(writer: &mut Writer<'_>, passes: &Passes, name: &str, held: usize, warps: usize) {
    let (unsigned, signed) = (writer.unsigned(), writer.signed());
    if warps == 1 {
        open(writer, name, WARPS * LANES);
        item_of_warp(writer);
        writer.line(format!("const {unsigned} row = item;"));
        writer.line(format!("const {signed} first = ({signed})team.lane;"));
    } else {
        open(writer, name, warps as u32 * LANES);
        writer.line(format!("SHARED(uint4, slots, {});", 2 * (warps + 1) * LANES as usize));
        writer.line(format!("const {unsigned} row = block_x();"));
        let of_rows = if writer.variant.is_full { ", true" } else { "" };
        writer.line(format!(
            "Crew<{warps}, {held}{of_rows}> team = {{thread_x() % {LANES}u, thread_x() / {LANES}u, (char*)slots}};"
        ));
        writer.line(format!("const {signed} first = ({signed})(team.warp * {}u + team.lane);", held as u32 * LANES));
    }
    row(writer);
    if !writer.variant.is_full {
        writer.line(format!("const {signed} end = ({signed})n;"));
    }
    for pass in &passes.passes {
        writer.row_values(&pass.row);
        for &(id, _) in &pass.keeps {
            writer.line(format!("{} h{id}[{held}];", c_type(writer.flat.nodes[id].ty)));
        }
        let waiting = if warps == 1 { Vec::new() } else { held::waiting(writer.flat, pass) };
        for &id in &waiting {
            writer.line(format!("{} q{id}[{held}];", c_type(writer.flat.nodes[id].ty)));
        }
        foldings(writer, pass);
        if pass.has_loop() {
            writer.line("{");
            uniform(writer, pass);
            elements::noting(writer, pass, |writer| held_elements(writer, pass, held, &waiting));
            writer.line("}");
        }
        for &id in &pass.folds {
            let (declaration, index, fold) = (writer.declaration(id), index_of(writer, id), fold_of(writer, id));
            let folded = writer.flat.nodes[id].args[0];
            let total = if !elements::is_waiting(writer, id) {
                format!("team.tree<{fold}>(f{id}.element")
            } else if waiting.contains(&folded) {
                format!("team.in_turn<{fold}>(q{folded}")
            } else {
                format!("team.in_turn<{fold}>(h{folded}")
            };
            let length = if warps == 1 { "" } else { ", n" };
            writer.line(format!("{declaration} = {total}{length}){index};"));
        }
    }
    let condition = if warps == 1 { "team.lane == 0" } else { "first == 0" };
    row_stores(writer, &passes.row_stores, condition);
    writer.line("}");
}

fn held_elements(writer: &mut Writer<'_>, pass: &Pass, held: usize, waiting: &[FlatNodeId]) {
    let count = elements::batch(writer, pass, held);
    let end = if writer.variant.is_full { None } else { Some("end") };
    let mut span = Span { end, count, at: "k", stored: "", waiting };
    if count == held {
        elements::emit(writer, pass, &span);
        return;
    }
    span.at = "g + k";
    writer.line(format!("UNROLL for (int g = 0; g < {held}; g += {count}) {{"));
    elements::emit(writer, pass, &span);
    writer.line("}");
}

/// Writes the loop of one team over all elements of its row.
fn whole_loop(writer: &mut Writer<'_>, pass: &Pass) {
    let unsigned = writer.unsigned();
    if pass.folds.is_empty() {
        loop_between(writer, pass, "0", "n");
        return;
    }
    writer.line(format!("for ({unsigned} start = 0, block = 0; start < n; start += BLOCK, block++) {{"));
    writer.line(format!("const {unsigned} end = n - start < BLOCK ? n : start + BLOCK;"));
    loop_between(writer, pass, "start", "end");
    writer.line("if (n > BLOCK) {");
    for &id in &pass.folds {
        writer.line(format!("close_block(f{id}, block, n, team);"));
    }
    writer.line("}");
    writer.line("}");
}

/// Writes a loop over the elements of a team's lane between two positions.
pub(super) fn loop_between(writer: &mut Writer<'_>, pass: &Pass, start: &str, end: &str) {
    let (signed, unsigned) = (writer.signed(), writer.unsigned());
    let is_column = writer.variant.form == Form::Columns;
    let at_once = if !is_column {
        AT_ONCE
    } else if computes_with_doubles(writer, pass) {
        1
    } else {
        AT_ONCE_OF_COLUMNS
    };
    let count = elements::batch(writer, pass, at_once);
    writer.line(format!("for ({unsigned} next = {start} + team.lane; next < {end}; next += {count} * LANES) {{"));
    writer.line(format!("const {signed} first = ({signed})next;"));
    let end = format!("({signed}){end}");
    let stored = if is_column { "live" } else { "" };
    elements::emit(writer, pass, &Span { end: Some(&end), count, at: "k", stored, waiting: &[] });
    writer.line("}");
}

/// Whether elements need so many registers for f64 that none are left for further elements. The compiler calls
/// functions for some quotients, remainders and roots, around which registers are spilled; these functions have some 30
/// nodes.
fn computes_with_doubles(writer: &Writer<'_>, pass: &Pass) -> bool {
    let doubles = || pass.body.iter().map(|&id| &writer.flat.nodes[id]).filter(|node| node.ty == Ty::F64);
    doubles().count() > FEW_DOUBLES
        || doubles().any(|node| matches!(node.op, FlatOp::Prim(Prim::Div | Prim::Rem | Prim::Sqrt)))
}

pub(super) fn open(writer: &mut Writer<'_>, name: &str, threads: u32) {
    let n_words = writer.n_words();
    writer.line(format!("KERNEL({threads}) {name}(const Words<{n_words}> w) {{"));
}

/// Writes the item of a warp. Warps without an item return as a whole.
pub(super) fn item_of_warp(writer: &mut Writer<'_>) {
    let unsigned = writer.unsigned();
    writer.line(format!("const {unsigned} item = ({unsigned})block_x() * {WARPS}u + thread_x() / {LANES}u;"));
    writer.line(format!("if (item >= ({unsigned})w.at[{}]) return;", argument::ITEMS));
    writer.line(format!("Warp team = {{thread_x() % {LANES}u}};"));
}

/// Writes the number of elements, and the address of the row.
pub(super) fn row(writer: &mut Writer<'_>) {
    let unsigned = writer.unsigned();
    let n = match held_of_full(writer) {
        Some(elements) => format!("{elements}u"),
        None => format!("({unsigned})w.at[{}]", argument::INNER),
    };
    writer.line(format!("const {unsigned} n = {n};"));
    writer.positions("row", 0..writer.layout().rows, "p");
    writer.row_addresses();
}

/// The elements of a row, where its threads hold as many as they can.
fn held_of_full(writer: &Writer<'_>) -> Option<usize> {
    let Form::Held { held, warps } = writer.variant.form else { return None };
    writer.variant.is_full.then_some(held * warps * LANES as usize)
}

pub(super) fn foldings(writer: &mut Writer<'_>, pass: &Pass) {
    for &id in &pass.folds {
        let fold = fold_of(writer, id);
        if !elements::is_waiting(writer, id) {
            writer.line(format!("Folding<{fold}> f{id};"));
        }
    }
}

/// Writes uniform values, if there is an element. Otherwise their operands may have none.
pub(super) fn uniform(writer: &mut Writer<'_>, pass: &Pass) {
    if pass.uniform.is_empty() {
        return;
    }
    for &id in &pass.uniform {
        let ty = c_type(writer.flat.nodes[id].ty);
        writer.line(format!("{ty} v{id} = 0;"));
    }
    writer.line("if (n > 0) {");
    for &id in &pass.uniform {
        let value = writer.uniform_value(id);
        writer.line(format!("v{id} = {value};"));
        writer.fault(id, "");
    }
    writer.line("}");
}

pub(super) fn row_stores(writer: &mut Writer<'_>, slots: &[usize], condition: &str) {
    for &slot in slots {
        let (access, value) = (writer.output(slot), writer.value(writer.flat.outputs[slot]));
        writer.line(format!("if ({condition}) store_one<dt_{}>(a{access}, {value});", writer.dtype(access).name()));
    }
}

pub(super) fn fold_of(writer: &Writer<'_>, id: FlatNodeId) -> String {
    let node = &writer.flat.nodes[id];
    let FlatOp::Fold(combine) = node.op else { unreachable!("the node is a fold") };
    fold_name(combine, writer.flat.nodes[node.args[0]].ty)
}

/// The suffix that takes the index of a pair.
pub(super) fn index_of(writer: &Writer<'_>, id: FlatNodeId) -> &'static str {
    match writer.flat.nodes[id].op {
        FlatOp::Fold(Combine::ArgMax | Combine::ArgMin) => ".index",
        FlatOp::Fold(Combine::Sum | Combine::Prod | Combine::Max | Combine::Min | Combine::Any | Combine::All) => "",
        FlatOp::Load(_) | FlatOp::Lit(_) | FlatOp::Prim(_) => unreachable!("the node is a fold"),
    }
}
