//! Errors of compiled calls: which line of the function recorded the call that failed.

use crate::unplaced::unplaced;
use opfuse::nn::CrossEntropy;
use opfuse::{DType, Error, Result, Tensor, compile, scope};

fn ids(of: &[i64]) -> Result<Tensor> {
    Tensor::from_slice(of, &[of.len()])
}

fn x() -> Result<Tensor> {
    Tensor::from_slice(&[0.5f32, -1.0, 2.0, 0.25, 3.0, 1.0], &[3, 2])
}

/// The error of a call, checked against the eager one: its kind and its text without the place, which is returned.
fn place_of(compiled: Result<Tensor>, eager: Result<Tensor>) -> String {
    let (compiled, eager) = (compiled.expect_err("it fails"), eager.expect_err("it fails"));
    assert_eq!(std::mem::discriminant(&compiled), std::mem::discriminant(&eager));
    assert_eq!(unplaced(&compiled), eager.to_string());
    place(&compiled)
}

/// The place that an error has.
fn place(error: &Error) -> String {
    let text = error.to_string();
    let (_, place) = text.rsplit_once(" (recorded ").unwrap_or_else(|| panic!("no place: {text}"));
    place.strip_suffix(')').expect("it closes").into()
}

/// The place of a call of a method in a line of this file.
fn at(line: u32, method: &str) -> String {
    let text = include_str!("error_places.rs").lines().nth(line as usize - 1).expect("the file has the line");
    let column = text.find(method).unwrap_or_else(|| panic!("{method} is not in {text}")) + 1;
    format!("at {}:{line}:{column}", file!())
}

#[test]
fn an_index_out_of_range_has_a_line() -> Result<()> {
    let line = line!() + 1;
    let f = |x: &Tensor, ids: &Tensor| x.exp()?.index_select(0, ids)?.mul(2.0);
    let compiled = compile(f);
    compiled.call((&x()?, &ids(&[2, 0])?))?;
    let bad = ids(&[0, 3])?;
    let place = place_of(compiled.call((&x()?, &bad)), f(&x()?, &bad));
    assert_eq!(place, at(line, "index_select"));
    // The very first call, too.
    assert_eq!(place_of(compile(f).call((&x()?, &bad)), f(&x()?, &bad)), at(line, "index_select"));
    // And the next call works.
    assert_eq!(compiled.call((&x()?, &ids(&[1])?))?.sizes(), [1, 2]);
    Ok(())
}

#[test]
fn a_label_out_of_range_names_the_loss() -> Result<()> {
    let line = line!() + 1;
    let f = |x: &Tensor, labels: &Tensor| x.mul(2.0)?.cross_entropy(labels, &CrossEntropy::default());
    let compiled = compile(f);
    let (good, bad) = (ids(&[0, 1, 1])?, ids(&[0, 2, 1])?);
    compiled.call((&x()?, &good))?;
    let expected = format!("{}, as part of cross_entropy_loss", at(line, "cross_entropy"));
    // The eager call looks at all labels first, and says so in other words.
    let fails = |x: &Tensor| place(&compiled.call((x, &bad)).expect_err("it fails"));
    assert_eq!(fails(&x()?), expected);
    // Where gradients flow, the program is the forward half of a larger graph.
    let leaf = x()?;
    leaf.set_requires_grad(true)?;
    compiled.call((&leaf, &good))?.backward()?;
    assert_eq!(fails(&leaf), expected);
    compiled.call((&leaf, &good))?.backward()
}

#[test]
fn a_division_by_zero_has_a_line_and_a_named_part() -> Result<()> {
    let line = line!() + 1;
    let f = |x: &Tensor, y: &Tensor| scope("mean", || x.add(1)?.floor_divide(y));
    let compiled = compile(f);
    let zero = ids(&[1, 0])?;
    compiled.call((&ids(&[7, 8])?, &ids(&[2, 3])?))?;
    let place = place_of(compiled.call((&ids(&[7, 8])?, &zero)), f(&ids(&[7, 8])?, &zero));
    assert!(place.starts_with(&format!("{} in mean", at(line, "floor_divide"))), "{place}");
    Ok(())
}

#[test]
fn the_first_of_two_errors_counts() -> Result<()> {
    let line = line!() + 2;
    let f = |x: &Tensor, a: &Tensor, b: &Tensor| {
        let one = x.index_select(0, a)?;
        one.add(&x.index_select(0, b)?)
    };
    let compiled = compile(f);
    let (good, bad) = (ids(&[0, 1])?, ids(&[5, 1])?);
    compiled.call((&x()?, &good, &good))?;
    let check = |a: &Tensor, b: &Tensor| Ok(place_of(compiled.call((&x()?, a, b)), f(&x()?, a, b)));
    assert_eq!(check(&bad, &good)?, at(line, "index_select"));
    assert_eq!(check(&good, &bad)?, at(line + 1, "index_select"));
    assert_eq!(check(&bad, &ids(&[7, 7])?)?, at(line, "index_select"));
    Ok(())
}

#[test]
fn functions_with_effects_fail_where_eager_ones_do() -> Result<()> {
    let line = line!() + 3;
    let f = |x: &Tensor, state: &Tensor, ids: &Tensor| {
        state.add_(1.0)?;
        let y = x.index_select(0, ids)?;
        state.mul_(3.0)?;
        y.add(state)
    };
    let compiled = compile(f);
    let (state, twin) = (Tensor::zeros(&[2, 2], DType::F32)?, Tensor::zeros(&[2, 2], DType::F32)?);
    let (good, bad) = (ids(&[0, 1])?, ids(&[5, 1])?);
    compiled.call((&x()?, &state, &good))?;
    f(&x()?, &twin, &good)?;
    assert_eq!(place_of(compiled.call((&x()?, &state, &bad)), f(&x()?, &twin, &bad)), at(line, "index_select"));
    assert_eq!(state.to_vec::<f32>()?, twin.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn segments_know_their_lines() -> Result<()> {
    let line = line!() + 3;
    let f = |x: &Tensor, ids: &Tensor| {
        let scale = x.sum_all()?.item::<f32>()?;
        x.index_select(0, ids)?.mul(scale)
    };
    let compiled = compile(f);
    compiled.call((&x()?, &ids(&[0, 1])?))?;
    let bad = ids(&[0, 9])?;
    for _ in 0..2 {
        assert_eq!(place_of(compiled.call((&x()?, &bad)), f(&x()?, &bad)), at(line, "index_select"));
    }
    assert!(compiled.counts().deferred > 0);
    Ok(())
}

#[test]
fn a_backward_pass_stands_where_it_is_called() -> Result<()> {
    let line = line!() + 5;
    let step = |w: &Tensor| -> Result<Tensor> {
        let w = w.copy()?;
        w.set_requires_grad(true)?;
        let loss = w.square()?.sum_all()?;
        loss.backward()?;
        w.grad().ok_or_else(|| Error::argument("step", "w was used"))
    };
    let compiled = compile(step);
    let got = compiled.call(&x()?)?;
    assert_eq!(got.to_vec::<f32>()?, step(&x()?)?.to_vec::<f32>()?);
    let report = compiled.explain();
    let lines: Vec<u32> = report.nodes.iter().filter_map(|node| node.place.as_ref()).map(|place| place.line).collect();
    assert!(report.nodes.iter().filter_map(|node| node.place.as_ref()).all(|place| place.file == file!()), "{report}");
    assert!(lines.contains(&line), "{lines:?}");
    Ok(())
}
