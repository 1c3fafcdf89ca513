//! Cases compared with the interpreter, by bits, under every schedule.

use crate::effort::is_long;
use crate::emulator::{self, Batch, Buffer, Program, SCHEDULES, SITE};
use crate::kernels::Case;
use opfuse::internals::codegen::cuda::{Form, Index, Plan, Source};
use std::collections::HashMap;

/// The number of cases that are compiled together.
const TOGETHER: usize = 300;

/// About how many cases of a list a short run has.
const IN_SHORT_RUN: usize = 40;

/// Cases with their names.
#[derive(Default)]
pub(crate) struct Cases {
    cases: Vec<Named>,
}

/// A case, and how it is launched.
pub(crate) struct Named {
    name: String,
    case: Case,
    source: Source,
    plan: Plan,
    /// Per buffer, the remainder of its address by 16.
    remainders: Vec<usize>,
    /// Bytes between the halves of buffers.
    apart: usize,
}

impl Cases {
    /// Adds a case in the form that its plan chooses, all buffers aligned to 16 bytes.
    pub(crate) fn add(&mut self, name: impl Into<String>, case: Case) {
        self.add_at(name, case, |_| 0);
    }

    /// Adds a case whose buffers begin so many elements after a multiple of 16 bytes.
    pub(crate) fn add_at(&mut self, name: impl Into<String>, case: Case, elements: impl Fn(usize) -> usize) {
        let sizes: Vec<usize> = case.kernel.dtypes().map(|dtype| dtype.size()).collect();
        let remainders: Vec<usize> = (0..sizes.len()).map(|slot| elements(slot) * sizes[slot] % 16).collect();
        let alignment = |&at: &usize| if at == 0 { 16 } else { at & at.wrapping_neg() };
        let alignments: Vec<usize> = remainders.iter().map(alignment).collect();
        let plan = Plan::new(&case.kernel, &case.geometry, &alignments);
        let plan = plan.unwrap_or_else(|reason| panic!("{reason}\n{}", case.kernel));
        self.push(name.into(), case, plan, remainders);
    }

    /// Adds a case in a given form.
    pub(crate) fn add_as(&mut self, name: impl Into<String>, case: Case, form: Form) {
        self.add_as_at(name, case, form, 0);
    }

    /// Adds a case in a given form whose buffers begin so many bytes after a multiple of 16.
    pub(crate) fn add_as_at(&mut self, name: impl Into<String>, case: Case, form: Form, remainder: usize) {
        let plan = Plan::with_form(&case.kernel, &case.geometry, form);
        let plan = plan.unwrap_or_else(|reason| panic!("{reason}\n{}", case.kernel));
        let n_buffers = case.inputs.len() + case.outputs.len();
        self.push(name.into(), case, plan, vec![remainder; n_buffers]);
    }

    /// Adds a case in a given form, with wider indices than it needs.
    pub(crate) fn add_wide(&mut self, name: impl Into<String>, case: Case, form: Form) {
        let plan = Plan::with_index(&case.kernel, &case.geometry, form, Index::Wide);
        let n_buffers = case.inputs.len() + case.outputs.len();
        self.push(name.into(), case, plan.expect("the kernel is one that CUDA code is made for"), vec![0; n_buffers]);
    }

    /// Adds a case of two rows, which are the halves of its buffers, with gigabytes between them.
    pub(crate) fn add_apart(&mut self, name: impl Into<String>, case: Case, form: Form) {
        const APART: usize = (1 << 32) + 64;
        assert_eq!(case.geometry.rows[..], [2]);
        let mut geometry = case.geometry.clone();
        for access in geometry.operands.iter_mut().chain(&mut geometry.outputs) {
            access.rows[0] += APART;
        }
        let plan =
            Plan::with_form(&case.kernel, &geometry, form).expect("the kernel is one that CUDA code is made for");
        assert_eq!(plan.variant.index, Index::Wide);
        let n_buffers = case.inputs.len() + case.outputs.len();
        self.push(name.into(), case, plan, vec![0; n_buffers]);
        self.cases.last_mut().expect("it was just added").apart = APART;
    }

    fn push(&mut self, name: String, case: Case, plan: Plan, remainders: Vec<usize>) {
        let source = Source::new(&case.kernel, &plan.variant, "k");
        self.cases.push(Named { name, case, source, plan, remainders, apart: 0 });
    }

