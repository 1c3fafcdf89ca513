//! Every method that is named after an operator, with arguments. `w` wraps the tensors that it is called on.

use opfuse::dispatch::{Dispatcher, Value};
use opfuse::nn::{
    AvgPool, BatchNorm, ConvTranspose, Convolution, CrossEntropy, GridSample, MaxPool, Patches, Reduction, einsum,
};
use opfuse::{
    DType, Device, Generator, Indexing, Replacement, Result, Side, Tensor, column_stack, dstack, hstack, pad_sequence,
    vstack,
};

/// Turns a tensor into the one that the method is called on.
pub(super) type Wrap<'a> = &'a dyn Fn(Tensor) -> Tensor;

/// A method: its name, the operator that it must call first, and a call.
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) operator: &'static str,
    pub(super) call: fn(Wrap<'_>) -> Result<()>,
}

/// A 3 by 4 tensor of numbers between 0 and 1. Making it calls no operator.
pub(super) fn x() -> Tensor {
    let numbers: Vec<f32> = (1..13).map(|number| number as f32 / 13.0).collect();
    Tensor::from_slice(&numbers, &[3, 4]).expect("12 numbers")
}

pub(super) fn square() -> Tensor {
    Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).expect("4 numbers")
}

pub(super) fn line() -> Tensor {
    Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[4]).expect("4 numbers")
}

fn one() -> Tensor {
    Tensor::from_slice(&[1.0f32], &[]).expect("1 number")
}

pub(super) fn batch(sizes: &[usize]) -> Tensor {
    let numbers: Vec<f32> = (0..sizes.iter().product()).map(|number: usize| number as f32).collect();
    Tensor::from_slice(&numbers, sizes).expect("as many")
}

pub(super) fn pivots() -> Tensor {
    Tensor::from_slice(&[1i32, 2], &[2]).expect("a line")
}

pub(super) fn ints(numbers: &[i64]) -> Tensor {
    Tensor::from_slice(numbers, &[numbers.len()]).expect("a line")
}

pub(super) fn places() -> Tensor {
    Tensor::from_slice(&[0i64, 1, 2], &[3, 1]).expect("3 numbers")
}

pub(super) fn mask() -> Tensor {
    Tensor::from_slice(&[true, false, true, false], &[4]).expect("4 flags")
}

macro_rules! methods {
    ($w:ident; $($name:literal $(as $operator:literal)? => $call:expr;)*) => {
        &[$(Method {
            name: $name,
            operator: methods!(@ $name $($operator)?),
            call: |$w| $call.map(drop),
        }),*]
    };
    (@ $name:literal) => { $name };
    (@ $name:literal $operator:literal) => { $operator };
}

