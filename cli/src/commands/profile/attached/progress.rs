//! Progress of a recording on a terminal.
//!
//! Does not contain the recording.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use leeward_profile::span::percent;

/// Time between two updates.
const UPDATE: Duration = Duration::from_millis(250);

/// What is shown.
pub(super) struct State {
    pub(super) elapsed: Duration,
    pub(super) samples: u64,
    /// Requests that ended, and the slow ones; `None` if requests are not timed.
    pub(super) requests: Option<(u64, u64)>,
    /// Time in which nothing was recorded, to keep the cost low.
    pub(super) paused: Duration,
}

impl State {
    fn text(&self) -> String {
        let mut text = format!("{} s, {} samples", self.elapsed.as_secs(), self.samples);
        if let Some((seen, slow)) = self.requests {
            text += &format!(", {seen} requests, {slow} recorded as slow");
        }
        if !self.paused.is_zero() {
            let recorded = self.elapsed.saturating_sub(self.paused).as_nanos() as u64;
            text += &format!(", {} of the time", percent(recorded, self.elapsed.as_nanos() as u64));
        }
        text
    }
}

/// A line on stderr, if that is a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    shown: Instant,
}

impl Progress {
    pub(super) fn new() -> Progress {
        // A longer line than the terminal's would be wrapped, and stay when the recording ends.
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("recording, until Ctrl-C: {wide_msg}") {
            bar.set_style(style);
        }
        Progress { bar, shown: Instant::now() }
    }

    /// Shows the state, if it is time to.
    pub(super) fn show(&mut self, state: impl FnOnce() -> State) {
        if self.bar.is_hidden() || self.shown.elapsed() < UPDATE {
            return;
        }
        self.shown = Instant::now();
        self.bar.set_message(state().text());
        self.bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
