//! The methods that programs call, besides operators by name.
//!
//! A method has tensors, whole numbers and at most one number; its text is what is printed.

use opfuse::{Ellipsis, Index, NewAxis, Result, Scalar, Tensor};

/// What a whole number of a method is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Int {
    /// A dim of the first tensor.
    Dim,
    /// A dim of a tensor with one dim more.
    NewDim,
    /// An index of a short dim.
    Index,
    /// A positive number.
    Count,
    /// A size of the first tensor, its number of elements, a product of some, or -1.
    Size,
}

/// Calls a method with tensors, whole numbers and the number.
pub(crate) type Run = fn(&[Tensor], &[i64], Scalar) -> Result<Vec<Tensor>>;

/// A method.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) text: &'static str,
    pub(crate) tensors: &'static [&'static str],
    pub(crate) ints: &'static [(&'static str, Int)],
    /// Whether it takes a number, `s`.
    pub(crate) takes_scalar: bool,
    /// Whether it writes to the first tensor.
    pub(crate) writes: bool,
    pub(crate) run: Run,
}

impl PartialEq for Method {
    fn eq(&self, other: &Method) -> bool {
        self.text == other.text
    }
}

/// What a method returns, as tensors.
pub(crate) trait Tensors {
    fn tensors(self) -> Vec<Tensor>;
}