/// Methods with arguments, and methods that do not come from the op table.
pub(super) const OTHERS: &[Method] = methods! { w;
    "add" => w(x()).add(x());
    "add" => &w(x()) + &x();
    "add" => &w(x()) + 1.0;
    "add" => 1.0 + &w(x());
    "sub" => &w(x()) - &x();
    "sub" => 1.0 - &w(x());
    "mul" => Ok(w(x())) * &x();
    "div" => w(x()) / x();
    "remainder" => w(x()) % 2.0;
    "bitwise_and" => w(places()) & 1i64;
    "bitwise_or" => &w(places()) | 1i64;
    "bitwise_xor" => &w(places()) ^ 1i64;
    "neg" => -&w(x());
    "bitwise_not" => !&w(places());
    "add_" => w(x()).add_(x());
    "add_scaled" as "add" => w(x()).add_scaled(x(), 2);
    "add_scaled_" as "add_" => w(x()).add_scaled_(x(), 2);
    "sub" => w(x()).sub(1.0);
    "sub_" => w(x()).sub_(1.0);
    "sub_scaled" as "sub" => w(x()).sub_scaled(x(), 2);
    "sub_scaled_" as "sub_" => w(x()).sub_scaled_(x(), 2);
    "pow" => w(x()).pow(x());
    "pow" => w(x()).pow(2);
    "pow_" => w(x()).pow_(x());
    "pow_" => w(x()).pow_(2);
    "div_rounded" as "div" => w(x()).div_rounded(2.0, "floor");
    "div_rounded_" as "div_" => w(x()).div_rounded_(2.0, "floor");
    "lerp" => w(x()).lerp(&x(), 0.5);
    "lerp_" => w(x()).lerp_(&x(), 0.5);
    "addcmul" => w(x()).addcmul(&x(), &x(), 2);
    "addcmul_" => w(x()).addcmul_(&x(), &x(), 2);
    "addcdiv" => w(x()).addcdiv(&x(), &x(), 2);
    "addcdiv_" => w(x()).addcdiv_(&x(), &x(), 2);
    "igamma" => w(x()).igamma(&x());
    "igamma_" => w(x()).igamma_(&x());
    "igammac" => w(x()).igammac(&x());
    "igammac_" => w(x()).igammac_(&x());
    "polygamma" => w(x()).polygamma(1);
    "mvlgamma" => w(line()).mvlgamma(2);
    "dist" => w(x()).dist(&x(), 2);
    "pdist" => w(x()).pdist(2.0);
    "renorm" => w(x()).renorm(2, 0, 0.5);
    "heaviside" => w(x()).heaviside(&x());
    "heaviside_" => w(x()).heaviside_(&x());
    "logit" => w(x()).logit(None);
    "logit_" => w(x()).logit_(None);
    "round_decimals" as "round" => w(x()).round_decimals(1);
    "round_decimals_" as "round_" => w(x()).round_decimals_(1);
    "fill" => w(x()).fill(1);
    "fill_" => w(x()).fill_(1);
    "zero_" => w(x()).zero_();
    "copy_" => w(x()).copy_(&x());
    "where_" as "where" => w(mask()).where_(line(), 0.0);
    "clamp" => w(x()).clamp(Some(0.1.into()), None);
    "clamp_" => w(x()).clamp_(Some(0.1.into()), None);
    "clamp_min" => w(x()).clamp_min(0.1);
    "clamp_min_" => w(x()).clamp_min_(0.1);
    "clamp_max" => w(x()).clamp_max(0.1);
    "clamp_max_" => w(x()).clamp_max_(0.1);
    "float_power" => w(x()).float_power(2.0);
    "float_power_" => w(x()).float_power_(2.0);
    "nan_to_num" => w(x()).nan_to_num(None, None, None);
    "nan_to_num_" => w(x()).nan_to_num_(None, None, None);
    "leaky_relu" => w(x()).leaky_relu(0.1);
    "leaky_relu_" => w(x()).leaky_relu_(0.1);
    "elu" => w(x()).elu(1.0);
    "elu_" => w(x()).elu_(1.0);
    "celu" => w(x()).celu(1.0);
    "celu_" => w(x()).celu_(1.0);
    "prelu" => w(x()).prelu(&one());
    "gelu" => w(x()).gelu();
    "gelu_" => w(x()).gelu_();
    "gelu_tanh" as "gelu" => w(x()).gelu_tanh();
    "gelu_tanh_" as "gelu_" => w(x()).gelu_tanh_();
    "hardtanh" => w(x()).hardtanh(-1, 1);
    "hardtanh_" => w(x()).hardtanh_(-1, 1);
    "softplus" => w(x()).softplus(1, 20);
    "softplus_" => w(x()).softplus_(1, 20);
    "softshrink" => w(x()).softshrink(0.5);
    "softshrink_" => w(x()).softshrink_(0.5);
    "hardshrink" => w(x()).hardshrink(0.5);
    "hardshrink_" => w(x()).hardshrink_(0.5);
    "threshold" => w(x()).threshold(0.5, 1);
    "threshold_" => w(x()).threshold_(0.5, 1);
    "glu" => w(x()).glu(1);
    "softmax" => w(x()).softmax(1);
    "log_softmax" => w(x()).log_softmax(1);
    "dropout" => w(x()).dropout(0.5, true);
    "dropout" => w(x()).dropout(0.5, false);
    "dropout_" => w(x()).dropout_(0.5, true);
    "native_dropout" => w(x()).native_dropout(0.5, true);
    "native_dropout_backward" => w(x()).native_dropout_backward(&x(), 2.0);

    "diff" => w(x()).diff(1, 0);
    "narrow" => w(x()).narrow(0, 1, 1);
    "split" => w(x()).split(2, 0);
    "split_with_sizes" => w(x()).split_with_sizes([1, 2], 0);
    "chunk" => w(x()).chunk(2, 0);
    "tensor_split" => w(x()).tensor_split(2, 0);
    "tensor_split_at" as "tensor_split" => w(x()).tensor_split_at([1], 0);
    "tensor_split_by" as "tensor_split" => w(x()).tensor_split_by(&ints(&[1]), 0);
    "unbind" => w(x()).unbind(0);
    "view" => w(x()).view([12]);
    "permute" => w(x()).permute([1, 0]);
    "transpose" => w(x()).transpose(0, 1);
    "t" => w(x()).t();
    "expand" => w(x()).expand([2, 3, 4]);
    "squeeze" => w(x()).squeeze(());
    "unsqueeze" => w(x()).unsqueeze(0);
    "select" => w(x()).select(0, 1);
    "slice" => w(x()).slice(0, 0, 1, 1);
    "alias" => w(x()).alias();
    "detach" => w(x()).detach();
    "diagonal" => w(x()).diagonal(0, 0, 1);
    "unfold" => w(x()).unfold(0, 2, 1);
    "as_strided" => w(x()).as_strided([2], [1], 0);
    "view_dtype" as "view" => w(x()).view_dtype(DType::I32);
    "reshape" => w(x()).reshape(-1);
    "flatten" => w(x()).flatten(0, -1);
    "unflatten" => w(x()).unflatten(1, [2, 2]);
    "view_as" => w(x()).view_as(&x());
    "reshape_as" => w(x()).reshape_as(&x());
    "expand_as" => w(x()).expand_as(&x());
    "broadcast_to" => w(x()).broadcast_to([2, 3, 4]);
    "movedim" => w(x()).movedim(0, 1);
    "swapaxes" => w(x()).swapaxes(0, 1);
    "broadcast_tensors" => opfuse::broadcast_tensors(&[&w(x()), &one()]);
    "meshgrid" => opfuse::meshgrid(&[&w(line()), &line()], Indexing::Xy);
    "cat" => opfuse::cat(&[&w(x()), &x()], 0);
    "stack" => opfuse::stack(&[&w(x()), &x()], 0);
    "flip" => w(x()).flip(0);
    "repeat" => w(x()).repeat([2, 1]);
    "tile" => w(x()).tile(2);
    "roll" => w(x()).roll(1, 0);
    "rot90" => w(x()).rot90(1, [0, 1]);
    "repeat_interleave" => w(x()).repeat_interleave(2, 0);
    "repeat_interleave_each" as "repeat_interleave" => w(x()).repeat_interleave_each(&ints(&[1, 2, 1]), 0);
    "tril" => w(x()).tril(0);
    "triu" => w(x()).triu(0);
    "diag" => w(x()).diag(0);
    "diag_embed" => w(x()).diag_embed(0, -2, -1);
    "constant_pad_nd" => w(x()).constant_pad_nd([1, 1], 0);
    "border_pad" as "pad" => w(batch(&[1, 2, 4])).border_pad([1, 1], opfuse::nn::Border::Reflect);

    "sum" => w(x()).sum((), false);
    "sum" => w(x()).sum(0, true);
    "sum_all" as "sum" => w(x()).sum_all();
    "mean" => w(x()).mean((), false);
    "mean" => w(x()).mean(0, false);
    "mean_all" as "mean" => w(x()).mean_all();
    "prod" => w(x()).prod(0, false);
    "prod_all" as "prod" => w(x()).prod_all();
    "amax" => w(x()).amax(0, false);
    "amin" => w(x()).amin(0, false);
    "max_all" as "max" => w(x()).max_all();
    "min_all" as "min" => w(x()).min_all();
    "max_dim" as "max" => w(x()).max_dim(0, false);
    "min_dim" as "min" => w(x()).min_dim(0, false);
    "any" => w(x()).any((), false);
    "any" => w(x()).any(0, false);
    "all" => w(x()).all((), false);
    "all" => w(x()).all(0, false);
    "argmax" => w(x()).argmax(0, false);
    "argmin" => w(x()).argmin(0, false);
    "var" => w(x()).var((), 1, false);
    "std" => w(x()).std((), 1, false);
    "logsumexp" => w(x()).logsumexp(0, false);
    "count_nonzero" => w(x()).count_nonzero(0);
    "norm" => w(x()).norm(2, (), false);
    "cosine_similarity" => w(x()).cosine_similarity(&x(), 1, 1e-8);
    "cumsum" => w(x()).cumsum(0);
    "cumsum_" => w(x()).cumsum_(0);
    "cumprod" => w(x()).cumprod(0);
    "cumprod_" => w(x()).cumprod_(0);
    "cummax" => w(x()).cummax(0);
    "cummin" => w(x()).cummin(0);
    "logcumsumexp" => w(x()).logcumsumexp(0);
    "logcumsumexp_" => w(x()).logcumsumexp_(0);
    "i0" => w(x()).i0();
    "i0_" => w(x()).i0_();
    "gcd" => w(places()).gcd(&places());
    "gcd_" => w(places()).gcd_(&places());
    "lcm" => w(places()).lcm(&places());
    "lcm_" => w(places()).lcm_(&places());
    "nextafter" => w(x()).nextafter(&x());
    "nextafter_" => w(x()).nextafter_(&x());
    "frexp" => w(x()).frexp();
    "argsort" => w(x()).argsort(0, false);
    "sort" => w(x()).sort(0, false);
    "topk" => w(x()).topk(2, 0, true);
    "median" => w(x()).median();
    "nanmedian" => w(x()).nanmedian();
    "kthvalue" => w(x()).kthvalue(2, 0, true);
    "mode" => w(x()).mode(0, true);
    "quantile" => w(x()).quantile(0.5, 0, true);
    "nanquantile" => w(x()).nanquantile(0.5, 0, true);
    "searchsorted" => w(line()).searchsorted(&line(), Side::Left);
    "bucketize" => w(x()).bucketize(&line(), Side::Right);
    "isin" => w(x()).isin(&line());
    "unique" as "_unique2" => w(x()).unique();
    "unique_dim" => w(x()).unique_dim(0);
    "unique_consecutive" => w(x()).unique_consecutive(None);
    "bincount" => w(ints(&[1, 2])).bincount(None, 0);
    "histc" => w(x()).histc(3, 0, 1);
    "histogram" => w(x()).histogram(&line(), None);
    "segment_reduce" => w(line()).segment_reduce("sum", &ints(&[1, 3]), None);
    "kron" => w(x()).kron(&x());
    "cross" => w(batch(&[2, 3])).cross(&batch(&[2, 3]), 1);
    "linalg_cross" => w(batch(&[2, 3])).linalg_cross(&batch(&[2, 3]), 1);
    "trace" => w(x()).trace();
    "cdist" => w(x()).cdist(&x(), 1.0);
    "linalg_cholesky" => w(x()).linalg_cholesky(false);
    "linalg_cholesky_ex" => w(x()).linalg_cholesky_ex(false);
    "cholesky_solve" => w(square()).cholesky_solve(&square(), false);
    "cholesky_inverse" => w(x()).cholesky_inverse(false);
    "linalg_solve_triangular" => w(square()).linalg_solve_triangular(&square(), true);
    "linalg_solve" => w(square()).linalg_solve(&square());
    "linalg_solve_ex" => w(square()).linalg_solve_ex(&square());
    "linalg_inv" => w(x()).linalg_inv();
    "linalg_inv_ex" => w(x()).linalg_inv_ex();
    "linalg_det" => w(x()).linalg_det();
    "linalg_slogdet" => w(x()).linalg_slogdet();
    "logdet" => w(x()).logdet();
    "linalg_tensorinv" => w(x()).linalg_tensorinv(1);
    "linalg_tensorsolve" => w(square()).linalg_tensorsolve(&batch(&[2]));
    "linalg_lu_factor" => w(x()).linalg_lu_factor();
    "linalg_lu_factor_ex" => w(x()).linalg_lu_factor_ex();
    "linalg_lu" => w(x()).linalg_lu();
    "linalg_lu_solve" => w(square()).linalg_lu_solve(&pivots(), &square());
    "lu_unpack" => w(square()).lu_unpack(&pivots());
    "linalg_qr" => w(x()).linalg_qr();
    "linalg_eigh" => w(x()).linalg_eigh();
    "linalg_eigvalsh" => w(x()).linalg_eigvalsh();
    "linalg_eig" => w(x()).linalg_eig();
    "linalg_eigvals" => w(x()).linalg_eigvals();
    "linalg_svd" => w(x()).linalg_svd(false);
    "linalg_svdvals" => w(x()).linalg_svdvals();
    "linalg_lstsq" => w(x()).linalg_lstsq(&x(), None);
    "linalg_pinv" => w(x()).linalg_pinv(None);
    "linalg_matrix_rank" => w(x()).linalg_matrix_rank(None);
    "linalg_cond" => w(x()).linalg_cond(None);
    "matrix_exp" => w(x()).matrix_exp();
    "matrix_power" => w(x()).matrix_power(2);
    "cov" => w(x()).cov(1);
    "corrcoef" => w(x()).corrcoef();
    "nanmean" => w(x()).nanmean(0, true);
    "nansum" => w(x()).nansum(0, true);
    "multinomial" => w(line()).multinomial(2, Replacement::Without);
    "isclose" => w(x()).isclose(&x(), 1e-5, 1e-8);
    "allclose" => w(x()).allclose(&x(), 1e-5, 1e-8);
    "grid_sample" as "grid_sampler_2d" =>
        w(batch(&[1, 1, 2, 2])).grid_sample(&batch(&[1, 2, 2, 2]), &GridSample::default());
    "im2col" => w(batch(&[1, 1, 3, 3])).im2col(&Patches::default());
    "col2im" => w(batch(&[1, 1, 9])).col2im([3, 3], &Patches::default());
    "adaptive_max_pool1d" => w(batch(&[1, 1, 3])).adaptive_max_pool1d(2);
    "adaptive_max_pool2d" => w(batch(&[1, 1, 3, 3])).adaptive_max_pool2d([2, 2]);
    "adaptive_max_pool3d" => w(batch(&[1, 1, 3, 3, 3])).adaptive_max_pool3d([2, 2, 2]);

    "index_select" => w(x()).index_select(0, &ints(&[0]));
    "gather" => w(x()).gather(1, &places());
    "index" => w(x()).index(&[Some(ints(&[0]))]);
    "index_put" => w(x()).index_put(&[Some(ints(&[0]))], &one(), false);
    "index_put_" => w(x()).index_put_(&[Some(ints(&[0]))], &one(), false);
    "take" => w(x()).take(&ints(&[0]));
    "put" => w(x()).put(&ints(&[0]), &batch(&[1]), false);
    "put_" => w(x()).put_(&ints(&[0]), &batch(&[1]), false);
    "take_along_dim" => w(x()).take_along_dim(&places(), 1);
    "embedding" => opfuse::embedding(&w(x()), &ints(&[0]));
    "index_add" => w(x()).index_add(0, &ints(&[0]), &batch(&[1, 4]));
    "index_add_" => w(x()).index_add_(0, &ints(&[0]), &batch(&[1, 4]));
    "index_add_scaled" as "index_add" => w(x()).index_add_scaled(0, &ints(&[0]), &batch(&[1, 4]), 2);
    "index_add_scaled_" as "index_add_" => w(x()).index_add_scaled_(0, &ints(&[0]), &batch(&[1, 4]), 2);
    "index_copy" => w(x()).index_copy(0, &ints(&[0]), &batch(&[1, 4]));
    "index_copy_" => w(x()).index_copy_(0, &ints(&[0]), &batch(&[1, 4]));
    "index_fill" => w(x()).index_fill(0, &ints(&[0]), 1);
    "index_fill_" => w(x()).index_fill_(0, &ints(&[0]), 1);
    "index_fill_with" as "index_fill" => w(x()).index_fill_with(0, &ints(&[0]), &one());
    "index_fill_with_" as "index_fill_" => w(x()).index_fill_with_(0, &ints(&[0]), &one());
    "masked_fill" => w(x()).masked_fill(&mask(), 1);
    "masked_fill_" => w(x()).masked_fill_(&mask(), 1);
    "nonzero" => w(x()).nonzero();
    "masked_select" => w(x()).masked_select(&mask());
    "masked_scatter" => w(x()).masked_scatter(&mask(), &x());
    "masked_scatter_" => w(x()).masked_scatter_(&mask(), &x());
    "one_hot" => w(places()).one_hot(3);
    "scatter" => w(x()).scatter(1, &places(), &x());
    "scatter_" => w(x()).scatter_(1, &places(), &x());
    "scatter_value" as "scatter" => w(x()).scatter_value(1, &places(), 1);
    "scatter_value_" as "scatter_" => w(x()).scatter_value_(1, &places(), 1);
    "scatter_add" => w(x()).scatter_add(1, &places(), &x());
    "scatter_add_" => w(x()).scatter_add_(1, &places(), &x());
    "scatter_reduce" => w(x()).scatter_reduce(1, &places(), &x(), "sum", true);
    "scatter_reduce_" => w(x()).scatter_reduce_(1, &places(), &x(), "sum", true);
    "select_scatter" => w(x()).select_scatter(&line(), 0, 0);
    "slice_scatter" => w(x()).slice_scatter(&batch(&[1, 4]), 0, 0, 1, 1);
    "as_strided_scatter" => w(x()).as_strided_scatter(&batch(&[2, 2]), [2, 2], [4, 1], None);
    "diagonal_scatter" => w(x()).diagonal_scatter(&batch(&[3]), 0, 0, 1);

    "mm" => w(square()).mm(&square());
    "bmm" => w(batch(&[1, 2, 2])).bmm(&batch(&[1, 2, 2]));
    "mm_dtype" as "mm" => w(square()).mm_dtype(&square(), DType::F32);
    "bmm_dtype" as "bmm" => w(batch(&[1, 2, 2])).bmm_dtype(&batch(&[1, 2, 2]), DType::F32);
    "addmm" => w(square()).addmm(&square(), &square());
    "addmm_scaled" as "addmm" => w(square()).addmm_scaled(&square(), &square(), 2, 2);
    "baddbmm" => w(batch(&[1, 2, 2])).baddbmm(&batch(&[1, 2, 2]), &batch(&[1, 2, 2]));
    "baddbmm_scaled" as "baddbmm" => w(batch(&[1, 2, 2])).baddbmm_scaled(&batch(&[1, 2, 2]), &batch(&[1, 2, 2]), 2, 2);
    "dot" => w(line()).dot(&line());
    "mv" => w(x()).mv(&line());
    "outer" => w(line()).outer(&line());
    "matmul" => w(x()).matmul(&line());
    "linear" => w(x()).linear(&x(), None);
    "einsum" => einsum("i,i->", &[&w(line()), &line()]);
    "attention" as "scaled_dot_product_attention" => w(batch(&[1, 2, 2]))
        .attention(&batch(&[1, 2, 2]), &batch(&[1, 2, 2]), &opfuse::nn::Attention::default());
    "conv1d" => w(batch(&[1, 1, 4])).conv1d(&batch(&[1, 1, 2]), None, &Convolution::default());
    "conv2d" => w(batch(&[1, 1, 4, 4])).conv2d(&batch(&[1, 1, 2, 2]), None, &Convolution::default());
    "conv3d" => w(batch(&[1, 1, 2, 2, 2])).conv3d(&batch(&[1, 1, 2, 2, 2]), None, &Convolution::default());
    "conv_transpose1d" => w(batch(&[1, 1, 4])).conv_transpose1d(&batch(&[1, 1, 2]), None, &ConvTranspose::default());
    "conv_transpose2d" =>
        w(batch(&[1, 1, 4, 4])).conv_transpose2d(&batch(&[1, 1, 2, 2]), None, &ConvTranspose::default());
    "conv_transpose3d" =>
        w(batch(&[1, 1, 2, 2, 2])).conv_transpose3d(&batch(&[1, 1, 2, 2, 2]), None, &ConvTranspose::default());
    "max_pool1d" => w(batch(&[1, 1, 4])).max_pool1d(2, &MaxPool::default());
    "max_pool2d" => w(batch(&[1, 1, 4, 4])).max_pool2d(2, &MaxPool::default());
    "max_pool2d_with_indices" => w(batch(&[1, 1, 4, 4])).max_pool2d_with_indices(2, &MaxPool::default());
    "max_pool3d" => w(batch(&[1, 1, 2, 2, 2])).max_pool3d(2, &MaxPool::default());
    "max_pool3d_with_indices" => w(batch(&[1, 1, 2, 2, 2])).max_pool3d_with_indices(2, &MaxPool::default());
    "avg_pool1d" => w(batch(&[1, 1, 4])).avg_pool1d(2, &AvgPool::default());
    "avg_pool2d" => w(batch(&[1, 1, 4, 4])).avg_pool2d(2, &AvgPool::default());
    "avg_pool3d" => w(batch(&[1, 1, 2, 2, 2])).avg_pool3d(2, &AvgPool::default());
    "adaptive_avg_pool1d" => w(batch(&[1, 1, 4])).adaptive_avg_pool1d(2);
    "adaptive_avg_pool2d" => w(batch(&[1, 1, 4, 4])).adaptive_avg_pool2d([2, 2]);
    "adaptive_avg_pool3d" => w(batch(&[1, 1, 2, 4, 4])).adaptive_avg_pool3d([2, 2, 2]);
    "batch_norm" => w(batch(&[2, 2])).batch_norm(&BatchNorm { training: true, ..BatchNorm::default() });
    "instance_norm" => w(batch(&[2, 2, 2])).instance_norm(&BatchNorm { training: true, ..BatchNorm::default() });
    "layer_norm" => w(x()).layer_norm(4, None, None, 1e-5);
    "group_norm" => w(x()).group_norm(2, None, None, 1e-5);
    "rms_norm" => w(x()).rms_norm(4, None, None);
    "resize2d" as "upsample_nearest2d" =>
        w(batch(&[1, 1, 2, 2])).resize2d([4, 4], opfuse::nn::Interpolation::Nearest);
    "pixel_shuffle" => w(batch(&[1, 4, 2, 2])).pixel_shuffle(2);
    "pixel_unshuffle" => w(batch(&[1, 1, 2, 2])).pixel_unshuffle(2);
    "mse_loss" => w(x()).mse_loss(&x(), Reduction::Mean);
    "l1_loss" => w(x()).l1_loss(&x(), Reduction::Mean);
    "smooth_l1_loss" => w(x()).smooth_l1_loss(&x(), Reduction::Mean, 1.0);
    "huber_loss" => w(x()).huber_loss(&x(), Reduction::Mean, 1.0);
    "binary_cross_entropy" => w(x()).binary_cross_entropy(&x(), None, Reduction::Mean);
    "binary_cross_entropy_with_logits" => w(x()).binary_cross_entropy_with_logits(&x(), None, None, Reduction::Mean);
    "kl_div" => w(x()).kl_div(&x(), Reduction::Mean, false);
    "nll_loss" as "nll_loss_nd" => w(x()).nll_loss(&ints(&[0, 1, 2]), &CrossEntropy::default());
    "cross_entropy" as "cross_entropy_loss" => w(x()).cross_entropy(&ints(&[0, 1, 2]), &CrossEntropy::default());

    "to_dtype" as "to" => w(x()).to_dtype(DType::F64);
    "to_dtype" as "to" => w(x()).to_dtype(DType::F32);
    "to_device" as "to" => w(x()).to_device(Device::META);
    "to_device" as "to" => w(x()).to_device(Device::CPU);
    "contiguous" => w(x()).contiguous();
    "copy" as "clone" => w(x()).copy();
    "item" => w(one()).item::<f32>();
    "to_scalar" as "item" => w(one()).to_scalar();
    "to_vec" as "_to_copy" => w(x()).to_vec::<f32>();
    "to_vec2" as "_to_copy" => w(x()).to_vec2::<f32>();
    "to_vec3" as "_to_copy" => w(batch(&[1, 1, 1])).to_vec3::<f32>();
    "item" => f32::try_from(w(one()));
    "to_vec" as "_to_copy" => Vec::<f32>::try_from(w(x()));
    "view_as_complex" => w(square()).view_as_complex();
    "view_as_real" => w(square()).view_as_real();
    "real" => w(x()).real();
    "imag" => w(square()).imag();
    "conj" => w(x()).conj();
    "angle" => w(x()).angle();
    "fft" as "fft_fft" => w(x()).fft(None, 0);
    "ifft" as "fft_ifft" => w(x()).ifft(None, 0);
    "rfft" as "fft_rfft" => w(x()).rfft(None, 0);
    "irfft" as "fft_irfft" => w(x()).irfft(None, 0);
    "fftn" as "fft_fftn" => w(x()).fftn(());
    "ifftn" as "fft_ifftn" => w(x()).ifftn(());
    "rfftn" as "fft_rfftn" => w(x()).rfftn(());
    "irfftn" as "fft_irfftn" => w(x()).irfftn(());
    "fftshift" as "fft_fftshift" => w(x()).fftshift(());
    "ifftshift" as "fft_ifftshift" => w(x()).ifftshift(());
    "stft" => w(line()).stft(2, 1, None);
    "istft" => w(square()).istft(2, 1, None);
    "zeros_like" => w(x()).zeros_like();
    "ones_like" => w(x()).ones_like();
    "full_like" => w(x()).full_like(1);
    "rand_like" => w(x()).rand_like();
    "randn_like" => w(x()).randn_like();
    "poisson" => w(x()).poisson();
    "poisson" => Generator::new(Device::CPU).poisson(&w(x()));
    "bernoulli" => w(x()).bernoulli();
    "bernoulli" => Generator::new(Device::CPU).bernoulli(&w(x()));
    "uniform_" => w(x()).uniform_(0.0, 1.0);
    "exponential_" => w(x()).exponential_(1.0);
    "normal_" => w(x()).normal_(0.0, 1.0);
    "bernoulli_" => w(x()).bernoulli_(0.5);
    "random_" => w(x()).random_(0, 2);
    "i" as "select" => w(x()).i((0, 1));
    "i" as "slice" => w(x()).i(0..1);
    "i" as "index" => w(x()).i(ints(&[0]));
    "atleast_1d" => w(one()).atleast_1d();
    "atleast_2d" => w(line()).atleast_2d();
    "atleast_3d" => w(x()).atleast_3d();
    "hsplit" => w(x()).hsplit(2);
    "vsplit" => w(x()).vsplit(3);
    "dsplit" => w(batch(&[2, 2, 4])).dsplit(2);
    "hstack" => hstack(&[&w(x()), &x()]);
    "vstack" => vstack(&[&w(x()), &x()]);
    "dstack" => dstack(&[&w(x()), &x()]);
    "column_stack" => column_stack(&[&w(line()), &line()]);
    "pad_sequence" => pad_sequence(&[&w(line()), &batch(&[2])], true, 0.0);
    "tensordot" => w(x()).tensordot(&x(), [0, 1], [0, 1]);
    "addr" => w(x()).addr(&batch(&[3]), &line(), 1, 1);
    "fliplr" => w(x()).fliplr();
    "flipud" => w(x()).flipud();
    "diagflat" => w(x()).diagflat(1);
    "inner" => w(x()).inner(&line());
    "equal" => w(x()).equal(&x());
};

