//! The body of a pass over a row, for some elements of a thread.
//!
//! All loads come first, so that many are in flight: memory has a latency of some 800 ns, and a multiprocessor stays
//! busy only if each of its threads has loaded several elements. Arithmetic also runs on lanes past the end, on zeros,
//! but their results are neither folded nor stored.

use super::variant::Form;
use super::writer::{Writer, is_ordered, registers};
use crate::codegen::kernel::Level;
use crate::codegen::native::flat::{FlatNodeId, FlatOp};
use crate::codegen::native::passes::Pass;

/// The elements `first + 32 * at` of a thread, for every `k` below `count`, as long as they are before `end`.
pub(super) struct Span<'a> {
    /// The bound that elements are compared with; `None` where a thread has all of them.
    pub(super) end: Option<&'a str>,
    /// The number of elements.
    pub(super) count: usize,
    /// The number of element `k` among those of the thread, which indexes its held values.
    pub(super) at: &'a str,
    /// A further condition of stores.
    pub(super) stored: &'a str,
    /// Values that are folded later, when it is the turn of their warp.
    pub(super) waiting: &'a [FlatNodeId],
}

/// Most registers of a thread for loads in flight.
const MAX_LOADED: usize = 16;
/// Most values of the elements that are computed together, which bounds the time to compile. Bodies of this size are
/// bound by arithmetic, not by memory.
const MAX_VALUES: usize = 256;

/// How many elements of a pass are computed at a time: a divisor of `most`.
pub(super) fn batch(writer: &Writer<'_>, pass: &Pass, most: usize) -> usize {
    let is_held = |id: FlatNodeId| pass.keeps.iter().any(|keep| keep.0 == id);
    let passing = pass.body.iter().filter(|&&id| is_loaded(writer, id) && !is_held(id));
    let loaded: usize = passing.map(|&id| registers(writer.flat.nodes[id].ty)).sum();
    let mut count = most;
    while count > 1 && (count * loaded > MAX_LOADED || count * pass.body.len() > MAX_VALUES) {
        count -= 1;
        while !most.is_multiple_of(count) {
            count -= 1;
        }
    }
    count
}

/// Writes the body of `pass` for the elements of `span`.
pub(super) fn emit(writer: &mut Writer<'_>, pass: &Pass, span: &Span<'_>) {
    if let Some(end) = span.end {
        let signed = writer.signed();
        writer.line(format!("const {signed} mine = ({end} - first + (LANES - 1)) / LANES;"));
    }
    let loads: Vec<FlatNodeId> = pass.body.iter().copied().filter(|&id| is_loaded(writer, id)).collect();
    load(writer, &loads, span);
    let positions = open(writer, span);
    let here = if span.end.is_some() { "here && " } else { "" };
    let (at, if_here) = (span.at, if span.end.is_some() { "if (here) " } else { "" });
    for &(id, _) in &pass.kept {
        let declaration = writer.declaration(id);
        writer.line(format!("{declaration} = h{id}[{at}];"));
    }
    for &id in &pass.body {
        let value = match writer.flat.nodes[id].op {
            FlatOp::Load(_) if loads.contains(&id) => format!("{}::widen(l{id}[k])", writer.loaded_type(id)),
            FlatOp::Load(slot) => {
                let value = writer.loaded(id, slot as usize, &positions);
                if here.is_empty() || writer.is_iota(slot as usize) { value } else { format!("here ? {value} : 0") }
            }
            FlatOp::Prim(_) | FlatOp::Lit(_) | FlatOp::Fold(_) => writer.uniform_value(id),
        };
        let declaration = writer.declaration(id);
        writer.line(format!("{declaration} = {value};"));
        if !loads.contains(&id) {
            writer.fault(id, here);
        }
    }
    for &(id, _) in &pass.keeps {
        writer.line(format!("h{id}[{at}] = v{id};"));
    }
    for &id in span.waiting {
        let value = writer.value(id);
        writer.line(format!("q{id}[{at}] = {value};"));
    }
    for &id in &pass.folds {
        if is_waiting(writer, id) {
            continue;
        }
        let args: Vec<String> = writer.flat.nodes[id].args.iter().map(|&arg| writer.value(arg)).collect();
        let part = match &args[..] {
            [value, index] => format!("at({value}, {index})"),
            args => args[0].clone(),
        };
        writer.line(format!("{if_here}f{id}.add({part});"));
    }
    let condition = if span.stored.is_empty() { if_here.to_owned() } else { format!("if ({here}{}) ", span.stored) };
    for &slot in &pass.stores {
        let (access, value) = (writer.output(slot), writer.value(writer.flat.outputs[slot]));
        let (distance, dtype) = (writer.distance(access, &positions), writer.dtype(access).name());
        writer.line(format!("{condition}store_one<dt_{dtype}>(a{access}{distance}, {value});"));
    }
    writer.line("}");
}

