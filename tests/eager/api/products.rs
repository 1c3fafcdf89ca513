//! Matrix products.

use super::*;

#[test]
fn products_of_every_rank_are_right() {
    let (v2, v3) = (tensor(&[1f32, 2.], &[2]), tensor(&[1f32, 2., 3.], &[3]));
    let (m23, m32) = (counting(&[2, 3]), counting(&[3, 2]));
    check(v3.matmul(&v3), &[], &[14f32]);
    check(m23.matmul(&v3), &[2], &[8f32, 26.]);
    check(v2.matmul(&m23), &[3], &[6f32, 9., 12.]);
    check(m23.matmul(&m32), &[2, 2], &[10f32, 13., 28., 40.]);
    check(m23.mm(&m32), &[2, 2], &[10f32, 13., 28., 40.]);
    check(m23.mv(&v3), &[2], &[8f32, 26.]);
    check(v3.dot(&v3), &[], &[14f32]);
    check(v2.outer(&v3), &[2, 3], &[1f32, 2., 3., 2., 4., 6.]);
    check(v2.addmm(&m23, &m32), &[2, 2], &[11f32, 15., 29., 42.]);
    check(v2.addmm_scaled(&m23, &m32, 2, 0.5), &[2, 2], &[7f32, 10.5, 16., 24.]);
    let (b1, b2) = (counting(&[1, 2, 3]), counting(&[1, 3, 2]));
    check(b1.bmm(&b2), &[1, 2, 2], &[10f32, 13., 28., 40.]);
    check(v2.baddbmm(&b1, &b2), &[1, 2, 2], &[11f32, 15., 29., 42.]);
    check(tensor(&[2i64, 3], &[1, 2]).matmul(&tensor(&[5i64, 7], &[2, 1])), &[1, 1], &[31i64]);
}

#[test]
fn sums_of_halves_may_stay_in_f32() {
    let thirds = tensor(&[1f32 / 3., 2. / 3., 1., 4. / 3.], &[2, 2]);
    for dtype in [DType::F16, DType::BF16] {
        let x = thirds.to_dtype(dtype).expect("they are numbers");
        let wide = x.to_dtype(DType::F32).expect("so are these");
        let expected: Vec<f32> = wide.mm(&wide).and_then(|sums| sums.to_vec()).expect("a product");
        check(x.mm_dtype(&x, DType::F32), &[2, 2], &expected);
        let rounded = x.mm_dtype(&x, dtype).and_then(|sums| sums.to_dtype(DType::F32)?.to_vec::<f32>());
        let product = x.mm(&x).and_then(|sums| sums.to_dtype(DType::F32)?.to_vec::<f32>());
        assert_eq!(rounded, product);
        assert_ne!(rounded, Ok(expected.clone()), "a rounding changes them");
        let batch = x.unsqueeze(0).expect("a view");
        check(batch.bmm_dtype(&batch, DType::F32), &[1, 2, 2], &expected);
        check_error(x.mm_dtype(&x, DType::F64), &["mm.dtype", "f64", dtype.name()]);
    }
    // Gradients are products in f32 as well, rounded once.
    let [a, b] = [
        thirds.to_dtype(DType::BF16).expect("numbers"),
        thirds.t().and_then(|x| x.to_dtype(DType::BF16)).expect("numbers"),
    ];
    let [wide_a, wide_b] = [&a, &b].map(|x| x.to_dtype(DType::F32).expect("numbers"));
    for x in [&a, &b, &wide_a, &wide_b] {
        x.set_requires_grad(true).expect("floats have gradients");
    }
    let backward =
        |sums: Result<Tensor>| sums.and_then(|sums| sums.mul(&thirds)?.sum_all()?.backward()).expect("it runs");
    backward(a.mm_dtype(&b, DType::F32));
    backward(wide_a.mm(&wide_b));
    for (narrow, wide) in [(&a, &wide_a), (&b, &wide_b)] {
        let [narrow, wide] = [narrow, wide].map(|x| x.grad().expect("it got one"));
        assert_eq!(narrow.dtype(), DType::BF16);
        let expected = wide.to_dtype(DType::BF16).and_then(|x| x.to_dtype(DType::F32)?.to_vec::<f32>());
        assert_eq!(narrow.to_dtype(DType::F32).and_then(|x| x.to_vec::<f32>()), expected);
    }
    let expected: Vec<f32> = thirds.mm(&thirds).and_then(|sums| sums.to_vec()).expect("a product");
    check(thirds.mm_dtype(&thirds, DType::F32), &[2, 2], &expected);
    check_error(thirds.mm_dtype(&thirds, DType::BF16), &["mm.dtype", "bf16", "f32"]);
    check_error(thirds.bmm_dtype(&thirds, DType::F32), &["bmm.dtype", "both must be 3-d"]);
}

