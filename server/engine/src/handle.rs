//! State that the cores of a server share, and requests of a protocol and its tasks to the engine.

use crate::encryption::{Encryption, Tally};
use crate::job::{ConnectionId, Job};
use crate::mail::Mail;
use crate::protocol::Protocol;
use crate::statistics::{self, About, Statistics};
use crate::tenants::TenantTable;
use leeward_core::server::{CoresGranted, Downstream, Gauges};
use leeward_core::units::Nanos;
use leeward_host::{Counters, Counts, Pulse, Rehearsal};
use leeward_observe::Watch;
use leeward_runtime::allocation::Bystander;
use leeward_runtime::cores::Shared;
use leeward_runtime::tasks::current_core;
use mio::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// From one core to another.
pub(crate) enum Message<D> {
    /// Look after this connection.
    Adopt(TcpStream),
    /// A call of yours has ended: stolen, or a task.
    Done(ConnectionId, D),
}

/// State that the cores share besides their run queues: the controller's slow half, counters, messages.
pub(crate) struct Common<D> {
    pub(crate) pulse: Pulse,
    pub(crate) counters: Vec<Counters>,
    pub(crate) mail: Mail<Message<D>>,
    /// The objective.
    pub(crate) slo: Nanos,
    /// The delay that the controller aims at, if it aims at one.
    pub(crate) target: Option<Nanos>,
    /// Watch over the server, if one is kept.
    pub(crate) watch: Option<Arc<Watch>>,
    /// The controller's rehearsal, if it rehearses.
    pub(crate) rehearsal: Option<Rehearsal>,
    pub(crate) about: About,
    /// Encryption of all connections, if they are encrypted, and their handshakes.
    pub(crate) encryption: Option<Arc<dyn Encryption>>,
    pub(crate) tenants: Arc<TenantTable>,
    pub(crate) tally: Tally,
}

impl<D> Common<D> {
    pub(crate) fn counts(&self) -> Counts {
        Counters::sum(&self.counters)
    }
}

/// The controller's slow half, as an allocator sees it.
pub(crate) struct SlowHalf<D>(pub(crate) Arc<Common<D>>);

impl<D: Send> Bystander for SlowHalf<D> {
    fn rejected(&self) -> u64 {
        self.0.counters.iter().map(|core| core.dropped.load(Ordering::Relaxed)).sum()
    }

    fn changed(&self, event: &CoresGranted) {
        self.0.pulse.cores_granted(event);
    }
}

/// A running engine. Clones are the same one.
pub struct Handle<P: Protocol> {
    pub(crate) common: Arc<Common<P::Done>>,
    pub(crate) shared: Arc<Shared<Job<P::Call>>>,
}

impl<P: Protocol> Clone for Handle<P> {
    fn clone(&self) -> Self {
        Handle { common: Arc::clone(&self.common), shared: Arc::clone(&self.shared) }
    }
}

impl<P: Protocol> Handle<P> {
    /// State that the cores share: clock, queues, timers.
    pub fn shared(&self) -> &Arc<Shared<Job<P::Call>>> {
        &self.shared
    }

    /// Requests so far.
    pub fn counts(&self) -> Counts {
        self.common.counts()
    }

    /// The controller's state.
    pub fn gauges(&self) -> Gauges {
        self.common.pulse.gauges()
    }

    /// Whether the controller rehearses.
    pub fn rehearses(&self) -> bool {
        self.common.rehearsal.is_some()
    }

    /// Tells the controller what the servers behind this one let through, before its next tick.
    pub fn downstream(&self, event: &Downstream) {
        self.common.pulse.downstream(event);
    }

    /// The queueing delay at this moment.
    pub fn delay(&self) -> Nanos {
        self.shared.delay(self.shared.clock.now())
    }

    /// Hands the end of a call to the core that answers it, from wherever a task has ended.
    pub fn finish(&self, core: usize, to: ConnectionId, done: P::Done) {
        // A core that runs the task itself looks at its messages next.
        self.common.mail.leave(core, Message::Done(to, done));
        if current_core() != Some(core) {
            self.common.mail.wake(core);
        }
    }

    /// Statistics of the server.
    pub fn statistics(&self) -> Statistics {
        let now = self.shared.clock.now();
        let (counts, gauges) = (self.counts(), self.gauges());
        Statistics {
            uptime_ns: now.0,
            cores: self.common.mail.cores() as u64,
            idle_ns: self.shared.unused().0,
            received: counts.received,
            completed: counts.completed,
            failed: counts.failed,
            in_time: Counters::in_time(&self.common.counters),
            slo_ns: self.common.slo.0,
            latency: Counters::latencies(&self.common.counters),
            drops: Counters::drops(&self.common.counters),
            abandoned: counts.abandoned,
            foreseen: self.common.rehearsal.as_ref().map(Rehearsal::foreseen),
            connections: counts.connections,
            overflowed: counts.overflowed,
            retransmitted: counts.retransmitted,
            duplicates: counts.duplicates,
            packet_delay_ns: self.shared.packets.delay(now).0,
            run_delay_ns: self.shared.queues.delay(now).0,
            credit_pool: gauges.credit_pool,
            credits_issued: gauges.credits_issued,
            concurrency_limit: gauges.concurrency_limit,
            priority_threshold: gauges.priority_threshold,
            about: self.common.about.clone(),
            tls: self.common.encryption.as_deref().map(|encryption| self.common.tally.told(encryption)),
            locks: statistics::locks(),
        }
    }
}
