//! Steps of image processing on a photograph: linear light, blur, edges, sharpening, equalization, size, color.
//!
//! `astronaut.npz` is Eileen Collins, photographed by NASA, which is in the public domain. scikit-image ships the
//! picture as `data.astronaut()`; here it has 144 × 144 pixels. SciPy's numbers are those of `ndimage`.

use crate::pictures;
use crate::run::{Run, data};
use opfuse::nn::{Border, Convolution, Interpolation};
use opfuse::{Index, Result, Tensor, cat, compile};

/// Light from the bytes of sRGB (IEC 61966-2-1): a power of 2.4, and a line near black.
fn linear_light(bytes: &Tensor) -> Result<Tensor> {
    let s = bytes.div(255.0)?;
    let power = s.add(0.055)?.div(1.055)?.pow(2.4)?;
    s.le(0.04045)?.where_(&s.div(12.92)?, &power)
}

/// The inverse of [`linear_light`], for pictures to look at.
fn srgb(light: &Tensor) -> Result<Tensor> {
    let power = light.clamp_min(0.0)?.pow(1.0 / 2.4)?.mul(1.055)?.sub(0.055)?;
    light.le(0.0031308)?.where_(&light.mul(12.92)?, &power)
}

/// Convolves each plane of `(planes, height, width)` with a column and a row. Edges are mirrors.
fn filtered(planes: &Tensor, down: &Tensor, across: &Tensor) -> Result<Tensor> {
    let (y, x) = (down.numel() as i64 / 2, across.numel() as i64 / 2);
    let padded = planes.border_pad([x, x, y, y], Border::Reflect)?.unsqueeze(1)?;
    let options = Convolution::default();
    let columns = padded.conv2d(&down.reshape([1, 1, -1, 1])?, None, &options)?;
    columns.conv2d(&across.reshape([1, 1, 1, -1])?, None, &options)?.squeeze(1)
}

/// A Gaussian of width 2, cut off after three widths.
fn blurred(planes: &Tensor) -> Result<Tensor> {
    let x = Tensor::arange(-6, 7, 1)?;
    let weights = x.square()?.div(-8.0)?.softmax(0)?;
    filtered(planes, &weights, &weights)
}

/// The length of the gradient (Sobel and Feldman 1968).
fn edges(light: &Tensor) -> Result<Tensor> {
    let (difference, average) = (Tensor::try_from([-1.0, 0.0, 1.0])?, Tensor::try_from([1.0, 2.0, 1.0])?);
    let light = light.unsqueeze(0)?;
    let down = filtered(&light, &difference, &average)?;
    let across = filtered(&light, &average, &difference)?;
    down.hypot(&across)?.squeeze(0)
}

/// What the blur takes away, once more (unsharp masking).
fn sharpened(planes: &Tensor, blurred: &Tensor) -> Result<Tensor> {
    planes.sub(blurred)?.mul(0.8)?.add(planes)?.clamp_min(0)?.clamp_max(1)
}

/// Each value becomes the share of pixels that are darker, so all values are about as frequent.
fn equalized(light: &Tensor) -> Result<Tensor> {
    let counts = light.histc(256, 0.0, 1.0)?;
    let share = counts.cumsum(0)?.div(light.numel() as i64)?;
    let bounds = Tensor::arange(1, 257, 1)?.div(256.0)?;
    light.interp(&bounds, &share)
}

/// The product of a matrix with the color of each pixel.
fn mixed(planes: &Tensor, matrix: [[f64; 3]; 3]) -> Result<Tensor> {
    Tensor::try_from(matrix)?.tensordot(planes, 1, 0)
}

/// CIE L*a*b* (ISO/CIE 11664-4) for the white D65, by way of XYZ.
fn lab(planes: &Tensor) -> Result<Tensor> {
    let xyz = mixed(
        planes,
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]],
    )?;
    let xyz = xyz.div(&Tensor::try_from([0.95047, 1.0, 1.08883])?.reshape([3, 1, 1])?)?;
    let line = xyz.mul((29.0f64 / 6.0).powi(2) / 3.0)?.add(4.0 / 29.0)?;
    let f = xyz.gt((6.0f64 / 29.0).powi(3))?.where_(&xyz.pow(1.0 / 3.0)?, &line)?;
    let l = mixed(&f, [[0.0, 116.0, 0.0], [500.0, -500.0, 0.0], [0.0, 200.0, -200.0]])?;
    l.sub(&Tensor::try_from([16.0, 0.0, 0.0])?.reshape([3, 1, 1])?)
}

/// All pictures, in the order of [`NAMES`].
fn pictures(bytes: &Tensor) -> Result<[Tensor; 7]> {
    let linear = linear_light(&bytes.permute([2, 0, 1])?)?;
    let blurred = blurred(&linear)?;
    let weights = Tensor::try_from([0.2126, 0.7152, 0.0722])?;
    let light = weights.tensordot(&linear, 0, 0)?;
    let side = linear.sizes()[1] as i64 / 2;
    let small = linear.unsqueeze(0)?.resize2d([side, side], Interpolation::Bilinear)?.squeeze(0)?;
    let sharp = sharpened(&linear, &blurred)?;
    let (edges, equal, lab) = (edges(&light)?, equalized(&light)?, lab(&linear)?);
    Ok([linear, blurred, edges, sharp, equal, small, lab])
}

const NAMES: [&str; 7] = ["linear", "blurred", "edges", "sharp", "equal", "small", "lab"];

/// Six pictures in two rows: the photograph, blurred, sharp; edges, equalized, lightness.
fn sheet([linear, blurred, edges, sharp, equal, _, lab]: &[Tensor; 7]) -> Result<Tensor> {
    let gray = |plane: &Tensor| plane.clamp_min(0)?.clamp_max(1)?.expand([3, -1, -1]);
    let above = cat(&[&srgb(linear)?, &srgb(blurred)?, &srgb(sharp)?], 2)?;
    let below =
        cat(&[&gray(&srgb(&edges.div(&edges.max_all()?)?)?)?, &gray(equal)?, &gray(&lab.i(0)?.div(100.0)?)?], 2)?;
    cat(&[&above, &below], 1)?.permute([1, 2, 0])
}

pub(crate) fn run(run: &Run) -> Result<()> {
    let bytes = &opfuse::load(data("astronaut.npz"))?["image"];
    let compiled = compile(pictures);
    let all = compiled.call(bytes)?;
    for (name, picture) in NAMES.iter().zip(&all) {
        let last = if picture.dim() == 3 { picture.permute([1, 2, 0])? } else { picture.clone() };
        run.check(name, &last.i((Index::step(.., 8), Index::step(.., 8)))?, 1e-10)?;
    }
    let report = compiled.explain();
    run.say(format!("{} pictures in {} kernels instead of {}", all.len(), report.kernels_after, report.kernels_before));
    run.race("all pictures", || pictures(bytes), || compiled.call(bytes))?;
    pictures::save_rgb(&run.file("photograph.png"), &sheet(&all)?)
}
