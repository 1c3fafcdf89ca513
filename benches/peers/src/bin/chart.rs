//! Draws a chart of the benchmarks: lines on standard input become an SVG on standard output.
//!
//! A line is a word and what belongs to it, with tabs between. Each `bar` belongs to the `row` above it.
//!
//! ```text
//! title   TEXT
//! series  NAME                            one per bar of a row, from top to bottom
//! slower  NAME                            what a bar below 1 says
//! mark    NAME                            what a mark says; may be left out
//! panel   TITLE                           one per panel, from left to right
//! row     ID      DESCRIPTION
//! bar     PANEL   SERIES  VALUE   MARK    panel and series count from 0; `-` stands for no bar and no mark
//! ```

#[path = "../../../chart/page.rs"]
mod page;

use page::{Axis, Bar, Column, Page};
use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

#[derive(Default)]
struct Request {
    title: String,
    series: Vec<String>,
    slower: String,
    mark: String,
    panels: Vec<(String, Vec<Bar>)>,
    ids: Vec<String>,
    descriptions: Vec<String>,
}

fn main() -> ExitCode {
    match draw() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // An error here cannot be reported anywhere.
            let _ = writeln!(io::stderr(), "the chart was not drawn: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    io::stdout().write_all(svg(&text)?.as_bytes())?;
    Ok(())
}

fn svg(text: &str) -> Result<String, Box<dyn Error>> {
    let mut request = Request::default();
    for (number, line) in text.lines().enumerate() {
        request.line(line).map_err(|problem| format!("line {}: {problem}: {line:?}", number + 1))?;
    }
    request.page().svg()
}

impl Request {
    fn line(&mut self, line: &str) -> Result<(), String> {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["title", text] => self.title = text.into(),
            ["series", name] => self.series.push(name.into()),
            ["slower", name] => self.slower = name.into(),
            ["mark", name] => self.mark = name.into(),
            ["panel", title] => self.panels.push((title.into(), Vec::new())),
            ["row", id, description] => {
                self.ids.push(id.into());
                self.descriptions.push(description.into());
            }
            ["bar", panel, series, value, mark] => {
                let row = self.ids.len().checked_sub(1).ok_or("a bar before the first row")?;
                let series = index(series, self.series.len(), "series")?;
                let panel = index(panel, self.panels.len(), "panel")?;
                let (value, mark) = (ratio(value)?, ratio(mark)?);
                let is_slower = value.is_some_and(|value| value < 1.0);
                self.panels[panel].1.push(Bar { row, series, value, whisker: None, mark, is_slower });
            }
            _ => return Err("no line of a chart".into()),
        }
        Ok(())
    }

    fn page(self) -> Page {
        let n_rows = self.ids.len();
        let words = |lines| Column::Words { title: String::new(), lines };
        let mut columns = vec![words(self.ids), words(self.descriptions)];
        // All panels have one axis, so that lengths can be compared.
        let ratios: Vec<f64> =
            self.panels.iter().flat_map(|(_, bars)| bars).flat_map(|bar| [bar.value, bar.mark]).flatten().collect();
        columns.extend(self.panels.into_iter().map(|(title, bars)| {
            let axis = Axis::of_ratios(ratios.iter().copied());
            Column::Bars { title, axis, bars }
        }));
        Page { title: self.title, series: self.series, slower: self.slower, mark: self.mark, n_rows, columns }
    }
}

fn index(text: &str, count: usize, what: &str) -> Result<usize, String> {
    let found = text.parse().ok().filter(|&index| index < count);
    found.ok_or_else(|| format!("{what} {text} of {count}"))
}

fn ratio(text: &str) -> Result<Option<f64>, String> {
    if text == "-" {
        return Ok(None);
    }
    let found = text.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0);
    found.map(Some).ok_or_else(|| format!("{text} is no ratio"))
}

#[cfg(test)]
mod tests {
    use super::svg;

    const HEAD: &str = "title\tA chart\nseries\t1 thread\nslower\tless\npanel\ttimes as fast\nrow\tW01\ta < b\n";

    #[test]
    fn bars_below_one_are_written_out() -> Result<(), Box<dyn std::error::Error>> {
        let drawn = svg(&format!("{HEAD}bar\t0\t0\t0.875\t2.5\nrow\tW02\tb\nbar\t0\t0\t3.5\t-\n"))?;
        for words in ["A chart", "1 thread", "less", "times as fast", "W01", "a &lt; b", "0.88", "W02"] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
        assert!(!drawn.contains("3.50"), "{drawn}");
        Ok(())
    }

    #[test]
    fn wrong_lines_are_named() {
        for (line, problem) in [
            ("bar\t1\t0\t1\t-", "panel 1 of 1"),
            ("bar\t0\t2\t1\t-", "series 2 of 1"),
            ("bar\t0\t0\tnan\t-", "nan is no ratio"),
            ("bars", "no line of a chart"),
        ] {
            let error = svg(&format!("{HEAD}{line}\n")).err().map(|error| error.to_string());
            assert!(
                error.as_ref().is_some_and(|error| error.starts_with("line 6: ") && error.contains(problem)),
                "{error:?}"
            );
        }
    }
}
