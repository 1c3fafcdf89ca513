//! Lowering: from a region of a graph to a kernel and its geometry.
//!
//! The bodies of ops are inlined, identical instructions are merged, and calls on literals are evaluated. Then
//! [`super::simplify`] runs. The kernel does not depend on sizes; the geometry in [`Lowered`] does.

use super::geometry::{Access, Geometry, LoopOrder, LoopStrides};
use super::kernel::{Inst, Kernel, Kind, Level, Operand, Output, Source};
use super::simplify::simplify;
use super::tier::turn;
use super::unroll::unroll;
use crate::error::Result;
use crate::fusion::region::{LoadId, Region, Value, ValueId, Walk};
use crate::ir::attrs::{Arange, Attributes};
use crate::ir::scalar::body::Kind as BodyKind;
use crate::ir::scalar::{Body, Lit, Prim, Reg, Ty, eval};
use crate::ir::{Combine, DType, Graph, Meaning, NodeId, Scalar, SideTable};
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;

/// A kernel, and how one region runs it.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The kernel, the same for every size.
    pub kernel: Kernel,
    /// Its loops for the region's sizes.
    pub geometry: Geometry,
    /// The node of each operand; `None` for an iota.
    pub operands: Vec<Option<NodeId>>,
    /// The node of each output.
    pub outputs: Vec<NodeId>,
}

/// Lowers a region, with its row loops in that order.
///
/// # Errors
/// If a body does not type, which a verified graph rules out.
pub fn lower(graph: &Graph, region: &Region, order: LoopOrder) -> Result<Lowered> {
    lower_with(graph, region, order, ShortFolds::Kept)
}

/// What becomes of folds over a few elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortFolds {
    /// They are folds.
    Kept,
    /// They are unrolled where that pays ([`super::unroll`]).
    Unrolled,
}

/// Like [`lower`], and says what becomes of short folds.
///
/// # Errors
/// As [`lower`].
pub fn lower_with(graph: &Graph, region: &Region, order: LoopOrder, folds: ShortFolds) -> Result<Lowered> {
    let affine = affine_gathers(graph, region);
    let (kernel, interned, iotas) = (Kernel::default(), HashMap::new(), Vec::new());
    let mut builder = Builder { graph, region, affine, kernel, interned, iotas };
    for (id, load) in region.loads.iter() {
        builder.kernel.operands.push(operand(graph, region, id, load));
    }
    let mut values: SideTable<ValueId, Reg> = SideTable::new();
    for id in region.values.ids() {
        let reg = builder.value(id, &values)?;
        values.push(reg);
    }
    for (value, walk) in &region.outputs {
        let reg = builder.stored(values[*value], walk);
        builder.kernel.outputs.push(Output { dtype: graph[walk.node].ty.dtype, value: reg });
    }
    let Builder { kernel, iotas, affine, .. } = builder;
    let kernel = simplify(kernel);
    debug_assert_eq!(kernel.verify(), Ok(()));
    let n_rows = region.rows.len();
    let loads = || region.loads.entities().zip(&kernel.operands);
    let mut accesses: Vec<Access> = loads().map(|(load, operand)| access(load, operand.unit(), n_rows)).collect();
    for gather in &affine {
        let load = gather.load.index();
        accesses[load] = access(&gather.walk, kernel.operands[load].unit(), n_rows);
        if gather.is_only_use {
            // Nothing reads the position any more, so it need not keep loops apart.
            let unread = &mut accesses[gather.position.index()];
            unread.rows.iter_mut().chain(&mut unread.inner).for_each(|stride| *stride = 0);
        }
    }
    accesses.extend(iotas);
    // A range that is an output of its own group is stored like any value.
    let stored = |walk: &Walk| access(walk, graph[walk.node].ty.dtype.size(), n_rows);
    let outputs: Vec<Access> = region.outputs.iter().map(|(_, walk)| stored(walk)).collect();
    let mut operands: Vec<Option<NodeId>> =
        loads().map(|(load, operand)| (operand.source == Source::Memory).then_some(load.node)).collect();
    operands.resize(accesses.len(), None);
    if folds == ShortFolds::Unrolled
        && let Some(unrolled) = unroll(&kernel, &region.rows, &region.inner, &accesses, &outputs)
    {
        let operands = unrolled.origins.iter().map(|&slot| operands[slot]).collect();
        let (parts, written): (Vec<usize>, Vec<Access>) = unrolled.written.into_iter().unzip();
        let outputs = parts.into_iter().map(|slot| region.outputs[slot].1.node).collect();
        let kernel = simplify(unrolled.kernel);
        let geometry = Geometry::plan(&kernel, &unrolled.rows, &[], unrolled.accesses, written, order);
        return Ok(Lowered { kernel, geometry, operands, outputs });
    }
    let mut geometry = Geometry::plan(&kernel, &region.rows, &region.inner, accesses, outputs, order);
    if folds == ShortFolds::Unrolled {
        turn(&kernel, &mut geometry);
    }
    let outputs = region.outputs.iter().map(|(_, walk)| walk.node).collect();
    Ok(Lowered { kernel, geometry, operands, outputs })
}

