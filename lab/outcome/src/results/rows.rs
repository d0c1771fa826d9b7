//! The rows of the results' tables. Each field is declared only here; the lab computes its value.

use crate::columns::table;

table! {
    /// Key of a run, part of each row.
    RunKey {
        /// The algorithm.
        controller: String, Name "Controller";
        /// Variant: the algorithm's name unless the scenario sets another.
        label: String, Name "Variant";
        /// The run's seed.
        seed: u64, Name "Seed";
    }
}

impl RunKey {
    /// Creates the key of the run of variant `label` of `controller` with `seed`.
    pub fn new(controller: &str, label: &str, seed: u64) -> Self {
        RunKey { controller: controller.into(), label: label.into(), seed }
    }
}

table! {
    /// Workload of a run.
    WorkloadKey {
        /// Distribution of service times, as written in the scenario.
        service: String, Name "Service time";
        /// Total demand on all servers, requests per second; for shifting demand its mean over the
        /// measured interval.
        demand_rps: f64, Requests "Demand";
        /// Demand over the plant's capacity.
        demand_ratio: f64, Multiple "Demand over capacity";
        /// Number of clients.
        clients: u32, Count "Clients";
        /// The scenario's `p`, if any, such as the share of requests that take a lock.
        p: Option<f64>, Share "p";
        /// The scenario's `r`, if any, such as the share of the work done with a lock.
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
        /// Of these, rejected at a lock, over requests received, for applications with locks.
        lock_drop_rate: Option<f64>, Share "Drops at locks";
        /// Requests that the controller would have rejected over requests received, in shadow mode.
        foreseen_rate: Option<f64>, Share "Refusals foreseen";
        /// Requests expired or displaced at clients over requests issued.
        expiry_rate: f64, Share "Expired at clients";
        /// Requests that the client half rejected by itself over requests issued.
        throttle_rate: f64, Share "Throttled at clients";
        /// Requests sent to a second server over requests issued, if there are several.
        retry_rate: Option<f64>, Share "Sent to a second server";
        /// Requests that their clients gave up over requests issued, if clients have a time-out.
        timeout_rate: Option<f64>, Share "Given up by clients";
        /// 99th percentile of the time from a request's issue to the failure of its first attempt,
        /// µs, if there are several servers; 0 without failures.
        ///
        /// A failure is a rejection, or no credit in time.
        failure_p99_us: Option<f64>, Micros "99th percentile until the first failure is known";
        /// Mean time from a request's departure to its rejection's arrival, µs; 0 without
        /// rejections.
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
        /// Requests issued in the measured interval.
        offered: u64, Count "Offered";
        /// Unfinished requests at the end of the run.
        unfinished: u64, Count "Unfinished";
        /// Whether the run was stationary from the start of the measurement on; absent if nothing
        /// observed it.
        settled: Option<bool>, Name "Settled";
        /// Whether throughput was.
        throughput_settled: Option<bool>, Name "Throughput settled";
        /// Start of the measurement, s.
        settled_s: Option<f64>, Seconds "Measured from";
        /// Length of the measurement, s.
        #[serde(default)]
        measured_s: f64, Seconds "Measured for";
        /// Half-width of the 95 % confidence interval of goodput within the run, over goodput;
        /// absent if the run was too short to tell.
        goodput_error: Option<f64>, Share "Error of goodput";
        /// How late the load generator sent 1 in 100 requests or more, µs, on the real plant;
        /// absent if it kept its schedule. A row with it does not measure the server.
        late_us: Option<f64>, Micros "Lateness of the load";
        /// Network round trip without queueing, µs.
        #[serde(default)]
        rtt_us: f64, Micros "Round trip";
        /// Policy of core allocation, if any.
        allocator: Option<String>, Name "Allocator";
        /// Policy of load balancing over the cores, if any, as the scenario names it.
        balancing: Option<String>, Name "Balancing";
        /// Mean number of cores that the server held, with core allocation.
        cores_mean: Option<f64>, Plain "Cores held";
        /// Share of all cores' CPU time left for a best-effort application.
        best_effort_share: Option<f64>, Share "Left for other applications";
        /// Spacing of requests, `poisson` or `constant`, for a tier.
        arrivals: Option<String>, Name "Arrivals";
        /// Setup or policy of a tier's threads, as the scenario names it.
        threading: Option<String>, Name "Threading";
        /// Fan-out of a fixed setup: `sync` or `async`.
        fanout: Option<String>, Name "Fan-out";
        /// Model of a fixed setup, such as `SIP`.
        model: Option<String>, Name "Model";
        /// Threads of the largest pool of a fixed setup.
        pool: Option<u32>, Count "Largest pool";
        /// Changes of setup in the whole run.
        switches: Option<u64>, Count "Changes of setup";
        /// Threads woken per response.
        wakeups_per_request: Option<f64>, Plain "Wake-ups per response";
        /// Switches between threads on busy CPUs per response.
        context_switches_per_request: Option<f64>, Plain "Context switches per response";
        /// Waits of the tier's threads for a lock, per response.
        contended_per_request: Option<f64>, Plain "Waits for locks per response";
        /// CPU time of polls that found nothing, over CPU time available.
        empty_poll_cpu: Option<f64>, Share "CPU time of empty polls";
        /// Calls to leaves sent again because they were slow, over calls.
        hedged_rate: Option<f64>, Share "Second calls of slow ones";
        /// Calls to leaves sent again because they were rejected, over calls.
        retried_rate: Option<f64>, Share "Second calls of dropped ones";
        /// Responses without the result of a call, over responses.
        partial_rate: Option<f64>, Share "Partial answers";
        /// CPU time of requests without a result in time over CPU time spent, in a graph of
        /// services.
        wasted_cpu: Option<f64>, Share "CPU time wasted";
        /// The same at services that call others.
        wasted_upstream_cpu: Option<f64>, Share "CPU time wasted upstream";
        /// Goodput that the simulator predicts for this run of the real plant, from the measured
        /// machine.
        predicted_goodput_rps: Option<f64>, Requests "Predicted goodput";
        /// Median that the simulator predicts, µs.
        predicted_p50_us: Option<f64>, Micros "Predicted median latency";
        /// 99th percentile that the simulator predicts, µs.
        predicted_p99_us: Option<f64>, Micros "Predicted 99th percentile latency";
    }
}

