//! Listener, worker threads, graceful stop. Does not contain requests.

use crate::admission::{Admission, TICK_INTERVAL};
use crate::backend::connector::{self, Connector};
use crate::backend::health;
use crate::backend::pool::Pool;
use crate::connection::Client;
use crate::connections::{Connections, Counted, stopped};
use crate::http::handle::Worker;
use crate::http::head::Peer;
use crate::settings::Settings;
use crate::transport::accept::{self, Acceptor};
use crate::transport::address::LocalAddress;
use crate::transport::counts::Counts;
use crate::transport::listener::{BoundListener, HandedOver};
use crate::transport::messages::tell;
use crate::transport::socket::Socket;
use crate::transport::status::TransportStatus;
use leeward_tls::{ClientTls, LoadError, ServerTls};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Pause of the listener when there is no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Descriptors that are not for clients or backends.
const SPARE_DESCRIPTORS: u64 = 64;

/// Error: the proxy cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The address is in use, is not local, or is malformed.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Requested address.
        address: String,
        /// Error of the system.
        source: io::Error,
    },
    /// A file of certificates is unusable.
    #[error("{section}: {source}")]
    Certificates {
        /// Section of the settings.
        section: &'static str,
        /// Error in the file.
        source: LoadError,
    },
    /// The settings name no backend.
    #[error("there is no backend")]
    NoBackend,
    /// The system cannot start a thread or open a descriptor.
    #[error("can't start the proxy: {0}")]
    Thread(#[from] io::Error),
}

/// A running proxy. Dropping it stops it without waiting for requests in progress.
#[derive(Debug)]
pub struct Proxy {
    address: LocalAddress,
    admission: Admission,
    transport: TransportStatus,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Proxy {
    /// Listens, and starts the worker threads.
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub fn start(settings: Settings) -> Result<Proxy, ProxyError> {
        if settings.backends.is_empty() {
            return Err(ProxyError::NoBackend);
        }
        let mut settings = limit_connections(settings);
        settings.threads = settings.threads.max(1);
        let settings = Arc::new(settings);
        let failed = |source| ProxyError::Listen { address: settings.listen.chars().take(100).collect(), source };
        let listener = BoundListener::bind(&settings.listen).map_err(failed)?;
        let address = listener.address()?;
        let (server_tls, backend_tls) = open_certificates(&settings)?;
        let counts = Arc::new(Counts::default());
        let acceptor =
            Arc::new(Acceptor::new(server_tls.clone(), settings.accepts_proxy_protocol, Arc::clone(&counts)));
        let connector = Connector::new(&settings, backend_tls.clone(), Arc::clone(&counts));
        let transport = TransportStatus::new(server_tls, backend_tls, Arc::clone(&acceptor), counts);
        let admission = Admission::new(&settings);
        let (stop, stopping) = watch::channel(false);
        let connections = Arc::new(Connections::new(settings.threads, settings.connections));
        let (mut threads, mut others, mut receivers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 1..settings.threads {
            let (sender, receiver) = mpsc::unbounded_channel();
            others.push(sender);
            receivers.push(receiver);
        }
        let context = |index| ThreadContext {
            index,
            settings: Arc::clone(&settings),
            admission: admission.clone(),
            acceptor: Arc::clone(&acceptor),
            connector: connector.clone(),
            transport: transport.clone(),
            connections: Arc::clone(&connections),
            stopping: stopping.clone(),
        };
        let first = context(0);
        threads.push(spawn(0, move || first.run_first(listener, others))?);
        for (index, receiver) in receivers.into_iter().enumerate() {
            let other = context(index + 1);
            threads.push(spawn(index + 1, move || other.run_other(receiver))?);
        }
        Ok(Proxy { address, admission, transport, stop, threads })
    }

    /// The address that it listens on.
    pub fn address(&self) -> &LocalAddress {
        &self.address
    }

    /// The queue, for metrics and explanations.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Certificates and handshakes, for metrics and reload.
    pub fn transport(&self) -> &TransportStatus {
        &self.transport
    }

    /// Stops: no new connections; waits for requests in progress, at most as long as the settings
    /// say.
    pub fn stop(mut self) {
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

/// Raises the limit of descriptors as far as it may be, and keeps the number of connections below.
fn limit_connections(mut settings: Settings) -> Settings {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    if let Some(descriptors) = getrlimit(Resource::Nofile).current {
        // Each request may need one to its client and one to its backend.
        let most = descriptors.saturating_sub(SPARE_DESCRIPTORS) / 2;
        settings.connections = settings.connections.min(most.max(1) as usize);
    }
    settings
}

/// Opens the certificates for clients and for backends.
fn open_certificates(settings: &Settings) -> Result<(Option<ServerTls>, Option<ClientTls>), ProxyError> {
    let failed = |section| move |source| ProxyError::Certificates { section, source };
    let server = settings.tls.as_ref().map(accept::open_certificates).transpose().map_err(failed("tls"))?;
    let backends = connector::open_certificates(settings).map_err(failed("backend-tls"))?;
    if backends.is_some() && settings.backend_tls.is_insecure {
        eprintln!("leeward proxy: WARNING: backend-tls.insecure: the certificates of backends are NOT checked");
    }
    Ok((server, backends))
}

/// Tells the operator about certificates, for as long as the proxy runs.
async fn report(transport: TransportStatus) {
    loop {
        for message in transport.take_messages() {
            tell(&message);
        }
        sleep(Duration::from_secs(1)).await;
    }
}

fn spawn(index: usize, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("lw-proxy-{index}")).spawn(run)
}

/// What a worker thread needs.
struct ThreadContext {
    index: usize,
    settings: Arc<Settings>,
    admission: Admission,
    acceptor: Arc<Acceptor>,
    connector: Connector,
    transport: TransportStatus,
    connections: Arc<Connections>,
    stopping: watch::Receiver<bool>,
}

impl ThreadContext {
    /// Runs the thread that accepts connections, and that ticks.
    fn run_first(self, listener: BoundListener, others: Vec<mpsc::UnboundedSender<(HandedOver, Counted)>>) {
        self.block_on(async {
            let worker = self.worker();
            let admission = self.admission.clone();
            tokio::spawn(async move {
                let mut ticks = interval(TICK_INTERVAL);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    admission.tick();
                }
            });
            tokio::spawn(report(self.transport.clone()));
            for backend in 0..self.settings.backends.len() {
                let (admission, pool) = (self.admission.clone(), Arc::clone(&worker.pool));
                tokio::spawn(health::watch(admission, pool, backend, self.settings.health.clone()));
            }
            let Ok(listener) = listener.attach() else { return };
            let mut stopping = self.stopping.clone();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = stopped(&mut stopping) => break,
                };
                match accepted {
                    Ok((socket, peer)) => {
                        let index = self.connections.least_loaded();
                        let counted = Counted::new(&self.connections, index);
                        match others.get(index.wrapping_sub(1)) {
                            None => self.serve(&worker, socket, peer, counted),
                            Some(other) => {
                                if let Ok(socket) = socket.detach() {
                                    let _ = other.send(((socket, peer), counted));
                                }
                            }
                        }
                    }
                    // A client that has gone, or no descriptor.
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                }
                while self.connections.is_full() && !*stopping.borrow() {
                    self.connections.make_room();
                    sleep(ACCEPT_PAUSE).await;
                }
            }
            drop(others);
            drop(listener);
            self.drain().await;
        });
    }

