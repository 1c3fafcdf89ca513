//! How the charts of the benchmarks look: colours that read on white, and the font.

use plotters::prelude::*;

pub(crate) const INK: RGBColor = RGBColor(31, 35, 40);
pub(crate) const GRID: RGBColor = RGBColor(208, 215, 222);
/// What bars and dots are filled with, the first series and the second in turns.
pub(crate) const SERIES: [RGBColor; 2] = [RGBColor(138, 180, 248), RGBColor(52, 114, 200)];
/// The same of what is slower.
pub(crate) const SLOWER: [RGBColor; 2] = [RGBColor(244, 140, 140), RGBColor(200, 30, 45)];
/// What a figure is compared with.
pub(crate) const MARK: RGBColor = RGBColor(191, 87, 0);

/// The heights of letters, in pixels.
pub(crate) const TITLE: f64 = 17.0;
pub(crate) const BODY: f64 = 12.0;

/// Text of a height; the SVG backend divides sizes by 1.24.
pub(crate) fn text(pixels: f64) -> TextStyle<'static> {
    ("sans-serif", pixels * 1.24).into_font().color(&INK)
}
