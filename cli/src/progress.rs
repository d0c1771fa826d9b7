//! Progress of long work on stderr: a live line in a terminal, at most a line a minute in a log.

use std::io::{IsTerminal, Write as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use leeward_lab::run::Progress;

use crate::hangup;
use crate::interrupt::Interrupt;

/// Time after which a log gets its first line: shorter work needs none.
const FIRST_LINE: Duration = Duration::from_secs(30);
/// Time between two lines of a log.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// Progress where stderr is no terminal.
struct Log {
    title: String,
    begun: Instant,
    next_line: Mutex<Instant>,
}

impl Log {
    fn new(title: &str) -> Log {
        let begun = Instant::now();
        Log { title: title.into(), begun, next_line: Mutex::new(begun + FIRST_LINE) }
    }

    /// The line that is due at `now`, if one is.
    fn line(&self, step: &str, now: Instant) -> Option<String> {
        let mut next = self.next_line.lock().ok().filter(|next| now >= **next)?;
        *next = now + BETWEEN_LINES;
        Some(format!("{}: {step}, {}", self.title, HumanDuration(now - self.begun)))
    }

    fn show(&self, step: &str) {
        if let Some(line) = self.line(step, Instant::now()) {
            let _ = writeln!(std::io::stderr(), "{line}"); // best effort
        }
    }
}

/// Where progress goes. A live line is cleared when dropped.
enum Display {
    Live(ProgressBar),
    Log(Log),
}

impl Display {
    /// A line made by `live` in a terminal, else a log.
    fn new(title: &str, live: impl FnOnce() -> ProgressBar) -> Display {
        if std::io::stderr().is_terminal() { Display::Live(live()) } else { Display::Log(Log::new(title)) }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Display::Live(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Progress as a share of all runs.
pub(crate) struct Bar(Display);

/// What a log says of `progress`.
fn runs_text(progress: Progress) -> String {
    let training = if progress.is_training { "training policies, " } else { "" };
    format!("{training}{} of {} runs", progress.done, progress.total)
}

impl Bar {
    /// Shows `title`; a closed terminal requests a stop through `interrupt`.
    pub(crate) fn new(title: &str, interrupt: &Interrupt) -> Bar {
        Bar(Display::new(title, || {
            hangup::stop_on_hangup(interrupt);
            let bar = ProgressBar::new(0).with_message(title.to_string());
            if let Ok(style) =
                ProgressStyle::with_template("{msg}  {prefix}{bar:30}  {pos}/{len} runs, {elapsed}{left}")
            {
                bar.set_style(style.with_key("left", time_left));
            }
            bar
        }))
    }

    /// Shows the progress.
    pub(crate) fn show(&self, progress: Progress) {
        match &self.0 {
            Display::Log(log) => log.show(&runs_text(progress)),
            Display::Live(bar) => {
                bar.set_prefix(if progress.is_training { "training policies  " } else { "" });
                bar.set_length(progress.total as u64);
                bar.set_position(progress.done as u64);
                // Enable ticks only now: a bar without a length looks full.
                bar.enable_steady_tick(Duration::from_millis(250));
                bar.tick();
            }
        }
    }
}

/// Progress without a known number of steps: shows the current step as text.
pub(crate) struct Spinner(Display);

impl Spinner {
    /// Shows `title`.
    pub(crate) fn new(title: &str) -> Spinner {
        Spinner(Display::new(title, || {
            let spinner = ProgressBar::new_spinner().with_prefix(title.to_string());
            if let Ok(style) = ProgressStyle::with_template("{prefix}: {msg} {elapsed}") {
                spinner.set_style(style);
            }
            spinner.enable_steady_tick(Duration::from_millis(250));
            spinner
        }))
    }

    /// Like [`Spinner::new`]; a closed terminal requests a stop through `interrupt`.
    pub(crate) fn with_interrupt(title: &str, interrupt: &Interrupt) -> Spinner {
        hangup::stop_on_hangup(interrupt);
        Spinner::new(title)
    }

    /// Shows the current step.
    pub(crate) fn show(&self, step: &str) {
        match &self.0 {
            Display::Log(log) => log.show(step),
            Display::Live(bar) => bar.set_message(step.to_string()),
        }
    }
}

/// Time left, once the first finished run shows the speed.
fn time_left(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    if state.pos() > 0 {
        let _ = write!(out, ", {} left", HumanDuration(state.eta()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_is_named() {
        let text = |is_training| runs_text(Progress { done: 0, total: 24, is_training });
        assert_eq!((text(true), text(false)), ("training policies, 0 of 24 runs".into(), "0 of 24 runs".into()));
    }

    #[test]
    fn a_log_gets_a_line_a_minute_and_none_of_short_work() {
        let log = Log::new("league");
        let line = |seconds: u64| log.line("3 of 9 runs", log.begun + Duration::from_secs(seconds));
        assert_eq!(line(29), None);
        assert_eq!(line(31).as_deref(), Some("league: 3 of 9 runs, 31 seconds"));
        assert_eq!(line(90), None);
        assert_eq!(line(200).as_deref(), Some("league: 3 of 9 runs, 3 minutes"));
        assert_eq!(line(201), None);
    }
}
