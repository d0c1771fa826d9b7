//! Grouped bar charts: one group per value of the horizontal field, one bar per series, a whisker
//! from minimum to maximum.

use maud::{Markup, html};

use super::axis::{self, Frame, LETTER, px};
use super::marks::Swatch;
use super::scale::{Scale, Spacing};
use super::{Chart, Drawing};
use crate::fields;
use crate::select::{Summary, number, text};

struct Bar {
    group: usize,
    series: usize,
    values: Vec<f64>,
}

/// Draws the chart's series as bars.
pub(super) fn draw(chart: &Chart) -> Option<Drawing> {
    let mut groups: Vec<String> = Vec::new();
    let mut bars: Vec<Bar> = Vec::new();
    let mut left_out = 0;
    for selected in &chart.selection.rows {
        let value = number(&selected.row, &chart.plot.y).filter(|value| chart.y_spacing.accepts(*value));
        let (Some(name), Some(value)) = (text(&selected.row, &chart.plot.x), value) else {
            left_out += 1;
            continue;
        };
        let group = groups.iter().position(|group| *group == name).unwrap_or_else(|| {
            groups.push(name);
            groups.len() - 1
        });
        let value = value * chart.y_unit.factor;
        match bars.iter_mut().find(|bar| bar.group == group && bar.series == selected.series) {
            Some(bar) => bar.values.push(value),
            None => bars.push(Bar { group, series: selected.series, values: vec![value] }),
        }
    }
    if bars.is_empty() {
        return None;
    }
    let bars: Vec<(usize, usize, Summary)> =
        bars.into_iter().filter_map(|bar| Some((bar.group, bar.series, Summary::from_values(bar.values)?))).collect();
    let layout = Layout::new(chart, &groups, &bars);
    let svg = layout.draw(chart, &groups, &bars);
    Some(Drawing { svg, swatch: Swatch::Block, omitted: left_out })
}

struct Layout {
    frame: Frame,
    y: Scale,
    slos: Vec<(f64, String)>,
    /// Width of a group, including the gap to the next group.
    group_width: f64,
    /// Bars side by side in a group; 1 if the groups are the series.
    slots: usize,
}

impl Layout {
    fn new(chart: &Chart, groups: &[String], bars: &[(usize, usize, Summary)]) -> Layout {
        let highest = bars.iter().map(|(_, _, summary)| summary.max).fold(f64::MIN, f64::max);
        let slos = chart.slo_lines(highest);
        let mut frame = Frame::new(10.0, 48.0);
        let group_px = (frame.right - frame.left) / groups.len() as f64;
        if axis::slants(groups.iter().map(String::as_str), group_px) {
            frame = Frame::new(10.0, axis::slanted_height(group_px));
        }
        let values = bars.iter().flat_map(|(_, _, summary)| [summary.min, summary.max]);
        // Bars on a logarithmic axis start at its lower end, which must lie below all values.
        let floor = match chart.y_spacing {
            Spacing::Log => bars.iter().map(|(_, _, summary)| summary.min / 2.0).reduce(f64::min),
            Spacing::Linear => None,
        };
        let values = values.chain(slos.iter().map(|slo| slo.0)).chain(floor);
        let y = Scale::round(chart.y_spacing, values, frame.bottom, frame.top);
        let slots = if chart.plot.x == chart.plot.series { 1 } else { chart.selection.series.len().max(1) };
        Layout { frame, y, slos, group_width: group_px, slots }
    }

    fn draw(&self, chart: &Chart, groups: &[String], bars: &[(usize, usize, Summary)]) -> Markup {
        let center = |group: usize| self.frame.left + (group as f64 + 0.5) * self.group_width;
        let names: Vec<(String, f64)> =
            groups.iter().enumerate().map(|(index, name)| (name.clone(), center(index))).collect();
        let width = (self.group_width * 0.78 / self.slots as f64).min(46.0);
        // Names of variants need no axis title.
        let title = if ["label", "controller"].contains(&chart.plot.x.as_str()) { "" } else { &chart.x.name };
        let zero = self.y.pixel(0.0).unwrap_or(self.frame.bottom);
        html! {
            (axis::vertical(&self.frame, &self.y, &chart.y_title()))
            @for (group, series, summary) in bars {
                @let slot = if self.slots == 1 { 0 } else { *series };
                @let left = center(*group) + (slot as f64 - self.slots as f64 / 2.0) * width;
                @let drawn = &chart.selection.series[*series];
                @if let Some(top) = self.y.pixel(summary.median) {
                    g.hit {
                        title { (format!("{}\n{}\n{}", drawn.name, groups[*group],
                            summary.scale_by(1.0 / chart.y_unit.factor).format(chart.y.quantity))) }
                        rect.bar.(drawn.style.class()) x=(px(left + 0.75)) y=(px(top.min(zero))) width=(px((width - 1.5).max(0.5)))
                            height=(px((zero - top).abs())) rx="1.5" {}
                        (self.whisker(summary, left + width / 2.0))
                    }
                    (self.value(summary, left + width / 2.0, width))
                }
            }
            (axis::categories(&self.frame, &names, self.group_width, title))
            (super::reference_lines(&self.frame, &self.y, &self.slos))
            (super::reference_names(&self.frame, &self.y, &self.slos))
        }
    }

    fn whisker(&self, summary: &Summary, x: f64) -> Markup {
        let (Some(top), Some(bottom)) = (self.y.pixel(summary.max), self.y.pixel(summary.min)) else { return html! {} };
        html! {
            @if summary.count > 1 && bottom - top >= 1.0 {
                path.whisker d=(format!("M{0} {2}V{3}M{1} {2}h6M{1} {3}h6", px(x), px(x - 3.0), px(top), px(bottom))) {}
            }
        }
    }

    /// Draws the number above a bar, if it fits.
    fn value(&self, summary: &Summary, x: f64, width: f64) -> Markup {
        let label = fields::short(summary.median);
        let fits = label.chars().count() as f64 * LETTER <= width.max(self.group_width * 0.9 / self.slots as f64) + 2.0;
        let top = self.y.pixel(summary.max.max(0.0)).unwrap_or(self.frame.top);
        html! { @if fits { text.tick.middle.strong x=(px(x)) y=(px(top - 5.0)) { (label) } } }
    }
}