/// Whether the operand is a range's position or an extent. A range that is read from memory is an ordinary operand.
fn is_position(region: &Region, load: LoadId) -> bool {
    let at = |value: &Value| matches!(value, Value::Position(own, _) | Value::Extent(own) if *own == load);
    region.values.entities().any(at)
}

fn operand(graph: &Graph, region: &Region, id: LoadId, load: &Walk) -> Operand {
    if is_position(region, id) {
        Operand { dtype: DType::I64, source: Source::Iota }
    } else {
        Operand { dtype: graph[load.node].ty.dtype, source: Source::Memory }
    }
}

/// The operand of the kernel that a load becomes.
fn slot(load: LoadId) -> u16 {
    load.index() as u16
}

fn access(walk: &Walk, unit: usize, n_rows: usize) -> Access {
    let scaled =
        |strides: &[usize]| -> LoopStrides { strides.iter().map(|&stride| stride.wrapping_mul(unit)).collect() };
    Access {
        rows: scaled(&walk.strides[..n_rows]),
        inner: scaled(&walk.strides[n_rows..]),
        base: (walk.base * unit) as i64,
        gather: walk.gather.map(|(size, stride)| (size, stride * unit)),
    }
}

/// A gather whose index is a range that stays inside the gathered dimension: a walk through memory, which may go
/// backwards.
struct AffineGather {
    load: LoadId,
    /// The range's position.
    position: LoadId,
    /// The walk without an index. Negative strides are in two's complement.
    walk: Walk,
    /// Whether nothing else reads the position.
    is_only_use: bool,
}

/// The gathers of a region that are walks. An operand that is gathered twice keeps its index.
fn affine_gathers(graph: &Graph, region: &Region) -> SmallVec<[AffineGather; 1]> {
    let uses = |is_use: &dyn Fn(&Value) -> bool| region.values.entities().filter(|value| is_use(value)).count();
    let affine = |value: &Value| {
        let Value::Gather(load, at) = *value else { return None };
        let Value::Position(position, range) = region.values[at] else { return None };
        let Arange { start, step, .. } = Arange::read(&graph[range].attrs);
        let (Scalar::Int(start), Scalar::Int(step)) = (start, step) else { return None };
        let (index, walk) = (&region.loads[position], &region.loads[load]);
        let (size, apart) = walk.gather?;
        let last =
            i64::try_from(graph[range].ty.numel()).ok()?.checked_sub(1)?.checked_mul(step)?.checked_add(start)?;
        let is_inside = |at: i64| usize::try_from(at).is_ok_and(|at| at < size);
        let is_sole = uses(&|other| matches!(other, Value::Gather(own, _) | Value::Load(own) if *own == load)) == 1;
        if !is_sole || graph[range].ty.dtype != DType::I64 || !is_inside(start) || !is_inside(last) {
            return None;
        }
        let along = |steps: usize| steps.wrapping_mul(step as usize).wrapping_mul(apart);
        let strides = walk.strides.iter().zip(&index.strides);
        let strides = strides.map(|(&stride, &steps)| stride.wrapping_add(along(steps))).collect();
        let base = walk.base.wrapping_add(along(index.base)).wrapping_add((start as usize).wrapping_mul(apart));
        let reads = |value: &Value| match value {
            Value::Gather(_, index) => *index == at,
            Value::Body(_, args) => args.contains(&at),
            Value::Fold(_, value) => *value == at,
            Value::Position(own, _) | Value::Extent(own) => *own == position,
            Value::Load(_) | Value::Number(..) => false,
        };
        let is_output = region.outputs.iter().any(|(value, _)| *value == at);
        // The position itself and the gather.
        let is_only_use = uses(&reads) == 2 && !is_output;
        Some(AffineGather { load, position, walk: Walk { strides, base, gather: None, ..walk.clone() }, is_only_use })
    };
    region.values.entities().filter_map(affine).collect()
}

