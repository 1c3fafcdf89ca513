//! What is counted and printed.

use opfuse::compile::Stance;
use opfuse::internals::codegen::tier::Tier;
use std::fmt;

/// The outcome of a case.
pub(crate) enum Verdict {
    Passed,
    /// What differed.
    Failed(Vec<String>),
    /// Why it could not be run.
    Skipped(String),
    /// What is wrong with the reference.
    Faulty(String),
}

/// The cases of one operator.
pub(crate) struct OpReport {
    pub(crate) op: String,
    pub(crate) tier: String,
    pub(crate) passed: usize,
    /// A line per case: id, operator, tag, and what differed.
    pub(crate) failures: Vec<String>,
    /// Case and reason.
    pub(crate) skips: Vec<(String, String)>,
    /// Case and what is wrong with its reference.
    pub(crate) faults: Vec<(String, String)>,
    /// How many cases have gradients.
    pub(crate) with_grads: usize,
    /// How many cases expect an error.
    pub(crate) errors: usize,
    /// Cases whose gradients were compared, and why those of others were not.
    pub(crate) gradients: Tally,
    /// Cases that ran compiled on a tier in a stance, and why others did not.
    pub(crate) compiled: Vec<((Tier, Stance), Tally)>,
}

/// How many were done, and why others were not.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) done: usize,
    pub(crate) others: Vec<(String, usize)>,
}

impl Tally {
    pub(crate) fn not_done(&mut self, reason: &str) {
        self.add_others(reason, 1);
    }

    fn add_others(&mut self, reason: &str, count: usize) {
        match self.others.iter_mut().find(|(known, _)| known == reason) {
            Some((_, n)) => *n += count,
            None => self.others.push((reason.to_string(), count)),
        }
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        self.done += other.done;
        for (reason, count) in &other.others {
            self.add_others(reason, *count);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} checked", self.done)?;
        for (reason, count) in &self.others {
            write!(f, ", {count} not ({reason})")?;
        }
        Ok(())
    }
}

/// The whole run.
pub(crate) struct Report {
    pub(crate) ops: Vec<OpReport>,
}

/// Failures that are listed in full unless one asks for more.
const LISTED: usize = 40;

impl Report {
    /// Lines per op, sums, reasons of skips, and the first failures.
    pub(crate) fn print(&self, listed: Option<usize>) {
        for op in self.ops.iter().filter(|op| !op.failures.is_empty() || !op.skips.is_empty()) {
            let OpReport { op: name, tier, passed, failures, skips, .. } = op;
            println!("{tier} {name}: {passed} passed, {} failed, {} skipped", failures.len(), skips.len());
        }
        let mut reasons = Tally::default();
        for (_, reason) in self.ops.iter().flat_map(|op| &op.skips) {
            reasons.not_done(reason);
        }
        for (reason, count) in &reasons.others {
            println!("skipped {count}: {reason}");
        }
        for (case, fault) in self.ops.iter().flat_map(|op| &op.faults) {
            println!("not compared {case}: {fault}");
        }
        let failures: Vec<&String> = self.ops.iter().flat_map(|op| &op.failures).collect();
        for failure in failures.iter().take(listed.unwrap_or(LISTED)) {
            println!("{failure}");
        }
        let mut gradients = Tally::default();
        self.ops.iter().for_each(|op| gradients.add(&op.gradients));
        println!("gradients: {gradients}");
        for stance in [Stance::Default, Stance::Deferred] {
            for tier in Tier::ALL {
                let all = self.ops.iter().flat_map(|op| &op.compiled);
                let mut tallies = all.filter(|(other, _)| *other == (tier, stance)).peekable();
                if tallies.peek().is_some() {
                    let mut sum = Tally::default();
                    tallies.for_each(|(_, tally)| sum.add(tally));
                    println!("compiled on {tier}, stance {stance:?}: {sum}");
                }
            }
        }
        for tier in self.tiers() {
            let of_tier = || self.ops.iter().filter(|op| op.tier == tier);
            let whole = of_tier().filter(|op| op.failures.is_empty() && op.skips.is_empty()).count();
            println!("golden {tier}: {}; {whole} of {} ops in full", Sums::of(of_tier()), of_tier().count());
        }
        println!("golden: {}", Sums::of(self.ops.iter()));
    }

    /// The errors: failures, and skips where `may_skip` does not allow them.
    pub(crate) fn complaints(&self, may_skip: impl Fn(&OpReport) -> bool) -> Vec<String> {
        let mut lines: Vec<String> = self.ops.iter().flat_map(|op| op.failures.iter().cloned()).collect();
        for op in self.ops.iter().filter(|op| !may_skip(op)) {
            lines.extend(op.skips.iter().map(|(case, reason)| format!("{case} ({}) was skipped: {reason}", op.tier)));
        }
        lines
    }

    fn tiers(&self) -> Vec<&str> {
        let mut tiers: Vec<&str> = self.ops.iter().map(|op| op.tier.as_str()).collect();
        tiers.sort_unstable();
        tiers.dedup();
        tiers
    }
}

struct Sums {
    passed: usize,
    failed: usize,
    skipped: usize,
    faulty: usize,
}

impl Sums {
    fn of<'a>(ops: impl Iterator<Item = &'a OpReport>) -> Sums {
        ops.fold(Sums { passed: 0, failed: 0, skipped: 0, faulty: 0 }, |sums, op| Sums {
            passed: sums.passed + op.passed,
            failed: sums.failed + op.failures.len(),
            skipped: sums.skipped + op.skips.len(),
            faulty: sums.faulty + op.faults.len(),
        })
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)?;
        if self.faulty > 0 { write!(f, ", {} with a faulty reference", self.faulty) } else { Ok(()) }
    }
}
