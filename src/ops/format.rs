//! Text of tensors.
//!
//! `Display` prints the elements as NumPy does: in nested brackets, aligned, and wrapped at [`LINE`] columns. Of more
//! than [`THRESHOLD`] elements it shows only [`EDGE`] at each end of every dim. A precision, as in `{:.2}`, gives the
//! number of digits of floats after the point. Bools are printed as in Rust, complex numbers as `1.+2.j`. `Debug`
//! prints the type and a few elements on one line. A tensor without data (on the meta device or in a trace) prints its
//! type. Neither ever fails.

use crate::ir::{DType, Layout, Scalar};
use crate::tensor::handle::Tensor;
use half::{bf16, f16};
use std::fmt;

/// A tensor with more elements is summarized.
const THRESHOLD: usize = 1000;
/// The number of elements shown at each end of a dim.
const EDGE: usize = 3;
/// The number of columns of a line.
const LINE: usize = 75;
/// The number of elements that `Debug` shows.
const SHORT: usize = 8;
/// The maximum number of digits after the point.
const PRECISION: usize = 8;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !is_readable(self) {
            return write!(f, "{} on {}", self.ty(), self.device());
        }
        if self.numel() == 0 {
            return f.write_str("[]");
        }
        let edge = if self.numel() > THRESHOLD { EDGE } else { usize::MAX };
        let real = shown_texts(self, 0, edge, f.precision());
        let text = match self.is_complex() {
            true => with_imaginary(real, shown_texts(self, 1, edge, f.precision())),
            false => real,
        };
        let mut out = String::new();
        nest(&mut out, self.sizes(), edge, 0, &mut text.into_iter());
        f.write_str(&out)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.ty(), self.device())?;
        if !is_readable(self) {
            return Ok(());
        }
        f.write_str(": [")?;
        let part = |position: usize, part: usize| {
            let layout = part_layout(self, part);
            plain(self.dtype().part(), element(self.as_real(), offset_of(&layout, position)))
        };
        for position in 0..self.numel().min(SHORT) {
            write!(f, "{}{}", if position == 0 { "" } else { ", " }, part(position, 0))?;
            if self.is_complex() {
                write!(f, "{}", imaginary(&part(position, 1)))?;
            }
        }
        f.write_str(if self.numel() > SHORT { ", …]" } else { "]" })
    }
}

/// The layout of one part of the elements: 0 is the real part, or the elements of a real tensor.
fn part_layout(tensor: &Tensor, part: usize) -> Layout {
    let mut layout = Layout::clone(&tensor.as_real().array().layout);
    if tensor.is_complex() {
        layout.sizes.pop();
        layout.offset += part * layout.strides.pop().unwrap_or(1);
    }
    layout
}

/// The texts of one part of the shown elements.
fn shown_texts(tensor: &Tensor, part: usize, edge: usize, digits: Option<usize>) -> Vec<String> {
    let (layout, dtype) = (part_layout(tensor, part), tensor.dtype().part());
    let mut shown = Vec::new();
    for_each_shown(&layout, 0, layout.offset, edge, &mut |offset| shown.push(element(tensor.as_real(), offset)));
    match (&shown[..], digits) {
        (elements, Some(digits)) if dtype.is_float() => rounded(elements, digits),
        ([number], _) if tensor.dim() == 0 => vec![lone(dtype, *number)],
        (elements, _) => aligned(dtype, elements),
    }
}

/// Complex numbers from the texts of their parts, of equal width.
fn with_imaginary(real: Vec<String>, imag: Vec<String>) -> Vec<String> {
    let imag: Vec<String> = imag.iter().map(|text| imaginary(text)).collect();
    let width = imag.iter().map(String::len).max().unwrap_or(0);
    let join = |(real, imag): (String, String)| format!("{real}{imag:>width$}");
    real.into_iter().zip(imag).map(join).collect()
}

/// An imaginary part with sign and `j`. Blanks after the number follow the `j`.
fn imaginary(text: &str) -> String {
    let number = text.trim();
    let blanks = text.len() - text.trim_end().len();
    let sign = if number.starts_with('-') { "" } else { "+" };
    format!("{sign}{number}j{:blanks$}", "")
}

/// Whether the elements can be read.
fn is_readable(tensor: &Tensor) -> bool {
    let array = tensor.as_real().array();
    tensor.has_data() && array.layout.extent() * array.dtype.size() <= array.storage.read(<[u8]>::len)
}

/// The element at a storage offset.
fn element(tensor: &Tensor, offset: usize) -> Scalar {
    let array = tensor.array();
    let width = array.dtype.size();
    array.storage.read(|bytes| scalar(array.dtype, &bytes[offset * width..(offset + 1) * width]))
}

