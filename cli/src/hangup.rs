//! Stops a command when its terminal has closed. Does not draw on the terminal (`terminal`).

use std::io::{IsTerminal, stderr};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::interrupt::Interrupt;
use crate::terminal::HANGUP_FLAGS;

/// Requests a stop through `interrupt` when the terminal of stderr, if any, has closed. Not every
/// process gets SIGHUP then.
pub(crate) fn stop_on_hangup(interrupt: &Interrupt) {
    if !stderr().is_terminal() {
        return;
    }
    let interrupt = interrupt.clone();
    // Without a thread the command runs to its end.
    let _ = thread::Builder::new().name("terminal".into()).spawn(move || {
        let stderr = stderr();
        loop {
            // `poll` reports hang-ups without a requested event.
            let mut watched = [PollFd::new(&stderr, PollFlags::empty())];
            match poll(&mut watched, None) {
                Ok(_) if watched[0].revents().intersects(HANGUP_FLAGS) => return interrupt.request(),
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    });
}
