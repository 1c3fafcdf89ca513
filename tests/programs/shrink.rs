//! Shrinks a failing program: fewer calls, statements, results and inputs, then plainer ones.

use super::compare::Difference;
use super::failure;
use super::inputs::fit;
use super::known::known;
use super::program::{After, Block, Case, Feed, Place, Role, Statement, Values, Var, Wrapper};
use opfuse::DType;
use std::collections::BTreeSet;

/// A class of failures: what differs, and the operators of the shrunk program.
pub(crate) fn class(case: &Case, found: &Difference) -> String {
    let mut names = BTreeSet::new();
    collect(&case.body, &mut names);
    let place: String = found.place.chars().filter(|c| !c.is_ascii_digit()).collect();
    format!("{} of {place}: {}", found.kind, names.into_iter().collect::<Vec<_>>().join(" "))
}

/// The operators and statements of a block.
pub(crate) fn collect(block: &Block, names: &mut BTreeSet<String>) {
    for statement in &block.statements {
        match statement {
            Statement::Call { name, .. } => drop(names.insert(name.clone())),
            Statement::Method { method, .. } => drop(names.insert(method.text.replace(' ', ""))),
            other => {
                let text = format!("{other:?}");
                names.insert(text.split([' ', '{']).next().unwrap_or_default().to_string());
            }
        }
        statement.blocks().into_iter().for_each(|block| collect(block, names));
    }
}

/// A small program that fails in the same way. If the failure of the program is of no open class, that of the small one
/// is of none, if that can be had.
pub(crate) fn shrink(case: &Case, found: &Difference) -> Case {
    let small = shrunk(case, found, false);
    let is_open = |case: &Case| failure(case).is_some_and(|found| known(case, &found).is_some());
    if is_open(&small) && known(case, found).is_none() { shrunk(case, found, true) } else { small }
}

fn shrunk(case: &Case, found: &Difference, stays_new: bool) -> Case {
    let mut best = case.clone();
    let mut budget = 600;
    let fails = |case: &Case, budget: &mut i32| {
        *budget -= 1;
        *budget >= 0
            && is_valid(case)
            && failure(case).is_some_and(|other| {
                !(stays_new && known(case, &other).is_some())
                    && other.kind == found.kind
                    && (found.kind != "outcome" || same_outcome(&other, found))
            })
    };
    loop {
        let before = best.clone();
        for step in STEPS {
            let mut at = 0;
            while let Some(smaller) = step(&best, at) {
                if smaller != best && fails(&smaller, &mut budget) {
                    best = smaller;
                } else {
                    at += 1;
                }
            }
        }
        if best == before || budget <= 0 {
            return best;
        }
    }
}

/// Whether errors are the same but for numbers, and on the same side.
fn same_outcome(one: &Difference, other: &Difference) -> bool {
    let plain = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).take(40).collect::<String>();
    plain(&one.eager) == plain(&other.eager) && plain(&one.compiled) == plain(&other.compiled)
}

/// The `at`-th smaller program of one kind; none if there are no more.
type Step = fn(&Case, usize) -> Option<Case>;

const STEPS: &[Step] = &[
    fewer_calls,
    plainer_settings,
    fewer_results,
    fewer_statements,
    flatter,
    forwarded,
    fewer_inputs,
    plainer_inputs,
    plainer_calls,
];

fn fewer_calls(case: &Case, at: usize) -> Option<Case> {
    // From the last one; the first stays.
    let index = case.calls.len().checked_sub(1 + at).filter(|&index| index > 0)?;
    let mut out = case.clone();
    out.calls.remove(index);
    out.settings.around[index..].rotate_left(1);
    Some(out)
}