impl Tensors for Tensor {
    fn tensors(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl Tensors for () {
    fn tensors(self) -> Vec<Tensor> {
        Vec::new()
    }
}

impl Tensors for Vec<Tensor> {
    fn tensors(self) -> Vec<Tensor> {
        self
    }
}

impl Tensors for (Tensor, Tensor) {
    fn tensors(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}

macro_rules! methods {
    ($($share:literal ($($x:ident),+) ($($a:ident: $kind:ident),*) ($($s:ident)?) $writes:literal $body:expr;)*) => {
        pub(crate) static METHODS: &[(usize, Method)] = &[$(($share, Method {
            text: stringify!($body),
            tensors: &[$(stringify!($x)),+],
            ints: &[$((stringify!($a), Int::$kind)),*],
            takes_scalar: 0 $(+ { stringify!($s); 1 })? > 0,
            writes: $writes,
            run: |tensors, ints, scalar| {
                let mut tensors = tensors.iter();
                let mut ints = ints.iter();
                $(let $x = tensors.next().expect("one for each name");)+
                $(let $a = *ints.next().expect("one for each name");)*
                $(let $s = scalar;)?
                let _ = (&mut tensors, &mut ints, scalar);
                Ok(Tensors::tensors($body?))
            },
        })),*];
    };
}

methods! {
    // Views.
    4 (x) (a: Dim, b: Dim) () false x.transpose(a, b);
    2 (x) () () false x.t();
    3 (x) (a: Dim, b: Index) () false x.select(a, b);
    3 (x) (a: Dim, b: Index, c: Count) () false x.narrow(a, b, c as usize);
    3 (x) (a: Dim, b: Index, c: Count) () false x.slice(a, b, None, c);
    3 (x) (a: NewDim) () false x.unsqueeze(a);
    2 (x) (a: Dim) () false x.squeeze(a);
    2 (x) () () false x.squeeze(());
    3 (x) () () false x.flatten(0, -1);
    2 (x) () () false x.view(-1);
    2 (x) (a: Size) () false x.view([a, -1]);
    2 (x) (a: Size) () false x.reshape([a, -1]);
    2 (x) (a: Size, b: Size) () false x.expand([a, b]);
    1 (x) (a: Size, b: Size, c: Size) () false x.expand([a, b, c]);
    2 (x, y) () () false x.expand_as(y);
    1 (x, y) () () false x.view_as(y);
    1 (x) (a: Index, b: Dim, c: Dim) () false x.diagonal(a, b, c);
    1 (x) (a: Dim, b: Count, c: Count) () false x.unfold(a, b as usize, c as usize);
    1 (x) (a: Count, b: Index, c: Index) () false x.as_strided([a], [b], c);
    1 (x) (a: Count, b: Count, c: Count, d: Index) () false x.as_strided([a, b], [c, d], None);
    2 (x) (a: Count, b: Dim) () false x.chunk(a as usize, b);
    1 (x) (a: Count, b: Dim) () false x.split(a as usize, b);
    2 (x) (a: Dim) () false x.unbind(a);
    1 (x) (a: Count, b: Dim) () false x.tensor_split(a as usize, b);
    3 (x) () () false x.detach();
    1 (x) () () false x.alias();
    1 (x) () () false Ok::<_, opfuse::Error>(x.data());
    2 (x) () () false x.contiguous();
    2 (x) () () false x.copy();
    1 (x, y) () () false x.reshape_as(y);
    1 (x) (a: Index) () false x.i((Ellipsis, a));
    1 (x) (a: Count) () false x.i((NewAxis, Index::step(.., a)));
    1 (x) (a: Index) () false x.i(a..);
    1 (x) (a: Index) () false x.i((.., a));
    // Writes.
    5 (x, y) () () true x.add_(y);
    4 (x, y) () () true x.mul_(y);
    3 (x, y) () () true x.sub_(y);
    4 (x, y) () () true x.copy_(y);
    4 (x) () (s) true x.add_(s);
    4 (x) () (s) true x.mul_(s);
    3 (x) () (s) true x.fill_(s);
    3 (x) () () true x.zero_();
    2 (x) () () true x.relu_();
    2 (x) () () true x.neg_();
    1 (x) () () true x.exp_();
    1 (x) () () true x.tanh_();
    1 (x) () () true x.sigmoid_();
    1 (x) () (s) true x.clamp_max_(s);
    2 (x, y) () () true x.lt_(y);
    2 (x) (a: Index) (s) true x.set(a, s);
    2 (x, y) (a: Index) () true x.set(a, y);
    1 (x, y) (a: Index) () true x.set((Ellipsis, a), y);
    1 (x, y) () () true x.set((), y);
    1 (x, y) () (s) true x.masked_fill_(y, s);
    1 (x, y) () (s) true x.set(y, s);
    1 (x) () () true x.uniform_(0.0, 1.0);
    1 (x) () () true x.normal_(0.0, 1.0);
    1 (x) () () true x.dropout_(0.5, true);
    // Values.
    4 (x, y) () () false (x + y);
    4 (x, y) () () false (x * y);
    2 (x, y) () () false (x - y);
    1 (x, y) () () false (x / y);
    3 (x) () (s) false x.mul(s);
    3 (x) () (s) false x.add(s);
    1 (x) () () false (2.0 * x);
    1 (x) () () false (-x);
    2 (x, y) () () false x.matmul(y);
    2 (x, y) () () false x.linear(y, None);
    2 (x) (a: Dim) () false x.softmax(a);
    2 (x) (a: Dim) () false x.sum(a, false);
    2 (x) (a: Dim) () false x.mean(a, true);
    2 (x) () () false x.sum_all();
    2 (x) () () false x.relu();
    1 (x) () () false x.sigmoid();
    1 (x) () () false x.tanh();
    1 (x) () () false x.exp();
    1 (x) () () false x.dropout(0.5, true);
    1 (x) () () false x.bernoulli();
    1 (x) () () false x.rand_like();
    1 (x) () () false x.zeros_like();
    1 (x) () (s) false x.full_like(s);
    1 (x) () (s) false x.gt(s);
    1 (x, y) () () false x.eq(y);
    2 (x, y) () () false x.i(y);
    1 (x, y) (a: Dim) () false x.index_select(a, y);
    1 (x, y) (a: Dim) () false x.gather(a, y);
    1 (x, y) () () false x.masked_select(y);
    1 (x) (a: Dim) () false x.max_dim(a, false);
    1 (x) (a: Dim) () false x.sort(a, true);
    1 (x) (a: Dim) () false x.cumsum(a);
    1 (x, y) (a: Dim) () false opfuse::cat(&[x, y], a);
    1 (x, y) (a: NewDim) () false opfuse::stack(&[x, y], a);
    1 (x) () () false x.to_dtype(opfuse::DType::F64);
    1 (x) () () false x.to_dtype(opfuse::DType::BF16);
    1 (x) () () false x.to_dtype(opfuse::DType::I32);
}
