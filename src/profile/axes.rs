//! Two axes with logarithmic scales, as SVG: operations per byte, and operations per nanosecond.

use std::fmt::{self, Write};

/// Width and height of a picture.
pub(crate) const SIZE: (f64, f64) = (840.0, 380.0);
/// What is left free of the picture: left, above, right, below.
pub(crate) const MARGINS: [f64; 4] = [60.0, 16.0, 150.0, 44.0];

/// The first and the last value of each axis, powers of ten.
pub(crate) struct Axes {
    pub(crate) x: (f64, f64),
    pub(crate) y: (f64, f64),
}

impl Axes {
    /// Axes with all of these values on them, and some room around. Values are positive.
    pub(crate) fn around(xs: impl Iterator<Item = f64>, ys: impl Iterator<Item = f64>) -> Axes {
        let span = |values: &mut dyn Iterator<Item = f64>| {
            let (low, high) = values.fold((f64::MAX, 1e-9_f64), |(low, high), value| (low.min(value), high.max(value)));
            let power = |exponent: f64| 10f64.powi(exponent as i32);
            (power((low.min(high) / 1.5).log10().floor()), power((high * 1.5).log10().ceil()))
        };
        let (mut xs, mut ys) = (xs, ys);
        Axes { x: span(&mut xs), y: span(&mut ys) }
    }

    /// Where a point lies in the picture.
    pub(crate) fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let share = |value: f64, (from, to): (f64, f64)| (value.max(from) / from).ln() / (to / from).ln();
        let [left, above, right, below] = MARGINS;
        let (width, height) = (SIZE.0 - left - right, SIZE.1 - above - below);
        (left + width * share(x, self.x), above + height * (1.0 - share(y, self.y)))
    }

    /// Writes the beginning of a picture: its element, and lines with numbers at the powers of ten.
    pub(crate) fn begin(&self, out: &mut String, label: &str) -> fmt::Result {
        let (width, height) = SIZE;
        writeln!(out, "<svg class=\"roofline\" role=\"img\" aria-label=\"{label}\" viewBox=\"0 0 {width} {height}\">")?;
        for x in powers(self.x) {
            self.line(out, "grid", (x, self.y.0), (x, self.y.1))?;
            let at = self.place((x, self.y.0)).0;
            writeln!(
                out,
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{x}</text>",
                height - MARGINS[3] + 16.0
            )?;
        }
        for y in powers(self.y) {
            self.line(out, "grid", (self.x.0, y), (self.x.1, y))?;
            let at = self.place((self.x.0, y)).1 + 4.0;
            writeln!(out, "<text x=\"{}\" y=\"{at:.1}\" text-anchor=\"end\">{y}</text>", MARGINS[0] - 6.0)?;
        }
        let middle = (width - MARGINS[2] + MARGINS[0]) / 2.0;
        writeln!(out, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">operations per byte</text>", height - 8.0)?;
        writeln!(
            out,
            "<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">operations per nanosecond</text>",
            (height - MARGINS[3] + MARGINS[1]) / 2.0
        )
    }

    /// Writes a line of this class.
    pub(crate) fn line(&self, out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) -> fmt::Result {
        let ((x, y), (to_x, to_y)) = (self.place(from), self.place(to));
        writeln!(out, "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\"></line>")
    }
}

fn powers((from, to): (f64, f64)) -> impl Iterator<Item = f64> {
    let exponent = |value: f64| value.log10().round() as i32;
    // Parsed rather than computed, so that 0.001 is printed as such.
    (exponent(from)..=exponent(to)).map(|power| format!("1e{power}").parse().expect("it is a number"))
}
