//! A page of named rows, with columns of words and panels of bars beside each other, as one SVG.
//!
//! A program outside this folder includes it by its path, so the charts of all benchmarks have one look.

#[path = "look.rs"]
mod look;

use look::{BODY, GRID, INK, MARK, SERIES, SLOWER, TITLE, text};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;
use std::ops::Range;

type Drawn<T = ()> = Result<T, Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) struct Page {
    pub(crate) title: String,
    /// What the bars of a row are, from top to bottom.
    pub(crate) series: Vec<String>,
    /// What a red bar says, and what a mark says.
    pub(crate) slower: String,
    pub(crate) mark: String,
    pub(crate) n_rows: usize,
    pub(crate) columns: Vec<Column>,
}

pub(crate) enum Column {
    /// One line per row.
    Words { title: String, lines: Vec<String> },
    /// Panels share the width that words leave.
    Bars { title: String, axis: Axis, bars: Vec<Bar> },
}

#[derive(Clone)]
pub(crate) struct Axis {
    /// From the least value to the greatest; values outside end at the ends.
    pub(crate) ticks: Vec<f64>,
    /// Whether bars begin at 1 of a logarithmic axis, not at 0.
    pub(crate) is_log: bool,
}

pub(crate) struct Bar {
    pub(crate) row: usize,
    pub(crate) series: usize,
    /// No bar where there is none, but a mark may be.
    pub(crate) value: Option<f64>,
    pub(crate) whisker: Option<[f64; 2]>,
    pub(crate) mark: Option<f64>,
    /// Red, with its value written beside it.
    pub(crate) is_slower: bool,
}

/// All lengths are in pixels.
const WIDTH: i32 = 1180;
const MARGIN: i32 = 12;
/// Where the lines above the rows are, and the first row.
const LEGEND: i32 = 54;
const TITLES: i32 = 88;
const TOP: i32 = 122;
/// Ticks above the rows and below.
const TICKS: i32 = 22;
const BAR: i32 = 10;
const GAP: i32 = 8;
/// On both sides of a panel, for half a tick's label.
const PADDING: i32 = 18;
/// The least length of a bar, so that its colour is seen.
const LEAST: f64 = 2.0;
const BAND: RGBColor = RGBColor(246, 248, 250);

impl Axis {
    /// Powers of two around ratios, a half and two among them.
    pub(crate) fn of_ratios(ratios: impl Iterator<Item = f64>) -> Axis {
        let (mut least, mut most) = (-1_i32, 1_i32);
        for exponent in ratios.filter(|ratio| *ratio > 0.0).map(f64::log2) {
            least = least.min(exponent.floor().max(-4.0) as i32);
            most = most.max(exponent.ceil().min(7.0) as i32);
        }
        Axis { ticks: (least..=most).map(|exponent| 2_f64.powi(exponent)).collect(), is_log: true }
    }

    /// The position of a value; bars begin at position 0.
    fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.ticks[0], self.ticks[self.ticks.len() - 1]);
        if self.is_log { value.log2() } else { value }
    }
}

