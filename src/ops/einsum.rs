//! Einstein summation.
//!
//! Operands are contracted in pairs, from left to right unless a path says otherwise. A contraction is one batched
//! matrix product. Labels that both operands have are its batch dims if they are needed later, and are summed over if
//! not. A dim of size 1 broadcasts: its label is dropped. Where the equation gives both operands the same labels, as in
//! `ni,ni->n`, each matrix would be one number. Floats are multiplied and summed then: folds take vectors, and fuse.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::composite::Composite;
use crate::tensor::handle::Tensor;

static EINSUM: Composite = Composite::new("einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor");

/// Einstein summation: the sum of products that an equation names, such as `einsum("bij,bjk->bik", &[&a, &b])`. A label
/// that is missing in the result is summed over. A label that an operand has twice means its diagonal. `...` stands for
/// any number of dims. All tensors have the same dtype, which the result gets.
///
/// # Errors
/// If the equation does not fit the tensors, or if sizes of one label differ and none is 1.
#[track_caller]
pub fn einsum(equation: &str, tensors: &[&Tensor]) -> Result<Tensor> {
    let tensors: Vec<Tensor> = tensors.iter().map(|&tensor| tensor.clone()).collect();
    EINSUM.call((equation, &tensors[..], None::<&[i64]>))
}

const OP: &str = "einsum";

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library.composite(&EINSUM, einsum_of)?;
    Ok(())
}

/// The name of a dim: a letter of the equation, or a position in the ellipsis counted from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(std::cmp::Reverse<usize>),
    Letter(char),
}

/// A tensor whose dims have distinct names.
struct Labeled {
    tensor: Tensor,
    labels: Vec<Label>,
    /// All labels that the equation gives it, also those of dims that were dropped. What is computed how depends on
    /// them alone, so that a row of a batch has the bits that it has alone.
    given: Vec<Label>,
}

fn einsum_of(equation: &str, tensors: &[Tensor], path: Option<&[i64]>) -> Result<Tensor> {
    let (inputs, output) = parse(equation, tensors)?;
    let mut operands =
        inputs.iter().zip(tensors).map(|(labels, tensor)| Labeled::new(tensor, labels)).collect::<Result<Vec<_>>>()?;
    drop_broadcast(&mut operands, &output)?;
    let mut pairs = path.unwrap_or_default().chunks_exact(2);
    while operands.len() > 1 {
        let (a, b) = match pairs.next() {
            Some(&[a, b]) => take_pair(&mut operands, a, b)?,
            Some(_) | None => (operands.remove(0), operands.remove(0)),
        };
        let needed =
            |label: &Label| output.contains(label) || operands.iter().any(|other| other.labels.contains(label));
        let product = contract(a, b, needed)?;
        // With a path the product goes to the end of the list. Otherwise it meets the next operand.
        let place = if path.is_some() { operands.len() } else { 0 };
        operands.insert(place, product);
    }
    let last = operands.pop().ok_or_else(|| Error::argument(OP, "must provide at least one operand"))?;
    last.summed(|label| output.contains(label))?.in_order(&output)
}

fn invalid(equation: &str, what: impl std::fmt::Display) -> Error {
    Error::argument(OP, format!("{what} in equation {equation:?}"))
}

