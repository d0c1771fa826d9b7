//! Signals that `record` gets, passed on to the program that it records: scripts know the process id of `record` alone.

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

/// Signals that are passed on.
const FORWARDED: [(i32, Signal, &str); 6] = [
    (SIGHUP, Signal::HUP, "SIGHUP"),
    (SIGINT, Signal::INT, "SIGINT"),
    (SIGQUIT, Signal::QUIT, "SIGQUIT"),
    (SIGTERM, Signal::TERM, "SIGTERM"),
    (SIGUSR1, Signal::USR1, "SIGUSR1"),
    (SIGUSR2, Signal::USR2, "SIGUSR2"),
];
/// Signals after which a program is expected to end.
const TERMINATING: [i32; 3] = [SIGINT, SIGQUIT, SIGTERM];
/// The same signal within this time is one: `timeout` sends its own to the program and to the program's group.
const REPEAT_WINDOW: Duration = Duration::from_millis(500);
/// A program that goes on for so long after such a signal is worth a word.
const NOTICE_DELAY: Duration = Duration::from_secs(2);
/// Signals that are kept until the program is there.
const PENDING_MAX: usize = 16;

/// Name of a signal, such as `SIGINT`.
pub(super) fn name(signal: i32) -> String {
    let known = FORWARDED.iter().find(|(number, ..)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(.., name)| (*name).to_string())
}

/// State that the thread that listens shares with the one that waits.
#[derive(Debug, Default)]
struct State {
    /// The program, from its start until it is known to have ended.
    program: Option<Pid>,
    /// Signals from before the program was there.
    pending: Vec<Signal>,
    /// Last signal that was passed on, and when.
    last: Option<(i32, Instant)>,
    /// Last signal that asked the program to end, unless the terminal sent it to the program as well.
    stop_signal: Option<i32>,
    /// Whether somebody looks if the program goes on.
    is_watched: bool,
    /// Whether the terminal's Ctrl-C was pressed.
    is_interrupted: bool,
    /// Whether the program has ended, and what comes now can be left out.
    has_ended: bool,
}

/// Passes signals on to the program that is recorded.
pub(super) struct SignalForwarder {
    state: Arc<Mutex<State>>,
    handle: signal_hook::iterator::Handle,
    /// Signals that this process was started to ignore: so must the program be, which inherits what is ignored, and no handlers.
    ignored: Vec<i32>,
}

impl SignalForwarder {
    /// Listens from now on, except to signals that are ignored: these are heard once the program is there.
    pub(super) fn start() -> Result<SignalForwarder, Failure> {
        let ignored = ignored_signals("/proc/self/status");
        let (ignored, heard): (Vec<i32>, Vec<i32>) =
            FORWARDED.iter().map(|(number, ..)| *number).partition(|number| ignored & bit(*number) != 0);
        let listening = || "listening for signals";
        let mut signals = SignalsInfo::<WithOrigin>::new(heard).with_context(listening).map_err(Failure::Runtime)?;
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

    /// The program is there: it gets what came before, too.
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

    /// Waits until the program has ended, and leaves it to be waited for: until then its process id is nobody else's.
    pub(super) fn wait(&self) {
        let program = self.state.lock().unwrap_or_else(PoisonError::into_inner).program;
        if let Some(pid) = program {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.program, state.has_ended) = (None, true);
    }

    /// Signal that asked the program to end, to this process alone.
    pub(super) fn stop_signal(&self) -> Option<i32> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop_signal
    }

    /// Whether Ctrl-C was pressed.
    pub(super) fn is_interrupted(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_interrupted
    }
}

/// Passes a signal on, unless the program has it already.
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
            // Nothing is lost but the summary.
            std::process::exit(128 + number);
        }
        return;
    }
    // The terminal sends its signals to everybody in front of it.
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
            // A script's `&` makes programs ignore Ctrl-C. This one was not pressed, but sent.
            let ignores =
                is_ending && ignored_signals(&format!("/proc/{}/status", pid.as_raw_nonzero())) & bit(number) != 0;
            let _ = kill_process(pid, if ignores { Signal::TERM } else { signal });
            if is_ending && !std::mem::replace(&mut state.is_watched, true) {
                warn_if_running(Arc::clone(shared), pid, number);
            }
        }
    }
}

/// Says after a moment that the program has not ended, if so.
fn warn_if_running(shared: Arc<Mutex<State>>, pid: Pid, signal: i32) {
    let say = move || {
        thread::sleep(NOTICE_DELAY);
        if shared.lock().unwrap_or_else(PoisonError::into_inner).program == Some(pid) {
            let (pid, signal) = (pid.as_raw_nonzero(), name(signal));
            super::read::print_line(&format!(
                "note: process {pid} has got {signal} and goes on; recording ends with it"
            ));
        }
    };
    let _ = thread::Builder::new().name("patience".into()).spawn(say);
}

/// A signal in a set of them, as the kernel writes it.
fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Signals that the process with this status ignores, as a set of bits: those from which `nohup` or a script's `&` protects it.
fn ignored_signals(status: &str) -> u64 {
    let status = std::fs::read_to_string(status).unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    field.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}