fn scalar(dtype: DType, bytes: &[u8]) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(bytes[0] != 0),
        DType::U8 => Scalar::Int(bytes[0].into()),
        DType::I8 => Scalar::Int(read::<i8>(bytes).into()),
        DType::I16 => Scalar::Int(read::<i16>(bytes).into()),
        DType::I32 => Scalar::Int(read::<i32>(bytes).into()),
        DType::I64 => Scalar::Int(read::<i64>(bytes)),
        DType::F16 => Scalar::Float(read::<f16>(bytes).to_f64()),
        DType::BF16 => Scalar::Float(read::<bf16>(bytes).to_f64()),
        DType::F32 => Scalar::Float(read::<f32>(bytes).into()),
        DType::F64 => Scalar::Float(read(bytes)),
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

fn read<T: bytemuck::Pod>(bytes: &[u8]) -> T {
    bytemuck::pod_read_unaligned(bytes)
}

/// The shortest decimal that is read back as this element of a floating dtype, as f64.
fn decimal(dtype: DType, value: f64) -> f64 {
    let narrow = |x: f64| match dtype {
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::BF16 => bf16::from_f64(x).to_f64(),
        DType::F32 => (x as f32).into(),
        DType::F64 | DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => x,
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    };
    let reads_back = |digits: usize| {
        let decimal = format!("{value:.digits$e}").parse::<f64>().ok()?;
        (narrow(decimal) == value).then_some(decimal)
    };
    // Nine significant digits distinguish all f32. Rust prints the shortest decimal of an f64. A NaN or infinity is
    // returned unchanged.
    if dtype == DType::F64 { value } else { (0..9).find_map(reads_back).unwrap_or(value) }
}

/// The storage offset of the element at `position` in row-major order.
fn offset_of(layout: &Layout, mut position: usize) -> usize {
    let mut offset = layout.offset;
    for (size, stride) in layout.sizes.iter().zip(&layout.strides).rev() {
        offset += position % size * stride;
        position /= size;
    }
    offset
}

/// The indices of a dim that are shown.
fn shown_indices(size: usize, edge: usize) -> impl Iterator<Item = usize> {
    let (head, tail) = if is_cut(size, edge) { (edge, size - edge) } else { (size, size) };
    (0..head).chain(tail..size)
}

fn is_cut(size: usize, edge: usize) -> bool {
    size > edge.saturating_mul(2)
}

fn for_each_shown(layout: &Layout, dim: usize, offset: usize, edge: usize, visit: &mut impl FnMut(usize)) {
    let Some(&size) = layout.sizes.get(dim) else { return visit(offset) };
    for index in shown_indices(size, edge) {
        for_each_shown(layout, dim + 1, offset + index * layout.strides[dim], edge, visit);
    }
}

/// The elements as texts of equal width.
fn aligned(dtype: DType, elements: &[Scalar]) -> Vec<String> {
    if !dtype.is_float() {
        let width = if dtype == DType::Bool { "false".len() } else { 0 };
        let texts: Vec<String> = elements.iter().map(|&element| format!("{:>width$}", plain(dtype, element))).collect();
        return padded(texts.into_iter().map(|text| (text, String::new())).collect());
    }
    let exact = elements.iter().map(|element| element.as_f64());
    let values = exact.clone().map(|value| decimal(dtype, value));
    let magnitudes = || values.clone().filter(|value| value.is_finite() && *value != 0.0).map(f64::abs);
    let (least, greatest) = (magnitudes().fold(f64::INFINITY, f64::min), magnitudes().fold(0.0, f64::max));
    let is_scientific = greatest >= limit(dtype) || (greatest > 0.0 && (least < 1e-4 || greatest / least > 1000.0));
    if !is_scientific {
        return padded(values.zip(exact).map(|(value, exact)| fixed(value, exact)).collect());
    }
    let digits = values.clone().map(mantissa_digits).max().unwrap_or(0);
    let power_digits = values.clone().map(power_digits).max().unwrap_or(0);
    // An element with fewer digits than its neighbours shows more of its own digits, not zeros.
    padded(exact.map(|value| scientific(value, digits, power_digits)).collect())
}

/// Floats with so many digits after the point, as texts of equal width.
fn rounded(elements: &[Scalar], digits: usize) -> Vec<String> {
    let text = |element: &Scalar| match element.as_f64() {
        value if value.is_finite() => format!("{value:.digits$}"),
        value => special(value),
    };
    let texts: Vec<String> = elements.iter().map(text).collect();
    let width = texts.iter().map(String::len).max().unwrap_or(0);
    texts.into_iter().map(|text| format!("{text:>width$}")).collect()
}

/// From here on a decimal would show digits before the point that the dtype does not have.
fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 | DType::BF16 => 1e3,
        DType::F32 => 1e6,
        DType::F64 | DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => 1e8,
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

