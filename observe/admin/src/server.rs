//! Thread of an admin port and its sockets: accepts, polls, and publishes the state once a second.
//! Does not contain responses.

use crate::connection::{Connection, ConnectionStage};
use crate::descriptor::FileIdentity;
use crate::feed::Feed;
use crate::response::Response;
use crate::routes::AdminState;
use crate::sources::Sources;
use leeward_observe::with_host;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum of open connections.
const CONNECTIONS_MAX: usize = 16;
/// Maximum of connections that are subscribed to events.
const SUBSCRIBERS_MAX: usize = 4;
/// Maximum of connections that are accepted before the open ones are polled.
const ACCEPT_BATCH: usize = 64;
/// Interval between two states.
const FEED_INTERVAL: Duration = Duration::from_secs(1);
/// Pause of the listener after the process has run out of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Time limit for the last responses when the port stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Error: the admin port cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address is in use, is not local, or is malformed.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Requested address.
        address: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The system cannot start a thread or open a descriptor.
    #[error("can't start the admin port: {0}")]
    Thread(#[from] std::io::Error),
}

/// A running admin port. Dropping it stops it.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    sources: Sources,
    config: Arc<Mutex<String>>,
    is_stopping: Arc<AtomicBool>,
    /// Wakes the thread by a write; stops the thread when dropped.
    control: Option<UnixStream>,
    control_file: FileIdentity,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens on `address`, such as `127.0.0.1:9464`. `config` is the text of `/debug/config`.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn start(address: &str, sources: Sources, config: String) -> Result<Admin, AdminError> {
        let refused = |source| AdminError::Listen { address: address.chars().take(100).collect(), source };
        let listener = TcpListener::bind(&*with_host(address)).map_err(refused)?;
        Admin::start_on(listener, sources, config)
    }

    /// Starts on a socket that listens already.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn start_on(listener: TcpListener, sources: Sources, config: String) -> Result<Admin, AdminError> {
        Admin::spawn(listener, sources, config, Acceptor::default())
    }

    /// Starts with TLS only; verifies client certificates if `tls` requires them.
    ///
    /// Open the certificate files for [`crate::ALPN`] ([`leeward_tls::ServerTls::open_with_alpn`]).
    ///
    /// # Errors
    /// See [`AdminError`].
    #[cfg(feature = "tls")]
    pub fn start_encrypted(
        listener: TcpListener,
        sources: Sources,
        config: String,
        tls: leeward_tls::ServerTls,
    ) -> Result<Admin, AdminError> {
        let acceptor = crate::tls::TlsAcceptor::new(tls, sources.handshake_counters());
        Admin::spawn(listener, sources, config, Acceptor { tls: Some(acceptor) })
    }

    fn spawn(listener: TcpListener, sources: Sources, config: String, gateway: Acceptor) -> Result<Admin, AdminError> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (control_sender, control_receiver) = UnixStream::pair()?;
        control_receiver.set_nonblocking(true)?;
        let control_file = FileIdentity::of(&control_sender);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let config = Arc::new(Mutex::new(config));
        let state = AdminState {
            address,
            sources: sources.clone(),
            config: Arc::clone(&config),
            is_stopping: Arc::clone(&is_stopping),
        };
        let event_loop = EventLoop {
            files: [FileIdentity::of(&listener), FileIdentity::of(&control_receiver)],
            listener,
            control: control_receiver,
            state,
            connections: Vec::new(),
            feed: Feed::default(),
            accept_paused_until: None,
            acceptor: gateway,
        };
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || event_loop.run())?;
        let control = Some(control_sender);
        Ok(Admin { address, sources, config, is_stopping, control, control_file, thread: Some(thread) })
    }

    /// Address on which the port listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Servers and gates that the port observes.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Replaces the text of `/debug/config`.
    pub fn set_config(&self, config: String) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Reports the process as not ready from now on, before its servers stop. A stopping server
    /// reports itself.
    pub fn begin_stopping(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        // Subscribers get the new state before their connection ends.
        let _ = self.control.as_ref().map(|mut control| control.write(b"!"));
    }

    /// Stops the port.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        match self.control.take() {
            // The thread finds the same within a second, and ends.
            Some(control) if !self.control_file.is_of(&control) => std::mem::forget(control),
            control => drop(control),
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.end();
    }
}

/// Prepares accepted connections: with TLS, by a handshake.
#[derive(Default)]
struct Acceptor {
    #[cfg(feature = "tls")]
    tls: Option<crate::tls::TlsAcceptor>,
}

impl Acceptor {
    fn wrap(&self, connection: Connection) -> Connection {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return connection.with_tls(tls);
        }
        connection
    }

    /// True if the connection may be polled.
    fn admit(&mut self, connection: &mut Connection, now: Instant) -> bool {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return connection.admit(tls, now);
        }
        let _ = (connection, now);
        true
    }

    /// Time at which a waiting connection may start its handshake.
    fn next_handshake(&self, connections: &[Connection], now: Instant) -> Option<Instant> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            tls.record_waiting(connections.iter().filter(|of| of.is_handshaking()).count());
            return connections.iter().any(Connection::awaits_handshake_quota).then(|| tls.next_handshake(now));
        }
        let _ = (connections, now);
        None
    }
}

/// State of the admin thread.
struct EventLoop {
    listener: TcpListener,
    control: UnixStream,
    /// Identities of `listener` and `control`.
    files: [FileIdentity; 2],
    state: AdminState,
    connections: Vec<Connection>,
    feed: Feed,
    /// Time until which the listener is not polled.
    accept_paused_until: Option<Instant>,
    acceptor: Acceptor,
}

