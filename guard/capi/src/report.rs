//! A gate's counters, explanations and admin port. Does not contain counting.

use crate::fork;
use crate::gates::GateSlot;
use crate::status::Failure;
use crate::thread;
use leeward_admin::{Admin, AdminError, Sources};
use leeward_gate::{Decision, DecisionId, Gate, Source};
use leeward_observe::explain::DecisionContext;
use leeward_observe::snapshot::Lock;
use leeward_observe::{Snapshot, with_host};
use leeward_runtime::locks::{self, LockStats};
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

/// Why an admin port can't be opened.
pub(crate) struct Refused {
    pub(crate) code: Failure,
    pub(crate) sentence: String,
    /// The system's number of the error; 0: it gave none, as for an unknown name.
    pub(crate) errno: i32,
}

impl Refused {
    fn system(sentence: String, error: &io::Error) -> Self {
        Refused { code: Failure::System, sentence, errno: error.raw_os_error().unwrap_or(0) }
    }

    pub(crate) fn address(address: &str, why: &str) -> Self {
        let address: String = address.chars().take(100).collect();
        let sentence = format!("can't listen on {address:?}: {why}; an address is HOST:PORT");
        Refused { code: Failure::Argument, sentence, errno: 0 }
    }
}

/// Resolves an address with a port, which may take as long as its name server takes.
///
/// # Errors
/// The text is no address with a port, or the system does not know the name.
pub(crate) fn resolve(address: &str) -> Result<Vec<SocketAddr>, Refused> {
    with_host(address).to_socket_addrs().map(Iterator::collect).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => Refused::address(address, &error.to_string()),
        _ => Refused::system(format!("can't listen on {address:?}: {error}"), &error),
    })
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
        Err(error) => return Ok(Err(Refused::system(format!("can't listen on {addresses:?}: {error}"), &error))),
    };
    match Admin::start_on(listener, sources, config) {
        Ok(started) => {
            let port = started.address().port();
            *admin = Some(started);
            Ok(Ok(port))
        }
        Err(error) => {
            let errno = match &error {
                AdminError::Thread(source) => source.raw_os_error().unwrap_or(0),
                _ => 0,
            };
            Ok(Err(Refused { code: Failure::System, sentence: error.to_string(), errno }))
        }
    }
}