fn plainer_settings(case: &Case, at: usize) -> Option<Case> {
    let mut out = case.clone();
    let settings = &mut out.settings;
    match at {
        0 => settings.tier = None,
        1 => settings.tier = Some("vm"),
        2 => settings.threads = 1,
        3 => settings.deferred = false,
        4 => settings.checked = false,
        5 => settings.after = After::Nothing,
        6 => settings.after = After::Backward,
        7 => settings.clears = false,
        8 => settings.whole = false,
        9 => settings.around = [None; 4],
        10..14 => settings.around[at - 10] = None,
        14 => settings.capacity = 256,
        15 => settings.fusion = 0,
        16 => settings.rates = false,
        17 => settings.hooks = false,
        18 => settings.shared = false,
        _ => return None,
    }
    if at == 1 && case.settings.tier.is_none() || at == 6 && case.settings.after == After::Nothing {
        return Some(case.clone());
    }
    Some(out)
}

fn fewer_results(case: &Case, at: usize) -> Option<Case> {
    let mut out = case.clone();
    if at >= out.body.results.len() {
        return None;
    }
    out.body.results.remove(at);
    Some(out)
}

fn count(block: &Block) -> usize {
    block.statements.iter().map(|s| 1 + s.blocks().into_iter().map(count).sum::<usize>()).sum()
}

/// Calls `change` with the block and position of the `at`-th statement, counted from the last one.
fn at_statement(block: &mut Block, at: &mut usize, change: &mut dyn FnMut(&mut Block, usize)) -> bool {
    for index in (0..block.statements.len()).rev() {
        if *at == 0 {
            change(block, index);
            return true;
        }
        *at -= 1;
        for inner in block.statements[index].blocks_mut() {
            if at_statement(inner, at, change) {
                return true;
            }
        }
    }
    false
}

fn fewer_statements(case: &Case, at: usize) -> Option<Case> {
    let mut out = case.clone();
    let mut left = at;
    at_statement(&mut out.body, &mut left, &mut |block, index| drop(block.statements.remove(index))).then_some(out)
}

/// A nested block in place of the statement around it.
fn flatter(case: &Case, at: usize) -> Option<Case> {
    if at >= 2 * count(&case.body) {
        return None;
    }
    let mut out = case.clone();
    let (mut left, which) = (at / 2, at % 2);
    at_statement(&mut out.body, &mut left, &mut |block, index| {
        let statement = block.statements[index].clone();
        let (mut before, inner, outs) = match &statement {
            Statement::Branch { then, otherwise, outs, .. } => {
                (Vec::new(), if which == 0 { then } else { otherwise }, outs)
            }
            Statement::Nested { wrapper: Wrapper::Compile, params, args, body, outs } => {
                let handles = params.iter().zip(args).map(|(&out, &of)| Statement::Clone { out, of });
                (handles.collect::<Vec<_>>(), body, outs)
            }
            _ => return,
        };
        before.extend(inner.statements.iter().cloned());
        before.extend(outs.iter().zip(&inner.results).map(|(&out, &of)| Statement::Clone { out, of }));
        block.statements.splice(index..=index, before);
    });
    Some(out)
}

/// Without a statement, whose results are replaced by other variables.
fn forwarded(case: &Case, at: usize) -> Option<Case> {
    let mut vars = BTreeSet::new();
    made(&case.body, &mut vars);
    let n_given = case.n_inputs() + case.captured.given.len();
    let candidates = n_given + vars.len();
    let total = count(&case.body);
    if at >= total * candidates {
        return None;
    }
    let by = at % candidates;
    let by = if by < n_given { by } else { vars.iter().copied().nth(by - n_given)? };
    let mut out = case.clone();
    let mut left = at / candidates;
    let mut gone = Vec::new();
    at_statement(&mut out.body, &mut left, &mut |block, index| {
        gone = block.statements[index].outs();
        if gone.len() == 1 && gone[0] != by {
            block.statements.remove(index);
        } else {
            gone.clear();
        }
    });
    if let [gone] = gone[..] {
        replace(&mut out.body, gone, by);
    }
    Some(out)
}

/// Adds the variables that a block makes.
pub(crate) fn made(block: &Block, vars: &mut BTreeSet<Var>) {
    for statement in &block.statements {
        vars.extend(statement.outs());
        if let Statement::Nested { params, .. } = statement {
            vars.extend(params);
        }
        statement.blocks().into_iter().for_each(|block| made(block, vars));
    }
}