/// The definition of matmul, one element at a time.
fn matmul_by_definition(a: &Tensor, b: &Tensor, out: &[usize]) -> Vec<f32> {
    let (rank, k) = (out.len() + 2, *a.sizes().last().expect("a dim"));
    let column = b.dim() == 1;
    let at = |x: &Tensor, lead: &[usize], last: &[usize]| -> f32 {
        // Batches are aligned at the last dims; a batch of size 1 is broadcast.
        let batch = x.dim() - last.len();
        let lead = &lead[lead.len() - batch..];
        let index =
            lead.iter().zip(x.sizes()).map(|(&i, &size)| if size == 1 { 0 } else { i }).chain(last.iter().copied());
        let index: Vec<usize> = index.collect();
        let position = index.iter().zip(x.sizes()).fold(0, |position, (i, size)| position * size + i);
        x.to_vec::<f32>().expect("data")[position]
    };
    let mut result = Vec::new();
    for position in 0..out.iter().product::<usize>() {
        let mut index = Vec::with_capacity(rank);
        let mut rest = position;
        for &size in out.iter().rev() {
            index.insert(0, rest % size);
            rest /= size;
        }
        let n = if column { None } else { index.pop() };
        let m = if a.dim() == 1 { None } else { index.pop() };
        let product = |k: usize| {
            let left: Vec<usize> = m.into_iter().chain([k]).collect();
            let right: Vec<usize> = [k].into_iter().chain(n).collect();
            at(a, &index, &left) * at(b, &index, &right)
        };
        result.push((0..k).map(product).sum());
    }
    result
}

#[test]
fn matmul_broadcasts_batches() {
    let cases: &[(&[usize], &[usize], &[usize])] = &[
        (&[2, 3, 4], &[4, 5], &[2, 3, 5]),
        (&[2, 3, 4], &[4], &[2, 3]),
        (&[2, 2, 3, 4], &[4, 2], &[2, 2, 3, 2]),
        (&[4], &[3, 4, 2], &[3, 2]),
        (&[2, 4], &[3, 4, 5], &[3, 2, 5]),
        (&[2, 3, 4], &[2, 4, 5], &[2, 3, 5]),
        (&[2, 1, 3, 4], &[4, 4, 2], &[2, 4, 3, 2]),
        (&[1, 3, 4], &[5, 4, 2], &[5, 3, 2]),
        (&[3, 1, 1, 2], &[2, 2, 1], &[3, 2, 1, 1]),
    ];
    for &(a, b, out) in cases {
        let (left, right) = (counting(a), counting(b));
        let expected = matmul_by_definition(&left, &right, out);
        check(left.matmul(&right), out, &expected);
        // The same numbers in another layout.
        let backwards = |x: &Tensor| {
            let dims: Vec<i64> = (0..x.dim() as i64).rev().collect();
            x.permute(&dims).and_then(|x| x.contiguous()).and_then(|x| x.permute(&dims)).expect("legal")
        };
        check(backwards(&left).matmul(&right), out, &expected);
        check(left.matmul(&backwards(&right)), out, &expected);
    }
    check(counting(&[2, 0]).matmul(&counting(&[0, 3])), &[2, 3], &[0f32; 6]);
    check(counting(&[2, 0, 4]).matmul(&counting(&[4, 3])), &[2, 0, 3], &[] as &[f32]);
    check(counting(&[2, 3, 0]).matmul(&counting(&[0, 1])), &[2, 3, 1], &[0f32; 6]);
    check(counting(&[0, 2, 3]).matmul(&counting(&[1, 3, 4])), &[0, 2, 4], &[] as &[f32]);
}

#[test]
fn linear_layers_are_products_with_a_bias() {
    let weight = tensor(&[1f32, 0., 1., 0., 1., 0.], &[2, 3]);
    let bias = tensor(&[100f32, 200.], &[2]);
    check(counting(&[3]).linear(&weight, None), &[2], &[2f32, 1.]);
    check(counting(&[2, 3]).linear(&weight, Some(&bias)), &[2, 2], &[102f32, 201., 108., 204.]);
    check(counting(&[2, 1, 3]).linear(&weight, Some(&bias)), &[2, 1, 2], &[102f32, 201., 108., 204.]);
    check_error(counting(&[2, 2]).linear(&weight, None), &["linear", "[2, 2]", "[2, 3]"]);
    check_error(counting(&[2, 3]).linear(&weight, Some(&counting(&[1]))), &["linear", "[1]"]);
    check_error(counting(&[]).linear(&weight, None), &["linear"]);
}

#[test]
fn illegal_products_are_refused() {
    let f64s = Tensor::ones(&[3, 2], DType::F64).expect("memory is there");
    check_error(counting(&[2, 3]).matmul(&counting(&[2, 3])), &["matmul", "[2, 3]", "inner sizes 3 and 2"]);
    check_error(counting(&[]).matmul(&counting(&[2])), &["matmul", "at least one dim"]);
    check_error(counting(&[2, 3]).matmul(&f64s), &["f32", "f64"]);
    check_error(counting(&[3]).mm(&counting(&[3, 1])), &["mm"]);
    check_error(counting(&[2, 2, 3]).bmm(&counting(&[1, 3, 2])), &["bmm", "[2, 2, 3]"]);
    check_error(counting(&[2, 2, 3]).matmul(&counting(&[3, 3, 2])), &["matmul", "(2)", "(3)"]);
    check_error(counting(&[3]).dot(&counting(&[2])), &["dot"]);
    check_error(counting(&[3, 3]).mv(&counting(&[3, 1])), &["mv"]);
    check_error(counting(&[3, 3]).outer(&counting(&[3])), &["outer"]);
    check_error(counting(&[3, 3]).addmm(&counting(&[2, 3]), &counting(&[3, 2])), &["addmm"]);
}
