//! Which operators programs call, and arguments for them, made from names and types in schemas.

use super::program::{Arg, Var};
use super::random::Random;
use opfuse::dispatch::{Dispatcher, Operator, Parameter, Type};
use opfuse::ir::MemoryFormat;
use opfuse::{DType, Scalar, Tensor};
use std::sync::OnceLock;

pub(crate) const DTYPES: [DType; 10] = [
    DType::F32,
    DType::F64,
    DType::BF16,
    DType::F16,
    DType::I64,
    DType::I32,
    DType::Bool,
    DType::U8,
    DType::I8,
    DType::I16,
];

const COMPLEX: &str = "only programs on complex numbers call it";

/// What is left out, with the reason. A name stands for all its overloads, and one with a star for all that begin so.
const LEFT_OUT: &[(&str, &str)] = &[
    ("empty", "its elements are undefined"),
    ("empty_like", "its elements are undefined"),
    ("empty_strided", "its elements are undefined"),
    ("empty_permuted", "its elements are undefined"),
    ("new_empty", "its elements are undefined"),
    ("new_empty_strided", "its elements are undefined"),
    ("resize_", "tensors keep their shape (docs/limits.md)"),
    ("resize_as_", "tensors keep their shape (docs/limits.md)"),
    ("set_", "tensors keep their shape (docs/limits.md)"),
    ("item", "a number is read by a statement of its own"),
    ("_local_scalar_dense", "a number is read by a statement of its own"),
    ("complex", COMPLEX),
    ("polar", COMPLEX),
    ("view_as_complex", COMPLEX),
    ("view_as_real", COMPLEX),
    ("imag", COMPLEX),
    ("conj", COMPLEX),
    ("_conj", COMPLEX),
    ("conj_physical", COMPLEX),
    ("resolve_conj", COMPLEX),
    ("resolve_neg", COMPLEX),
    ("stft", COMPLEX),
    ("istft", COMPLEX),
    ("fft_*", COMPLEX),
    ("_fft_pairs", COMPLEX),
    ("_rfft_pairs", COMPLEX),
    ("_irfft_pairs", COMPLEX),
];

fn is_named(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start))
}

/// All operators of programs, with or without complex numbers.
pub(crate) fn operators(is_complex: bool) -> &'static [Operator] {
    static ALL: [OnceLock<Vec<Operator>>; 2] = [const { OnceLock::new() }; 2];
    ALL[usize::from(is_complex)].get_or_init(|| {
        opfuse::dispatch::load().expect("the built-in operators load");
        let is_out = |reason: &str| !is_complex || reason != COMPLEX;
        let is_ours = |name: &&opfuse::dispatch::OperatorName| {
            let short = name.name.strip_prefix("aten::");
            short.is_some_and(|short| !LEFT_OUT.iter().any(|(out, reason)| is_out(reason) && is_named(short, out)))
        };
        let names = Dispatcher::global().operator_names();
        names.iter().filter(is_ours).filter_map(|name| Dispatcher::global().find(name)).collect()
    })
}

/// Whether a call draws random numbers.
pub(crate) fn draws(name: &str) -> bool {
    [
        "rand",
        "bernoulli",
        "dropout",
        "uniform",
        "normal_",
        "multinomial",
        "exponential",
        "rrelu",
        "attention",
        "poisson",
    ]
    .iter()
    .any(|part| name.contains(part))
        && !name.contains("batch_norm")
        && !name.contains("layer_norm")
}

/// The variables that arguments are chosen from.
pub(crate) struct Choice<'a> {
    pub(crate) vars: &'a [(Var, Tensor)],
    /// The numbers that were read.
    pub(crate) numbers: &'a [usize],
    pub(crate) writes: bool,
    pub(crate) is_complex: bool,
}

