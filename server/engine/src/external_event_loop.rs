//! The engine without its threads: listener, connections and admission for a server that brings threads of its own. One thread at a time
//! has the connections; what is admitted waits in one queue for whichever thread executes it. Never here: which thread does what.

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

/// A thread with an answer tries so long to have the connections. Then it leaves the answer to the thread that has them: less than the
/// wake-up that waiting would cost.
const MAX_SPIN: Nanos = Nanos(2_000);

/// Connections of a server whose threads come from elsewhere. Shared by all of them.
pub struct ExternalEventLoop<P: Protocol> {
    slot: ExclusiveClaim<LoopSlot<P>, Completion<P>>,
    /// Half of the controller for requests whose turn has come.
    execution: Mutex<Box<dyn Admission>>,
    handle: Handle<P>,
    state: Arc<State>,
    address: SocketAddr,
    descriptor: RawFd,
}

/// The end of a call on its way to its connection.
type Completion<P> = (ConnectionId, <P as Protocol>::Completion);

/// The connections, and what is told of them to threads that don't have them.
struct LoopSlot<P: Protocol> {
    core: Core<P, TcpStream>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Whether there is something to do that no socket will tell of.
    needs_poll: AtomicBool,
    /// When there is something to do whatever comes.
    next_timeout: AtomicU64,
    is_drained: AtomicBool,
    has_failed: AtomicBool,
}

/// An admitted request whose turn has come.
pub struct AdmittedRequest<P: Protocol> {
    /// Where its answer goes.
    pub connection: ConnectionId,
    /// When its packet came.
    pub arrival: Time,
    /// How long it has waited since.
    pub wait: Nanos,
    /// The request.
    pub call: P::Call,
}

impl<P: Protocol> LoopSlot<P> {
    /// Looks at the connections once, without waiting.
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
    fn handle_messages(&mut self, letters: &mut Vec<Completion<P>>) {
        let now = self.core.now();
        for (to, done) in letters.drain(..) {
            self.core.answer(to, done, now, FlushMode::Immediate);
        }
        // Whoever has the connections next may have them in a while only.
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
        let seat = ExclusiveClaim::new(LoopSlot { core, state: Arc::clone(&state) });
        ExternalEventLoop { slot: seat, execution: Mutex::new(execution), handle, state, address, descriptor }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The running engine: its clock, its counters.
    pub fn handle(&self) -> &Handle<P> {
        &self.handle
    }

    /// Descriptor that is readable while something has come that nobody has looked at.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    /// Looks at the connections once and queues what is admitted. Whether anything had come; `None` if another thread has them.
    pub fn poll(&self) -> Option<bool> {
        self.slot.try_with(LoopSlot::poll)
    }

    /// Whether a look is due although the descriptor may not say so. True only of a moment that may be over.
    pub fn needs_poll(&self) -> bool {
        self.state.needs_poll.load(Ordering::Relaxed) || self.slot.has_messages()
    }

    /// When a look is due whatever comes.
    pub fn next_timeout(&self) -> Time {
        Time(self.state.next_timeout.load(Ordering::Relaxed))
    }

    /// Whether requests wait in the queue.
    pub fn has_queued(&self) -> bool {
        !self.handle.shared.queues.are_empty()
    }

    /// Takes the oldest request from the queue. Those that the controller refuses in their turn are answered on the way.
    pub fn take(&self) -> Option<AdmittedRequest<P>> {
        let shared = &self.handle.shared;
        while let Some((_, work)) = shared.queues.pop(0) {
            // A front has no tasks.
            let Work::Job(Job { reply_to: parcel, arrival: arrived, is_admitted, call, .. }) = work else { continue };
            let waited = shared.clock.now().since(arrived);
            if is_admitted && let Verdict::Reject(reason) = lock(&self.execution).on_dequeue(waited) {
                self.answer(parcel.connection, P::reject(call, reason));
                continue;
            }
            return Some(AdmittedRequest { connection: parcel.connection, arrival: arrived, wait: waited, call });
        }
        None
    }

    /// Answers a call: sends the answer, or leaves it to the thread that has the connections. Whether a look is due that nobody may know
    /// of: then the caller sees to it that a thread looks.
    pub fn answer(&self, to: ConnectionId, done: P::Completion) -> bool {
        let mut done = Some(done);
        let clock = &self.handle.shared.clock;
        let mut since = None;
        loop {
            let answered = self.slot.try_with(|seat| {
                if let Some(done) = done.take() {
                    let now = seat.core.now();
                    seat.core.answer(to, done, now, FlushMode::Immediate);
                    seat.core.flush_all(now);
                    seat.publish();
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

    /// Takes no more connections and calls from now on.
    pub fn stop(&self) {
        self.handle.shared.stop();
    }

    /// Whether all that was owed when it stopped is done, or its patience is over; the connections have ended then.
    pub fn is_drained(&self) -> bool {
        if !self.state.is_drained.load(Ordering::SeqCst) {
            let drained = self.slot.try_with(|seat| {
                let now = seat.core.now();
                seat.core.housekeeping(now);
                let is_drained = seat.core.is_drained(now);
                seat.state.is_drained.fetch_or(is_drained, Ordering::SeqCst);
                seat.publish();
            });
            let _: Option<()> = drained;
        }
        self.state.is_drained.load(Ordering::SeqCst)
    }

    /// Whether its sockets can't be looked at any more.
    pub fn has_failed(&self) -> bool {
        self.state.has_failed.load(Ordering::Relaxed)
    }

    /// Outcome of the connections, once all threads have ended.
    ///
    /// # Errors
    /// The sockets can't be looked at.
    pub fn outcome(&self) -> io::Result<()> {
        if self.has_failed() { Err(io::Error::other("the server's sockets could not be looked at")) } else { Ok(()) }
    }
}
