//! Resources that the process needs from the system: a CPU to itself, and enough file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::config::LoadError;

/// Keeps the calling thread on one CPU; restores the previous CPUs when dropped.
pub struct PinGuard(CpuSet);

impl PinGuard {
    /// Pins the calling thread to `cpu`, if given.
    ///
    /// # Errors
    /// The process may not run on this CPU.
    pub fn pin(cpu: Option<usize>) -> Result<Option<Self>, LoadError> {
        let Some(cpu) = cpu else { return Ok(None) };
        let failed = |source: rustix::io::Errno| LoadError::Pin { cpu, source: source.into() };
        if cpu >= CpuSet::MAX_CPU {
            return Err(failed(rustix::io::Errno::INVAL));
        }
        let before = sched_getaffinity(None).map_err(failed)?;
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).map_err(failed)?;
        Ok(Some(PinGuard(before)))
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        // On failure the thread stays pinned, which does no harm.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Whether the calling thread may run on this CPU, by the kernel's number; `true` if the system
/// does not tell.
pub fn may_run_on(cpu: usize) -> bool {
    sched_getaffinity(None).map_or(true, |set| cpu < CpuSet::MAX_CPU && set.is_set(cpu))
}

/// Descriptors besides the connections': standard streams, files, libraries.
const OTHER_FILES: u64 = 256;

/// Raises the process's limit of open files, as far as the system permits, so that it can hold
/// `sockets`. Returns the number of sockets that it can hold then.
///
/// A process with both ends of a connection needs two sockets for it.
pub fn allow_sockets(sockets: u64) -> u64 {
    let required = sockets.saturating_add(OTHER_FILES);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < required) {
        let current = limit.maximum.map_or(required, |maximum| maximum.min(required));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    }
    // With a low limit, fewer descriptors are kept back.
    getrlimit(Resource::Nofile).current.map_or(u64::MAX, |current| current - OTHER_FILES.min(current / 2))
}
