//! Writes what all forms of a kernel share: types, literals, prims, positions and addresses.
//!
//! A value is named `v` and its node's number, a fold `f`, an access `a` and its number (operands first), the position
//! in a row loop `p`, and in an inner loop `j`. Nodes are written in order, so no name is used before its statement.

use super::argument::{self, Layout};
use super::variant::{Index, Variant};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{Kernel, Source};
use crate::codegen::native::flat::{Flat, FlatNodeId, FlatOp};
use crate::ir::scalar::{Lit, Ty};
use crate::ir::{Combine, DType};
use smallvec::SmallVec;
use std::ops::Range;

/// Source under construction, and what it is about.
pub(super) struct Writer<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) flat: &'a Flat,
    pub(super) variant: &'a Variant,
    pub(super) out: String,
    gathered: SmallVec<[usize; 2]>,
    /// Nodes whose indices out of range are noted, and recorded after a loop.
    noted: Vec<FlatNodeId>,
    depth: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(kernel: &'a Kernel, flat: &'a Flat, variant: &'a Variant) -> Writer<'a> {
        Writer { kernel, flat, variant, out: String::new(), gathered: kernel.gathered(), noted: vec![], depth: 0 }
    }

    /// Writes a line. One that ends in a bracket opens a block.
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if line.starts_with('}') {
            self.depth -= 1;
        }
        (0..self.depth).for_each(|_| self.out.push_str("    "));
        self.out.push_str(line);
        self.out.push('\n');
        if line.ends_with('{') {
            self.depth += 1;
        }
    }

    pub(super) fn layout(&self) -> Layout {
        self.variant.layout
    }

    /// The type of offsets.
    pub(super) fn signed(&self) -> &'static str {
        match self.variant.index {
            Index::Narrow => "int",
            Index::Wide => "i64",
        }
    }

    /// The type of positions that are divided.
    pub(super) fn unsigned(&self) -> &'static str {
        match self.variant.index {
            Index::Narrow => "u32",
            Index::Wide => "u64",
        }
    }

    /// The number of accesses.
    pub(super) fn n_accesses(&self) -> usize {
        self.kernel.operands.len() + self.kernel.outputs.len()
    }

    /// Words of the argument buffer.
    pub(super) fn n_words(&self) -> usize {
        self.layout().n_words(self.n_accesses(), self.gathered.len())
    }

    /// The number of an output's access.
    pub(super) fn output(&self, slot: usize) -> usize {
        self.kernel.operands.len() + slot
    }

    pub(super) fn is_iota(&self, access: usize) -> bool {
        self.kernel.operands.get(access).is_some_and(|operand| operand.source == Source::Iota)
    }

    /// Whether an access is a single element in the argument buffer.
    fn is_number(&self, access: usize) -> bool {
        self.variant.numbers.contains(&access)
    }

    pub(super) fn dtype(&self, access: usize) -> DType {
        let n_operands = self.kernel.operands.len();
        match self.kernel.operands.get(access) {
            Some(operand) => operand.dtype,
            None => self.kernel.outputs[access - n_operands].dtype,
        }
    }

    /// Splits a flat position into one per loop, innermost fastest.
    pub(super) fn positions(&mut self, from: &str, loops: Range<usize>, name: &str) {
        let (signed, unsigned) = (self.signed(), self.unsigned());
        let mut rest = from.to_owned();
        let first = loops.start;
        for (number, index) in loops.enumerate().collect::<Vec<_>>().into_iter().rev() {
            if index == first {
                self.line(format!("const {signed} {name}{number} = ({signed}){rest};"));
                return;
            }
            let size = self.layout().size_of_loop(index);
            let quotient = format!("{name}{number}_above");
            self.line(format!(
                "const {unsigned} {quotient} = divide(({unsigned}){rest}, w.at[{}], w.at[{}]);",
                size + 1,
                size + 2
            ));
            self.line(format!(
                "const {signed} {name}{number} = ({signed})({rest} - {quotient} * ({unsigned})w.at[{size}]);"
            ));
            rest = quotient;
        }
    }

    /// Writes the address of each access in the current row.
    pub(super) fn row_addresses(&mut self) {
        let rows: Vec<usize> = (0..self.layout().rows).collect();
        self.addresses_in(&rows);
    }

    /// Writes the address of each access at the current positions in some loops, and at the start of the others.
    pub(super) fn addresses_in(&mut self, loops: &[usize]) {
        for access in 0..self.n_accesses() {
            let at = self.layout().address(access);
            let steps: Vec<(String, usize)> = loops.iter().map(|&index| (format!("p{index}"), index)).collect();
            if self.is_iota(access) {
                let steps = self.units(access, &steps);
                self.line(format!("const u64 a{access} = w.at[{at}]{steps};"));
            } else if self.is_number(access) {
                self.line(format!("const u64 number{access} = w.at[{at}];"));
                self.line(format!("const char* const a{access} = (const char*)&number{access};"));
            } else {
                let steps = self.distance(access, &steps);
                self.line(format!("char* const a{access} = address(w.at[{at}]){steps};"));
            }
        }
    }

    /// ` + ` and the offset of positions in bytes; empty if there are none.
    pub(super) fn distance(&self, access: usize, positions: &[(String, usize)]) -> String {
        if self.is_number(access) {
            return String::new();
        }
        let (signed, layout) = (self.signed(), self.layout());
        let term = |(position, index): &(String, usize)| {
            // A constant stride becomes part of an instruction.
            if self.class(access) == Class::Contiguous && *index == layout.rows {
                return format!("{position} * {}", self.dtype(access).size());
            }
            format!("{position} * ({signed})w.at[{}]", layout.stride(access, *index))
        };
        match positions {
            [] => String::new(),
            [one] => format!(" + {}", term(one)),
            several => format!(" + ({})", several.iter().map(term).collect::<Vec<_>>().join(" + ")),
        }
    }

    /// The same for an iota, in units and 64 bits.
    pub(super) fn units(&self, access: usize, positions: &[(String, usize)]) -> String {
        let stride = |index: usize| self.layout().stride(access, index);
        positions.iter().map(|(position, index)| format!(" + (u64){position} * w.at[{}]", stride(*index))).collect()
    }

    /// A value as an operand.
    pub(super) fn value(&self, id: FlatNodeId) -> String {
        self.flat.as_lit(id).map_or_else(|| format!("v{id}"), literal)
    }

    /// The expression of a prim.
    pub(super) fn prim(&self, id: FlatNodeId) -> String {
        let node = &self.flat.nodes[id];
        let FlatOp::Prim(prim) = node.op else { unreachable!("the node is a prim") };
        let args: Vec<String> = node.args.iter().map(|&arg| self.value(arg)).collect();
        format!("op_{}({})", prim.name(), args.join(", "))
    }

    /// The condition of a division by zero, if the node divides integers.
    pub(super) fn zero_divisor(&self, id: FlatNodeId) -> Option<String> {
        let node = &self.flat.nodes[id];
        let FlatOp::Prim(prim) = node.op else { return None };
        prim.needs_divisor(node.ty).then(|| format!("{} == 0", self.value(node.args[1])))
    }

    /// The element of an operand at an offset in the row, or the value of an iota.
    pub(super) fn load(&self, access: usize, positions: &[(String, usize)]) -> String {
        if self.is_iota(access) {
            return format!("(i64)(a{access}{})", self.units(access, positions));
        }
        let distance = self.distance(access, positions);
        format!("load_one<dt_{}>(a{access}{distance})", self.dtype(access).name())
    }

    /// The type of the elements that a node loads.
    pub(super) fn loaded_type(&self, id: FlatNodeId) -> String {
        let slot = self.flat.nodes[id].op.operand().expect("the node is a load");
        format!("dt_{}", self.dtype(slot).name())
    }

    /// The stored element that a node loads, from its operand (`a`) or from where its index points (`g`).
    pub(super) fn stored(&self, id: FlatNodeId, from: char, positions: &[(String, usize)]) -> String {
        let slot = self.flat.nodes[id].op.operand().expect("the node is a load");
        let number = if from == 'a' { slot } else { id.index() };
        format!("stored<dt_{}>({from}{number}{})", self.dtype(slot).name(), self.distance(slot, positions))
    }

    /// The element that a node loads, at positions in the inner loops.
    pub(super) fn loaded(&self, id: FlatNodeId, slot: usize, positions: &[(String, usize)]) -> String {
        let Some((index, size)) = self.index(id) else { return self.load(slot, positions) };
        let (distance, dtype) = (self.distance(slot, positions), self.dtype(slot).name());
        format!("gather_one<dt_{dtype}>(a{slot}{distance}, {index}, w.at[{size}], w.at[{}])", size + 1)
    }

    /// The index that a node gathers at, and the word with the size of the gathered dimension.
    pub(super) fn index(&self, id: FlatNodeId) -> Option<(String, usize)> {
        let node = &self.flat.nodes[id];
        let FlatOp::Load(slot) = node.op else { return None };
        let index = self.value(*node.args.first()?);
        let number = self.gathered.iter().position(|&gathered| gathered == slot as usize)?;
        Some((index, self.layout().gathered(self.n_accesses(), number)))
    }

    /// The number of a node's operand among the gathered ones.
    fn number_of_gathered(&self, id: FlatNodeId) -> usize {
        let slot = self.flat.nodes[id].op.operand().expect("the node gathers");
        self.gathered.iter().position(|&gathered| gathered == slot).unwrap_or(0)
    }

    /// The expression of a node that does not move along the inner loops.
    pub(super) fn uniform_value(&self, id: FlatNodeId) -> String {
        match self.flat.nodes[id].op {
            FlatOp::Load(slot) => self.loaded(id, slot as usize, &[]),
            FlatOp::Prim(_) => self.prim(id),
            FlatOp::Lit(lit) => literal(lit),
            FlatOp::Fold(_) => unreachable!("folds have statements of their own"),
        }
    }

    /// `const type vN`.
    pub(super) fn declaration(&self, id: FlatNodeId) -> String {
        format!("const {} v{id}", c_type(self.flat.nodes[id].ty))
    }

    /// Writes a statement per uniform value of a row.
    pub(super) fn row_values(&mut self, ids: &[FlatNodeId]) {
        self.element_values(ids, &[]);
    }

    /// Writes a statement per value of an element, at positions in the inner loops.
    pub(super) fn element_values(&mut self, ids: &[FlatNodeId], positions: &[(String, usize)]) {
        for &id in ids {
            let value = match self.flat.nodes[id].op {
                FlatOp::Load(slot) => self.loaded(id, slot as usize, positions),
                FlatOp::Prim(_) | FlatOp::Lit(_) | FlatOp::Fold(_) => self.uniform_value(id),
            };
            let declaration = self.declaration(id);
            self.line(format!("{declaration} = {value};"));
            self.fault(id, "");
        }
    }

    /// Records a zero divisor or an index out of range, under a condition that ends in `&&` if there is one.
    pub(super) fn fault(&mut self, id: FlatNodeId, condition: &str) {
        let (faults, site) = (argument::FAULTS, argument::SITE);
        if let Some((index, size)) = self.index(id) {
            let fault = format!("(u64){index} >= w.at[{size}]");
            let place = self.number_of_gathered(id);
            self.line(if self.noted.contains(&id) {
                format!("outside.note({condition}{fault}, {place}, {index});")
            } else {
                format!(
                    "if ({condition}{fault}) fault_index(w.at[{faults}], w.at[{site}], {place}, {index}, w.at[{size}]);"
                )
            });
        }
        if let Some(fault) = self.zero_divisor(id) {
            self.line(format!("if ({condition}{fault}) fault_zero_divisor(w.at[{faults}], w.at[{site}]);"));
        }
    }

    /// Notes the indices of these nodes that are out of range until [`Writer::record_noted`].
    pub(super) fn note_indices(&mut self, ids: impl Iterator<Item = FlatNodeId>) {
        self.noted = ids.filter(|&id| self.index(id).is_some()).collect();
        if !self.noted.is_empty() {
            self.line("Outside outside;");
        }
    }

    /// Records the first noted index that was out of range.
    pub(super) fn record_noted(&mut self) {
        let of = |&id: &FlatNodeId| Some((self.number_of_gathered(id), self.index(id)?.1));
        let places: Vec<(usize, usize)> = self.noted.iter().filter_map(of).collect();
        let Some(&(_, last)) = places.last() else { return };
        let others = &places[..places.len() - 1];
        let sizes: String =
            others.iter().map(|(place, size)| format!("outside.number == {place} ? w.at[{size}] : ")).collect();
        let (faults, site) = (argument::FAULTS, argument::SITE);
        self.line("if (outside.number >= 0) {");
        self.line(format!("const u64 size = {sizes}w.at[{last}];"));
        self.line(format!("fault_index(w.at[{faults}], w.at[{site}], outside.number, outside.index, size);"));
        self.line("}");
        self.noted.clear();
    }

    pub(super) fn class(&self, access: usize) -> Class {
        self.variant.classes[access]
    }
}

