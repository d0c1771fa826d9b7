//! Progress of a run on stderr, if stderr is a terminal.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use leeward_lab::run::Progress;

use crate::hangup;
use crate::interrupt::Interrupt;

/// A progress bar that is cleared when dropped.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// Shows `title` if stderr is a terminal; a closed terminal requests a stop through
    /// `interrupt`.
    pub(crate) fn new(title: &str, interrupt: &Interrupt) -> Bar {
        if !std::io::stderr().is_terminal() {
            return Bar(ProgressBar::hidden());
        }
        hangup::stop_on_hangup(interrupt);
        let bar = ProgressBar::new(0).with_message(title.to_string());
        if let Ok(style) = ProgressStyle::with_template("{msg}  {bar:30}  {pos}/{len} runs, {elapsed}{left}") {
            bar.set_style(style.with_key("left", time_left));
        }
        Bar(bar)
    }

    /// Shows the progress.
    pub(crate) fn show(&self, progress: Progress) {
        self.0.set_length(progress.total as u64);
        self.0.set_position(progress.done as u64);
        // Enable ticks only now: a bar without a length looks full.
        self.0.enable_steady_tick(Duration::from_millis(250));
        self.0.tick();
    }
}

/// Progress without a known number of steps: shows the current step as text.
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    /// Shows `title` if stderr is a terminal.
    pub(crate) fn new(title: &str) -> Spinner {
        if !std::io::stderr().is_terminal() {
            return Spinner(ProgressBar::hidden());
        }
        let spinner = ProgressBar::new_spinner().with_prefix(title.to_string());
        if let Ok(style) = ProgressStyle::with_template("{prefix}: {msg} {elapsed}") {
            spinner.set_style(style);
        }
        spinner.enable_steady_tick(Duration::from_millis(250));
        Spinner(spinner)
    }

    /// Like [`Spinner::new`]; a closed terminal requests a stop through `interrupt`.
    pub(crate) fn with_interrupt(title: &str, interrupt: &Interrupt) -> Spinner {
        hangup::stop_on_hangup(interrupt);
        Spinner::new(title)
    }

    /// Shows the current step.
    pub(crate) fn show(&self, step: &str) {
        self.0.set_message(step.to_string());
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Time left, once the first finished run shows the speed.
fn time_left(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        let _ = write!(out, ", {} left", HumanDuration(state.eta()));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
