//! The table as a picture: one dot per kernel, with its modelled time to the right and its measured time upwards.
//! Dots of kernels that take more than three times the modelled time are red.

#[path = "../chart/look.rs"]
mod look;

use crate::Sample;
use look::{BODY, GRID, INK, MARK, SERIES, SLOWER, TITLE, text};
use opfuse::{Error, Result};
use plotters::prelude::*;
use std::path::Path;

/// The times of both axes, in microseconds.
const AXIS: std::ops::Range<f64> = 0.05..100_000.0;

/// Draws the picture into an SVG file.
pub(crate) fn draw(path: &Path, samples: &[Sample]) -> Result<()> {
    dots(path, samples).map_err(|error| Error::File { path: path.display().to_string(), message: error.to_string() })
}

fn dots(path: &Path, samples: &[Sample]) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let page = SVGBackend::new(path, (720, 720)).into_drawing_area();
    page.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&page)
        .caption("Modelled and measured time of kernels", text(TITLE))
        .margin(12)
        .margin_right(32)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(AXIS.log_scale(), AXIS.log_scale())?;
    let micros = |time: &f64| format!("{time}");
    chart
        .configure_mesh()
        .x_desc("modelled, us")
        .y_desc("measured, us")
        .x_label_formatter(&micros)
        .y_label_formatter(&micros)
        .label_style(text(BODY))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .draw()?;
    // The diagonal, and the lines of three times as slow and as fast.
    // Each ends where it leaves the picture.
    let (start, end) = (AXIS.start, AXIS.end);
    for (line, width) in [
        ([(start, start), (end, end)], 2),
        ([(start, 3.0 * start), (end / 3.0, end)], 1),
        ([(3.0 * start, start), (end, end / 3.0)], 1),
    ] {
        chart.draw_series(LineSeries::new(line, MARK.stroke_width(width)))?;
    }
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    let dots = samples.iter().map(|sample| {
        let at = (micros(sample.modelled), micros(sample.measured));
        let shade = if at.1 > 3.0 * at.0 { SLOWER[1] } else { SERIES[1] };
        Circle::new(at, 2, shade.mix(0.6).filled())
    });
    chart.draw_series(dots)?;
    page.present()?;
    Ok(())
}
