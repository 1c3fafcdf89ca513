//! Limits on kernels and bytes, for tests: [`assert_fused!`](crate::assert_fused).

use super::{Explain, counted};
use std::fmt::Write;

/// A limit that a test sets for a compiled function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Exactly this many kernels run.
    Kernels(usize),
    /// At most this many kernels run.
    KernelsAtMost(usize),
    /// The kernels move at most this many bytes.
    BytesAtMost(usize),
}

impl Limit {
    fn complaint(self, explain: &Explain) -> Option<String> {
        let (kernels, bytes) = (explain.kernels_after, explain.bytes_after);
        match self {
            Limit::Kernels(n) if kernels != n => Some(format!("it runs {}, not {n}", counted(kernels, "kernel"))),
            Limit::KernelsAtMost(n) if kernels > n => {
                Some(format!("it runs {}, more than {n}", counted(kernels, "kernel")))
            }
            Limit::BytesAtMost(n) if bytes > n => Some(format!("it moves {bytes} bytes, more than {n}")),
            Limit::Kernels(_) | Limit::KernelsAtMost(_) | Limit::BytesAtMost(_) => None,
        }
    }
}

impl Explain {
    /// Checks limits, like [`assert_fused!`](crate::assert_fused). A function that runs eagerly fails every limit.
    ///
    /// # Errors
    /// A message with the violated limits, the plan, and the reasons of the edges that were not fused.
    pub fn check(&self, limits: &[Limit]) -> Result<(), String> {
        let mut complaints: Vec<String> = limits.iter().filter_map(|limit| limit.complaint(self)).collect();
        if self.eager.is_some() {
            complaints = vec!["the function is not compiled".into()];
        }
        if complaints.is_empty() {
            return Ok(());
        }
        let mut message = complaints.join("; ");
        let _ = match &self.eager {
            Some(reason) => write!(message, ": {reason}\nhint: {}", reason.hint()),
            None => {
                let plan = self.plan_text();
                let _ = write!(message, "\n\n{plan}\n");
                let reports = self.segments.iter().map(|segment| &*segment.report);
                reports.chain([self]).try_for_each(|report| report.kept_text(&mut message))
            }
        };
        Err(message)
    }
}

/// Asserts that a compiled function, which must have been called, runs in a number of kernels or moves at most a number
/// of bytes.
///
/// Forms: `kernels = n`, `kernels <= n`, `bytes <= n`, and several of them separated by commas. The panic message
/// contains the plan and the reasons of the edges that were not fused.
///
/// ```
/// # fn main() -> opfuse::Result<()> {
/// use opfuse::{Tensor, assert_fused, compile};
/// let f = compile(|x: &Tensor| x.exp()?.mul(2.0)?.relu());
/// f.call(&Tensor::from_slice(&[1.0f32, -1.0], &[2])?)?;
/// assert_fused!(f, kernels = 1);
/// assert_fused!(f, kernels <= 1, bytes <= 16);
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! assert_fused {
    ($compiled:expr, $($what:ident $comparison:tt $limit:expr),+ $(,)?) => {
        if let Err(message) = $compiled.explain().check(&[$($crate::assert_fused!(@limit $what $comparison $limit)),+]) {
            panic!("assertion failed: {message}");
        }
    };
    (@limit kernels = $limit:expr) => { $crate::compile::explain::Limit::Kernels($limit) };
    (@limit kernels <= $limit:expr) => { $crate::compile::explain::Limit::KernelsAtMost($limit) };
    (@limit bytes <= $limit:expr) => { $crate::compile::explain::Limit::BytesAtMost($limit) };
}
