//! Arithmetic on a graph: its order, visits per service, cost per visit, and capacity.

pub use super::model::topological_order;
use super::model::{CallOrder, Graph, ServiceModel};
use leeward_core::units::{Nanos, Rate};

/// The calls of one service, in order, each with its stage.
pub(crate) type Stages = Vec<(usize, u16)>;

/// Returns the calls of `service` with their stages.
pub(crate) fn stages(graph: &Graph, service: usize) -> Stages {
    let mut stage = 0;
    let mut found = Stages::new();
    for (index, call) in graph.calls.iter().enumerate().filter(|(_, call)| call.from == service) {
        stage += u16::from(call.order == CallOrder::Sequential && !found.is_empty());
        found.push((index, stage));
    }
    found
}

impl ServiceModel {
    /// Mean CPU time of a request that makes `calls` calls: its own computing and all messages.
    pub fn cpu(&self, calls: f64) -> Nanos {
        let messages = (self.receive + self.send).scale(1.0 + calls);
        self.service.mean() + messages + if calls > 0.0 { self.resume } else { Nanos::ZERO }
    }
}

impl Graph {
    /// Mean number of calls per request at `service`.
    pub fn calls_of(&self, service: usize) -> f64 {
        let own = self.calls.iter().filter(|call| call.from == service);
        own.map(|call| f64::from(call.times) * call.probability).sum()
    }

    /// Mean number of visits of a client's request to each service; zeros if the graph is invalid.
    pub fn visits(&self) -> Vec<f64> {
        let mut visits = vec![0.0; self.services.len()];
        let Ok(order) = topological_order(self) else { return visits };
        visits[0] = 1.0;
        for service in order {
            for call in self.calls.iter().filter(|call| call.from == service) {
                visits[call.to] += visits[service] * f64::from(call.times) * call.probability;
            }
        }
        visits
    }

    /// Clients' requests per second that `service` could serve if its cores did nothing else.
    pub fn capacity_at(&self, service: usize, visits: f64) -> Rate {
        let model = &self.services[service];
        let cores = f64::from(model.servers) * f64::from(model.cores);
        let busy = model.cpu(self.calls_of(service)).as_secs_f64() * visits;
        Rate(if busy > 0.0 { cores / busy } else { f64::INFINITY })
    }

    /// Clients' requests per second that the bottleneck service could serve.
    pub fn capacity(&self) -> Rate {
        let visits = self.visits();
        let each = visits.iter().enumerate().map(|(service, visits)| self.capacity_at(service, *visits).0);
        Rate(each.fold(f64::INFINITY, f64::min))
    }

    /// Mean time of a request at each service without queueing, its calls included.
    ///
    /// Parallel calls count as the slowest of them, because the request waits for all replies.
    pub fn spans(&self) -> Vec<Nanos> {
        let mut spans = vec![Nanos::ZERO; self.services.len()];
        let Ok(order) = topological_order(self) else { return spans };
        for service in order.into_iter().rev() {
            let mut span = self.services[service].cpu(self.calls_of(service)) + self.services[service].rtt;
            let mut slowest: Vec<Nanos> = Vec::new();
            for (call, stage) in stages(self, service) {
                slowest.resize(usize::from(stage) + 1, Nanos::ZERO);
                let last = &mut slowest[usize::from(stage)];
                *last = (*last).max(spans[self.calls[call].to]);
            }
            slowest.into_iter().for_each(|stage| span += stage);
            spans[service] = span;
        }
        spans
    }

    /// Part of the objective `slo` for each service: its share of a request's total time without
    /// queueing.
    ///
    /// The objectives along the longest path add up to `slo`.
    pub fn objectives(&self, slo: Nanos) -> Vec<Nanos> {
        let whole = self.spans().first().map_or(1, |span| span.0.max(1)) as f64;
        let own = |service: usize| self.services[service].cpu(self.calls_of(service)) + self.services[service].rtt;
        (0..self.services.len()).map(|service| slo.scale(own(service).0 as f64 / whole).max(Nanos(1))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{CallModel, CallPolicy, GraphPart};
    use super::*;
    use leeward_workload::service_time::ServiceTime;

    fn service(name: &str, micros: u64) -> ServiceModel {
        let none = Nanos::ZERO;
        let service = ServiceTime::Constant(Nanos::from_micros(micros));
        ServiceModel {
            name: name.into(),
            servers: 1,
            cores: 1,
            service,
            resume: none,
            receive: none,
            send: none,
            rtt: none,
        }
    }

    fn call(from: usize, to: usize, times: u16, when: CallOrder) -> CallModel {
        CallModel { from, to, times, probability: 1.0, order: when }
    }

    fn graph(calls: &[CallModel]) -> Graph {
        let services = [("a", 1), ("b", 10), ("c", 20), ("d", 5)].map(|(name, micros)| service(name, micros));
        Graph { services: services.into(), calls: calls.into(), policy: CallPolicy::default() }
    }

    #[test]
    fn visits_and_bounds_of_a_diamond_match_hand_calculation() {
        use CallOrder::{Parallel, Sequential};
        let diamond =
            [call(0, 1, 1, Parallel), call(0, 2, 2, Sequential), call(1, 3, 1, Parallel), call(2, 3, 1, Parallel)];
        let graph = graph(&diamond);
        assert_eq!(graph.check(), Ok(()));
        assert_eq!(graph.visits(), [1.0, 1.0, 2.0, 3.0]);
        assert_eq!(graph.capacity().0.round(), 25_000.0, "c: twice 20 us");
        // 1 + (10 + 5) + (20 + 5)
        assert_eq!(graph.spans()[0], Nanos::from_micros(41));
        assert_eq!(graph.objectives(Nanos::from_micros(410))[2], Nanos::from_micros(200));
    }

    #[test]
    fn cycles_and_unreachable_services_are_named() {
        let together = CallOrder::Parallel;
        let lost = graph(&[call(0, 1, 1, together), call(1, 2, 1, together)]).check().unwrap_err();
        assert_eq!(lost, (GraphPart::Service(3), "no request reaches `d`; accepted: a chain of calls from `a`".into()));
        let circle =
            [call(0, 1, 1, together), call(1, 2, 1, together), call(2, 3, 1, together), call(3, 1, 1, together)];
        let (part, problem) = graph(&circle).check().unwrap_err();
        assert!(matches!(part, GraphPart::Call(_)) && problem.contains("in a circle"), "{problem}");
        let own = graph(&[call(0, 0, 1, together)]).check().unwrap_err();
        assert!(matches!(own.0, GraphPart::Service(1)), "{own:?}");
    }
}
