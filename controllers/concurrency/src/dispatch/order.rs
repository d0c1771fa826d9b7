//! Order of the waiting requests: class, then tenants by fair shares of the time at the backend,
//! then who must begin first. Does not contain places at backends ([`super`]).
//!
//! The requests of one class and one tenant are a *flow*. Flows of a class take turns by start-time
//! fair queueing: each has a tag, which grows by the expected time at the backend of each of its
//! requests, and the flow with the smallest tag is next. A flow that was empty begins at the tag of
//! the flow that was served last, so nobody saves up a right to be first.

use super::QueuedRequest;
use leeward_core::units::{Nanos, Tenant, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Number of classes.
const CLASSES: usize = 8;

/// Flows that are remembered while they are empty.
const IDLE_FLOWS: usize = 4_096;

/// Weight of a request in the mean cost of its flow.
const WEIGHT: f64 = 1.0 / 16.0;

/// Position of a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueKey {
    flow: FlowId,
    pub(super) arrived: Time,
    /// Time at which it must have been answered.
    pub(super) deadline: Time,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlowId {
    class: u8,
    tenant: Tenant,
}

struct Waiting<T> {
    arrived: Time,
    bytes: usize,
    token: T,
}

struct Flow<T> {
    /// By deadline, then by arrival.
    requests: BTreeMap<(Time, u64), Waiting<T>>,
    /// Virtual time at which its next request begins, ns.
    tag: u64,
    /// Mean time of its requests at the backend, ns; 0 if it is not known.
    cost_ns: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClassState {
    requests: usize,
    /// Flows that have requests.
    flows: usize,
    /// Tag of the flow that was served last.
    virtual_time: u64,
}

/// The waiting requests.
pub(super) struct WaitQueue<T> {
    flows: BTreeMap<FlowId, Flow<T>>,
    /// Flows that have requests, the next one first: class, tag, tenant.
    order: BTreeSet<(u8, u64, Tenant)>,
    classes: [ClassState; CLASSES],
    len: usize,
    bytes: usize,
    numbers: u64,
    /// Mean time of all requests at the backend, ns.
    cost_ns: f64,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        let classes = [ClassState::default(); CLASSES];
        WaitQueue {
            flows: BTreeMap::new(),
            order: BTreeSet::new(),
            classes,
            len: 0,
            bytes: 0,
            numbers: 0,
            cost_ns: 0.0,
        }
    }
}

impl<T> WaitQueue<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a request that must have been answered by `deadline`.
    pub(super) fn push(&mut self, request: &QueuedRequest, deadline: Time, token: T) -> QueueKey {
        let flow_id = FlowId { class: request.class.min(CLASSES as u8 - 1), tenant: request.tenant };
        self.numbers += 1;
        let key = QueueKey { flow: flow_id, arrived: request.arrived, deadline, number: self.numbers };
        if self.flows.len() >= IDLE_FLOWS + self.order.len() {
            self.forget_idle_flows();
        }
        let class = &mut self.classes[usize::from(flow_id.class)];
        let flow =
            self.flows.entry(flow_id).or_insert_with(|| Flow { requests: BTreeMap::new(), tag: 0, cost_ns: 0.0 });
        if flow.requests.is_empty() {
            flow.tag = flow.tag.max(class.virtual_time);
            class.flows += 1;
            self.order.insert((flow_id.class, flow.tag, flow_id.tenant));
        }
        let waiting = Waiting { arrived: request.arrived, bytes: request.bytes, token };
        flow.requests.insert((deadline, key.number), waiting);
        class.requests += 1;
        self.len += 1;
        self.bytes += request.bytes;
        key
    }

    /// Takes the request that is next. A request whose deadline is before `soonest` is not charged
    /// to its tenant: it will not be sent.
    pub(super) fn pop_first(&mut self, soonest: Time) -> Option<(QueueKey, T)> {
        let &(class, tag, tenant) = self.order.first()?;
        let flow_id = FlowId { class, tenant };
        let &(deadline, number) = self.flows.get(&flow_id)?.requests.keys().next()?;
        if deadline >= soonest {
            self.order.pop_first();
            self.classes[usize::from(class)].virtual_time = tag;
            let mean = self.cost_ns;
            if let Some(flow) = self.flows.get_mut(&flow_id) {
                let cost = if flow.cost_ns > 0.0 { flow.cost_ns } else { mean };
                flow.tag = tag + (cost as u64).max(1);
                self.order.insert((class, flow.tag, tenant));
            }
        }
        self.take(flow_id, deadline, number)
    }

    /// Takes the least important request: of the last class, of its longest flow, the one with the
    /// latest deadline.
    pub(super) fn pop_least_important(&mut self) -> Option<(QueueKey, T)> {
        let class = self.order.last()?.0;
        let of_class = self.order.range((class, 0, Tenant(0))..);
        let length = |tenant: Tenant| self.flows.get(&FlowId { class, tenant }).map_or(0, |flow| flow.requests.len());
        let tenant = of_class.map(|(_, _, tenant)| *tenant).max_by_key(|tenant| length(*tenant))?;
        let flow_id = FlowId { class, tenant };
        let &(deadline, number) = self.flows.get(&flow_id)?.requests.keys().next_back()?;
        self.take(flow_id, deadline, number)
    }

    /// Removes a request, if it still waits.
    pub(super) fn remove(&mut self, key: &QueueKey) -> Option<T> {
        self.take(key.flow, key.deadline, key.number).map(|(_, token)| token)
    }

    /// Takes all requests whose deadline is before `soonest`.
    pub(super) fn take_late(&mut self, soonest: Time) -> Vec<(QueueKey, T)> {
        let mut late = Vec::new();
        for (flow_id, flow) in &self.flows {
            let of_flow = flow.requests.keys().take_while(|(deadline, _)| *deadline < soonest);
            late.extend(of_flow.map(|(deadline, number)| (*flow_id, *deadline, *number)));
        }
        late.into_iter().filter_map(|(flow_id, deadline, number)| self.take(flow_id, deadline, number)).collect()
    }

    /// Requests that would be sent before a new one of this class and tenant.
    pub(super) fn ahead(&self, class: u8, tenant: Tenant) -> usize {
        let class = class.min(CLASSES as u8 - 1);
        let before: usize = self.classes[..usize::from(class)].iter().map(|class| class.requests).sum();
        let own = self.flows.get(&FlowId { class, tenant }).map_or(0, |flow| flow.requests.len());
        let ClassState { requests, flows, .. } = self.classes[usize::from(class)];
        let others = flows - usize::from(own > 0);
        // Each other flow has one turn before each of this flow's, the new one's too.
        before + requests.min(own + (own + 1) * others)
    }

    /// Arrival of the request that has waited longest, among those that are next in their flows.
    pub(super) fn oldest(&self) -> Option<Time> {
        self.flows.values().filter_map(|flow| flow.requests.values().next()).map(|first| first.arrived).min()
    }

    /// Learns the cost of a request.
    pub(super) fn note_cost(&mut self, class: u8, tenant: Tenant, time: Nanos) {
        let learn = |mean: &mut f64| {
            let weight = if *mean == 0.0 { 1.0 } else { WEIGHT };
            *mean += weight * (time.0 as f64 - *mean);
        };
        learn(&mut self.cost_ns);
        if self.flows.len() > 1
            && let Some(flow) = self.flows.get_mut(&FlowId { class: class.min(CLASSES as u8 - 1), tenant })
        {
            learn(&mut flow.cost_ns);
        }
    }

    fn take(&mut self, flow_id: FlowId, deadline: Time, number: u64) -> Option<(QueueKey, T)> {
        let flow = self.flows.get_mut(&flow_id)?;
        let Waiting { arrived, bytes, token } = flow.requests.remove(&(deadline, number))?;
        let class = &mut self.classes[usize::from(flow_id.class)];
        class.requests -= 1;
        self.len -= 1;
        self.bytes -= bytes;
        if flow.requests.is_empty() {
            class.flows -= 1;
            self.order.remove(&(flow_id.class, flow.tag, flow_id.tenant));
        }
        Some((QueueKey { flow: flow_id, arrived, deadline, number }, token))
    }

    /// Forgets flows without requests whose turn has passed; all of them, if these are few.
    fn forget_idle_flows(&mut self) {
        let classes = &self.classes;
        let before = self.flows.len();
        self.flows
            .retain(|id, flow| !flow.requests.is_empty() || flow.tag > classes[usize::from(id.class)].virtual_time);
        if self.flows.len() > before - before / 4 {
            self.flows.retain(|_, flow| !flow.requests.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn request(number: u32) -> QueuedRequest {
        QueuedRequest { arrived: Time(1), timeout: Nanos::MAX, class: 3, tenant: Tenant(number), bytes: 1 }
    }

    /// A client that names a new tenant in each request costs no more than the flows that are kept.
    #[test]
    fn the_memory_of_flows_is_bounded() {
        let mut queue = WaitQueue::default();
        let mut waiting = VecDeque::new();
        for number in 0..60_000 {
            waiting.push_back(queue.push(&request(number), Time(u64::from(number)), ()));
            queue.note_cost(3, Tenant(number), Nanos(1_000));
            // Some are sent, some leave, and a hundred always wait.
            if waiting.len() > 100 {
                match number % 2 {
                    0 => drop(queue.pop_first(Time::ZERO)),
                    _ => drop(waiting.pop_front().and_then(|key| queue.remove(&key))),
                }
            }
            assert!(queue.flows.len() <= IDLE_FLOWS + queue.order.len() + 1);
            assert_eq!(queue.classes[3].flows, queue.order.len());
        }
        while queue.pop_first(Time::ZERO).is_some() {}
        assert_eq!((queue.len(), queue.bytes(), queue.order.len(), queue.classes[3].requests), (0, 0, 0, 0));
    }
}
