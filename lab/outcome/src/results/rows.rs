//! The rows of the results' tables. A field is declared here and nowhere else; its value is computed by the lab.

use crate::columns::table;

table! {
    /// The run that a row is of.
    RunKey {
        /// The algorithm.
        controller: String, Name "Controller";
        /// The variant: the algorithm's name unless the scenario says otherwise.
        label: String, Name "Variant";
        /// The run's seed.
        seed: u64, Name "Seed";
    }
}

impl RunKey {
    /// The key of the run with this `seed` of the variant `label` of `controller`.
    pub fn new(controller: &str, label: &str, seed: u64) -> Self {
        RunKey { controller: controller.into(), label: label.into(), seed }
    }
}

table! {
    /// The workload that a run met.
    WorkloadKey {
        /// The distribution of service times, as written in the scenario.
        service: String, Name "Service time";
        /// Total demand, requests per second (for shifting demand: its mean over the measured part); where there are several
        /// servers, on all of them.
        demand_rps: f64, Requests "Demand";
        /// Demand over the plant's capacity.
        demand_ratio: f64, Multiple "Demand over capacity";
        /// Clients.
        clients: u32, Count "Clients";
        /// The scenario's `p`, such as the share of requests that take a lock, where it has one.
        p: Option<f64>, Share "p";
        /// The scenario's `r`, such as the share of the work that is done with a lock, where it has one.
        r: Option<f64>, Share "r";
    }
}

