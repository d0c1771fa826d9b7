//! State that the cores of a server share, and the handle to it for protocols and their tasks.

use crate::encryption::{Encryption, HandshakeCounters};
use crate::job::{ConnectionId, Job};
use crate::mailboxes::Mailboxes;
use crate::protocol::Protocol;
use crate::statistics::{self, ServiceInfo, Statistics, TierReport};
use crate::tenants::TenantTable;
use leeward_core::server::{CoreGrant, Downstream, Gauges};
use leeward_core::units::Nanos;
use leeward_host::{ControlTicker, Counters, RequestCounts, ShadowMode};
use leeward_observe::Watch;
use leeward_runtime::allocation::AllocationMessages;
use leeward_runtime::cores::Shared;
use leeward_runtime::tasks::current_core;
use mio::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Message from one core to another.
pub(crate) enum CoreMessage<D> {
    /// A new connection for the receiving core.
    Adopt(TcpStream),
    /// A completed call of the receiving core's connection: a stolen call, or a task.
    Completion(ConnectionId, D),
}

/// State that the cores share besides their run queues: the controller's slow half, counters,
/// messages.
pub(crate) struct EngineState<D> {
    pub(crate) ticker: ControlTicker,
    pub(crate) counters: Vec<Counters>,
    pub(crate) mailboxes: Mailboxes<CoreMessage<D>>,
    /// Latency objective.
    pub(crate) slo: Nanos,
    /// The delay that the controller aims at, if it has one.
    pub(crate) target: Option<Nanos>,
    /// Observer of the server, if it is watched.
    pub(crate) watch: Option<Arc<Watch>>,
    /// The controller's shadow mode, if enabled.
    pub(crate) shadow: Option<ShadowMode>,
    pub(crate) about: ServiceInfo,
    pub(crate) tier: TierReport,
    /// Encryption of all connections, if they are encrypted, and their handshakes.
    pub(crate) encryption: Option<Arc<dyn Encryption>>,
    pub(crate) tenants: Arc<TenantTable>,
    pub(crate) handshakes: HandshakeCounters,
}

impl<D> EngineState<D> {
    pub(crate) fn counts(&self) -> RequestCounts {
        Counters::sum(&self.counters)
    }
}

/// The controller's slow half, as an allocator sees it.
pub(crate) struct SlowHalf<D>(pub(crate) Arc<EngineState<D>>);

impl<D: Send> AllocationMessages for SlowHalf<D> {
    fn rejected(&self) -> u64 {
        self.0.counters.iter().map(|core| core.rejected.load(Ordering::Relaxed)).sum()
    }

    fn cores_changed(&self, event: &CoreGrant) {
        self.0.ticker.cores_granted(event);
    }
}

/// A running engine. Clones share it.
pub struct Handle<P: Protocol> {
    pub(crate) engine: Arc<EngineState<P::Completion>>,
    pub(crate) shared: Arc<Shared<Job<P::Call>>>,
}

impl<P: Protocol> Clone for Handle<P> {
    fn clone(&self) -> Self {
        Handle { engine: Arc::clone(&self.engine), shared: Arc::clone(&self.shared) }
    }
}

impl<P: Protocol> Handle<P> {
    /// State that the cores share: clock, queues, timers.
    pub fn shared(&self) -> &Arc<Shared<Job<P::Call>>> {
        &self.shared
    }

    /// Requests so far.
    pub fn counts(&self) -> RequestCounts {
        self.engine.counts()
    }

    /// The controller's state.
    pub fn gauges(&self) -> Gauges {
        self.engine.ticker.gauges()
    }

    /// Returns whether the controller is in shadow mode.
    pub fn is_shadow(&self) -> bool {
        self.engine.shadow.is_some()
    }

    /// Reports the downstream servers' acceptance to the controller, before its next tick.
    pub fn downstream(&self, event: &Downstream) {
        self.engine.ticker.downstream(event);
    }

    /// The current queueing delay.
    pub fn delay(&self) -> Nanos {
        self.shared.delay(self.shared.clock.now())
    }

    /// Hands a completed call to the core that answers it, from any thread.
    pub fn finish(&self, core: usize, connection: ConnectionId, done: P::Completion) {
        // A core that runs the task itself reads its messages next.
        self.engine.mailboxes.leave(core, CoreMessage::Completion(connection, done));
        if current_core() != Some(core) {
            self.engine.mailboxes.wake(core);
        }
    }

    /// Returns the server's statistics.
    pub fn statistics(&self) -> Statistics {
        let now = self.shared.clock.now();
        let (counts, gauges) = (self.counts(), self.gauges());
        Statistics {
            uptime_ns: now.0,
            cores: self.engine.mailboxes.cores() as u64,
            idle_ns: self.shared.unused().0,
            received: counts.received,
            completed: counts.completed,
            failed: counts.failed,
            in_time: Counters::in_time(&self.engine.counters),
            slo_ns: self.engine.slo.0,
            latency: Counters::latencies(&self.engine.counters),
            drops: Counters::rejections(&self.engine.counters),
            abandoned: counts.abandoned,
            foreseen: self.engine.shadow.as_ref().map(ShadowMode::shadow_rejections),
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
            about: self.engine.about.clone(),
            tls: self.engine.encryption.as_deref().map(|encryption| self.engine.handshakes.statistics(encryption)),
            tier: self.engine.tier.read(),
            locks: statistics::locks(),
        }
    }
}
