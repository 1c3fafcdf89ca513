//! Kernels with folds: a team of 32 threads computes a row, or a block of one.
//!
//! A thread of the team is a partial result of every fold, so element `i` belongs to thread `i mod 32` in every pass, and
//! what one pass wrote for an element the same thread reads in the next. A pass is a loop over the elements; values of an
//! earlier one are computed again from operands, which are near by then. Rows of one launch are independent.
//!
//! [`Form::Blocks`] has an entry per pass. A team leaves the results of its block in memory, and teams of later launches
//! each fold them once more: that takes a few steps, and no team waits for another.

use super::plan::{Form, LANES, WARPS};
use super::text::{Text, c_type, fold_name};
use super::words;
use crate::codegen::kernel::Level;
use crate::codegen::native::flat::{Id, Op};
use crate::codegen::native::passes::{Pass, Passes};
use crate::ir::Combine;

/// Writes the only entry of a kernel whose rows are computed by one team each.
pub(super) fn emit_whole(text: &mut Text<'_>, passes: &Passes, name: &str) {
    let is_column = text.variant.form == Form::Columns;
    let unsigned = text.unsigned();
    open(text, name, if is_column { LANES * LANES } else { WARPS * LANES });
    if is_column {
        text.line(format!("SHARED(uint4, slots, {});", LANES * LANES));
        text.line(format!("const {unsigned} item = ({unsigned})block_x() * {LANES}u + thread_x();"));
        text.line(format!("const bool live = item < ({unsigned})w.at[{}];", words::ROWS));
        // Its threads have to meet the others at barriers.
        text.line("// A row behind the last is computed as the last one is, and not written.");
        text.line(format!("const {unsigned} row = live ? item : ({unsigned})w.at[{}] - 1;", words::ROWS));
        text.line("Column team = {thread_y(), thread_x(), (char*)slots};");
    } else {
        item_of_warp(text);
        text.line("const {} row = item;".replace("{}", unsigned));
    }
    row(text);
    for pass in &passes.passes {
        text.row_values(&pass.row);
        foldings(text, pass);
        if pass.has_loop() {
            text.line("{");
            uniform(text, pass);
            whole_loop(text, pass);
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

/// Writes the entry of one pass over blocks of rows.
pub(super) fn emit_pass(text: &mut Text<'_>, passes: &Passes, number: usize, name: &str) {
    let (unsigned, layout) = (text.unsigned(), text.layout());
    let pass = &passes.passes[number];
    let is_last = number + 1 == passes.passes.len();
    open(text, name, WARPS * LANES);
    item_of_warp(text);
    let size = layout.size_of_loop(layout.items_of_row());
    text.line(format!("const {unsigned} blocks = ({unsigned})w.at[{size}];"));
    text.line(format!("const {unsigned} row = divide(item, w.at[{}], w.at[{}]);", size + 1, size + 2));
    text.line(format!("const {unsigned} block = item - row * blocks;"));
    row(text);
    let all_folds: Vec<Id> = passes.passes.iter().flat_map(|pass| pass.folds.iter().copied()).collect();
    let first_part = |id: Id| {
        let fold = all_folds.iter().position(|&other| other == id).expect("a fold belongs to a pass");
        format!("(u64){fold} * w.at[{}] * blocks + (u64)row * blocks", words::ROWS)
    };
    for id in known_before(text, passes, number) {
        if let Op::Fold(_) = text.flat.nodes[id].op {
            let (declaration, index, fold) = (text.declaration(id), index_of(text, id), fold_of(text, id));
            text.line(format!(
                "{declaration} = total_of_parts<{fold}>(w.at[{}], {}, n == 0 ? 0 : blocks, team){index};",
                words::SCRATCH,
                first_part(id)
            ));
        } else {
            text.row_values(&[id]);
        }
    }
    foldings(text, pass);
    if pass.has_loop() {
        text.line("{");
        uniform(text, pass);
        text.line(format!("const {unsigned} start = block * BLOCK;"));
        text.line(format!("const {unsigned} end = n - start < BLOCK ? n : start + BLOCK;"));
        text.line(format!("for ({unsigned} i = start + team.lane; i < end; i += LANES) {{"));
        elements(text, pass);
        text.line("}");
        text.line("}");
    }
    for &id in &pass.folds {
        let fold = fold_of(text, id);
        text.line(format!("const {fold}::Part r{id} = team.tree<{fold}>(f{id}.element);"));
        text.line(format!(
            "if (team.lane == 0) *part<{fold}>(w.at[{}], {} + block) = r{id};",
            words::SCRATCH,
            first_part(id)
        ));
    }
    if is_last {
        row_stores(text, &passes.row_stores, "team.lane == 0 && block == 0");
    }
    text.line("}");
}

fn open(text: &mut Text<'_>, name: &str, threads: u32) {
    let n_words = text.n_words();
    text.line(format!("KERNEL({threads}) {name}(const Words<{n_words}> w) {{"));
}

/// The item of a warp; warps without one leave as a whole.
fn item_of_warp(text: &mut Text<'_>) {
    let unsigned = text.unsigned();
    text.line(format!("const {unsigned} item = ({unsigned})block_x() * {WARPS}u + thread_x() / {LANES}u;"));
    text.line(format!("if (item >= ({unsigned})w.at[{}]) return;", words::ITEMS));
    text.line(format!("Warp team = {{thread_x() % {LANES}u}};"));
}

/// The number of elements, and where the row is.
fn row(text: &mut Text<'_>) {
    let unsigned = text.unsigned();
    text.line(format!("const {unsigned} n = ({unsigned})w.at[{}];", words::INNER));
    text.positions("row", 0..text.layout().rows, "p");
    text.row_addresses();
}

/// The row values that a pass over blocks needs, folds of earlier passes among them, operands first.
fn known_before(text: &Text<'_>, passes: &Passes, number: usize) -> Vec<Id> {
    let (flat, pass) = (text.flat, &passes.passes[number]);
    let mut needed = vec![false; flat.nodes.len()];
    let mut stack: Vec<Id> = pass.folds.iter().flat_map(|&id| flat.nodes[id].args.iter().copied()).collect();
    stack.extend(pass.stores.iter().map(|&slot| flat.outputs[slot]));
    if number + 1 == passes.passes.len() {
        stack.extend(passes.row_stores.iter().map(|&slot| flat.outputs[slot]));
    }
    while let Some(id) = stack.pop() {
        let is_fold = matches!(flat.nodes[id].op, Op::Fold(_));
        if !std::mem::replace(&mut needed[id], true) && !is_fold {
            stack.extend(flat.nodes[id].args.iter().copied());
        }
    }
    let of_row = |&id: &Id| needed[id] && flat.nodes[id].level == Level::Row && flat.as_lit(id).is_none();
    (0..needed.len()).filter(of_row).collect()
}

fn foldings(text: &mut Text<'_>, pass: &Pass) {
    for &id in &pass.folds {
        let fold = fold_of(text, id);
        text.line(format!("Folding<{fold}> f{id};"));
    }
}

/// Values that are the same for all elements, if there is one: their operands may be nothing otherwise.
fn uniform(text: &mut Text<'_>, pass: &Pass) {
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

/// The loop of one team over all elements of its row.
fn whole_loop(text: &mut Text<'_>, pass: &Pass) {
    let unsigned = text.unsigned();
    if pass.folds.is_empty() {
        text.line(format!("for ({unsigned} i = team.lane; i < n; i += LANES) {{"));
        elements(text, pass);
        text.line("}");
        return;
    }
    text.line(format!("for ({unsigned} start = 0, block = 0; start < n; start += BLOCK, block++) {{"));
    text.line(format!("const {unsigned} end = n - start < BLOCK ? n : start + BLOCK;"));
    text.line(format!("for ({unsigned} i = start + team.lane; i < end; i += LANES) {{"));
    elements(text, pass);
    text.line("}");
    text.line("if (n > BLOCK) {");
    for &id in &pass.folds {
        text.line(format!("close_block(f{id}, block, n, team);"));
    }
    text.line("}");
    text.line("}");
}

/// What is done for element `i`.
fn elements(text: &mut Text<'_>, pass: &Pass) {
    let layout = text.layout();
    let positions: Vec<(String, usize)> = match layout.inner {
        1 => vec![(format!("({})i", text.signed()), layout.rows)],
        several => {
            text.positions("i", layout.rows..layout.rows + several, "j");
            (0..several).map(|index| (format!("j{index}"), layout.rows + index)).collect()
        }
    };
    text.element_values(&pass.body, &positions);
    for &id in &pass.folds {
        let args: Vec<String> = text.flat.nodes[id].args.iter().map(|&arg| text.value(arg)).collect();
        match &args[..] {
            [value, index] => text.line(format!("f{id}.add(at({value}, {index}));")),
            args => text.line(format!("f{id}.add({});", args[0])),
        }
    }
    for &slot in &pass.stores {
        let (access, value) = (text.output(slot), text.value(text.flat.outputs[slot]));
        let condition = if text.variant.form == Form::Columns { "if (live) " } else { "" };
        let (distance, dtype) = (text.distance(access, &positions), text.dtype(access).name());
        text.line(format!("{condition}store_one<dt_{dtype}>(a{access}{distance}, {value});"));
    }
}

fn row_stores(text: &mut Text<'_>, slots: &[usize], condition: &str) {
    for &slot in slots {
        let (access, value) = (text.output(slot), text.value(text.flat.outputs[slot]));
        text.line(format!("if ({condition}) store_one<dt_{}>(a{access}, {value});", text.dtype(access).name()));
    }
}

fn fold_of(text: &Text<'_>, id: Id) -> String {
    let node = &text.flat.nodes[id];
    let Op::Fold(combine) = node.op else { unreachable!("the node is a fold") };
    fold_name(combine, text.flat.nodes[node.args[0]].ty)
}

/// What takes the index out of a pair.
fn index_of(text: &Text<'_>, id: Id) -> &'static str {
    match text.flat.nodes[id].op {
        Op::Fold(Combine::ArgMax | Combine::ArgMin) => ".index",
        Op::Fold(Combine::Sum | Combine::Prod | Combine::Max | Combine::Min | Combine::Any | Combine::All) => "",
        Op::Load(_) | Op::Lit(_) | Op::Prim(_) => unreachable!("the node is a fold"),
    }
}