/// Of positions.
impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, at: &f64, limit: (i32, i32)) -> i32 {
        let range = self.range();
        let share = (at - range.start) / (range.end - range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|&tick| self.at(tick)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.at(self.ticks[0])..self.at(self.ticks[self.ticks.len() - 1])
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(at: &f64) -> String {
        at.to_string()
    }

    fn format_ext(&self, at: &f64) -> String {
        Axis::format(&if self.is_log { at.exp2() } else { *at })
    }
}

impl Page {
    pub(crate) fn svg(&self) -> Drawn<String> {
        let mut svg = String::new();
        let height = TOP + self.rows_height() + TICKS + MARGIN;
        let page = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        page.fill(&WHITE)?;
        page.draw(&Text::new(self.title.as_str(), (MARGIN, 26), at_left(TITLE)))?;
        self.legend(&page)?;
        self.bands(&page)?;
        let mut left = MARGIN;
        for column in &self.columns {
            left += self.column(&page, left, column)?;
        }
        page.present()?;
        drop(page);
        Ok(svg)
    }

    fn step(&self) -> i32 {
        BAR * self.series.len().max(1) as i32 + GAP
    }

    fn rows_height(&self) -> i32 {
        self.step() * self.n_rows as i32
    }

    fn shade(&self, shades: [RGBColor; 2], series: usize) -> RGBColor {
        if self.series.len() < 2 { shades[1] } else { shades[series % 2] }
    }

    fn legend(&self, page: &Area<'_>) -> Drawn {
        let mut left = MARGIN;
        for (series, name) in self.series.iter().enumerate() {
            left = entry(page, left, name, &[self.shade(SERIES, series)])?;
        }
        let n_shades = self.series.len().clamp(1, 2);
        left = entry(page, left, &self.slower, &SLOWER[2 - n_shades..])?;
        if !self.mark.is_empty() {
            page.draw(&line((left + 4, LEGEND - 6), (left + 4, LEGEND + 5), MARK.stroke_width(2)))?;
            page.draw(&Text::new(self.mark.as_str(), (left + 14, LEGEND), at_left(BODY)))?;
        }
        Ok(())
    }

    /// Every second row is shaded, so that an eye finds its way from the name to the bars.
    fn bands(&self, page: &Area<'_>) -> Drawn {
        for row in (0..self.n_rows as i32).step_by(2) {
            let top = TOP + row * self.step();
            page.draw(&Rectangle::new([(MARGIN / 2, top), (WIDTH - MARGIN / 2, top + self.step())], BAND.filled()))?;
        }
        Ok(())
    }

    /// Draws a column and returns its width.
    fn column(&self, page: &Area<'_>, left: i32, column: &Column) -> Drawn<i32> {
        match column {
            Column::Words { title, lines } => {
                page.draw(&Text::new(title.as_str(), (left, TITLES), at_left(BODY)))?;
                for (row, line) in lines.iter().enumerate() {
                    let middle = TOP + row as i32 * self.step() + self.step() / 2;
                    page.draw(&Text::new(line.as_str(), (left, middle), at_left(BODY)))?;
                }
                Ok(words_width(title, lines))
            }
            Column::Bars { title, axis, bars } => {
                let width = self.panel_width();
                page.draw(&Text::new(title.as_str(), (left + PADDING, TITLES), at_left(BODY)))?;
                let area = page.clone().shrink((left, TOP - TICKS), (width, self.rows_height() + 2 * TICKS));
                self.panel(&area, axis, bars, f64::from(width - 2 * PADDING))?;
                Ok(width)
            }
        }
    }

    fn panel_width(&self) -> i32 {
        let (mut left, mut n_panels) = (WIDTH - 2 * MARGIN, 0);
        for column in &self.columns {
            match column {
                Column::Words { title, lines } => left -= words_width(title, lines),
                Column::Bars { .. } => n_panels += 1,
            }
        }
        left / n_panels.max(1)
    }

    fn panel(&self, area: &Area<'_>, axis: &Axis, bars: &[Bar], pixels: f64) -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .margin_left(PADDING)
            .margin_right(PADDING)
            .set_label_area_size(LabelAreaPosition::Top, TICKS)
            .set_label_area_size(LabelAreaPosition::Bottom, TICKS)
            .build_cartesian_2d(axis.clone(), 0..self.rows_height())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .axis_style(GRID)
            .bold_line_style(GRID)
            .label_style(text(BODY))
            .set_all_tick_mark_size(3)
            .draw()?;
        let pixel = (axis.range().end - axis.range().start) / pixels;
        chart.draw_series(bars.iter().filter_map(|bar| self.bar(axis, bar, LEAST * pixel)))?;
        chart.draw_series([line((0.0, 0), (0.0, self.rows_height()), INK.into())])?;
        chart.draw_series(bars.iter().filter_map(|bar| {
            let [from, to] = bar.whisker?.map(|end| (axis.at(end), self.middle(bar)));
            Some(line(from, to, INK.into()))
        }))?;
        // White around a mark keeps it apart from the bar that it crosses.
        for style in [WHITE.stroke_width(4), MARK.stroke_width(2)] {
            chart.draw_series(bars.iter().filter_map(|bar| {
                let at = axis.at(bar.mark?);
                Some(line((at, self.top(bar)), (at, self.bottom(bar)), style))
            }))?;
        }
        let slower = bars.iter().filter(|bar| bar.is_slower);
        chart.draw_series(slower.filter_map(|bar| self.value(axis, bar, 2.0 * LEAST * pixel)))?;
        Ok(())
    }

    fn bar(&self, axis: &Axis, bar: &Bar, least: f64) -> Option<Rectangle<(f64, i32)>> {
        let at = axis.at(bar.value?);
        let end = if at < 0.0 { at.min(-least) } else { at.max(least) };
        let shade = self.shade(if bar.is_slower { SLOWER } else { SERIES }, bar.series);
        Some(Rectangle::new([(end.min(0.0), self.top(bar)), (end.max(0.0), self.bottom(bar))], shade.filled()))
    }

    /// The value of a bar in figures, to the left of everything else that is drawn of it.
    fn value(&self, axis: &Axis, bar: &Bar, gap: f64) -> Option<Text<'static, (f64, i32), String>> {
        let value = bar.value?;
        let least = bar.whisker.map_or(value, |ends| ends[0].min(value));
        let style = text(BODY - 2.0).color(&SLOWER[1]).pos(Pos::new(HPos::Right, VPos::Center));
        let at = (axis.at(least).min(0.0) - gap, self.middle(bar));
        Some(Text::new(format!("{value:.2}"), at, style))
    }

    /// Counted upwards, as plotters does.
    fn top(&self, bar: &Bar) -> i32 {
        self.rows_height() - bar.row as i32 * self.step() - GAP / 2 - bar.series as i32 * BAR
    }

    fn middle(&self, bar: &Bar) -> i32 {
        self.top(bar) - BAR / 2
    }

    fn bottom(&self, bar: &Bar) -> i32 {
        self.top(bar) - (BAR - 1)
    }
}

fn at_left(pixels: f64) -> TextStyle<'static> {
    text(pixels).pos(Pos::new(HPos::Left, VPos::Center))
}

fn words_width(title: &str, lines: &[String]) -> i32 {
    let longest = lines.iter().map(|line| width_of(line)).fold(width_of(title), i32::max);
    longest + 20
}

/// Letters are seven pixels wide or less, except for a few.
fn width_of(text: &str) -> i32 {
    7 * text.chars().count() as i32
}

fn line<At>(from: At, to: At, style: ShapeStyle) -> PathElement<At> {
    PathElement::new([from, to], style)
}

/// Draws a swatch of the shades with a name, and returns where the next entry begins.
fn entry(page: &Area<'_>, left: i32, name: &str, shades: &[RGBColor]) -> Drawn<i32> {
    let width = 18 / shades.len() as i32;
    for (place, shade) in shades.iter().enumerate() {
        let from = left + place as i32 * width;
        page.draw(&Rectangle::new([(from, LEGEND - 5), (from + width, LEGEND + 4)], shade.filled()))?;
    }
    page.draw(&Text::new(name, (left + 24, LEGEND), at_left(BODY)))?;
    Ok(left + 24 + width_of(name) + 16)
}
