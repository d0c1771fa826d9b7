//! How far a run has come, on stderr, where somebody watches.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use leeward_lab::run::Progress;

use crate::hangup;
use crate::interrupt::Interrupt;

/// A bar that is cleared when dropped.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// Shows `title` if stderr is a terminal, whose end asks `interrupt`; nothing otherwise.
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

    /// Moves on.
    pub(crate) fn show(&self, progress: Progress) {
        self.0.set_length(progress.total as u64);
        self.0.set_position(progress.done as u64);
        // Only now: a bar of no length looks like a full one.
        self.0.enable_steady_tick(Duration::from_millis(250));
        self.0.tick();
    }
}

/// Steps whose number is of no interest: the present one in words.
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    /// Shows `title` if stderr is a terminal, and nothing otherwise.
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

    /// The same; the terminal's end asks `interrupt`.
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

/// The time left, once a finished run tells how fast it goes.
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
