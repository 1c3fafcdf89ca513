//! Random kernels on random layouts, in every form.

use crate::check::Cases;
use crate::effort::seeds;
use crate::kernels::random::random_case;
use crate::pointwise::contiguous;
use crate::rows::forms;

#[test]
fn random_kernels_have_the_bits_of_the_interpreter() {
    let mut cases = Cases::default();
    for seed in seeds(60, 240) {
        let case = random_case(seed);
        if case.kernel.has_folds() {
            let forms = forms(case.geometry.n_inner());
            let form = forms[seed as usize % forms.len()];
            cases.add_as(format!("seed {seed}, {form:?}"), case, form);
        } else {
            let n = 1 + seed as usize * 7 % 300;
            cases.add(format!("seed {seed}, {n} in line"), contiguous(&case.kernel, n, seed));
            cases.add(format!("seed {seed}"), case);
        }
    }
    cases.check();
}
