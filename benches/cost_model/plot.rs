//! The table as a picture: one dot per kernel, with its modelled time to the right and its measured time upwards.

use crate::Sample;
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
        .caption("Modelled and measured time of kernels", ("sans-serif", 20))
        .margin(12)
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
        .light_line_style(WHITE)
        .draw()?;
    // The diagonal, and the lines of three times as slow and as fast.
    for (factor, style) in [(1.0, BLACK.mix(0.6)), (3.0, BLACK.mix(0.25)), (1.0 / 3.0, BLACK.mix(0.25))] {
        let line = [AXIS.start, AXIS.end].map(|time| (time, time * factor));
        chart.draw_series(LineSeries::new(line, style))?;
    }
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    let dots = samples.iter().map(|sample| {
        let at = (micros(sample.modelled), micros(sample.measured));
        Circle::new(at, 2, BLUE.mix(0.5).filled())
    });
    chart.draw_series(dots)?;
    page.present()?;
    Ok(())
}
