//! Layout of the boxes of a picture, in layers from top to bottom, so that arrows point down.
//!
//! A box is below everything it uses. A box that uses nothing is right above its first user. In a layer, boxes are
//! ordered by the mean position of their neighbours, in a fixed number of sweeps. An arrow that skips layers gets a
//! lane through each of them, unless it skips too many.

/// Horizontal space between boxes, and vertical space between layers.
const GAP: (f64, f64) = (24.0, 44.0);
/// Number of sweeps down and up.
const SWEEPS: usize = 6;
/// Width of the lane of an arrow.
const LANE: f64 = 8.0;
/// The maximum number of layers that an arrow has lanes through.
const MAX_LANES: usize = 16;

/// The positions of boxes and lanes.
pub(super) struct Positions {
    /// The upper left corner of each box.
    pub(super) corners: Vec<(f64, f64)>,
    /// For each arrow, the upper ends of its lanes.
    pub(super) lanes: Vec<Vec<(f64, f64)>>,
    /// Width and height of the picture.
    pub(super) size: (f64, f64),
}

/// Places boxes of these widths and equal height. An arrow leads from an earlier box to a later one.
pub(super) fn positions(widths: &[f64], height: f64, arrows: &[(usize, usize)]) -> Positions {
    let n_boxes = widths.len();
    let mut layer_of = layers(n_boxes, arrows);
    let mut widths = widths.to_vec();
    // Lanes are boxes too. They follow the real ones.
    let mut lanes_of: Vec<Vec<usize>> = Vec::new();
    let mut steps: Vec<(usize, usize)> = Vec::new();
    for &(from, to) in arrows {
        let skipped = layer_of[from] + 1..layer_of[to];
        let skipped = if skipped.len() <= MAX_LANES { skipped } else { 0..0 };
        let lanes: Vec<usize> = (widths.len()..widths.len() + skipped.len()).collect();
        widths.extend(lanes.iter().map(|_| LANE));
        layer_of.extend(skipped);
        let stops: Vec<usize> = [from].into_iter().chain(lanes.iter().copied()).chain([to]).collect();
        steps.extend(stops.windows(2).map(|two| (two[0], two[1])));
        lanes_of.push(lanes);
    }
    let centres = centres(&widths, &layer_of, &steps);
    let edge = |index: usize| centres[index] - widths[index] / 2.0;
    let left = (0..widths.len()).map(edge).fold(0.0, f64::min);
    let right = (0..widths.len()).map(|index| edge(index) + widths[index]).fold(0.0, f64::max);
    let top = |index: usize| layer_of[index] as f64 * (height + GAP.1);
    let bottom = (0..n_boxes).map(|index| top(index) + height).fold(0.0, f64::max);
    let corners = (0..n_boxes).map(|index| (edge(index) - left, top(index))).collect();
    let lanes = lanes_of.into_iter();
    let lanes = lanes.map(|lanes| lanes.into_iter().map(|lane| (centres[lane] - left, top(lane))).collect()).collect();
    Positions { corners, lanes, size: (right - left, bottom) }
}

/// The centre of each box, after the boxes of every layer were ordered.
fn centres(widths: &[f64], layer_of: &[usize], arrows: &[(usize, usize)]) -> Vec<f64> {
    let n_layers = layer_of.iter().max().map_or(0, |last| last + 1);
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); n_layers];
    for (index, &layer) in layer_of.iter().enumerate() {
        layers[layer].push(index);
    }
    let (mut above, mut below) = (vec![Vec::new(); widths.len()], vec![Vec::new(); widths.len()]);
    for &(from, to) in arrows {
        above[to].push(from);
        below[from].push(to);
    }
    let mut centres = vec![0.0; widths.len()];
    layers.iter().for_each(|layer| pack(layer, widths, &mut centres));
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let neighbours = if down { &above } else { &below };
        for index in 0..n_layers {
            let layer = &mut layers[if down { index } else { n_layers - 1 - index }];
            let mean = |&node: &usize| match neighbours[node].len() {
                0 => centres[node],
                n => neighbours[node].iter().map(|&other: &usize| centres[other]).sum::<f64>() / n as f64,
            };
            layer.sort_by(|a, b| mean(a).total_cmp(&mean(b)).then(a.cmp(b)));
            pack(layer, widths, &mut centres);
        }
    }
    centres
}

fn layers(n_boxes: usize, arrows: &[(usize, usize)]) -> Vec<usize> {
    let mut layer_of: Vec<usize> = vec![0; n_boxes];
    let mut has_operands = vec![false; n_boxes];
    // Arrows lead forwards, so in order of their ends the layer of every start is final.
    let mut sorted = arrows.to_vec();
    sorted.sort_unstable_by_key(|&(from, to)| (to, from));
    for &(from, to) in &sorted {
        layer_of[to] = layer_of[to].max(layer_of[from] + 1);
        has_operands[to] = true;
    }
    for index in (0..n_boxes).filter(|&index| !has_operands[index]) {
        let first = arrows.iter().filter(|(from, _)| *from == index).map(|&(_, to)| layer_of[to]).min();
        layer_of[index] = first.map_or(0, |first| first.saturating_sub(1));
    }
    layer_of
}

fn width(layer: &[usize], widths: &[f64]) -> f64 {
    let gaps = GAP.0 * layer.len().saturating_sub(1) as f64;
    layer.iter().map(|&index| widths[index]).sum::<f64>() + gaps
}

/// Places the boxes of a layer side by side, centred at 0.
fn pack(layer: &[usize], widths: &[f64], centres: &mut [f64]) {
    let mut left = -width(layer, widths) / 2.0;
    for &index in layer {
        centres[index] = left + widths[index] / 2.0;
        left += widths[index] + GAP.0;
    }
}