table! {
    /// The machine of a real run, measured before it, per service and number of clients.
    Machine {
        /// Service with which it was measured.
        service: String, Name "Service time";
        /// Number of clients.
        clients: u32, Count "Clients";
        /// Cores of the server, each on its own CPU.
        cores: u32, Count "Cores";
        /// Whether the clients had their own CPU.
        clients_apart: bool, Plain "Clients on CPUs of their own";
        /// Maximum responses per second without control.
        capacity_rps: f64, Requests "Capacity";
        /// Round trip without queueing, µs.
        rtt_us: f64, Micros "Round trip";
        /// CPU time per request besides the service time, µs.
        cost_us: f64, Micros "CPU time besides the service";
        /// Share of a busy CPU's time that the machine takes away.
        stalled: f64, Share "Taken by others";
    }
}

table! {
    /// A window of a time series.
    WindowRow (run: RunKey) {
        [run.controller, run.label, run.seed]
        /// Start, seconds from the beginning of the run.
        start_s: f64, Seconds "Time";
        /// Length, ms.
        length_ms: f64, Millis "Length";
        /// Demand at the start of the window, requests per second.
        demand_rps: f64, Requests "Demand";
        /// Responses per second.
        throughput_rps: f64, Requests "Throughput";
        /// Responses per second within the SLO.
        goodput_rps: f64, Requests "Goodput";
        /// 99th percentile latency of responses in the window, µs; 0 without responses.
        p99_us: f64, Micros "99th percentile latency";
        /// Rejections received per second.
        drops_rps: f64, Requests "Drops";
        /// Mean reject delay, µs; 0 without rejections.
        reject_delay_mean_us: f64, Micros "Mean reject delay";
        /// Queueing delay at the end of the window, µs.
        delay_us: f64, Micros "Queueing delay";
        /// Credit pool at the end of the window, if any.
        credit_pool: Option<f64>, Plain "Credit pool";
        /// Credits issued at the end of the window, if any.
        credits_issued: Option<f64>, Plain "Credits issued";
        /// Mean number of cores that the server held, with core allocation.
        cores: Option<f64>, Plain "Cores held";
        /// Setup of a tier's threads at the end of the window.
        setup: Option<String>, Name "Setup";
        /// Threads of that setup.
        threads: Option<u32>, Count "Threads of the setup";
    }
}

table! {
    /// Effect of a shift of demand on a controller variant.
    ShiftRow (run: RunKey) {
        [run.controller, run.label, run.seed]
        /// Time of the change of demand, seconds from the beginning of the run.
        at_s: f64, Seconds "At";
        /// Demand before, requests per second.
        from_rps: f64, Requests "Demand before";
        /// Demand after, requests per second.
        to_rps: f64, Requests "Demand after";
        /// Settled goodput: the median over the second half of the time to the next shift.
        settled_goodput_rps: f64, Requests "Settled goodput";
        /// Time until goodput is back for good at 95 % of the settled level (mean over the next 20
        /// ms), ms.
        ///
        /// For good: no collapse below 80 % follows in the first half of the time to the next
        /// shift. Without recovery it is the time to the next shift.
        recovery_ms: f64, Millis "Recovery";
        /// Whether goodput recovered before the next shift.
        recovered: bool, Plain "Recovered";
        /// Time until the first 20 ms with 95 % of the settled level, regardless of later
        /// collapses, ms.
        #[serde(default)]
        reached_ms: f64, Millis "Settled level reached after";
        /// Lowest goodput over 20 ms, relative to the settled goodput.
        goodput_dip_ratio: f64, Multiple "Lowest goodput";
        /// Highest p99 of a window of the time series, µs.
        p99_peak_us: f64, Micros "Highest 99th percentile latency";
        /// Highest mean reject delay of a window of the time series, µs.
        reject_delay_peak_us: f64, Micros "Highest reject delay";
    }
}