    /// Runs a thread that serves connections which the first one accepts.
    fn run_other(self, mut clients: mpsc::UnboundedReceiver<(HandedOver, Counted)>) {
        self.block_on(async {
            let worker = self.worker();
            while let Some(((socket, peer), counted)) = clients.recv().await {
                if let Ok(socket) = socket.attach() {
                    self.serve(&worker, socket, peer, counted);
                }
            }
            self.drain().await;
        });
    }

    fn block_on(&self, run: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => {
                runtime.block_on(run);
                runtime.shutdown_background();
            }
            Err(error) => eprintln!("leeward proxy: thread {}: {error}", self.index),
        }
    }

    /// The state of this thread's requests.
    fn worker(&self) -> Arc<Worker> {
        let pool = Pool::new(&self.settings.backends, self.connector.clone());
        let old = Arc::clone(&pool);
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                old.close_old();
            }
        });
        Arc::new(Worker { settings: Arc::clone(&self.settings), admission: self.admission.clone(), pool })
    }

    /// Serves a client's connection until it ends.
    fn serve(&self, worker: &Arc<Worker>, socket: Socket, address: Option<SocketAddr>, counted: Counted) {
        let client = Client {
            worker: Arc::clone(worker),
            peer: Peer::new(address.map(|address| address.ip()), &self.settings.trusted),
            acceptor: Arc::clone(&self.acceptor),
            stopping: self.stopping.clone(),
            connections: Arc::clone(&self.connections),
        };
        tokio::spawn(async move {
            let _counted = counted;
            client.serve(socket, address).await;
        });
    }

    /// Waits for this thread's connections; the first thread, which ticks, for all.
    async fn drain(&self) {
        let open = || match self.index {
            0 => self.connections.total(),
            index => self.connections.of_thread(index),
        };
        let wait = async {
            while open() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(self.settings.timeouts.stop, wait).await;
    }
}
