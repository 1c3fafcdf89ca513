//! The table as a picture: `target/fusion.svg`.
//!
//! The left panel shows how many times faster a workload is compiled, on a logarithmic axis. Its whiskers go from the
//! slowest median to the fastest. The column in the middle names the bytes of the ops one by one and of the kernels.
//! The right panel shows the bytes per second of a compiled run, and a mark for a triad over as much memory.

mod page;

use page::{Axis, Column, Page};
use std::error::Error;

/// A workload with one number of threads.
pub(crate) struct Bar {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    pub(crate) threads: usize,
    /// Eager time over compiled time: of the best chunks, and the least and greatest with medians.
    pub(crate) speed_up: [f64; 3],
    pub(crate) is_slower: bool,
    /// Bytes of the ops one by one, and of the kernels.
    pub(crate) bytes: [usize; 2],
    /// Bytes per second, of the compiled run and of a triad.
    pub(crate) rate: f64,
    pub(crate) triad: Option<f64>,
}

/// The picture; bars of one workload stand together, in the order given.
pub(crate) fn svg(bars: &[Bar]) -> Result<String, Box<dyn Error>> {
    let workloads: Vec<&[Bar]> = bars.chunk_by(|one, other| one.id == other.id).collect();
    let mut threads: Vec<usize> = bars.iter().map(|bar| bar.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let words = |title: &str, line: fn(&Bar) -> String| {
        let lines = workloads.iter().map(|bars| line(&bars[0])).collect();
        Column::Words { title: title.into(), lines }
    };
    let placed = |make: fn(&Bar, usize, usize) -> page::Bar| {
        let all = workloads.iter().enumerate().flat_map(|(row, bars)| bars.iter().map(move |bar| (row, bar)));
        let series = |bar: &Bar| threads.iter().position(|&count| count == bar.threads).unwrap_or(0);
        all.map(|(row, bar)| make(bar, row, series(bar))).collect()
    };
    let page = Page {
        title: "Compiled against eager".into(),
        series: threads.iter().map(|count| format!("{count} thread{}", if *count == 1 { "" } else { "s" })).collect(),
        slower: "slower compiled".into(),
        mark: "triad over as many bytes, same run".into(),
        n_rows: workloads.len(),
        columns: vec![
            words("", |bar| bar.id.into()),
            words("", |bar| bar.what.into()),
            Column::Bars {
                title: "times as fast (best chunks; whisker: medians)".into(),
                axis: Axis::of_ratios(bars.iter().flat_map(|bar| bar.speed_up)),
                bars: placed(speed_bar),
            },
            words("MB, ops → kernels", |bar| megabytes(bar.bytes)),
            Column::Bars { title: "GB/s of the kernels' bytes".into(), axis: rate_axis(bars), bars: placed(rate_bar) },
        ],
    };
    page.svg()
}

fn speed_bar(bar: &Bar, row: usize, series: usize) -> page::Bar {
    let [best, least, greatest] = bar.speed_up;
    let whisker = Some([least, greatest]);
    page::Bar { row, series, value: Some(best), whisker, mark: None, is_slower: bar.is_slower }
}

/// None where a triad measures nothing.
fn rate_bar(bar: &Bar, row: usize, series: usize) -> page::Bar {
    let mark = bar.triad.map(|rate| rate / 1e9);
    page::Bar { row, series, value: mark.map(|_| bar.rate / 1e9), whisker: None, mark, is_slower: false }
}

fn rate_axis(bars: &[Bar]) -> Axis {
    let drawn = bars.iter().filter_map(|bar| bar.triad.map(|triad| triad.max(bar.rate) / 1e9));
    let most = drawn.fold(1.0, f64::max);
    let step = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0].into_iter().find(|step| most / step <= 8.0).unwrap_or(200.0);
    Axis { ticks: (0..=(most / step).ceil() as usize).map(|tick| tick as f64 * step).collect(), is_log: false }
}

fn megabytes(bytes: [usize; 2]) -> String {
    let [before, after] = bytes.map(|bytes| bytes as f64 / 1e6);
    match before {
        ..1e-3 => "< 0.001".into(),
        ..0.5 => format!("{before:.3} → {after:.3}"),
        _ => format!("{before:.1} → {after:.1}"),
    }
}
