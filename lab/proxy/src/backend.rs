//! The backend: awaiting, one lock, one or two stages of cores of either discipline, pauses. Does
//! not contain the queue of the proxy.

use crate::case::{Case, Discipline, Feature, PAUSE, PAUSE_INTERVAL};
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
    /// Work in the second stage, ns; 0 if there is none.
    pub(crate) second: f64,
}

/// Place of a request in the backend's table.
pub(crate) type JobId = u32;

#[derive(Clone, Copy, Debug)]
enum Event {
    Awaited(JobId),
    /// The end of a piece of work on a core (FIFO).
    Executed(JobId),
    /// The first end of a piece of shared work in a stage, if no request has entered or left since.
    Shared(usize, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Locked,
    First,
    Second,
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
    clock: Clock,
    /// Intervals in which work takes longer, and the factors.
    slower: Vec<(f64, f64, f64)>,
    jobs: Vec<Job>,
    free: Vec<JobId>,
    in_flight: u32,
    events: BinaryHeap<Reverse<(Key, JobIndex)>>,
    scheduled: u64,
    stages: [Cores; 2],
    lock_held: bool,
    lock_queue: VecDeque<JobId>,
    /// Whether requests are read only when a core has nothing else to do.
    reads_late: bool,
    unread: VecDeque<JobId>,
}

/// The cores of a stage.
#[derive(Default)]
struct Cores {
    busy: u32,
    run_queue: VecDeque<(JobId, f64)>,
    shared: SharedCores,
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
        let thrashing = |feature: &Feature| match *feature {
            Feature::Thrashing { share, from } => Some((share, from)),
            _ => None,
        };
        let slower = case.slower().into_iter().map(|(from, to, factor)| (from.0 as f64, to.0 as f64, factor));
        Backend {
            cores: case.cores,
            discipline: case.discipline,
            thrashing: case.features.iter().find_map(thrashing),
            clock: Clock::new(case),
            slower: slower.collect(),
            jobs: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            stages: <[Cores; 2]>::default(),
            lock_held: false,
            lock_queue: VecDeque::new(),
            reads_late: case.features.contains(&Feature::LateReads),
            unread: VecDeque::new(),
        }
    }

    /// Time of the next event; infinite if there is none.
    pub(crate) fn next_time(&self) -> f64 {
        self.events.peek().map_or(f64::INFINITY, |Reverse((key, _))| key.0)
    }

    /// Takes a request.
    pub(crate) fn begin(&mut self, now: f64, work: Work) -> JobId {
        let job = Job { work, stage: if work.has_lock { Stage::Locked } else { Stage::First } };
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
        if self.reads_late && self.stages[0].busy >= self.cores {
            self.unread.push_back(id);
        } else {
            self.read(now, id);
        }
        id
    }

    /// Begins a request that the backend has read.
    fn read(&mut self, now: f64, id: JobId) {
        let awaiting = self.jobs[id as usize].work.awaiting;
        if awaiting > 0.0 {
            self.schedule(now + awaiting, Event::Awaited(id));
        } else {
            self.work(now, id);
        }
    }