/// Signal from the owner of the port.
#[derive(PartialEq, Eq)]
enum ControlEvent {
    Idle,
    /// Send the state to the subscribers now.
    Wake,
    Stop,
}

impl EventLoop {
    fn run(mut self) {
        let mut next = Instant::now();
        loop {
            let now = Instant::now();
            if !self.files[0].is_of(&self.listener) || !self.files[1].is_of(&self.control) {
                // The program has closed the descriptors, and may use their numbers for others.
                return std::mem::forget(self);
            }
            let event = self.poll_control();
            if event == ControlEvent::Stop {
                return self.shut_down(now);
            }
            if now >= next || event == ControlEvent::Wake {
                self.tick(now);
                next = now + FEED_INTERVAL;
            }
            self.accept(now);
            self.poll_connections(now);
            self.wait(next);
        }
    }

    fn poll_control(&mut self) -> ControlEvent {
        match self.control.read(&mut [0; 16]) {
            Ok(0) => ControlEvent::Stop,
            Ok(_) => ControlEvent::Wake,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => ControlEvent::Idle,
            Err(_) => ControlEvent::Stop,
        }
    }

    fn tick(&mut self, now: Instant) {
        let event = self.feed.tick(&self.state);
        let is_subscribed = |connection: &&mut Connection| {
            connection.stage == ConnectionStage::Streaming && !connection.is_new_subscriber
        };
        self.connections.iter_mut().filter(is_subscribed).for_each(|connection| connection.push_event(&event, now));
    }

    fn accept(&mut self, now: Instant) {
        if self.accept_paused_until.is_some_and(|until| now < until) {
            return;
        }
        self.accept_paused_until = None;
        for _ in 0..ACCEPT_BATCH {
            match self.listener.accept() {
                Ok((stream, _)) => self.add_connection(stream, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client has already disconnected.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => return self.accept_paused_until = Some(now + ACCEPT_BACKOFF),
            }
        }
    }

    /// Adds a connection.
    ///
    /// At the limit, it replaces a connection whose head is incomplete. So a client that opens many
    /// silent connections does not lock out others.
    fn add_connection(&mut self, stream: TcpStream, now: Instant) {
        let Ok(connection) = Connection::new(stream, now) else { return };
        let mut connection = self.acceptor.wrap(connection);
        let can_subscribe = self.can_subscribe();
        // Connections that wait for a handshake go first; the next poll admits this one.
        let is_next = !self.connections.iter().any(Connection::awaits_handshake_quota);
        if is_next && self.acceptor.admit(&mut connection, now) {
            connection.poll(&self.state, can_subscribe, now);
        }
        self.send_history(&mut connection, now);
        if connection.stage == ConnectionStage::Closed {
            return;
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            let idle = |of: &Connection| matches!(of.stage, ConnectionStage::Reading | ConnectionStage::Lingering);
            let candidates = self.connections.iter().enumerate().filter(|(_, of)| idle(of));
            match candidates.min_by_key(|(_, of)| of.deadline).map(|(index, _)| index) {
                Some(index) => drop(self.connections.swap_remove(index)),
                None => {
                    connection.finish(&Response::line(503, "too many connections"), now);
                    return connection.poll(&self.state, false, now);
                }
            }
        }
        self.connections.push(connection);
    }

    fn can_subscribe(&self) -> bool {
        self.connections.iter().filter(|of| of.stage == ConnectionStage::Streaming).count() < SUBSCRIBERS_MAX
    }

    /// Sends the history to a new subscriber.
    fn send_history(&self, connection: &mut Connection, now: Instant) {
        if connection.stage == ConnectionStage::Streaming && connection.is_new_subscriber {
            connection.is_new_subscriber = false;
            connection.push_event(&self.feed.history(), now);
        }
    }

    fn poll_connections(&mut self, now: Instant) {
        let mut connections = std::mem::take(&mut self.connections);
        for mut connection in connections.drain(..) {
            // Connections polled before this one count, as do existing subscribers.
            let can_subscribe = connection.stage == ConnectionStage::Streaming || self.can_subscribe();
            if self.acceptor.admit(&mut connection, now) {
                connection.poll(&self.state, can_subscribe, now);
            }
            self.send_history(&mut connection, now);
            if connection.stage != ConnectionStage::Closed {
                self.connections.push(connection);
            }
        }
    }

    /// Waits until a socket is ready or a deadline is due.
    fn wait(&self, next: Instant) {
        let now = Instant::now();
        let due = self
            .connections
            .iter()
            .map(|of| of.deadline)
            .chain(self.accept_paused_until)
            .chain(self.acceptor.next_handshake(&self.connections, now))
            .fold(next, Instant::min);
        let span = due.saturating_duration_since(now).max(Duration::from_millis(1));
        let listening = if self.accept_paused_until.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut descriptors = vec![PollFd::new(&self.listener, listening), PollFd::new(&self.control, PollFlags::IN)];
        descriptors.extend(self.connections.iter().map(|connection| {
            let (reads, writes) = connection.interest();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            PollFd::new(connection.stream.socket(), flags)
        }));
        let span = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) };
        // All connections are polled next, whatever the result: none of them blocks.
        let _ = poll(&mut descriptors, Some(&span));
    }

    /// Sends the remaining responses, then ends.
    fn shut_down(mut self, now: Instant) {
        let until = now + SHUTDOWN_TIMEOUT;
        self.connections.retain(|of| of.stage == ConnectionStage::Writing);
        while !self.connections.is_empty() && Instant::now() < until {
            self.poll_connections(Instant::now());
            self.wait(Instant::now() + Duration::from_millis(10));
        }
    }
}
