//! Attention, contractions, norms, borders and pixels.

use super::{Numbers, check, check_error, elements, tensor};
use opfuse::nn::{Attention, Border, Interpolation, einsum};
use opfuse::{DType, Result, Tensor};

#[test]
fn attention_is_a_mean_of_values() {
    let mut numbers = Numbers(1);
    let (rows, places, features) = (3, 4, 2);
    let (q, k, v) =
        (numbers.tensor(&[2, rows, features]), numbers.tensor(&[2, places, features]), numbers.tensor(&[2, places, 3]));
    let mask =
        Tensor::from_slice(&[true, false, true, true, false, false, false, false, true, true, false, true], &[3, 4]);
    let mask = mask.expect("twelve");
    let expected = |allowed: &dyn Fn(usize, usize) -> bool, scale: f64| -> Vec<f64> {
        let (q, k, v) = (elements(&q), elements(&k), elements(&v));
        let mut out = Vec::new();
        for batch in 0..2 {
            for row in 0..rows {
                let score = |place: usize| -> f64 {
                    let dot =
                        |f: usize| q[(batch * rows + row) * features + f] * k[(batch * places + place) * features + f];
                    if allowed(row, place) { ((0..features).map(dot).sum::<f64>() * scale).exp() } else { 0.0 }
                };
                let total: f64 = (0..places).map(score).sum();
                for value in 0..3 {
                    let part = |place: usize| score(place) * v[(batch * places + place) * 3 + value];
                    out.push(if total == 0.0 { 0.0 } else { (0..places).map(part).sum::<f64>() / total });
                }
            }
        }
        out
    };
    let root = 0.5f64.sqrt();
    let run = |options: &Attention<'_>| q.attention(&k, &v, options);
    check(run(&Attention::default()), &[2, 3, 3], &expected(&|_, _| true, root), "plain");
    let causal = Attention { is_causal: true, scale: Some(0.3), ..Default::default() };
    check(run(&causal), &[2, 3, 3], &expected(&|row, place| place <= row, 0.3), "causal");
    let masked = Attention { mask: Some(&mask), ..Default::default() };
    let allowed = mask.to_vec::<bool>().expect("bools");
    check(run(&masked), &[2, 3, 3], &expected(&|row, place| allowed[row * 4 + place], root), "masked");
    let added = mask.to_dtype(DType::F64).and_then(|mask| mask.log()).expect("memory");
    let added = Attention { mask: Some(&added), ..Default::default() };
    check(run(&added), &[2, 3, 3], &expected(&|row, place| allowed[row * 4 + place], root), "added");
    check_error(run(&Attention { is_causal: true, ..masked }), &["is_causal"]);
    check_error(q.attention(&v, &v, &Attention::default()), &["[2, 3, 2]", "[2, 4, 3]"]);
    // One head of keys for two of queries.
    let heads = |x: &Tensor| x.unsqueeze(0).expect("a dim");
    let one = |x: &Tensor| x.slice(0, 0, 1, 1).map(|x| heads(&x)).expect("there is one");
    let shared = Attention { shares_heads: true, ..Default::default() };
    let found = heads(&q).attention(&one(&k), &one(&v), &shared).expect("heads are repeated");
    let first = |x: &Tensor| x.slice(0, 0, 1, 1).and_then(|x| x.expand([2, -1, -1])).expect("it is repeated");
    let plain = q.attention(&first(&k), &first(&v), &Attention::default()).expect("shapes fit");
    check(Ok(found), &[1, 2, 3, 3], &elements(&plain), "shared heads");
}

