//! The chapters of the tour, a floor each. Nothing in them depends on the run, on the processor or on time.

use crate::block;
use opfuse::compile::{CompileOptions, compile_with};
use opfuse::dispatch::operator;
use opfuse::internals::codegen::LoopOrder;
use opfuse::internals::codegen::lower::{Lowered, lower};
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::codegen::{cranelift, x64};
use opfuse::internals::fusion::{Decision, Options, Plan, StepKind, plan};
use opfuse::internals::ir::passes::{Target, passes_for};
use opfuse::internals::transforms::tracer::{Trace, trace};
use opfuse::ir::{Graph, Op, verify};
use opfuse::{Error, Reason, Result, Tensor};
use std::fmt::Write;

/// A floor.
pub(crate) struct Chapter {
    /// Its number and name.
    pub(crate) title: &'static str,
    /// What happens on it.
    pub(crate) text: &'static str,
    /// What the function looks like there. Forms of a pair stand side by side on the page.
    pub(crate) forms: Vec<Form>,
}

/// What the function looks like on a floor.
pub(crate) struct Form {
    /// What it is.
    pub(crate) name: String,
    /// The form.
    pub(crate) text: String,
    /// Where it is shown.
    pub(crate) show: Show,
    /// Whether lines that the form beside it lacks are marked.
    pub(crate) is_compared: bool,
}

