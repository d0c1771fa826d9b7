//! The ninth model, `CORE<n>`: a tier's service on today's server, whose cores each receive, execute and ask leaves, and steal from each other.
//! Requests are tasks and calls are a client's, which the cores poll. It allocates per request, as tasks do.

use super::backend_credits::LeafCounts;
use super::calls::{CallEntry, CallList};
use super::leaves::{Leaves, Settings};
use super::replies::{ReplyList, ReplyState};
use super::server::{Options, Switch, Switchable, Tier, TierCounts, TierError};
use super::service::{CALLS_MAX, Calls, GatherCondition, LeafError, LeafId, MidTier, Replies, Step};
use super::source::TierSource;
use crate::client::{CallError, CallOptions, Client, ResponseFuture};
use crate::server::{AsyncHandler, Builder, HandlerError, OwnedRequest, Server};
use crate::wire::FailureCode;
use leeward_core::hedging::LeafTimeouts;
use leeward_core::server::Gauges;
use leeward_core::units::Nanos;
use leeward_engine::statistics::Statistics;
use leeward_engine::{RunningServer, Source};
use leeward_runtime::thread_pool::ThreadCounts;
use leeward_runtime::timers::sleep;
use leeward_runtime::{CoreUsage, budget};
use leeward_threading::{Setup, ThreadingSetup};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// The longest wait of any call, where nobody has said one.
const CALL_MAX: Nanos = Nanos::from_secs(60);

/// A service as a handler of tasks.
struct TierHandler<M> {
    service: M,
    /// Clients, a single one per leaf.
    clients: Vec<Client>,
    counts: Arc<Counts>,
    /// Said wait for leaves.
    fixed_timeout: Option<Nanos>,
    /// Waits for the parts of the data. Tasks of all cores ask and tell, for some tens of nanoseconds each.
    waits: Mutex<LeafTimeouts>,
}

#[derive(Debug, Default)]
struct Counts {
    gathers: AtomicU64,
    calls: AtomicU64,
    /// Of each leaf.
    by_leaf: Box<[AtomicU64]>,
}

impl<M: MidTier> TierHandler<M> {
    fn waits(&self) -> MutexGuard<'_, LeafTimeouts> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a request waits. A task does not know how long it has waited for its core: as long as one that has not.
    fn gather_timeout(&self) -> Nanos {
        self.fixed_timeout.unwrap_or_else(|| self.waits().timeout(Nanos::ZERO))
    }

    /// Has the waits told of a call's leaf, where they follow from what leaves take.
    fn update_waits(&self, calls: &CallList, place: usize, tell: impl FnOnce(&mut LeafTimeouts, usize)) {
        if let (None, Some(CallEntry { leaf: LeafId(leaf), .. })) = (self.fixed_timeout, calls.get(place)) {
            tell(&mut self.waits(), usize::from(leaf));
        }
    }