impl Choice<'_> {
    /// A variable, mostly a young one.
    pub(crate) fn var(&self, random: &mut Random) -> Option<&(Var, Tensor)> {
        let count = self.vars.len();
        if count == 0 {
            return None;
        }
        let back = random.below(count) * random.below(count) / count;
        Some(&self.vars[count - 1 - back])
    }

    /// A variable that fits, if some of a few do.
    pub(crate) fn like(&self, random: &mut Random, fits: impl Fn(&Tensor) -> bool) -> Option<Var> {
        let mut last = None;
        for _ in 0..6 {
            let (var, tensor) = self.var(random)?;
            last = Some(*var);
            if fits(tensor) {
                break;
            }
        }
        last
    }

    fn tensor(&self, random: &mut Random, name: &str, receiver: Option<&Tensor>) -> Option<Var> {
        let whole = |tensor: &Tensor| matches!(tensor.dtype(), DType::I64 | DType::I32);
        match (name, receiver) {
            ("index" | "indices" | "target" | "repeats", _) if random.percent(90) => self.like(random, whole),
            ("mask" | "condition", _) => self.like(random, |tensor| tensor.dtype() == DType::Bool),
            (_, Some(receiver)) if random.percent(80) => self.like(random, |tensor| {
                tensor.dtype() == receiver.dtype()
                    && (tensor.sizes() == receiver.sizes() || tensor.dim() < receiver.dim())
            }),
            _ if self.is_complex && random.percent(50) => self.like(random, Tensor::is_complex),
            _ if random.percent(70) => self.like(random, |tensor| tensor.dtype().is_float()),
            _ => self.var(random).map(|(var, _)| *var),
        }
    }

    /// Arguments of a call, or nothing if there are no variables that fit.
    pub(crate) fn arguments(&self, random: &mut Random, operator: &Operator) -> Option<Vec<Arg>> {
        let schema = operator.schema()?;
        let mut receiver: Option<Tensor> = None;
        let mut args = Vec::new();
        for parameter in &schema.arguments {
            if parameter.alias.as_ref().is_some_and(|alias| alias.is_write) && !self.writes {
                return None;
            }
            let arg = self.argument(random, &schema.name.name, parameter, &parameter.ty, receiver.as_ref())?;
            if let (Arg::Tensor(var), None) = (&arg, &receiver) {
                receiver = self.vars.iter().find(|(other, _)| other == var).map(|(_, tensor)| tensor.clone());
            }
            args.push(arg);
        }
        Some(args)
    }

    fn argument(
        &self,
        random: &mut Random,
        op: &str,
        parameter: &Parameter,
        ty: &Type,
        receiver: Option<&Tensor>,
    ) -> Option<Arg> {
        let name = parameter.name.as_str();
        let rank = receiver.map_or(0, Tensor::dim);
        Some(match ty {
            Type::Optional(inner) => {
                let wanted = match **inner {
                    Type::Generator | Type::Device | Type::Layout => 0,
                    Type::ScalarType | Type::MemoryFormat => 12,
                    _ => 50,
                };
                if random.percent(wanted) { self.argument(random, op, parameter, inner, receiver)? } else { Arg::None }
            }
            Type::Tensor => Arg::Tensor(self.tensor(random, name, receiver)?),
            Type::Int | Type::SymInt => Arg::Int(int(random, name, receiver)),
            Type::Float => Arg::Float(random.pick(&[0.0, 1.0, 0.5, 1e-5, 2.0, 0.1, -1.0])),
            Type::Bool => Arg::Bool(random.percent(50)),
            Type::Str => Arg::Str(text(random, op, name).into()),
            Type::Scalar => self.scalar(random),
            Type::ScalarType if self.is_complex && random.percent(40) => Arg::DType(random.pick(&DType::COMPLEX)),
            Type::ScalarType => Arg::DType(random.pick(&DTYPES)),
            Type::MemoryFormat => Arg::Format(random.pick(&[
                MemoryFormat::Contiguous,
                MemoryFormat::Preserve,
                MemoryFormat::Contiguous,
                MemoryFormat::ChannelsLast,
            ])),
            Type::Device | Type::Layout | Type::Generator => Arg::None,
            Type::List(element, length) => match &**element {
                Type::Tensor => {
                    let first = self.tensor(random, name, receiver)?;
                    let sizes = self.vars.iter().find(|(var, _)| *var == first)?.1.sizes().to_vec();
                    let more = random.below(3);
                    let rest = (0..more).filter_map(|_| self.like(random, |tensor| tensor.sizes() == sizes));
                    Arg::Tensors(std::iter::once(first).chain(rest).collect())
                }
                Type::Optional(_) => {
                    let count = 1 + random.below(rank.clamp(1, 2));
                    let one = |random: &mut Random| {
                        let whole = |tensor: &Tensor| matches!(tensor.dtype(), DType::I64 | DType::Bool);
                        if random.percent(80) { self.like(random, whole) } else { None }
                    };
                    Arg::OptionalTensors((0..count).map(|_| one(random)).collect())
                }
                Type::Int | Type::SymInt => Arg::Ints(ints(random, op, name, *length, receiver)),
                Type::Float => Arg::Floats((0..length.unwrap_or(2)).map(|_| 1.0 + random.below(3) as f64).collect()),
                Type::Bool => Arg::Bools((0..length.unwrap_or(3)).map(|_| random.percent(70)).collect()),
                _ => return None,
            },
        })
    }

    /// A number, sometimes one that was read.
    pub(crate) fn scalar(&self, random: &mut Random) -> Arg {
        if !self.numbers.is_empty() && random.percent(35) {
            return Arg::Number(random.pick(self.numbers));
        }
        Arg::Scalar(match random.below(14) {
            0 => Scalar::Int(0),
            1 | 2 => Scalar::Int(1),
            3 => Scalar::Int(2),
            4 => Scalar::Int(-1),
            5 => Scalar::Bool(true),
            6 => Scalar::Float(f64::INFINITY),
            7 => Scalar::Float(-0.0),
            8 => Scalar::Float(1e-3),
            9 => Scalar::Float(0.1),
            10 => Scalar::Float(-0.5),
            11 => Scalar::Float(3.0),
            12 => Scalar::Int(3),
            _ => Scalar::Float(0.5),
        })
    }
}