/// A number without neighbours: a decimal, unless it is very large or very small.
fn lone(dtype: DType, element: Scalar) -> String {
    let value = decimal(dtype, element.as_f64());
    let is_decimal = !dtype.is_float() || value == 0.0 || !value.is_finite() || (1e-4..1e16).contains(&value.abs());
    if is_decimal {
        return plain(dtype, element);
    }
    let (whole, rest) = scientific(value, mantissa_digits(value), power_digits(value));
    format!("{whole}{}", rest.strip_prefix(".e").map_or(rest.clone(), |power| format!("e{power}")))
}

/// A decimal, split at the point. If it has too many digits, the `number` that it stands for.
fn fixed(value: f64, number: f64) -> (String, String) {
    if !value.is_finite() {
        return (special(value), String::new());
    }
    let all = format!("{value}");
    let rounded = format!("{number:.PRECISION$}");
    let text = if all.len() <= rounded.len() { all } else { rounded.trim_end_matches('0').to_string() };
    match text.split_once('.') {
        Some((whole, fraction)) => (whole.into(), format!(".{fraction}")),
        None => (text, ".".into()),
    }
}

/// The number of digits after the point in the mantissa of a decimal.
fn mantissa_digits(value: f64) -> usize {
    let digits = |text: &str| {
        let mantissa = text.split('e').next().unwrap_or_default();
        mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.trim_end_matches('0').len())
    };
    let exact = digits(&format!("{value:e}"));
    if exact <= PRECISION { exact } else { digits(&format!("{value:.PRECISION$e}")) }
}

/// The number of digits of the power of ten of a decimal, at least two.
fn power_digits(value: f64) -> usize {
    let text = format!("{value:.PRECISION$e}");
    text.split_once('e').map_or(2, |(_, power)| power.trim_start_matches('-').len().max(2))
}

fn scientific(value: f64, digits: usize, power_digits: usize) -> (String, String) {
    if !value.is_finite() {
        return (special(value), String::new());
    }
    let text = format!("{value:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (sign, power) = exponent.strip_prefix('-').map_or(('+', exponent), |power| ('-', power));
    (whole.into(), format!(".{fraction}e{sign}{power:0>power_digits$}"))
}

fn special(value: f64) -> String {
    if value.is_nan() { "nan".into() } else { format!("{value}") }
}

/// Aligns the points: pads with blanks before the integer part and after the fraction.
fn padded(parts: Vec<(String, String)>) -> Vec<String> {
    let before = parts.iter().filter(|(_, tail)| !tail.is_empty()).map(|(head, _)| head.len()).max().unwrap_or(0);
    let after = parts.iter().map(|(_, tail)| tail.len()).max().unwrap_or(0);
    let bare = parts.iter().filter(|(_, tail)| tail.is_empty()).map(|(head, _)| head.len()).max().unwrap_or(0);
    let width = (before + after).max(bare);
    let join = |(head, tail): (String, String)| match tail.is_empty() {
        true => format!("{head:>width$}"),
        false => format!("{:>width$}", format!("{head}{tail:<after$}")),
    };
    parts.into_iter().map(join).collect()
}

/// One element without alignment.
fn plain(dtype: DType, element: Scalar) -> String {
    match (dtype.is_float(), element) {
        (true, element) => {
            let value = decimal(dtype, element.as_f64());
            if value.is_nan() { "nan".into() } else { format!("{value:?}") }
        }
        (false, element) => format!("{element}"),
    }
}

/// Writes nested brackets, from dim `depth` on, around the texts.
fn nest(out: &mut String, sizes: &[usize], edge: usize, depth: usize, texts: &mut impl Iterator<Item = String>) {
    let Some((&size, inner)) = sizes.split_first() else {
        out.extend(texts.next());
        return;
    };
    let indent = " ".repeat(depth + 1);
    // Matrices are separated by blank lines, one fewer than the number of inner dims.
    let separator = if inner.is_empty() { String::new() } else { format!("{}{indent}", "\n".repeat(inner.len())) };
    let mut column = depth + 1;
    let mut push = |out: &mut String, is_first: bool, item: &str| {
        if inner.is_empty() {
            // Leaves room for the closing brackets.
            let wraps = column + 1 + item.len() + depth + 1 > LINE && !is_first;
            out.push_str(if is_first || wraps { "" } else { " " });
            if wraps {
                let end = out.trim_end().len();
                out.truncate(end);
                out.push('\n');
                out.push_str(&indent);
                column = depth + 1;
            }
            column += item.len() + usize::from(!is_first && !wraps);
        } else if !is_first {
            out.push_str(&separator);
        }
        out.push_str(item);
    };
    out.push('[');
    for (position, index) in shown_indices(size, edge).enumerate() {
        if position == edge && is_cut(size, edge) {
            push(out, false, "...");
        }
        let mut item = String::new();
        nest(&mut item, inner, edge, depth + 1, texts);
        push(out, index == 0, &item);
    }
    out.push(']');
}