table! {
    /// A run: a steady state under one controller variant.
    PointRow (run: RunKey, workload: WorkloadKey) {
        [run.controller, run.label, workload.demand_rps, workload.demand_ratio, workload.clients, workload.service]
        /// Mean service time, µs.
        service_mean_us: f64, Micros "Mean service time";
        /// Capacity of the plant without control, requests per second.
        capacity_rps: f64, Requests "Capacity";
        [workload.p, workload.r]
        /// The latency objective, µs.
        slo_us: f64, Micros "SLO";
        [run.seed]
        /// Responses per second.
        throughput_rps: f64, Requests "Throughput";
        /// Responses per second within the SLO, counted from the request's issue.
        goodput_rps: f64, Requests "Goodput";
        /// Median latency of responses, µs.
        p50_us: f64, Micros "Median latency";
        /// 99th percentile, µs.
        p99_us: f64, Micros "99th percentile latency";
        /// 99.9th percentile, µs.
        p999_us: f64, Micros "99.9th percentile latency";
        /// Mean, µs.
        mean_us: f64, Micros "Mean latency";
        /// Requests rejected by the server over requests received by it.
        drop_rate: f64, Share "Drop rate";
        /// Of these, the ones that did not get a lock, over requests received, for applications with locks.
        lock_drop_rate: Option<f64>, Share "Drops at locks";
        /// Requests that the controller would have refused over requests received, where it rehearses.
        foreseen_rate: Option<f64>, Share "Refusals foreseen";
        /// Requests expired or displaced at clients over requests issued.
        expiry_rate: f64, Share "Expired at clients";
        /// Requests that the client's half dropped by itself over requests issued.
        throttle_rate: f64, Share "Throttled at clients";
        /// Requests that were sent to a second server over requests issued, where there are several.
        retry_rate: Option<f64>, Share "Sent to a second server";
        /// 99th percentile of the time from a request's issue to the news that its first server does not serve it, a drop or no
        /// credit in time, µs, where there are several; 0 without any.
        failure_p99_us: Option<f64>, Micros "99th percentile until the first failure is known";
        /// Mean time from a request's departure to its drop's arrival, µs; 0 without drops.
        reject_delay_mean_us: f64, Micros "Mean reject delay";
        /// CPU time spent over CPU time available.
        cpu_utilization: f64, Share "CPU utilization";
        /// Messages received by the server per response.
        rx_per_request: f64, Plain "Received messages per response";
        /// Messages sent by the server per response.
        tx_per_request: f64, Plain "Sent messages per response";
        /// Messages received by the server per second.
        rx_mps: f64, Messages "Received messages";
        /// Messages sent by the server per second.
        tx_mps: f64, Messages "Sent messages";
        /// Requests issued in the measured part.
        offered: u64, Count "Offered";
        /// Requests still under way at the run's end.
        unfinished: u64, Count "Unfinished";
        /// Network round trip without queueing, µs.
        #[serde(default)]
        rtt_us: f64, Micros "Round trip";
        /// The policy of core allocation, where there is one.
        allocator: Option<String>, Name "Allocator";
        /// The policy that balances work over the cores, as the scenario names it, where there is one.
        balancing: Option<String>, Name "Balancing";
        /// Mean number of cores that the server held, where an allocator grants and parks them.
        cores_mean: Option<f64>, Plain "Cores held";
        /// Share of the CPU time of all cores that was left for a best-effort application.
        best_effort_share: Option<f64>, Share "Left for other applications";
        /// Spacing of requests, `poisson` or `constant`, of a tier's run.
        arrivals: Option<String>, Name "Arrivals";
        /// Setup or policy of a tier's threads, as the scenario names it.
        threading: Option<String>, Name "Threading";
        /// Fan-out of a setup that never changes: `sync` or `async`.
        fanout: Option<String>, Name "Fan-out";
        /// Model of such a setup, such as `SIP`.
        model: Option<String>, Name "Model";
        /// Threads of the largest pool of such a setup.
        pool: Option<u32>, Count "Largest pool";
        /// Changes of setup, over the whole run.
        switches: Option<u64>, Count "Changes of setup";
        /// Threads woken per response.
        wakeups_per_request: Option<f64>, Plain "Wake-ups per response";
        /// Changes between threads on busy CPUs per response.
        context_switches_per_request: Option<f64>, Plain "Context switches per response";
        /// Waits for a lock of the tier's threads per response.
        contended_per_request: Option<f64>, Plain "Waits for locks per response";
        /// CPU time of polls that found nothing, over CPU time available.
        empty_poll_cpu: Option<f64>, Share "CPU time of empty polls";
        /// Calls to leaves that were made again because they took long, over calls.
        hedged_rate: Option<f64>, Share "Second calls of slow ones";
        /// Calls to leaves that were made again because they were dropped, over calls.
        retried_rate: Option<f64>, Share "Second calls of dropped ones";
        /// Answers without the result of a call, over answers.
        partial_rate: Option<f64>, Share "Partial answers";
        /// CPU time of requests without a result in time over CPU time spent, in a graph of services.
        wasted_cpu: Option<f64>, Share "CPU time wasted";
        /// The same at services that ask others.
        wasted_upstream_cpu: Option<f64>, Share "CPU time wasted upstream";
        /// Goodput that the simulator, told of the machine that was measured, predicts for this run of the real plant.
        predicted_goodput_rps: Option<f64>, Requests "Predicted goodput";
        /// The median that it predicts, µs.
        predicted_p50_us: Option<f64>, Micros "Predicted median latency";
        /// The 99th percentile that it predicts, µs.
        predicted_p99_us: Option<f64>, Micros "Predicted 99th percentile latency";
    }
}

table! {
    /// The machine of a real run, as measured before it, per service and number of clients.
    Machine {
        /// The service it was measured with.
        service: String, Name "Service time";
        /// Clients.
        clients: u32, Count "Clients";
        /// The server's cores, each on a CPU of its own.
        cores: u32, Count "Cores";
        /// Whether the clients had a CPU of their own.
        clients_apart: bool, Plain "Clients on CPUs of their own";
        /// Most responses per second without control.
        capacity_rps: f64, Requests "Capacity";
        /// Round trip when nothing waits, µs.
        rtt_us: f64, Micros "Round trip";
        /// CPU time besides the service per request, µs.
        cost_us: f64, Micros "CPU time besides the service";
        /// Share of a busy CPU's time that the machine takes away.
        stalled: f64, Share "Taken by others";
    }
}

