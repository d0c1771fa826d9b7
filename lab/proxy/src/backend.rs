//! The backend: awaiting, one lock, cores of either discipline, pauses. Does not contain the queue
//! of the proxy.

use crate::case::{Case, Discipline, Feature, PAUSE, PAUSE_INTERVAL, SLOWDOWN};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Work of one request, drawn when it arrives so that all limits meet the same requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Time without a core before the work, ns.
    pub(crate) awaiting: f64,
    /// Work, ns.
    pub(crate) work: f64,
    /// Whether the first half of the work holds the lock.
    pub(crate) has_lock: bool,
}

/// Place of a request in the backend's table.
pub(crate) type JobId = u32;

#[derive(Clone, Copy, Debug)]
enum Event {
    Awaited(JobId),
    /// The end of a piece of work on a core (FIFO).
    Executed(JobId),
    /// The first end of a piece of shared work, if no request has entered or left since.
    Shared(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Locked,
    Last,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    work: Work,
    stage: Stage,
}

/// An `f64` that is never NaN, in a heap.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Key(f64, u64);

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

/// The backend of a case. All times are in ns from the beginning of the run.
pub(crate) struct Backend {
    cores: u32,
    discipline: Discipline,
    thrashing: Option<(f64, u32)>,
    has_pauses: bool,
    slowdown: Option<(f64, f64)>,
    jobs: Vec<Job>,
    free: Vec<JobId>,
    in_flight: u32,
    events: BinaryHeap<Reverse<(Key, JobIndex)>>,
    scheduled: u64,
    busy: u32,
    run_queue: VecDeque<(JobId, f64)>,
    shared: SharedCores,
    lock_held: bool,
    lock_queue: VecDeque<JobId>,
}

/// An event in a heap: ordered by its key alone.
#[derive(Clone, Copy, Debug)]
struct JobIndex(Event);

impl PartialEq for JobIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for JobIndex {}

impl PartialOrd for JobIndex {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for JobIndex {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

/// Processor sharing: *progress* is the work that each present job has got since the beginning.
#[derive(Default)]
struct SharedCores {
    progress: f64,
    /// Active time of the latest update.
    updated: f64,
    ends: BinaryHeap<Reverse<(Key, JobId)>>,
    version: u64,
}

impl Backend {
    pub(crate) fn new(case: &Case) -> Self {
        let thrashing = match case.feature {
            Feature::Thrashing { share, from } => Some((share, from)),
            _ => None,
        };
        Backend {
            cores: case.cores,
            discipline: case.discipline,
            thrashing,
            has_pauses: case.feature == Feature::Pauses,
            slowdown: case.slowdown().map(|(from, to)| (from.0 as f64, to.0 as f64)),
            jobs: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            busy: 0,
            run_queue: VecDeque::new(),
            shared: SharedCores::default(),
            lock_held: false,
            lock_queue: VecDeque::new(),
        }
    }

    /// Time of the next event; infinite if there is none.
    pub(crate) fn next_time(&self) -> f64 {
        self.events.peek().map_or(f64::INFINITY, |Reverse((key, _))| key.0)
    }

    /// Takes a request.
    pub(crate) fn begin(&mut self, now: f64, work: Work) -> JobId {
        let job = Job { work, stage: if work.has_lock { Stage::Locked } else { Stage::Last } };
        let id = match self.free.pop() {
            Some(id) => {
                self.jobs[id as usize] = job;
                id
            }
            None => {
                self.jobs.push(job);
                self.jobs.len() as JobId - 1
            }
        };
        self.in_flight += 1;
        if work.awaiting > 0.0 {
            self.schedule(now + work.awaiting, Event::Awaited(id));
        } else {
            self.work(now, id);
        }
        id
    }

    /// Handles the next event; returns the request that it has ended, if any.
    pub(crate) fn step(&mut self) -> Option<JobId> {
        let Reverse((Key(now, _), JobIndex(event))) = self.events.pop()?;
        match event {
            Event::Awaited(id) => {
                self.work(now, id);
                None
            }
            Event::Executed(id) => {
                match self.run_queue.pop_front() {
                    Some((next, work)) => self.execute(now, next, work),
                    None => self.busy -= 1,
                }
                self.executed(now, id)
            }
            Event::Shared(version) if version != self.shared.version => None,
            Event::Shared(_) => {
                self.advance(now);
                let Reverse((_, id)) = self.shared.ends.pop()?;
                self.schedule_shared(now);
                self.executed(now, id)
            }
        }
    }

