//! A chart of figures over steps, as an SVG file.

use opfuse::{Error, Result};
use plotters::prelude::*;
use std::path::{Path, PathBuf};

/// Draws named lines, each of `(step, figure)`, into `target/NAME.svg`. Returns the path.
pub(crate) fn chart(name: &str, title: &str, lines: &[(&str, Vec<(usize, f32)>)]) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    let path = folder.join(format!("{name}.svg"));
    let drawn = std::fs::create_dir_all(folder).map_err(Into::into).and_then(|()| draw(&path, title, lines));
    drawn.map_err(|error| Error::File { path: path.display().to_string(), message: error.to_string() })?;
    Ok(path)
}

fn draw(
    path: &Path,
    title: &str,
    lines: &[(&str, Vec<(usize, f32)>)],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let last = points().map(|&(step, _)| step).max().unwrap_or(0).max(1);
    let least = points().map(|&(_, figure)| figure).fold(0.0, f32::min);
    let most = points().map(|&(_, figure)| figure).fold(least + 1e-3, f32::max);
    let page = SVGBackend::new(path, (720, 420)).into_drawing_area();
    page.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&page)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(0..last, least..most * 1.05)?;
    chart.configure_mesh().x_desc("step").light_line_style(WHITE).draw()?;
    for (at, (name, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(at).to_rgba();
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
        chart
            .draw_series(line)?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK.mix(0.3)).draw()?;
    page.present()?;
    Ok(())
}