table! {
    /// A lock in a run. On the real plant all locks of one name and kind, for the 20 with the
    /// longest waits.
    LockRow (run: RunKey, workload: WorkloadKey) {
        /// Name of the lock; with several servers, followed by `@` and the server's number.
        lock: String, Name "Lock";
        /// Kind of lock on the real plant, such as `mutex`.
        kind: Option<String>, Name "Kind";
        [run.controller, run.label, workload.service, workload.demand_rps, workload.demand_ratio, workload.clients, workload.p,
         workload.r, run.seed]
        /// Acquisitions by requests, per second.
        acquired_rps: f64, Requests "Acquisitions";
        /// Share of acquisitions after a wait.
        waited_rate: f64, Share "Acquisitions after waiting";
        /// Requests that gave up the lock and were rejected, per second.
        refused_rps: f64, Requests "Refusals";
        /// Share of this lock in the server's rejections; 0 without rejections.
        #[serde(default)]
        drop_share: f64, Share "Share of all drops";
        /// Mean wait of acquisitions, µs; 0 for those without a wait.
        wait_mean_us: f64, Micros "Mean wait for the lock";
        /// Median wait, µs; on the real plant up to twice too high.
        #[serde(default)]
        wait_p50_us: f64, Micros "Median wait for the lock";
        /// 99th percentile of the wait, µs; on the real plant up to twice too high.
        wait_p99_us: f64, Micros "99th percentile wait for the lock";
        /// Waiting requests at the end of the run; unknown on the real plant.
        waiting: Option<u64>, Count "Waiting";
        /// Share of time in which a request held the lock; unknown on the real plant.
        utilization: Option<f64>, Share "Lock held";
    }
}

table! {
    /// One of several servers in a run. Its requests are attempts, and its latencies begin with
    /// them.
    ReplicaRow (run: RunKey, workload: WorkloadKey) {
        /// Number of the server, from 1.
        replica: u32, Name "Server";
        [run.controller, run.label, workload.service, workload.demand_rps, workload.demand_ratio, workload.clients, workload.p,
         workload.r, run.seed]
        /// Attempts per second at its sessions, sent or not.
        attempts_rps: f64, Requests "Attempts";
        /// Responses of the server per second.
        throughput_rps: f64, Requests "Throughput";
        /// 99th percentile of its responses' latency, µs.
        p99_us: f64, Micros "99th percentile latency";
        /// Requests rejected over requests received.
        drop_rate: f64, Share "Drop rate";
        /// Attempts that expired or were displaced at its sessions, over all attempts.
        expiry_rate: f64, Share "Expired at clients";
        /// CPU time spent over CPU time available.
        cpu_utilization: f64, Share "CPU utilization";
    }
}

table! {
    /// A service of a graph in a run.
    ServiceRow (run: RunKey, workload: WorkloadKey) {
        /// Name of the service.
        name: String, Name "Service of the graph";
        [run.controller, run.label, workload.service, workload.demand_rps, workload.demand_ratio, workload.clients, workload.p,
         workload.r, run.seed]
        /// Part of the latency objective of this service, µs.
        objective_us: f64, Micros "Objective";
        /// Calls received per second.
        received_rps: f64, Requests "Calls";
        /// Median latency of its answered calls at their callers, downstream calls included, µs.
        p50_us: f64, Micros "Median latency";
        /// 99th percentile of this latency, µs.
        p99_us: f64, Micros "99th percentile latency";
        /// Calls rejected here or downstream, over calls received.
        drop_rate: f64, Share "Drop rate";
        /// CPU time spent over CPU time available.
        cpu_utilization: f64, Share "CPU utilization";
    }
}

table! {
    /// A kind of requests in a run.
    KindRow (run: RunKey, workload: WorkloadKey) {
        /// Name of the kind.
        kind: String, Name "Kind";
        [run.controller, run.label, workload.service, workload.demand_rps, workload.demand_ratio, workload.clients, workload.p,
         workload.r, run.seed]
        /// Tenant of the kind.
        tenant: u32, Name "Tenant";
        /// Class, 0 (rejected last) to 7, if any.
        class: Option<u32>, Name "Class";
        /// Declared cost of a request.
        cost: u32, Count "Cost of a request";
        /// Latency objective, from the request's issue, µs.
        objective_us: f64, Micros "Objective";
        /// Requests per second of this kind.
        offered_rps: f64, Requests "Offered";
        /// Responses in time per second.
        goodput_rps: f64, Requests "Goodput";
        /// Cost of the requests answered in time, per second.
        cost_in_time: f64, Plain "Cost in time per second";
        /// Responses in time over requests issued.
        in_time_rate: f64, Share "In time";
        /// Requests rejected by the server over requests issued.
        refused_rate: f64, Share "Refused";
        /// Requests that ended at their clients, unsent or given up, over requests issued.
        client_rate: f64, Share "Ended at clients";
        /// Responses after the objective over requests issued.
        late_rate: f64, Share "Late";
        /// Median latency of responses, µs.
        p50_us: f64, Micros "Median latency";
        /// 99th percentile of the latency, µs.
        p99_us: f64, Micros "99th percentile latency";
    }
}
