//! Contents of the live view: the current activity, the charts, the results so far, and the legend.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Gauge, Paragraph, Row as Cells, Table, Wrap};

use super::events::{Load, RunResult, RunSample};
use super::format::{controller_capitalized, controller_short, format_us, multiple, percent, rate, thousands};
use super::state::{Activity, DemoState};
use super::{charts, explanation};

/// Lines of the head: activity, progress, machine, latest sample.
const HEAD: u16 = 4;
/// Lines of the legend.
const LEGEND: u16 = 2;
/// Least size for charts and tables; smaller terminals show text only.
const MIN_SIZE: (u16, u16) = (40, 12);

/// Draws `state` in the available space.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &DemoState) {
    let area = frame.area();
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        let lines = vec![activity(state), Line::raw(progress(state)), latest_sample(state, u16::MAX)];
        return frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area);
    }
    let results = state.runs as u16 + 2;
    let height = area.height - HEAD;
    // Results have priority over charts, and charts over the legend.
    let results = results.min(height);
    let legend = if height >= results + LEGEND + charts::MIN_HEIGHT { LEGEND } else { 0 };
    let parts =
        [Constraint::Length(HEAD), Constraint::Fill(1), Constraint::Length(results), Constraint::Length(legend)];
    let [head, middle, below, foot] = Layout::vertical(parts).areas(area);
    self::head(frame, head, state);
    charts::draw(frame, middle, state);
    table(frame, below, state);
    frame.render_widget(Paragraph::new(self::legend()).wrap(Wrap { trim: true }).dim(), foot);
}

fn head(frame: &mut Frame<'_>, area: Rect, state: &DemoState) {
    let lines = Layout::vertical([Constraint::Length(1); HEAD as usize]).split(area);
    let [top, progress_line, machine_line, sample_line] = [lines[0], lines[1], lines[2], lines[3]];
    // The address comes first; on a short line the keys are less important.
    let keys = match &state.dashboard {
        Some(address) if area.width > 70 => format!(" {address}  q stops "),
        _ => " q stops ".into(),
    };
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(keys.len() as u16)]).areas(top);
    frame.render_widget(activity(state), left);
    frame.render_widget(Paragraph::new(keys.dim()).right_aligned(), right);
    let label = Constraint::Length(progress(state).chars().count() as u16 + 1);
    let [label, bar] = Layout::horizontal([label, Constraint::Fill(1)]).areas(progress_line);
    frame.render_widget(progress(state), label);
    let gauge = Gauge::default().ratio(state.progress()).label("").use_unicode(true);
    frame.render_widget(gauge.gauge_style(Style::new().fg(Color::Blue).bg(Color::Black)), bar);
    frame.render_widget(Paragraph::new(self::machine(state)).dim(), machine_line);
    frame.render_widget(latest_sample(state, sample_line.width), sample_line);
}

/// Describes the current activity.
fn activity(state: &DemoState) -> Line<'static> {
    if state.is_stopping {
        return Line::from("Stopping ...".bold());
    }
    let (first, rest) = match &state.activity {
        Activity::Starting => ("Starting".into(), String::new()),
        Activity::Measuring(step) => ("Measuring this machine".into(), format!(": {step}")),
        Activity::Running(subject) => {
            (controller_capitalized(&subject.label).to_string(), format!(", {}", subject.load.describe()))
        }
    };
    Line::from(vec![Span::raw(first).bold().fg(Color::Green), Span::raw(rest).bold()])
}

fn progress(state: &DemoState) -> String {
    let run = match state.activity {
        Activity::Running(_) => format!("run {} of {}, ", (state.rows.len() + 1).min(state.runs), state.runs),
        _ => String::new(),
    };
    format!("{run}about {:.0} s left", (state.total_s - state.done_s()).max(0.0))
}