table! {
    /// A window of a time series.
    WindowRow (run: RunKey) {
        [run.controller, run.label, run.seed]
        /// Start, seconds from the run's begin.
        start_s: f64, Seconds "Time";
        /// Length, ms.
        length_ms: f64, Millis "Length";
        /// Demand at its start, requests per second.
        demand_rps: f64, Requests "Demand";
        /// Responses per second.
        throughput_rps: f64, Requests "Throughput";
        /// Responses per second within the SLO.
        goodput_rps: f64, Requests "Goodput";
        /// 99th percentile latency of the responses in it, µs; 0 without any.
        p99_us: f64, Micros "99th percentile latency";
        /// Drops received per second.
        drops_rps: f64, Requests "Drops";
        /// Mean reject delay, µs; 0 without drops.
        reject_delay_mean_us: f64, Micros "Mean reject delay";
        /// Queueing delay at its end, µs.
        delay_us: f64, Micros "Queueing delay";
        /// The credit pool at its end, where there is one.
        credit_pool: Option<f64>, Plain "Credit pool";
        /// Credits issued at its end, where there are any.
        credits_issued: Option<f64>, Plain "Credits issued";
        /// Mean number of cores that the server held, where an allocator grants and parks them.
        cores: Option<f64>, Plain "Cores held";
        /// Setup of a tier's threads at its end.
        setup: Option<String>, Name "Setup";
        /// Threads of that setup.
        threads: Option<u32>, Count "Threads of the setup";
    }
}

table! {
    /// Effect of a shift of demand on a controller variant.
    ShiftRow (run: RunKey) {
        [run.controller, run.label, run.seed]
        /// When demand changed, seconds from the run's begin.
        at_s: f64, Seconds "At";
        /// Demand before, requests per second.
        from_rps: f64, Requests "Demand before";
        /// Demand after.
        to_rps: f64, Requests "Demand after";
        /// Goodput it settles at: the median over the second half of the time to the next shift.
        settled_goodput_rps: f64, Requests "Settled goodput";
        /// Time until goodput is back at 95 % of that or more (mean over the 20 ms that follow) for good: no collapse below
        /// 80 % follows in the first half of the time to the next shift. ms; the time to the next shift if it never does.
        recovery_ms: f64, Millis "Recovery";
        /// Whether it did recover before the next shift.
        recovered: bool, Plain "Recovered";
        /// Time until the first 20 ms with 95 % of that or more, whatever follows, ms.
        #[serde(default)]
        reached_ms: f64, Millis "Settled level reached after";
        /// Lowest 20 ms goodput over the settled one.
        goodput_dip_ratio: f64, Multiple "Lowest goodput";
        /// Highest p99 of a window of the time series, µs.
        p99_peak_us: f64, Micros "Highest 99th percentile latency";
        /// Highest mean reject delay of a window of the time series, µs.
        reject_delay_peak_us: f64, Micros "Highest reject delay";
    }
}

table! {
    /// A lock in a run; on the real plant all locks of one name and kind, the 20 that were waited for longest.
    LockRow (run: RunKey, workload: WorkloadKey) {
        /// The lock's name; where there are several servers, with `@` and which one's.
        lock: String, Name "Lock";
        /// Kind of lock on the real plant, such as `mutex`.
        kind: Option<String>, Name "Kind";
        [run.controller, run.label, workload.service, workload.demand_rps, workload.demand_ratio, workload.clients, workload.p,
         workload.r, run.seed]
        /// How often requests got it, per second.
        acquired_rps: f64, Requests "Acquisitions";
        /// Of these, the share that had to wait for it.
        waited_rate: f64, Share "Acquisitions after waiting";
        /// How often requests did without it and ended as drops, per second.
        refused_rps: f64, Requests "Refusals";
        /// The share of the server's drops that were refusals of this lock; 0 without drops.
        #[serde(default)]
        drop_share: f64, Share "Share of all drops";
        /// Mean wait of those that got it, µs; those that got it at once waited 0.
        wait_mean_us: f64, Micros "Mean wait for the lock";
        /// Median of the same, µs; on the real plant up to twice too much.
        #[serde(default)]
        wait_p50_us: f64, Micros "Median wait for the lock";
        /// 99th percentile of the same, µs; on the real plant up to twice too much.
        wait_p99_us: f64, Micros "99th percentile wait for the lock";
        /// Requests that wait for it at the run's end; not known of real ones.
        waiting: Option<u64>, Count "Waiting";
        /// The share of time in which somebody held it; not known of real ones.
        utilization: Option<f64>, Share "Lock held";
    }
}

