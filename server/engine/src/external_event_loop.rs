//! The engine without its threads: listener, connections and admission for a server with threads of
//! its own. One thread at a time has the connections. Admitted requests wait in one queue for any
//! thread. Does not contain the threads' roles.

use crate::core::{Core, FlushMode};
use crate::handle::Handle;
use crate::job::{ConnectionId, Job};
use crate::protocol::Protocol;
use leeward_core::server::{Admission, Verdict};
use leeward_core::units::{Nanos, Time};
use leeward_host::sync::{Mutex, lock};
use leeward_runtime::Network;
use leeward_runtime::tasks::Work;
use leeward_runtime::thread_pool::{ExclusiveClaim, MessageHandler};
use mio::net::TcpStream;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Time for which a thread with a response tries to get the connections. After that it leaves the
/// response to the thread that has them. Trying costs less than the wake-up that waiting would
/// cost.
const MAX_SPIN: Nanos = Nanos(2_000);

/// Connections of a server with external threads. All of the threads share it.
pub struct ExternalEventLoop<P: Protocol> {
    slot: ExclusiveClaim<LoopSlot<P>, Completion<P>>,
    /// The controller's half for dequeued requests.
    execution: Mutex<Box<dyn Admission>>,
    handle: Handle<P>,
    state: Arc<State>,
    address: SocketAddr,
    descriptor: RawFd,
}

/// A completed call for its connection.
type Completion<P> = (ConnectionId, <P as Protocol>::Completion);

/// The connections, and their state for threads that don't have them.
struct LoopSlot<P: Protocol> {
    core: Core<P, TcpStream>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Whether there is work that no socket reports.
    needs_poll: AtomicBool,
    /// Time at which a poll is due even without events.
    next_timeout: AtomicU64,
    is_drained: AtomicBool,
    has_failed: AtomicBool,
}

/// An admitted and dequeued request.
pub struct AdmittedRequest<P: Protocol> {
    /// Connection that gets its response.
    pub connection: ConnectionId,
    /// Arrival time of its packet.
    pub arrival: Time,
    /// Time since its arrival.
    pub wait: Nanos,
    /// The request.
    pub call: P::Call,
}

impl<P: Protocol> LoopSlot<P> {
    /// Polls the connections once, without blocking.
    fn poll(&mut self) -> bool {
        self.core.housekeeping(self.core.now());
        let found = self.core.poll(None);
        self.state.has_failed.fetch_or(found.is_err(), Ordering::Relaxed);
        self.publish();
        matches!(found, Ok(Some(_)))
    }

    fn publish(&self) {
        self.state.needs_poll.store(self.core.needs_poll(), Ordering::Relaxed);
        self.state.next_timeout.store(self.core.next_timeout().0, Ordering::Relaxed);
    }
}

impl<P: Protocol> MessageHandler<Completion<P>> for LoopSlot<P> {
    fn handle_messages(&mut self, messages: &mut Vec<Completion<P>>) {
        let now = self.core.now();
        for (connection, done) in messages.drain(..) {
            self.core.answer(connection, done, now, FlushMode::Immediate);
        }
        // The next thread may get the connections only after a while.
        self.core.flush_all(now);
        self.publish();
    }
}

impl<P: Protocol> ExternalEventLoop<P> {
    pub(crate) fn new(
        address: SocketAddr,
        handle: Handle<P>,
        core: Core<P, TcpStream>,
        execution: Box<dyn Admission>,
    ) -> Self {
        let (descriptor, state) = (core.descriptor(), Arc::new(State::default()));
        let claim = ExclusiveClaim::new(LoopSlot { core, state: Arc::clone(&state) });
        ExternalEventLoop { slot: claim, execution: Mutex::new(execution), handle, state, address, descriptor }
    }

    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The running engine, with its clock and counters.
    pub fn handle(&self) -> &Handle<P> {
        &self.handle
    }

    /// Descriptor that is readable while events are pending.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    /// Polls the connections once and queues admitted requests. Returns whether there were events;
    /// `None` if another thread has the connections.
    pub fn poll(&self) -> Option<bool> {
        self.slot.try_with(LoopSlot::poll)
    }

    /// Returns whether a poll is due although the descriptor may not be readable. The answer may be
    /// outdated already.
    pub fn needs_poll(&self) -> bool {
        self.state.needs_poll.load(Ordering::Relaxed) || self.slot.has_messages()
    }

    /// Time at which a poll is due even without events.
    pub fn next_timeout(&self) -> Time {
        Time(self.state.next_timeout.load(Ordering::Relaxed))
    }

    /// Returns whether requests wait in the queue.
    pub fn has_queued(&self) -> bool {
        !self.handle.shared.queues.are_empty()
    }

    /// Takes the oldest request from the queue. Requests that the controller rejects when dequeued
    /// are answered on the way.
    pub fn take(&self) -> Option<AdmittedRequest<P>> {
        let shared = &self.handle.shared;
        while let Some((_, work)) = shared.queues.pop(0) {
            // An external event loop has no tasks.
            let Work::Job(Job { reply_to: address, arrival: arrived, is_admitted, call, .. }) = work else { continue };
            let waited = shared.clock.now().since(arrived);
            if is_admitted && let Verdict::Reject(reason) = lock(&self.execution).on_dequeue(waited) {
                self.answer(address.connection, P::reject(call, reason));
                continue;
            }
            return Some(AdmittedRequest { connection: address.connection, arrival: arrived, wait: waited, call });
        }
        None
    }

    /// Answers a call: sends the response, or leaves it to the thread that has the connections.
    /// Returns whether a poll is due that no thread may know of. The caller must then make a thread
    /// poll.
    pub fn answer(&self, to: ConnectionId, done: P::Completion) -> bool {
        let mut done = Some(done);
        let clock = &self.handle.shared.clock;
        let mut since = None;
        loop {
            let answered = self.slot.try_with(|slot| {
                if let Some(done) = done.take() {
                    let now = slot.core.now();
                    slot.core.answer(to, done, now, FlushMode::Immediate);
                    slot.core.flush_all(now);
                    slot.publish();
                }
            });
            if answered.is_some() {
                return self.needs_poll();
            }
            let now = clock.now();
            if now.since(*since.get_or_insert(now)) >= MAX_SPIN {
                break;
            }
            std::hint::spin_loop();
        }
        if let Some(done) = done {
            self.slot.send((to, done));
        }
        self.needs_poll()
    }

    /// Accepts no more connections and calls.
    pub fn stop(&self) {
        self.handle.shared.stop();
    }

    /// Returns whether all requests before the stop are answered, or the drain timeout has passed.
    /// The connections are then closed.
    pub fn is_drained(&self) -> bool {
        if !self.state.is_drained.load(Ordering::SeqCst) {
            let drained = self.slot.try_with(|slot| {
                let now = slot.core.now();
                slot.core.housekeeping(now);
                let is_drained = slot.core.is_drained(now);
                slot.state.is_drained.fetch_or(is_drained, Ordering::SeqCst);
                slot.publish();
            });
            let _: Option<()> = drained;
        }
        self.state.is_drained.load(Ordering::SeqCst)
    }

    /// Returns whether polling the sockets has failed.
    pub fn has_failed(&self) -> bool {
        self.state.has_failed.load(Ordering::Relaxed)
    }

    /// Returns the result of the connections after all threads have ended.
    ///
    /// # Errors
    /// Polling the sockets failed.
    pub fn outcome(&self) -> io::Result<()> {
        if self.has_failed() { Err(io::Error::other("polling the server's sockets has failed")) } else { Ok(()) }
    }
}