fn machine(state: &DemoState) -> String {
    let Some(machine) = &state.machine else { return String::new() };
    let slo = state.run().map_or(String::new(), |subject| format!(", objective {}", format_us(subject.slo_us)));
    let busy = if explanation::is_disturbed(machine) { "; DISTURBED by other load" } else { "" };
    format!("capacity {}, round trip {}{slo}{busy}", rate(machine.capacity_rps), format_us(machine.rtt_us))
}

/// The latest sample as numbers, without a chart: as many of them as fit into `width`.
fn latest_sample(state: &DemoState, width: u16) -> Line<'static> {
    let (Some(last), Some(subject)) = (state.samples.last(), state.run()) else { return Line::default() };
    let RunSample { demand_rps, goodput_rps, p99_us, rejected_rps, delay_us, issued, .. } = *last;
    let late = p99_us.is_some_and(|p99| p99 > subject.slo_us);
    let p99 = p99_us.map_or("–".into(), format_us) + if late { " ✗" } else { "" };
    let mut text = format!("{} offered", rate(demand_rps));
    let rest = [
        Some(format!(", {} in time", rate(goodput_rps.unwrap_or(0.0)))),
        Some(format!(", p99 {p99}")),
        Some(format!(", {} rejected", rate(rejected_rps.unwrap_or(0.0)))),
        Some(format!(", wait {}", format_us(delay_us))),
        issued.map(|issued| format!(", {issued:.0} credits")),
    ];
    for part in rest.into_iter().flatten() {
        if text.chars().count() + part.chars().count() > width.into() {
            break;
        }
        text += &part;
    }
    Line::from(text)
}

/// Headings and widths of the results' columns.
const COLUMNS: [(&str, u16); 8] = [
    ("demand", 10),
    ("control", 10),
    ("k/s in time", 11),
    ("of capacity", 11),
    ("p99", 8),
    ("in time?", 8),
    ("rejected", 8),
    ("back in", 7),
];
/// Columns that a narrow terminal leaves out, the first one first.
const LEFT_OUT: [usize; 5] = [3, 7, 6, 4, 2];

/// The columns that fit into `width`: a column that is cut would be unreadable.
fn shown_columns(width: u16) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..COLUMNS.len()).collect();
    for column in LEFT_OUT {
        if shown.iter().map(|column| COLUMNS[*column].1 + 1).sum::<u16>() <= width + 1 {
            break;
        }
        shown.retain(|other| *other != column);
    }
    shown
}

fn table(frame: &mut Frame<'_>, area: Rect, state: &DemoState) {
    let shown = shown_columns(area.width);
    let only_shown = |cells: Vec<Cell<'static>>| {
        let numbered = cells.into_iter().enumerate().filter(|(column, _)| shown.contains(column));
        Cells::new(numbered.map(|(_, cell)| cell).collect::<Vec<_>>())
    };
    let headings = COLUMNS.iter().map(|(heading, _)| heading_cell(heading)).collect();
    let rows = state.rows.iter().map(|row| only_shown(cells(row)));
    let table = Table::new(rows, shown.iter().map(|column| Constraint::Length(COLUMNS[*column].1)))
        .header(only_shown(headings).add_modifier(Modifier::DIM))
        .column_spacing(1)
        .block(Block::new().borders(Borders::TOP).border_style(Color::DarkGray).title(" Results so far ".bold()));
    frame.render_widget(table, area);
}

fn heading_cell(text: &str) -> Cell<'static> {
    let line = Line::from(text.to_string());
    Cell::from(if text == "control" { line } else { line.right_aligned() })
}

