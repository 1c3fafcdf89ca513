//! Spectrograms: Fourier transforms of the windows of a signal, and the signal of a spectrogram.
//!
//! Signals are `(L)` or `(B, L)`; spectrograms are `(F, T)` or `(B, F, T)`, with `F` frequencies and `T` windows.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ops::composite::Composite;
use crate::ops::factories::{full_on, range_on};
use crate::ops::padding::pad;
use crate::tensor::handle::Tensor;

static STFT: Composite = Composite::new(
    "stft.center(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool \
     center=True, str pad_mode=\"reflect\", bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? \
     align_to_window=None) -> Tensor",
);
static ISTFT: Composite = Composite::new(
    "istft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True, \
     bool normalized=False, bool? onesided=None, int? length=None, bool return_complex=False) -> Tensor",
);

const NO_FLAG: Option<bool> = None;
const NO_SIZE: Option<i64> = None;

/// Spectrograms.
impl Tensor {
    /// The short-time Fourier transform: of windows of `n_fft` elements, `hop` apart, of a signal `(L)` or `(B, L)`. It
    /// is continued by reflection by half a window. The windows are multiplied by `window`, which has at most `n_fft`
    /// elements; dtypes are promoted, so an f64 window gives complex128. Where both are real there are `n_fft / 2 + 1`
    /// frequencies, and `n_fft` otherwise. The result is complex, `(F, T)` or `(B, F, T)`.
    ///
    /// # Errors
    /// If the signal is shorter than half a window, if `hop` is 0, or if the window is longer than `n_fft`.
    #[track_caller]
    pub fn stft(&self, n_fft: usize, hop: usize, window: Option<&Tensor>) -> Result<Tensor> {
        let size = window.map(|window| window.numel() as i64);
        let (n_fft, hop) = (n_fft as i64, Some(hop as i64));
        STFT.call((self, n_fft, hop, size, window, true, "reflect", false, NO_FLAG, Some(true), NO_FLAG))
    }

    /// The real signal whose [`Tensor::stft`] with these arguments is nearest to this spectrogram (Griffin and Lim
    /// 1984). Where the windows leave gaps, it is not finite. The dtype is that of the window and of the spectrogram's
    /// real parts, promoted.
    ///
    /// # Errors
    /// If the spectrogram does not have `n_fft / 2 + 1` frequencies, or as for [`Tensor::stft`].
    #[track_caller]
    pub fn istft(&self, n_fft: usize, hop: usize, window: Option<&Tensor>) -> Result<Tensor> {
        let size = window.map(|window| window.numel() as i64);
        let (n_fft, hop) = (n_fft as i64, Some(hop as i64));
        ISTFT.call((self, n_fft, hop, size, window, true, false, NO_FLAG, NO_SIZE, false))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(
            &STFT,
            |x: &Tensor,
             n_fft: i64,
             hop: Option<i64>,
             size: Option<i64>,
             window: Option<&Tensor>,
             center: bool,
             pad_mode: &str,
             normalized: bool,
             onesided: Option<bool>,
             return_complex: Option<bool>,
             _align_to_window: Option<bool>| {
                let frames = Frames::of("stft", x, (n_fft, hop, size), window)?;
                let signal = if center { frames.continued(x, pad_mode)? } else { x.clone() };
                frames.transformed(&signal, normalized, onesided, return_complex)
            },
        )?
        .def_kernel(
            "stft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool \
             normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor",
            |x: &Tensor,
             n_fft: i64,
             hop: Option<i64>,
             size: Option<i64>,
             window: Option<&Tensor>,
             normalized: bool,
             onesided: Option<bool>,
             return_complex: Option<bool>,
             _align_to_window: Option<bool>| {
                Frames::of("stft", x, (n_fft, hop, size), window)?.transformed(x, normalized, onesided, return_complex)
            },
        )?
        .composite(
            &ISTFT,
            |x: &Tensor,
             n_fft: i64,
             hop: Option<i64>,
             size: Option<i64>,
             window: Option<&Tensor>,
             center: bool,
             normalized: bool,
             onesided: Option<bool>,
             length: Option<i64>,
             return_complex: bool| {
                if return_complex || onesided == Some(false) {
                    let what = "complex signals are not supported; give the half of the frequencies of a real one";
                    return Err(Error::argument("istft", what));
                }
                Frames::of("istft", x, (n_fft, hop, size), window)?.signal(x, center, normalized, length)
            },
        )?;
    Ok(())
}

/// The windows of a signal.
struct Frames {
    op: &'static str,
    n_fft: usize,
    hop: usize,
    /// `n_fft` factors. `None` for ones.
    window: Option<Tensor>,
}

impl Frames {
    /// The windows for a signal or spectrogram `x`.
    fn of(
        op: &'static str,
        x: &Tensor,
        (n_fft, hop, size): (i64, Option<i64>, Option<i64>),
        window: Option<&Tensor>,
    ) -> Result<Frames> {
        let (hop, size) = (hop.unwrap_or(n_fft / 4), size.unwrap_or(n_fft));
        if n_fft < 1 || hop < 1 || !(1..=n_fft).contains(&size) {
            let what = format!("windows of {size} in {n_fft} elements, {hop} apart");
            return Err(Error::argument(op, format!("{what}, are impossible; all are positive, and windows fit")));
        }
        if let Some(window) = window.filter(|window| window.sizes() != [size as usize]) {
            let what = format!("the window has shape {:?}", window.sizes());
            return Err(Error::shape(op, what, format!("it is a vector of win_length = {size} elements")));
        }
        let before = (n_fft - size) / 2;
        let padded = |window: &Tensor| window.constant_pad_nd([before, n_fft - size - before], 0);
        let window = match window {
            Some(window) => Some(padded(window)?),
            None if size < n_fft => Some(padded(&ones_for(x, size as usize)?)?),
            None => None,
        };
        Ok(Frames { op, n_fft: n_fft as usize, hop: hop as usize, window })
    }

