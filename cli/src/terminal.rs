//! The terminal of a live view: taken, and restored however the program ends.

use std::io::{IsTerminal, stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::{DefaultTerminal, Frame};
use rustix::event::PollFlags;

/// Poll flags of a closed terminal.
pub(crate) const HANGUP_FLAGS: PollFlags = PollFlags::HUP.union(PollFlags::ERR).union(PollFlags::NVAL);

/// True while the live view has the terminal. Any thread may restore it, on a panic or a second
/// Ctrl-C.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// True if stdout is a terminal that supports a live view, and NO_COLOR is not set.
pub(crate) fn supports_live_view() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    stdout().is_terminal() && !set("NO_COLOR") && !dumb
}

/// The terminal during a live view. [`restore`] restores it and shows the cursor.
///
/// Dropping it does nothing: `ratatui`'s drop reports errors on stderr, which panics if stderr is
/// the closed terminal.
pub(crate) struct Canvas(ManuallyDrop<DefaultTerminal>);

impl Canvas {
    /// Draws a frame.
    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> std::io::Result<()> {
        self.0.draw(render).map(|_| ())
    }
}

/// Takes the terminal.
pub(crate) fn take() -> std::io::Result<Canvas> {
    restore_on_panic();
    IS_TAKEN.store(true, Ordering::SeqCst);
    ratatui::try_init().map(|terminal| Canvas(ManuallyDrop::new(terminal))).inspect_err(|_| restore())
}

/// Restores the terminal, if it is taken.
pub(crate) fn restore() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // Errors are ignored: the terminal may have closed.
        let _ = ratatui::try_restore();
        let _ = execute!(stdout(), Show);
    }
}

/// Restores the terminal, but waits at most 200 ms: a stopped terminal accepts no output.
pub(crate) fn restore_with_timeout() {
    let (done, is_done) = mpsc::channel();
    let restoring = thread::Builder::new().spawn(move || {
        restore();
        let _ = done.send(());
    });
    if restoring.is_ok() {
        let _ = is_done.recv_timeout(Duration::from_millis(200));
    }
}

/// True if the terminal is taken.
pub(crate) fn is_taken() -> bool {
    IS_TAKEN.load(Ordering::SeqCst)
}

/// Restores the terminal before a panic's message is printed, so that the message stays visible.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_was_not_taken_is_not_restored() {
        restore(); // would write to the test's terminal
        assert!(!is_taken());
    }
}
