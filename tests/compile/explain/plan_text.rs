//! Plans as text: what they say, and that a small change of a function changes little.

use super::functions::reports;
use crate::values::ramp;
use expect_test::expect_file;
use opfuse::{Result, Tensor, compile};

#[test]
fn plans_are_as_accepted() -> Result<()> {
    for (name, explain) in reports()? {
        expect_file![format!("plans/{name}.txt")].assert_eq(&explain.plan_text());
    }
    Ok(())
}

#[test]
fn a_plan_is_the_same_in_every_run() -> Result<()> {
    let texts = || -> Result<Vec<String>> { Ok(reports()?.iter().map(|(_, report)| report.plan_text()).collect()) };
    assert_eq!(texts()?, texts()?);
    Ok(())
}

#[test]
fn one_more_op_is_one_more_line() -> Result<()> {
    let x = ramp(&[6, 7]);
    let before = compile(|x: &Tensor| x.exp()?.mul(x)?.relu()?.sum([1], true)?.sqrt());
    let after = compile(|x: &Tensor| x.exp()?.neg()?.mul(x)?.relu()?.sum([1], true)?.sqrt());
    before.call(&x)?;
    after.call(&x)?;
    let (before, after) = (before.explain().plan_text(), after.explain().plan_text());
    let before: Vec<&str> = before.lines().collect();
    let new: Vec<&str> = after.lines().filter(|line| !before.contains(line)).collect();
    // Two lines of totals, the op, and the op that uses it.
    assert_eq!(new.len(), 4, "{new:#?}");
    assert_eq!(new[2].trim(), "neg1 = neg(exp1): f32[6,7]");
    Ok(())
}
