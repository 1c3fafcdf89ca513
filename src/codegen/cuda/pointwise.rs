//! Kernels without folds: a thread computes some neighbours along the inner loop.
//!
//! Vectors of a row are counted; the last one may be short, and then its accesses are made element by element while its
//! arithmetic is that of a whole one. All loads of a thread come before its stores, so an output may replace an operand
//! element for element.

use super::plan::{Form, POINTWISE_THREADS};
use super::text::{Text, c_type};
use super::words;
use crate::codegen::geometry::Class;
use crate::codegen::native::flat::{Id, Op};
use crate::codegen::native::passes::Pass;

/// Writes the only entry, under `name`.
pub(super) fn emit(text: &mut Text<'_>, pass: &Pass, name: &str) {
    let Form::Pointwise { width } = text.variant.form else { unreachable!("the form has no folds") };
    let (layout, signed, unsigned) = (text.layout(), text.signed(), text.unsigned());
    let n_words = text.n_words();
    text.line(format!("KERNEL({POINTWISE_THREADS}) {name}(const Words<{n_words}> w) {{"));
    text.line(format!("const {unsigned} item = ({unsigned})block_x() * {POINTWISE_THREADS}u + thread_x();"));
    text.line(format!("if (item >= ({unsigned})w.at[{}]) return;", words::ITEMS));
    if layout.rows == 0 {
        text.line(format!("const {signed} i = ({signed})item * {width};"));
    } else {
        let size = layout.size_of_loop(layout.items_of_row());
        text.line(format!("const {unsigned} row = divide(item, w.at[{}], w.at[{}]);", size + 1, size + 2));
        text.line(format!("const {signed} i = ({signed})(item - row * ({unsigned})w.at[{size}]) * {width};"));
        text.positions("row", 0..layout.rows, "p");
    }
    text.row_addresses();
    let still: Vec<Id> = pass.row.iter().chain(&pass.uniform).copied().collect();
    text.row_values(&still);
    if width == 1 {
        element(text, pass);
    } else {
        vector(text, pass, width);
    }
    text.line("}");
}

/// One element per thread.
fn element(text: &mut Text<'_>, pass: &Pass) {
    let position = [("i".into(), text.layout().rows)];
    text.element_values(&pass.body, &position);
    for &slot in &pass.stores {
        let (access, value) = (text.output(slot), text.value(text.flat.outputs[slot]));
        let distance = text.distance(access, &position);
        text.line(format!("store_one<dt_{}>(a{access}{distance}, {value});", text.dtype(access).name()));
    }
}

/// Several elements per thread.
fn vector(text: &mut Text<'_>, pass: &Pass, width: usize) {
    let (inner, signed) = (text.layout().rows, text.signed());
    text.line(format!("const {signed} left = ({signed})w.at[{}] - i;", words::INNER));
    text.line(format!("const int n = left < {width} ? (int)left : {width};"));
    let in_line = |text: &Text<'_>, access: usize| !text.is_iota(access) && text.class(access) == Class::Contiguous;
    for &id in &pass.body {
        let node = &text.flat.nodes[id];
        if let Op::Load(slot) = node.op
            && node.args.is_empty()
            && in_line(text, slot as usize)
        {
            let dtype = text.dtype(slot as usize);
            text.line(format!("{} x{id}[{width}];", c_type(node.ty)));
            text.line(format!("load_vector<dt_{}>(x{id}, a{slot} + i * {}, n);", dtype.name(), dtype.size()));
        }
    }
    for &slot in &pass.stores {
        let ty = text.flat.nodes[text.flat.outputs[slot]].ty;
        text.line(format!("{} y{slot}[{width}];", c_type(ty)));
    }
    text.line(format!("UNROLL for (int k = 0; k < {width}; k++) {{"));
    for &id in &pass.body {
        let node = &text.flat.nodes[id];
        let value = match node.op {
            Op::Load(slot) if node.args.is_empty() && in_line(text, slot as usize) => format!("x{id}[k]"),
            Op::Load(slot) => text.loaded(id, slot as usize, &[("(i + k)".into(), inner)]),
            Op::Prim(_) | Op::Lit(_) | Op::Fold(_) => text.still(id),
        };
        let declaration = text.declaration(id);
        text.line(format!("{declaration} = {value};"));
        // Lanes behind the last element are computed of zeros, and read what is there.
        text.fault(id, "k < n && ");
    }
    for &slot in &pass.stores {
        let value = text.value(text.flat.outputs[slot]);
        text.line(format!("y{slot}[k] = {value};"));
    }
    text.line("}");
    for &slot in &pass.stores {
        let (access, dtype) = (text.output(slot), text.dtype(text.output(slot)));
        text.line(format!("store_vector<dt_{}>(a{access} + i * {}, y{slot}, n);", dtype.name(), dtype.size()));
    }
}
