//! A run of a tier: clients, server and leaves put together, and the loop over their events. What a thread does next is in `turn` and
//! `serve`, how setups change in `switch`.

use super::controller::Admission;
use super::cpus::{Cpus, Told};
use super::crew::{Doing, Place, Plan, Thread};
use super::event::{Event, JobId, News, Reply, Route, ThreadId};
use super::governor::Governor;
use super::hedges::Seconds;
use super::inlet::Inlet;
use super::jobs::Jobs;
use super::leaves::Stations;
use super::lock::Lock;
use super::model::{ThreadCosts, Tier};
use crate::SimError;
use crate::agenda::Agenda;
use crate::audit::Audit;
use crate::config::SimConfig;
use crate::instant::Instant;
use crate::stats::Stats;
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_core::server::Gauges;
use leeward_core::units::{Nanos, Time};
use leeward_outcome::{RunOutcome, ThreadOutcome};
use leeward_threading::Owed;
use leeward_workload::ArrivalStream;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

/// Everything of one run.
pub(super) struct Run<'a> {
    pub(super) config: &'a SimConfig,
    pub(super) tier: &'a Tier,
    pub(super) costs: &'a ThreadCosts,
    pub(super) now: Time,
    pub(super) agenda: Agenda<Event>,
    arrivals: ArrivalStream,
    pub(super) cpus: Cpus,
    pub(super) threads: Vec<Thread>,
    /// Threads of the crew without a slot; the one that parked last is woken first.
    pub(super) parked: Vec<ThreadId>,
    /// Helpers without a call; the one that rested last is woken first.
    pub(super) helpers: Vec<ThreadId>,
    pub(super) plan: Plan,
    pub(super) governor: Option<Governor>,
    /// The controller; `None`: everything is admitted.
    pub(super) admission: Option<Box<Admission>>,
    /// Threads of the crew; those after them are helpers.
    pub(super) crew: usize,
    pub(super) fronts: Vec<Inlet<JobId>>,
    pub(super) links: Vec<Inlet<Reply>>,
    pub(super) queue: VecDeque<JobId>,
    pub(super) queue_lock: Lock,
    /// Workers that sleep at the queue; the one that has slept longest is woken first.
    pub(super) workers: VecDeque<ThreadId>,
    pub(super) jobs: Jobs,
    pub(super) stations: Stations,
    pub(super) seconds: Seconds,
    /// Links of the next request, in an async setup.
    pub(super) next_link: u16,
    /// Calls of async setups whose replies have not been received.
    pub(super) async_calls: u32,
    pub(super) stats: Stats,
    pub(super) audit: Audit,
    pub(super) outcome: ThreadOutcome,
    events: u64,
    instant: Instant<'a>,
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
            agenda: Agenda::new(),
            arrivals: ArrivalStream::new(&config.workload, config.seed),
            cpus: Cpus::new(tier.cpus, &tier.costs, config.warmup, config.seed),
            threads: Vec::new(),
            parked: Vec::new(),
            helpers: Vec::new(),
            plan: Plan::new(tier.setup(), Owed::default(), 0),
            governor: Governor::new(config, tier)?,
            admission: Admission::new(config, algorithm, params)?.map(Box::new),
            crew: 0,
            fronts: Vec::new(),
            links: Vec::new(),
            queue: VecDeque::new(),
            queue_lock: Lock::default(),
            workers: VecDeque::new(),
            jobs: Jobs::new(&tier.leaves, &config.workload.service, config.seed),
            stations: Stations::new(&tier.leaves),
            seconds: Seconds::new(&tier.leaves),
            next_link: 0,
            async_calls: 0,
            stats: Stats::new(config),
            audit: Audit::default(),
            outcome: ThreadOutcome::default(),
            events: 0,
            instant: Instant::new(config, algorithm.name, stop),
            contended_before: 0,
        };
        run.open();
        Ok(run)
    }

    /// Makes a thread of the crew, parked.
    pub(super) fn add_thread(&mut self) {
        let id = self.cpus.add_thread();
        self.threads.push(Thread::new(Doing::Turn));
        self.parked.push(id);
    }

    /// Runs to the end.
    pub(super) fn finish(mut self) -> Result<RunOutcome, SimError> {
        let end = Time::ZERO + self.config.duration;
        self.agenda.schedule(Time::ZERO + self.config.warmup, Event::WarmedUp);
        if let Some(window) = self.config.window {
            self.agenda.schedule(Time::ZERO + window, Event::Window);
        }
        if let Some(period) = self.governor.as_ref().and_then(Governor::period) {
            self.agenda.schedule(Time::ZERO + period, Event::Tick);
        }
        if let Some(admission) = &self.admission {
            self.agenda.schedule(Time::ZERO + admission.period, Event::Control);
        }
        self.schedule_issue();
        while let Some((now, event)) = self.agenda.pop(end) {
            self.now = now;
            self.events += 1;
            if self.instant.is_over(now) {
                return Err(self.instant.error());
            }
            self.handle(event);
            if self.governor.as_ref().is_some_and(Governor::is_stirred_by_blocking) {
                self.ask_policy();
            }
            self.audit.check(!self.cpus.idles_beside_work(), now, || "a CPU idles beside a runnable thread".into());
        }
        self.now = end;
        Ok(self.end())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Issue(client) => self.issue(client),
            Event::Reach(job) => self.reach(job),
            Event::Answered(job) => {
                let base = self.jobs.end(job);
                self.stats.completed(self.now, &base);
            }
            Event::Told(job, outcome, feedback) => self.told(job, outcome, &feedback),
            Event::Credit(client, feedback) => self.credited(client, &feedback),
            Event::Demand(client, demand) => self.demanded(client, demand),
            Event::Timer(client) => self.client_timer(client),
            Event::Control => self.control_tick(),
            Event::Reply(reply) => self.reply(reply),
            Event::Cpu(cpu, generation) => match self.cpus.event(cpu, generation, self.now, &mut self.agenda) {
                Told::Nothing => {}
                Told::Done(thread) => self.advance(thread),
                Told::SpinEnded(thread) => self.spin_ended(thread),
            },
            Event::FoundAtFront(front) => self.found_at_front(front as usize),
            Event::FoundAtLinks(links) => self.found_at_links(links as usize),
            Event::PollEnds(thread, poll) => self.poll_ends(thread, poll),
            Event::Ask(ask) => self.ask_is_due(ask),
            Event::Tick => self.policy_tick(),
            Event::WarmedUp => {
                self.stats.warmed_up(self.now);
                self.contended_before = self.contended();
                self.seconds.warmed_up();
            }
            Event::Window => self.window_ends(),
        }
    }

    fn schedule_issue(&mut self) {
        self.agenda.schedule_issue(self.arrivals.next(), Event::Issue);
    }

    fn issue(&mut self, client: u32) {
        self.stats.issued(0);
        let job = self.jobs.issue(client, self.now);
        self.submit(client, job);
        self.schedule_issue();
    }

    fn reach(&mut self, job: JobId) {
        self.jobs[job].base.arrived = self.now;
        self.stats.entered(self.now);
        let front = self.jobs[job].base.session as usize % self.fronts.len();
        self.fronts[front].unread.push_back(job);
        self.call_front(front);
    }

    fn reply(&mut self, reply: Reply) {
        if reply.news != News::TakesLong {
            self.stations.replied(reply.leg.leaf);
        } else if !self.jobs.waits_for(&reply.leg) {
            return;
        }
        match reply.to {
            Route::Links(link) => {
                // A setup with fewer response threads may have come since.
                let link = usize::from(link) % self.links.len();
                self.links[link].unread.push_back(reply);
                self.call_links(link);
            }
            Route::Helper(thread) => {
                self.threads[thread as usize].came = true;
                self.wake_if_held(thread);
            }
            Route::Own(thread) if !self.jobs.came(reply) => self.threads[thread as usize].late += 1,
            Route::Own(_) => {
                if let Some(thread) = self.jobs[reply.leg.job].sleeper.take() {
                    self.wake_if_held(thread);
                }
            }
        }
    }

    fn wake_if_held(&mut self, thread: ThreadId) {
        if self.threads[thread as usize].place == Place::Held {
            self.wake(thread);
        }
    }

    /// A sleeping thread becomes runnable; it goes on with what it was to do next.
    pub(super) fn wake(&mut self, thread: ThreadId) {
        self.threads[thread as usize].place = Place::Busy;
        self.stir(thread);
        self.cpus.wake(thread, self.now, &mut self.agenda);
    }

    fn window_ends(&mut self) {
        let delay = self.oldest();
        self.stats.window_ends(self.now, self.gauges(), delay, None);
        self.stats.window_setup(self.plan.setup);
        if let Some(window) = self.config.window {
            self.agenda.schedule(self.now + window, Event::Window);
        }
    }

    fn gauges(&self) -> Gauges {
        self.admission.as_ref().map_or_else(Gauges::default, |admission| admission.gauges())
    }

    fn contended(&self) -> u64 {
        let fronts = self.fronts.iter().map(|inlet| inlet.lock.contended);
        let links = self.links.iter().map(|inlet| inlet.lock.contended);
        fronts.chain(links).sum::<u64>() + self.queue_lock.contended + self.outcome.contended.unwrap_or(0)
    }

    /// Locks that are about to vanish with their connections: their counts stay.
    pub(super) fn keep_counts(&mut self) {
        self.outcome.contended = Some(self.contended() - self.queue_lock.contended);
    }

    fn end(mut self) -> RunOutcome {
        self.cpus.close(self.now);
        self.audit.check(self.cpus.balance(), self.now, || {
            format!("CPU time is not the sum of what was charged: {:?}", self.cpus.books)
        });
        self.audit.check(self.stats.littles_law_holds(), self.now, || "Little's law does not hold".into());
        let unfinished = self.jobs.len() as u64;
        let mut report = self.stats.report(self.tier.cpus, unfinished, self.gauges(), self.events);
        self.audit.check(report.totals.balance(), self.now, || format!("requests don't add up: {:?}", report.totals));
        let books = self.cpus.books;
        let span = report.measured.0.max(1) as f64;
        report.cpu_utilization = books.measured as f64 / (span * f64::from(self.tier.cpus));
        let empty_polls = u64::try_from(books.spun_measured).unwrap_or(u64::MAX);
        let contended = self.contended() - self.contended_before;
        let (wakeups, context_switches) = (books.wakes, books.switches);
        report.threads = Some(ThreadOutcome {
            wakeups: Some(wakeups),
            context_switches: Some(context_switches),
            contended: Some(contended),
            empty_polls: Some(Nanos(empty_polls)),
            setup: Some(self.plan.setup),
            second: self.seconds.outcome(),
            ..self.outcome
        });
        report.violations = self.audit.into_found();
        report
    }
}