/// The C type of a value.
pub(super) const fn c_type(ty: Ty) -> &'static str {
    match ty {
        Ty::Bool => "bool",
        Ty::I32 => "int",
        Ty::I64 => "i64",
        Ty::F32 => "float",
        Ty::F64 => "double",
    }
}

/// Registers per value.
pub(super) const fn registers(ty: Ty) -> usize {
    match ty {
        Ty::Bool | Ty::I32 | Ty::F32 => 1,
        Ty::I64 | Ty::F64 => 2,
    }
}

/// Whether the bits of a fold depend on the order of its elements. If not, parts of a sequence can be folded
/// separately.
pub(super) fn is_ordered(flat: &Flat, id: FlatNodeId) -> bool {
    let node = &flat.nodes[id];
    match node.op {
        FlatOp::Fold(Combine::Sum | Combine::Prod) => flat.nodes[node.args[0]].ty.is_float(),
        FlatOp::Fold(Combine::Max | Combine::Min | Combine::Any | Combine::All | Combine::ArgMax | Combine::ArgMin) => {
            false
        }
        FlatOp::Load(_) | FlatOp::Lit(_) | FlatOp::Prim(_) => unreachable!("the node is a fold"),
    }
}

/// A literal, by its bits where decimals could lose some. The least integers have no literal in C.
pub(super) fn literal(lit: Lit) -> String {
    match lit.ty {
        Ty::Bool => lit.to_string(),
        Ty::I32 if lit.as_i32() == i32::MIN => "(-2147483647 - 1)".into(),
        Ty::I64 if lit.as_i64() == i64::MIN => "(-9223372036854775807ll - 1)".into(),
        Ty::I32 => lit.to_string(),
        Ty::I64 => format!("{lit}ll"),
        Ty::F32 => format!("lit_f32({:#x}u /* {lit} */)", lit.bits),
        Ty::F64 => format!("lit_f64({:#x}ull /* {lit} */)", lit.bits),
    }
}

/// The C type of a fold over values of type `ty`.
pub(super) fn fold_name(combine: Combine, ty: Ty) -> String {
    let name = match combine {
        Combine::Sum => "Sum",
        Combine::Prod => "Prod",
        Combine::Max => "Max",
        Combine::Min => "Min",
        Combine::Any => "Any",
        Combine::All => "All",
        Combine::ArgMax => "ArgMax",
        Combine::ArgMin => "ArgMin",
    };
    format!("{name}<{}>", c_type(ty))
}
