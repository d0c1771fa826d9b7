//! Ends a command when the terminal that it talks to has gone. What is drawn there is `terminal`'s business.

use std::io::{IsTerminal, stderr};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::interrupt::Interrupt;
use crate::terminal::HANGUP_FLAGS;

/// Asks `interrupt` when the terminal behind stderr, if it is one, has gone. Not every process is sent SIGHUP then.
pub(crate) fn stop_on_hangup(interrupt: &Interrupt) {
    if !stderr().is_terminal() {
        return;
    }
    let interrupt = interrupt.clone();
    // Without a thread the command runs to its end, unseen.
    let _ = thread::Builder::new().name("terminal".into()).spawn(move || {
        let stderr = stderr();
        loop {
            // Hang-ups are told of without being asked for.
            let mut watched = [PollFd::new(&stderr, PollFlags::empty())];
            match poll(&mut watched, None) {
                Ok(_) if watched[0].revents().intersects(HANGUP_FLAGS) => return interrupt.request(),
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    });
}