fn replace(block: &mut Block, gone: Var, by: Var) {
    for statement in &mut block.statements {
        statement.uses_mut().into_iter().filter(|var| **var == gone).for_each(|var| *var = by);
        statement.blocks_mut().into_iter().for_each(|block| replace(block, gone, by));
    }
    block.results.iter_mut().filter(|var| **var == gone).for_each(|var| *var = by);
}

fn fewer_inputs(case: &Case, at: usize) -> Option<Case> {
    let (n_inputs, n_captured) = (case.n_inputs(), case.captured.given.len());
    if at >= n_inputs + n_captured {
        return None;
    }
    let mut out = case.clone();
    if n_inputs == 1 && at == 0 {
        return Some(out);
    }
    let lists: Vec<&mut super::program::Tensors> =
        if at < n_inputs { out.calls.iter_mut().collect() } else { vec![&mut out.captured] };
    let index = if at < n_inputs { at } else { at - n_inputs };
    for list in lists {
        list.given.remove(index);
        for given in &mut list.given {
            if let Feed::Input(_) = given.feed {
                given.feed = Feed::Fresh;
            }
            if let Place::Input(other) = &mut given.place {
                if *other == index {
                    return Some(case.clone());
                }
                *other -= usize::from(*other > index);
            }
        }
    }
    for given in out.calls.iter_mut().flat_map(|call| &mut call.given) {
        if let (Place::Captured(other), true) = (&mut given.place, at >= n_inputs) {
            if *other == index {
                return Some(case.clone());
            }
            *other -= usize::from(*other > index);
        }
    }
    if !renumber(&mut out.body, at) {
        return Some(case.clone());
    }
    Some(out)
}

/// Takes a variable out of the numbering; false if it is used.
fn renumber(block: &mut Block, gone: Var) -> bool {
    let mut free = true;
    let mut lower = |var: &mut Var| {
        free &= *var != gone;
        *var -= usize::from(*var > gone);
    };
    block.results.iter_mut().for_each(&mut lower);
    for statement in &mut block.statements {
        statement.uses_mut().into_iter().for_each(&mut lower);
        let outs: &mut [Var] = match statement {
            Statement::Call { outs, .. }
            | Statement::Method { outs, .. }
            | Statement::Branch { outs, .. }
            | Statement::Custom { outs, .. }
            | Statement::Grad { outs, .. } => outs,
            Statement::Nested { outs, params, .. } => {
                params.iter_mut().for_each(&mut lower);
                outs
            }
            Statement::Clone { out, .. } | Statement::TakeGrad { out, .. } | Statement::Make { out, .. } => {
                std::slice::from_mut(out)
            }
            _ => &mut [],
        };
        outs.iter_mut().for_each(&mut lower);
    }
    let mut inner = true;
    for statement in &mut block.statements {
        statement.blocks_mut().into_iter().for_each(|block| inner &= renumber(block, gone));
    }
    free && inner
}

fn rows(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim] * sizes[dim].max(1);
    }
    strides
}

