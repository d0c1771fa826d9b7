//! The four charts of the live view over the run: goodput, 99th percentile, credits and queueing
//! delay.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Borders, Chart, Dataset, GraphType, Paragraph};

use super::events::{RunInfo, RunSample};
use super::format::{format_us, thousands};
use super::state::DemoState;

/// Least height of a useful chart.
pub(crate) const MIN_HEIGHT: u16 = 5;
/// Least width of charts side by side.
const MIN_WIDTH: u16 = 34;
/// Least width for full titles.
const FULL_TITLE_WIDTH: u16 = 52;
/// Number of points of a constant line.
const LINE_POINTS: usize = 20;
/// Least time on the logarithmic scale; shorter times are drawn here.
const FLOOR_US: f64 = 1.0;

/// A curve: name, style and points.
struct Curve {
    name: &'static str,
    color: Color,
    dotted: bool,
    points: Vec<(f64, f64)>,
}

/// A chart: title, curves and range of values.
struct ChartSpec {
    title: &'static str,
    /// Title for narrow charts.
    short: &'static str,
    curves: Vec<Curve>,
    low: f64,
    high: f64,
    label: fn(f64) -> String,
}

/// Draws as many charts as fit, the most informative first.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, state: &DemoState) {
    let Some(subject) = state.run() else {
        return draw_waiting(frame, area, state);
    };
    let specs = chart_specs(subject, &state.samples);
    let columns = if area.width >= 2 * MIN_WIDTH { 2 } else { 1 };
    let most = usize::from(area.height / MIN_HEIGHT).min(4usize.div_ceil(columns));
    if most == 0 || area.width < MIN_WIDTH / 2 {
        return;
    }
    let lines = Layout::vertical(vec![Constraint::Fill(1); most]).split(area);
    let areas = lines.iter().flat_map(|line| {
        Layout::horizontal(vec![Constraint::Fill(1); columns])
            .spacing(2)
            .split(*line)
            .iter()
            .copied()
            .collect::<Vec<_>>()
    });
    for (spec, area) in specs.into_iter().zip(areas) {
        match spec {
            Some(spec) => draw_chart(frame, area, spec, subject.duration_s),
            None => draw_no_credits(frame, area),
        }
    }
}

fn draw_waiting(frame: &mut Frame<'_>, area: Rect, state: &DemoState) {
    let text = match &state.machine {
        None => {
            "First the demo measures this machine: the round trip of a message, how much CPU time other programs take, and \
                 how many requests one core can serve. The runs follow."
        }
        Some(_) => "",
    };
    frame.render_widget(Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }), area);
}

fn chart_specs(subject: &RunInfo, moments: &[RunSample]) -> [Option<ChartSpec>; 4] {
    let over = |value: fn(&RunSample) -> Option<f64>| -> Vec<(f64, f64)> {
        moments.iter().filter_map(|moment| Some((moment.at_s, value(moment)?))).collect()
    };
    let steady = |value: f64| -> Vec<(f64, f64)> {
        (0..=LINE_POINTS).map(|index| (subject.duration_s * index as f64 / LINE_POINTS as f64, value)).collect()
    };
    let logs = |points: Vec<(f64, f64)>| -> Vec<(f64, f64)> {
        points.into_iter().map(|(at, us)| (at, us.max(FLOOR_US).log10())).collect()
    };
    let curve = |name, color, dotted, points| Curve { name, color, dotted, points };
    let highest = |points: &[(f64, f64)]| points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let unlog = |value: f64| format_us(10f64.powf(value));

    let goodput = over(|moment| moment.goodput_rps);
    let demand = over(|moment| Some(moment.demand_rps));
    let high = highest(&demand).max(highest(&goodput)).max(subject.capacity_rps) * 1.1;
    let goodput = ChartSpec {
        title: "Goodput, k/s",
        short: "k/s",
        curves: vec![
            curve("capacity", Color::Cyan, true, steady(subject.capacity_rps)),
            curve("demand", Color::Yellow, false, demand),
            curve("in time", Color::Green, false, goodput),
        ],
        low: 0.0,
        high,
        label: thousands,
    };

    let objective = || curve("objective", Color::Red, true, logs(steady(subject.slo_us)));
    let in_us = |title, short, name, floor: f64, points: Vec<(f64, f64)>| {
        // Most runs fit this range; those without control exceed it, and the scale grows.
        let high = highest(&points).max(subject.slo_us * 30.0);
        let curves = vec![objective(), curve(name, Color::Magenta, false, logs(points))];
        ChartSpec { title, short, curves, low: floor.max(FLOOR_US).log10(), high: high.log10(), label: unlog }
    };
    let p99 = in_us("Latency, log scale", "latency", "p99", subject.slo_us / 30.0, over(|moment| moment.p99_us));
    let delay = in_us("Queueing delay, log scale", "queue", "wait", FLOOR_US, over(|moment| Some(moment.delay_us)));

    let (pool, issued) = (over(|moment| moment.pool), over(|moment| moment.issued));
    let high = highest(&pool).max(highest(&issued)).max(1.0) * 1.1;
    let credits = (!pool.is_empty()).then(|| ChartSpec {
        title: "Credits",
        short: "credits",
        curves: vec![curve("pool", Color::Yellow, false, pool), curve("with clients", Color::Green, false, issued)],
        low: 0.0,
        high,
        label: |value| format!("{value:.0}"),
    });
    [Some(goodput), Some(p99), Some(delay), credits]
}

fn draw_chart(frame: &mut Frame<'_>, area: Rect, picture: ChartSpec, duration_s: f64) {
    let heading = if area.width < FULL_TITLE_WIDTH { picture.short } else { picture.title };
    let mut title = vec![Span::raw(format!(" {heading} ")).bold()];
    for curve in &picture.curves {
        let sign = if curve.dotted { "• •" } else { "━━" };
        title.push(Span::raw(format!("{sign} {} ", curve.name)).fg(curve.color));
    }
    let labels = |low: f64, high: f64| [low, (low + high) / 2.0, high].map(picture.label);
    let vertical = Axis::default().bounds([picture.low, picture.high]).labels(labels(picture.low, picture.high));
    let horizontal =
        Axis::default().bounds([0.0, duration_s]).labels(["0 s".to_string(), format!("{duration_s:.0} s")]);
    let datasets: Vec<Dataset<'_>> = picture
        .curves
        .iter()
        .map(|curve| {
            let dataset = Dataset::default().data(&curve.points).style(Style::new().fg(curve.color));
            match curve.dotted {
                true => dataset.graph_type(GraphType::Scatter).marker(Marker::Dot),
                false => dataset.graph_type(GraphType::Line).marker(Marker::Braille),
            }
        })
        .collect();
    let block = Block::new().borders(Borders::TOP).title(Line::from(title));
    let grey = Style::new().fg(Color::DarkGray);
    let chart = Chart::new(datasets)
        .block(block.border_style(grey))
        .legend_position(None)
        .x_axis(horizontal.style(grey))
        .y_axis(vertical.style(grey));
    frame.render_widget(chart, area);
}

fn draw_no_credits(frame: &mut Frame<'_>, area: Rect) {
    let block = Block::new().borders(Borders::TOP).title(" Credits ".bold());
    let text = "None: without control clients send whenever they like.";
    let text = Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }).dim();
    frame.render_widget(text.block(block.border_style(Style::new().fg(Color::DarkGray))), area);
}
