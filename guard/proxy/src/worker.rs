//! What a worker thread's requests share, and a reload replaces: settings, and connections to
//! backends. Does not contain requests.

use crate::access_log::LogSender;
use crate::access_log::entry::log_unparsed;
use crate::admission::{Admission, BackendSlot};
use crate::backend::connector::Connector;
use crate::backend::pool::Pool;
use crate::http::head::Peer;
use crate::settings::Settings;
use http::StatusCode;
use leeward_host::sync::{Mutex, lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Settings of one load. Each thread has a copy of its own: counting its users contends with
/// nobody.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: Settings,
    /// Number of the load, 0 at the start.
    pub(crate) version: u64,
    /// Where requests are logged, if they are.
    pub(crate) log: Option<LogSender>,
    /// Opens connections to backends.
    pub(crate) connector: Connector,
}

/// A worker thread, as its requests see it.
pub(crate) struct Worker {
    pub(crate) admission: Admission,
    state: Mutex<WorkerState>,
    is_draining: AtomicBool,
}

struct WorkerState {
    configuration: Arc<Configuration>,
    /// Connections by the number of the backend.
    pools: Vec<Arc<Pool>>,
}

impl Worker {
    pub(crate) fn new(configuration: Configuration, admission: &Admission) -> Arc<Self> {
        let connector = configuration.connector.clone();
        let pool = |backend| Pool::new(backend, connector.clone());
        let pools = configuration.settings.backends.iter().map(pool).collect();
        let state = WorkerState { configuration: Arc::new(configuration), pools };
        Arc::new(Worker { admission: admission.clone(), state: Mutex::new(state), is_draining: AtomicBool::new(false) })
    }

    /// The settings that hold now. A request takes them once.
    pub(crate) fn configuration(&self) -> Arc<Configuration> {
        Arc::clone(&lock(&self.state).configuration)
    }

    /// Records a request of this peer whose head hyper could not parse, and has answered.
    pub(crate) fn record_unparsed(&self, peer: &Peer, error: &hyper::Error) {
        self.admission.record_bad_request();
        let status = match error.is_parse_too_large() {
            true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            false => StatusCode::BAD_REQUEST,
        };
        if let Some(log) = &self.configuration().log {
            log_unparsed(log, peer.known_address(), status);
        }
    }

    /// Ends each connection of a client with its next answer from now on.
    pub(crate) fn begin_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether connections end with their next answers.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Connections to a backend.
    pub(crate) fn pool(&self, backend: usize) -> Arc<Pool> {
        Arc::clone(&lock(&self.state).pools[backend])
    }

    /// Connections to all backends.
    pub(crate) fn pools(&self) -> Vec<Arc<Pool>> {
        lock(&self.state).pools.clone()
    }

    /// Replaces the settings. A backend that is new or gone begins without connections; a request
    /// that is under way there closes its own at its end.
    pub(crate) fn replace(&self, configuration: Configuration, slots: &[BackendSlot]) {
        let connector = configuration.connector.clone();
        let mut state = lock(&self.state);
        state.configuration = Arc::new(configuration);
        for (index, slot) in slots.iter().enumerate() {
            match state.pools.get_mut(index) {
                Some(pool) if slot.is_new => *pool = Pool::new(&slot.address, connector.clone()),
                Some(pool) => pool.set_connector(connector.clone()),
                None => state.pools.push(Pool::new(&slot.address, connector.clone())),
            }
        }
    }
}
