//! The thread of an admin port and its sockets: accepting, waiting, telling the state once a second. Never here: answers.

use crate::connection::{Connection, ConnectionStage};
use crate::feed::Feed;
use crate::response::Response;
use crate::routes::AdminState;
use crate::sources::Sources;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// Of them, listeners to events.
const SUBSCRIBERS_MAX: usize = 4;
/// Connections that are accepted before those that are there have their turn.
const ACCEPT_BATCH: usize = 64;
/// From one state to the next.
const FEED_INTERVAL: Duration = Duration::from_secs(1);
/// Out of descriptors, the listener is asked again after this long.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// How long the last answers may take when the port ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// An admin port that can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address is in use, not ours, or no address at all.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Address that was asked for.
        address: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The system has no thread or descriptor to give.
    #[error("can't start the admin port: {0}")]
    Thread(#[from] std::io::Error),
}

/// A running admin port. It ends when it is dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    sources: Sources,
    is_stopping: Arc<AtomicBool>,
    /// Its other end tells the thread to end: by being closed.
    control: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens on `address`, such as `127.0.0.1:9464`. `config` is the text behind `/debug/config`.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn start(address: &str, sources: Sources, config: String) -> Result<Admin, AdminError> {
        let refused = |source| AdminError::Listen { address: address.chars().take(100).collect(), source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        Admin::start_on(listener, sources, config)
    }

    /// The same on a socket that listens already.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn start_on(listener: TcpListener, sources: Sources, config: String) -> Result<Admin, AdminError> {
        Admin::spawn(listener, sources, config, Acceptor::default())
    }

    /// The same for clients with TLS alone, whose certificate is looked at where `tls` wants one. Its files are to be opened for
    /// [`crate::ALPN`] ([`leeward_tls::ServerTls::open_for`]).
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
        let lock = crate::tls::TlsAcceptor::new(tls, sources.handshake_counters());
        Admin::spawn(listener, sources, config, Acceptor { tls: Some(lock) })
    }

    fn spawn(listener: TcpListener, sources: Sources, config: String, gateway: Acceptor) -> Result<Admin, AdminError> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (bell, heard) = UnixStream::pair()?;
        heard.set_nonblocking(true)?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let state = AdminState { address, sources: sources.clone(), config, is_stopping: Arc::clone(&is_stopping) };
        let port = EventLoop {
            listener,
            control: heard,
            state,
            connections: Vec::new(),
            feed: Feed::default(),
            accept_paused_until: None,
            acceptor: gateway,
        };
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || port.run())?;
        Ok(Admin { address, sources, is_stopping, control: Some(bell), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Servers and gates that it tells of.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The server begins to stop: it is not ready any more.
    pub fn begin_stopping(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        // Listeners shall know before their connection ends.
        let _ = self.control.as_ref().map(|mut bell| bell.write(b"!"));
    }

    /// Ends it.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.control.take());
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

/// Step before a connection's first words: a handshake, where there is TLS.
#[derive(Default)]
struct Acceptor {
    #[cfg(feature = "tls")]
    tls: Option<crate::tls::TlsAcceptor>,
}

impl Acceptor {
    fn wrap(&self, connection: Connection) -> Connection {
        #[cfg(feature = "tls")]
        if let Some(lock) = &self.tls {
            return connection.with_tls(lock);
        }
        connection
    }

    /// Whether a connection may have its turn.
    fn admit(&mut self, connection: &mut Connection, now: Instant) -> bool {
        #[cfg(feature = "tls")]
        if let Some(lock) = &mut self.tls {
            return connection.admit(lock, now);
        }
        let _ = (connection, now);
        true
    }

    /// When one that waits for its handshake may begin it.
    fn next_handshake(&self, connections: &[Connection], now: Instant) -> Option<Instant> {
        #[cfg(feature = "tls")]
        if let Some(lock) = &self.tls {
            lock.record_waiting(connections.iter().filter(|of| of.is_handshaking()).count());
            return connections.iter().any(Connection::awaits_handshake_quota).then(|| lock.next_handshake(now));
        }
        let _ = (connections, now);
        None
    }
}

/// All that the thread has.
struct EventLoop {
    listener: TcpListener,
    control: UnixStream,
    state: AdminState,
    connections: Vec<Connection>,
    feed: Feed,
    /// Until when the listener is not asked.
    accept_paused_until: Option<Instant>,
    acceptor: Acceptor,
}

/// The owner's words.
#[derive(PartialEq, Eq)]
enum ControlEvent {
    Idle,
    /// Tell the listeners now.
    Wake,
    Stop,
}

impl EventLoop {
    fn run(mut self) {
        let mut next = Instant::now();
        loop {
            let now = Instant::now();
            let rung = self.poll_control();
            if rung == ControlEvent::Stop {
                return self.shut_down(now);
            }
            if now >= next || rung == ControlEvent::Wake {
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
        let heard = |connection: &&mut Connection| {
            connection.stage == ConnectionStage::Streaming && !connection.is_new_subscriber
        };
        self.connections.iter_mut().filter(heard).for_each(|connection| connection.push_event(&event, now));
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
                // Its client has gone already.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => return self.accept_paused_until = Some(now + ACCEPT_BACKOFF),
            }
        }
    }

    /// Takes a connection. When there are as many as there may be, one whose head has not come makes room: whoever opens many and
    /// says nothing must not keep others from asking.
    fn add_connection(&mut self, stream: TcpStream, now: Instant) {
        let Ok(connection) = Connection::new(stream, now) else { return };
        let mut connection = self.acceptor.wrap(connection);
        let room = self.can_subscribe();
        // Those that wait for a handshake have theirs first; the next turn admits this one.
        let is_next = !self.connections.iter().any(Connection::awaits_handshake_quota);
        if is_next && self.acceptor.admit(&mut connection, now) {
            connection.poll(&self.state, room, now);
        }
        self.send_history(&mut connection, now);
        if connection.stage == ConnectionStage::Closed {
            return;
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            let idle = |of: &Connection| matches!(of.stage, ConnectionStage::Reading | ConnectionStage::Lingering);
            let places = self.connections.iter().enumerate().filter(|(_, of)| idle(of));
            match places.min_by_key(|(_, of)| of.deadline).map(|(place, _)| place) {
                Some(place) => drop(self.connections.swap_remove(place)),
                None => {
                    connection.finish(&Response::line(503, "there are connections enough"), now);
                    return connection.poll(&self.state, false, now);
                }
            }
        }
        self.connections.push(connection);
    }

    fn can_subscribe(&self) -> bool {
        self.connections.iter().filter(|of| of.stage == ConnectionStage::Streaming).count() < SUBSCRIBERS_MAX
    }

    /// Tells a new listener of the past.
    fn send_history(&self, connection: &mut Connection, now: Instant) {
        if connection.stage == ConnectionStage::Streaming && connection.is_new_subscriber {
            connection.is_new_subscriber = false;
            connection.push_event(&self.feed.history(), now);
        }
    }

    fn poll_connections(&mut self, now: Instant) {
        let mut connections = std::mem::take(&mut self.connections);
        for mut connection in connections.drain(..) {
            // Those that have had their turn count, and those that listen already.
            let room = connection.stage == ConnectionStage::Streaming || self.can_subscribe();
            if self.acceptor.admit(&mut connection, now) {
                connection.poll(&self.state, room, now);
            }
            self.send_history(&mut connection, now);
            if connection.stage != ConnectionStage::Closed {
                self.connections.push(connection);
            }
        }
    }

    /// Waits until something can be done or something is due.
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
        // Whatever it says, all are looked at: none of them waits.
        let _ = poll(&mut descriptors, Some(&span));
    }

    /// Sends what is left of the answers, and ends.
    fn shut_down(mut self, now: Instant) {
        let until = now + SHUTDOWN_TIMEOUT;
        self.connections.retain(|of| of.stage == ConnectionStage::Writing);
        while !self.connections.is_empty() && Instant::now() < until {
            self.poll_connections(Instant::now());
            self.wait(Instant::now() + Duration::from_millis(10));
        }
    }
}
