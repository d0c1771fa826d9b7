//! The ninth model, `CORE<n>`: a tier's service on the server's cores.
//!
//! Each core receives, executes, calls leaves and steals work. Requests are tasks; clients make the
//! calls, and the cores poll the clients. Each request allocates, as tasks do.

use super::backend_credits::LeafCounts;
use super::calls::{CallEntry, CallList};
use super::leaves::{Leaves, Settings};
use super::replies::{ReplyList, ReplyState};
use super::server::{Options, Switch, Switchable, Tier, TierCounts, TierError, tier_statistics};
use super::service::{CALLS_MAX, Calls, GatherCondition, LeafError, LeafId, MidTier, Replies, Step};
use super::source::TierSource;
use crate::client::{CallError, CallOptions, Client, ResponseFuture};
use crate::server::{AsyncHandler, Builder, HandlerError, OwnedRequest, Server};
use crate::wire::FailureCode;
use leeward_core::hedging::LeafTimeouts;
use leeward_core::server::Gauges;
use leeward_core::units::Nanos;
use leeward_engine::statistics::{Statistics, TierReport};
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

/// Longest timeout of a call if none is configured.
const CALL_MAX: Nanos = Nanos::from_secs(60);

/// Runs a tier's service as an asynchronous handler.
struct TierHandler<M> {
    service: M,
    /// One client per part of the data.
    clients: Vec<Client>,
    counts: Arc<Counts>,
    /// Configured timeout of requests.
    fixed_timeout: Option<Nanos>,
    /// Timeouts for the parts of the data. Tasks of all cores read and update them, for some tens
    /// of nanoseconds each.
    waits: Mutex<LeafTimeouts>,
}

#[derive(Debug, Default)]
struct Counts {
    gathers: AtomicU64,
    calls: AtomicU64,
    /// Requests that continued with fewer results than they asked for.
    partial: AtomicU64,
    /// Calls per leaf.
    by_leaf: Box<[AtomicU64]>,
}

impl<M: MidTier> TierHandler<M> {
    fn waits(&self) -> MutexGuard<'_, LeafTimeouts> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Timeout of a request. A task does not know its wait for a core, so the timeout assumes none.
    fn gather_timeout(&self) -> Nanos {
        self.fixed_timeout.unwrap_or_else(|| self.waits().timeout(Nanos::ZERO))
    }

    /// Passes the leaf of a call to `update`, unless the timeout is configured.
    fn update_waits(&self, calls: &CallList, index: usize, update: impl FnOnce(&mut LeafTimeouts, usize)) {
        if let (None, Some(CallEntry { leaf: LeafId(leaf), .. })) = (self.fixed_timeout, calls.get(index)) {
            update(&mut self.waits(), usize::from(leaf));
        }
    }

