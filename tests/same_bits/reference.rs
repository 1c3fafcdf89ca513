//! The eager reference: every node of the original graph, run alone, and the comparison of its values.

use opfuse::device::{Device, Shared, Storage};
use opfuse::dispatch::Array;
use opfuse::internals::codegen::interp;
use opfuse::internals::eager;
use opfuse::internals::eager::Argument;
use opfuse::ir::{Graph, Layout, NodeKind, Scalar, TensorType};

/// The value of every node, each run alone.
pub(crate) fn reference(graph: &Graph, inputs: &[Array]) -> Result<Vec<Array>, String> {
    let mut values: Vec<Array> = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let value = match node.kind {
            NodeKind::Input(position) => inputs[position as usize].clone(),
            NodeKind::Number(number) => array_of(number),
            NodeKind::Extent(count) => array_of(Scalar::Int(count)),
            NodeKind::Op(op) => {
                let arguments: Vec<Argument<'_>> = node
                    .args
                    .iter()
                    .map(|arg| Argument { array: &values[arg.index()], number: graph[*arg].ty.number })
                    .collect();
                eager::run(op, &arguments, &node.attrs).map_err(|error| format!("eager {id}: {error}"))?
            }
        };
        let ty = TensorType { number: node.ty.number, ..value.ty() };
        if ty != node.ty {
            return Err(format!("eager {id} has type {ty}, inferred is {}", node.ty));
        }
        values.push(value);
    }
    Ok(values)
}

/// A number as a 0-dim array.
fn array_of(number: Scalar) -> Array {
    let dtype = number.dtype();
    let bits = number.to_lit(dtype).bits;
    let storage = Storage::copy_of(Device::CPU, &bits.to_le_bytes()[..dtype.size()]).expect("memory is there");
    Array::from_storage(Shared::new(storage), dtype, Layout::contiguous(&[])).expect("the storage was made for it")
}

/// One type, strides included, and the same bits in every element.
pub(crate) fn same(got: &Array, expected: &Array) -> Result<(), String> {
    if got.ty() != expected.ty() {
        return Err(format!("type {} instead of {}", got.ty(), expected.ty()));
    }
    let mut elements = elements(got).zip(elements(expected)).enumerate();
    match elements.find(|(_, (got, expected))| got != expected) {
        None => Ok(()),
        Some((at, (bits, other))) => {
            let shown = |bits: u64| {
                let lit = interp::load(&bits.to_le_bytes(), 0, got.dtype());
                format!("{lit} ({bits:#x})")
            };
            Err(format!("element {at} is {} instead of {}", shown(bits), shown(other)))
        }
    }
}

/// The bits of every element in row-major order.
pub(crate) fn elements(array: &Array) -> impl Iterator<Item = u64> + '_ {
    let (layout, size) = (array.layout(), array.dtype().size());
    let bytes = Storage::borrow(array.storage());
    (0..layout.numel()).map(move |mut index| {
        let mut at = layout.offset;
        for (&size, &stride) in layout.sizes.iter().zip(&layout.strides).rev() {
            at += index % size * stride;
            index /= size;
        }
        let mut raw = [0; 8];
        raw[..size].copy_from_slice(&bytes[at * size..(at + 1) * size]);
        u64::from_le_bytes(raw)
    })
}