/// Cells of a result; the goodput of a spike is its settled value during the spike.
fn cells(row: &RunResult) -> Vec<Cell<'static>> {
    let point = &row.point;
    let settled = row.shifts.first().map_or(point.goodput_rps, |shift| shift.settled_goodput_rps);
    let of_capacity = if point.capacity_rps > 0.0 { settled / point.capacity_rps } else { 0.0 };
    let (demand, back) = match row.load {
        Load::Steady(ratio) => (multiple(ratio), String::new()),
        Load::Spike { peak, .. } => (format!("spike {}", multiple(peak)), row.describe_recovery(0)),
    };
    let verdict = match row.is_in_time() {
        Some(true) => "✓ yes".fg(Color::Green),
        Some(false) => "✗ NO".fg(Color::Red),
        None => "unknown".into(),
    };
    let right = |text: String| Cell::from(Line::from(text).right_aligned());
    vec![
        right(demand),
        Cell::from(controller_short(&point.run.label).to_string()),
        right(thousands(settled)),
        right(percent(of_capacity)),
        right(if point.p99_us > 0.0 { format_us(point.p99_us) } else { "–".into() }),
        Cell::from(Line::from(verdict).right_aligned()),
        right(percent(point.drop_rate)),
        right(back),
    ]
}

fn legend() -> &'static str {
    "credit: permission to send; in time: within the objective; p99: 99 of 100 responses came within it; \
     wait: in the server's queue; back in: from the start of a spike"
}

#[cfg(test)]
mod tests {
    use super::super::events::{DemoEvent, RunInfo};
    use super::super::table::samples;
    use super::*;
    use leeward_lab::results::Machine;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn render(state: &DemoState, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        terminal.backend().to_string()
    }

    /// States of a demo after each of its stages.
    fn stages() -> Vec<DemoState> {
        let machine = Machine { capacity_rps: 60e3, rtt_us: 34.0, clients_apart: true, ..Machine::default() };
        let subject = |label: &str| RunInfo {
            label: label.into(),
            load: Load::Steady(2.0),
            capacity_rps: 60e3,
            slo_us: 300.0,
            duration_s: 4.0,
        };
        let moment = |at: u32, credits: Option<f64>| RunSample {
            at_s: f64::from(at) / 10.0,
            demand_rps: 120e3,
            goodput_rps: Some(55e3),
            rejected_rps: Some(1e3),
            p99_us: (at > 3).then_some(250.0),
            delay_us: f64::from(at),
            pool: credits,
            issued: credits,
        };
        let mut news = vec![DemoEvent::Calibrating("stalls".into()), DemoEvent::Calibrated(machine)];
        for (label, credits) in [("none", None), ("auto", Some(40.0)), ("breakwater", Some(40.0))] {
            news.push(DemoEvent::RunStarted(subject(label)));
            news.extend((0..45).map(|at| DemoEvent::Sample(moment(at, credits))));
        }
        news.extend(samples::rows().into_iter().map(|row| DemoEvent::RunEnded(Box::new(row))));
        let mut state = DemoState::new(12, 70.0, None);
        let mut states = vec![state.clone()];
        for one in news {
            state.apply(one);
            states.push(state.clone());
        }
        states
    }

    #[test]
    fn draws_each_stage_at_any_size() {
        let states = stages();
        for (width, height) in [(1, 1), (20, 5), (40, 12), (41, 30), (80, 24), (120, 40), (200, 60), (300, 3), (3, 300)]
        {
            for state in states.iter().step_by(11).chain(states.last()) {
                render(state, width, height);
            }
        }
    }

    #[test]
    fn shows_activity_and_results_on_80_columns() {
        let states = stages();
        let text = render(states.last().unwrap(), 80, 24);
        for part in ["Breakwater, demand 2x the capacity", "capacity 60.0 k/s", "k/s", "latency", "✓ yes", "never"] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        let text = render(states.last().unwrap(), 120, 40);
        for part in ["Credits", "Queueing delay", "with clients", "permission to send"] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }

    #[test]
    fn shows_whole_columns_on_60_columns() {
        let states = stages();
        let text = render(states.last().unwrap(), 60, 20);
        for part in ["demand", "control", "k/s in time", "p99 in time? rejected\"", "in time, p99 250 µs  "] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }

    #[test]
    fn a_run_without_control_has_no_credits() {
        let states = stages();
        let text = render(&states[20], 120, 40);
        assert!(text.contains("clients send whenever they like"), "{text}");
    }
}
