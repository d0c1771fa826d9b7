//! Listener, worker threads, graceful stop. Does not contain requests.

use crate::admission::{Admission, TICK_INTERVAL};
use crate::backend::health;
use crate::backend::pool::Pool;
use crate::client_stream::ClientStream;
use crate::http::handle::Worker;
use crate::http::head::Peer;
use crate::settings::Settings;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Most bytes of a request's head, and most headers. A longer head is answered by 431.
const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;
/// Pause of the listener when there is no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Time that an idle connection may stay while more than half of all connections are open.
const CROWDED_IDLE: Duration = Duration::from_secs(5);
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
    address: SocketAddr,
    admission: Admission,
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
        let listener = TcpListener::bind(listen_address(&settings.listen)).map_err(failed)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let admission = Admission::new(&settings);
        let (stop, stopping) = watch::channel(false);
        let connections = Arc::new(Connections::new(settings.threads));
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
            connections: Arc::clone(&connections),
            stopping: stopping.clone(),
        };
        let first = context(0);
        threads.push(spawn(0, move || first.run_first(listener, others))?);
        for (index, receiver) in receivers.into_iter().enumerate() {
            let other = context(index + 1);
            threads.push(spawn(index + 1, move || other.run_other(receiver))?);
        }
        Ok(Proxy { address, admission, stop, threads })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The queue, for metrics and explanations.
    pub fn admission(&self) -> &Admission {
        &self.admission
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

/// `:8080` means all addresses of this machine.
fn listen_address(text: &str) -> String {
    if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.into() }
}

/// Waits until the proxy stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the proxy has gone, which stops it, too.
    let _ = stopping.wait_for(|stops| *stops).await;
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

fn spawn(index: usize, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("lw-proxy-{index}")).spawn(run)
}

/// Open client connections, by worker thread.
struct Connections(Vec<AtomicUsize>);

impl Connections {
    fn new(threads: usize) -> Self {
        Connections((0..threads).map(|_| AtomicUsize::new(0)).collect())
    }

    fn total(&self) -> usize {
        self.0.iter().map(|open| open.load(Ordering::Relaxed)).sum()
    }

    /// The thread with the fewest connections.
    fn least_loaded(&self) -> usize {
        let by_load = |(_, open): &(usize, &AtomicUsize)| open.load(Ordering::Relaxed);
        self.0.iter().enumerate().min_by_key(by_load).map_or(0, |(index, _)| index)
    }
}

/// A client connection that is counted.
struct Counted {
    connections: Arc<Connections>,
    index: usize,
}

impl Counted {
    fn new(connections: &Arc<Connections>, index: usize) -> Self {
        connections.0[index].fetch_add(1, Ordering::Relaxed);
        Counted { connections: Arc::clone(connections), index }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.0[self.index].fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client that another thread serves.
type HandedOver = (TcpStream, SocketAddr, Counted);

/// What a worker thread needs.
struct ThreadContext {
    index: usize,
    settings: Arc<Settings>,
    admission: Admission,
    connections: Arc<Connections>,
    stopping: watch::Receiver<bool>,
}

impl ThreadContext {
    /// Runs the thread that accepts connections, and that ticks.
    fn run_first(self, listener: TcpListener, others: Vec<mpsc::UnboundedSender<HandedOver>>) {
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
            for backend in 0..self.settings.backends.len() {
                let (admission, pool) = (self.admission.clone(), Arc::clone(&worker.pool));
                tokio::spawn(health::watch(admission, pool, backend, self.settings.health.clone()));
            }
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            let mut stopping = self.stopping.clone();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = stopped(&mut stopping) => break,
                };
                match accepted {
                    Ok((stream, peer)) => {
                        let index = self.connections.least_loaded();
                        let counted = Counted::new(&self.connections, index);
                        match others.get(index.wrapping_sub(1)) {
                            None => self.serve(&worker, stream, peer, counted),
                            Some(other) => {
                                if let Ok(stream) = stream.into_std() {
                                    let _ = other.send((stream, peer, counted));
                                }
                            }
                        }
                    }
                    // A client that has gone, or no descriptor.
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                }
                while self.connections.total() >= self.settings.connections && !*stopping.borrow() {
                    sleep(ACCEPT_PAUSE).await;
                }
            }
            drop(others);
            drop(listener);
            self.drain().await;
        });
    }

    /// Runs a thread that serves connections which the first one accepts.
    fn run_other(self, mut clients: mpsc::UnboundedReceiver<HandedOver>) {
        self.block_on(async {
            let worker = self.worker();
            while let Some((stream, peer, counted)) = clients.recv().await {
                if let Ok(stream) = tokio::net::TcpStream::from_std(stream) {
                    self.serve(&worker, stream, peer, counted);
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
        let pool = Pool::new(&self.settings.backends, self.settings.timeouts.connect);
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
    fn serve(&self, worker: &Arc<Worker>, stream: tokio::net::TcpStream, address: SocketAddr, counted: Counted) {
        let ip = address.ip().to_canonical();
        let is_trusted = self.settings.trusted.iter().any(|network| network.contains(&ip));
        let (worker, peer) = (Arc::clone(worker), Peer::new(ip, is_trusted));
        let is_crowded = self.connections.total() > self.settings.connections / 2;
        let idle = self.settings.timeouts.client;
        let idle = if is_crowded { idle.min(CROWDED_IDLE) } else { idle };
        let mut stopping = self.stopping.clone();
        let stream = ClientStream::new(stream, self.settings.timeouts.client_idle, counted);
        tokio::spawn(async move {
            let service = service_fn(|request| async { Ok::<_, Infallible>(worker.handle(&peer, request).await) });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(idle).max_headers(HEADERS_MAX);
            // A buffer may hold more than its bound for a moment, and a head with it.
            builder.max_buf_size(HEAD_MAX).max_header_size(HEAD_MAX);
            let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
            let ended = tokio::select! {
                ended = connection.as_mut() => Some(ended),
                () = stopped(&mut stopping) => None,
            };
            let ended = match ended {
                Some(ended) => ended,
                None => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            // Errors are those of the client: it has gone, or sends garbage, which hyper answers.
            if ended.is_err_and(|error| error.is_parse()) {
                worker.admission.record_bad_request();
            }
        });
    }

    /// Waits for this thread's connections; the first thread, which ticks, for all.
    async fn drain(&self) {
        let open = || match self.index {
            0 => self.connections.total(),
            index => self.connections.0[index].load(Ordering::Relaxed),
        };
        let wait = async {
            while open() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(self.settings.timeouts.stop, wait).await;
    }
}
