//! Kernels without folds: a thread computes one or several vectors of neighbours along the inner loop.
//!
//! The last vector of a row may be partial. Its accesses are made element by element, but its arithmetic is that of a
//! whole one. Where rows consist of whole vectors, no bounds are checked. All loads of a thread come first, so that
//! many are in flight, and so that an output may replace an operand element for element. Vectors past the last one read
//! where it does, and store nothing.

use super::argument;
use super::variant::{Form, POINTWISE_THREADS};
use super::writer::{Writer, c_type};
use crate::codegen::native::flat::{FlatNodeId, FlatOp};
use crate::codegen::native::passes::Pass;

/// Writes the only entry, called `name`.
pub(super) fn emit(writer: &mut Writer<'_>, pass: &Pass, name: &str) {
    let Form::Pointwise { width, vectors } = writer.variant.form else { unreachable!("the form has no folds") };
    let unsigned = writer.unsigned();
    let n_words = writer.n_words();
    writer.line(format!("KERNEL({POINTWISE_THREADS}) {name}(const Words<{n_words}> w) {{"));
    let per_block = vectors as u32 * POINTWISE_THREADS;
    writer.line(format!("const {unsigned} first = ({unsigned})block_x() * {per_block}u + thread_x();"));
    let uniform: Vec<FlatNodeId> = pass.row.iter().chain(&pass.uniform).copied().collect();
    let is_single = writer.layout().rows == 0;
    if is_single {
        writer.row_addresses();
        writer.row_values(&uniform);
    } else {
        for &id in &uniform {
            writer.line(format!("{} s{id}[{vectors}];", c_type(writer.flat.nodes[id].ty)));
        }
    }
    let loads: Vec<FlatNodeId> = pass.body.iter().copied().filter(|&id| is_loaded(writer, id)).collect();
    for &id in &loads {
        writer.line(format!("Vector<{}::Stored, {width}> x{id}[{vectors}];", writer.loaded_type(id)));
    }
    if !loads.is_empty() || !(is_single || uniform.is_empty()) {
        vector(writer, width, vectors);
        if !is_single {
            writer.row_values(&uniform);
            uniform.iter().for_each(|&id| writer.line(format!("s{id}[u] = v{id};")));
        }
        loads.iter().for_each(|&id| load(writer, id));
        writer.line("}");
    }
    writer.note_indices(pass.body.iter().copied().filter(|id| !loads.contains(id)));
    vector(writer, width, vectors);
    if !is_single {
        for &id in &uniform {
            let declaration = writer.declaration(id);
            writer.line(format!("{declaration} = s{id}[u];"));
        }
    }
    computed(writer, pass, &loads, width);
    writer.line("}");
    writer.record_noted();
    writer.line("}");
}

/// Starts a loop over the vectors of a thread, with the number of elements and the row of each.
fn vector(writer: &mut Writer<'_>, width: usize, vectors: usize) {
    let (layout, signed, unsigned) = (writer.layout(), writer.signed(), writer.unsigned());
    writer.line(format!("UNROLL for (int u = 0; u < {vectors}; u++) {{"));
    writer.line(format!(
        "const {unsigned} next = first + u * {POINTWISE_THREADS}u, items = ({unsigned})w.at[{}];",
        argument::ITEMS
    ));
    writer.line("const bool live = next < items;");
    writer.line(format!("const {unsigned} item = live ? next : items - 1;"));
    if layout.rows == 0 {
        writer.line(format!("const {signed} i = ({signed})item * {width};"));
    } else {
        let size = layout.size_of_loop(layout.items_of_row());
        writer.line(format!("const {unsigned} row = divide(item, w.at[{}], w.at[{}]);", size + 1, size + 2));
        writer.line(format!("const {signed} i = ({signed})(item - row * ({unsigned})w.at[{size}]) * {width};"));
        writer.positions("row", 0..layout.rows, "p");
        writer.row_addresses();
    }
    if !writer.variant.is_full {
        writer.line(format!("const {signed} left = ({signed})w.at[{}] - i;", argument::INNER));
        writer.line(format!("const int n = !live ? 0 : left < {width} ? (int)left : {width};"));
    }
}

