//! Epilogues of matrix products on tensor cores: the source of a pointwise kernel, applied to the product's sums.
//!
//! What always holds: an element has the bits that the kernel would compute from the stored product, because a sum is
//! first rounded as if it were stored. One operand of the kernel is the product. It is read in the order of a dense
//! result, so positions in the kernel's loops follow from the number of an element.
//!
//! The argument buffer is the kernel's own ([`super::argument`]), followed by the product's ([`super::tensor_cores`]).

use super::plan::Plan;
use super::pointwise::{declare_results, set_results};
use super::product_grid::RESULT;
use super::variant::{Form, Variant};
use super::writer::Writer;
use crate::codegen::geometry::{Class, Geometry};
use crate::codegen::kernel::Kernel;
use crate::codegen::kernel::{Kind, Source as From};
use crate::codegen::native::flat::{Flat, FlatNodeId, FlatOp};
use crate::codegen::native::passes::{Keep, Pass, Passes};
use crate::codegen::product::ProductShape;
use crate::error::{Reason, TierLimit};
use crate::ir::DType;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// What the source of an epilogue depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// The kernel.
    pub kernel: Kernel,
    /// The operand that is the product.
    pub slot: usize,
    /// The loops and accesses, and how many neighbours are computed at once.
    pub variant: Variant,
}

/// An epilogue for one set of shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpiloguePlan {
    /// What its source depends on.
    pub epilogue: Epilogue,
    /// The kernel's part of the argument buffer, with offsets in place of addresses.
    pub argument: Vec<u64>,
}

/// Bytes of the widest access.
const ACCESS_BYTES: usize = 16;
/// Most words of an epilogue's part of the argument buffer.
const MAX_WORDS: usize = 480;

impl EpiloguePlan {
    /// Plans `kernel` as the epilogue of a product of that shape, which is its operand `slot`. Every other pointer,
    /// operands first, will be a multiple of its entry in `alignments`. An operand with an entry of 0 is a number in
    /// the argument buffer.
    ///
    /// # Errors
    /// The reason why it cannot be an epilogue.
    pub fn new(
        kernel: &Kernel,
        geometry: &Geometry,
        slot: usize,
        shape: &ProductShape,
        alignments: &[usize],
    ) -> Result<EpiloguePlan, Reason> {
        if kernel.has_folds() {
            return Err(TierLimit::EpilogueReduces.into());
        }
        let is_moved = |kind: &Kind| matches!(kind, Kind::Gather(_));
        let may_fault = |kind: &Kind, ty| matches!(kind, Kind::Prim(prim) if prim.needs_divisor(ty));
        if kernel.insts.iter().any(|inst| is_moved(&inst.kind) || may_fault(&inst.kind, inst.ty)) {
            return Err(TierLimit::EpilogueMayFault.into());
        }
        let geometry = &in_order_of(geometry, slot);
        if !is_dense(kernel, geometry, slot, shape) {
            return Err(TierLimit::EpilogueReorders.into());
        }
        let mut alignments = alignments.to_vec();
        // The product comes in registers.
        alignments[slot] = ACCESS_BYTES;
        let width = match Plan::new(kernel, geometry, &alignments)?.variant.form {
            Form::Pointwise { width, .. } => width,
            Form::Tiles { .. } | Form::Held { .. } | Form::Warps | Form::Blocks | Form::Columns => 1,
        };
        // A vector starts at a multiple of its width, in its row of the product and in the kernel's inner loop.
        let fits = |width: &usize| shape.n.is_multiple_of(*width) && geometry.n_inner().is_multiple_of(*width);
        let width = [8, 4, 2].into_iter().filter(|&narrower| narrower <= width).find(fits).unwrap_or(1);
        let numbers = (0..kernel.operands.len()).filter(|&access| alignments[access] == 0);
        let Plan { variant, argument, .. } =
            Plan::with_form(kernel, geometry, Form::Pointwise { width, vectors: 1 })?.with_numbers(numbers);
        if argument.len() > MAX_WORDS {
            return Err(Reason::TooManyArguments);
        }
        Ok(EpiloguePlan { epilogue: Epilogue { kernel: kernel.clone(), slot, variant }, argument })
    }
}

/// The same loops, with those of rows in the order of an operand's strides.
pub(crate) fn in_order_of(geometry: &Geometry, slot: usize) -> Geometry {
    let strides = &geometry.operands[slot].rows;
    let mut order: SmallVec<[usize; 4]> = (0..geometry.rows.len()).collect();
    order.sort_by_key(|&index| Reverse(strides[index]));
    let mut out = geometry.clone();
    out.rows = order.iter().map(|&index| geometry.rows[index]).collect();
    for access in out.operands.iter_mut().chain(&mut out.outputs) {
        access.rows = order.iter().map(|&index| access.rows[index]).collect();
    }
    out
}

/// Whether an operand is read as a dense product of that shape, whose rows never end inside a vector.
pub(crate) fn is_dense(kernel: &Kernel, geometry: &Geometry, slot: usize, shape: &ProductShape) -> bool {
    let (operand, access) = (kernel.operands[slot], &geometry.operands[slot]);
    let mut stride = operand.dtype.size();
    let sizes: SmallVec<[usize; 4]> = geometry.rows.iter().chain(&geometry.inner).copied().collect();
    let strides: SmallVec<[usize; 4]> = access.rows.iter().chain(&access.inner).copied().collect();
    let walks = sizes.iter().zip(&strides).rev().all(|(&size, &found)| {
        let expected = stride;
        stride *= size;
        found == expected
    });
    let (rows, inner) = (geometry.n_rows(), geometry.n_inner());
    walks
        && operand.source == From::Memory
        && operand.dtype == shape.result
        && access.base == 0
        && geometry.inner.len() == 1
        && rows * inner > 0
        && rows * inner == shape.batch * shape.m * shape.n
        && (inner.is_multiple_of(shape.n) || shape.n.is_multiple_of(inner))
}

