//! Structures of tensors: what functions that are compiled or mapped take and return (pytrees in PyTorch).
//!
//! A structure is flattened into its tensors and a few words. The words hold the variants of options and enums, the
//! lengths of vectors, and plain values. They are part of an input's type: if they change, the function is captured
//! again. Numbers that keep changing become inputs.

use crate::tensor::handle::Tensor;
use crate::tensor::names::Names;
use smallvec::SmallVec;
use std::borrow::Cow;

/// The tensors of a structure.
pub type Tensors = SmallVec<[Tensor; 4]>;

/// The rest of a structure, encoded as words, and which of its tensors are complex.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Words {
    words: SmallVec<[u64; 4]>,
    /// Positions of complex tensors, of which the structure holds the pairs.
    complex: SmallVec<[u32; 2]>,
}

impl Words {
    /// No words.
    pub fn new() -> Words {
        Words::default()
    }

    /// Whether the structure is nothing but real tensors.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.complex.is_empty()
    }

    /// Whether the tensor at this position is complex. Its place among the tensors then holds its pairs.
    pub(crate) fn is_complex(&self, position: usize) -> bool {
        self.complex.iter().any(|&complex| complex as usize == position)
    }

    /// The number of words, in place of the words.
    pub(crate) fn counted(&self) -> Words {
        Words { words: [self.words.len() as u64].into_iter().collect(), complex: self.complex.clone() }
    }
}

impl std::ops::Deref for Words {
    type Target = SmallVec<[u64; 4]>;

    fn deref(&self) -> &Self::Target {
        &self.words
    }
}

impl std::ops::DerefMut for Words {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.words
    }
}

/// A structure of tensors: a tensor, an option, vector, array or tuple of structures, a plain value, or a struct or
/// enum of these. Derive it with `#[derive(TensorStruct)]`.
///
/// ```
/// use opfuse::{Result, Tensor, TensorStruct, compile};
///
/// #[derive(TensorStruct)]
/// struct Layer {
///     weight: Tensor,
///     bias: Option<Tensor>,
/// }
///
/// #[derive(TensorStruct)]
/// struct Model {
///     layers: Vec<Layer>,
///     slope: f64,
/// }
///
/// # fn main() -> Result<()> {
/// let forward = compile(|model: &Model, x: &Tensor| {
///     model.layers.iter().try_fold(x.clone(), |x, layer| {
///         let y = x.matmul(&layer.weight)?;
///         layer.bias.as_ref().map_or(Ok(y.clone()), |bias| &y + bias)?.leaky_relu(model.slope)
///     })
/// });
/// let layer = Layer { weight: Tensor::try_from([[1.0f32, 0.0], [0.0, -1.0]])?, bias: None };
/// let model = Model { layers: vec![layer], slope: 0.5 };
/// let x = Tensor::try_from([[2.0f32, 4.0]])?;
/// assert_eq!(forward.call((&model, &x))?.to_vec::<f32>()?, [2.0, -2.0]);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no structure of tensors",
    label = "its tensors are not known",
    note = "write `#[derive(TensorStruct)]` on it, or use tensors, tuples, arrays, `Vec`s and `Option`s of them"
)]
pub trait TensorStruct: Sized {
    /// Appends the tensors and words of the structure, in order.
    fn tree_flatten(&self, into: &mut Flat);

    /// Builds a structure from the next parts. `None` if they are those of another structure.
    fn tree_unflatten(from: &mut Parts<'_>) -> Option<Self>;

    /// Names the tensors, in the order of [`TensorStruct::tree_flatten`]. Without a body they are numbered.
    fn tree_names(&self, into: &mut Names) {
        (0..Flat::of(self).tensors.len()).for_each(|index| into.part(index, Names::tensor));
    }

    /// The tensor, if the structure is a single real tensor.
    fn as_tensor(&self) -> Option<&Tensor> {
        None
    }
}

/// A flattened structure.
#[derive(Clone, Default)]
pub struct Flat {
    /// Its tensors, in order.
    pub tensors: Tensors,
    /// Everything else.
    pub words: Words,
}

impl Flat {
    /// Flattens a structure.
    pub fn of<T: TensorStruct>(structure: &T) -> Flat {
        let mut flat = Flat::default();
        structure.tree_flatten(&mut flat);
        flat
    }

    /// The same structure with other tensors.
    pub(crate) fn with_tensors(&self, tensors: &[Tensor]) -> Flat {
        Flat { tensors: tensors.into(), words: self.words.clone() }
    }

    /// Appends a tensor. Of a complex tensor it appends the pairs, which kernels, gradients and graphs know.
    pub(crate) fn push(&mut self, tensor: &Tensor) {
        if tensor.pairs().is_some() {
            self.words.complex.push(self.tensors.len() as u32);
        }
        self.tensors.push(tensor.as_real().clone());
    }

    /// The tensors, complex ones among them. `None` if the structure has other parts.
    pub(crate) fn to_tensors(&self) -> Option<Cow<'_, [Tensor]>> {
        if self.words.is_empty() {
            return Some(Cow::Borrowed(&self.tensors));
        }
        let mut parts = Parts::of(self);
        let all: Option<Vec<Tensor>> = self.tensors.iter().map(|_| parts.tensor()).collect();
        all.filter(|_| parts.is_empty()).map(Cow::Owned)
    }

    /// The structure. `None` if the parts are those of another type.
    pub fn tree_unflatten<T: TensorStruct>(self) -> Option<T> {
        let complex = &self.words.complex;
        let mut parts = Parts { tensors: self.tensors.into_iter(), words: self.words.iter(), taken: 0, complex };
        T::tree_unflatten(&mut parts).filter(|_| parts.is_empty())
    }
}

