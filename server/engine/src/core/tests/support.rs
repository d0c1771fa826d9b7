//! Test support: a core, the clients' ends of virtual sockets, and their protocol. Does not contain
//! tests.

use crate::closing_handshake::ClosingHandshake;
use crate::core::{Core, CoreState};
use crate::encryption::{Encryption, HandshakeCounters};
use crate::free_buffers::FreeBuffers;
use crate::handle::{EngineState, Handle};
use crate::input::ReceiveBuffer;
use crate::limits::Limits;
use crate::mailboxes::Mailboxes;
use crate::poll_context::PollContext;
use crate::protocol::{AnswerOutcome, CloseReason, ExecuteOutcome, Protocol, ProtocolEvent};
use crate::receive::{IoUring, ReadOutcome, ReadState, SocketReader};
use crate::statistics::{ServiceInfo, TierReport};
use crate::stream::Stream;
use leeward_core::none;
use leeward_core::params::Params;
use leeward_core::registry::Environment;
use leeward_core::server::RejectReason;
use leeward_core::units::{Nanos, Time};
use leeward_host::{ConnectionContext, ControlTicker, Counters};
use leeward_runtime::Network;
use leeward_runtime::clock::{Clock, ManualTime};
use leeward_runtime::cores::Shared;
use leeward_runtime::tasks::Work;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Poll, Registry, Token};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Costs of work on the core.
const READ: Nanos = Nanos(1_000);
const ITEM: Nanos = Nanos(500);
const CALL: Nanos = Nanos(1_000);
pub(super) const SLOW_CALL: Nanos = Nanos::from_millis(5);
/// Length of a long response, bytes.
pub(super) const LONG: usize = 100 * 1024;
/// Maximum unanswered calls of a connection.
pub(super) const UNANSWERED: usize = 2;

// ---- the virtual socket ----

/// State that both ends of a connection share.
struct Wire {
    clock: Clock,
    to_server: VecDeque<u8>,
    sent: Time,
    has_ended: bool,
    to_client: Vec<u8>,
    /// Bytes that the client's side can hold.
    capacity: usize,
    is_shut: bool,
    is_closed: bool,
}

/// The server's end. Readiness is real: the client writes to a socket that the core polls.
pub(super) struct Socket {
    wire: Arc<Mutex<Wire>>,
    bell: UnixStream,
    time: ManualTime,
}

/// The client's end.
pub(super) struct Client {
    wire: Arc<Mutex<Wire>>,
    bell: UnixStream,
}

impl Socket {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap()
    }

    /// Drains the wakeups, so that the next one causes an event.
    fn drain_wakeups(&mut self) {
        while self.bell.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.wire().is_closed = true;
    }
}

