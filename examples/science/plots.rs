//! Lines, points and maps with axes, as SVG files.

use crate::run::file_error;
use opfuse::{Result, Tensor};
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

/// Orange, blue, green.
const COLORS: [RGBColor; 3] = [RGBColor(230, 145, 30), RGBColor(30, 100, 200), RGBColor(20, 140, 90)];

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// A named list of points to draw.
pub(crate) struct Series<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
    form: Form,
}

enum Form {
    Line,
    Points,
}

impl<'a> Series<'a> {
    pub(crate) fn line(name: &'a str, points: Vec<(f64, f64)>) -> Series<'a> {
        Series { name, points, form: Form::Line }
    }

    pub(crate) fn points(name: &'a str, points: Vec<(f64, f64)>) -> Series<'a> {
        Series { name, points, form: Form::Points }
    }
}

/// Draws all series over the same axes. `words` are the title and the names of both axes.
pub(crate) fn plot(path: &Path, words: [&str; 3], all: &[Series]) -> Result<()> {
    draw(path, words, all).map_err(|error| file_error(path, error))
}

/// Draws a map of numbers from 0 to 1, whose first dim goes up and whose second one goes right.
pub(crate) fn map(path: &Path, words: [&str; 3], values: &Tensor, right: f64, up: f64) -> Result<()> {
    let rows = values.to_vec2::<f64>()?;
    draw_map(path, words, &rows, right, up).map_err(|error| file_error(path, error))
}

fn draw(path: &Path, [title, right, up]: [&str; 3], all: &[Series]) -> Drawn {
    let page = SVGBackend::new(path, (720, 480)).into_drawing_area();
    page.fill(&WHITE)?;
    let span = |part: fn(&(f64, f64)) -> f64| span(all.iter().flat_map(|series| &series.points).map(part));
    let mut chart = ChartBuilder::on(&page)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d(span(|point| point.0), with_room(span(|point| point.1)))?;
    chart.configure_mesh().x_desc(right).y_desc(up).light_line_style(WHITE).draw()?;
    for (at, series) in all.iter().enumerate() {
        let color = COLORS[at % COLORS.len()];
        let points = series.points.iter().copied();
        let drawn = match series.form {
            Form::Line => chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?,
            Form::Points => chart.draw_series(points.map(|point| Circle::new(point, 3, color.filled())))?,
        };
        drawn.label(series.name).legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], color.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    page.present()?;
    Ok(())
}

fn draw_map(path: &Path, [title, right, up]: [&str; 3], rows: &[Vec<f64>], width: f64, height: f64) -> Drawn {
    let page = SVGBackend::new(path, (720, 480)).into_drawing_area();
    page.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&page)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..width, 0.0..height)?;
    chart.configure_mesh().x_desc(right).y_desc(up).disable_mesh().draw()?;
    let row_height = height / rows.len() as f64;
    for (at, row) in rows.iter().enumerate() {
        let (low, cell_width) = (at as f64 * row_height, width / row.len() as f64);
        chart.draw_series(row.iter().enumerate().map(|(at, &value)| {
            let left = at as f64 * cell_width;
            let part = |from: f64| (255.0 * (3.0 * value - from).clamp(0.0, 1.0)) as u8;
            let color = RGBColor(part(0.0), part(1.0), part(2.0));
            Rectangle::new([(left, low), (left + cell_width, low + row_height)], color.filled())
        }))?;
    }
    page.present()?;
    Ok(())
}

/// The range with room for the names of series above it.
fn with_room(range: Range<f64>) -> Range<f64> {
    range.start..range.end + 0.25 * (range.end - range.start)
}

/// The range of numbers, and a little more on both sides.
fn span(numbers: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let (least, most) = (numbers.clone().fold(f64::INFINITY, f64::min), numbers.fold(f64::NEG_INFINITY, f64::max));
    let more = 0.05 * (most - least).max(1e-9);
    least - more..most + more
}