/// Methods without a tensor argument.
pub(super) const FACTORIES: &[Method] = methods! { _w;
    "zeros" => Tensor::zeros(&[2], DType::F32);
    "ones" => Tensor::ones(&[2], DType::F32);
    "full" => Tensor::full(&[2], 1, DType::F32);
    "arange" => Tensor::arange(0, 2, 1);
    "arange_of" as "arange" => Tensor::arange_of(0, 2, 1, DType::I64);
    "empty" => Tensor::empty(&[2], DType::F32);
    "eye" => Tensor::eye(2, DType::F32);
    "complex" => Tensor::complex(&x(), &x());
    "polar" => Tensor::polar(&x(), &x());
    "linspace" => Tensor::linspace(0.0, 1.0, 5);
    "logspace" => Tensor::logspace(0, 2, 5, 10.0);
    "tril_indices" => Tensor::tril_indices(2, 2, 0);
    "triu_indices" => Tensor::triu_indices(2, 2, 0);
    "rand" => Tensor::rand(&[2], DType::F32);
    "randn" => Tensor::randn(&[2], DType::F32);
    "randint" => Tensor::randint(0, 2, &[2]);
    "randperm" => Tensor::randperm(2);
    "rand" => Generator::new(Device::CPU).rand(&[2], DType::F32);
    "randn" => Generator::new(Device::CPU).randn(&[2], DType::F32);
    "randint" => Generator::new(Device::CPU).randint(0, 2, &[2]);
    "randperm" => Generator::new(Device::CPU).randperm(2);
};

