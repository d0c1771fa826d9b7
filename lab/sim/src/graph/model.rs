//! Description of a graph: services, their calls, and the call policy.
//!
//! Plain data with validation; its arithmetic is in [`super::analysis`].

use leeward_core::units::Nanos;
use leeward_workload::service_time::ServiceTime;

/// Services that call each other. Clients call the first one.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// Services.
    pub services: Vec<ServiceModel>,
    /// Calls among them.
    pub calls: Vec<CallModel>,
    /// How services make calls.
    pub policy: CallPolicy,
}

/// A service: a number of identical servers.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceModel {
    /// Its name.
    pub name: String,
    /// Number of servers. A caller chooses among them by unanswered calls.
    pub servers: u32,
    /// Cores per server.
    pub cores: u32,
    /// CPU time of a request before its calls.
    pub service: ServiceTime,
    /// CPU time of a request after its last reply.
    pub resume: Nanos,
    /// CPU time of receiving a message.
    pub receive: Nanos,
    /// CPU time of sending a message.
    pub send: Nanos,
    /// Network round trip to the service.
    pub rtt: Nanos,
}

impl ServiceModel {
    /// Maximum number of requests that wait at one server for a core; further ones are rejected on
    /// arrival.
    pub const MAX_QUEUED: usize = 65_536;
    /// Maximum number of requests that wait at one server for downstream credits.
    pub const MAX_WAITING: usize = 4_096;
}

/// Calls of one service to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallModel {
    /// Caller, as an index of [`Graph::services`].
    pub from: usize,
    /// Callee.
    pub to: usize,
    /// Number of calls, for a request that makes any.
    pub times: u16,
    /// Share of requests that make the calls, 0..=1.
    pub probability: f64,
    /// Order relative to the caller's other calls.
    pub order: CallOrder,
}

/// When a request makes calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallOrder {
    /// In parallel with the caller's previous calls.
    #[default]
    Parallel,
    /// After the replies to all previous calls.
    Sequential,
}

/// How services make calls, besides their controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallPolicy {
    /// Condition for beginning the work on a request.
    pub start: StartCondition,
    /// Where the controller runs.
    pub control: ControlPlacement,
    /// Whether controllers get the capacity of downstream servers
    /// ([`leeward_core::server::Downstream`]).
    pub downstream: DownstreamReports,
    /// Whether servers end a request past its deadline (gRPC's deadlines).
    pub deadlines: DeadlinePolicy,
    /// Retries per answered call (gRPC's retry throttling, the SRE book's retry budget); 0 for
    /// none.
    pub retries: f64,
}

/// Condition for beginning the work on a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartCondition {
    /// Admission. A call without a credit waits and may expire, after work was done for its
    /// request.
    #[default]
    Admitted,
    /// A reserved credit for every call that the request will make, or all that a service grants
    /// its server if those are fewer. Until then it waits, as long as its budget lasts.
    Reserved,
}

/// Where the controller runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControlPlacement {
    /// At every service; each controller gets its own part of the objective.
    #[default]
    Everywhere,
    /// At the first service, with the whole objective; the others have none.
    Entry,
}

/// Whether controllers get reports on downstream servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DownstreamReports {
    /// No reports.
    #[default]
    Off,
    /// A report before each tick.
    On,
}

/// Whether servers end a request past its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlinePolicy {
    /// Servers ignore deadlines.
    #[default]
    Ignored,
    /// Servers neither begin nor continue a request past its objective.
    Enforced,
}

/// Part of a graph that a validation error names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphPart {
    /// The graph as a whole.
    Whole,
    /// This service.
    Service(usize),
    /// This call.
    Call(usize),
}

impl Graph {
    /// Maximum number of services.
    pub const MAX_SERVICES: usize = 1_000;
    /// Maximum number of servers.
    pub const MAX_SERVERS: u64 = 10_000;
    /// Maximum number of calls that a request makes at one service.
    pub const MAX_CALLS: u32 = 256;

