//! Forwards signals of `record` to the recorded program, because scripts know only the process id
//! of `record`.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::low_level::siginfo::Cause;

use crate::failure::Failure;
use crate::ignored_signals::IgnoredSignals;

/// Signals that are forwarded.
const FORWARDED: [(i32, Signal, &str); 6] = [
    (SIGHUP, Signal::HUP, "SIGHUP"),
    (SIGINT, Signal::INT, "SIGINT"),
    (SIGQUIT, Signal::QUIT, "SIGQUIT"),
    (SIGTERM, Signal::TERM, "SIGTERM"),
    (SIGUSR1, Signal::USR1, "SIGUSR1"),
    (SIGUSR2, Signal::USR2, "SIGUSR2"),
];
/// Signals that usually end a program.
const TERMINATING: [i32; 3] = [SIGINT, SIGQUIT, SIGTERM];
/// Time within which a repeated signal is ignored: `timeout` sends its signal to the program and to
/// its process group.
const REPEAT_WINDOW: Duration = Duration::from_millis(500);
/// Delay of the note about a program that continues after such a signal.
const NOTICE_DELAY: Duration = Duration::from_secs(2);
/// Maximum of signals that are kept until the program has started.
const PENDING_MAX: usize = 16;

/// Name of a signal, such as `SIGINT`.
pub(super) fn name(signal: i32) -> String {
    let known = FORWARDED.iter().find(|(number, ..)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(.., name)| (*name).to_string())
}

/// State shared by the signal thread and the waiting thread.
#[derive(Debug, Default)]
struct State {
    /// The program, from its start until its end is known.
    program: Option<Pid>,
    /// Signals that arrived before the program started.
    pending: Vec<Signal>,
    /// Last forwarded signal and its time.
    last: Option<(i32, Instant)>,
    /// Last terminating signal to this process alone; a signal from the terminal goes to the
    /// program as well.
    stop_signal: Option<i32>,
    /// True if a thread checks whether the program continues.
    is_watched: bool,
    /// True if Ctrl-C was pressed in the terminal.
    is_interrupted: bool,
    /// True if the program has ended; the remaining output may then be skipped.
    has_ended: bool,
}

/// Forwards signals to the recorded program.
pub(super) struct SignalForwarder {
    state: Arc<Mutex<State>>,
    handle: signal_hook::iterator::Handle,
    /// Signals that this process ignores since its start. The program must inherit that, and
    /// handlers are not inherited.
    ignored: Vec<i32>,
}

impl SignalForwarder {
    /// Listens for all signals that are not ignored; for those, once the program has started.
    pub(super) fn start() -> Result<SignalForwarder, Failure> {
        let ignored = IgnoredSignals::of_process("self");
        let (ignored, handled): (Vec<i32>, Vec<i32>) =
            FORWARDED.iter().map(|(number, ..)| *number).partition(|number| ignored.contain(*number));
        let listening = || "listening for signals";
        let mut signals = SignalsInfo::<WithOrigin>::new(handled).with_context(listening).map_err(Failure::Runtime)?;
        let handle = signals.handle();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let listen = move || {
            for origin in signals.forever() {
                forward(&shared, &origin);
            }
        };
        thread::Builder::new()
            .name("signals".into())
            .spawn(listen)
            .with_context(listening)
            .map_err(Failure::Runtime)?;
        Ok(SignalForwarder { state, handle, ignored })
    }

    /// Sets the started program, and sends it the pending signals.
    pub(super) fn set_program(&self, program: u32) {
        let Some(pid) = i32::try_from(program).ok().and_then(Pid::from_raw) else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for signal in std::mem::take(&mut state.pending) {
            let _ = kill_process(pid, signal);
        }
        state.program = Some(pid);
        drop(state);
        for signal in &self.ignored {
            let _ = self.handle.add_signal(*signal);
        }
    }

    /// Waits until the program has ended, without reaping it, so that its process id is not reused.
    pub(super) fn wait(&self) {
        let program = self.state.lock().unwrap_or_else(PoisonError::into_inner).program;
        if let Some(pid) = program {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.program, state.has_ended) = (None, true);
    }

    /// Terminating signal that was sent to this process alone.
    pub(super) fn stop_signal(&self) -> Option<i32> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop_signal
    }

    /// True if Ctrl-C was pressed.
    pub(super) fn is_interrupted(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_interrupted
    }
}

/// Forwards a signal, unless the program has got it already.
fn forward(shared: &Arc<Mutex<State>>, origin: &Origin) {
    let Some((number, signal, _)) = FORWARDED.into_iter().find(|(number, ..)| *number == origin.signal) else { return };
    let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let is_repeated = state.last.is_some_and(|(last, at)| last == number && now.duration_since(at) < REPEAT_WINDOW);
    if is_repeated {
        return;
    }
    if state.has_ended {
        if !matches!(signal, Signal::USR1 | Signal::USR2) {
            // Only the summary is lost.
            std::process::exit(128 + number);
        }
        return;
    }
    // The terminal sends its signals to the whole foreground process group.
    if matches!(origin.cause, Cause::Kernel) {
        state.is_interrupted |= number == SIGINT;
        return;
    }
    state.last = Some((number, now));
    let is_ending = TERMINATING.contains(&number);
    if is_ending {
        state.stop_signal = Some(number);
    }
    match state.program {
        None if state.pending.len() >= PENDING_MAX => {}
        None => state.pending.push(signal),
        Some(pid) => {
            // A program started by a script's `&` ignores Ctrl-C's signal. This signal was sent
            // explicitly, so send SIGTERM instead.
            let ignores = is_ending && IgnoredSignals::of_process(&pid.as_raw_nonzero().to_string()).contain(number);
            let _ = kill_process(pid, if ignores { Signal::TERM } else { signal });
            if is_ending && !std::mem::replace(&mut state.is_watched, true) {
                warn_if_running(Arc::clone(shared), pid, number);
            }
        }
    }
}

/// Prints a note after a delay if the program is still running.
fn warn_if_running(shared: Arc<Mutex<State>>, pid: Pid, signal: i32) {
    let print_note = move || {
        thread::sleep(NOTICE_DELAY);
        if shared.lock().unwrap_or_else(PoisonError::into_inner).program == Some(pid) {
            let (pid, signal) = (pid.as_raw_nonzero(), name(signal));
            super::read::print_line(&format!(
                "note: process {pid} received {signal} and still runs; recording ends when it ends"
            ));
        }
    };
    let _ = thread::Builder::new().name("running-note".into()).spawn(print_note);
}
