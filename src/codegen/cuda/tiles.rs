//! Kernels without folds that read some operands transposed: a thread block computes a square of elements.
//!
//! Such an operand is contiguous along a row loop. The threads of a warp read it along that loop, and find it in shared
//! memory when they compute elements along the inner loop. So all accesses are coalesced. Lines of the square are
//! padded by an element, so that neither lines nor columns have bank conflicts.

use super::argument;
use super::variant::{Form, TILE, TILE_LINES};
use super::writer::Writer;
use crate::codegen::native::flat::{FlatNodeId, FlatOp};
use crate::codegen::native::passes::Pass;

/// Writes the only entry, called `name`.
pub(super) fn emit(writer: &mut Writer<'_>, pass: &Pass, name: &str) {
    let Form::Tiles { along, transposed } = writer.variant.form else { unreachable!("the form has tiles") };
    let transposed: Vec<usize> =
        (0..writer.kernel.operands.len().min(64)).filter(|slot| transposed >> slot & 1 == 1).collect();
    let n_words = writer.n_words();
    writer.line(format!("KERNEL({}) {name}(const Words<{n_words}> w) {{", TILE * TILE_LINES));
    for &slot in &transposed {
        writer.line(format!("SHARED(dt_{}::Stored, tile{slot}, {});", writer.dtype(slot).name(), TILE * (TILE + 1)));
    }
    place(writer, along);
    let (signed, inner) = (writer.signed(), writer.layout().rows);
    let steps = TILE / TILE_LINES;
    let inside = format!(
        "across < {signed}(w.at[{}]) && down < {signed}(w.at[{}])",
        argument::INNER,
        writer.layout().size_of_loop(along)
    );
    let positions = [("down".into(), along), ("across".into(), inner)];
    let at = |writer: &Writer<'_>, slot: usize| writer.distance(slot, &positions);
    writer.line(format!("UNROLL for (int k = 0; k < {steps}; k++) {{"));
    writer.line(format!("const u32 line = thread_y() + k * {TILE_LINES}u;"));
    writer.line(format!("const {signed} down = top + thread_x(), across = begin + line;"));
    for &slot in &transposed {
        let (dtype, distance) = (writer.dtype(slot).name(), at(writer, slot));
        writer.line(format!(
            "if ({inside}) tile{slot}[line * {} + thread_x()] = *(const dt_{dtype}::Stored*)(a{slot}{distance});",
            TILE + 1
        ));
    }
    writer.line("}");
    let all: Vec<FlatNodeId> = pass.row.iter().chain(&pass.uniform).chain(&pass.body).copied().collect();
    let is_plain = |writer: &Writer<'_>, id: FlatNodeId| {
        let node = &writer.flat.nodes[id];
        node.args.is_empty()
            && node.op.operand().is_some_and(|slot| !writer.is_iota(slot) && !transposed.contains(&slot))
    };
    let loads: Vec<FlatNodeId> = all.iter().copied().filter(|&id| is_plain(writer, id)).collect();
    for &id in &loads {
        writer.line(format!("{}::Stored x{id}[{steps}];", writer.loaded_type(id)));
    }
    let element = |writer: &mut Writer<'_>| {
        writer.line(format!("UNROLL for (int k = 0; k < {steps}; k++) {{"));
        writer.line(format!("const u32 line = thread_y() + k * {TILE_LINES}u;"));
        writer.line(format!("const {signed} down = top + line, across = begin + thread_x();"));
        writer.line(format!("const bool here = {inside};"));
    };
    if !loads.is_empty() {
        element(writer);
        for &id in &loads {
            writer.line(format!("x{id}[k] = here ? {} : 0;", writer.stored(id, 'a', &positions)));
        }
        writer.line("}");
    }
    writer.line("barrier();");
    writer.note_indices(all.iter().copied());
    element(writer);
    for &id in &all {
        let value = match writer.flat.nodes[id].op {
            FlatOp::Load(_) if loads.contains(&id) => format!("{}::widen(x{id}[k])", writer.loaded_type(id)),
            FlatOp::Load(slot) if transposed.contains(&(slot as usize)) => {
                format!("here ? {}::widen(tile{slot}[thread_x() * {} + line]) : 0", writer.loaded_type(id), TILE + 1)
            }
            FlatOp::Load(slot) if writer.is_iota(slot as usize) => writer.load(slot as usize, &positions),
            FlatOp::Load(slot) => format!("here ? {} : 0", writer.loaded(id, slot as usize, &positions)),
            FlatOp::Prim(_) | FlatOp::Lit(_) | FlatOp::Fold(_) => writer.uniform_value(id),
        };
        let declaration = writer.declaration(id);
        writer.line(format!("{declaration} = {value};"));
        writer.fault(id, "here && ");
    }
    for &slot in &pass.stores {
        let (access, value) = (writer.output(slot), writer.value(writer.flat.outputs[slot]));
        let (dtype, distance) = (writer.dtype(access).name(), at(writer, access));
        writer.line(format!("if (here) store_one<dt_{dtype}>(a{access}{distance}, {value});"));
    }
    writer.line("}");
    writer.record_noted();
    writer.line("}");
}

/// Writes the position of a block's square, and the positions in the other loops. The loops of a square are divided by
/// their numbers of squares.
fn place(writer: &mut Writer<'_>, along: usize) {
    let (signed, unsigned, layout) = (writer.signed(), writer.unsigned(), writer.layout());
    let others: Vec<usize> = (0..layout.rows).filter(|&index| index != along).collect();
    let mut rest = String::from("block_x()");
    for (name, index) in [("begin", layout.rows), ("top", along)] {
        let size = layout.size_of_loop(index);
        writer.line(format!(
            "const {unsigned} {name}_above = divide(({unsigned}){rest}, w.at[{}], w.at[{}]);",
            size + 1,
            size + 2
        ));
        writer.line(format!("const {unsigned} {name}_tiles = (({unsigned})w.at[{size}] + {}) / {TILE};", TILE - 1));
        writer.line(format!("const {signed} {name} = ({signed})({rest} - {name}_above * {name}_tiles) * {TILE};"));
        rest = format!("{name}_above");
    }
    for (number, &index) in others.iter().enumerate().rev() {
        if number == 0 {
            writer.line(format!("const {signed} p{index} = ({signed}){rest};"));
            continue;
        }
        let size = layout.size_of_loop(index);
        writer.line(format!(
            "const {unsigned} p{index}_above = divide(({unsigned}){rest}, w.at[{}], w.at[{}]);",
            size + 1,
            size + 2
        ));
        writer
            .line(format!("const {signed} p{index} = ({signed})({rest} - p{index}_above * ({unsigned})w.at[{size}]);"));
        rest = format!("p{index}_above");
    }
    writer.addresses_in(&others);
}