    /// Makes the calls, and waits until enough of them have ended.
    /// Returns the replies, and whether some are missing.
    async fn gather(&self, calls: &CallList, enough: GatherCondition) -> (ReplyList, bool) {
        let mut replies = ReplyList::default();
        replies.begin(calls.len());
        self.counts.gathers.fetch_add(1, Ordering::Relaxed);
        self.counts.calls.fetch_add(calls.len() as u64, Ordering::Relaxed);
        let timeout = enough.timeout(self.gather_timeout());
        let mut wanted = enough.wanted(calls.len());
        let mut good_enough_timer = match enough {
            GatherCondition::GoodEnough { within, .. } => Some(Box::pin(sleep(within))),
            _ => None,
        };
        let mut futures: Vec<Option<ResponseFuture>> = Vec::with_capacity(calls.len());
        for index in 0..calls.len() {
            let Some(CallEntry { leaf: LeafId(leaf), method, payload, .. }) = calls.get(index) else { continue };
            let Some(client) = self.clients.get(usize::from(leaf)).filter(|_| index < CALLS_MAX) else {
                replies.note(index, ReplyState::Failed(LeafError::Invalid));
                futures.push(None);
                continue;
            };
            if let Some(calls) = self.counts.by_leaf.get(usize::from(leaf)) {
                calls.fetch_add(1, Ordering::Relaxed);
            }
            let mut options = CallOptions::new().timeout(timeout);
            if let Some(remaining) = budget::current().remaining() {
                options = options.budget(remaining);
            }
            futures.push(Some(client.call_with(method, payload, options)));
        }
        let mut results = 0;
        poll_fn(|context| {
            let mut has_pending = false;
            for (index, call) in futures.iter_mut().enumerate() {
                let Some(future) = call else { continue };
                let Poll::Ready(outcome) = Pin::new(future).poll(context) else {
                    has_pending = true;
                    continue;
                };
                *call = None;
                results += usize::from(outcome.is_ok());
                match outcome {
                    Ok(response) => {
                        self.update_waits(calls, index, |waits, leaf| waits.record_response(leaf, response.round_trip));
                        replies.result(index, &response.payload);
                    }
                    Err(CallError::TimedOut { .. }) => {
                        self.update_waits(calls, index, |waits, leaf| waits.record_timeout(leaf, timeout))
                    }
                    Err(error) => _ = replies.note(index, ReplyState::Failed(leaf_error(&error))),
                }
            }
            if good_enough_timer.as_mut().is_some_and(|sleep| sleep.as_mut().poll(context).is_ready()) {
                good_enough_timer = None;
                wanted = enough.good_enough(calls.len());
            }
            if has_pending && results < wanted { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        (replies, results < enough.complete(calls.len()))
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
        let mut is_partial = false;
        while let Step::Gather(enough) = step {
            let (replies, is_short) = self.gather(&list, enough).await;
            // Whatever becomes of the request.
            self.counts.partial.fetch_add(u64::from(is_short && !is_partial), Ordering::Relaxed);
            is_partial |= is_short;
            list.clear();
            let mut calls = Calls { list: &mut list, leaf_count: leaves };
            step = self.service.resume(&mut state, &Replies(&replies), &mut calls, &mut reply)?;
        }
        Ok(reply)
    }
}

/// Creates one client per part of the data; the server's cores poll the clients.
fn clients(mut builder: Builder, leaves: &Leaves) -> Result<(Builder, Vec<Client>), TierError> {
    let mut clients = Vec::new();
    let (parts, copies) = (leaves.parts(), leaves.0.copies);
    let Settings { leaves, algorithm, params, rtt, slo, timeout, objective, backoff, payload_max, .. } = &leaves.0;
    // Each call sets its own timeout.
    let call_timeout = timeout.unwrap_or(CALL_MAX);
    for core in 0..parts {
        let of_part = (0..copies).map(|copy| leaves[core + copy * parts].addresses[0].to_string());
        let (client, polled) = of_part
            .fold(Client::builder(), |builder, address| builder.replica(address))
            .admission(algorithm, params.clone())
            .objective(*rtt, slo.unwrap_or(*objective))
            .payload_limit(*payload_max)
            .timeout(call_timeout)
            .connection_wait(call_timeout)
            .backoff(backoff.0, backoff.1)
            // Copies hold the same data, and a rejected call was not begun.
            .retries(u32::from(copies > 1), 10)
            .build_polled()
            .map_err(|error| TierError::Client(error.to_string()))?;
        builder = builder.poll_also(core, polled);
        clients.push(client);
    }
    Ok((builder, clients))
}

/// Starts a tier on `cores` cores.
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
    let addresses: Vec<SocketAddr> = options.leaves.0.first_addresses().collect();
    let cores = CoreSwitch { cores, clients: clients.clone(), addresses, counts: Arc::clone(&counts) };
    let report = {
        let (clients, addresses, counts) = (clients.clone(), cores.addresses.clone(), Arc::clone(&counts));
        TierReport::new(move || {
            let connections = clients.iter().map(|client| client.connected() as u64);
            tier_statistics(addresses.iter().copied().zip(connections), &counts.partial)
        })
    };
    let builder = builder.tier(report);
    let waits = Mutex::new(options.leaves.0.waits());
    let handler = TierHandler { service, clients, counts, fixed_timeout: options.leaves.0.timeout, waits };
    let server = builder.start_async(address, handler)?;
    let switch = Switch(Arc::new(cores));
    let server = Server::from(leeward_engine::Server::of(CoreTier { server, switch: switch.clone() }));
    Ok(Tier::new(server, switch))
}

/// Server that also reports its leaves.
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
    /// One client per part of the data; the client knows all copies.
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
            partial: self.counts.partial.load(Ordering::Relaxed),
            connected: self.clients.iter().map(|client| client.connected() as u64).sum(),
            ..TierCounts::default()
        }
    }

    fn leaves(&self) -> Vec<(SocketAddr, LeafCounts)> {
        let clients = self.clients.iter().zip(&self.counts.by_leaf);
        let counts = clients.map(|(client, calls)| LeafCounts {
            calls: calls.load(Ordering::Relaxed),
            connections: client.connected() as u64,
            credits: None,
        });
        self.addresses.iter().copied().zip(counts).collect()
    }
}
