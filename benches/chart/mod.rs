//! The table as a picture: `target/fusion.svg`, one file without outside parts, for light and dark pages.
//!
//! The left panel shows how many times faster a workload is compiled, on a logarithmic axis. Its whiskers go from the
//! slowest median to the fastest. The middle panel shows the bytes of the ops one by one and of the kernels. The right
//! panel shows the bytes per second of a compiled run, and a mark for a triad over as much memory.

use std::fmt::Write;

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

const WIDTH: f64 = 1180.0;
const TOP: f64 = 96.0;
const BAR: f64 = 9.0;
const GAP: f64 = 8.0;
/// From and to, of the two panels.
const SPEED: (f64, f64) = (220.0, 640.0);
const RATE: (f64, f64) = (800.0, 1150.0);
/// The speed-ups between which the axis lies; what is outside ends at its ends.
const LEAST: f64 = 0.4;
const TICKS: [f64; 7] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

const STYLE: &str = "
  svg { background: #ffffff; font: 12px system-ui, sans-serif; fill: #1f2328; }
  .quiet { fill: #656d76; } .grid { stroke: #d0d7de; } .one { stroke: #1f2328; }
  .t0 { fill: #8ab4f8; } .t1 { fill: #1a5fb4; } .slower { fill: #d1242f; }
  .whisker { stroke: #1f2328; } .triad { stroke: #bf5700; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; fill: #e6edf3; }
    .quiet { fill: #8d96a0; } .grid { stroke: #30363d; } .one { stroke: #e6edf3; }
    .t0 { fill: #1f4f94; } .t1 { fill: #6cb0ff; } .slower { fill: #f85149; }
    .whisker { stroke: #e6edf3; } .triad { stroke: #ffa657; }
  }
";

/// The picture; bars of one workload stand together, in the order given.
pub(crate) fn svg(bars: &[Bar]) -> String {
    let workloads: Vec<&[Bar]> = bars.chunk_by(|one, other| one.id == other.id).collect();
    let height = workloads.iter().map(|bars| bars.len() as f64 * BAR + GAP).sum::<f64>();
    let mut threads: Vec<usize> = bars.iter().map(|bar| bar.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let most = bars.iter().map(|bar| bar.rate.max(bar.triad.unwrap_or(0.0))).fold(1.0, f64::max);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{total}\" \
         viewBox=\"0 0 {WIDTH} {total}\">\n\
         <style>{STYLE}</style>\n<text x=\"12\" y=\"26\" font-size=\"17\">Compiled against eager</text>\n",
        total = TOP + height + 24.0
    );
    legend(&mut out, &threads);
    axes(&mut out, TOP + height, most);
    let mut top = TOP;
    for bars in workloads {
        workload(&mut out, bars, top, &threads, most);
        top += bars.len() as f64 * BAR + GAP;
    }
    out + "</svg>\n"
}

fn put(out: &mut String, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(out, "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}

fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(out, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
}

fn rect(out: &mut String, class: &str, (from, to): (f64, f64), y: f64, title: &str) {
    let (x, width) = (from.min(to), (to - from).abs().max(0.5));
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\">\
         <title>{title}</title></rect>",
        BAR - 1.0
    );
}

fn legend(out: &mut String, threads: &[usize]) {
    let mut x = SPEED.0 + 20.0;
    for (index, count) in threads.iter().enumerate() {
        rect(out, &class(index), (x, x + 18.0), 18.0, "");
        put(out, x + 24.0, 26.0, "", "start", &format!("{count} thread{}", if *count == 1 { "" } else { "s" }));
        x += 100.0;
    }
    rect(out, "slower", (x, x + 18.0), 18.0, "");
    put(out, x + 24.0, 26.0, "", "start", "slower compiled");
    line(out, "triad", (RATE.0, 17.0), (RATE.0, 27.0));
    put(out, RATE.0 + 8.0, 26.0, "", "start", "triad over as many bytes, same run");
}

fn class(index: usize) -> String {
    format!("t{}", index % 2)
}

fn axes(out: &mut String, bottom: f64, most: f64) {
    put(out, SPEED.0, 58.0, "quiet", "start", "times as fast (best chunks; whisker: medians)");
    put(out, 720.0, 58.0, "quiet", "middle", "MB, ops → kernels");
    put(out, RATE.0, 58.0, "quiet", "start", "GB/s of the kernels' bytes");
    for tick in TICKS {
        let x = speed(tick);
        line(out, if tick == 1.0 { "one" } else { "grid" }, (x, TOP - 12.0), (x, bottom));
        put(out, x, TOP - 18.0, "quiet", "middle", &format!("{tick}"));
    }
    let step = [5e9, 10e9, 20e9, 50e9, 100e9].into_iter().find(|step| most / step <= 8.0).unwrap_or(200e9);
    for index in 0..=(most / step) as usize {
        let x = rate(index as f64 * step, most);
        line(out, if index == 0 { "one" } else { "grid" }, (x, TOP - 12.0), (x, bottom));
        put(out, x, TOP - 18.0, "quiet", "middle", &format!("{}", index as f64 * step / 1e9));
    }
}

/// Where a speed-up lies.
fn speed(times: f64) -> f64 {
    let most = TICKS[TICKS.len() - 1];
    let share = (times.clamp(LEAST, most) / LEAST).ln() / (most / LEAST).ln();
    SPEED.0 + share * (SPEED.1 - SPEED.0)
}

fn rate(rate: f64, most: f64) -> f64 {
    RATE.0 + rate / most * (RATE.1 - RATE.0)
}

fn workload(out: &mut String, bars: &[Bar], top: f64, threads: &[usize], most: f64) {
    let Some(first) = bars.first() else { return };
    let middle = top + bars.len() as f64 * BAR / 2.0 + 4.0;
    put(out, 12.0, middle, "", "start", first.id);
    put(out, 58.0, middle, "quiet", "start", first.what);
    let [before, after] = first.bytes.map(|bytes| bytes as f64 / 1e6);
    let text = match before {
        ..1e-3 => "< 0.001".into(),
        ..0.5 => format!("{before:.3} → {after:.3}"),
        _ => format!("{before:.1} → {after:.1}"),
    };
    put(out, 720.0, middle, "", "middle", &text);
    for (index, bar) in bars.iter().enumerate() {
        let y = top + index as f64 * BAR;
        let place = threads.iter().position(|&count| count == bar.threads).unwrap_or(0);
        let [best, least, greatest] = bar.speed_up;
        let title = format!("{} on {}: {best:.2} times as fast ({least:.2} to {greatest:.2})", bar.id, bar.threads);
        let class = if bar.is_slower { "slower".into() } else { class(place) };
        rect(out, &class, (speed(1.0), speed(best)), y, &title);
        line(out, "whisker", (speed(least), y + 4.0), (speed(greatest), y + 4.0));
        let Some(triad) = bar.triad else { continue };
        let share = 100.0 * bar.rate / triad;
        let title = format!("{} on {}: {:.1} GB/s, {share:.0} % of a triad", bar.id, bar.threads, bar.rate / 1e9);
        rect(out, &self::class(place), (RATE.0, rate(bar.rate, most)), y, &title);
        line(out, "triad", (rate(triad, most), y - 0.5), (rate(triad, most), y + BAR - 0.5));
    }
}