/// Loads the elements of a vector.
fn load(writer: &mut Writer<'_>, id: FlatNodeId) {
    let slot = writer.flat.nodes[id].op.operand().expect("the node is a load");
    let distance = writer.distance(slot, &[("i".into(), writer.layout().rows)]);
    let (n, there) = if writer.variant.is_full { ("", "live") } else { (", n", "n > 0") };
    let Some((index, size)) = writer.index(id) else {
        writer.line(format!("load_vector(x{id}[u], a{slot}{distance}{n});"));
        return;
    };
    let stride = size + 1;
    writer.line(format!("gather_vector(x{id}[u], a{slot}{distance}, {index}, w.at[{size}], w.at[{stride}]{n});"));
    writer.fault(id, &format!("{there} && "));
}

/// Writes the values of a vector's elements.
fn computed(writer: &mut Writer<'_>, pass: &Pass, loads: &[FlatNodeId], width: usize) {
    let rows = writer.layout().rows;
    let is_full = writer.variant.is_full;
    let here = if is_full { "live" } else { "k < n" };
    declare_results(writer, pass, &width.to_string());
    writer.line(format!("UNROLL for (int k = 0; k < {width}; k++) {{"));
    for &id in &pass.body {
        let value = match writer.flat.nodes[id].op {
            FlatOp::Load(_) if loads.contains(&id) => format!("{}::widen(x{id}[u].element[k])", writer.loaded_type(id)),
            FlatOp::Load(slot) => {
                let value = writer.loaded(id, slot as usize, &[("(i + k)".into(), rows)]);
                // A vector past the last one reads what that one does.
                if is_full || writer.is_iota(slot as usize) { value } else { format!("{here} ? {value} : 0") }
            }
            FlatOp::Prim(_) | FlatOp::Lit(_) | FlatOp::Fold(_) => writer.uniform_value(id),
        };
        let declaration = writer.declaration(id);
        writer.line(format!("{declaration} = {value};"));
        // Lanes past the last element are computed from zeros. The index of a whole vector was checked when it was
        // loaded.
        if !loads.contains(&id) {
            writer.fault(id, &format!("{here} && "));
        }
    }
    set_results(writer, pass);
    writer.line("}");
    for &slot in &pass.stores {
        let access = writer.output(slot);
        let (dtype, distance) = (writer.dtype(access).name(), writer.distance(access, &[("i".into(), rows)]));
        let (condition, n) = if is_full { ("if (live) ", "") } else { ("", ", n") };
        writer.line(format!("{condition}store_vector<dt_{dtype}>(a{access}{distance}, y{slot}{n});"));
    }
}

/// Declares the results of a vector, `width` of each.
pub(super) fn declare_results(writer: &mut Writer<'_>, pass: &Pass, width: &str) {
    for &slot in &pass.stores {
        let ty = writer.flat.nodes[writer.flat.outputs[slot]].ty;
        writer.line(format!("{} y{slot}[{width}];", c_type(ty)));
    }
}

/// Sets the results of element `k`.
pub(super) fn set_results(writer: &mut Writer<'_>, pass: &Pass) {
    for &slot in &pass.stores {
        let value = writer.value(writer.flat.outputs[slot]);
        writer.line(format!("y{slot}[k] = {value};"));
    }
}

/// Whether a node's elements can be loaded as vectors. Elements at indices of their own cannot.
fn is_loaded(writer: &Writer<'_>, id: FlatNodeId) -> bool {
    let node = &writer.flat.nodes[id];
    node.args.iter().all(|&arg| writer.flat.nodes[arg].uniform)
        && node.op.operand().is_some_and(|slot| !writer.is_iota(slot))
}
