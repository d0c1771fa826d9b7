//! The thread of an admin port and its sockets: accepting, waiting, telling the state once a second. Never here: answers.

use crate::connection::{Connection, Stage};
use crate::feed::Feed;
use crate::response::Response;
use crate::routes::State;
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
const CONNECTIONS: usize = 16;
/// Of them, listeners to events.
const LISTENERS: usize = 4;
/// Connections that are accepted before those that are there have their turn.
const BATCH: usize = 64;
/// From one state to the next.
const SECOND: Duration = Duration::from_secs(1);
/// Out of descriptors, the listener is asked again after this long.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the last answers may take when the port ends.
const FAREWELL: Duration = Duration::from_millis(500);

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
    bell: Option<UnixStream>,
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
        Admin::begin(listener, sources, config, Gateway::default())
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
        let lock = crate::tls::Lock::new(tls, sources.handshakes());
        Admin::begin(listener, sources, config, Gateway { lock: Some(lock) })
    }

    fn begin(listener: TcpListener, sources: Sources, config: String, gateway: Gateway) -> Result<Admin, AdminError> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (bell, heard) = UnixStream::pair()?;
        heard.set_nonblocking(true)?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let state = State { address, sources: sources.clone(), config, is_stopping: Arc::clone(&is_stopping) };
        let port =
            Port { listener, bell: heard, state, connections: Vec::new(), feed: Feed::default(), rests: None, gateway };
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || port.run())?;
        Ok(Admin { address, sources, is_stopping, bell: Some(bell), thread: Some(thread) })
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
        let _ = self.bell.as_ref().map(|mut bell| bell.write(b"!"));
    }

    /// Ends it.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.bell.take());
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
struct Gateway {
    #[cfg(feature = "tls")]
    lock: Option<crate::tls::Lock>,
}

impl Gateway {
    fn adopt(&self, connection: Connection) -> Connection {
        #[cfg(feature = "tls")]
        if let Some(lock) = &self.lock {
            return connection.encrypted(lock);
        }
        connection
    }

    /// Whether a connection may have its turn.
    fn admit(&mut self, connection: &mut Connection, now: Instant) -> bool {
        #[cfg(feature = "tls")]
        if let Some(lock) = &mut self.lock {
            return connection.admit(lock, now);
        }
        let _ = (connection, now);
        true
    }

    /// When one that waits for its handshake may begin it.
    fn next(&self, connections: &[Connection], now: Instant) -> Option<Instant> {
        #[cfg(feature = "tls")]
        if let Some(lock) = &self.lock {
            lock.note(connections.iter().filter(|of| of.is_handshaking()).count());
            return connections.iter().any(Connection::waits_for_ration).then(|| lock.next(now));
        }
        let _ = (connections, now);
        None
    }
}

/// All that the thread has.
struct Port {
    listener: TcpListener,
    bell: UnixStream,
    state: State,
    connections: Vec<Connection>,
    feed: Feed,
    /// Until when the listener is not asked.
    rests: Option<Instant>,
    gateway: Gateway,
}

/// The owner's words.
#[derive(PartialEq, Eq)]
enum Bell {
    Silent,
    /// Tell the listeners now.
    Rung,
    Over,
}

impl Port {
    fn run(mut self) {
        let mut next = Instant::now();
        loop {
            let now = Instant::now();
            let rung = self.listen_to_bell();
            if rung == Bell::Over {
                return self.part(now);
            }
            if now >= next || rung == Bell::Rung {
                self.tick(now);
                next = now + SECOND;
            }
            self.accept(now);
            self.turn(now);
            self.wait(next);
        }
    }

    fn listen_to_bell(&mut self) -> Bell {
        match self.bell.read(&mut [0; 16]) {
            Ok(0) => Bell::Over,
            Ok(_) => Bell::Rung,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Bell::Silent,
            Err(_) => Bell::Over,
        }
    }

    fn tick(&mut self, now: Instant) {
        let event = self.feed.tick(&self.state);
        let heard = |connection: &&mut Connection| connection.stage == Stage::Listening && !connection.is_new_listener;
        self.connections.iter_mut().filter(heard).for_each(|connection| connection.tell(&event, now));
    }

    fn accept(&mut self, now: Instant) {
        if self.rests.is_some_and(|until| now < until) {
            return;
        }
        self.rests = None;
        for _ in 0..BATCH {
            match self.listener.accept() {
                Ok((stream, _)) => self.adopt(stream, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Its client has gone already.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => return self.rests = Some(now + PAUSE),
            }
        }
    }

    /// Takes a connection. When there are as many as there may be, one whose head has not come makes room: whoever opens many and
    /// says nothing must not keep others from asking.
    fn adopt(&mut self, stream: TcpStream, now: Instant) {
        let Ok(connection) = Connection::new(stream, now) else { return };
        let mut connection = self.gateway.adopt(connection);
        let room = self.has_room_for_listener();
        // Those that wait for a handshake have theirs first; the next turn admits this one.
        let is_next = !self.connections.iter().any(Connection::waits_for_ration);
        if is_next && self.gateway.admit(&mut connection, now) {
            connection.turn(&self.state, room, now);
        }
        self.greet(&mut connection, now);
        if connection.stage == Stage::Over {
            return;
        }
        if self.connections.len() >= CONNECTIONS {
            let idle = |of: &Connection| matches!(of.stage, Stage::Reading | Stage::Lingering);
            let places = self.connections.iter().enumerate().filter(|(_, of)| idle(of));
            match places.min_by_key(|(_, of)| of.due).map(|(place, _)| place) {
                Some(place) => drop(self.connections.swap_remove(place)),
                None => {
                    connection.finish(&Response::line(503, "there are connections enough"), now);
                    return connection.turn(&self.state, false, now);
                }
            }
        }
        self.connections.push(connection);
    }

    fn has_room_for_listener(&self) -> bool {
        self.connections.iter().filter(|of| of.stage == Stage::Listening).count() < LISTENERS
    }

    /// Tells a new listener of the past.
    fn greet(&self, connection: &mut Connection, now: Instant) {
        if connection.stage == Stage::Listening && connection.is_new_listener {
            connection.is_new_listener = false;
            connection.tell(&self.feed.past(), now);
        }
    }

    fn turn(&mut self, now: Instant) {
        let mut connections = std::mem::take(&mut self.connections);
        for mut connection in connections.drain(..) {
            // Those that have had their turn count, and those that listen already.
            let room = connection.stage == Stage::Listening || self.has_room_for_listener();
            if self.gateway.admit(&mut connection, now) {
                connection.turn(&self.state, room, now);
            }
            self.greet(&mut connection, now);
            if connection.stage != Stage::Over {
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
            .map(|of| of.due)
            .chain(self.rests)
            .chain(self.gateway.next(&self.connections, now))
            .fold(next, Instant::min);
        let span = due.saturating_duration_since(now).max(Duration::from_millis(1));
        let listening = if self.rests.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut descriptors = vec![PollFd::new(&self.listener, listening), PollFd::new(&self.bell, PollFlags::IN)];
        descriptors.extend(self.connections.iter().map(|connection| {
            let (reads, writes) = connection.wants();
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
    fn part(mut self, now: Instant) {
        let until = now + FAREWELL;
        self.connections.retain(|of| of.stage == Stage::Writing);
        while !self.connections.is_empty() && Instant::now() < until {
            self.turn(Instant::now());
            self.wait(Instant::now() + Duration::from_millis(10));
        }
    }
}
