//! Keys that are pressed during a live view, and whether its terminal is still there. Drawing is not here.

use std::fs::File;
use std::io::{IsTerminal, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};

use crate::interrupt::Interrupt;
use crate::terminal::HANGUP_FLAGS;

/// From one look at the interrupt to the next, while nobody presses a key.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Ctrl-C and Escape, as terminals in raw mode send them.
const CTRL_C: u8 = 3;
const ESCAPE: u8 = 27;

/// The terminal's input.
pub(crate) enum Keyboard {
    /// The terminal is the standard input.
    Stdin,
    /// Something else is: the keys come from the controlling terminal.
    Tty(File),
    /// There are no keys: only signals stop the view.
    None,
}

/// News from the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyEvent {
    Timeout,
    /// A key that means "stop".
    Stop,
    /// The terminal has gone.
    HungUp,
}

impl Keyboard {
    /// The keyboard of the terminal that the view is drawn on.
    pub(crate) fn open() -> Self {
        if stdin().is_terminal() {
            return Keyboard::Stdin;
        }
        File::open("/dev/tty").map_or(Keyboard::None, Keyboard::Tty)
    }

    /// Listens for `pause`, or until the view is to end, which `interrupt` is then asked for: by a key, or because the
    /// terminal has gone.
    pub(crate) fn wait(&mut self, interrupt: &Interrupt, pause: Duration) {
        let due = Instant::now() + pause;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if self.poll(left.min(POLL_INTERVAL)) != KeyEvent::Timeout {
                interrupt.request();
            }
            if interrupt.is_requested() || left.is_zero() {
                return;
            }
        }
    }

    /// Waits for news for `patience` at most.
    fn poll(&mut self, patience: Duration) -> KeyEvent {
        let (input, tty);
        let keys = match self {
            Keyboard::Stdin => {
                input = stdin();
                Some(input.as_fd())
            }
            Keyboard::Tty(file) => {
                tty = file;
                Some(tty.as_fd())
            }
            Keyboard::None => None,
        };
        let output = stdout();
        // Hang-ups are told of without being asked for.
        let mut watched = vec![PollFd::from_borrowed_fd(output.as_fd(), PollFlags::empty())];
        watched.extend(keys.map(|keys| PollFd::from_borrowed_fd(keys, PollFlags::IN)));
        let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        match poll(&mut watched, Some(&patience)) {
            Ok(0) | Err(_) => return KeyEvent::Timeout,
            Ok(_) => {}
        }
        if watched[0].revents().intersects(HANGUP_FLAGS) {
            return KeyEvent::HungUp;
        }
        let is_there = watched.get(1).is_some_and(|keys| !keys.revents().is_empty());
        keys.filter(|_| is_there).map_or(KeyEvent::Timeout, read_keys)
    }
}

/// Reads the keys that wait.
fn read_keys(keys: BorrowedFd<'_>) -> KeyEvent {
    let mut bytes = [0; 256];
    match read(keys, &mut bytes) {
        Ok(0) => KeyEvent::HungUp,
        Ok(count) if is_stop(&bytes[..count]) => KeyEvent::Stop,
        Ok(_) | Err(Errno::INTR | Errno::AGAIN) => KeyEvent::Timeout,
        // `EIO`, as a rule: the other end has closed.
        Err(_) => KeyEvent::HungUp,
    }
}

/// Whether these keys mean "stop". Escape alone does; before other bytes it begins the name of another key.
fn is_stop(bytes: &[u8]) -> bool {
    bytes == [ESCAPE] || (!bytes.contains(&ESCAPE) && bytes.iter().any(|byte| matches!(*byte, b'q' | CTRL_C)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_ctrl_c_stop() {
        for keys in [&b"q"[..], b"\x1b", b"\x03", b"xq", b"q\n"] {
            assert!(is_stop(keys), "{keys:?}");
        }
        for keys in [&b""[..], b"c", b"Q", b"\x1b[A", b"\x1bOq", b"\x1b[1;5C"] {
            assert!(!is_stop(keys), "{keys:?}");
        }
    }
}