/// One given tensor made plainer, in all calls.
fn plainer_inputs(case: &Case, at: usize) -> Option<Case> {
    const WAYS: usize = 12;
    let (n_inputs, n_captured) = (case.n_inputs(), case.captured.given.len());
    let (index, way) = (at / WAYS, at % WAYS);
    if index >= n_inputs + n_captured {
        return None;
    }
    let mut out = case.clone();
    let lists: Vec<&mut super::program::Tensors> =
        if index < n_inputs { out.calls.iter_mut().collect() } else { vec![&mut out.captured] };
    let index = if index < n_inputs { index } else { index - n_inputs };
    for list in lists {
        let n_memories = list.memories.len();
        let given = &mut list.given[index];
        match way {
            0 => (given.strides, given.offset) = (rows(&given.sizes), 0),
            1 => given.role = Role::Plain,
            2 if given.role != Role::Plain => given.role = Role::Leaf,
            3 => {
                given.sizes.pop();
                given.strides = rows(&given.sizes);
            }
            4 => {
                given.sizes.iter_mut().for_each(|size| *size = (*size).min(2));
                given.strides = rows(&given.sizes);
            }
            5 => {
                if let Place::Memory(memory) = given.place {
                    list.memories[memory].dtype = DType::F32;
                }
            }
            6 => {
                if let Place::Memory(memory) = given.place {
                    list.memories[memory].values = Values::Normal;
                }
            }
            7 => {
                // Memory of its own.
                let memory = match given.place {
                    Place::Memory(memory) => list.memories[memory].clone(),
                    Place::Input(_) | Place::Captured(_) | Place::Number(_) => {
                        let (dtype, values) = (DType::F32, Values::Normal);
                        super::program::Memory { dtype, pairs: false, len: 0, values, seed: index as u64 }
                    }
                };
                if list.given.iter().filter(|other| other.place == list.given[index].place).count() > 1
                    || !matches!(list.given[index].place, Place::Memory(_))
                {
                    list.memories.push(memory);
                    list.given[index].place = Place::Memory(n_memories);
                }
            }
            8 => given.feed = Feed::Fresh,
            10 => {
                if let Place::Memory(memory) = given.place {
                    list.memories[memory].pairs = false;
                }
            }
            9 => {
                given.sizes = vec![2];
                given.strides = vec![1];
            }
            _ => {
                given.sizes.iter_mut().for_each(|size| *size = 1);
                given.strides = rows(&given.sizes);
            }
        }
        list.memories.iter_mut().for_each(|memory| memory.len = 0);
        fit(list);
        drop_unused(list);
    }
    Some(out)
}

fn drop_unused(list: &mut super::program::Tensors) {
    for memory in (0..list.memories.len()).rev() {
        if list.given.iter().any(|given| given.place == Place::Memory(memory)) {
            continue;
        }
        list.memories.remove(memory);
        for given in &mut list.given {
            if let Place::Memory(index) = &mut given.place {
                *index -= usize::from(*index > memory);
            }
        }
    }
}

/// The inputs of the first call in a later one, too.
fn plainer_calls(case: &Case, at: usize) -> Option<Case> {
    let mut out = case.clone();
    let call = out.calls.get_mut(at + 1)?;
    let seeds: Vec<u64> = call.memories.iter().map(|memory| memory.seed).collect();
    *call = case.calls[0].clone();
    call.memories.iter_mut().zip(seeds).for_each(|(memory, seed)| memory.seed = seed);
    Some(out)
}

/// Whether every variable, number and guard is made before it is used.
pub(crate) fn is_valid(case: &Case) -> bool {
    let known: BTreeSet<Var> = (0..case.n_inputs() + case.captured.given.len()).collect();
    valid_block(&case.body, false, &mut known.clone(), &mut BTreeSet::new())
}

fn valid_block(block: &Block, is_inner: bool, known: &mut BTreeSet<Var>, numbers: &mut BTreeSet<usize>) -> bool {
    let foreign = known.clone();
    for statement in &block.statements {
        let mut copy = statement.clone();
        if copy.uses_mut().into_iter().any(|var| !known.contains(var)) {
            return false;
        }
        let read = |arg: &super::program::Arg| match arg {
            super::program::Arg::Number(number) => numbers.contains(number),
            _ => true,
        };
        let fine = match statement {
            Statement::Call { args, .. } => args.iter().all(read),
            Statement::Method { scalar, .. } => read(scalar),
            Statement::Branch { number, .. } => numbers.contains(number),
            _ => true,
        };
        if !fine {
            return false;
        }
        for inner in statement.blocks() {
            let mut inside = known.clone();
            if let Statement::Nested { params, .. } = statement {
                inside.extend(params);
            }
            if !valid_block(inner, true, &mut inside, &mut numbers.clone()) {
                return false;
            }
        }
        match statement {
            Statement::Read { number, .. } => drop(numbers.insert(*number)),
            Statement::Drop { of } if is_inner && foreign.contains(of) => return false,
            Statement::Drop { of } => drop(known.remove(of)),
            other => known.extend(other.outs()),
        }
    }
    block.results.iter().all(|var| known.contains(var))
}
