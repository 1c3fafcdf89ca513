//! Limits on kernels and bytes, for users' tests: [`assert_fused!`](crate::assert_fused).

use super::{Explain, counted};
use std::fmt::Write;

/// What a test asks of a compiled function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Exactly so many kernels run.
    Kernels(usize),
    /// At most so many kernels run.
    KernelsAtMost(usize),
    /// The kernels move at most so many bytes.
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
    /// Checks limits, as [`assert_fused!`](crate::assert_fused) does. A function that runs eagerly keeps none.
    ///
    /// # Errors
    /// A message with what does not hold, the plan, and the reasons that kept kernels apart.
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
                self.kept_text(&mut message)
            }
        };
        Err(message)
    }
}

/// Asserts that a compiled function, which must have been called, runs in so many kernels or moves at most so many bytes.
///
/// Forms: `kernels = n`, `kernels <= n`, `bytes <= n`, and several of them separated by commas. The message of a failure
/// is the plan and the reasons that kept kernels apart.
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
