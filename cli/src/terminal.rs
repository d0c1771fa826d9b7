//! The terminal that a live view is drawn on: taken, and given back whatever ends the program.

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

/// Conditions from which a terminal does not come back.
pub(crate) const HANGUP_FLAGS: PollFlags = PollFlags::HUP.union(PollFlags::ERR).union(PollFlags::NVAL);

/// Whether the terminal is ours: the way out may be a panic or a second Ctrl-C, from any thread.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether there is a terminal that a live view can be drawn on, and its owner wants to see one.
pub(crate) fn supports_live_view() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    stdout().is_terminal() && !set("NO_COLOR") && !dumb
}

/// The terminal while it is ours. Dropping it does nothing: what `ratatui` does then, it says on stderr that it could not,
/// which is a panic where stderr is the terminal that has gone. [`restore`] shows the cursor.
pub(crate) struct Canvas(ManuallyDrop<DefaultTerminal>);

impl Canvas {
    /// Draws a picture.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> std::io::Result<()> {
        self.0.draw(picture).map(|_| ())
    }
}

/// Takes the terminal.
pub(crate) fn take() -> std::io::Result<Canvas> {
    restore_on_panic();
    IS_TAKEN.store(true, Ordering::SeqCst);
    ratatui::try_init().map(|terminal| Canvas(ManuallyDrop::new(terminal))).inspect_err(|_| restore())
}

/// Gives the terminal back, if it is ours.
pub(crate) fn restore() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that has gone needs nothing back.
        let _ = ratatui::try_restore();
        let _ = execute!(stdout(), Show);
    }
}

/// Gives the terminal back, unless it takes no more text: nobody waits for one that is stopped.
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

/// Whether the terminal is taken.
pub(crate) fn is_taken() -> bool {
    IS_TAKEN.load(Ordering::SeqCst)
}

/// The message of a panic is to be read, not to vanish with the live view.
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
    fn what_is_not_ours_is_not_restored() {
        restore(); // would write to the test's terminal
        assert!(!is_taken());
    }
}
