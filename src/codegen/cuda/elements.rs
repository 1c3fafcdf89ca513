//! What a pass over a row does for some elements of a thread.
//!
//! All their loads come first, so that many are on their way at once: memory answers after some 800 ns, and a processor keeps
//! busy only if each of its threads has asked for several elements. Arithmetic runs on lanes behind the end, too, on zeros;
//! what they would fold or store is left out.

use super::rows::is_waiting;
use super::text::{Text, registers};
use crate::codegen::native::flat::{Id, Op};
use crate::codegen::native::passes::Pass;

/// Elements of a thread: `first + 32 k` for every k below `count`, as long as they are before `end`.
pub(super) struct Span<'a> {
    /// An integer of [`Text::signed`].
    pub(super) first: &'a str,
    /// The same.
    pub(super) end: &'a str,
    /// How many.
    pub(super) count: usize,
    /// Where values of element k are held.
    pub(super) at: &'a str,
    /// What a store needs besides that its element is there.
    pub(super) stored: &'a str,
    /// Values that are folded when it is the turn of their warp.
    pub(super) waiting: &'a [Id],
}

/// Registers of a thread for elements on their way.
const MAX_LOADED: usize = 16;
/// Values of the elements that are computed together: what a compiler turns into code in a short time. Bodies that reach it compute
/// for longer than they wait for memory.
const MAX_VALUES: usize = 256;

/// How many elements of a pass, `most` at most, are taken at a time.
pub(super) fn batch(text: &Text<'_>, pass: &Pass, most: usize) -> usize {
    let is_held = |id: Id| pass.keeps.iter().any(|keep| keep.0 == id);
    let passing = pass.body.iter().filter(|&&id| is_loaded(text, id) && !is_held(id));
    let loaded: usize = passing.map(|&id| registers(text.flat.nodes[id].ty)).sum();
    let mut count = most;
    while count > 1 && (count * loaded > MAX_LOADED || count * pass.body.len() > MAX_VALUES) {
        count /= 2;
    }
    count
}

/// Writes what `pass` does for the elements of `span`.
pub(super) fn emit(text: &mut Text<'_>, pass: &Pass, span: &Span<'_>) {
    let (count, at) = (span.count, span.at);
    let loads: Vec<Id> = pass.body.iter().copied().filter(|&id| is_loaded(text, id)).collect();
    for &id in &loads {
        text.line(format!("{}::Stored l{id}[{count}];", text.loaded_type(id)));
    }
    if !loads.is_empty() {
        let positions = open(text, span);
        for &id in &loads {
            text.line(format!("l{id}[k] = here ? {} : 0;", text.stored(id, &positions)));
        }
        text.line("}");
    }
    let positions = open(text, span);
    for &(id, _) in &pass.kept {
        let declaration = text.declaration(id);
        text.line(format!("{declaration} = h{id}[{at}];"));
    }
    for &id in &pass.body {
        let value = match text.flat.nodes[id].op {
            Op::Load(_) if loads.binary_search(&id).is_ok() => format!("{}::widen(l{id}[k])", text.loaded_type(id)),
            Op::Load(slot) if text.is_iota(slot as usize) => text.load(slot as usize, &positions),
            Op::Load(slot) => format!("here ? {} : 0", text.loaded(id, slot as usize, &positions)),
            Op::Prim(_) | Op::Lit(_) | Op::Fold(_) => text.still(id),
        };
        let declaration = text.declaration(id);
        text.line(format!("{declaration} = {value};"));
        text.fault(id, "here && ");
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
        text.line(format!("if (here) f{id}.add({part});"));
    }
    for &slot in &pass.stores {
        let (access, value) = (text.output(slot), text.value(text.flat.outputs[slot]));
        let (distance, dtype) = (text.distance(access, &positions), text.dtype(access).name());
        text.line(format!("if (here{}) store_one<dt_{dtype}>(a{access}{distance}, {value});", span.stored));
    }
    text.line("}");
}

/// Begins a loop over the elements of a span; their positions in the inner loops.
fn open(text: &mut Text<'_>, span: &Span<'_>) -> Vec<(String, usize)> {
    let (layout, signed) = (text.layout(), text.signed());
    text.line(format!("UNROLL for (int k = 0; k < {}; k++) {{", span.count));
    text.line(format!("const {signed} i = {} + k * LANES;", span.first));
    text.line(format!("const bool here = i < {};", span.end));
    match layout.inner {
        1 => vec![("i".into(), layout.rows)],
        several => {
            text.positions("i", layout.rows..layout.rows + several, "j");
            (0..several).map(|index| (format!("j{index}"), layout.rows + index)).collect()
        }
    }
}

/// Whether a node is an element that is read where it is, whatever the values of others.
fn is_loaded(text: &Text<'_>, id: Id) -> bool {
    let node = &text.flat.nodes[id];
    node.args.is_empty() && node.op.operand().is_some_and(|slot| !text.is_iota(slot))
}
