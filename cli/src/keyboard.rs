//! Keys that are pressed during a live view, and the state of its terminal. Does not contain
//! drawing.

use std::fs::File;
use std::io::{IsTerminal, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};

use crate::interrupt::Interrupt;
use crate::terminal::HANGUP_FLAGS;

/// Interval between two checks for an interrupt while no key is pressed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Ctrl-C and Escape, as terminals in raw mode send them.
const CTRL_C: u8 = 3;
const ESCAPE: u8 = 27;

/// Input of the terminal.
pub(crate) enum Keyboard {
    /// The standard input is the terminal.
    Stdin,
    /// The standard input is something else; keys come from the controlling terminal.
    Tty(File),
    /// No keys are available; only signals stop the view.
    None,
}

/// Event of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyEvent {
    Timeout,
    /// A stop key was pressed.
    Stop,
    /// The terminal has closed.
    HungUp,
}

impl Keyboard {
    /// Opens the keyboard of the terminal that the view is drawn on.
    pub(crate) fn open() -> Self {
        if stdin().is_terminal() {
            return Keyboard::Stdin;
        }
        File::open("/dev/tty").map_or(Keyboard::None, Keyboard::Tty)
    }

    /// Waits for `pause`, or until a stop is requested. A stop key or a closed terminal requests a
    /// stop through `interrupt`.
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

    /// Waits for an event, for at most `timeout`.
    fn poll(&mut self, timeout: Duration) -> KeyEvent {
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
        // `poll` reports hang-ups without a requested event.
        let mut watched = vec![PollFd::from_borrowed_fd(output.as_fd(), PollFlags::empty())];
        watched.extend(keys.map(|keys| PollFd::from_borrowed_fd(keys, PollFlags::IN)));
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut watched, Some(&timeout)) {
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

/// Reads the available keys.
fn read_keys(keys: BorrowedFd<'_>) -> KeyEvent {
    let mut bytes = [0; 256];
    match read(keys, &mut bytes) {
        Ok(0) => KeyEvent::HungUp,
        Ok(count) if is_stop(&bytes[..count]) => KeyEvent::Stop,
        Ok(_) | Err(Errno::INTR | Errno::AGAIN) => KeyEvent::Timeout,
        // Usually `EIO`: the other end has closed.
        Err(_) => KeyEvent::HungUp,
    }
}

/// True if these keys mean "stop". Escape alone does; before other bytes it starts the code of
/// another key.
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