table! {
    /// A server of several in a run. Its requests are attempts, and its latencies begin with them.
    ReplicaRow (run: RunKey, workload: WorkloadKey) {
        /// Which, from 1.
        replica: u32, Name "Server";
        [run.controller, run.label, workload.service, workload.demand_rps, workload.demand_ratio, workload.clients, workload.p,
         workload.r, run.seed]
        /// Requests per second that its sessions were given, sent or not.
        attempts_rps: f64, Requests "Attempts";
        /// Its responses per second.
        throughput_rps: f64, Requests "Throughput";
        /// 99th percentile of their latency, µs.
        p99_us: f64, Micros "99th percentile latency";
        /// Requests that it rejected over requests that it received.
        drop_rate: f64, Share "Drop rate";
        /// Requests that expired or were displaced at its sessions over those they were given.
        expiry_rate: f64, Share "Expired at clients";
        /// CPU time spent over CPU time available.
        cpu_utilization: f64, Share "CPU utilization";
    }
}

table! {
    /// A service of a graph in a run.
    ServiceRow (run: RunKey, workload: WorkloadKey) {
        /// Its name.
        name: String, Name "Service of the graph";
        [run.controller, run.label, workload.service, workload.demand_rps, workload.demand_ratio, workload.clients, workload.p,
         workload.r, run.seed]
        /// Its part of the latency objective, µs.
        objective_us: f64, Micros "Objective";
        /// Calls per second that reach its servers.
        received_rps: f64, Requests "Calls";
        /// Median latency of its answered calls as their callers see it, its own calls included, µs.
        p50_us: f64, Micros "Median latency";
        /// 99th percentile of the same, µs.
        p99_us: f64, Micros "99th percentile latency";
        /// Calls that it drops, or that fail behind it, over calls that reach it.
        drop_rate: f64, Share "Drop rate";
        /// CPU time spent over CPU time available.
        cpu_utilization: f64, Share "CPU utilization";
    }
}

table! {
    /// A kind of requests in a run.
    KindRow (run: RunKey, workload: WorkloadKey) {
        /// Its name.
        kind: String, Name "Kind";
        [run.controller, run.label, workload.service, workload.demand_rps, workload.demand_ratio, workload.clients, workload.p,
         workload.r, run.seed]
        /// Its tenant.
        tenant: u32, Name "Tenant";
        /// Its class, 0 (refused last) to 7, where it has one.
        class: Option<u32>, Name "Class";
        /// Cost that its requests name.
        cost: u32, Count "Cost of a request";
        /// Latest response that is in time, from the request's issue, µs.
        objective_us: f64, Micros "Objective";
        /// Its requests per second.
        offered_rps: f64, Requests "Offered";
        /// Its responses in time per second.
        goodput_rps: f64, Requests "Goodput";
        /// Cost of these, per second.
        cost_in_time: f64, Plain "Cost in time per second";
        /// Responses in time over requests issued.
        in_time_rate: f64, Share "In time";
        /// Requests that the server refused over requests issued.
        refused_rate: f64, Share "Refused";
        /// Requests that ended at their clients, unsent or given up on, over requests issued.
        client_rate: f64, Share "Ended at clients";
        /// Responses after the objective over requests issued.
        late_rate: f64, Share "Late";
        /// Median latency of its responses, µs.
        p50_us: f64, Micros "Median latency";
        /// 99th percentile, µs.
        p99_us: f64, Micros "99th percentile latency";
    }
}