/// Parses an equation: the labels of every operand and of the result.
fn parse(equation: &str, tensors: &[Tensor]) -> Result<(Vec<Vec<Label>>, Vec<Label>)> {
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (text.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != tensors.len() {
        let what = format!("{} operands are named for {} tensors", terms.len(), tensors.len());
        return Err(invalid(equation, what));
    }
    let mut inputs = Vec::with_capacity(terms.len());
    for (term, tensor) in terms.iter().zip(tensors) {
        let letters = term.chars().filter(|&c| c != '.').count();
        let has_ellipsis = term.contains("...");
        let hidden = tensor.dim().checked_sub(letters).filter(|&hidden| hidden == 0 || has_ellipsis);
        let Some(hidden) = hidden else {
            let what = format!("the operand {term:?} names {letters} dims of shape {:?}", tensor.sizes());
            return Err(invalid(equation, what));
        };
        inputs.push(labels(equation, term, hidden)?);
    }
    let ellipsis = inputs
        .iter()
        .flatten()
        .filter(|label| matches!(label, Label::Ellipsis(_)))
        .max_by_key(|label| if let Label::Ellipsis(place) = label { place.0 } else { 0 });
    let hidden = ellipsis.map_or(0, |label| if let Label::Ellipsis(place) = label { place.0 + 1 } else { 0 });
    let output = match right {
        Some(right) => {
            let output = labels(equation, right, hidden)?;
            let is_bad = |(index, label): (usize, &Label)| {
                output[..index].contains(label) || !inputs.iter().any(|labels| labels.contains(label))
            };
            if output.iter().enumerate().any(is_bad) {
                return Err(invalid(equation, "the result names a dim twice, or one that no operand has"));
            }
            output
        }
        None => {
            let mut once: Vec<Label> = inputs.iter().flatten().copied().collect();
            once.sort_unstable();
            let is_single = |label: &Label| {
                matches!(label, Label::Ellipsis(_))
                    || inputs.iter().flatten().filter(|&other| other == label).count() == 1
            };
            once.retain(is_single);
            once.dedup();
            once
        }
    };
    Ok((inputs, output))
}

/// The labels of one term. Its ellipsis stands for `hidden` dims.
fn labels(equation: &str, term: &str, hidden: usize) -> Result<Vec<Label>> {
    let (before, after) = match term.split_once("...") {
        Some((before, after)) => (before, Some(after)),
        None => (term, None),
    };
    let letter = |c: char| match c {
        'a'..='z' | 'A'..='Z' => Ok(Label::Letter(c)),
        _ => Err(invalid(equation, format!("{c:?} is no label; labels are letters"))),
    };
    let mut out = before.chars().map(letter).collect::<Result<Vec<_>>>()?;
    if let Some(after) = after {
        out.extend((0..hidden).rev().map(|place| Label::Ellipsis(std::cmp::Reverse(place))));
        for c in after.chars() {
            out.push(letter(c)?);
        }
    }
    Ok(out)
}

/// Removes the two operands that a path names.
fn take_pair(operands: &mut Vec<Labeled>, a: i64, b: i64) -> Result<(Labeled, Labeled)> {
    let n = operands.len() as i64;
    if a == b || !(0..n).contains(&a) || !(0..n).contains(&b) {
        return Err(Error::argument(OP, format!("the path names operands {a} and {b} of {n}")));
    }
    let late = operands.remove(a.max(b) as usize);
    let early = operands.remove(a.min(b) as usize);
    Ok(if a < b { (early, late) } else { (late, early) })
}

/// Drops dims of size 1 whose label has another size in another operand. All other sizes must be equal.
fn drop_broadcast(operands: &mut [Labeled], output: &[Label]) -> Result<()> {
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    for operand in operands.iter() {
        for (&label, &size) in operand.labels.iter().zip(operand.tensor.sizes()) {
            match sizes.iter_mut().find(|(known, _)| *known == label) {
                Some((_, known)) if *known == 1 => *known = size,
                Some((_, known)) if size != 1 && size != *known => {
                    let what = format!("a label has sizes {known} and {size}, in shape {:?}", operand.tensor.sizes());
                    return Err(Error::shape(OP, what, "sizes of one label must be equal or 1"));
                }
                Some(_) => {}
                None => sizes.push((label, size)),
            }
        }
    }
    let _ = output;
    let size_of = |label: Label| sizes.iter().find(|(known, _)| *known == label).map_or(1, |(_, size)| *size);
    for operand in operands {
        for dim in (0..operand.labels.len()).rev() {
            if operand.tensor.sizes()[dim] == 1 && size_of(operand.labels[dim]) != 1 {
                operand.tensor = operand.tensor.squeeze(dim as i64)?;
                operand.labels.remove(dim);
            }
        }
    }
    Ok(())
}

impl Labeled {
    /// A repeated label means the diagonal.
    fn new(tensor: &Tensor, labels: &[Label]) -> Result<Labeled> {
        let mut out = Labeled { tensor: tensor.clone(), labels: labels.to_vec(), given: labels.to_vec() };
        let mut dim = 0;
        while dim < out.labels.len() {
            match out.labels[..dim].iter().position(|label| *label == out.labels[dim]) {
                Some(first) => {
                    let sizes = out.tensor.sizes();
                    if sizes[first] != sizes[dim] {
                        let what = format!("dims {first} and {dim} of shape {sizes:?} have one label");
                        return Err(Error::shape(OP, what, "their sizes must be equal"));
                    }
                    out.tensor = out.tensor.diagonal(0, first as i64, dim as i64)?;
                    let label = out.labels.remove(dim);
                    out.labels.remove(first);
                    out.labels.push(label);
                    dim = 0;
                }
                None => dim += 1,
            }
        }
        Ok(out)
    }

    /// Sums over the dims that are not needed.
    fn summed(mut self, needed: impl Fn(&Label) -> bool) -> Result<Labeled> {
        let dims: Vec<i64> =
            (0i64..).zip(&self.labels).filter(|(_, label)| !needed(label)).map(|(dim, _)| dim).collect();
        if dims.is_empty() {
            return Ok(self);
        }
        self.tensor = self.tensor.sum(dims, false)?;
        self.labels.retain(&needed);
        self.given.retain(&needed);
        Ok(self)
    }

    /// Permutes the dims to the order of `labels`, which contain all labels of the tensor. A missing dim gets size 1.
    fn in_order(&self, labels: &[Label]) -> Result<Tensor> {
        let place = |label: &Label| self.labels.iter().position(|own| own == label);
        let order: Vec<i64> = labels.iter().filter_map(place).map(|dim| dim as i64).collect();
        let mut tensor = if order.iter().copied().eq(0..order.len() as i64) {
            self.tensor.clone()
        } else {
            self.tensor.permute(order)?
        };
        for (dim, label) in (0i64..).zip(labels) {
            if place(label).is_none() {
                tensor = tensor.unsqueeze(dim)?;
            }
        }
        Ok(tensor)
    }

    fn sizes(&self, labels: &[Label]) -> Vec<usize> {
        let size = |label: &Label| {
            let dim = self.labels.iter().position(|own| own == label);
            dim.map_or(1, |dim| self.tensor.sizes()[dim])
        };
        labels.iter().map(size).collect()
    }
}

/// The product of two operands, summed over the dims that are not needed.
fn contract(a: Labeled, b: Labeled, needed: impl Fn(&Label) -> bool) -> Result<Labeled> {
    let a = a.summed(|label| b.labels.contains(label) || needed(label))?;
    let b = b.summed(|label| a.labels.contains(label) || needed(label))?;
    let both = a.labels.iter().filter(|&label| b.labels.contains(label)).copied();
    let (batch, inner): (Vec<Label>, Vec<Label>) = both.partition(|label| needed(label));
    let own = |side: &Labeled, other: &Labeled| -> Vec<Label> {
        side.labels.iter().filter(|&label| !other.labels.contains(label)).copied().collect()
    };
    let (rows, columns) = (own(&a, &b), own(&b, &a));
    let labels = [&batch[..], &rows, &columns].concat();
    let mut given = [&a.given[..], &b.given].concat();
    given.retain(&needed);
    if inner.is_empty() {
        return Ok(Labeled { tensor: a.in_order(&labels)?.mul(b.in_order(&labels)?)?, labels, given });
    }
    let is_within = |one: &Labeled, other: &Labeled| one.given.iter().all(|label| other.given.contains(label));
    // Narrow floats would be rounded before their sum, and sums of integers are wider.
    let is_wide = a.tensor.dtype() == b.tensor.dtype() && matches!(a.tensor.dtype(), DType::F32 | DType::F64);
    if is_wide && is_within(&a, &b) && is_within(&b, &a) {
        let order = [&labels[..], &inner].concat();
        let dims: Vec<i64> = (labels.len()..order.len()).map(|dim| dim as i64).collect();
        let tensor = a.in_order(&order)?.mul(b.in_order(&order)?)?.sum(dims, false)?;
        return Ok(Labeled { tensor, labels, given });
    }
    let sizes = [a.sizes(&batch), a.sizes(&rows), b.sizes(&columns)].concat();
    let count = |side: &Labeled, labels: &[Label]| -> usize { side.sizes(labels).iter().product() };
    let matrices = |side: &Labeled, order: [&[Label]; 3]| {
        let shape = order.map(|labels| count(side, labels));
        side.in_order(&order.concat())?.reshape(&shape[..])
    };
    let product = matrices(&a, [&batch, &rows, &inner])?.bmm(&matrices(&b, [&batch, &inner, &columns])?)?;
    Ok(Labeled { tensor: product.view(&sizes[..])?, labels, given })
}
