//! Plans that are kept for the next call: to make one costs more than to transform a line.
//!
//! They are shared by all threads. Short lines have many plans. A plan of a long line is as large as the line, so only
//! a few of these are kept.

use crate::lru::Lru;
use opfuse_fourier::{Element, Plan, Transform};
use std::sync::{Arc, Mutex, PoisonError};

/// The greatest length of a short line.
const SHORT: usize = 1 << 12;
/// How many plans of short lines are kept, and how many of long ones.
const KEPT: [usize; 2] = [256, 8];

/// Plans by transform and length.
type Kept<T> = Mutex<Lru<(Transform, usize), Arc<Plan<T>>>>;

/// The plans for one dtype: those of short lines, and those of long ones.
pub(super) struct Plans<T: Element>([Kept<T>; 2]);

impl<T: Element> Plans<T> {
    const fn new() -> Plans<T> {
        Plans([Mutex::new(Lru::new(KEPT[0])), Mutex::new(Lru::new(KEPT[1]))])
    }

    /// The plan of a transform of lines of this length.
    pub(super) fn get(&self, transform: Transform, length: usize) -> Arc<Plan<T>> {
        let plans = &self.0[usize::from(length > SHORT)];
        let lock = || plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = lock().get(&(transform, length)) {
            return plan.clone();
        }
        // Others need not wait. If two threads make the same plan, one is dropped.
        let plan = Arc::new(T::plan(transform, length));
        let gone = lock().put((transform, length), plan.clone());
        drop(gone);
        plan
    }
}

/// An element whose plans are kept.
pub(super) trait Planned: Element {
    /// Its plans.
    fn plans() -> &'static Plans<Self>;
}

impl Planned for f32 {
    fn plans() -> &'static Plans<f32> {
        static PLANS: Plans<f32> = Plans::new();
        &PLANS
    }
}

impl Planned for f64 {
    fn plans() -> &'static Plans<f64> {
        static PLANS: Plans<f64> = Plans::new();
        &PLANS
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Planned, SHORT};
    use opfuse_fourier::Transform;
    use std::sync::Arc;

    #[test]
    fn plans_are_kept_until_there_are_many() {
        let plans = <f32 as Planned>::plans();
        let first = plans.get(Transform::Forward, 1000);
        assert!(Arc::ptr_eq(&first, &plans.get(Transform::Forward, 1000)));
        assert!(!Arc::ptr_eq(&first, &plans.get(Transform::Backward, 1000)));
        let long = plans.get(Transform::ToReal, 2 * SHORT);
        (1..=KEPT[0]).for_each(|length| drop(plans.get(Transform::Forward, length)));
        assert_eq!(Arc::strong_count(&first), 1, "it was used longest ago");
        assert!(Arc::ptr_eq(&long, &plans.get(Transform::ToReal, 2 * SHORT)), "long lines have room of their own");
    }
}