    /// Checks the graph.
    ///
    /// # Errors
    /// The first rule that the graph violates, with its part of the graph.
    pub fn check(&self) -> Result<(), (GraphPart, String)> {
        if self.services.is_empty() || self.services.len() > Graph::MAX_SERVICES {
            return Err((GraphPart::Whole, format!("a graph has 1 to {} services", Graph::MAX_SERVICES)));
        }
        self.services.iter().enumerate().try_for_each(|(index, service)| {
            let fault = |problem: String| (GraphPart::Service(index), problem);
            service.check().map_err(fault)?;
            match self.services[..index].iter().any(|known| known.name == service.name) {
                true => Err(fault(format!("two services are called `{}`; accepted: a name of its own", service.name))),
                false => Ok(()),
            }
        })?;
        self.calls.iter().enumerate().try_for_each(|(index, call)| self.check_call(index, call))?;
        let servers: u64 = self.services.iter().map(|service| u64::from(service.servers)).sum();
        let links = self.links();
        let policy = self.policy;
        let rules = [
            (servers <= Graph::MAX_SERVERS, format!("a graph has up to {} servers", Graph::MAX_SERVERS)),
            (links <= 4_000_000, format!("{links} pairs of servers that call each other; accepted: up to 4,000,000")),
            ((0.0..=1.0).contains(&policy.retries), "retries are from 0 to 1 per answered call".into()),
        ];
        if let Some((_, problem)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err((GraphPart::Whole, problem));
        }
        topological_order(self).map(drop)
    }

    /// Number of pairs of servers that call each other.
    pub fn links(&self) -> u64 {
        let pairs =
            |call: &CallModel| u64::from(self.services[call.from].servers) * u64::from(self.services[call.to].servers);
        self.calls.iter().map(pairs).sum()
    }

    fn check_call(&self, index: usize, call: &CallModel) -> Result<(), (GraphPart, String)> {
        let of_caller = || self.calls.iter().filter(|other| other.from == call.from);
        let both_exist = call.from.max(call.to) < self.services.len();
        let calls: u32 = of_caller().map(|other| u32::from(other.times)).sum();
        let is_duplicate = self.calls[..index].iter().any(|other| (other.from, other.to) == (call.from, call.to));
        let rules = [
            (both_exist, "a call is from a service of the graph to one".to_string()),
            ((1..=64).contains(&call.times), "a request makes 1 to 64 of the same call".into()),
            ((0.0..=1.0).contains(&call.probability), "a share of requests is from 0 to 1".into()),
            (!is_duplicate, "the same two services have a call already; accepted: `times`".into()),
            (
                calls <= Graph::MAX_CALLS && of_caller().count() <= 64,
                "a request makes up to 256 calls to up to 64 services".into(),
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, problem)) => Err((GraphPart::Call(index), problem)),
            None => Ok(()),
        }
    }
}

/// Sorts the services so that every caller comes before its callees.
///
/// # Errors
/// A cycle, or a service that no request reaches.
pub fn topological_order(graph: &Graph) -> Result<Vec<usize>, (GraphPart, String)> {
    let name = |index: usize| &graph.services[index].name;
    let mut reached = vec![false; graph.services.len()];
    reached[0] = true;
    let mut waiting = vec![0];
    while let Some(service) = waiting.pop() {
        for call in graph.calls.iter().filter(|call| call.from == service) {
            if !std::mem::replace(&mut reached[call.to], true) {
                waiting.push(call.to);
            }
        }
    }
    if let Some(lost) = reached.iter().position(|reached| !reached) {
        let problem = format!("no request reaches `{}`; accepted: a chain of calls from `{}`", name(lost), name(0));
        return Err((GraphPart::Service(lost), problem));
    }
    let mut callers = vec![0usize; graph.services.len()];
    graph.calls.iter().for_each(|call| callers[call.to] += 1);
    let mut free: Vec<usize> = (0..callers.len()).filter(|service| callers[*service] == 0).collect();
    let mut ordered = Vec::with_capacity(callers.len());
    while let Some(service) = free.pop() {
        ordered.push(service);
        for call in graph.calls.iter().filter(|call| call.from == service) {
            callers[call.to] -= 1;
            if callers[call.to] == 0 {
                free.push(call.to);
            }
        }
    }
    // A service on a cycle, or downstream of one, has a caller that was never sorted.
    let on_circle = graph.calls.iter().position(|call| callers[call.to] > 0 && callers[call.from] > 0);
    match on_circle {
        Some(call) => {
            let (from, to) = (name(graph.calls[call].from), name(graph.calls[call].to));
            Err((GraphPart::Call(call), format!("`{from}` calls `{to}` in a circle; accepted: calls without circles")))
        }
        None => Ok(ordered),
    }
}

impl ServiceModel {
    fn check(&self) -> Result<(), String> {
        let second = Nanos::from_secs(1);
        let spans = [self.resume, self.receive, self.send, self.rtt];
        let busy = self.service.mean() + self.receive + self.send;
        let rules = [
            ((1..=1_000).contains(&self.servers), "a service has 1 to 1,000 servers"),
            ((1..=128).contains(&self.cores), "a server has 1 to 128 cores"),
            (spans.iter().all(|span| *span <= second), "a cost or a round trip is a second at most"),
            (busy > Nanos::ZERO, "a request takes some CPU time"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err((*rule).into()),
            None => Ok(()),
        }
    }
}
