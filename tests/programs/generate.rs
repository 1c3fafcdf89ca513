//! Makes random programs by running them: a statement is chosen for the tensors that are there, and kept if it works.

use super::compare::turn;
use super::customs::{KINDS, custom};
use super::given::{Before, make};
use super::inputs::Style;
use super::interpret::{Frame, Guards};

use super::methods::{Int, METHODS};
use super::operators::{Choice, draws, operators};
use super::own::own;
use super::program::{After, Arg, Block, Case, Guard, Reading, Settings, Statement, Tensors, Var, Wrapper};
use super::random::Random;
use opfuse::{DType, Scalar, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How often a statement that does not work is replaced by another.
const TRIES: usize = 12;
/// Larger results are not kept.
const MOST_ELEMENTS: usize = 2000;
/// Beside large inputs these are.
const MOST_OF_LARGE: usize = 100_000;
const MOST_RESULTS: usize = 4;
/// Calls of operators from outside, in percent.
const OWN: usize = 4;

/// From this seed on, programs have complex numbers.
pub(crate) const FIRST_COMPLEX: u64 = 1 << 40;

/// What a program may contain.
struct Features {
    writes: bool,
    reads: bool,
    guards: bool,
    gradients: bool,
    nested: bool,
    mapped: bool,
    draws: bool,
    errors: bool,
    operators: usize,
}

struct Writer {
    random: Random,
    /// For statements that came later.
    extra: Random,
    /// How many of a hundred statements call custom functions, and how many make tensors of values.
    customs: usize,
    makes: usize,
    features: Features,
    next: Var,
    n_numbers: usize,
    n_guards: usize,
    /// Whether the last statement fails, so that nothing follows.
    failed: bool,
    is_complex: bool,
}

/// The program of a seed.
pub(crate) fn generate(seed: u64) -> Case {
    let mut random = Random::new(seed);
    // What came later draws from numbers of its own, so that a seed stays the same program.
    let mut extra = Random::new(!seed);
    let is_complex = seed >= FIRST_COMPLEX;
    let style = Style { is_complex, ..Style::new(&mut random) };
    let mut captured = Tensors::default();
    for _ in 0..random.pick(&[0, 0, 1, 1, 2, 3]) {
        style.add(&mut random, &mut captured, 0);
    }
    let mut inputs = Tensors::default();
    for _ in 0..1 + random.below(3) {
        style.add(&mut random, &mut inputs, captured.given.len());
    }
    let varies = random.percent(30);
    let mut calls = vec![inputs.clone()];
    for call in 1..4 {
        let varied = varies && (call < 3 || random.percent(50));
        calls.push(style.again(&mut random, &inputs, varied));
    }
    let settings = Settings {
        tier: random.pick(&[None, Some("vm"), Some("cranelift"), Some("x64")]),
        threads: 1 + random.below(2),
        draws: random.percent(20),
        deferred: random.percent(12),
        checked: random.percent(8),
        whole: random.percent(5),
        capacity: if random.percent(90) { 256 } else { random.below(3) },
        fusion: if random.percent(80) { 0 } else { 1 + random.below(4) },
        around: around(&mut random),
        after: random.pick(&[After::Nothing, After::Backward, After::Backward, After::Backward, After::Twice]),
        clears: random.percent(50),
        rates: extra.percent(15),
        hooks: extra.percent(10),
        shared: extra.percent(10),
    };
    let features = Features {
        writes: random.percent(70),
        reads: random.percent(25),
        guards: random.percent(25),
        gradients: style.gradients && random.percent(40),
        nested: random.percent(15),
        mapped: random.percent(10),
        draws: settings.draws,
        errors: random.percent(8),
        operators: random.pick(&[15, 50, 80]),
    };
    let _turn = turn(settings.draws);
    let mut case = Case { captured, calls, body: Block::default(), settings };
    let Ok(kept) = make(&case.captured, &[], &Before::default()) else { return case };
    let Ok(given) = make(&case.calls[0], &kept.tensors, &Before::default()) else { return case };
    let mut frame = Frame::new(&given.tensors, &kept.tensors);
    let next = given.tensors.len() + kept.tensors.len();
    let customs = if extra.percent(12) { 30 } else { 0 };
    let makes = if extra.percent(12) { 30 } else { 0 };
    let extra_of_writer = Random::new(!seed ^ 0x5eed);
    let mut writer = Writer {
        random,
        extra: extra_of_writer,
        customs,
        makes,
        features,
        next,
        n_numbers: 0,
        n_guards: 0,
        failed: false,
        is_complex,
    };
    let count = if writer.random.percent(10) { 20 } else { 1 + writer.random.below(9) };
    let n_results = 1 + writer.random.below(3);
    case.body = writer.block(&mut frame, count, n_results, 0);
    if writer.random.percent(12) && !writer.failed {
        writer.trains(&mut frame, &mut case.body);
    }
    if case.settings.rates {
        rated(&mut case.body, &mut extra);
    }
    case
}

/// Replaces half of the constants by the number that the function is given.
fn rated(block: &mut Block, random: &mut Random) {
    for statement in &mut block.statements {
        let scalars: Vec<&mut Arg> = match statement {
            Statement::Call { args, .. } => args.iter_mut().collect(),
            Statement::Method { scalar, method, .. } if method.takes_scalar => vec![scalar],
            _ => Vec::new(),
        };
        for scalar in scalars {
            if matches!(scalar, Arg::Scalar(_)) && random.percent(50) {
                *scalar = Arg::Rate;
            }
        }
        statement.blocks_mut().into_iter().for_each(|block| rated(block, random));
    }
}

/// Guards around some calls of some programs.
fn around(random: &mut Random) -> [Option<Guard>; 4] {
    if !random.percent(10) {
        return [None; 4];
    }
    let kinds = [
        Guard::NoGrad,
        Guard::NoGrad,
        Guard::Inference,
        Guard::Autocast(DType::BF16),
        Guard::Default(DType::F64),
        Guard::Mode,
    ];
    let kind = random.pick(&kinds);
    [(); 4].map(|()| random.percent(40).then_some(kind))
}

impl Writer {
    fn fresh(&mut self) -> Var {
        self.next += 1;
        self.next - 1
    }

    fn vars(frame: &Frame) -> Vec<(Var, Tensor)> {
        let known = frame.tensors.iter().enumerate();
        known.filter_map(|(var, tensor)| Some((var, tensor.clone()?))).collect()
    }

    /// A block of statements that ran on `frame`.
    fn block(&mut self, frame: &mut Frame, count: usize, n_results: usize, depth: usize) -> Block {
        let mut guards = Guards::default();
        // A block drops what it made itself.
        let start = if depth == 0 { 0 } else { self.next };
        let mut block = Block::default();
        for _ in 0..count {
            for statement in self.later_ones(frame) {
                self.keeps(frame, &mut guards, statement, &mut block);
            }
            for _ in 0..TRIES {
                if self.failed {
                    break;
                }
                let Some(statement) = self.statement(frame, &guards, start, depth) else { continue };
                if self.keeps(frame, &mut guards, statement, &mut block) {
                    break;
                }
            }
            if self.failed {
                break;
            }
        }
        block.results = self.results(frame, n_results);
        block
    }

    /// Statements of kinds that came later, which most programs have none of.
    fn later_ones(&mut self, frame: &Frame) -> Vec<Statement> {
        let mut found = Vec::new();
        if self.extra.percent(self.makes) {
            let dtype = self.extra.pick(&[DType::F32, DType::F32, DType::F64, DType::I64, DType::Bool]);
            let vars = Writer::vars(frame);
            let sizes = match vars.is_empty() || self.extra.percent(40) {
                true => vec![self.extra.below(4)],
                false => vars[self.extra.below(vars.len())].1.sizes().to_vec(),
            };
            if sizes.iter().product::<usize>() <= MOST_ELEMENTS {
                found.push(Statement::Make { out: self.fresh(), dtype, sizes, start: self.extra.below(9) as i64 - 4 });
            }
        }
        if self.extra.percent(self.customs) {
            let floats: Vec<Var> = Writer::vars(frame)
                .iter()
                .filter(|(_, tensor)| tensor.dtype().is_float())
                .map(|(var, _)| *var)
                .collect();
            if !floats.is_empty() {
                let (kind, of) = (self.extra.below(KINDS), self.extra.pick(&floats));
                found.push(Statement::Custom { outs: Vec::new(), kind, of });
            }
        }
        found
    }

    /// Appends a backward pass and a step of each leaf.
    fn trains(&mut self, frame: &mut Frame, block: &mut Block) {
        let mut guards = Guards::default();
        let vars = Writer::vars(frame);
        let choice = Choice { vars: &vars, numbers: &[], writes: false, is_complex: self.is_complex };
        let flows = |tensor: &Tensor| tensor.requires_grad() && !tensor.is_leaf();
        let Some(of) = choice.like(&mut self.random, flows).filter(|&var| flows(frame.get(var))) else { return };
        let leaves: Vec<Var> =
            vars.iter().filter(|(_, tensor)| tensor.requires_grad() && tensor.is_leaf()).map(|(var, _)| *var).collect();
        let before = self.random.percent(50);
        let call = |name: &str, args: Vec<Arg>| Statement::Call { outs: Vec::new(), name: name.into(), args };
        if before {
            for &of in &leaves {
                self.keeps(frame, &mut guards, Statement::ClearGrad { of }, block);
            }
        }
        let name = self.random.pick(&["aten::sum", "aten::mean"]);
        let loss = self.next;
        if !self.keeps(frame, &mut guards, call(name, vec![Arg::Tensor(of), Arg::None]), block) {
            return;
        }
        self.keeps(frame, &mut guards, Statement::Backward { of: loss }, block);
        let guard = self.n_guards;
        self.n_guards += 1;
        self.keeps(frame, &mut guards, Statement::Open { guard, kind: Guard::NoGrad }, block);
        for &leaf in &leaves {
            let out = self.fresh();
            if !self.keeps(frame, &mut guards, Statement::TakeGrad { out, of: leaf }, block) {
                continue;
            }
            let alpha = Arg::Scalar(Scalar::Float(-0.125));
            self.keeps(
                frame,
                &mut guards,
                call("aten::add_.Tensor", vec![Arg::Tensor(leaf), Arg::Tensor(out), alpha]),
                block,
            );
            if !before {
                self.keeps(frame, &mut guards, Statement::ClearGrad { of: leaf }, block);
            }
        }
        self.keeps(frame, &mut guards, Statement::Close { guard }, block);
        if self.random.percent(70) {
            block.results.clear();
        }
        let shown = self.next;
        if self.keeps(frame, &mut guards, call("aten::detach", vec![Arg::Tensor(loss)]), block) {
            block.results.push(shown);
        }
    }

    fn results(&mut self, frame: &Frame, count: usize) -> Vec<Var> {
        let vars = Writer::vars(frame);
        let choice = Choice { vars: &vars, numbers: &[], writes: false, is_complex: self.is_complex };
        (0..count).filter_map(|_| choice.var(&mut self.random).map(|(var, _)| *var)).collect()
    }

    /// Runs a statement and appends it if it works.
    fn keeps(&mut self, frame: &mut Frame, guards: &mut Guards, mut statement: Statement, block: &mut Block) -> bool {
        let before = frame.tensors.len();
        let ran = catch_unwind(AssertUnwindSafe(|| match &mut statement {
            Statement::Call { outs, name, args } => {
                let found = frame.call(name, args)?;
                Ok(self.name(frame, outs, found))
            }
            Statement::Method { outs, method, tensors, ints, scalar } => {
                let found = frame.method(method, tensors, ints, scalar)?;
                Ok(self.name(frame, outs, found))
            }
            Statement::Custom { outs, kind, of } => {
                let found = custom(*kind, frame.get(*of))?;
                Ok(self.name(frame, outs, found))
            }
            other => frame.statement(other, guards).map(|()| true),
        }));
        let keeps = match ran {
            Ok(Ok(fits)) => fits,
            Ok(Err(_)) => {
                self.failed = self.features.errors && self.random.percent(10);
                self.failed
            }
            Err(_) => {
                self.failed = true;
                true
            }
        };
        if keeps {
            block.statements.push(statement);
        } else {
            frame.tensors.truncate(before);
        }
        keeps
    }

    /// Gives results names, unless they are too large.
    fn name(&mut self, frame: &mut Frame, outs: &mut Vec<Var>, found: Vec<Tensor>) -> bool {
        let is_large = frame.tensors.iter().flatten().any(|tensor| tensor.numel() > 600);
        let most = if is_large { MOST_OF_LARGE } else { MOST_ELEMENTS };
        if found.iter().any(|tensor| tensor.numel() > most) {
            return false;
        }
        for tensor in found.into_iter().take(MOST_RESULTS) {
            let out = self.fresh();
            outs.push(out);
            frame.set(out, tensor);
        }
        true
    }

    /// A statement that may work.
    fn statement(&mut self, frame: &Frame, guards: &Guards, start: Var, depth: usize) -> Option<Statement> {
        let vars = Writer::vars(frame);
        let roll = self.random.below(100);
        let features = &self.features;
        let known = frame.numbers.iter().enumerate();
        let numbers: Vec<usize> = known.filter_map(|(number, value)| value.map(|_| number)).collect();
        let choice = Choice { vars: &vars, numbers: &numbers, writes: features.writes, is_complex: self.is_complex };
        match roll {
            0..6 if features.reads => {
                let number = self.n_numbers;
                let of = choice.like(&mut self.random, |tensor| tensor.numel() == 1)?;
                let one = vars.iter().any(|(var, tensor)| *var == of && tensor.numel() == 1);
                let how = if one && self.random.percent(70) { Reading::Item } else { Reading::First };
                self.n_numbers += 1;
                Some(Statement::Read { number, of, how })
            }
            6..12 if !numbers.is_empty() && depth < 2 => {
                let number = self.random.pick(&numbers);
                let above = if self.random.percent(60) { frame.number(number) - 0.25 } else { 0.0 };
                let n_results = 1 + self.random.below(2);
                let counts = [self.random.below(3), self.random.below(3)];
                let then = self.block(&mut frame.clone(), counts[0], n_results, depth + 1);
                let otherwise = self.block(&mut frame.clone(), counts[1], n_results, depth + 1);
                let outs = (0..n_results).map(|_| self.fresh()).collect();
                Some(Statement::Branch { number, above, then, otherwise, outs })
            }
            12..18 if features.guards => {
                let open = guards.numbers();
                if !open.is_empty() && self.random.percent(50) {
                    return Some(Statement::Close { guard: self.random.pick(&open) });
                }
                self.n_guards += 1;
                let kind = self.random.pick(&[
                    Guard::NoGrad,
                    Guard::NoGrad,
                    Guard::EnableGrad,
                    Guard::Inference,
                    Guard::Autocast(DType::BF16),
                    Guard::Autocast(DType::F16),
                    Guard::NoAutocast,
                    Guard::Default(DType::F64),
                    Guard::Default(DType::F16),
                    Guard::Mode,
                ]);
                Some(Statement::Open { guard: self.n_guards - 1, kind })
            }
            18..30 if features.gradients => self.gradient(&choice),
            30..35 if features.nested && depth < 2 => self.nested(frame, &choice, depth),
            35..40 if features.mapped && depth < 2 => self.mapped(frame, &choice, depth),
            40..43 => {
                let of = choice.var(&mut self.random)?.0;
                Some(if of >= start && self.random.percent(70) {
                    Statement::Drop { of }
                } else {
                    Statement::Clone { out: self.fresh(), of }
                })
            }
            _ => {
                if self.random.percent(self.features.operators) {
                    self.call(&choice)
                } else {
                    self.method(&choice)
                }
            }
        }
    }

    fn call(&mut self, choice: &Choice<'_>) -> Option<Statement> {
        let all = if self.random.percent(OWN) { own() } else { operators(self.is_complex) };
        let operator = &all[self.random.below(all.len())];
        let name = operator.name().to_string();
        if draws(&name) && !self.features.draws {
            return None;
        }
        let args = choice.arguments(&mut self.random, operator)?;
        Some(Statement::Call { outs: Vec::new(), name, args })
    }

    fn method(&mut self, choice: &Choice<'_>) -> Option<Statement> {
        let total: usize = METHODS.iter().map(|(share, _)| share).sum();
        let mut at = self.random.below(total);
        let method = METHODS.iter().find_map(|(share, method)| {
            if at < *share {
                return Some(method);
            }
            at -= share;
            None
        })?;
        if method.writes && !self.features.writes || draws(method.text) && !self.features.draws {
            return None;
        }
        let first = choice.var(&mut self.random)?.clone();
        let mut tensors = vec![first.0];
        for _ in 1..method.tensors.len() {
            let near = |tensor: &Tensor| tensor.dtype() == first.1.dtype() && tensor.dim() <= first.1.dim();
            tensors.push(choice.like(&mut self.random, near)?);
        }
        let ints = method.ints.iter().map(|(_, int)| self.int(*int, &first.1)).collect();
        let scalar = if method.takes_scalar { choice.scalar(&mut self.random) } else { Arg::Scalar(Scalar::Int(0)) };
        Some(Statement::Method { outs: Vec::new(), method, tensors, ints, scalar })
    }

    fn int(&mut self, int: Int, of: &Tensor) -> i64 {
        let random = &mut self.random;
        let rank = of.dim() as i64;
        match int {
            Int::Dim => random.below(2 * rank.max(1) as usize) as i64 - rank.max(1),
            Int::NewDim => random.below(rank as usize + 1) as i64,
            Int::Index => random.pick(&[0, 0, 1, 1, 2, -1, -2]),
            Int::Count => 1 + random.below(3) as i64,
            Int::Size => match random.below(4) {
                0 => of.numel() as i64,
                1 => random.pick(&[1, 2, -1]),
                _ => of.sizes().get(random.below(of.dim().max(1))).map_or(1, |&size| size as i64),
            },
        }
    }

    fn gradient(&mut self, choice: &Choice<'_>) -> Option<Statement> {
        let flows = |tensor: &Tensor| tensor.requires_grad();
        let leaf = |tensor: &Tensor| tensor.requires_grad() && tensor.is_leaf();
        Some(match self.random.below(9) {
            0..2 => {
                let of = choice.like(&mut self.random, |tensor| tensor.requires_grad() && tensor.numel() == 1)?;
                Statement::Backward { of }
            }
            2..5 => {
                let of = choice.like(&mut self.random, flows)?;
                let wrt: Vec<Var> =
                    (0..1 + self.random.below(2)).filter_map(|_| choice.like(&mut self.random, leaf)).collect();
                let outs = wrt.iter().map(|_| self.fresh()).collect();
                Statement::Grad { outs, of, wrt, create_graph: self.random.percent(50) }
            }
            5 => Statement::TakeGrad { of: choice.like(&mut self.random, leaf)?, out: self.fresh() },
            6 => Statement::ClearGrad { of: choice.like(&mut self.random, leaf)? },
            _ => {
                let of = choice.like(&mut self.random, |tensor| tensor.is_leaf() && tensor.dtype().is_float())?;
                Statement::RequireGrad { of, required: self.random.percent(80) }
            }
        })
    }

    fn nested(&mut self, frame: &Frame, choice: &Choice<'_>, depth: usize) -> Option<Statement> {
        let args: Vec<Var> =
            (0..1 + self.random.below(2)).filter_map(|_| choice.var(&mut self.random).map(|(var, _)| *var)).collect();
        let params: Vec<Var> = args.iter().map(|_| self.fresh()).collect();
        let mut inner = frame.clone();
        params.iter().zip(&args).for_each(|(&param, &arg)| inner.set(param, frame.get(arg).clone()));
        let (count, n_results) = (1 + self.random.below(3), 1 + self.random.below(2));
        let body = self.block(&mut inner, count, n_results, depth + 1);
        let outs = body.results.iter().map(|_| self.fresh()).collect();
        Some(Statement::Nested { wrapper: Wrapper::Compile, params, args, body, outs })
    }

    fn mapped(&mut self, frame: &Frame, choice: &Choice<'_>, depth: usize) -> Option<Statement> {
        let first = choice.like(&mut self.random, |tensor| tensor.dim() > 0 && tensor.numel() > 0)?;
        let tensor = frame.get(first);
        if tensor.dim() == 0 {
            return None;
        }
        let dim = self.random.below(tensor.dim());
        let size = tensor.sizes()[dim];
        let (mut args, mut dims) = (vec![first], vec![Some(dim as i64)]);
        if self.random.percent(50) {
            let other = choice.like(&mut self.random, |tensor| tensor.sizes().first() == Some(&size))?;
            args.push(other);
            dims.push((frame.get(other).sizes().first() == Some(&size)).then_some(0));
        }
        let params: Vec<Var> = args.iter().map(|_| self.fresh()).collect();
        let mut inner = frame.clone();
        for ((&param, &arg), dim) in params.iter().zip(&args).zip(&dims) {
            let tensor = frame.get(arg);
            inner.set(param, dim.map_or_else(|| Ok(tensor.clone()), |dim| tensor.select(dim, 0)).ok()?);
        }
        let (count, n_results) = (1 + self.random.below(3), 1 + self.random.below(2));
        let body = self.block(&mut inner, count, n_results, depth + 1);
        let outs = body.results.iter().map(|_| self.fresh()).collect();
        Some(Statement::Nested { wrapper: Wrapper::Vmap(dims), params, args, body, outs })
    }
}