fn dim_of(random: &mut Random, rank: usize) -> i64 {
    let rank = rank.max(1) as i64;
    random.below(2 * rank as usize) as i64 - rank
}

fn int(random: &mut Random, name: &str, receiver: Option<&Tensor>) -> i64 {
    let rank = receiver.map_or(0, Tensor::dim);
    match name {
        "dim" | "dim0" | "dim1" | "dim2" | "dimension" | "axis0" | "axis1" | "start_dim" | "end_dim" => {
            dim_of(random, rank)
        }
        "start" | "end" | "index" | "offset" | "diagonal" | "storage_offset" | "padding_idx" => {
            random.below(6) as i64 - 2
        }
        "reduction" => random.below(3) as i64,
        "groups" | "num_groups" => random.pick(&[1, 1, 1, 2]),
        "low" => random.below(3) as i64 - 1,
        "high" => 2 + random.below(9) as i64,
        "num_classes" => random.pick(&[-1, 3, 4]),
        "ignore_index" => random.pick(&[-100, 0, 1]),
        _ => 1 + random.below(3) as i64,
    }
}

fn ints(random: &mut Random, op: &str, name: &str, length: Option<usize>, receiver: Option<&Tensor>) -> Vec<i64> {
    let rank = receiver.map_or(0, Tensor::dim);
    let sizes: Vec<i64> =
        receiver.map_or(Vec::new(), |tensor| tensor.sizes().iter().map(|&size| size as i64).collect());
    let several = |random: &mut Random, from: i64, n: usize| {
        let count = length.map_or(1 + random.below(2), |length| if random.percent(50) { 1 } else { length });
        (0..count).map(|_| from + random.below(n) as i64).collect::<Vec<i64>>()
    };
    match name {
        "dim" | "dims" | "source" | "destination" if op.ends_with("permute") || op.ends_with("permute_copy") => {
            random.order(rank).into_iter().map(|dim| dim as i64).collect()
        }
        "dim" | "dims" | "source" | "destination" => {
            let count = random.below(rank.max(1)) + usize::from(random.percent(90));
            random.order(rank.max(1)).into_iter().take(count).map(|dim| dim as i64).collect()
        }
        "size" | "shape" | "sizes" if op.contains("expand") || op.contains("broadcast") => {
            let mut out: Vec<i64> =
                sizes.iter().map(|&size| if size == 1 { random.pick(&[1, 2, 3]) } else { size }).collect();
            if random.percent(40) {
                out.insert(0, random.pick(&[1, 2]));
            }
            out
        }
        "size" | "shape" | "sizes" | "input_sizes" => match random.below(6) {
            0 => vec![-1],
            1 => sizes,
            2 => vec![sizes.first().copied().unwrap_or(1), -1],
            3 => vec![-1, sizes.last().copied().unwrap_or(1)],
            4 => several(random, 1, 4),
            _ => {
                let mut out = sizes;
                out.push(1);
                out.reverse();
                out
            }
        },
        "stride" if op.contains("as_strided") => several(random, 0, 3),
        "normalized_shape" => sizes.iter().rev().take(1 + random.below(2)).rev().copied().collect(),
        "padding" | "output_padding" | "pad" => {
            let count = length.unwrap_or(2 * (1 + random.below(2)));
            (0..count).map(|_| random.below(3) as i64 - i64::from(random.percent(10))).collect()
        }
        "dilation" => several(random, 1, 2),
        "kernel_size" | "stride" | "output_size" => several(random, 1, 3),
        "repeats" => (0..rank + usize::from(random.percent(30))).map(|_| 1 + random.below(2) as i64).collect(),
        "split_sizes" | "split_size" | "indices" => match sizes.first() {
            Some(&size) if size > 1 && random.percent(70) => vec![1, size - 1],
            _ => several(random, 1, 3),
        },
        _ => several(random, 0, 3),
    }
}

fn text(random: &mut Random, op: &str, name: &str) -> &'static str {
    match name {
        "approximate" => random.pick(&["none", "tanh"]),
        "rounding_mode" => random.pick(&["trunc", "floor"]),
        "mode" => random.pick(&["constant", "reflect", "replicate", "circular"]),
        "indexing" => random.pick(&["ij", "xy"]),
        "reduce" if op.contains("scatter_reduce") => random.pick(&["sum", "prod", "mean", "amax", "amin"]),
        "reduce" => random.pick(&["add", "multiply"]),
        "equation" => random.pick(&["ij,jk->ik", "ij->ji", "i,i->", "ij,ij->i", "ii->i", "bij,bjk->bik"]),
        _ => "none",
    }
}
