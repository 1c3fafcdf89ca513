//! Methods of operators that are found by name, each with the operator's arguments in the order of its schema.
//!
//! The call must give what the dispatcher gives for the arguments.

use super::table::{Method, Wrap, batch, ints, line, pivots, places, square, x};
use opfuse::dispatch::Value;
use opfuse::nn::{Interpolation, MaxPool, Reduction, losses};
use opfuse::{DType, Result, Tensor};

/// A method, the overload of its operator, and what both give.
pub(super) struct Form {
    pub(super) method: Method,
    pub(super) overload: &'static str,
    pub(super) result: fn() -> Result<Vec<Tensor>>,
    pub(super) arguments: fn() -> Vec<Value>,
}

/// An argument of an operator.
trait Argument {
    fn value(self) -> Value;
}

macro_rules! arguments {
    ($($ty:ty => |$argument:ident| $value:expr;)*) => {$(
        impl Argument for $ty {
            fn value(self) -> Value {
                let $argument = self;
                $value
            }
        }
    )*};
}

arguments! {
    Value => |value| value;
    Tensor => |tensor| Value::Tensor(tensor);
    Vec<Tensor> => |tensors| Value::TensorList(tensors);
    i64 => |number| Value::Int(number);
    f64 => |number| Value::Float(number);
    bool => |flag| Value::Bool(flag);
    DType => |dtype| Value::DType(dtype);
    &str => |text| Value::Str(text.into());
    &[i64] => |numbers| Value::IntList(numbers.into());
}

/// What a method returns.
trait Outcome {
    fn tensors(self) -> Vec<Tensor>;
}