macro_rules! regular_rows {
    (
        unary { $($(#[$udoc:meta])* $Unary:ident $uname:ident $uwrite:ident $urule:ident |$ux:ident| $ubody:expr; $ud:tt;)* }
        binary { $($(#[$bdoc:meta])* $Binary:ident $bname:ident $bwrite:ident $boverload:literal $brule:ident |$ba:ident, $bb:ident| $bbody:expr; $bd:tt;)* }
        other { $($(#[$odoc:meta])* $Other:ident $(: $Shared:ident)? $({ $($field:tt)* })? = $row:expr;)* }
    ) => {
        /// The methods of the op table.
        pub(super) const REGULAR: &[Method] = &[
            $(
                row!($uname, |w| w(x()).$uname().map(drop)),
                row!($uwrite, |w| w(x()).$uwrite()),
            )*
            $(
                row!($bname, |w| w(x()).$bname(&x()).map(drop)),
                row!($bwrite, |w| w(x()).$bwrite(&x())),
            )*
        ];

        /// Their names.
        pub(super) const UNARY: &[&str] = &[$(stringify!($uname)),*];
    };
}

macro_rules! row {
    ($name:ident, $call:expr) => {
        Method { name: stringify!($name), operator: stringify!($name), call: $call }
    };
}

opfuse::for_each_op!(regular_rows);

/// Calls the form of a unary operator that writes to `out`.
pub(super) fn call_out(operator: &str) -> Result<()> {
    let out = Dispatcher::global().lookup(&format!("aten::{operator}.out"))?;
    out.invoke(vec![Value::Tensor(x())], vec![("out", Value::Tensor(x()))]).map(drop)
}
