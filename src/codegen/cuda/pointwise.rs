//! Kernels without folds: a thread computes one or several vectors of neighbours along the inner loop.
//!
//! The last vector of a row may be partial. Its accesses are made element by element, but its arithmetic is that of a
//! whole one. Where rows consist of whole vectors, no bounds are checked. All loads of a thread come first, so that
//! many are in flight, and so that an output may replace an operand element for element. Vectors past the last one read
//! where it does, and store nothing.

use super::text::{Text, c_type};
use super::variant::{Form, POINTWISE_THREADS};
use super::words;
use crate::codegen::native::flat::{Id, Op};
use crate::codegen::native::passes::Pass;

/// Writes the only entry, called `name`.
pub(super) fn emit(text: &mut Text<'_>, pass: &Pass, name: &str) {
    let Form::Pointwise { width, vectors } = text.variant.form else { unreachable!("the form has no folds") };
    let unsigned = text.unsigned();
    let n_words = text.n_words();
    text.line(format!("KERNEL({POINTWISE_THREADS}) {name}(const Words<{n_words}> w) {{"));
    let per_block = vectors as u32 * POINTWISE_THREADS;
    text.line(format!("const {unsigned} first = ({unsigned})block_x() * {per_block}u + thread_x();"));
    let still: Vec<Id> = pass.row.iter().chain(&pass.uniform).copied().collect();
    let is_single = text.layout().rows == 0;
    if is_single {
        text.row_addresses();
        text.row_values(&still);
    } else {
        for &id in &still {
            text.line(format!("{} s{id}[{vectors}];", c_type(text.flat.nodes[id].ty)));
        }
    }
    let loads: Vec<Id> = pass.body.iter().copied().filter(|&id| is_loaded(text, id)).collect();
    for &id in &loads {
        text.line(format!("Vector<{}::Stored, {width}> x{id}[{vectors}];", text.loaded_type(id)));
    }
    if !loads.is_empty() || !(is_single || still.is_empty()) {
        vector(text, width, vectors);
        if !is_single {
            text.row_values(&still);
            still.iter().for_each(|&id| text.line(format!("s{id}[u] = v{id};")));
        }
        loads.iter().for_each(|&id| load(text, id));
        text.line("}");
    }
    text.note_indices(pass.body.iter().copied().filter(|id| !loads.contains(id)));
    vector(text, width, vectors);
    if !is_single {
        for &id in &still {
            let declaration = text.declaration(id);
            text.line(format!("{declaration} = s{id}[u];"));
        }
    }
    computed(text, pass, &loads, width);
    text.line("}");
    text.tell_noted();
    text.line("}");
}

/// Starts a loop over the vectors of a thread, with the number of elements and the row of each.
fn vector(text: &mut Text<'_>, width: usize, vectors: usize) {
    let (layout, signed, unsigned) = (text.layout(), text.signed(), text.unsigned());
    text.line(format!("UNROLL for (int u = 0; u < {vectors}; u++) {{"));
    text.line(format!(
        "const {unsigned} next = first + u * {POINTWISE_THREADS}u, items = ({unsigned})w.at[{}];",
        words::ITEMS
    ));
    text.line("const bool live = next < items;");
    text.line(format!("const {unsigned} item = live ? next : items - 1;"));
    if layout.rows == 0 {
        text.line(format!("const {signed} i = ({signed})item * {width};"));
    } else {
        let size = layout.size_of_loop(layout.items_of_row());
        text.line(format!("const {unsigned} row = divide(item, w.at[{}], w.at[{}]);", size + 1, size + 2));
        text.line(format!("const {signed} i = ({signed})(item - row * ({unsigned})w.at[{size}]) * {width};"));
        text.positions("row", 0..layout.rows, "p");
        text.row_addresses();
    }
    if !text.variant.is_full {
        text.line(format!("const {signed} left = ({signed})w.at[{}] - i;", words::INNER));
        text.line(format!("const int n = !live ? 0 : left < {width} ? (int)left : {width};"));
    }
}

/// Loads the elements of a vector.
fn load(text: &mut Text<'_>, id: Id) {
    let slot = text.flat.nodes[id].op.operand().expect("the node is a load");
    let distance = text.distance(slot, &[("i".into(), text.layout().rows)]);
    let (n, there) = if text.variant.is_full { ("", "live") } else { (", n", "n > 0") };
    let Some((index, size)) = text.index(id) else {
        text.line(format!("load_vector(x{id}[u], a{slot}{distance}{n});"));
        return;
    };
    let stride = size + 1;
    text.line(format!("gather_vector(x{id}[u], a{slot}{distance}, {index}, w.at[{size}], w.at[{stride}]{n});"));
    text.fault(id, &format!("{there} && "));
}

/// Writes the values of a vector's elements.
fn computed(text: &mut Text<'_>, pass: &Pass, loads: &[Id], width: usize) {
    let rows = text.layout().rows;
    let is_full = text.variant.is_full;
    let here = if is_full { "live" } else { "k < n" };
    declare_results(text, pass, &width.to_string());
    text.line(format!("UNROLL for (int k = 0; k < {width}; k++) {{"));
    for &id in &pass.body {
        let value = match text.flat.nodes[id].op {
            Op::Load(_) if loads.contains(&id) => format!("{}::widen(x{id}[u].element[k])", text.loaded_type(id)),
            Op::Load(slot) => {
                let value = text.loaded(id, slot as usize, &[("(i + k)".into(), rows)]);
                // A vector past the last one reads what that one does.
                if is_full || text.is_iota(slot as usize) { value } else { format!("{here} ? {value} : 0") }
            }
            Op::Prim(_) | Op::Lit(_) | Op::Fold(_) => text.still(id),
        };
        let declaration = text.declaration(id);
        text.line(format!("{declaration} = {value};"));
        // Lanes past the last element are computed from zeros. The index of a whole vector was checked when it was
        // loaded.
        if !loads.contains(&id) {
            text.fault(id, &format!("{here} && "));
        }
    }
    set_results(text, pass);
    text.line("}");
    for &slot in &pass.stores {
        let access = text.output(slot);
        let (dtype, distance) = (text.dtype(access).name(), text.distance(access, &[("i".into(), rows)]));
        let (condition, n) = if is_full { ("if (live) ", "") } else { ("", ", n") };
        text.line(format!("{condition}store_vector<dt_{dtype}>(a{access}{distance}, y{slot}{n});"));
    }
}

/// Declares the results of a vector, `width` of each.
pub(super) fn declare_results(text: &mut Text<'_>, pass: &Pass, width: &str) {
    for &slot in &pass.stores {
        let ty = text.flat.nodes[text.flat.outputs[slot]].ty;
        text.line(format!("{} y{slot}[{width}];", c_type(ty)));
    }
}

/// Sets the results of element `k`.
pub(super) fn set_results(text: &mut Text<'_>, pass: &Pass) {
    for &slot in &pass.stores {
        let value = text.value(text.flat.outputs[slot]);
        text.line(format!("y{slot}[k] = {value};"));
    }
}

/// Whether a node's elements can be loaded as vectors. Elements at indices of their own cannot.
fn is_loaded(text: &Text<'_>, id: Id) -> bool {
    let node = &text.flat.nodes[id];
    node.args.iter().all(|&arg| text.flat.nodes[arg].uniform)
        && node.op.operand().is_some_and(|slot| !text.is_iota(slot))
}