#[test]
fn contractions_are_their_sums() {
    let mut numbers = Numbers(2);
    let (a, b) = (numbers.tensor(&[2, 3, 4]), numbers.tensor(&[2, 4, 5]));
    let (m, n) = (numbers.tensor(&[3, 4]), numbers.tensor(&[5, 4]));
    let square = numbers.tensor(&[3, 3]);
    let v = numbers.tensor(&[4]);
    type Case<'a> = (&'a str, &'a [&'a Tensor], Result<Tensor>);
    let cases: &[Case<'_>] = &[
        ("bij,bjk->bik", &[&a, &b], a.bmm(&b)),
        ("...ij,...jk", &[&a, &b], a.bmm(&b)),
        ("ij,kj->ik", &[&m, &n], n.t().and_then(|n| m.mm(&n))),
        ("ij,j", &[&m, &v], m.mv(&v)),
        ("ij->ji", &[&m], m.t()),
        ("ba", &[&m], m.t()),
        ("ij->", &[&m], m.sum_all()),
        ("ij->j", &[&m], m.sum(0, false)),
        ("ii", &[&square], square.diagonal(0, 0, 1).and_then(|d| d.sum_all())),
        ("ii->i", &[&square], square.diagonal(0, 0, 1)),
        ("i,j->ji", &[&v, &v], v.outer(&v)),
        ("i...->...", &[&a], a.sum(0, false)),
        (
            "ij, jk , lk -> il",
            &[&m, &b.select(0, 1).expect("two"), &n.t().expect("a matrix").slice(0, 0, 2, 1).expect("four")],
            {
                let last = n.t().and_then(|n| n.slice(0, 0, 2, 1)).and_then(|n| n.t()).expect("a matrix");
                b.select(0, 1).and_then(|b| m.mm(&b)).and_then(|mb| mb.mm(&last))
            },
        ),
        (
            "bij,bjk->ik",
            &[&a.slice(0, 0, 1, 1).expect("two"), &b],
            a.select(0, 0).and_then(|a| a.mm(&b.sum(0, false)?)),
        ),
    ];
    for (equation, tensors, expected) in cases {
        let expected = expected.as_ref().unwrap_or_else(|error| panic!("{equation}: {error}"));
        check(einsum(equation, tensors), expected.sizes(), &elements(expected), equation);
    }
    check_error(einsum("ij,jk->ik", &[&m, &n]), &["einsum", "4", "5"]);
    check_error(einsum("ij->ij", &[&m, &n]), &["1 operands", "2 tensors"]);
    check_error(einsum("ijk->k", &[&m]), &["ijk", "[3, 4]"]);
    check_error(einsum("ij->ii", &[&m]), &["twice"]);
    check_error(einsum("i1->i", &[&m]), &["'1'"]);
}

#[test]
fn norms_are_their_formulas() {
    let x = tensor(&[3.0, -4.0, 0.0, 0.0, 1.0, -2.0], &[3, 2]);
    let cases: &[(f64, [f64; 3])] = &[
        (0.0, [2.0, 0.0, 2.0]),
        (1.0, [7.0, 0.0, 3.0]),
        (2.0, [5.0, 0.0, 5f64.sqrt()]),
        (3.0, [91f64.cbrt(), 0.0, 9f64.cbrt()]),
        (0.5, [(3f64.sqrt() + 2.0).powi(2), 0.0, (1.0 + 2f64.sqrt()).powi(2)]),
        (-1.0, [1.0 / (1.0 / 3.0 + 0.25), 0.0, 1.0 / 1.5]),
        (f64::INFINITY, [4.0, 0.0, 2.0]),
        (f64::NEG_INFINITY, [3.0, 0.0, 1.0]),
    ];
    for (p, expected) in cases {
        check(x.norm(*p, 1, false), &[3], expected, &format!("p = {p}"));
    }
    check(x.norm(2, (), true), &[1, 1], &[30f64.sqrt()], "all");
    let y = tensor(&[4.0, 3.0], &[2]);
    check(x.cosine_similarity(&y, 1, 1e-8), &[3], &[0.0, 0.0, -2.0 / (5.0 * 5f64.sqrt())], "cosine");
    check_error(x.to_dtype(DType::I64).and_then(|x| x.norm(2, (), false)), &["i64"]);
}