    /// Runs and compares all cases, or some of a long list in a short run. Reports a skip where there is
    /// no compiler.
    pub(crate) fn check(&self) {
        assert!(!self.cases.is_empty());
        if !emulator::is_available() {
            return;
        }
        let step = if is_long() { 1 } else { self.cases.len().div_ceil(IN_SHORT_RUN) | 1 };
        let cases: Vec<&Named> = self.cases.iter().step_by(step).collect();
        for cases in cases.chunks(TOGETHER) {
            let program = compile(cases, |text| text);
            for schedule in SCHEDULES {
                if let Err(why) = compare(cases, &program, schedule) {
                    panic!("schedule {schedule}: {why}");
                }
            }
        }
    }

    /// Compares the first output of the only case with given bytes, for the changed source.
    pub(crate) fn expect_output(&self, expected: &[u8], mutate: impl Fn(String) -> String) {
        if !emulator::is_available() {
            return;
        }
        let [named] = &self.cases[..] else { panic!("one case") };
        let answers = compile(&[named], mutate).run(SCHEDULES[0]).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(answers[0][named.case.inputs.len()], expected, "{}", named.describe());
    }

    /// The first difference under some schedule for the changed source; `Ok` if the change is not detected.
    pub(crate) fn check_mutant(&self, mutate: impl Fn(String) -> String) -> Result<(), String> {
        let cases: Vec<&Named> = self.cases.iter().collect();
        let program = compile(&cases, mutate);
        SCHEDULES.into_iter().try_for_each(|schedule| compare(&cases, &program, schedule))
    }
}

fn compile(cases: &[&Named], mutate: impl Fn(String) -> String) -> Program {
    let mut batch = Batch::default();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for named in cases {
        let first = *known.entry(&named.source.code).or_insert_with(|| {
            // The sources of all cases have the same name; here each gets a name of its own.
            let source = Source::new(&named.case.kernel, &named.plan.variant, &batch.name());
            batch.add(&source)
        });
        let buffers: Vec<Buffer<'_>> = (named.case.inputs.iter().chain(&named.case.outputs).zip(&named.remainders))
            .map(|(bytes, &remainder)| Buffer { bytes, remainder, apart: named.apart })
            .collect();
        batch.call(first, &named.case.kernel, &named.plan, &buffers);
    }
    batch.compile(mutate)
}

fn compare(cases: &[&Named], program: &Program, schedule: usize) -> Result<(), String> {
    let answers = program.run(schedule).map_err(|why| {
        let number =
            why.split("case ").nth(1).and_then(|rest| rest.split(':').next()).and_then(|n| n.parse::<usize>().ok());
        let case = number.and_then(|number| cases.get(number));
        format!("{why}\n{}", case.map_or(String::new(), |named| named.describe()))
    })?;
    cases.iter().zip(answers).try_for_each(|(named, buffers)| named.compare(&buffers))
}

impl Named {
    fn describe(&self) -> String {
        format!("{}\n{}{:?}\n{}", self.name, self.case.kernel, self.case.geometry, self.source.code)
    }

    fn compare(&self, found: &[Vec<u8>]) -> Result<(), String> {
        let (expected, faults) = self.case.expected();
        let buffers = self.case.inputs.iter().chain(&expected);
        for (slot, (expected, found)) in buffers.zip(found).enumerate() {
            if let Some(at) = (0..expected.len()).find(|&at| expected[at] != found[at]) {
                let near = at.saturating_sub(8)..(at + 8).min(expected.len());
                let (expected, found) = (&expected[near.clone()], &found[near]);
                let why = format!("buffer {slot} differs at byte {at}: expected {expected:02x?}, found {found:02x?}");
                return Err(format!("{why}\n{}", self.describe()));
            }
        }
        let record = &found[found.len() - 2];
        let word = |at: usize| u64::from_le_bytes(record[8 * at..8 * at + 8].try_into().expect("8 bytes"));
        let is_told = match (word(0) & 0xff) as usize {
            _ if word(0) == 0 => !faults.has_zero_divisor() && faults.out_of_range().is_none(),
            0xff => faults.has_zero_divisor(),
            // The recorded index is outside of the recorded size.
            place => faults.out_of_range().is_some() && word(1 + 2 * place) >= word(2 + 2 * place),
        };
        if !is_told || (word(0) != 0 && word(0) >> 8 != SITE) {
            return Err(format!("faults are not those of the interpreter\n{}", self.describe()));
        }
        Ok(())
    }
}
