//! The spectrogram of a rising tone and a warble, and the signal again from it.
//!
//! Windows by Hann, Fourier transforms of each: Allen and Rabiner, "A Unified Approach to Short-Time Fourier Analysis
//! and Synthesis" (1977). SciPy's numbers are those of `signal.stft`.

use crate::plots;
use crate::run::Run;
use opfuse::{Index, Result, Tensor, compile};
use std::f64::consts::TAU;

/// Samples per second.
const RATE: i64 = 8000;
const SAMPLES: i64 = 16000;
const WINDOW: usize = 512;
const HOP: usize = 128;

/// `sin(2π (300 t + 800 t²))` rises from 300 to 3500 Hz; the warble stays near 2600 Hz.
fn signal(t: &Tensor) -> Result<Tensor> {
    let chirp = t.mul(300.0)?.add(&t.square()?.mul(800.0)?)?.mul(TAU)?.sin()?;
    let warble = t.mul(3.0 * TAU)?.sin()?.mul(60.0)?.add(&t.mul(2600.0 * TAU)?)?.sin()?;
    let loudness = t.mul(1.5 * TAU)?.sin()?.square()?.mul(0.5)?;
    chirp.add(&warble.mul(&loudness)?)
}

/// `sin²(π i / n)`.
fn hann() -> Result<Tensor> {
    let i = Tensor::arange(0, WINDOW as i64, 1)?;
    i.mul(TAU / 2.0 / WINDOW as f64)?.sin()?.square()
}

/// From −80 decibels to 0, as numbers from 0 to 1.
fn loudness(magnitude: &Tensor) -> Result<Tensor> {
    let part = magnitude.div(&magnitude.max_all()?)?;
    part.clamp_min(1e-4)?.log10()?.div(4.0)?.add(1.0)
}

pub(crate) fn run(run: &Run) -> Result<()> {
    let t = Tensor::arange(0, SAMPLES, 1)?.div(RATE)?;
    let window = hann()?;
    let sound = compile(signal).call(&t)?;
    let spectrum = |sound: &Tensor| sound.stft(WINDOW, HOP, Some(&window));
    let z = compile(spectrum).call(&sound)?;
    let magnitude = z.abs()?;
    run.check("magnitude", &magnitude.i((Index::step(.., 6), Index::step(.., 4)))?, 1e-12)?;

    let again = z.istft(WINDOW, HOP, Some(&window))?;
    let difference = again.sub(&sound)?.abs()?.max_all()?.item::<f64>()?;
    run.say(format!("{:?} numbers; the signal comes back within {difference:.0e}", z.sizes()));
    let powers = |sound: &Tensor| loudness(&spectrum(sound)?.abs()?);
    let compiled = compile(powers);
    run.race("a spectrogram", || powers(&sound), || compiled.call(&sound))?;

    let drawn = loudness(&magnitude)?.i((Index::step(.., 3), Index::step(.., 2)))?;
    let words = ["Loudness of a rising tone and a warble", "seconds", "Hz"];
    plots::map(&run.file("spectrogram.svg"), words, &drawn, (SAMPLES / RATE) as f64, (RATE / 2) as f64)
}