struct Builder<'a> {
    graph: &'a Graph,
    region: &'a Region,
    affine: SmallVec<[AffineGather; 1]>,
    kernel: Kernel,
    interned: HashMap<Inst, Reg>,
    /// Iotas that belong to no node.
    iotas: Vec<Access>,
}

impl Builder<'_> {
    fn push(&mut self, inst: Inst) -> Reg {
        if let Some(&reg) = self.interned.get(&inst) {
            return reg;
        }
        let reg = Reg::new(self.kernel.insts.len());
        self.interned.insert(inst.clone(), reg);
        self.kernel.insts.push(inst);
        reg
    }

    fn emit(&mut self, kind: Kind, args: &[Reg], ty: Ty, level: Level) -> Reg {
        self.push(Inst { kind, args: SmallVec::from_slice(args), ty, level })
    }

    fn lit(&mut self, lit: Lit) -> Reg {
        self.emit(Kind::Lit(lit), &[], lit.ty, Level::Row)
    }

    /// A prim, evaluated now if its operands are literals.
    fn prim(&mut self, prim: Prim, args: &[Reg]) -> Reg {
        let divides = prim.needs_divisor(self.kernel.inst(args[0]).ty);
        if divides && matches!(self.kernel.inst(args[1]).kind, Kind::Lit(lit) if lit.bits == 0) {
            // Evaluating it here would hide the fault. The zero becomes an operand, so that the launch reports it.
            let none = smallvec![0; self.region.rows.len()];
            let zero = self.iota(none, smallvec![0; self.region.inner.len()]);
            let zero = self.converted(zero, self.kernel.inst(args[0]).ty);
            let level = self.kernel.inst(zero).level;
            return self.emit(Kind::Prim(prim), &[args[0], zero], self.kernel.inst(args[0]).ty, level);
        }
        self.call(Kind::Prim(prim), args, |lits| eval::prim(prim, lits), |tys| prim.result(tys))
    }

    fn call(
        &mut self,
        kind: Kind,
        args: &[Reg],
        value: impl Fn(&[Lit]) -> Lit,
        ty: impl Fn(&[Ty]) -> Option<Ty>,
    ) -> Reg {
        let literal = |&reg: &Reg| match self.kernel.inst(reg).kind {
            Kind::Lit(lit) => Some(lit),
            Kind::Load(_) | Kind::Gather(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => None,
        };
        let lits: Option<SmallVec<[Lit; 3]>> = args.iter().map(literal).collect();
        if let Some(lits) = lits {
            return self.lit(value(&lits));
        }
        let tys: SmallVec<[Ty; 3]> = args.iter().map(|&reg| self.kernel.inst(reg).ty).collect();
        let level = args.iter().map(|&reg| self.kernel.inst(reg).level).max().unwrap_or(Level::Row);
        let ty = ty(&tys).expect("bodies are typed");
        self.emit(kind, args, ty, level)
    }

    fn level(&self, value: ValueId) -> Level {
        if self.region.is_full[value] { Level::Full } else { Level::Row }
    }

    fn value(&mut self, id: ValueId, values: &SideTable<ValueId, Reg>) -> Result<Reg> {
        let level = self.level(id);
        Ok(match &self.region.values[id] {
            Value::Load(load) => {
                let ty = self.kernel.operands[load.index()].dtype.compute();
                self.emit(Kind::Load(slot(*load)), &[], ty, level)
            }
            Value::Gather(load, _) if self.affine.iter().any(|gather| gather.load == *load) => {
                let ty = self.kernel.operands[load.index()].dtype.compute();
                self.emit(Kind::Load(slot(*load)), &[], ty, level)
            }
            Value::Gather(load, at) => {
                let ty = self.kernel.operands[load.index()].dtype.compute();
                let at = self.converted(values[*at], Ty::I64);
                self.emit(Kind::Gather(slot(*load)), &[at], ty, level)
            }
            Value::Number(value, dtype) => self.lit(value.to_lit(*dtype)),
            Value::Position(load, node) => self.position(slot(*load), *node, level),
            Value::Extent(load) => self.emit(Kind::Load(slot(*load)), &[], Ty::I64, level),
            Value::Body(node, args) => {
                let args: SmallVec<[Reg; 4]> = args.iter().map(|&arg| values[arg]).collect();
                let call = &self.graph[*node];
                let op = call.op().expect("a body belongs to an op");
                let body = op.body(&self.graph.arg_types(*node), &call.attrs)?;
                self.inline(&body, &args)
            }
            Value::Fold(node, value) => self.fold(*node, values[*value]),
        })
    }

    fn inline(&mut self, body: &Body, args: &[Reg]) -> Reg {
        let mut regs: SmallVec<[Reg; 16]> = SmallVec::new();
        for inst in &body.insts {
            let operands: SmallVec<[Reg; 3]> = inst.args.iter().map(|reg| regs[reg.index()]).collect();
            regs.push(match inst.kind {
                BodyKind::Arg(index) => args[index as usize],
                BodyKind::Lit(lit) => self.lit(lit),
                BodyKind::Prim(prim) => self.prim(prim, &operands),
                BodyKind::Func(func) => {
                    self.call(Kind::Func(func), &operands, |lits| eval::func(func, lits), |tys| tys.first().copied())
                }
            });
        }
        regs[body.results[0].index()]
    }

    fn converted(&mut self, reg: Reg, ty: Ty) -> Reg {
        if self.kernel.inst(reg).ty == ty { reg } else { self.prim(Prim::Convert(ty), &[reg]) }
    }

    fn rounded(&mut self, reg: Reg, dtype: DType) -> Reg {
        match dtype.rounding() {
            Some(prim) => self.prim(prim, &[reg]),
            None => reg,
        }
    }

    /// `start + position * step`, then in the range's dtype. It is computed in i64 if the dtype is an integer, whose
    /// start and step are truncated, or if both are whole; else in f64.
    fn position(&mut self, slot: u16, node: NodeId, level: Level) -> Reg {
        let position = self.emit(Kind::Load(slot), &[], Ty::I64, level);
        let call = &self.graph[node];
        let dtype = call.ty.dtype;
        let Arange { start, step, .. } = Arange::read(&call.attrs);
        let whole = !dtype.is_float() || ![start, step].iter().any(|value| value.dtype().is_float());
        let (ty, number): (Ty, fn(Scalar) -> Lit) = if whole {
            (Ty::I64, |value| Lit::i64(value.as_i64()))
        } else {
            (Ty::F64, |value| Lit::f64(value.as_f64()))
        };
        let (start, step) = (self.lit(number(start)), self.lit(number(step)));
        let position = self.converted(position, ty);
        let scaled = self.prim(Prim::Mul, &[position, step]);
        let value = self.prim(Prim::Add, &[scaled, start]);
        let value = self.converted(value, dtype.compute());
        self.rounded(value, dtype)
    }

    /// A reduction: the operand converted to what it accumulates in, folded, and brought to the result's dtype.
    fn fold(&mut self, node: NodeId, value: Reg) -> Reg {
        let call = &self.graph[node];
        let Some(Meaning::Fold(combine)) = call.op().map(|op| &op.row().meaning) else {
            unreachable!("a fold belongs to a reduction");
        };
        let (from, to) = (self.graph[call.args[0]].ty.dtype, call.ty.dtype);
        let combine = match (combine, from, to) {
            // On bools the greatest and the sum are "any", the least and the product "all".
            (Combine::Max, DType::Bool, _) | (Combine::Sum, _, DType::Bool) => Combine::Any,
            (Combine::Min, DType::Bool, _) | (Combine::Prod, _, DType::Bool) => Combine::All,
            (combine, _, _) => *combine,
        };
        let value = match combine {
            Combine::Any | Combine::All => self.converted(value, Ty::Bool),
            Combine::Sum | Combine::Prod => self.accumulated(value, from, to),
            Combine::Max | Combine::Min | Combine::ArgMax | Combine::ArgMin => value,
        };
        let ty = self.kernel.inst(value).ty;
        let folded = match combine {
            Combine::ArgMax | Combine::ArgMin => {
                let index = self.index_of_inner();
                self.emit(Kind::Fold(combine), &[value, index], Ty::I64, Level::Row)
            }
            Combine::Sum | Combine::Prod | Combine::Max | Combine::Min | Combine::Any | Combine::All => {
                self.emit(Kind::Fold(combine), &[value], ty, Level::Row)
            }
        };
        match combine {
            Combine::Sum | Combine::Prod => {
                let folded = self.converted(folded, to.compute());
                self.rounded(folded, to)
            }
            Combine::Any | Combine::All => self.converted(folded, to.compute()),
            Combine::Max | Combine::Min | Combine::ArgMax | Combine::ArgMin => folded,
        }
    }

    /// Conversion to the dtype asked for comes before the sum; 16-bit floats then accumulate in f32.
    fn accumulated(&mut self, value: Reg, from: DType, to: DType) -> Reg {
        let value = self.converted(value, to.compute());
        let exact = from == to || (from.category() <= to.category() && from.promote(to) == to && !to.is_float());
        if exact { value } else { self.rounded(value, to) }
    }

    /// The row-major position among the inner elements.
    fn index_of_inner(&mut self) -> Reg {
        let sizes = &self.region.inner;
        let inner: LoopStrides = crate::ir::shape::contiguous_strides(sizes).iter().copied().collect();
        self.iota(smallvec![0; self.region.rows.len()], inner)
    }

    fn iota(&mut self, rows: LoopStrides, inner: LoopStrides) -> Reg {
        let access = Access { rows, inner, base: 0, gather: None };
        let slot = self.region.loads.len()
            + self.iotas.iter().position(|iota| *iota == access).unwrap_or_else(|| {
                self.iotas.push(access);
                self.kernel.operands.push(Operand { dtype: DType::I64, source: Source::Iota });
                self.iotas.len() - 1
            });
        self.emit(Kind::Load(slot as u16), &[], Ty::I64, Level::Full)
    }

    /// The register to store; a row value that is written at every inner element is made a full one.
    fn stored(&mut self, reg: Reg, walk: &Walk) -> Reg {
        let has_folds = self.kernel.has_folds();
        let everywhere = !has_folds || walk.strides[self.region.rows.len()..].iter().any(|&stride| stride != 0);
        if self.kernel.inst(reg).level == Level::Full || !everywhere {
            return reg;
        }
        let none = smallvec![0; self.region.rows.len()];
        let anywhere = self.iota(none, smallvec![0; self.region.inner.len()]);
        let always = self.prim(Prim::Eq, &[anywhere, anywhere]);
        self.prim(Prim::Select, &[always, reg, reg])
    }
}