/// What a product does with its sums.
pub(super) struct End {
    /// The source of it, where it is not part of the product's.
    pub(super) code: String,
    /// The type with the `store` function.
    pub(super) name: String,
    /// Words of its part of the argument buffer, before the product's.
    pub(super) n_words: usize,
}

impl End {
    /// The end with an epilogue, in the source whose entry is called `entry`, or without, storing sums as `dtype`.
    pub(super) fn new(epilogue: Option<&Epilogue>, dtype: DType, entry: &str) -> End {
        match epilogue {
            None => End { code: String::new(), name: format!("AsItIs<dt_{}, {RESULT}>", dtype.name()), n_words: 0 },
            Some(epilogue) => {
                let name = format!("{entry}_epilogue");
                End { code: epilogue.emit(&name), n_words: epilogue.n_words(), name }
            }
        }
    }
}

impl Epilogue {
    /// Neighbours that are computed at once.
    pub fn width(&self) -> usize {
        let Form::Pointwise { width, .. } = self.variant.form else {
            unreachable!("an epilogue has the pointwise form")
        };
        width
    }

    /// Words of its part of the argument buffer.
    fn n_words(&self) -> usize {
        self.variant.layout.n_words(self.kernel.operands.len() + self.kernel.outputs.len(), 0)
    }

    /// Writes it as a type called `name`.
    fn emit(&self, name: &str) -> String {
        let flat = Flat::new(&self.kernel, &self.variant.classes);
        let passes = Passes::new(&flat, |_| false, Keep::Nothing);
        let mut writer = Writer::new(&self.kernel, &flat, &self.variant);
        writer.line(format!("struct {name} {{"));
        writer.line("template <int N, int WIDTH>");
        writer.line(
            "static __device__ __forceinline__ void store(const Words<N>& w, u64 element, int n, float (&x)[WIDTH]) {",
        );
        self.body(&mut writer, &passes.passes[0]);
        writer.line("}");
        writer.line("};");
        writer.out
    }

    fn body(&self, writer: &mut Writer<'_>, pass: &Pass) {
        let (layout, signed, unsigned) = (writer.layout(), writer.signed(), writer.unsigned());
        if layout.rows == 0 {
            writer.line(format!("const {signed} i = ({signed})element;"));
        } else {
            let size = layout.size_of_loop(layout.rows);
            let (multiplier, shift) = (size + 1, size + 2);
            writer.line(format!(
                "const {unsigned} row = divide(({unsigned})element, w.at[{multiplier}], w.at[{shift}]);"
            ));
            writer
                .line(format!("const {signed} i = ({signed})(({unsigned})element - row * ({unsigned})w.at[{size}]);"));
            writer.positions("row", 0..layout.rows, "p");
        }
        writer.row_addresses();
        let uniform: Vec<FlatNodeId> = pass.row.iter().chain(&pass.uniform).copied().collect();
        writer.row_values(&uniform);
        let is_product = |op: FlatOp| matches!(op, FlatOp::Load(slot) if slot as usize == self.slot);
        let in_line = |writer: &Writer<'_>, id: FlatNodeId| match writer.flat.nodes[id].op {
            FlatOp::Load(slot) => !writer.is_iota(slot as usize) && writer.class(slot as usize) == Class::Contiguous,
            FlatOp::Prim(_) | FlatOp::Lit(_) | FlatOp::Fold(_) => false,
        };
        for &id in &pass.body {
            let node = &writer.flat.nodes[id];
            let FlatOp::Load(slot) = node.op else { continue };
            if is_product(node.op) || !in_line(writer, id) {
                continue;
            }
            let (ty, size) = (writer.loaded_type(id), writer.dtype(slot as usize).size());
            writer.line(format!("Vector<{ty}::Stored, WIDTH> x{id};"));
            writer.line(format!("load_vector(x{id}, a{slot} + i * {size}, n);"));
        }
        declare_results(writer, pass, "WIDTH");
        writer.line("UNROLL for (int k = 0; k < WIDTH; k++) {");
        for &id in &pass.body {
            let value = match writer.flat.nodes[id].op {
                op @ FlatOp::Load(_) if is_product(op) => {
                    format!("Rounded<dt_{}>::of(x[k])", writer.dtype(self.slot).name())
                }
                FlatOp::Load(_) if in_line(writer, id) => {
                    format!("{}::widen(x{id}.element[k])", writer.loaded_type(id))
                }
                FlatOp::Load(slot) => writer.loaded(id, slot as usize, &[("(i + k)".into(), layout.rows)]),
                FlatOp::Prim(_) | FlatOp::Lit(_) | FlatOp::Fold(_) => writer.uniform_value(id),
            };
            let declaration = writer.declaration(id);
            writer.line(format!("{declaration} = {value};"));
        }
        set_results(writer, pass);
        writer.line("}");
        for &slot in &pass.stores {
            let access = writer.output(slot);
            let dtype = writer.dtype(access);
            if writer.class(access) == Class::Contiguous {
                writer.line(format!(
                    "store_vector<dt_{}, WIDTH>(a{access} + i * {}, y{slot}, n);",
                    dtype.name(),
                    dtype.size()
                ));
            } else {
                let distance = writer.distance(access, &[("i".into(), layout.rows)]);
                writer.line(format!("store_one<dt_{}>(a{access}{distance}, y{slot}[0]);", dtype.name()));
            }
        }
    }
}
