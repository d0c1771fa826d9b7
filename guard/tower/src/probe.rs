//! Measures the delay of a service whose requests have no stamps: the layer writes a byte to a
//! socket of its own. The byte waits like a request, after the sockets that were readable before
//! it; its task waits after the tasks that they woke. The probe shows how long requests wait, not
//! which request is late. Each thread has a socket of its own, for its runtime's delay. Does not
//! contain the use of the delay.

use leeward_gate::{Gate, ProbeId};
use nix::sys::socket::{MsgFlags, send};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as Blocking;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use tokio::net::UnixStream;
use tokio::runtime::{Handle, Id};

/// The ends of the sockets to which calls write, by the number of the thread's probe. All services
/// of a layer share them.
#[derive(Debug)]
pub(crate) struct SocketProbes(Box<[Mutex<ThreadProbe>]>);

impl Default for SocketProbes {
    fn default() -> Self {
        SocketProbes((0..ProbeId::COUNT).map(|_| Mutex::default()).collect())
    }
}

/// How a thread measures its runtime.
#[derive(Debug, Default)]
struct ThreadProbe {
    /// The runtime that the thread belonged to at its last call.
    runtime: Option<Id>,
    transport: ProbeTransport,
}

#[derive(Debug, Default)]
enum ProbeTransport {
    #[default]
    None,
    Socket(Blocking),
    /// The runtime has no sockets, so only tasks are used.
    Tasks,
}

/// Cancels the gate's probe if the measurement ends early, for instance with its runtime.
struct CancelGuard(Option<(Gate, ProbeId)>);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if let Some((gate, id)) = &self.0 {
            gate.cancel_probe(*id);
        }
    }
}

impl SocketProbes {
    /// Starts a measurement, if one is due and the thread belongs to a Tokio runtime.
    pub(crate) fn measure(&self, gate: &Gate) {
        let id = gate.probe_of_thread();
        let is_due = gate.wants_probe(id);
        // Few requests meet either.
        if !is_due && !gate.is_probing(id) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            gate.cancel_probe(id);
            return;
        };
        let mut probe = self.0[id.index()].lock().unwrap_or_else(PoisonError::into_inner);
        let before = probe.runtime.replace(runtime.id());
        let is_moved = before != probe.runtime;
        if is_moved {
            probe.transport = ProbeTransport::None;
        }
        if !is_due {
            if is_moved {
                // Nobody may drive the former runtime any more. The next request measures.
                gate.cancel_probe(id);
            }
            return;
        }
        let transport = &mut probe.transport;
        if let ProbeTransport::Socket(socket) = transport {
            if write(socket).is_ok() {
                return;
            }
            // The reading task has ended with its runtime.
            *transport = ProbeTransport::None;
        }
        if matches!(*transport, ProbeTransport::None) {
            *transport = socket(gate, id, &runtime).map_or(ProbeTransport::Tasks, ProbeTransport::Socket);
        }
        match transport {
            ProbeTransport::Socket(socket) if write(socket).is_ok() => {}
            _ => task(gate, id, &runtime),
        }
    }
}

fn write(socket: &Blocking) -> io::Result<()> {
    send(socket.as_raw_fd(), &[1], MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT)?;
    Ok(())
}

/// A socket whose other end a task of this runtime reads, until this end is closed.
fn socket(gate: &Gate, id: ProbeId, runtime: &Handle) -> Option<Blocking> {
    let (near, far) = Blocking::pair().ok()?;
    far.set_nonblocking(true).ok()?;
    // A runtime without sockets panics.
    let far = catch_unwind(AssertUnwindSafe(|| UnixStream::from_std(far))).ok()?.ok()?;
    let (gate, waiting) = (gate.clone(), CancelGuard(Some((gate.clone(), id))));
    runtime.spawn(async move {
        let _waiting = waiting;
        let mut bytes = [0; 16];
        while far.readable().await.is_ok() {
            match far.try_read(&mut bytes) {
                Ok(1..) => gate.finish_probe(id),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Ok(0) | Err(_) => return,
            }
        }
    });
    Some(near)
}

