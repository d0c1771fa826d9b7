//! A running proxy: its start, new settings, its end. Does not contain connections.

use crate::access_log::{AccessLog, OpenedLog};
use crate::admission::Admission;
use crate::backend::connector::Connector;
use crate::certificates::Certificates;
use crate::connections::{Connections, Phase};
use crate::error::ProxyError;
use crate::settings::{DEFAULT_CONNECTIONS, Settings};
use crate::thread::{ThreadContext, event_loop};
use crate::transport::accept::Acceptor;
use crate::transport::address::LocalAddress;
use crate::transport::counts::Counts;
use crate::transport::listener::BoundListener;
use crate::transport::messages::tell;
use crate::transport::socket_file::check_folder;
use crate::transport::status::TransportStatus;
use crate::worker::{Configuration, Worker};
use leeward_host::sync::{Mutex, lock};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Descriptors that are not for clients or backends.
const SPARE_DESCRIPTORS: u64 = 64;
/// Longest time for which a proxy that stops waits for requests on idle connections: a request may
/// be on its way.
const LAST_REQUESTS: Duration = Duration::from_secs(1);
/// Interval of looks at whether its threads have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A running proxy. Dropping it stops it without waiting for requests in progress.
pub struct Proxy {
    address: LocalAddress,
    admission: Admission,
    transport: TransportStatus,
    certificates: Mutex<Certificates>,
    counts: Arc<Counts>,
    /// Settings that hold until the end.
    fixed: FixedSettings,
    workers: Vec<Arc<Worker>>,
    connections: Arc<Connections>,
    phase: watch::Sender<Phase>,
    log: AccessLog,
    /// Number of the present settings.
    loads: watch::Sender<u64>,
    threads: Vec<JoinHandle<()>>,
}

struct FixedSettings {
    listen: String,
    threads: usize,
}

impl Proxy {
    /// Listens, and starts the worker threads.
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub fn start(settings: Settings) -> Result<Proxy, ProxyError> {
        Proxy::start_on(BoundListener::bind(&settings.listen)?, settings)
    }

    /// Checks addresses, and the files that settings name; starts and creates nothing.
    ///
    /// # Errors
    /// All but [`ProxyError::Thread`]. An address that is in use is none: a proxy that runs may
    /// have it.
    pub fn check(settings: &Settings) -> Result<(), ProxyError> {
        let failed = |source| ProxyError::Listen { address: settings.listen.clone(), source };
        let own = LocalAddress::requested(&settings.listen).map_err(failed)?;
        if let Some(LocalAddress::Unix(path)) = &own {
            check_folder(path).map_err(failed)?;
        }
        check_addresses(settings, own.as_ref())?;
        OpenedLog::check(&settings.access_log)?;
        Certificates::open(settings).map(drop)
    }