/// What is printed of a form. The page has it whole.
pub(crate) enum Show {
    /// All of it.
    Whole,
    /// Nothing, since it was printed before.
    OnPage,
    /// Some lines around the first with this word.
    Excerpt(&'static str),
}

fn form(name: impl Into<String>, text: impl Into<String>, show: Show) -> Form {
    Form { name: name.into(), text: text.into(), show, is_compared: false }
}

/// All chapters, for these inputs.
pub(crate) fn chapters(inputs: &[Tensor; 4]) -> Result<Vec<Chapter>> {
    let traced = traced(inputs)?;
    let (graph, after_passes) = passes(&traced)?;
    let plan = planned(&graph);
    let kernels = plan.steps.iter().filter_map(|step| match &step.kind {
        StepKind::Kernel(region) => Some(lower(&graph, region, LoopOrder::OfMemory)),
        StepKind::Alias | StepKind::Product | StepKind::Parts(_) | StepKind::Blocks(_) | StepKind::Routine => None,
    });
    let kernels: Vec<Lowered> = kernels.collect::<Result<_, _>>()?;
    Ok(vec![
        the_call(inputs)?,
        dispatch(inputs)?,
        Chapter {
            title: "3. The traced graph",
            text: "With the Tracer key included the same calls are recorded, one node each. Nothing was run for this \
                   graph: it was traced on shapes alone.",
            forms: vec![
                form("the function", source(), Show::OnPage),
                form("its graph", traced.to_string(), Show::Whole),
            ],
        },
        after_passes,
        the_plan(&graph, &plan),
        the_kernel(&graph, &kernels),
        code(&kernels),
        the_executable(inputs)?,
    ])
}

/// The text of the function.
fn source() -> String {
    let file = include_str!("main.rs");
    let start = file.find("fn block(").expect("the function is there");
    let end = file[start..].find("\n}\n").expect("the function ends") + 3;
    file[start..start + end].into()
}

fn the_call(inputs: &[Tensor; 4]) -> Result<Chapter> {
    let [x, residual, weight, bias] = inputs;
    let result = block(x, residual, weight, bias)?;
    let mut text = String::new();
    for (name, tensor) in [("x", x), ("residual", residual), ("weight", weight), ("bias", bias), ("result", &result)] {
        let first = &tensor.to_vec::<f32>()?[..3];
        let _ = writeln!(text, "{name:<8} {} {:?} = {first:?} …", tensor.dtype(), tensor.sizes());
    }
    Ok(Chapter {
        title: "1. The call",
        text: "A tensor's methods run at once, one loop over memory for each op inside. Everything below has to give \
               this result, bit for bit.",
        forms: vec![form("the function", source(), Show::Whole), form("a call", text, Show::Whole)],
    })
}

fn dispatch(inputs: &[Tensor; 4]) -> Result<Chapter> {
    let operator = operator(Op::Add)?;
    let keys = inputs[0].key_set() | inputs[1].key_set();
    let of_call = operator.call_key_set(keys);
    let call = format!(
        "{}\nkeys of the operands  {keys}\nkeys of the call      {of_call}\nwhich leads to        {}\n",
        operator.name(),
        of_call.highest()
    );
    let table = operator.dump_table();
    let is_met = |line: &&str| ["CPU:", "Tracer:", "AutogradCPU:"].iter().any(|key| line.starts_with(key));
    let slots: Vec<&str> = table.lines().filter(is_met).collect();
    Ok(Chapter {
        title: "2. Dispatch",
        text: "What does `x + residual` mean right now? The keys of the operands are joined. The thread's included \
               keys are added, and its excluded ones removed. Fallthrough keys are skipped. The highest key left names \
               the slot of the operator's table.",
        forms: vec![
            form("the call x + residual", call, Show::Whole),
            form("slots of its table that a CPU tensor can meet", slots.join("\n"), Show::Whole),
        ],
    })
}

/// The graph of the function.
pub(crate) fn traced(inputs: &[Tensor; 4]) -> Result<Graph> {
    let function = |x: &[Tensor]| block(&x[0], &x[1], &x[2], &x[3]);
    let (_, captured) = trace(inputs, function, |output| vec![output.clone()])?;
    let Trace { graph, .. } = captured.map_err(|reason| Error::argument("trace", reason.to_string()))?;
    verify(&graph)?;
    Ok(graph)
}

/// The graph after all passes, and the chapter about them. `compile::pipeline::build` reads the same table.
pub(crate) fn passes(traced: &Graph) -> Result<(Graph, Chapter)> {
    let mut graph = traced.clone();
    let mut forms = Vec::new();
    let mut idle = Vec::new();
    for pass in passes_for(Target::Cpu) {
        let next = (pass.run)(&graph)?;
        pass.verify(&next)?;
        if next.to_string() == graph.to_string() {
            idle.push(pass.name);
        } else {
            let name = |when: &str, graph: &Graph| format!("{when} {}: {} nodes", pass.name, graph.len());
            let before = form(name("before", &graph), graph.to_string(), Show::OnPage);
            let after = form(name("after", &next), next.to_string(), Show::Whole);
            forms.extend([before, after].map(|form| Form { is_compared: true, ..form }));
        }
        graph = next;
    }
    forms.push(form("passes with nothing to do here", idle.join(", "), Show::Whole));
    let chapter = Chapter {
        title: "4. Passes",
        text: "A pass goes from graph to graph, and the result is verified. All passes keep every bit. Here \
               `decompose` writes layer_norm as the ops that it is made of.",
        forms,
    };
    Ok((graph, chapter))
}

/// The plan of a graph.
pub(crate) fn planned(graph: &Graph) -> Plan {
    plan(graph, &Options::default())
}

fn the_plan(graph: &Graph, plan: &Plan) -> Chapter {
    let fused = plan.edges.iter().filter(|edge| edge.decision == Decision::Fused);
    let (count, mut producers): (usize, Vec<_>) = (fused.clone().count(), fused.map(|edge| edge.producer).collect());
    producers.sort_unstable();
    producers.dedup();
    let bytes: usize = producers.iter().map(|&producer| graph[producer].ty.bytes()).sum();
    let loops = graph.nodes().filter(|(_, node)| node.op().is_some());
    let alone: Vec<String> = loops.map(|(id, _)| format!("loop -> {id}")).collect();
    let lines = plan.text(graph).replace(": n", ":\n       n").replace("; n", "\n       n");
    Chapter {
        title: "5. The plan",
        text: "Which nodes become one kernel? A reduction and what it is broadcast to share a loop over rows. Edges \
               that stay are listed with their reason and cost.",
        forms: vec![
            form("op by op", alone.join("\n"), Show::OnPage),
            form("fused", lines, Show::Whole),
            form(
                "what that saves",
                format!(
                    "{count} of {} edges are fused\n{bytes} bytes are neither written nor read again",
                    plan.edges.len()
                ),
                Show::Whole,
            ),
        ],
    }
}

fn the_kernel(graph: &Graph, kernels: &[Lowered]) -> Chapter {
    let mut forms = vec![form("the graph", graph.to_string(), Show::OnPage)];
    for Lowered { kernel, geometry, .. } in kernels {
        forms.push(form("the kernel", kernel.to_string(), Show::Whole));
        let shape = format!("rows {:?} of {:?} elements", geometry.rows, geometry.inner);
        forms.push(form("what it runs on; neither is part of the kernel", shape, Show::Whole));
    }
    Chapter {
        title: "6. The kernel",
        text: "There is one loop form for every code tier: loads, registers per element or per row, folds, stores. \
               Functions such as tanh stay calls here; every tier expands them into the same list of scalar \
               primitives.",
        forms,
    }
}

fn code(kernels: &[Lowered]) -> Chapter {
    let mut forms = Vec::new();
    for Lowered { kernel, geometry, .. } in kernels {
        let classes = geometry.classes(kernel);
        for (tier, name, text, sum) in [
            ("x64", "AVX2 instructions", x64::emit_text(x64::Level::Avx2, kernel, &classes), "vaddps"),
            ("x64", "AVX-512 instructions", x64::emit_text(x64::Level::Avx512, kernel, &classes), "vaddps"),
            ("cranelift", "CLIF", cranelift::emit_text(kernel, &classes), "fadd"),
        ] {
            forms.push(listing(tier, name, text, sum));
        }
    }
    Chapter {
        title: "7. Code",
        text: "A tier turns the kernel into something that runs. The tier x64 writes machine code for AVX2 or AVX-512, \
               shown before registers are allocated. Cranelift gets its own language, CLIF. The vm interprets the \
               kernel on processors that neither knows, and until machine code pays.",
        forms,
    }
}

fn listing(tier: &str, name: &str, text: Result<String, Reason>, word: &'static str) -> Form {
    match text {
        Ok(text) => form(format!("{tier}: {} lines of {name}", text.lines().count()), text, Show::Excerpt(word)),
        Err(reason) => form(format!("{tier}: no {name}"), format!("declined: {reason}"), Show::Whole),
    }
}

fn the_executable(inputs: &[Tensor; 4]) -> Result<Chapter> {
    let [x, residual, weight, bias] = inputs;
    let expected = block(x, residual, weight, bias)?.to_vec::<f32>()?;
    let mut table = format!("{:<10}", "eager");
    let row =
        |values: &[f32]| values.iter().take(5).map(|value| format!(" {:08x}", value.to_bits())).collect::<String>();
    let _ = writeln!(table, "{} …", row(&expected));
    let mut plan = String::new();
    for tier in Tier::ALL {
        let compiled = compile_with(block, CompileOptions { tier: Some(tier), ..CompileOptions::default() });
        let found = compiled.call((x, residual, weight, bias))?.to_vec::<f32>()?;
        let is_equal = found.iter().zip(&expected).all(|(one, other)| one.to_bits() == other.to_bits());
        let verdict = if is_equal { "all equal" } else { "different" };
        let _ = writeln!(table, "{:<10}{} … {verdict}", tier.name(), row(&found));
        plan = compiled.explain().plan_text();
    }
    Ok(Chapter {
        title: "8. The executable",
        text: "`compile(block)` does all of the above when it is first called. Kernels know no sizes, so nothing is \
               compiled again for more rows. Every tier gives the bits of the eager call.",
        forms: vec![
            form("the plan as text", plan, Show::Whole),
            form("bits of the result, by tier", table, Show::Whole),
        ],
    })
}
