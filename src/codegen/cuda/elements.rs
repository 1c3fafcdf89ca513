//! The body of a pass over a row, for some elements of a thread.
//!
//! All loads come first, so that many are in flight: memory has a latency of some 800 ns, and a multiprocessor stays
//! busy only if each of its threads has loaded several elements. Arithmetic also runs on lanes past the end, on zeros,
//! but their results are neither folded nor stored.

use super::text::{Text, is_ordered, registers};
use super::variant::Form;
use crate::codegen::kernel::Level;
use crate::codegen::native::flat::{Id, Op};
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
    pub(super) waiting: &'a [Id],
}

/// Most registers of a thread for loads in flight.
const MAX_LOADED: usize = 16;
/// Most values of the elements that are computed together, which bounds the time to compile. Bodies of this size are
/// bound by arithmetic, not by memory.
const MAX_VALUES: usize = 256;

/// How many elements of a pass are computed at a time: a divisor of `most`.
pub(super) fn batch(text: &Text<'_>, pass: &Pass, most: usize) -> usize {
    let is_held = |id: Id| pass.keeps.iter().any(|keep| keep.0 == id);
    let passing = pass.body.iter().filter(|&&id| is_loaded(text, id) && !is_held(id));
    let loaded: usize = passing.map(|&id| registers(text.flat.nodes[id].ty)).sum();
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
pub(super) fn emit(text: &mut Text<'_>, pass: &Pass, span: &Span<'_>) {
    if let Some(end) = span.end {
        let signed = text.signed();
        text.line(format!("const {signed} mine = ({end} - first + (LANES - 1)) / LANES;"));
    }
    let loads: Vec<Id> = pass.body.iter().copied().filter(|&id| is_loaded(text, id)).collect();
    load(text, &loads, span);
    let positions = open(text, span);
    let here = if span.end.is_some() { "here && " } else { "" };
    let (at, if_here) = (span.at, if span.end.is_some() { "if (here) " } else { "" });
    for &(id, _) in &pass.kept {
        let declaration = text.declaration(id);
        text.line(format!("{declaration} = h{id}[{at}];"));
    }
    for &id in &pass.body {
        let value = match text.flat.nodes[id].op {
            Op::Load(_) if loads.contains(&id) => format!("{}::widen(l{id}[k])", text.loaded_type(id)),
            Op::Load(slot) => {
                let value = text.loaded(id, slot as usize, &positions);
                if here.is_empty() || text.is_iota(slot as usize) { value } else { format!("here ? {value} : 0") }
            }
            Op::Prim(_) | Op::Lit(_) | Op::Fold(_) => text.still(id),
        };
        let declaration = text.declaration(id);
        text.line(format!("{declaration} = {value};"));
        if !loads.contains(&id) {
            text.fault(id, here);
        }
    }
    for &(id, _) in &pass.keeps {
        text.line(format!("h{id}[{at}] = v{id};"));
    }
    for &id in span.waiting {
        let value = text.value(id);
        text.line(format!("q{id}[{at}] = {value};"));
    }
    for &id in &pass.folds {
        if is_waiting(text, id) {
            continue;
        }
        let args: Vec<String> = text.flat.nodes[id].args.iter().map(|&arg| text.value(arg)).collect();
        let part = match &args[..] {
            [value, index] => format!("at({value}, {index})"),
            args => args[0].clone(),
        };
        text.line(format!("{if_here}f{id}.add({part});"));
    }
    let condition = if span.stored.is_empty() { if_here.to_owned() } else { format!("if ({here}{}) ", span.stored) };
    for &slot in &pass.stores {
        let (access, value) = (text.output(slot), text.value(text.flat.outputs[slot]));
        let (distance, dtype) = (text.distance(access, &positions), text.dtype(access).name());
        text.line(format!("{condition}store_one<dt_{dtype}>(a{access}{distance}, {value});"));
    }
    text.line("}");
}

/// Calls `emit`, which writes the loops of a pass, such that indices out of range are recorded after the loops.
pub(super) fn noting(text: &mut Text<'_>, pass: &Pass, emit: impl FnOnce(&mut Text<'_>)) {
    let ids: Vec<Id> = pass.body.iter().copied().filter(|&id| !is_loaded(text, id)).collect();
    text.note_indices(ids.into_iter());
    emit(text);
    text.tell_noted();
}

/// Writes loads. Those of the same element share one condition, because each is a branch. A uniform index is checked
/// once.
fn load(text: &mut Text<'_>, loads: &[Id], span: &Span<'_>) {
    if loads.is_empty() {
        return;
    }
    let some = if span.end.is_some() { "mine > 0 && " } else { "" };
    for &id in loads {
        text.line(format!("{}::Stored l{id}[{}];", text.loaded_type(id), span.count));
        if let Some((index, size)) = text.index(id) {
            let slot = text.flat.nodes[id].op.operand().expect("the node is a load");
            text.line(format!("const bool inside{id} = (u64){index} < w.at[{size}];"));
            text.line(format!(
                "const char* const g{id} = a{slot} + (inside{id} ? {index} * (i64)w.at[{}] : 0);",
                size + 1
            ));
            text.fault(id, some);
        }
    }
    let positions = open(text, span);
    let (at_indices, plain): (Vec<Id>, Vec<Id>) = loads.iter().copied().partition(|&id| text.index(id).is_some());
    let asked: &[Id] = if span.end.is_some() { loads } else { &at_indices };
    asked.iter().for_each(|id| text.line(format!("l{id}[k] = 0;")));
    if span.end.is_some() {
        text.line("if (here) {");
    }
    for &id in &plain {
        text.line(format!("l{id}[k] = {};", text.stored(id, 'a', &positions)));
    }
    for &id in &at_indices {
        text.line(format!("if (inside{id}) l{id}[k] = {};", text.stored(id, 'g', &positions)));
    }
    if span.end.is_some() {
        text.line("}");
    }
    text.line("}");
}

/// Starts a loop over the elements of a span, and returns their positions in the inner loops.
fn open(text: &mut Text<'_>, span: &Span<'_>) -> Vec<(String, usize)> {
    let (layout, signed, at) = (text.layout(), text.signed(), span.at);
    text.line(format!("UNROLL for (int k = 0; k < {}; k++) {{", span.count));
    let number = if at == "k" { at.to_owned() } else { format!("({at})") };
    text.line(format!("const {signed} i = first + {number} * LANES;"));
    if span.end.is_some() {
        text.line(format!("const bool here = {at} < mine;"));
    }
    match layout.inner {
        1 => vec![("i".into(), layout.rows)],
        several => {
            text.positions("i", layout.rows..layout.rows + several, "j");
            (0..several).map(|index| (format!("j{index}"), layout.rows + index)).collect()
        }
    }
}

/// Whether the address that a node reads does not depend on per-element values.
fn is_loaded(text: &Text<'_>, id: Id) -> bool {
    let node = &text.flat.nodes[id];
    let is_known = |&arg: &Id| text.flat.nodes[arg].uniform || text.flat.nodes[arg].level == Level::Row;
    node.args.iter().all(is_known) && node.op.operand().is_some_and(|slot| !text.is_iota(slot))
}

/// Whether a fold's values are folded later, when it is the turn of their warp.
pub(super) fn is_waiting(text: &Text<'_>, id: Id) -> bool {
    matches!(text.variant.form, Form::Held { warps, .. } if warps > 1) && is_ordered(text.flat, id)
}