/// Calls `emit`, which writes the loops of a pass, such that indices out of range are recorded after the loops.
pub(super) fn noting(writer: &mut Writer<'_>, pass: &Pass, emit: impl FnOnce(&mut Writer<'_>)) {
    let ids: Vec<FlatNodeId> = pass.body.iter().copied().filter(|&id| !is_loaded(writer, id)).collect();
    writer.note_indices(ids.into_iter());
    emit(writer);
    writer.record_noted();
}

/// Writes loads. Those of the same element share one condition, because each is a branch. A uniform index is checked
/// once.
fn load(writer: &mut Writer<'_>, loads: &[FlatNodeId], span: &Span<'_>) {
    if loads.is_empty() {
        return;
    }
    let some = if span.end.is_some() { "mine > 0 && " } else { "" };
    for &id in loads {
        writer.line(format!("{}::Stored l{id}[{}];", writer.loaded_type(id), span.count));
        if let Some((index, size)) = writer.index(id) {
            let slot = writer.flat.nodes[id].op.operand().expect("the node is a load");
            writer.line(format!("const bool inside{id} = (u64){index} < w.at[{size}];"));
            writer.line(format!(
                "const char* const g{id} = a{slot} + (inside{id} ? {index} * (i64)w.at[{}] : 0);",
                size + 1
            ));
            writer.fault(id, some);
        }
    }
    let positions = open(writer, span);
    let (at_indices, plain): (Vec<FlatNodeId>, Vec<FlatNodeId>) =
        loads.iter().copied().partition(|&id| writer.index(id).is_some());
    let asked: &[FlatNodeId] = if span.end.is_some() { loads } else { &at_indices };
    asked.iter().for_each(|id| writer.line(format!("l{id}[k] = 0;")));
    if span.end.is_some() {
        writer.line("if (here) {");
    }
    for &id in &plain {
        writer.line(format!("l{id}[k] = {};", writer.stored(id, 'a', &positions)));
    }
    for &id in &at_indices {
        writer.line(format!("if (inside{id}) l{id}[k] = {};", writer.stored(id, 'g', &positions)));
    }
    if span.end.is_some() {
        writer.line("}");
    }
    writer.line("}");
}

/// Starts a loop over the elements of a span, and returns their positions in the inner loops.
fn open(writer: &mut Writer<'_>, span: &Span<'_>) -> Vec<(String, usize)> {
    let (layout, signed, at) = (writer.layout(), writer.signed(), span.at);
    writer.line(format!("UNROLL for (int k = 0; k < {}; k++) {{", span.count));
    let number = if at == "k" { at.to_owned() } else { format!("({at})") };
    writer.line(format!("const {signed} i = first + {number} * LANES;"));
    if span.end.is_some() {
        writer.line(format!("const bool here = {at} < mine;"));
    }
    match layout.inner {
        1 => vec![("i".into(), layout.rows)],
        several => {
            writer.positions("i", layout.rows..layout.rows + several, "j");
            (0..several).map(|index| (format!("j{index}"), layout.rows + index)).collect()
        }
    }
}

/// Whether the address that a node reads does not depend on per-element values.
fn is_loaded(writer: &Writer<'_>, id: FlatNodeId) -> bool {
    let node = &writer.flat.nodes[id];
    let is_known = |&arg: &FlatNodeId| writer.flat.nodes[arg].uniform || writer.flat.nodes[arg].level == Level::Row;
    node.args.iter().all(is_known) && node.op.operand().is_some_and(|slot| !writer.is_iota(slot))
}

/// Whether a fold's values are folded later, when it is the turn of their warp.
pub(super) fn is_waiting(writer: &Writer<'_>, id: FlatNodeId) -> bool {
    matches!(writer.variant.form, Form::Held { warps, .. } if warps > 1) && is_ordered(writer.flat, id)
}