    /// Starts on a socket that listens already.
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub fn start_on(listener: BoundListener, settings: Settings) -> Result<Proxy, ProxyError> {
        let address = listener.address()?;
        check_addresses(&settings, Some(&address))?;
        let certificates = Certificates::open(&settings)?;
        let counts = Arc::new(Counts::default());
        let accepts = settings.accepts_proxy_protocol;
        let acceptor = Arc::new(Acceptor::new(certificates.server.clone(), accepts, Arc::clone(&counts)));
        let (server, client) = (certificates.server.clone(), certificates.client.clone());
        let connector = Connector::new(&settings, client.clone(), Arc::clone(&counts));
        let transport = TransportStatus::new(server, client, Arc::clone(&acceptor), Arc::clone(&counts));
        let log = AccessLog::new();
        let sender = log.switch(OpenedLog::open(&settings.access_log)?)?;
        let mut settings = limit_connections(settings);
        settings.threads = settings.threads.max(1);
        let connections = Arc::new(Connections::new(settings.threads, settings.connections));
        let admission = Admission::new(&mut settings, &connections);
        // All that takes descriptors comes before the first thread, and before anybody is told.
        let event_loops = (0..settings.threads).map(|_| event_loop()).collect::<io::Result<Vec<_>>>()?;
        let listener = {
            let _entered = event_loops[0].enter();
            listener.attach()?
        };
        let (phase, reached) = watch::channel(Phase::Serving);
        let (loads, loaded) = watch::channel(0);
        let (mut threads, mut others, mut receivers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 1..settings.threads {
            let (sender, receiver) = mpsc::unbounded_channel();
            others.push(sender);
            receivers.push(receiver);
        }
        let configuration = || Configuration {
            settings: settings.clone(),
            version: 0,
            log: sender.clone(),
            connector: connector.clone(),
        };
        let worker = || Worker::new(configuration(), &admission);
        let workers: Vec<_> = (0..settings.threads).map(|_| worker()).collect();
        let context = |index: usize| ThreadContext {
            index,
            worker: Arc::clone(&workers[index]),
            acceptor: Arc::clone(&acceptor),
            transport: transport.clone(),
            connections: Arc::clone(&connections),
            phase: reached.clone(),
        };
        let mut event_loops = event_loops.into_iter();
        if let Some(event_loop) = event_loops.next() {
            let first = context(0);
            threads.push(spawn(0, move || first.run_first(event_loop, listener, others, loaded))?);
        }
        for (index, (event_loop, receiver)) in event_loops.zip(receivers).enumerate() {
            let other = context(index + 1);
            threads.push(spawn(index + 1, move || other.run_other(event_loop, receiver))?);
        }
        let fixed = FixedSettings { listen: settings.listen, threads: settings.threads };
        let certificates = Mutex::new(certificates);
        Ok(Proxy {
            address,
            admission,
            transport,
            certificates,
            counts,
            fixed,
            workers,
            connections,
            phase,
            log,
            loads,
            threads,
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> &LocalAddress {
        &self.address
    }

    /// The queue, for metrics and explanations.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Certificates and handshakes, for metrics.
    pub fn transport(&self) -> &TransportStatus {
        &self.transport
    }

    /// Metrics that belong to no request's way, as Prometheus text.
    pub fn log_metrics(&self) -> impl Fn() -> String + Send + Sync + use<> {
        self.log.metrics()
    }

    /// Takes new settings; no request is lost, and no connection is closed. Returns the keys that
    /// have other values and keep their old ones until the proxy is started anew.
    ///
    /// # Errors
    /// The settings name no backend, or the proxy itself, or a file that can't be opened; nothing
    /// has changed.
    pub fn reload(&self, settings: Settings) -> Result<Vec<&'static str>, ProxyError> {
        check_addresses(&settings, Some(&self.address))?;
        let log = OpenedLog::open(&settings.access_log)?;
        let mut certificates = lock(&self.certificates);
        *certificates = certificates.renew(&settings)?;
        let (server, client) = (certificates.server.clone(), certificates.client.clone());
        drop(certificates);
        let mut settings = limit_connections(settings);
        let FixedSettings { listen, threads } = &self.fixed;
        let kept = [("listen", settings.listen != *listen), ("threads", settings.threads.max(1) != *threads)];
        (settings.listen, settings.threads) = (listen.clone(), *threads);
        let version = *self.loads.borrow() + 1;
        let log = self.log.switch(log)?;
        let connector = Connector::new(&settings, client.clone(), Arc::clone(&self.counts));
        self.transport.replace(server, client);
        self.transport.acceptor().set_proxy_protocol(settings.accepts_proxy_protocol);
        self.connections.set_most(settings.connections);
        self.admission.reload(&mut settings, |settings, slots| {
            for worker in &self.workers {
                let (log, connector) = (log.clone(), connector.clone());
                worker.replace(Configuration { settings: settings.clone(), version, log, connector }, slots);
            }
        });
        self.loads.send_replace(version);
        Ok(kept.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect())
    }

    /// Leaves the socket to another process that accepts its connections, and ends each connection
    /// with its next answer. Idle ones stay until their time-out: a request may be on its way. All
    /// of it takes at most `timeouts.stop`.
    pub fn begin_draining(&self) {
        self.drain(Phase::HandedOver);
    }

    fn drain(&self, phase: Phase) {
        self.workers.iter().for_each(|worker| worker.begin_draining());
        self.advance(phase);
    }

    /// Whether all connections have ended, after [`Proxy::begin_draining`].
    pub fn is_drained(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Stops: no new connections; waits for requests in progress, at most as long as the settings
    /// say, and for a second for those that may be on their way. One that drains has waited.
    pub fn stop(mut self) {
        if *self.phase.borrow() == Phase::Serving {
            self.drain(Phase::Draining);
            let end = Instant::now() + LAST_REQUESTS;
            while !self.is_drained() && Instant::now() < end {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        self.advance(Phase::Stopping);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.log.stop();
    }

    fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|present| {
            let moves = *present < phase;
            *present = (*present).max(phase);
            moves
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.advance(Phase::Stopping);
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

/// There are backends, and neither the proxy that listens on `own` nor one of them has the address
/// of the admin port.
fn check_addresses(settings: &Settings, own: Option<&LocalAddress>) -> Result<(), ProxyError> {
    if settings.backends.is_empty() {
        return Err(ProxyError::NoBackend);
    }
    if let Some(backend) = settings.backends.iter().find(|backend| own.is_some_and(|own| backend.is_proxy_itself(own)))
    {
        return Err(ProxyError::OwnBackend(backend.to_string()));
    }
    let Some(text) = &settings.admin else { return Ok(()) };
    let failed = |reason| ProxyError::Admin { address: text.clone(), reason };
    let Some(admin) = LocalAddress::requested(text).map_err(|error| failed(error.to_string()))? else { return Ok(()) };
    if own.is_some_and(|own| own.excludes(&admin)) {
        return Err(failed("is that of `listen`, too".into()));
    }
    match settings.backends.iter().find(|backend| backend.is_proxy_itself(&admin)) {
        Some(_) => Err(failed("is that of a backend in `to`, too".into())),
        None => Ok(()),
    }
}

/// Connections below which the operator is told that there can be no more.
const FEW_CONNECTIONS: usize = 1_000;

/// Raises the limit of descriptors as far as it may be, and keeps the number of connections below.
fn limit_connections(mut settings: Settings) -> Settings {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    if let Some(descriptors) = getrlimit(Resource::Nofile).current {
        // Each request may need one to its client and one to its backend.
        let most = (descriptors.saturating_sub(SPARE_DESCRIPTORS) / 2).max(1) as usize;
        let wanted = settings.connections;
        if wanted > most {
            let enough = wanted as u64 * 2 + SPARE_DESCRIPTORS;
            // Nobody has asked for so many as the default allows, and few need them.
            if wanted != DEFAULT_CONNECTIONS || most < FEW_CONNECTIONS {
                tell(&format_args!(
                    "`connections` is {most} instead of {wanted}: this process may open {descriptors} files; for all, \
                     raise the hard limit to {enough} (`ulimit -Hn`, or `LimitNOFILE=` of systemd)"
                ));
            }
            settings.connections = most;
        }
    }
    settings
}

fn spawn(index: usize, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("lw-proxy-{index}")).spawn(run)
}
