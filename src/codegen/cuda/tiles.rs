//! Kernels without folds that read some operands transposed: a thread block computes a square of elements.
//!
//! Such an operand is contiguous along a row loop. The threads of a warp read it along that loop, and find it in shared
//! memory when they compute elements along the inner loop. So all accesses are coalesced. Lines of the square are
//! padded by an element, so that neither lines nor columns have bank conflicts.

use super::text::Text;
use super::variant::{Form, TILE, TILE_LINES};
use super::words;
use crate::codegen::native::flat::{Id, Op};
use crate::codegen::native::passes::Pass;

/// Writes the only entry, called `name`.
pub(super) fn emit(text: &mut Text<'_>, pass: &Pass, name: &str) {
    let Form::Tiles { along, crossed } = text.variant.form else { unreachable!("the form has tiles") };
    let crossed: Vec<usize> = (0..text.kernel.operands.len().min(64)).filter(|slot| crossed >> slot & 1 == 1).collect();
    let n_words = text.n_words();
    text.line(format!("KERNEL({}) {name}(const Words<{n_words}> w) {{", TILE * TILE_LINES));
    for &slot in &crossed {
        text.line(format!("SHARED(dt_{}::Stored, tile{slot}, {});", text.dtype(slot).name(), TILE * (TILE + 1)));
    }
    place(text, along);
    let (signed, inner) = (text.signed(), text.layout().rows);
    let steps = TILE / TILE_LINES;
    let inside = format!(
        "across < {signed}(w.at[{}]) && down < {signed}(w.at[{}])",
        words::INNER,
        text.layout().size_of_loop(along)
    );
    let positions = [("down".into(), along), ("across".into(), inner)];
    let at = |text: &Text<'_>, slot: usize| text.distance(slot, &positions);
    text.line(format!("UNROLL for (int k = 0; k < {steps}; k++) {{"));
    text.line(format!("const u32 line = thread_y() + k * {TILE_LINES}u;"));
    text.line(format!("const {signed} down = top + thread_x(), across = begin + line;"));
    for &slot in &crossed {
        let (dtype, distance) = (text.dtype(slot).name(), at(text, slot));
        text.line(format!(
            "if ({inside}) tile{slot}[line * {} + thread_x()] = *(const dt_{dtype}::Stored*)(a{slot}{distance});",
            TILE + 1
        ));
    }
    text.line("}");
    let all: Vec<Id> = pass.row.iter().chain(&pass.uniform).chain(&pass.body).copied().collect();
    let is_plain = |text: &Text<'_>, id: Id| {
        let node = &text.flat.nodes[id];
        node.args.is_empty() && node.op.operand().is_some_and(|slot| !text.is_iota(slot) && !crossed.contains(&slot))
    };
    let loads: Vec<Id> = all.iter().copied().filter(|&id| is_plain(text, id)).collect();
    for &id in &loads {
        text.line(format!("{}::Stored x{id}[{steps}];", text.loaded_type(id)));
    }
    let element = |text: &mut Text<'_>| {
        text.line(format!("UNROLL for (int k = 0; k < {steps}; k++) {{"));
        text.line(format!("const u32 line = thread_y() + k * {TILE_LINES}u;"));
        text.line(format!("const {signed} down = top + line, across = begin + thread_x();"));
        text.line(format!("const bool here = {inside};"));
    };
    if !loads.is_empty() {
        element(text);
        for &id in &loads {
            text.line(format!("x{id}[k] = here ? {} : 0;", text.stored(id, 'a', &positions)));
        }
        text.line("}");
    }
    text.line("barrier();");
    text.note_indices(all.iter().copied());
    element(text);
    for &id in &all {
        let value = match text.flat.nodes[id].op {
            Op::Load(_) if loads.contains(&id) => format!("{}::widen(x{id}[k])", text.loaded_type(id)),
            Op::Load(slot) if crossed.contains(&(slot as usize)) => {
                format!("here ? {}::widen(tile{slot}[thread_x() * {} + line]) : 0", text.loaded_type(id), TILE + 1)
            }
            Op::Load(slot) if text.is_iota(slot as usize) => text.load(slot as usize, &positions),
            Op::Load(slot) => format!("here ? {} : 0", text.loaded(id, slot as usize, &positions)),
            Op::Prim(_) | Op::Lit(_) | Op::Fold(_) => text.still(id),
        };
        let declaration = text.declaration(id);
        text.line(format!("{declaration} = {value};"));
        text.fault(id, "here && ");
    }
    for &slot in &pass.stores {
        let (access, value) = (text.output(slot), text.value(text.flat.outputs[slot]));
        let (dtype, distance) = (text.dtype(access).name(), at(text, access));
        text.line(format!("if (here) store_one<dt_{dtype}>(a{access}{distance}, {value});"));
    }
    text.line("}");
    text.tell_noted();
    text.line("}");
}

/// Writes the position of a block's square, and the positions in the other loops. The loops of a square are divided by
/// their numbers of squares.
fn place(text: &mut Text<'_>, along: usize) {
    let (signed, unsigned, layout) = (text.signed(), text.unsigned(), text.layout());
    let others: Vec<usize> = (0..layout.rows).filter(|&index| index != along).collect();
    let mut rest = String::from("block_x()");
    for (name, index) in [("begin", layout.rows), ("top", along)] {
        let size = layout.size_of_loop(index);
        text.line(format!(
            "const {unsigned} {name}_above = divide(({unsigned}){rest}, w.at[{}], w.at[{}]);",
            size + 1,
            size + 2
        ));
        text.line(format!("const {unsigned} {name}_tiles = (({unsigned})w.at[{size}] + {}) / {TILE};", TILE - 1));
        text.line(format!("const {signed} {name} = ({signed})({rest} - {name}_above * {name}_tiles) * {TILE};"));
        rest = format!("{name}_above");
    }
    for (number, &index) in others.iter().enumerate().rev() {
        if number == 0 {
            text.line(format!("const {signed} p{index} = ({signed}){rest};"));
            continue;
        }
        let size = layout.size_of_loop(index);
        text.line(format!(
            "const {unsigned} p{index}_above = divide(({unsigned}){rest}, w.at[{}], w.at[{}]);",
            size + 1,
            size + 2
        ));
        text.line(format!("const {signed} p{index} = ({signed})({rest} - p{index}_above * ({unsigned})w.at[{size}]);"));
        rest = format!("p{index}_above");
    }
    text.addresses_in(&others);
}
