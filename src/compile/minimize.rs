//! Smaller cases that still fail: delta debugging on graphs.
//!
//! An op is cut by making its value an input. The value is that of the eager calls, so the rest of the graph computes
//! what it did. Halves of the ops are cut first, then quarters, down to single ops. This is `ddmin` of Zeller and
//! Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), with ops in topological order.

use super::compiled::Compiled;
use super::panics::guarded;
use super::repro::{Repro, node_values, of_words};
use crate::eager::numerics;
use crate::error::{Error, Result};
use crate::ir::{Graph, NodeId, NodeKind, Scalar, SideTable, TensorType};
use crate::runtime::Array;
use crate::tensor::handle::Tensor;
use crate::transforms::function::{Function, Inputs};

impl<A, F: Function<A>> Compiled<F, A> {
    /// Compares the compiled graph for these inputs with its eager calls, and shrinks it if they differ. The result is
    /// the smallest case that was found; its text is a bug report, and [`Repro::to_test`] makes a test of it. `None` if
    /// all bits are equal.
    ///
    /// Only the graph of the call is compared: neither writes to inputs, nor a backward pass outside the function.
    /// Nothing is written, and random numbers are those that the next call will draw. The values of all ops are held
    /// in memory meanwhile.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::{Tensor, compile};
    /// let f = compile(|x: &Tensor| x.exp()?.sum_all());
    /// let x = Tensor::from_slice(&[1.0f32, -2.0], &[2])?;
    /// f.call(&x)?;
    /// assert!(f.minimize(&x)?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If nothing is compiled for inputs of these types: the function was not called with them yet, runs eagerly or in
    /// segments, or calls kernels from outside. If the inputs are on a GPU.
    pub fn minimize(&self, inputs: impl Inputs<A>) -> Result<Option<Repro>> {
        let _numerics = self.options.numerics.map(numerics);
        let inputs = inputs.into_parts()?;
        let mut found = None;
        let stopped = self.with_program(
            "minimize",
            "no single graph is compiled for these inputs",
            &inputs,
            |program, tensors| {
                guarded(|| {
                    program.run_by(tensors, &[], program.lifted(), |tuned, arrays| {
                        let given = arrays.iter().map(|&array| Tensor::from_array(array.clone())).collect();
                        found = Some(Repro::new(tuned.built().traced.clone(), given));
                        // Nothing runs, so that nothing is written and draws are taken back.
                        Err(Error::argument("minimize", "the graph was taken and does not run"))
                    })
                })
            },
        );
        let repro = match (found, stopped) {
            (Some(repro), _) => repro?,
            (None, Err(error)) => return Err(error),
            (None, Ok(_)) => return Err(Error::Internal { message: "a program ran without its graph".into() }),
        };
        if repro.check(&self.options).is_ok() {
            return Ok(None);
        }
        Ok(Some(repro.minimize(|smaller| smaller.check(&self.options).is_err())))
    }
}

impl Repro {
    /// The smallest case found for which `fails` holds, as it should for this one. It has fewer ops, outputs and
    /// inputs, and inputs of zeros or ones where those will do. Sizes stay as they are.
    ///
    /// `fails` may ask anything, for example whether a result has NaNs. It is called often: about once per op, and more
    /// if many ops are needed.
    ///
    /// ```
    /// use opfuse::compile::Repro;
    ///
    /// # fn main() -> opfuse::Result<()> {
    /// let repro: Repro = "
    /// graph {
    ///   n0 = input: f32[2]
    ///   n1 = exp(n0): f32[2]
    ///   n2 = neg(n1): f32[2]
    ///   n3 = sqrt(n2): f32[2]
    ///   n4 = abs(n3): f32[2]
    ///   return n4
    /// }
    /// inputs {
    ///   n0 = 3f800000 bf800000
    /// }
    /// "
    /// .parse()?;
    /// let small = repro.minimize(|repro| repro.graph().to_string().contains("sqrt"));
    /// assert_eq!(small.graph().len(), 2, "sqrt of an input:\n{small}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn minimize(&self, mut fails: impl FnMut(&Repro) -> bool) -> Repro {
        let arrays: Vec<Array> = self.inputs().iter().map(|input| input.array().clone()).collect();
        let (values, _) = node_values(self.graph(), &arrays);
        let mut whole = Reduction::of(self, values);
        loop {
            let before = whole.size();
            whole.cut_outputs(&mut fails);
            whole.cut_ops(&mut fails);
            if whole.size() == before {
                break;
            }
        }
        let best = whole.repro(&whole.kept, &whole.outputs).unwrap_or_else(|| self.clone());
        with_plain_inputs(best, &mut fails)
    }
}

/// What is kept of a graph.
struct Reduction<'g> {
    graph: &'g Graph,
    values: Vec<Option<Array>>,
    /// Whether a node stays an op. Others become inputs where they are needed.
    kept: SideTable<NodeId, bool>,
    outputs: Vec<NodeId>,
}