    /// The signal, continued at both ends by half a window.
    fn continued(&self, x: &Tensor, mode: &str) -> Result<Tensor> {
        let half = (self.n_fft / 2) as i64;
        pad(x, &[half, half], mode, None)
    }

    fn transformed(
        &self,
        x: &Tensor,
        normalized: bool,
        onesided: Option<bool>,
        return_complex: Option<bool>,
    ) -> Result<Tensor> {
        if !(1..=2).contains(&x.dim()) || x.sizes()[x.dim() - 1] < self.n_fft {
            let what = format!("a signal of shape {:?} has no window of {} elements", x.sizes(), self.n_fft);
            return Err(Error::shape(self.op, what, "signals are (L) or (B, L), and at least as long as a window"));
        }
        let frames = x.unfold(-1, self.n_fft, self.hop)?;
        let frames = match &self.window {
            Some(window) => frames.mul(window)?,
            None => frames,
        };
        let spectra = match (onesided.unwrap_or(!frames.is_complex()), frames.is_complex()) {
            (true, false) => frames.rfft(None, -1)?,
            (true, true) => {
                let hint = "a complex signal or window has no half of the frequencies; ask for all of them";
                return Err(Error::dtype(self.op, frames.dtype(), "real signals and windows", hint));
            }
            (false, _) => frames.fft(None, -1)?,
        };
        let spectra = if normalized { spectra.div((self.n_fft as f64).sqrt())? } else { spectra };
        let result = spectra.transpose(-2, -1)?;
        if return_complex == Some(false) { result.view_as_real() } else { Ok(result) }
    }

    /// The sum of the windows at their places, over the sum of the squares of their factors.
    fn signal(&self, x: &Tensor, center: bool, normalized: bool, length: Option<i64>) -> Result<Tensor> {
        let n_half = self.n_fft / 2 + 1;
        if !(2..=3).contains(&x.dim()) || x.sizes()[x.dim() - 2] != n_half || !x.is_complex() {
            let what = format!("a spectrogram is {} of shape {:?}", x.dtype(), x.sizes());
            return Err(Error::shape(self.op, what, format!("it is complex, ({n_half}, T) or (B, {n_half}, T)")));
        }
        let batch = if x.dim() == 2 { x.unsqueeze(0)? } else { x.clone() };
        let (n_batch, n_frames) = (batch.sizes()[0], batch.sizes()[2]);
        let frames = batch.transpose(1, 2)?.irfft(self.n_fft, -1)?;
        let frames = if normalized { frames.mul((self.n_fft as f64).sqrt())? } else { frames };
        let window = match &self.window {
            Some(window) if window.is_complex() => {
                let hint = "a complex window gives a complex signal; give a real one";
                return Err(Error::dtype(self.op, window.dtype(), "a real window", hint));
            }
            Some(window) => window.clone(),
            None => ones_for(x, self.n_fft)?,
        };
        let len = self.n_fft + self.hop * n_frames.saturating_sub(1);
        let starts = range_on(x.device(), 0, n_frames as i64, None)?.mul(self.hop as i64)?.unsqueeze(1)?;
        let places = starts.add(&range_on(x.device(), 0, self.n_fft as i64, None)?)?.reshape([-1])?;
        let added = |parts: &Tensor, rows: usize| {
            let zeros = full_on(x.device(), &[rows, len], 0.into(), Some(parts.dtype()))?;
            zeros.index_add(1, &places, &parts.reshape([rows as i64, -1])?)
        };
        let sum = added(&frames.mul(&window)?, n_batch)?;
        let weights = added(&window.square()?.expand(&[n_frames, self.n_fft][..])?, 1)?;
        let start = if center { self.n_fft / 2 } else { 0 };
        let end = match length {
            Some(length) => start.saturating_add(usize::try_from(length).unwrap_or(0)).min(len),
            None => len - start,
        };
        let cut = |x: &Tensor| x.narrow(1, start as i64, end.saturating_sub(start));
        let signal = cut(&sum)?.div(&cut(&weights)?)?;
        if x.dim() == 2 { signal.squeeze(0) } else { Ok(signal) }
    }
}

/// The window of ones, whose dtype does not widen `x`.
fn ones_for(x: &Tensor, size: usize) -> Result<Tensor> {
    full_on(x.device(), &[size], 1.into(), Some(x.dtype().part()))
}
