//! A run of a tier: clients, server and leaves, and the event loop.
//!
//! A thread's steps are in `poll` and `serve`, changes of setup in `switch`.

use super::connection_set::ConnectionSet;
use super::controller::Admission;
use super::cpus::{CpuEvent, Cpus};
use super::event::{Event, JobId, Reply, ReplyKind, ReplyReceiver, ThreadId};
use super::governor::Governor;
use super::jobs::Jobs;
use super::leaves::Stations;
use super::lock::Lock;
use super::model::{ThreadCosts, Tier};
use super::second_call_state::SecondCallState;
use super::thread_pool::{Plan, Thread, ThreadState, ThreadStep};
use crate::SimError;
use crate::audit::Audit;
use crate::config::{MeasuredInterval, SimConfig};
use crate::event_queue::EventQueue;
use crate::run_guard::RunGuard;
use crate::stats::Stats;
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_core::server::Gauges;
use leeward_core::units::{Nanos, Time};
use leeward_outcome::{RunOutcome, ThreadOutcome};
use leeward_threading::LeftoverWork;
use leeward_workload::ArrivalStream;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

/// The state of one run.
pub(super) struct Run<'a> {
    pub(super) config: &'a SimConfig,
    pub(super) tier: &'a Tier,
    pub(super) costs: &'a ThreadCosts,
    pub(super) now: Time,
    pub(super) event_queue: EventQueue<Event>,
    arrivals: ArrivalStream,
    pub(super) cpus: Cpus,
    pub(super) threads: Vec<Thread>,
    /// Pool threads without a slot; the last one parked is woken first.
    pub(super) parked: Vec<ThreadId>,
    /// Helpers without a call; the last one parked is woken first.
    pub(super) helpers: Vec<ThreadId>,
    pub(super) plan: Plan,
    pub(super) governor: Option<Governor>,
    /// The controller; `None`: every request is admitted.
    pub(super) admission: Option<Box<Admission>>,
    /// Number of threads in the pool; later ones are helpers.
    pub(super) pool_size: usize,
    pub(super) fronts: Vec<ConnectionSet<JobId>>,
    pub(super) links: Vec<ConnectionSet<Reply>>,
    pub(super) queue: VecDeque<JobId>,
    pub(super) queue_lock: Lock,
    /// Workers that sleep at the queue; the longest sleeper is woken first.
    pub(super) workers: VecDeque<ThreadId>,
    pub(super) jobs: Jobs,
    pub(super) stations: Stations,
    pub(super) second_calls: SecondCallState,
    /// Links of the next request, in an async setup.
    pub(super) next_link: u16,
    /// Calls of async setups without a received reply.
    pub(super) async_calls: u32,
    pub(super) stats: Stats,
    pub(super) audit: Audit,
    pub(super) outcome: ThreadOutcome,
    events: u64,
    guard: RunGuard<'a>,
    contended_before: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        config: &'a SimConfig,
        tier: &'a Tier,
        algorithm: &Algorithm,
        params: &Params,
        stop: &'a AtomicBool,
    ) -> Result<Self, SimError> {
        let mut run = Run {
            config,
            tier,
            costs: &tier.costs,
            now: Time::ZERO,
            event_queue: EventQueue::new(),
            arrivals: ArrivalStream::new(&config.workload, config.seed),
            cpus: Cpus::new(tier.cpus, &tier.costs, MeasuredInterval::of(config).from, config.seed),
            threads: Vec::new(),
            parked: Vec::new(),
            helpers: Vec::new(),
            plan: Plan::new(tier.setup(), LeftoverWork::default(), 0),
            governor: Governor::new(config, tier)?,
            admission: Admission::new(config, algorithm, params)?.map(Box::new),
            pool_size: 0,
            fronts: Vec::new(),
            links: Vec::new(),
            queue: VecDeque::new(),
            queue_lock: Lock::default(),
            workers: VecDeque::new(),
            jobs: Jobs::new(&tier.leaves, &config.workload.service, config.seed),
            stations: Stations::new(&tier.leaves),
            second_calls: SecondCallState::new(&tier.leaves),
            next_link: 0,
            async_calls: 0,
            stats: Stats::new(config),
            audit: Audit::default(),
            outcome: ThreadOutcome::default(),
            events: 0,
            guard: RunGuard::new(config, algorithm.name, stop),
            contended_before: 0,
        };
        if let Some(admission) = &run.admission {
            run.stats.expect_reaction(admission.reaction());
        }
        run.start_pool();
        Ok(run)
    }

    /// Adds a parked thread to the pool.
    pub(super) fn add_thread(&mut self) {
        let id = self.cpus.add_thread();
        self.threads.push(Thread::new(ThreadStep::Poll));
        self.parked.push(id);
    }

    /// Runs until the end of the measurement.
    pub(super) fn finish(mut self) -> Result<RunOutcome, SimError> {
        self.event_queue.schedule(self.stats.interval().from, Event::WarmedUp);
        self.event_queue.schedule(self.stats.next_observation(Time::ZERO), Event::Observe);
        if let Some(window) = self.config.window {
            self.event_queue.schedule(Time::ZERO + window, Event::Window);
        }
        if let Some(period) = self.governor.as_ref().and_then(Governor::period) {
            self.event_queue.schedule(Time::ZERO + period, Event::Tick);
        }
        if let Some(admission) = &self.admission {
            self.event_queue.schedule(Time::ZERO + admission.period, Event::Control);
        }
        self.schedule_issue();
        while let Some((now, event)) = self.event_queue.pop(self.stats.interval().to) {
            self.now = now;
            self.events += 1;
            if self.guard.must_stop(now) {
                return Err(self.guard.error());
            }
            self.handle(event);
            if self.governor.as_ref().is_some_and(Governor::needs_blocking_decision) {
                self.ask_policy();
            }
            self.audit.check(!self.cpus.idles_beside_work(), now, || "a CPU idles despite a runnable thread".into());
        }
        self.now = self.stats.interval().to;
        Ok(self.end())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Issue(client) => self.issue(client),
            Event::Arrive(job) => self.on_arrival(job),
            Event::Completed(job) => {
                let base = self.jobs.end(job);
                self.stats.record_completion(self.now, &base);
            }
            Event::ClientReply(job, outcome, feedback) => self.on_client_reply(job, outcome, &feedback),
            Event::Credit(client, feedback) => self.on_credit(client, &feedback),
            Event::Demand(client, demand) => self.on_demand(client, demand),
            Event::Timer(client) => self.client_timer(client),
            Event::Control => self.control_tick(),
            Event::Reply(reply) => self.on_leaf_reply(reply),
            Event::Cpu(cpu, generation) => match self.cpus.on_event(cpu, generation, self.now, &mut self.event_queue) {
                CpuEvent::Nothing => {}
                CpuEvent::Done(thread) => self.advance(thread),
                CpuEvent::SpinEnded(thread) => self.on_spin_ended(thread),
            },
            Event::FoundAtFront(front) => self.on_front_found(front as usize),
            Event::FoundAtLinks(links) => self.on_links_found(links as usize),
            Event::PollTimeout(thread, poll) => self.on_poll_timeout(thread, poll),
            Event::AskPolicy(ask) => self.on_policy_timer(ask),
            Event::Tick => self.policy_tick(),
            Event::WarmedUp => {
                self.stats.end_warmup(self.now);
                self.contended_before = self.contended();
                self.second_calls.end_warmup();
            }
            Event::Observe => {
                let (now, gauges) = (self.now, self.gauges());
                if self.stats.observe(now, &gauges) {
                    self.on_interval();
                }
                self.event_queue.schedule(self.stats.next_observation(now), Event::Observe);
            }
            Event::Window => self.end_window(),
        }
    }

    /// Follows a change of the measured interval.
    fn on_interval(&mut self) {
        let interval = self.stats.interval();
        if !interval.has_begun(self.now) {
            self.cpus.measure_from(interval.from);
            self.event_queue.schedule(interval.from, Event::WarmedUp);
        }
    }

    fn schedule_issue(&mut self) {
        self.event_queue.schedule_arrival(self.arrivals.next(), Event::Issue);
    }

    fn issue(&mut self, client: u32) {
        self.stats.record_issue(0);
        let job = self.jobs.issue(client, self.now);
        self.submit(client, job);
        self.schedule_issue();
    }

    fn on_arrival(&mut self, job: JobId) {
        self.jobs[job].base.arrived = self.now;
        self.stats.record_arrival(self.now);
        let front = self.jobs[job].base.session as usize % self.fronts.len();
        self.fronts[front].unread.push_back(job);
        self.notify_front(front);
    }

    fn on_leaf_reply(&mut self, reply: Reply) {
        if reply.kind != ReplyKind::HedgeTimeout {
            self.stations.on_reply(reply.attempt.leaf);
        } else if !self.jobs.waits_for(&reply.attempt) {
            return;
        }
        match reply.receiver {
            ReplyReceiver::Links(link) => {
                // A setup with fewer response threads may be in force by now.
                let link = usize::from(link) % self.links.len();
                self.links[link].unread.push_back(reply);
                self.notify_links(link);
            }
            ReplyReceiver::Helper(thread) => {
                self.threads[thread as usize].reply_arrived = true;
                self.wake_if_blocked(thread);
            }
            ReplyReceiver::Own(thread) if !self.jobs.deliver(reply) => self.threads[thread as usize].late_replies += 1,
            ReplyReceiver::Own(_) => {
                if let Some(thread) = self.jobs[reply.attempt.job].blocked_thread.take() {
                    self.wake_if_blocked(thread);
                }
            }
        }
    }

    fn wake_if_blocked(&mut self, thread: ThreadId) {
        if self.threads[thread as usize].state == ThreadState::Blocked {
            self.wake(thread);
        }
    }

    /// Wakes a sleeping thread, which continues with its next step.
    pub(super) fn wake(&mut self, thread: ThreadId) {
        self.threads[thread as usize].state = ThreadState::Busy;
        self.mark_blocking_changed(thread);
        self.cpus.wake(thread, self.now, &mut self.event_queue);
    }

    fn end_window(&mut self) {
        let delay = self.oldest_age();
        self.stats.end_window(self.now, self.gauges(), delay, None);
        self.stats.set_window_setup(self.plan.setup);
        if let Some(window) = self.config.window {
            self.event_queue.schedule(self.now + window, Event::Window);
        }
    }

    fn gauges(&self) -> Gauges {
        self.admission.as_ref().map_or_else(Gauges::default, |admission| admission.gauges())
    }

    fn contended(&self) -> u64 {
        let fronts = self.fronts.iter().map(|set| set.lock.contended);
        let links = self.links.iter().map(|set| set.lock.contended);
        fronts.chain(links).sum::<u64>() + self.queue_lock.contended + self.outcome.contended.unwrap_or(0)
    }

    /// Saves the counters of locks that are about to be removed with their connections.
    pub(super) fn save_lock_counts(&mut self) {
        self.outcome.contended = Some(self.contended() - self.queue_lock.contended);
    }

    fn end(mut self) -> RunOutcome {
        self.cpus.close(self.now);
        self.audit.check(self.cpus.is_balanced(), self.now, || {
            format!("CPU time is not the sum of what was charged: {:?}", self.cpus.accounting)
        });
        self.audit.check(self.stats.littles_law_holds(), self.now, || "Little's law does not hold".into());
        let unfinished = self.jobs.len() as u64;
        let mut report = self.stats.report(self.tier.cpus, unfinished, self.gauges(), self.events);
        self.audit
            .check(report.totals.is_balanced(), self.now, || format!("requests don't add up: {:?}", report.totals));
        let accounting = self.cpus.accounting;
        let span = report.measured.0.max(1) as f64;
        report.cpu_utilization = accounting.measured as f64 / (span * f64::from(self.tier.cpus));
        let empty_polls = u64::try_from(accounting.spun_measured).unwrap_or(u64::MAX);
        let contended = self.contended() - self.contended_before;
        let (wakeups, context_switches) = (accounting.wakes, accounting.switches);
        report.threads = Some(ThreadOutcome {
            wakeups: Some(wakeups),
            context_switches: Some(context_switches),
            contended: Some(contended),
            empty_polls: Some(Nanos(empty_polls)),
            setup: Some(self.plan.setup),
            second_calls: self.second_calls.outcome(),
            ..self.outcome
        });
        report.violations = self.audit.into_violations();
        report
    }
}