    /// Makes the calls, and waits until enough of them have ended.
    async fn gather(&self, calls: &CallList, enough: GatherCondition) -> ReplyList {
        let mut replies = ReplyList::default();
        replies.begin(calls.len());
        self.counts.gathers.fetch_add(1, Ordering::Relaxed);
        self.counts.calls.fetch_add(calls.len() as u64, Ordering::Relaxed);
        let patience = enough.timeout(self.gather_timeout());
        let mut wanted = enough.wanted(calls.len());
        let mut of_all = match enough {
            GatherCondition::GoodEnough { within, .. } => Some(Box::pin(sleep(within))),
            _ => None,
        };
        let mut under_way: Vec<Option<ResponseFuture>> = Vec::with_capacity(calls.len());
        for place in 0..calls.len() {
            let Some(CallEntry { leaf: LeafId(leaf), method, payload, .. }) = calls.get(place) else { continue };
            let Some(client) = self.clients.get(usize::from(leaf)).filter(|_| place < CALLS_MAX) else {
                replies.note(place, ReplyState::Failed(LeafError::Invalid));
                under_way.push(None);
                continue;
            };
            if let Some(calls) = self.counts.by_leaf.get(usize::from(leaf)) {
                calls.fetch_add(1, Ordering::Relaxed);
            }
            let mut options = CallOptions::new().timeout(patience);
            if let Some(left) = budget::current().remaining() {
                options = options.budget(left);
            }
            under_way.push(Some(client.call_with(method, payload, options)));
        }
        let mut results = 0;
        poll_fn(|context| {
            let mut left = false;
            for (place, call) in under_way.iter_mut().enumerate() {
                let Some(future) = call else { continue };
                let Poll::Ready(outcome) = Pin::new(future).poll(context) else {
                    left = true;
                    continue;
                };
                *call = None;
                results += usize::from(outcome.is_ok());
                match outcome {
                    Ok(response) => {
                        self.update_waits(calls, place, |waits, leaf| waits.record_response(leaf, response.round_trip));
                        replies.result(place, &response.payload);
                    }
                    Err(CallError::TimedOut { .. }) => {
                        self.update_waits(calls, place, |waits, leaf| waits.record_timeout(leaf, patience))
                    }
                    Err(error) => _ = replies.note(place, ReplyState::Failed(leaf_error(&error))),
                }
            }
            if of_all.as_mut().is_some_and(|sleep| sleep.as_mut().poll(context).is_ready()) {
                of_all = None;
                wanted = enough.good_enough(calls.len());
            }
            if left && results < wanted { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        replies
    }
}

fn leaf_error(error: &CallError) -> LeafError {
    match error {
        CallError::Rejected { reason, .. } => LeafError::Rejected(*reason),
        CallError::Failed { .. } => LeafError::Failed(FailureCode::Failed),
        CallError::UnknownMethod { .. } => LeafError::Failed(FailureCode::UnknownMethod),
        CallError::Throttled | CallError::Expired { .. } | CallError::QueueFull { .. } => LeafError::NotSent,
        CallError::TooLarge { .. } => LeafError::Invalid,
        _ => LeafError::Disconnected,
    }
}

impl<M: MidTier> AsyncHandler for TierHandler<M> {
    async fn call(&self, request: OwnedRequest) -> Result<Vec<u8>, HandlerError> {
        let (mut state, mut list, mut reply) = (M::State::default(), CallList::default(), Vec::new());
        let leaves = self.clients.len() as u16;
        let mut calls = Calls { list: &mut list, leaf_count: leaves };
        let mut step = self.service.begin(&request.as_request(), &mut state, &mut calls, &mut reply)?;
        while let Step::Gather(enough) = step {
            let came = self.gather(&list, enough).await;
            list.clear();
            let mut calls = Calls { list: &mut list, leaf_count: leaves };
            step = self.service.resume(&mut state, &Replies(&came), &mut calls, &mut reply)?;
        }
        Ok(reply)
    }
}

/// Clients of all leaves, which the server's cores poll in turn.
fn clients(mut builder: Builder, leaves: &Leaves) -> Result<(Builder, Vec<Client>), TierError> {
    let mut clients = Vec::new();
    let (parts, copies) = (leaves.parts(), leaves.0.copies);
    let Settings { leaves, algorithm, params, rtt, slo, timeout, objective, backoff, payload_max, .. } = &leaves.0;
    // Each call says for itself how long it is waited for.
    let most = timeout.unwrap_or(CALL_MAX);
    for core in 0..parts {
        let of_part = (0..copies).map(|copy| leaves[core + copy * parts].addresses[0].to_string());
        let (client, polled) = of_part
            .fold(Client::builder(), |builder, address| builder.replica(address))
            .admission(algorithm, params.clone())
            .objective(*rtt, slo.unwrap_or(*objective))
            .payload_limit(*payload_max)
            .timeout(most)
            .connection_wait(most)
            .backoff(backoff.0, backoff.1)
            // Copies have the same, and what was rejected was not begun.
            .retries(u32::from(copies > 1), 10)
            .build_polled()
            .map_err(|error| TierError::Client(error.to_string()))?;
        builder = builder.poll_also(core, polled);
        clients.push(client);
    }
    Ok((builder, clients))
}

/// Starts a tier on so many cores.
pub(super) fn start<M: MidTier>(
    builder: Builder,
    address: &str,
    options: Options,
    cores: u16,
    service: M,
) -> Result<Tier, TierError> {
    let options = Options { leaves: Leaves(options.leaves.0.with_objective(builder.config().slo)), ..options };
    let (builder, clients) = clients(builder.cores(usize::from(cores)), &options.leaves)?;
    let counts = Arc::new(Counts { by_leaf: clients.iter().map(|_| AtomicU64::new(0)).collect(), ..Counts::default() });
    let addresses = options.leaves.0.leaves.iter().filter_map(|leaf| leaf.addresses.first().copied()).collect();
    let cores = CoreSwitch { cores, clients: clients.clone(), addresses, counts: Arc::clone(&counts) };
    let waits = Mutex::new(options.leaves.0.waits());
    let asker = TierHandler { service, clients, counts, fixed_timeout: options.leaves.0.timeout, waits };
    let server = builder.start_async(address, asker)?;
    let switch = Switch(Arc::new(cores));
    let server = Server::from(leeward_engine::Server::of(CoreTier { server, switch: switch.clone() }));
    Ok(Tier::new(server, switch))
}

/// The server, which tells of its leaves, too.
struct CoreTier {
    server: Server,
    switch: Switch,
}

impl RunningServer for CoreTier {
    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn datagram_address(&self) -> Option<SocketAddr> {
        self.server.datagram_address()
    }

    fn counts(&self) -> leeward_host::RequestCounts {
        self.server.counts()
    }

    fn gauges(&self) -> Gauges {
        self.server.gauges()
    }

    fn delay(&self) -> Nanos {
        self.server.delay()
    }

    fn idle(&self) -> Nanos {
        self.server.idle()
    }

    fn core_usage(&self) -> Option<CoreUsage> {
        self.server.core_usage()
    }

    fn statistics(&self) -> Statistics {
        self.server.statistics()
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        Some(TierSource::around(self.server.source()?, self.switch.clone()))
    }

    fn has_failed(&self) -> bool {
        self.server.has_failed()
    }

    fn stop(self: Box<Self>) -> io::Result<leeward_host::RequestCounts> {
        self.server.stop()
    }
}

struct CoreSwitch {
    cores: u16,
    /// A client per part of the data, whose copies it knows.
    clients: Vec<Client>,
    addresses: Vec<SocketAddr>,
    counts: Arc<Counts>,
}

impl Switchable for CoreSwitch {
    fn threading(&self) -> ThreadingSetup {
        ThreadingSetup::Cores(self.cores)
    }

    fn change(&self, setup: &Setup) -> Result<(), TierError> {
        Err(TierError::Kind { asked: ThreadingSetup::Setup(*setup), running: self.threading() })
    }

    fn thread_counts(&self) -> Option<ThreadCounts> {
        None
    }

    fn counts(&self) -> TierCounts {
        TierCounts {
            gathers: self.counts.gathers.load(Ordering::Relaxed),
            calls: self.counts.calls.load(Ordering::Relaxed),
            connected: self.clients.iter().map(|client| client.connected() as u64).sum(),
            ..TierCounts::default()
        }
    }

    fn leaves(&self) -> Vec<(SocketAddr, LeafCounts)> {
        let clients = self.clients.iter().zip(&self.counts.by_leaf);
        let told = clients.map(|(client, calls)| LeafCounts {
            calls: calls.load(Ordering::Relaxed),
            connections: client.connected() as u64,
            credits: None,
        });
        self.addresses.iter().copied().zip(told).collect()
    }
}