/// Measures with a task in this worker's queue, which covers a part of a request's path.
fn task(gate: &Gate, id: ProbeId, runtime: &Handle) {
    let (gate, waiting) = (gate.clone(), CancelGuard(Some((gate.clone(), id))));
    runtime.spawn(async move {
        let mut waiting = waiting;
        // Tokio runs a task that was just spawned ahead of the queue.
        tokio::task::yield_now().await;
        gate.start_probe(id);
        tokio::task::yield_now().await;
        gate.finish_probe(id);
        waiting.0 = None;
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_gate::{Gate, RequestInfo};
    use std::time::{Duration, Instant};

    fn gate() -> Gate {
        Gate::builder(Duration::from_millis(20)).build().unwrap()
    }

    /// A worker works 10 ms for each of ten sockets: a byte after them waits for all.
    #[tokio::test]
    async fn a_probe_waits_behind_sockets_that_were_readable_earlier() {
        let (gate, probe) = (gate(), SocketProbes::default());
        let mut ends = Vec::new();
        for _ in 0..10 {
            let (near, far) = Blocking::pair().unwrap();
            far.set_nonblocking(true).unwrap();
            let far = UnixStream::from_std(far).unwrap();
            ends.push(near);
            tokio::spawn(async move {
                far.readable().await.unwrap();
                let began = std::time::Instant::now();
                while began.elapsed() < Duration::from_millis(10) {}
            });
        }
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(3));
        ends.iter().for_each(|end| write(end).unwrap());
        probe.measure(&gate);
        while gate.delay() < Duration::from_millis(40) {
            tokio::task::yield_now().await;
        }
        assert!(gate.admit(&RequestInfo::default()).is_ok());
    }

    #[test]
    fn a_probe_needs_no_io_driver_and_no_runtime() {
        let (gate, probe) = (gate(), SocketProbes::default());
        std::thread::sleep(Duration::from_millis(5));
        probe.measure(&gate);
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(5));
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                probe.measure(&gate);
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            });
            drop(runtime);
            std::thread::sleep(Duration::from_millis(5));
            let id = gate.probe_of_thread();
            assert!(gate.wants_probe(id), "the last one has ended");
            gate.cancel_probe(id);
        }
    }

    #[test]
    fn a_new_runtime_takes_over_the_probe_of_an_ended_one() {
        let (gate, probe) = (gate(), SocketProbes::default());
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(5));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
            runtime.block_on(async {
                let id = gate.probe_of_thread();
                assert!(gate.wants_probe(id));
                gate.cancel_probe(id);
                probe.measure(&gate);
                assert!(!gate.wants_probe(id), "one is under way");
            });
        }
    }

    /// A runtime that hangs, or is driven no more, says nothing of another thread's.
    #[test]
    fn a_runtime_that_hangs_delays_nobody_elses_requests() {
        let (gate, probe) = (gate(), SocketProbes::default());
        let current = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let hung = current();
        std::thread::sleep(Duration::from_millis(5));
        let since = Instant::now();
        hung.block_on(async { probe.measure(&gate) });
        std::thread::sleep(Duration::from_millis(50));
        let serve = || {
            current().block_on(async {
                let mut admitted = 0;
                for _ in 0..50 {
                    probe.measure(&gate);
                    admitted += u32::from(gate.admit(&RequestInfo::default()).is_ok());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                assert!(admitted > 0);
            });
        };
        std::thread::scope(|scope| {
            scope.spawn(serve);
        });
        // And on the same thread.
        serve();
        let (delay, hung_for) = (gate.delay(), since.elapsed());
        assert!(delay < hung_for / 2, "{delay:?} of {hung_for:?}");
    }
}
