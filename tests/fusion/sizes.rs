//! Plans of one function in all sizes: neither its kernels nor the modelled time of an element jump where values no
//! longer fit a cache.

use opfuse::internals::fusion::cost::CostModel;
use opfuse::internals::fusion::{Options, plan};
use opfuse::internals::ir::Graph;

/// Writes a graph over vectors of `n` elements, a node per line.
struct Text {
    n: usize,
    lines: Vec<String>,
}

impl Text {
    fn input(&mut self) -> usize {
        self.push("input")
    }

    fn number(&mut self, value: f64) -> usize {
        self.lines.push(format!("n{} = number {value:?}: f64[]#", self.lines.len()));
        self.lines.len() - 1
    }

    fn call(&mut self, op: &str, args: &[usize]) -> usize {
        let args: Vec<String> = args.iter().map(|arg| format!("n{arg}")).collect();
        let alpha = if matches!(op, "add" | "sub") { "; 1" } else { "" };
        self.push(&format!("{op}({}{alpha})", args.join(", ")))
    }

    fn times(&mut self, x: usize, factor: f64) -> usize {
        let factor = self.number(factor);
        self.call("mul", &[x, factor])
    }

    fn push(&mut self, value: &str) -> usize {
        self.lines.push(format!("n{} = {value}: f32[{}]", self.lines.len(), self.n));
        self.lines.len() - 1
    }
}

/// A function by what it returns.
type Function = fn(&mut Text) -> Vec<usize>;

const FUNCTIONS: &[(&str, Function)] = &[
    ("a step of Adam", |text| {
        let [p, m, v, g] = std::array::from_fn(|_| text.input());
        let (old, new) = (text.times(m, 0.9), text.times(g, 0.1));
        let m = text.call("add", &[old, new]);
        let (old, square) = (text.times(v, 0.999), text.call("square", &[g]));
        let new = text.times(square, 0.001);
        let v = text.call("add", &[old, new]);
        let root = text.call("sqrt", &[v]);
        let ratio = text.call("div", &[m, root]);
        let change = text.times(ratio, 0.01);
        vec![text.call("sub", &[p, change]), m, v]
    }),
    ("steps of an oscillator", |text| {
        let [mut x, mut y] = std::array::from_fn(|_| text.input());
        for _ in 0..12 {
            let force = text.call("sin", &[x]);
            let change = text.times(force, 0.01);
            y = text.call("sub", &[y, change]);
            let change = text.times(y, 0.01);
            x = text.call("add", &[x, change]);
        }
        vec![x, y]
    }),
    ("a chain with results on the way", |text| {
        let mut x = text.input();
        (0..6)
            .map(|_| {
                let factor = text.input();
                let scaled = text.call("mul", &[x, factor]);
                x = text.call("tanh", &[scaled]);
                x
            })
            .collect()
    }),
];

#[test]
fn no_size_has_other_kernels_or_takes_less_than_a_smaller_one() {
    for (name, function) in FUNCTIONS {
        let mut before: Option<(usize, f64)> = None;
        for shift in 12..28 {
            let mut text = Text { n: 1 << shift, lines: Vec::new() };
            let outputs: Vec<String> = function(&mut text).iter().map(|id| format!("n{id}")).collect();
            let text = format!("graph {{\n{}\nreturn {}\n}}", text.lines.join("\n"), outputs.join(", "));
            let graph: Graph = text.parse().unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
            let options = Options::default();
            let (plan, cost) = (plan(&graph, &options), CostModel::new(&graph, options.rates));
            let time: f64 = plan.steps.iter().map(|step| cost.unit(step)).sum();
            if let Some((kernels, shorter)) = before {
                assert_eq!(plan.steps.len(), kernels, "{name}, 2^{shift} elements: {}", plan.text(&graph));
                assert!(time >= shorter, "{name}, 2^{shift} elements: {time} after {shorter} nanoseconds");
            }
            before = Some((plan.steps.len(), time));
        }
    }
}