impl Outcome for Tensor {
    fn tensors(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl Outcome for (Tensor, Tensor) {
    fn tensors(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}

impl Outcome for (Tensor, Tensor, Tensor) {
    fn tensors(self) -> Vec<Tensor> {
        vec![self.0, self.1, self.2]
    }
}

impl Outcome for Vec<Tensor> {
    fn tensors(self) -> Vec<Tensor> {
        self
    }
}

/// The tensor that an in-place method wrote to.
#[track_caller]
fn written(target: Tensor, call: impl FnOnce(&Tensor) -> Result<()>) -> Result<Tensor> {
    call(&target)?;
    Ok(target)
}

fn no() -> Value {
    Value::None
}

fn list(numbers: &[i64]) -> &[i64] {
    numbers
}

/// Planes of two channels with two rows of four elements.
fn planes() -> Tensor {
    batch(&[1, 2, 2, 4])
}

/// Both signs of a label, for three samples.
fn signs() -> Tensor {
    Tensor::from_slice(&[1.0f32, -1.0, 1.0, -1.0], &[4]).expect("4 numbers")
}

/// `"method" as "operator" "overload" [arguments] => call;`
macro_rules! forms {
    ($w:ident; $($name:literal $(as $operator:literal)? $(. $overload:literal)? [$($argument:expr),*]
        => $call:expr;)*) => {
        &[$(Form {
            method: Method {
                name: $name,
                operator: forms!(@ $name $($operator)?),
                call: |$w| $call.map(drop),
            },
            overload: concat!($($overload)?),
            result: || {
                let $w: Wrap<'_> = &|tensor| tensor;
                $call.map(Outcome::tensors)
            },
            arguments: || vec![$(Argument::value($argument)),*],
        }),*]
    };
    (@ $name:literal) => { $name };
    (@ $name:literal $operator:literal) => { $operator };
}

/// Methods of one tensor without other arguments.
macro_rules! of_one {
    ($($name:ident $(as $operator:literal)?;)*) => {
        &[$(Form {
            method: Method {
                name: stringify!($name),
                operator: of_one!(@ $name $($operator)?),
                call: |w| w(square()).$name().map(drop),
            },
            overload: "",
            result: || square().$name().map(Outcome::tensors),
            arguments: || vec![Value::Tensor(square())],
        }),*]
    };
    (@ $name:ident) => { stringify!($name) };
    (@ $name:ident $operator:literal) => { $operator };
}

/// In-place methods of one tensor without other arguments.
macro_rules! on_one {
    ($($name:ident;)*) => {
        &[$(Form {
            method: Method {
                name: stringify!($name),
                operator: stringify!($name),
                call: |w| w(x()).$name(),
            },
            overload: "",
            result: || written(x(), |x| x.$name()).map(Outcome::tensors),
            arguments: || vec![Value::Tensor(x())],
        }),*]
    };
}

/// Methods of two operands, with their in-place forms and overload.
macro_rules! of_two {
    ($($name:ident $in_place:ident $overload:literal;)*) => {
        &[$(
            Form {
                method: Method {
                    name: stringify!($name),
                    operator: stringify!($name),
                    call: |w| w(x()).$name(&line()).map(drop),
                },
                overload: $overload,
                result: || x().$name(&line()).map(Outcome::tensors),
                arguments: || vec![Value::Tensor(x()), Value::Tensor(line())],
            },
            Form {
                method: Method {
                    name: stringify!($in_place),
                    operator: stringify!($in_place),
                    call: |w| w(x()).$in_place(&line()),
                },
                overload: $overload,
                result: || written(x(), |x| x.$in_place(&line())).map(Outcome::tensors),
                arguments: || vec![Value::Tensor(x()), Value::Tensor(line())],
            },
        )*]
    };
}

pub(super) const ON_ONE: &[Form] = on_one! {
    absolute_; arccos_; arccosh_; arcsin_; arcsinh_; arctan_; arctanh_; fix_; negative_;
};

pub(super) const OF_TWO: &[Form] = of_two! {
    arctan2 arctan2_ "";
    divide divide_ "Tensor";
    greater greater_ "Tensor";
    greater_equal greater_equal_ "Tensor";
    less less_ "Tensor";
    less_equal less_equal_ "Tensor";
    multiply multiply_ "Tensor";
    not_equal not_equal_ "Tensor";
    subtract subtract_ "Tensor";
};

pub(super) const OF_ONE: &[Form] = of_one! {
    absolute; arccos; arccosh; arcsin; arcsinh; arctan; arctanh; fix; negative; sgn; positive; isreal; conj_physical;
    resolve_conj; resolve_neg; special_digamma; special_erf; special_erfc; special_erfinv; special_exp2; special_expit;
    special_expm1; special_gammaln; special_i0; special_log1p; special_psi; special_sinc; special_bessel_j0;
    special_bessel_j1; special_i0e; special_i1; special_i1e; special_erfcx; special_entr; special_ndtr; special_ndtri;
    special_log_ndtr; adjoint; ravel; argwhere; msort; linalg_matrix_exp; det; slogdet; inverse;
    mt as "mT"; mh as "mH"; matrix_h as "matrix_H"; numpy_t as "numpy_T";
};

pub(super) const OTHER_FORMS: &[Form] = forms! { w;
    "true_divide"."Tensor" [x(), line()] => w(x()).true_divide(line());
    "rsub"."Tensor" [x(), line(), 2] => w(x()).rsub(line(), 2);
    "clip" [x(), 0.25, 0.5] => w(x()).clip(Some(0.25.into()), Some(0.5.into()));
    "clip_" [x(), 0.25, 0.5] => written(w(x()), |x| x.clip_(Some(0.25.into()), Some(0.5.into())));
    "ldexp"."Tensor" [x(), line()] => w(x()).ldexp(&line());
    "type_as" [x(), places()] => w(x()).type_as(&places());
    "special_gammainc" [line(), x()] => w(line()).special_gammainc(&x());
    "special_gammaincc" [line(), x()] => w(line()).special_gammaincc(&x());
    "special_polygamma" [2, x()] => w(x()).special_polygamma(2);
    "special_multigammaln" [line(), 1] => w(line()).special_multigammaln(1);
    "special_logit" [x(), 0.25] => w(x()).special_logit(Some(0.25));
    "special_logsumexp" [x(), list(&[0]), true] => w(x()).special_logsumexp(0, true);
    "special_round" [x(), 1] => w(x()).special_round(1);
    "special_softmax" [x(), 0, DType::F64] => w(x()).special_softmax(0, Some(DType::F64));
    "special_log_softmax" [x(), 0, DType::F64] => w(x()).special_log_softmax(0, Some(DType::F64));
    "special_xlogy" [x(), line()] => w(x()).special_xlogy(line());
    "special_xlog1py" [x(), line()] => w(x()).special_xlog1py(line());
    "special_zeta" [line(), x()] => w(line()).special_zeta(x());

    "moveaxis"."int" [planes(), 1, 3] => w(planes()).moveaxis(1, 3);
    "swapdims" [planes(), 1, 3] => w(planes()).swapdims(1, 3);
    "linalg_diagonal" [planes(), 1, 2, 3] => w(planes()).linalg_diagonal(1, 2, 3);
    "channel_shuffle" [batch(&[1, 4, 2]), 2] => w(batch(&[1, 4, 2])).channel_shuffle(2);
    "index_reduce" [x(), 0, ints(&[2, 0]), batch(&[2, 4]), "amax", false] =>
        w(x()).index_reduce(0, &ints(&[2, 0]), &batch(&[2, 4]), "amax", false);
    "vander" [line(), 3, true] => w(line()).vander(Some(3), true);
    "linalg_vander" [line(), 3] => w(line()).linalg_vander(Some(3));
    "combinations" [line(), 3, true] => w(line()).combinations(3, true);
    "concat" [vec![x(), x()], 1] => Tensor::concat(&[&w(x()), &x()], 1);
    "concatenate" [vec![x(), x()], 1] => Tensor::concatenate(&[&w(x()), &x()], 1);
    "row_stack" [vec![x(), line()]] => Tensor::row_stack(&[&w(x()), &line()]);
    "block_diag" [vec![x(), line()]] => Tensor::block_diag(&[&w(x()), &line()]);
    "cartesian_prod" [vec![line(), line()]] => Tensor::cartesian_prod(&[&w(line()), &line()]);
    "aminmax" [x(), 1, true] => w(x()).aminmax(Some(1), true);
    "std_mean"."correction" [x(), list(&[1]), 0, true] => w(x()).std_mean(1, 0, true);
    "var_mean"."correction" [x(), list(&[1]), 0, true] => w(x()).var_mean(1, 0, true);
    "sum_to_size" [x(), list(&[3, 1])] => w(x()).sum_to_size([3, 1]);
    "unique_dim_consecutive" [x(), 1, true, true] => w(x()).unique_dim_consecutive(1);
    "trapezoid"."dx" [x(), 2, 0] => w(x()).trapezoid(2, 0);
    "trapezoid_at" as "trapezoid"."x" [x(), line(), 1] => w(x()).trapezoid_at(&line(), 1);
    "trapz"."dx" [x(), 2.0, 0] => w(x()).trapz(2.0, 0);
    "trapz_at" as "trapz"."x" [x(), line(), 1] => w(x()).trapz_at(&line(), 1);
    "cumulative_trapezoid"."dx" [x(), 2, 0] => w(x()).cumulative_trapezoid(2, 0);
    "cumulative_trapezoid_at" as "cumulative_trapezoid"."x" [x(), line(), 1] =>
        w(x()).cumulative_trapezoid_at(&line(), 1);
    "gradient_along" as "gradient"."scalararray" [x(), 2, list(&[1, 0]), 2] => w(x()).gradient_along(2, [1, 0], 2);
    "pairwise_distance" [x(), line(), 3.0, 0.5, true] => w(x()).pairwise_distance(&line(), 3.0, 0.5, true);
    "norm_except_dim" [x(), 2, 1] => w(x()).norm_except_dim(2, 1);
    "frobenius_norm"."dim" [x(), list(&[1]), true] => w(x()).frobenius_norm(1, true);

    "addmv" [batch(&[3]), x(), line(), 2, 3] => w(batch(&[3])).addmv(&x(), &line(), 2, 3);
    "addbmm" [square(), batch(&[2, 2, 3]), batch(&[2, 3, 2]), 2, 3] =>
        w(square()).addbmm(&batch(&[2, 2, 3]), &batch(&[2, 3, 2]), 2, 3);
    "vdot" [line(), line()] => w(line()).vdot(&line());
    "ger" [line(), batch(&[2])] => w(line()).ger(&batch(&[2]));
    "linalg_matmul" [x(), line()] => w(x()).linalg_matmul(&line());
    "linalg_vecdot" [x(), x(), 0] => w(x()).linalg_vecdot(&x(), 0);
    "bilinear" [x(), batch(&[3, 2]), batch(&[5, 4, 2]), batch(&[5])] =>
        w(x()).bilinear(&batch(&[3, 2]), &batch(&[5, 4, 2]), Some(&batch(&[5])));
    "linalg_multi_dot" [vec![x(), batch(&[4, 2]), square()]] =>
        Tensor::linalg_multi_dot(&[&w(x()), &batch(&[4, 2]), &square()]);
    "chain_matmul" [vec![x(), batch(&[4, 2])]] => Tensor::chain_matmul(&[&w(x()), &batch(&[4, 2])]);
    "linalg_norm" [x(), 1, list(&[0]), true, no()] => w(x()).linalg_norm(Some(1.into()), 0, true);
    "linalg_vector_norm" [x(), 3, list(&[0]), true, no()] => w(x()).linalg_vector_norm(3, 0, true);
    "linalg_matrix_norm" [x(), 1, list(&[1, 0]), true, no()] => w(x()).linalg_matrix_norm(1, [1, 0], true);
    "linalg_matrix_norm_of" as "linalg_matrix_norm"."str_ord" [x(), "nuc", list(&[1, 0]), true, no()] =>
        w(x()).linalg_matrix_norm_of("nuc", [1, 0], true);
    "linalg_matrix_power" [square(), 3] => w(square()).linalg_matrix_power(3);
    "pinverse" [square(), 0.5] => w(square()).pinverse(0.5);
    "cholesky" [spread(), true] => w(spread()).cholesky(true);
    "lu_solve" [batch(&[2, 1]), square(), pivots()] => w(batch(&[2, 1])).lu_solve(&square(), &pivots());
    "triangular_solve" [batch(&[2, 1]), square(), false, true, true] =>
        w(batch(&[2, 1])).triangular_solve(&square(), false, true, true);
    "svd" [x(), false, true] => w(x()).svd(false);

    "empty_like" [x()] => w(x()).empty_like();
    "new_empty" [x(), list(&[2, 1])] => w(x()).new_empty([2, 1]);
    "new_empty_strided" [x(), list(&[2, 3]), list(&[1, 2])] => w(x()).new_empty_strided([2, 3], [1, 2]);
    "new_zeros" [x(), list(&[2, 1])] => w(x()).new_zeros([2, 1]);
    "new_ones" [x(), list(&[2, 1])] => w(x()).new_ones([2, 1]);
    "new_full" [x(), list(&[2, 1]), 7] => w(x()).new_full([2, 1], 7);
    "randint_like"."low_dtype" [x(), 3, 4] => w(x()).randint_like(3, 4);
    "fft2" as "fft_fft2" [x(), no(), list(&[1, 0])] => w(x()).fft2([1, 0]);
    "ifft2" as "fft_ifft2" [x(), no(), list(&[1, 0])] => w(x()).ifft2([1, 0]);
    "rfft2" as "fft_rfft2" [x(), no(), list(&[1, 0])] => w(x()).rfft2([1, 0]);
    "irfft2" as "fft_irfft2" [x(), no(), list(&[1, 0])] => w(x()).irfft2([1, 0]);
    "hfft" as "fft_hfft" [x(), 3, 0] => w(x()).hfft(Some(3), 0);
    "ihfft" as "fft_ihfft" [x(), 3, 0] => w(x()).ihfft(Some(3), 0);

    "reflection_pad1d" [batch(&[1, 2, 4]), list(&[1, 2])] => w(batch(&[1, 2, 4])).reflection_pad1d([1, 2]);
    "reflection_pad2d" [planes(), list(&[1, 2, 0, 1])] => w(planes()).reflection_pad2d([1, 2, 0, 1]);
    "reflection_pad3d" [batch(&[1, 1, 2, 2, 4]), list(&[1, 2, 0, 1, 1, 0])] =>
        w(batch(&[1, 1, 2, 2, 4])).reflection_pad3d([1, 2, 0, 1, 1, 0]);
    "replication_pad1d" [batch(&[1, 2, 4]), list(&[1, 2])] => w(batch(&[1, 2, 4])).replication_pad1d([1, 2]);
    "replication_pad2d" [planes(), list(&[1, 2, 0, 1])] => w(planes()).replication_pad2d([1, 2, 0, 1]);
    "replication_pad3d" [batch(&[1, 1, 2, 2, 4]), list(&[1, 2, 0, 1, 1, 0])] =>
        w(batch(&[1, 1, 2, 2, 4])).replication_pad3d([1, 2, 0, 1, 1, 0]);
    "upsample_nearest1d" [batch(&[1, 2, 4]), list(&[7])] => w(batch(&[1, 2, 4])).upsample_nearest1d(7);
    "upsample_nearest3d" [batch(&[1, 1, 2, 2, 4]), list(&[3, 4, 5])] =>
        w(batch(&[1, 1, 2, 2, 4])).upsample_nearest3d([3, 4, 5]);
    "upsample_linear1d" [batch(&[1, 2, 4]), list(&[7]), true] => w(batch(&[1, 2, 4])).upsample_linear1d(7, true);
    "upsample_bicubic2d" [planes(), list(&[3, 5]), true] => w(planes()).upsample_bicubic2d([3, 5], true);
    "upsample_trilinear3d" [batch(&[1, 1, 2, 2, 4]), list(&[3, 4, 5]), true] =>
        w(batch(&[1, 1, 2, 2, 4])).upsample_trilinear3d([3, 4, 5], true);
    "resize2d" as "upsample_bilinear2d" [planes(), list(&[3, 5]), true] =>
        w(planes()).resize2d([3, 5], Interpolation::BilinearCorners);
    "affine_grid_generator" [batch(&[1, 2, 3]), list(&[1, 1, 2, 4]), true] =>
        w(batch(&[1, 2, 3])).affine_grid_generator([1, 1, 2, 4], true);
    "max_unpool2d" [batch(&[1, 1, 2]), corners(), list(&[2, 3])] =>
        w(batch(&[1, 1, 2])).max_unpool2d(&corners(), [2, 3]);
    "max_pool1d_with_indices" [batch(&[1, 2, 4]), list(&[2])] =>
        w(batch(&[1, 2, 4])).max_pool1d_with_indices(2, &MaxPool::default());
    "lstm_cell" [x(), vec![batch(&[3, 1]), column()], gates(4, 4), gates(4, 1), no(), bias(4)] => w(x())
        .lstm_cell([&batch(&[3, 1]), &column()], [&gates(4, 4), &gates(4, 1)], [None, Some(&bias(4))]);
    "gru_cell" [x(), batch(&[3, 1]), gates(3, 4), gates(3, 1), bias(3), no()] =>
        w(x()).gru_cell(&batch(&[3, 1]), [&gates(3, 4), &gates(3, 1)], [Some(&bias(3)), None]);
    "rnn_tanh_cell" [x(), batch(&[3, 1]), gates(1, 4), gates(1, 1), no(), bias(1)] =>
        w(x()).rnn_tanh_cell(&batch(&[3, 1]), [&gates(1, 4), &gates(1, 1)], [None, Some(&bias(1))]);
    "rnn_relu_cell" [x(), batch(&[3, 1]), gates(1, 4), gates(1, 1), bias(1), no()] =>
        w(x()).rnn_relu_cell(&batch(&[3, 1]), [&gates(1, 4), &gates(1, 1)], [Some(&bias(1)), None]);
    "feature_dropout" [x(), 1.0, true] => w(x()).feature_dropout(1.0, true);
    "alpha_dropout" [x(), 1.0, true] => w(x()).alpha_dropout(1.0, true);
    "rrelu" [signs(), 0.25, 0.5, false] => w(signs()).rrelu(0.25, 0.5, false);
    "fake_quantize_per_tensor_affine" [x(), 0.25, 1, 0, 3] => w(x()).fake_quantize_per_tensor_affine(0.25, 1, 0, 3);
    "fake_quantize_per_tensor_affine_cachemask" [x(), 0.25, 1, 0, 3] =>
        w(x()).fake_quantize_per_tensor_affine_cachemask(0.25, 1, 0, 3);
    "multilabel_margin_loss" [line(), ints(&[2, -1, 0, 0]), 2] =>
        w(line()).multilabel_margin_loss(&ints(&[2, -1, 0, 0]), Reduction::Sum);

    "cosine_embedding_loss" [x(), batch(&[3, 4]), ints(&[1, -1, 1]), 0.5, 2] =>
        losses::cosine_embedding_loss(&w(x()), &batch(&[3, 4]), &ints(&[1, -1, 1]), 0.5, Reduction::Sum);
    "margin_ranking_loss" [x(), line(), signs(), 0.5, 2] =>
        losses::margin_ranking_loss(&w(x()), &line(), &signs(), 0.5, Reduction::Sum);
    "hinge_embedding_loss" [x(), signs(), 0.5, 2] =>
        losses::hinge_embedding_loss(&w(x()), &signs(), 0.5, Reduction::Sum);
    "soft_margin_loss" [x(), signs(), 2] => losses::soft_margin_loss(&w(x()), &signs(), Reduction::Sum);
    "triplet_margin_loss" [x(), line(), signs(), 0.5, 3.0, 1e-6, false, 2] =>
        losses::triplet_margin_loss(&w(x()), &line(), &signs(), 0.5, 3.0, Reduction::Sum);
    "poisson_nll_loss" [x(), line(), false, true, 0.5, 2] =>
        losses::poisson_nll_loss(&w(x()), &line(), false, true, 0.5, Reduction::Sum);
};

/// A matrix with a Cholesky factor.
fn spread() -> Tensor {
    Tensor::from_slice(&[4.0f32, 1.0, 1.0, 3.0], &[2, 2]).expect("4 numbers")
}

/// The cells of three samples.
fn column() -> Tensor {
    Tensor::from_slice(&[0.5f32, -1.0, 2.0], &[3, 1]).expect("3 numbers")
}

/// Two places of a plane.
fn corners() -> Tensor {
    Tensor::from_slice(&[1i64, 5], &[1, 1, 2]).expect("2 numbers")
}

/// Weights of gates with one hidden element.
fn gates(count: usize, inputs: usize) -> Tensor {
    batch(&[count, inputs])
}

fn bias(count: usize) -> Tensor {
    batch(&[count])
}

/// Forms without a tensor argument.
pub(super) const FACTORY_FORMS: &[Form] = forms! { _w;
    "empty_strided" [list(&[2, 3]), list(&[1, 2]), DType::F64] => Tensor::empty_strided([2, 3], [1, 2], DType::F64);
    "empty_permuted" [list(&[2, 3]), list(&[1, 0]), DType::F64] => Tensor::empty_permuted([2, 3], [1, 0], DType::F64);
    "scalar_tensor" [2, DType::F64] => Tensor::scalar_tensor(2, DType::F64);
    "bartlett_window"."periodic" [5, false] => Tensor::bartlett_window(5, false);
    "blackman_window"."periodic" [5, false] => Tensor::blackman_window(5, false);
    "hamming_window"."periodic" [5, false] => Tensor::hamming_window(5, false);
    "hann_window"."periodic" [5, false] => Tensor::hann_window(5, false);
    "kaiser_window"."beta" [5, false, 3.0] => Tensor::kaiser_window(5, false, 3.0);
    "fftfreq" as "fft_fftfreq" [5, 0.5] => Tensor::fftfreq(5, 0.5);
    "rfftfreq" as "fft_rfftfreq" [5, 0.5] => Tensor::rfftfreq(5, 0.5);
};
