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

/// Declared apart from `dropout`, whose tensor is called `input`.
static DROPOUT_IN_PLACE: Composite = Composite::new("dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)");

/// Elements left out at random.
impl Tensor {
    /// While training, elements are zeroed with probability `p` and the others divided by `1 - p`, floats; otherwise
    /// the tensor itself. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If `p` is no probability or the dtype not floating.
    pub fn dropout(&self, p: f64, training: bool) -> Result<Tensor> {
        check_dropout(p)?;
        if p == 0.0 || !training || self.numel() == 0 {
            return Ok(self.clone());
        }
        need_float("dropout", self.dtype())?;
        if p == 1.0 {
            // Nothing is drawn; a product rather than zeros, so that a NaN stays.
            return self.mul(0.0);
        }
        let mask = self.draw().mask(self, p)?;
        self.native_dropout_backward(&mask, 1.0 / (1.0 - p))
    }

    /// In-place form of [`Tensor::dropout`]: views of the same elements see it. Sizes and dtype stay.
    ///
    /// # Errors
    /// As [`Tensor::dropout`] and [`Tensor::copy_`].
    pub fn dropout_(&self, p: f64, training: bool) -> Result<()> {
        DROPOUT_IN_PLACE.call::<_, Tensor>((self, p, training)).map(|_| ())
    }

    /// As [`Tensor::dropout`], with the mask of what is kept: bool. Both have the sizes of `self`.
    ///
    /// # Errors
    /// As [`Tensor::dropout`].
    pub fn native_dropout(&self, p: f64, training: bool) -> Result<(Tensor, Tensor)> {
        check_dropout(p)?;
        need_float("native_dropout", self.dtype())?;
        if self.numel() == 0 {
            return Ok((self.clone(), self.zeros_like()?));
        }
        if !training {
            let kept = like(self, |sizes| full_on(self.device(), sizes, true.into(), None))?;
            return Ok((self.copy()?, kept));
        }
        let mask = self.draw().mask(self, p)?;
        let scale = if p == 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
        Ok((self.native_dropout_backward(&mask, scale)?, mask))
    }

    /// Elements where the mask holds times `scale`, zero elsewhere: the gradient of [`Tensor::native_dropout`]. Sizes
    /// are broadcast, the dtype is that of `self`.
    ///
    /// # Errors
    /// If the dtype is not floating, or the shapes do not broadcast.
    pub fn native_dropout_backward(&self, mask: &Tensor, scale: f64) -> Result<Tensor> {
        call(Op::NativeDropoutBackward, &[self, mask], &Attrs::from(NativeDropoutBackward { scale: scale.into() }))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&DROPOUT_IN_PLACE, |x: &Tensor, p: f64, train: bool| {
            x.copy_(&x.dropout(p, train)?).map(|()| x.clone())
        })?
        .def_kernel("dropout(Tensor input, float p, bool train) -> Tensor", Tensor::dropout)?
        .def_kernel(
            "native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
            |x: &Tensor, p: f64, train: Option<bool>| x.native_dropout(p, train.unwrap_or(true)),
        )?;
    Ok(())
}

fn check_dropout(p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::argument("dropout", format!("dropout probability has to be between 0 and 1, but got {p}")))
}