#[test]
fn padding_modes_fill_borders() {
    let x = tensor(&[0.0, 1.0, 2.0, 3.0], &[1, 4]);
    let cases: &[(Border, [i64; 2], &[f64])] = &[
        (Border::Reflect, [3, 2], &[3.0, 2.0, 1.0, 0.0, 1.0, 2.0, 3.0, 2.0, 1.0]),
        (Border::Replicate, [2, 1], &[0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 3.0]),
        (Border::Circular, [1, 2], &[3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0]),
        (Border::Reflect, [-1, 2], &[1.0, 2.0, 3.0, 2.0, 1.0]),
        (Border::Replicate, [-2, 1], &[2.0, 3.0, 3.0]),
        (Border::Circular, [-1, 1], &[1.0, 2.0, 3.0, 1.0]),
    ];
    for (border, pads, expected) in cases {
        check(x.border_pad(pads, *border), &[1, expected.len()], expected, &format!("{border:?} {pads:?}"));
    }
    // Dims in front of the padded ones may be of any number.
    let image = tensor(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], &[2, 3]);
    check(image.select(0, 1).and_then(|x| x.border_pad([1, 0], Border::Reflect)), &[4], &[4.0, 3.0, 4.0, 5.0], "1d");
    let padded: &[f64] = &[0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0];
    check(image.border_pad([1, 0, 1, 0], Border::Replicate), &[3, 4], padded, "an image");
    for border in [Border::Reflect, Border::Replicate, Border::Circular] {
        let pads = [2, 1, 1, 1];
        let alone = image.border_pad(pads, border).and_then(|x| x.to_vec::<f64>()).expect("two dims");
        let plane = image.unsqueeze(0).and_then(|x| x.border_pad(pads, border));
        check(plane, &[1, 4, 6], &alone, "a plane");
        let several = image.expand([2, 1, 1, 2, 3]).and_then(|x| x.border_pad(pads, border));
        check(several, &[2, 1, 1, 4, 6], &alone.repeat(2), "five dims");
    }
    check_error(image.border_pad([1, 0, 1, 0, 1, 0], Border::Reflect), &["[2, 3]", "pair"]);
    check_error(image.border_pad([1, 0, 1], Border::Reflect), &["[1, 0, 1]", "pair"]);
    check(x.constant_pad_nd([1, -2, 0, 1], 7), &[2, 3], &[7.0, 0.0, 1.0, 7.0, 7.0, 7.0], "constant");
    check_error(x.border_pad([4, 0], Border::Reflect), &["[4, 0]", "[1, 4]"]);
    check_error(x.border_pad([5, 0], Border::Circular), &["[5, 0]"]);
    check_error(x.constant_pad_nd([-3, -4], 0), &["-3", "-4", "negative"]);
}

#[test]
fn pixels_are_shuffled_and_unfolded() {
    let x = Numbers(9).tensor(&[2, 8, 3, 2]);
    let shuffled = x.pixel_shuffle(2).expect("8 is 2 times 4");
    let data = elements(&x);
    let mut expected = Vec::new();
    for (n, c) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for row in 0..6 {
            for column in 0..4 {
                let channel = c * 4 + row % 2 * 2 + column % 2;
                expected.push(data[((n * 8 + channel) * 3 + row / 2) * 2 + column / 2]);
            }
        }
    }
    check(Ok(shuffled.clone()), &[2, 2, 6, 4], &expected, "shuffle");
    check(shuffled.pixel_unshuffle(2), x.sizes(), &data, "unshuffle");
    check_error(x.pixel_shuffle(3), &["8 channels"]);
    check_error(x.pixel_unshuffle(2), &["3 by 2"]);
}

#[test]
fn images_are_resized() {
    let x = tensor(&[0.0, 1.0, 4.0, 5.0], &[1, 1, 2, 2]);
    let row = |shares: [f64; 4], by: f64| shares.map(|share| share + by);
    let plane = |shares: [f64; 4]| shares.map(|down| row(shares, 4.0 * down)).concat();
    let cases = [
        (Interpolation::Nearest, plane([0.0, 0.0, 1.0, 1.0])),
        (Interpolation::Bilinear, plane([0.0, 0.25, 0.75, 1.0])),
        (Interpolation::BilinearCorners, plane([0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0])),
    ];
    for (interpolation, expected) in cases {
        check(x.resize2d([4, 4], interpolation), &[1, 1, 4, 4], &expected, &format!("{interpolation:?}"));
    }
    check(x.resize2d([1, 2], Interpolation::Nearest), &[1, 1, 1, 2], &[0.0, 1.0], "less");
    check_error(x.resize2d([0, 4], Interpolation::Nearest), &["[0, 4]"]);
    check_error(x.to_dtype(DType::I64).and_then(|x| x.resize2d([4, 4], Interpolation::Bilinear)), &["i64"]);
}
