//! Sentences for what the kernel refuses.
//!
//! Does not contain decisions.

use std::io;

use crate::record::SourceError;

/// Where the kernel says who may use perf events.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// Explains why the kernel did not open a perf event.
pub(super) fn refusal(pid: u32, error: io::Error) -> SourceError {
    let text = match error.raw_os_error() {
        Some(libc::ESRCH) => return SourceError::NoProcess(pid),
        Some(libc::EACCES | libc::EPERM) => not_allowed(pid),
        Some(libc::EMFILE) => {
            "too many files would be open: each thread needs three perf events per CPU (raise `ulimit -n`, or record as root)".into()
        }
        Some(libc::ENFILE) => "the machine has too many open files for perf events (fs.file-max)".into(),
        Some(libc::ENOSYS | libc::ENOENT) => "this kernel has no perf events (CONFIG_PERF_EVENTS)".into(),
        Some(libc::ENOMEM) => "the kernel has no memory for more perf events".into(),
        _ => return SourceError::Io { what: format!("opening a perf event of process {pid}"), source: error },
    };
    SourceError::Refused(text)
}

/// Explains why a ring could not be mapped.
pub(super) fn ring_refusal(error: io::Error) -> SourceError {
    match error.raw_os_error() {
        Some(libc::EPERM) => SourceError::Refused(
            "the memory for perf events would exceed this user's limit: raise kernel.perf_event_mlock_kb or `ulimit -l`, or record as root"
                .into(),
        ),
        _ => SourceError::Io { what: "mapping the memory of perf events".into(), source: error },
    }
}

/// Value of `kernel.perf_event_paranoid`.
pub(super) fn paranoid() -> Option<i32> {
    std::fs::read_to_string(PARANOID).ok()?.trim().parse().ok()
}

fn not_allowed(pid: u32) -> String {
    let is_root = rustix::process::geteuid().is_root();
    match paranoid() {
        None => "this kernel has no perf events, or this container hides them".into(),
        Some(_) if is_root => format!(
            "the kernel refuses perf events of process {pid} even to root: a container needs CAP_PERFMON and a seccomp profile that allows perf_event_open"
        ),
        Some(level @ ..=2) => format!(
            "the kernel refuses perf events of process {pid}, although kernel.perf_event_paranoid is {level}: it may run with special rights, or a seccomp profile forbids perf_event_open; record as root"
        ),
        Some(level) => format!(
            "perf events are for root only, as kernel.perf_event_paranoid is {level}: set it to 1 (`sysctl kernel.perf_event_paranoid=1`), give the recorder CAP_PERFMON, or record as root"
        ),
    }
}
