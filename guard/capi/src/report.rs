//! A gate's counters, explanations and admin port. Does not contain counting.

use crate::fork;
use crate::gates::GateSlot;
use crate::status::Failure;
use crate::thread;
use leeward_admin::{Admin, Sources};
use leeward_gate::{Decision, DecisionId, Gate, Source};
use leeward_observe::explain::DecisionContext;
use leeward_observe::snapshot::Lock;
use leeward_observe::{Snapshot, with_host};
use leeward_runtime::locks::{self, LockStats};
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

/// Largest number of reported locks: those with the longest waits.
const LOCKS: usize = 64;

/// A gate together with the locks of the process.
struct GateAndLocks(Gate);

impl Source for GateAndLocks {
    fn snapshot(&self) -> Snapshot {
        // The admin port's thread becomes one of the library's.
        let (_held, _) = (fork::hold(), thread::number());
        Snapshot { locks: locks::stats().iter().take(LOCKS).map(lock).collect(), ..self.0.snapshot() }
    }

    fn decision(&self, id: DecisionId) -> Option<Decision> {
        Source::decision(&self.0, id)
    }

    fn decisions(&self, count: usize) -> Vec<Decision> {
        Source::decisions(&self.0, count)
    }

    fn context(&self) -> DecisionContext {
        self.0.context()
    }
}

fn lock(of: &LockStats) -> Lock {
    Lock {
        name: of.name.into(),
        kind: of.kind.name(),
        acquired: of.acquired,
        contended: of.contended,
        refused: of.refused,
        waited_ns: of.waited.0,
        p99_ns: of.quantile(0.99).0,
        longest_ns: of.longest.0,
        waits: of.waits.into(),
    }
}

/// The gate's state as one JSON object, in the form of the admin port's `/events`.
pub(crate) fn stats_json(slot: &GateSlot) -> Result<String, Failure> {
    let snapshot = GateAndLocks(slot.gate()?).snapshot();
    serde_json::to_string(&snapshot).map_err(|_| Failure::Internal)
}

/// The decision with this number in sentences, while the gate keeps it.
pub(crate) fn explain(slot: &GateSlot, decision: u64) -> Result<String, Failure> {
    slot.gate()?.explain(DecisionId(decision)).ok_or(Failure::Argument)
}

/// Why the system refuses an admin port: a sentence, and the number of the error.
pub(crate) type Refused = (String, i32);

/// Resolves an address with a port, which may take as long as its name server takes.
///
/// # Errors
/// The text is no address with a port, or the system does not know the name.
pub(crate) fn resolve(address: &str) -> Result<Result<Vec<SocketAddr>, Refused>, Failure> {
    match with_host(address).to_socket_addrs() {
        Ok(addresses) => Ok(Ok(addresses.collect())),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Err(Failure::Argument),
        Err(error) => Ok(Err(refused(&address, &error))),
    }
}

fn refused(address: &dyn Debug, error: &io::Error) -> Refused {
    (format!("can't listen on {address:?}: {error}"), error.raw_os_error().unwrap_or(libc::EADDRNOTAVAIL))
}

/// Starts the gate's admin port at one of these addresses; returns the port number.
///
/// # Errors
/// If the system refuses.
pub(crate) fn listen(slot: &GateSlot, addresses: &[SocketAddr]) -> Result<Result<u16, Refused>, Failure> {
    let gate = slot.gate()?;
    let mut admin = slot.admin()?;
    if admin.is_some() {
        return Err(Failure::Busy);
    }
    let sources = Sources::default();
    sources.insert("gate", Arc::new(GateAndLocks(gate.clone())));
    let config = format!("slo = {:?}\n", gate.slo());
    let listener = match TcpListener::bind(addresses) {
        Ok(listener) => listener,
        Err(error) => return Ok(Err(refused(&addresses, &error))),
    };
    match Admin::start_on(listener, sources, config) {
        Ok(started) => {
            let port = started.address().port();
            *admin = Some(started);
            Ok(Ok(port))
        }
        Err(error) => Ok(Err((error.to_string(), libc::EAGAIN))),
    }
}
