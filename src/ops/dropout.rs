//! Dropout, and its gradient.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::NativeDropoutBackward;
use crate::ir::{Attrs, Op};
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::ops::random::{like, need_float};
use crate::tensor::handle::Tensor;

static DROPOUT: Composite = Composite::new("dropout(Tensor input, float p, bool train) -> Tensor");
static NATIVE_DROPOUT: Composite =
    Composite::new("native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)");
/// Declared separately: its schema calls the tensor `self`, that of `dropout` calls it `input`.
static DROPOUT_IN_PLACE: Composite = Composite::new("dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)");

/// Dropout.
impl Tensor {
    /// Dropout (Srivastava et al. 2014). In training, each element is zeroed with probability `p`, and the others are
    /// divided by `1 - p`. Otherwise returns the tensor itself. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, or if the dtype is not floating.
    #[track_caller]
    pub fn dropout(&self, p: f64, training: bool) -> Result<Tensor> {
        DROPOUT.call((self, p, training))
    }

    /// In-place form of [`Tensor::dropout`]. Views of the same elements change too. Sizes and dtype are kept.
    ///
    /// # Errors
    /// Same as [`Tensor::dropout`] and [`Tensor::copy_`].
    #[track_caller]
    pub fn dropout_(&self, p: f64, training: bool) -> Result<()> {
        DROPOUT_IN_PLACE.call::<_, Tensor>((self, p, training)).map(|_| ())
    }

    /// Like [`Tensor::dropout`], and also returns the bool mask of the elements that are kept. Both have the sizes of
    /// `self`.
    ///
    /// # Errors
    /// Same as [`Tensor::dropout`].
    #[track_caller]
    pub fn native_dropout(&self, p: f64, training: bool) -> Result<(Tensor, Tensor)> {
        NATIVE_DROPOUT.call((self, p, Some(training)))
    }

    /// The gradient of [`Tensor::native_dropout`]: `self * scale` where the mask is true, and 0 elsewhere. Sizes are
    /// broadcast. The dtype is that of `self`.
    ///
    /// # Errors
    /// If the dtype is not floating, or if the sizes do not broadcast.
    #[track_caller]
    pub fn native_dropout_backward(&self, mask: &Tensor, scale: f64) -> Result<Tensor> {
        call(Op::NativeDropoutBackward, &[self, mask], &Attrs::from(NativeDropoutBackward { scale: scale.into() }))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&DROPOUT_IN_PLACE, |x: &Tensor, p: f64, train: bool| {
            x.copy_(&x.dropout(p, train)?).map(|()| x.clone())
        })?
        .composite(&DROPOUT, dropout)?
        .composite(&NATIVE_DROPOUT, native_dropout)?
        .def_kernel("feature_dropout(Tensor input, float p, bool train) -> Tensor", feature_dropout)?
        .def_kernel("alpha_dropout(Tensor input, float p, bool train) -> Tensor", alpha_dropout)?;
    Ok(())
}

/// Drops whole planes: all elements of a sample's channel.
fn feature_dropout(x: &Tensor, p: f64, training: bool) -> Result<Tensor> {
    check_dropout(p)?;
    if p == 0.0 || !training || x.numel() == 0 {
        return Ok(x.clone());
    }
    if x.dim() < 2 {
        let what = format!("Feature dropout requires at least 2 dimensions in the input, but it has {:?}", x.sizes());
        return Err(Error::shape("feature_dropout", what, "use dropout"));
    }
    let sizes: Vec<usize> = x.sizes().iter().enumerate().map(|(dim, &size)| if dim < 2 { size } else { 1 }).collect();
    let kept = dropout(&full_on(x.device(), &sizes, 1.0.into(), Some(x.dtype()))?, p, true)?;
    x.mul(&kept)
}

/// Dropout that keeps mean and variance of what `selu` gives (Klambauer et al. 2017).
fn alpha_dropout(x: &Tensor, p: f64, training: bool) -> Result<Tensor> {
    const ALPHA: f64 = 1.758_099_340_847_376_6;
    check_dropout(p)?;
    if p == 0.0 || !training || x.numel() == 0 {
        return Ok(x.clone());
    }
    need_float("alpha_dropout", x.dtype())?;
    if p == 1.0 {
        return x.mul(0.0);
    }
    let scale = 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt();
    let kept = x.draw().mask(x, p)?;
    let lowered = kept.where_(x, -ALPHA)?;
    lowered.mul(scale)?.add(ALPHA * scale * p)
}

fn check_dropout(p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::argument("dropout", format!("dropout probability has to be between 0 and 1, but got {p}")))
}

fn dropout(x: &Tensor, p: f64, training: bool) -> Result<Tensor> {
    check_dropout(p)?;
    if p == 0.0 || !training || x.numel() == 0 {
        return Ok(x.clone());
    }
    need_float("dropout", x.dtype())?;
    if p == 1.0 {
        // Nothing is drawn. The product with 0, unlike zeros, keeps NaNs.
        return x.mul(0.0);
    }
    let mask = x.draw().mask(x, p)?;
    x.native_dropout_backward(&mask, 1.0 / (1.0 - p))
}

fn native_dropout(x: &Tensor, p: f64, training: Option<bool>) -> Result<(Tensor, Tensor)> {
    check_dropout(p)?;
    need_float("native_dropout", x.dtype())?;
    if x.numel() == 0 {
        return Ok((x.clone(), x.zeros_like()?));
    }
    if training == Some(false) {
        let kept = like(x, |sizes| full_on(x.device(), sizes, true.into(), None))?;
        return Ok((x.copy()?, kept));
    }
    let mask = x.draw().mask(x, p)?;
    let scale = if p == 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
    Ok((x.native_dropout_backward(&mask, scale)?, mask))
}