    fn schedule(&mut self, at: f64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((Key(at, self.scheduled), JobIndex(event))));
    }

    /// Begins the work of a request that waits for nothing else.
    fn work(&mut self, now: f64, id: JobId) {
        let Job { work, stage } = self.jobs[id as usize];
        if stage == Stage::Last {
            return self.run(now, id, work.work);
        }
        if self.lock_held {
            self.lock_queue.push_back(id);
        } else {
            self.lock_held = true;
            self.run(now, id, work.work / 2.0);
        }
    }

    /// Ends a piece of work: of the lock's holder, or of a request.
    fn executed(&mut self, now: f64, id: JobId) -> Option<JobId> {
        if self.jobs[id as usize].stage == Stage::Last {
            self.in_flight -= 1;
            self.free.push(id);
            return Some(id);
        }
        self.jobs[id as usize].stage = Stage::Last;
        match self.lock_queue.pop_front() {
            Some(next) => {
                let work = self.jobs[next as usize].work.work / 2.0;
                self.run(now, next, work);
            }
            None => self.lock_held = false,
        }
        let rest = self.jobs[id as usize].work.work / 2.0;
        self.run(now, id, rest);
        None
    }

    /// Gives a piece of work to the cores.
    fn run(&mut self, now: f64, id: JobId, work: f64) {
        match self.discipline {
            Discipline::Fifo if self.busy < self.cores => {
                self.busy += 1;
                self.execute(now, id, work);
            }
            Discipline::Fifo => self.run_queue.push_back((id, work)),
            Discipline::ProcessorSharing => {
                self.advance(now);
                let end = self.shared.progress + work * self.stretch(now);
                self.scheduled += 1;
                self.shared.ends.push(Reverse((Key(end, self.scheduled), id)));
                self.schedule_shared(now);
            }
        }
    }

    fn execute(&mut self, now: f64, id: JobId, work: f64) {
        let end = self.wall(self.active(now) + work * self.stretch(now));
        self.schedule(end.max(now), Event::Executed(id));
    }

    /// Factor on work that begins now.
    fn stretch(&self, now: f64) -> f64 {
        let slow = self.slowdown.is_some_and(|(from, to)| (from..to).contains(&now));
        let thrash = self.thrashing.map_or(0.0, |(share, from)| share * f64::from(self.in_flight.saturating_sub(from)));
        (1.0 + thrash) * if slow { SLOWDOWN } else { 1.0 }
    }

    fn advance(&mut self, now: f64) {
        let active = self.active(now);
        let jobs = self.shared.ends.len() as f64;
        if jobs > 0.0 {
            let speed = (f64::from(self.cores) / jobs).min(1.0);
            self.shared.progress += (active - self.shared.updated).max(0.0) * speed;
        }
        self.shared.updated = active;
    }

    fn schedule_shared(&mut self, now: f64) {
        self.shared.version += 1;
        let Some(Reverse((Key(end, _), _))) = self.shared.ends.peek() else { return };
        let speed = (f64::from(self.cores) / self.shared.ends.len() as f64).min(1.0);
        let rest = (end - self.shared.progress).max(0.0) / speed;
        let at = self.wall(self.active(now) + rest).max(now);
        self.schedule(at, Event::Shared(self.shared.version));
    }

    /// Time in which the cores have run until `now`. Each interval begins with its work.
    fn active(&self, now: f64) -> f64 {
        if !self.has_pauses {
            return now;
        }
        let (interval, run) = (PAUSE_INTERVAL.0 as f64, (PAUSE_INTERVAL.0 - PAUSE.0) as f64);
        let whole = (now / interval).floor();
        whole * run + (now - whole * interval).min(run)
    }

    /// The inverse of [`Backend::active`].
    fn wall(&self, active: f64) -> f64 {
        if !self.has_pauses {
            return active;
        }
        let (interval, run) = (PAUSE_INTERVAL.0 as f64, (PAUSE_INTERVAL.0 - PAUSE.0) as f64);
        let whole = (active / run).floor();
        whole * interval + (active - whole * run)
    }
}
