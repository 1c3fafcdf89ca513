//! Pictures of times: kernels in the order of a call, and their rates below the roof of one thread.

use super::html::{colour, time};
use super::{Explain, Group};
use crate::escaped::Escaped;
use crate::profile::axes::Axes;
use std::fmt::{self, Write};
use std::time::Duration;

/// The most kernels whose numbers stand in their dots.
const MAX_NAMED: usize = 60;
/// The share of a call above which a slice shows its number.
const NAMED_SHARE: f64 = 0.025;

/// Writes the kernels of a call side by side, as wide as their times.
pub(super) fn timeline(out: &mut String, explain: &Explain) -> fmt::Result {
    if explain.groups.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<h3>Timeline</h3>\n<p>The kernels of one call in the order in which they run, as wide as their time. Modelled \
         times are those of one thread.</p>"
    )?;
    let measured: Option<Vec<Duration>> =
        explain.groups.iter().map(|group| group.measured.map(|measured| measured.least)).collect();
    let modelled = explain.groups.iter().map(|group| group.modelled_time).collect();
    for (name, times) in [("measured", measured), ("modelled", Some(modelled))] {
        if let Some(times) = times {
            lane(out, name, &explain.groups, &times)?;
        }
    }
    Ok(())
}

fn lane(out: &mut String, name: &str, groups: &[Group], times: &[Duration]) -> fmt::Result {
    let all: Duration = times.iter().sum();
    let longest = (0..times.len()).max_by_key(|&at| times[at]).unwrap_or(0);
    write!(out, "<div class=\"lane\"><span>{name}: {}</span>", time(all))?;
    write!(
        out,
        "<div class=\"bars\" role=\"img\" aria-label=\"Timeline, {name}: {} in all, the longest is kernel {longest} \
         with {}\">",
        time(all),
        time(times[longest])
    )?;
    for (group, &took) in groups.iter().zip(times) {
        let share = took.as_secs_f64() / all.as_secs_f64().max(1e-12);
        let (index, colour) = (group.index, colour(group.index));
        let shown = if share > NAMED_SHARE { index.to_string() } else { String::new() };
        write!(
            out,
            "<span class=\"slice\" data-group=\"{index}\" style=\"flex-grow:{};background:{colour}\" title=\"kernel \
             {index}: {}, {:.1} %\">{shown}</span>",
            took.as_nanos(),
            time(took),
            100.0 * share
        )?;
    }
    writeln!(out, "</div></div>")
}

/// A kernel in the roofline.
struct Dot<'a> {
    group: &'a Group,
    /// Operations per byte.
    intensity: f64,
    /// Operations per nanosecond, as measured and by the cost model.
    measured: Option<f64>,
    modelled: f64,
}

impl Dot<'_> {
    fn of(group: &Group) -> Option<Dot<'_>> {
        let rate = |time: Duration| group.operations / (time.as_nanos() as f64).max(1.0);
        (group.operations > 0.0 && group.bytes() > 0).then(|| Dot {
            group,
            intensity: group.operations / group.bytes() as f64,
            measured: group.measured.map(|measured| rate(measured.least)),
            modelled: rate(group.modelled_time),
        })
    }
}

/// Writes the rate of each kernel over its operations per byte, below what one thread can do at most.
pub(super) fn roofline(out: &mut String, explain: &Explain) -> fmt::Result {
    let dots: Vec<Dot> = explain.groups.iter().filter_map(Dot::of).collect();
    if dots.is_empty() {
        return Ok(());
    }
    let rates = &explain.calibration.rates;
    let giga = |rate: u32| f64::from(rate.max(1)) / 1000.0;
    let slopes = [("cache", giga(rates.bandwidth[0])), ("memory", giga(rates.bandwidth[3]))];
    let ceilings = [
        ("multiply-adds", 2.0 * giga(rates.multiply_adds)),
        ("plain operations", giga(rates.plain)),
        ("functions", giga(rates.functions)),
    ];
    let top = ceilings[0].1.max(ceilings[1].1);
    let (knee, rates) = (top / slopes[1].1, dots.iter().flat_map(|dot| dot.measured.into_iter().chain([dot.modelled])));
    let axes = Axes::around(dots.iter().map(|dot| dot.intensity).chain([0.1, 2.0 * knee]), rates.chain([1.0, top]));
    writeln!(
        out,
        "<h3>Roofline</h3>\n<p>A dot is a kernel: how fast it computes, over the operations that it has for each byte. \
         Rings are what the cost model expects of one thread. Lines are the most that one thread can do by its rates \
         ({}). Kernels on several threads may be above them.</p>",
        Escaped(&explain.calibration.source.to_string())
    )?;
    let label = format!("Roofline: rates of {} kernels; the table of kernels has bytes and times", dots.len());
    axes.begin(out, &label)?;
    for (class, (name, bandwidth)) in ["low", "roof"].into_iter().zip(slopes) {
        let end = (top / bandwidth).min(axes.x.1);
        axes.line(out, class, (axes.x.0, axes.x.0 * bandwidth), (end, end * bandwidth))?;
        // Below the line and to the right, where it leaves room.
        let (x, y) = axes.place((axes.x.0 * 1.3, axes.x.0 * 1.2 * bandwidth));
        writeln!(out, "<text class=\"name\" x=\"{x:.1}\" y=\"{:.1}\">{name}: {bandwidth:.0} GB/s</text>", y + 12.0)?;
    }
    for (class, (name, ceiling)) in ["roof", "low", "low"].into_iter().zip(ceilings) {
        axes.line(out, class, (ceiling / slopes[0].1, ceiling), (axes.x.1, ceiling))?;
        let (x, y) = axes.place((axes.x.1, ceiling));
        writeln!(out, "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{name}: {ceiling:.0}</text>", x + 6.0, y + 4.0)?;
    }
    dots.iter().try_for_each(|dot| mark(out, &axes, dot, dots.len() <= MAX_NAMED))?;
    writeln!(out, "</svg>")
}

fn mark(out: &mut String, axes: &Axes, dot: &Dot, is_named: bool) -> fmt::Result {
    let index = dot.group.index;
    let modelled = axes.place((dot.intensity, dot.modelled));
    let at = dot.measured.map_or(modelled, |measured| axes.place((dot.intensity, measured)));
    let (rate, what) = dot.measured.map_or((dot.modelled, "modelled"), |measured| (measured, "measured"));
    let (x, y) = modelled;
    write!(out, "<ellipse class=\"model\" cx=\"{x:.1}\" cy=\"{y:.1}\" rx=\"5\" ry=\"5\"></ellipse>")?;
    write!(
        out,
        "<g class=\"dot\" data-group=\"{index}\"><title>kernel {index}: {:.2} operations per byte, {rate:.2} per \
         nanosecond {what}</title><ellipse cx=\"{:.1}\" cy=\"{:.1}\" rx=\"9\" ry=\"9\" fill=\"{}\"></ellipse>",
        dot.intensity,
        at.0,
        at.1,
        colour(index)
    )?;
    if is_named {
        write!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{index}</text>", at.0, at.1 + 4.0)?;
    }
    writeln!(out, "</g>")
}