/// The parts of a flattened structure that are not consumed yet.
pub struct Parts<'a> {
    tensors: smallvec::IntoIter<[Tensor; 4]>,
    words: std::slice::Iter<'a, u64>,
    /// The number of tensors that were consumed.
    taken: u32,
    /// Positions of complex tensors.
    complex: &'a [u32],
}

impl<'a> Parts<'a> {
    pub(crate) fn of(flat: &'a Flat) -> Parts<'a> {
        let complex = &flat.words.complex;
        Parts { tensors: flat.tensors.clone().into_iter(), words: flat.words.iter(), taken: 0, complex }
    }

    /// The next tensor. `None` if there is none, or if it should be complex and is no tensor of pairs.
    pub fn tensor(&mut self) -> Option<Tensor> {
        let tensor = self.tensors.next()?;
        self.taken += 1;
        if self.complex.contains(&(self.taken - 1)) { Tensor::of_pairs(&tensor).ok() } else { Some(tensor) }
    }

    /// The next word.
    pub fn word(&mut self) -> Option<u64> {
        self.words.next().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tensors.len() == 0 && self.words.len() == 0
    }
}

impl TensorStruct for Tensor {
    fn tree_flatten(&self, into: &mut Flat) {
        into.push(self);
    }
    fn tree_unflatten(from: &mut Parts<'_>) -> Option<Tensor> {
        from.tensor()
    }
    fn tree_names(&self, into: &mut Names) {
        into.tensor();
    }
    #[inline]
    fn as_tensor(&self) -> Option<&Tensor> {
        self.pairs().is_none().then_some(self)
    }
}

impl<T: TensorStruct> TensorStruct for Option<T> {
    fn tree_flatten(&self, into: &mut Flat) {
        into.words.push(u64::from(self.is_some()));
        self.iter().for_each(|some| some.tree_flatten(into));
    }
    fn tree_unflatten(from: &mut Parts<'_>) -> Option<Option<T>> {
        match from.word()? {
            0 => Some(None),
            _ => T::tree_unflatten(from).map(Some),
        }
    }
    fn tree_names(&self, into: &mut Names) {
        self.iter().for_each(|some| some.tree_names(into));
    }
}

impl<T: TensorStruct> TensorStruct for Vec<T> {
    fn tree_flatten(&self, into: &mut Flat) {
        into.words.push(self.len() as u64);
        self.iter().for_each(|one| one.tree_flatten(into));
    }
    fn tree_unflatten(from: &mut Parts<'_>) -> Option<Vec<T>> {
        let len = from.word()?;
        let mut all = Vec::with_capacity(from.tensors.len().min(len as usize));
        for _ in 0..len {
            all.push(T::tree_unflatten(from)?);
        }
        Some(all)
    }
    fn tree_names(&self, into: &mut Names) {
        numbered(self, into);
    }
}

/// Names elements by their positions.
fn numbered<T: TensorStruct>(all: &[T], into: &mut Names) {
    all.iter().enumerate().for_each(|(index, one)| into.part(index, |into| one.tree_names(into)));
}

impl<T: TensorStruct> TensorStruct for Box<T> {
    fn tree_flatten(&self, into: &mut Flat) {
        (**self).tree_flatten(into);
    }
    fn tree_unflatten(from: &mut Parts<'_>) -> Option<Box<T>> {
        T::tree_unflatten(from).map(Box::new)
    }
    fn tree_names(&self, into: &mut Names) {
        (**self).tree_names(into);
    }
}

impl<T: TensorStruct, const N: usize> TensorStruct for [T; N] {
    fn tree_flatten(&self, into: &mut Flat) {
        self.iter().for_each(|one| one.tree_flatten(into));
    }
    fn tree_unflatten(from: &mut Parts<'_>) -> Option<[T; N]> {
        let all: Option<Vec<T>> = (0..N).map(|_| T::tree_unflatten(from)).collect();
        all?.try_into().ok()
    }
    fn tree_names(&self, into: &mut Names) {
        numbered(self, into);
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*);)*) => {$(
        impl<$($name: TensorStruct),*> TensorStruct for ($($name,)*) {
            fn tree_flatten(&self, _into: &mut Flat) {
                $(self.$index.tree_flatten(_into);)*
            }
            fn tree_unflatten(_from: &mut Parts<'_>) -> Option<Self> {
                Some(($($name::tree_unflatten(_from)?,)*))
            }
            fn tree_names(&self, _into: &mut Names) {
                $(_into.part($index, |into| self.$index.tree_names(into));)*
            }
        }
    )*};
}
tuples! {
    ();
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, G 5);
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6);
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7);
}

/// Plain values. Two words are equal exactly if the values have the same bits.
macro_rules! plain_values {
    ($($ty:ty: |$value:ident| $to:expr, |$word:ident| $from:expr;)*) => {$(
        impl TensorStruct for $ty {
            fn tree_flatten(&self, into: &mut Flat) {
                let $value = *self;
                into.words.push($to);
            }
            fn tree_unflatten(from: &mut Parts<'_>) -> Option<$ty> {
                let $word = from.word()?;
                $from
            }
        }
    )*};
}
plain_values! {
    bool: |value| u64::from(value), |word| Some(word != 0);
    u32: |value| u64::from(value), |word| u32::try_from(word).ok();
    u64: |value| value, |word| Some(word);
    usize: |value| value as u64, |word| usize::try_from(word).ok();
    i32: |value| i64::from(value) as u64, |word| i32::try_from(word as i64).ok();
    i64: |value| value as u64, |word| Some(word as i64);
    f32: |value| u64::from(value.to_bits()), |word| u32::try_from(word).ok().map(f32::from_bits);
    f64: |value| value.to_bits(), |word| Some(f64::from_bits(word));
}