impl<'g> Reduction<'g> {
    fn of(repro: &'g Repro, values: Vec<Option<Array>>) -> Reduction<'g> {
        let graph = repro.graph();
        let kept = SideTable::filled(graph, || true);
        Reduction { graph, values, kept, outputs: graph.outputs().to_vec() }
    }

    /// The ops and outputs that are left.
    fn size(&self) -> (usize, usize) {
        (self.ops().len(), self.outputs.len())
    }

    /// The ops that are kept and needed, in order.
    fn ops(&self) -> Vec<NodeId> {
        let needed = self.needed(&self.kept, &self.outputs);
        let is_op = |&id: &NodeId| self.kept[id] && needed[id] && self.graph[id].op().is_some();
        self.graph.nodes().map(|(id, _)| id).filter(is_op).collect()
    }

    /// What the outputs need, up to ops that are not kept.
    fn needed(&self, kept: &SideTable<NodeId, bool>, outputs: &[NodeId]) -> SideTable<NodeId, bool> {
        let mut needed = SideTable::filled(self.graph, || false);
        outputs.iter().for_each(|&output| needed[output] = true);
        for (id, node) in self.graph.nodes().rev() {
            if needed[id] && kept[id] {
                node.args.iter().for_each(|&arg| needed[arg] = true);
            }
        }
        needed
    }

    /// Takes these for what is kept, if the case still fails.
    fn try_these(
        &mut self,
        kept: SideTable<NodeId, bool>,
        outputs: Vec<NodeId>,
        fails: &mut impl FnMut(&Repro) -> bool,
    ) -> bool {
        let is_smaller = self.repro(&kept, &outputs).is_some_and(|repro| fails(&repro));
        if is_smaller {
            (self.kept, self.outputs) = (kept, outputs);
        }
        is_smaller
    }

    /// Leaves out outputs, and takes operands of an op in its place as outputs.
    fn cut_outputs(&mut self, fails: &mut impl FnMut(&Repro) -> bool) {
        for &output in &self.outputs.clone() {
            if self.outputs.len() > 1 && self.try_these(self.kept.clone(), vec![output], fails) {
                break;
            }
        }
        let mut at = 0;
        while at < self.outputs.len() {
            let id = self.outputs[at];
            let mut rest = self.outputs.clone();
            rest.remove(at);
            if !rest.is_empty() && self.try_these(self.kept.clone(), rest.clone(), fails) {
                continue;
            }
            let is_op = |&arg: &NodeId| self.kept[arg] && self.graph[arg].op().is_some();
            let mut operands: Vec<NodeId> = self.graph[id].args.iter().copied().filter(is_op).collect();
            operands.sort_unstable();
            operands.dedup();
            // Only what leaves the graph with it makes the case smaller.
            if !operands.is_empty() && is_op(&id) && !self.needed(&self.kept, &rest)[id] {
                rest.splice(at..at, operands);
                if self.try_these(self.kept.clone(), rest, fails) {
                    continue;
                }
            }
            at += 1;
        }
    }

    /// Makes inputs of runs of ops, from long runs to single ones.
    fn cut_ops(&mut self, fails: &mut impl FnMut(&Repro) -> bool) {
        let mut length = self.ops().len().div_ceil(2);
        while length > 0 {
            let mut at = 0;
            loop {
                let ops = self.ops();
                let Some(run) = ops.get(at..(at + length).min(ops.len())).filter(|run| !run.is_empty()) else { break };
                let mut kept = self.kept.clone();
                run.iter().for_each(|&id| kept[id] = false);
                if !self.try_these(kept, self.outputs.clone(), fails) {
                    at += length;
                }
            }
            length /= 2;
        }
    }

    /// The case with these ops and outputs. `None` if it has no ops, if a value that it needs was not computed, or if
    /// it is no valid graph.
    fn repro(&self, kept: &SideTable<NodeId, bool>, outputs: &[NodeId]) -> Option<Repro> {
        let needed = self.needed(kept, outputs);
        let (mut graph, mut inputs) = (Graph::new(), Vec::new());
        let mut moved: SideTable<NodeId, Option<NodeId>> = SideTable::filled(self.graph, || None);
        let mut n_ops = 0;
        for (id, node) in self.graph.nodes().filter(|&(id, _)| needed[id]) {
            moved[id] = Some(match node.kind {
                NodeKind::Op(_) if kept[id] => {
                    n_ops += 1;
                    let args: Option<Vec<NodeId>> = node.args.iter().map(|&arg| moved[arg]).collect();
                    graph.copy(node, &args?)
                }
                NodeKind::Number(_) | NodeKind::Extent(_) => graph.copy(node, &[]),
                NodeKind::Op(_) | NodeKind::Input(_) => {
                    let array = self.values[id.index()].as_ref()?;
                    let ty = TensorType { number: node.ty.number, ..array.ty() };
                    inputs.push(Tensor::from_array(array.clone()));
                    graph.input(ty)
                }
            });
        }
        graph.set_outputs(outputs.iter().map(|&output| moved[output]).collect::<Option<_>>()?);
        if n_ops == 0 { None } else { Repro::new(graph, inputs).ok() }
    }
}

/// The case with inputs of zeros or ones, where it still fails.
fn with_plain_inputs(mut best: Repro, fails: &mut impl FnMut(&Repro) -> bool) -> Repro {
    for at in 0..best.inputs().len() {
        let ty = best.inputs()[at].array().ty();
        let one = Scalar::Int(1).to_lit(ty.dtype).bits;
        for word in [0, one] {
            let plain = of_words(&ty, std::iter::repeat_n(word, ty.numel()));
            let mut inputs = best.inputs().to_vec();
            let smaller = plain.and_then(|plain| {
                inputs[at] = plain;
                Repro::new(best.graph().clone(), inputs)
            });
            if let Ok(smaller) = smaller
                && fails(&smaller)
            {
                best = smaller;
                break;
            }
        }
    }
    best
}