impl Stream for Socket {
    fn accept(_: TcpStream) -> io::Result<Self> {
        Err(ErrorKind::Unsupported.into())
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.bell, token, Interest::READABLE | Interest::WRITABLE)
    }

    fn deregister(&mut self, registry: &Registry) {
        registry.deregister(&mut self.bell).unwrap();
    }

    fn receive(&mut self, _: &mut SocketReader, into: &mut [u8]) -> io::Result<ReadOutcome> {
        self.time.advance(READ);
        self.drain_wakeups();
        let mut wire = self.wire();
        let count = into.len().min(wire.to_server.len());
        wire.to_server.drain(..count).zip(into.iter_mut()).for_each(|(byte, place)| *place = byte);
        match count {
            0 if wire.has_ended => Ok(ReadOutcome { bytes: 0, state: ReadState::End, wait: None }),
            0 => Ok(ReadOutcome::NOTHING),
            _ => Ok(ReadOutcome::of(count, into.len(), Some(wire.clock.now().since(wire.sent)))),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut wire = self.wire();
        let count = bytes.len().min(wire.capacity - wire.to_client.len().min(wire.capacity));
        wire.to_client.extend_from_slice(&bytes[..count]);
        if count > 0 { Ok(count) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    fn raw(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn shutdown(&self) -> io::Result<()> {
        self.wire().is_shut = true;
        Ok(())
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn discard(&mut self, discarded: &mut usize, most: usize) -> ClosingHandshake {
        self.drain_wakeups();
        let mut wire = self.wire();
        *discarded += wire.to_server.drain(..).count();
        match wire.has_ended {
            _ if *discarded > most => ClosingHandshake::Abandoned,
            true => ClosingHandshake::Done,
            false => ClosingHandshake::Pending,
        }
    }
}

impl Client {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap()
    }

    fn ring(&self) {
        // A full wake-up socket already causes an event.
        let _ = (&self.bell).write(&[1]);
    }

    pub(super) fn send(&self, bytes: impl AsRef<[u8]>) {
        let mut wire = self.wire();
        wire.to_server.extend(bytes.as_ref());
        wire.sent = wire.clock.now();
        drop(wire);
        self.ring();
    }

    /// Takes the bytes that have arrived.
    pub(super) fn take(&self) -> Vec<u8> {
        let taken = std::mem::take(&mut self.wire().to_client);
        if !taken.is_empty() {
            self.ring();
        }
        taken
    }

    /// Sets how many untaken bytes the client's side can hold.
    pub(super) fn has_room(&self, bytes: usize) {
        self.wire().capacity = bytes;
        self.ring();
    }

    /// Bytes that the server has not read.
    pub(super) fn unread(&self) -> usize {
        self.wire().to_server.len()
    }

    pub(super) fn end(&self) {
        self.wire().has_ended = true;
        self.bell.shutdown(Shutdown::Write).unwrap();
    }

    /// Returns whether the server has ended its half.
    pub(super) fn is_shut(&self) -> bool {
        self.wire().is_shut
    }

    pub(super) fn is_closed(&self) -> bool {
        self.wire().is_closed
    }
}

// ---- the protocol ----

/// A protocol of single letters:
///
/// - `m`: a message; `v`: a protocol violation; `r`: a rejected request; `q`: a request to close.
/// - `c`: a call; `s`: a slow call; `l`: a call with a long response; `(`: a call that is whole
///   when `)` arrives.
pub(super) struct LetterProtocol(ManualTime);

pub(super) struct Connection {
    input: ReceiveBuffer,
    owed: usize,
}

pub(super) struct Call {
    cost: Nanos,
    answer: usize,
}

/// Length of a response.
pub(super) struct Done(usize);

impl Protocol for LetterProtocol {
    type Connection = Connection;
    type Input = ReceiveBuffer;
    type Call = Call;
    type Completion = Done;

    const QUANTUM: usize = 64;
    const IS_SERIAL: bool = false;
    const HAS_TASKS: bool = false;

    fn open(&mut self, _: &mut PollContext<'_, Call>) -> Connection {
        Connection { input: ReceiveBuffer::new(4096), owed: 0 }
    }

    fn next(&mut self, connection: &mut Connection, context: &mut PollContext<'_, Call>) -> ProtocolEvent<Call> {
        let (mut length, bytes) = (1, connection.input.bytes());
        let (cost, answer) = match bytes.first() {
            Some(b'c') => (CALL, 1),
            Some(b's') => (SLOW_CALL, 1),
            Some(b'l') => (CALL, LONG),
            Some(b'(') => match bytes.iter().position(|byte| *byte == b')') {
                Some(end) => {
                    length = end + 1;
                    (CALL, 1)
                }
                None => return ProtocolEvent::Incomplete,
            },
            None => return ProtocolEvent::Incomplete,
            Some(other) => {
                let other = *other;
                self.0.advance(ITEM);
                connection.input.consume(1);
                return match other {
                    b'm' => ProtocolEvent::Handled,
                    b'v' => ProtocolEvent::Violation,
                    b'r' => {
                        context.out().push(b'r');
                        ProtocolEvent::Rejected
                    }
                    _ => ProtocolEvent::Close(CloseReason::SILENT),
                };
            }
        };
        self.0.advance(ITEM);
        connection.input.consume(length);
        connection.owed += 1;
        context.count_received();
        ProtocolEvent::Call { call: Call { cost, answer }, is_admitted: true }
    }

    fn answer(
        &mut self,
        connection: &mut Connection,
        done: Done,
        context: &mut PollContext<'_, Call>,
    ) -> AnswerOutcome {
        connection.owed -= 1;
        let length = context.out().len() + done.0;
        context.out().resize(length, b'a');
        AnswerOutcome::Continue
    }

    fn send_credit(&mut self, _: &mut Connection, _: &mut PollContext<'_, Call>) -> bool {
        false
    }

    fn close_with(
        &mut self,
        connection: &mut Connection,
        reason: CloseReason,
        context: &mut PollContext<'_, Call>,
    ) -> usize {
        context.out().extend_from_slice(format!("{reason:?}").split(' ').next().unwrap().as_bytes());
        std::mem::take(&mut connection.owed)
    }

    fn close(&mut self, connection: &mut Connection, _: &mut PollContext<'_, Call>) -> usize {
        std::mem::take(&mut connection.owed)
    }

    fn input(connection: &mut Connection) -> &mut ReceiveBuffer {
        &mut connection.input
    }

    fn may_read(connection: &Connection) -> bool {
        connection.owed < UNANSWERED
    }

    fn unanswered(connection: &Connection) -> usize {
        connection.owed
    }

    fn execute(&self, call: Call, _: Time, _: Nanos, _: &mut FreeBuffers) -> ExecuteOutcome<Done> {
        self.0.advance(call.cost);
        ExecuteOutcome::Done(Done(call.answer))
    }

    fn reject(_: Call, _: RejectReason) -> Done {
        Done(0)
    }
}

// ---- the core ----

/// A server with one core.
pub(super) struct TestServer {
    pub(super) core: Core<LetterProtocol, Socket>,
    pub(super) handle: Handle<LetterProtocol>,
    pub(super) time: ManualTime,
}

impl TestServer {
    pub(super) fn new(limits: Limits) -> Self {
        TestServer::build(limits, |_| None)
    }

    /// Makes a server. It is encrypted if `encryption` returns one for the server's clock.
    pub(super) fn build(limits: Limits, encryption: impl Fn(&ManualTime) -> Option<Arc<dyn Encryption>>) -> Self {
        let (clock, manual_time) = Clock::manual();
        // Tests begin when the core has run for a while.
        manual_time.advance(Nanos::from_secs(1));
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
        let halves = none::ALGORITHM.server(&Params::default(), &environment).unwrap();
        let poll = Poll::new().unwrap();
        let common = Arc::new(EngineState {
            ticker: ControlTicker::new(halves.control),
            counters: vec![Counters::default()],
            mailboxes: Mailboxes::new(vec![mio::Waker::new(poll.registry(), crate::core::WAKER).unwrap()]),
            slo: Nanos::from_micros(200),
            target: None,
            watch: None,
            shadow: None,
            about: ServiceInfo::default(),
            tier: TierReport::default(),
            encryption: encryption(&manual_time),
            tenants: Arc::default(),
            handshakes: HandshakeCounters::default(),
        });
        let handle = Handle { engine: common, shared: Arc::new(Shared::new(1, clock, |_| {})) };
        let limits = Limits { io_uring: IoUring::Off, ..limits };
        let admission = halves.cores.into_iter().next().unwrap();
        let local = CoreState::new(0, handle.clone(), admission, limits);
        let core = Core::new(LetterProtocol(manual_time.clone()), local, poll, None, None, Vec::new()).unwrap();
        TestServer { core, handle, time: manual_time }
    }

    pub(super) fn now(&self) -> Time {
        self.handle.shared.clock.now()
    }

    /// Connects a client, whose capacity is unlimited.
    pub(super) fn connect(&mut self) -> Client {
        let (near, far) = UnixStream::pair().unwrap();
        let wire = Arc::new(Mutex::new(Wire {
            clock: self.handle.shared.clock.clone(),
            to_server: VecDeque::new(),
            sent: Time::ZERO,
            has_ended: false,
            to_client: Vec::new(),
            capacity: usize::MAX,
            is_shut: false,
            is_closed: false,
        }));
        let socket = Socket { wire: Arc::clone(&wire), bell: near, time: self.time.clone() };
        self.core.begin_connection(socket, self.now());
        Client { wire, bell: far }
    }

    /// Polls once.
    pub(super) fn poll(&mut self) {
        self.core.housekeeping(self.now());
        self.core.poll(Some(Duration::ZERO)).unwrap();
    }

    /// Executes all waiting calls and returns their number.
    pub(super) fn run(&mut self) -> usize {
        let mut count = 0;
        while let Some((queued, Work::Job(job))) = self.handle.shared.queues.pop(0) {
            assert!(self.core.run(queued, job).is_none());
            count += 1;
        }
        count
    }

    /// Polls and executes until nothing changes any more. Returns the number of calls.
    pub(super) fn settle(&mut self) -> usize {
        (0..20)
            .map(|_| {
                self.time.advance(Nanos(100));
                self.poll();
                self.run()
            })
            .sum()
    }

    /// Lets time pass, scans included.
    pub(super) fn pass(&mut self, span: Nanos) {
        let end = self.now() + span;
        while self.now() < end {
            self.time.advance(Nanos::from_millis(50));
            self.settle();
        }
    }
}