    /// Reads all sockets.
    fn read_all(&mut self, now: f64) {
        for id in std::mem::take(&mut self.unread) {
            self.read(now, id);
        }
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
                let stage = self.stage(id);
                match self.stages[stage].run_queue.pop_front() {
                    Some((next, work)) => self.execute(now, next, work),
                    None => {
                        self.stages[stage].busy -= 1;
                        self.read_all(now);
                    }
                }
                self.executed(now, id)
            }
            Event::Shared(stage, version) if version != self.stages[stage].shared.version => None,
            Event::Shared(stage, _) => {
                self.advance(now, stage);
                let Reverse((_, id)) = self.stages[stage].shared.ends.pop()?;
                self.schedule_shared(now, stage);
                self.executed(now, id)
            }
        }
    }

    /// Place of the cores that execute a request.
    fn stage(&self, id: JobId) -> usize {
        usize::from(self.jobs[id as usize].stage == Stage::Second)
    }

    fn schedule(&mut self, at: f64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((Key(at, self.scheduled), JobIndex(event))));
    }

    /// Begins the work of a request that waits for nothing else.
    fn work(&mut self, now: f64, id: JobId) {
        let Job { work, stage } = self.jobs[id as usize];
        if stage != Stage::Locked {
            return self.run(now, id, work.work);
        }
        if self.lock_held {
            self.lock_queue.push_back(id);
        } else {
            self.lock_held = true;
            self.run(now, id, work.work / 2.0);
        }
    }

    /// Ends a piece of work: of the lock's holder, of the first stage, or of a request.
    fn executed(&mut self, now: f64, id: JobId) -> Option<JobId> {
        let Job { work, stage } = self.jobs[id as usize];
        match stage {
            Stage::Locked => {
                self.jobs[id as usize].stage = Stage::First;
                match self.lock_queue.pop_front() {
                    Some(next) => {
                        let work = self.jobs[next as usize].work.work / 2.0;
                        self.run(now, next, work);
                    }
                    None => self.lock_held = false,
                }
                self.run(now, id, work.work / 2.0);
                None
            }
            Stage::First if work.second > 0.0 => {
                self.jobs[id as usize].stage = Stage::Second;
                self.run(now, id, work.second);
                None
            }
            Stage::First | Stage::Second => {
                self.in_flight -= 1;
                self.free.push(id);
                Some(id)
            }
        }
    }

    /// Gives a piece of work to the cores of the request's stage.
    fn run(&mut self, now: f64, id: JobId, work: f64) {
        let stage = self.stage(id);
        match self.discipline {
            Discipline::Fifo if self.stages[stage].busy < self.cores => {
                self.stages[stage].busy += 1;
                self.execute(now, id, work);
            }
            Discipline::Fifo => self.stages[stage].run_queue.push_back((id, work)),
            Discipline::ProcessorSharing => {
                self.advance(now, stage);
                let work = work * self.stretch(now);
                self.scheduled += 1;
                let shared = &mut self.stages[stage].shared;
                shared.ends.push(Reverse((Key(shared.progress + work, self.scheduled), id)));
                self.schedule_shared(now, stage);
            }
        }
    }

    fn execute(&mut self, now: f64, id: JobId, work: f64) {
        let end = self.clock.wall(self.clock.active(now) + work * self.stretch(now));
        self.schedule(end.max(now), Event::Executed(id));
    }

    /// Factor on work that begins now.
    fn stretch(&self, now: f64) -> f64 {
        let slow = self.slower.iter().filter(|(from, to, _)| (*from..*to).contains(&now));
        let thrash = self.thrashing.map_or(0.0, |(share, from)| share * f64::from(self.in_flight.saturating_sub(from)));
        (1.0 + thrash) * slow.map(|(_, _, factor)| factor).product::<f64>()
    }

    fn advance(&mut self, now: f64, stage: usize) {
        let active = self.clock.active(now);
        let shared = &mut self.stages[stage].shared;
        let jobs = shared.ends.len() as f64;
        if jobs > 0.0 {
            let speed = (f64::from(self.cores) / jobs).min(1.0);
            shared.progress += (active - shared.updated).max(0.0) * speed;
        }
        shared.updated = active;
    }

    fn schedule_shared(&mut self, now: f64, stage: usize) {
        let shared = &mut self.stages[stage].shared;
        shared.version += 1;
        let version = shared.version;
        let Some(Reverse((Key(end, _), _))) = shared.ends.peek() else { return };
        let speed = (f64::from(self.cores) / shared.ends.len() as f64).min(1.0);
        let rest = (end - shared.progress).max(0.0) / speed;
        let at = self.clock.wall(self.clock.active(now) + rest).max(now);
        self.schedule(at, Event::Shared(stage, version));
    }
}

/// The time in which the cores run. Silences stop it, and pauses are at its regular times.
struct Clock {
    has_pauses: bool,
    /// Beginnings and lengths of the silences, in order.
    silences: Vec<(f64, f64)>,
}

impl Clock {
    fn new(case: &Case) -> Self {
        let silence = |feature: &Feature| match *feature {
            Feature::Silence { from, to } => Some((from.0 as f64, to.saturating_sub(from).0 as f64)),
            _ => None,
        };
        let mut silences: Vec<_> = case.features.iter().filter_map(silence).collect();
        silences.sort_by(|a, b| a.0.total_cmp(&b.0));
        Clock { has_pauses: case.features.contains(&Feature::Pauses), silences }
    }

    /// Time in which the cores have run until `now`. Each interval begins with its work.
    fn active(&self, now: f64) -> f64 {
        let silent: f64 = self.silences.iter().map(|(from, length)| (now - from).clamp(0.0, *length)).sum();
        let now = now - silent;
        if !self.has_pauses {
            return now;
        }
        let (interval, run) = (PAUSE_INTERVAL.0 as f64, (PAUSE_INTERVAL.0 - PAUSE.0) as f64);
        let whole = (now / interval).floor();
        whole * run + (now - whole * interval).min(run)
    }

    /// The inverse of [`Clock::active`].
    fn wall(&self, active: f64) -> f64 {
        let mut wall = active;
        if self.has_pauses {
            let (interval, run) = (PAUSE_INTERVAL.0 as f64, (PAUSE_INTERVAL.0 - PAUSE.0) as f64);
            let whole = (active / run).floor();
            wall = whole * interval + (active - whole * run);
        }
        for (from, length) in &self.silences {
            if wall > *from {
                wall += length;
            }
        }
        wall
    }
}
