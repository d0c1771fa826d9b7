//! Load over HTTP/1 from one thread: an open loop with Poisson arrivals, or a closed loop.
//!
//! A request goes out when it is due, on an idle connection or a new one, as from many independent
//! clients. Latency counts from the due time. The loop sleeps exactly until the next request: the
//! proxy shares its CPU, so it never spins.

use crate::answer::Answer;
use crate::connection::{Connection, Request};
use crate::plan::{Demand, Group, Kind, LoadResult, Plan, TICK, Tick};
use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Open connections at most; further requests wait for one.
const CONNECTIONS: usize = 4_000;
/// A client gives up after this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a plan on the calling thread.
pub(crate) fn run(plan: &Plan) -> Result<LoadResult> {
    let cpu = || Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime));
    // The default slack would add 50 us to each sleep.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let (before, begin) = (cpu().unwrap_or_default(), Instant::now());
    let mut generator = Generator::new(plan)?;
    generator.run()?;
    let busy = (cpu().unwrap_or_default() - before).as_secs_f64() / begin.elapsed().as_secs_f64().max(1e-9);
    let span = plan.phases.iter().map(|(_, span)| *span).sum::<Duration>().saturating_sub(plan.warmup);
    Ok(LoadResult { groups: generator.groups, span, ticks: generator.ticks, busy })
}

/// A place for a connection; its generation tells late events of an earlier one.
#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

struct Generator<'a> {
    plan: &'a Plan,
    texts: Vec<Vec<u8>>,
    poll: OwnedFd,
    slots: Vec<Slot>,
    vacant: Vec<usize>,
    /// Open connections without a request; the last used is taken first.
    idle: Vec<usize>,
    /// Requests for which there was no connection.
    waiting: VecDeque<Request>,
    /// When requests in flight are given up, in the order of sending: time, slot, generation, due.
    deadlines: VecDeque<(Instant, usize, u32, Instant)>,
    begin: Instant,
    ends: Vec<Instant>,
    phase: usize,
    /// Next arrival of an open loop.
    next: Instant,
    random: u64,
    in_flight: usize,
    groups: Vec<Group>,
    ticks: Vec<Tick>,
}

impl<'a> Generator<'a> {
    fn new(plan: &'a Plan) -> Result<Self> {
        let text = |kind: &Kind| format!("GET {} HTTP/1.1\r\nhost: leeward\r\n{}\r\n", kind.path, kind.headers);
        let groups = plan.kinds.iter().map(|kind| kind.group + 1).max().context("a plan has a kind")?;
        let begin = Instant::now();
        let ends = plan.phases.iter().scan(begin, |end, (_, span)| {
            *end += *span;
            Some(*end)
        });
        let mut generator = Generator {
            plan,
            texts: plan.kinds.iter().map(|kind| text(kind).into_bytes()).collect(),
            poll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            slots: Vec::new(),
            vacant: Vec::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            deadlines: VecDeque::new(),
            begin,
            ends: ends.collect(),
            phase: usize::MAX,
            next: begin,
            random: plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            in_flight: 0,
            groups: vec![Group::default(); groups],
            ticks: Vec::new(),
        };
        generator.enter(0)?;
        Ok(generator)
    }

    fn run(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(256);
        while self.phase < self.plan.phases.len() || self.in_flight > 0 || !self.waiting.is_empty() {
            self.arrivals()?;
            self.expire();
            let wakes = [(self.phase < self.ends.len()).then_some(self.next), self.deadlines.front().map(|one| one.0)];
            let until = wakes.into_iter().flatten().min().unwrap_or_else(Instant::now);
            let sleep = until.saturating_duration_since(Instant::now());
            match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&sleep.try_into()?)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                self.event(event.data.u64())?;
            }
        }
        Ok(())
    }

    /// Sends what is due, and goes from phase to phase.
    fn arrivals(&mut self) -> Result<()> {
        let now = Instant::now();
        while self.phase < self.plan.phases.len() && self.next <= now {
            if self.next >= self.ends[self.phase] {
                self.enter(self.phase + 1)?;
                continue;
            }
            let request = Request { due: self.next, kind: self.kind() };
            self.dispatch(request)?;
            if let Demand::Rate(rate) = self.plan.phases[self.phase].0 {
                let unit = self.unit();
                self.next += gap(rate, unit);
            }
        }
        Ok(())
    }

    fn enter(&mut self, phase: usize) -> Result<()> {
        let start = if phase == 0 { self.begin } else { self.ends[phase - 1] };
        self.phase = phase;
        match self.plan.phases.get(phase) {
            Some((Demand::Rate(rate), _)) => self.next = start + gap(*rate, self.unit()),
            Some((Demand::Closed(connections), _)) => {
                self.next = self.ends[phase];
                for _ in 0..*connections {
                    let request = Request { due: Instant::now(), kind: self.kind() };
                    self.dispatch(request)?;
                }
            }
            None => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, request: Request) -> Result<()> {
        while let Some(index) = self.idle.pop() {
            let text = &self.texts[request.kind];
            let slot = &mut self.slots[index];
            let Some(connection) = &mut slot.connection else { continue };
            if connection.send(request, text).is_ok() {
                self.deadlines.push_back((Instant::now() + PATIENCE, index, slot.generation, request.due));
                self.in_flight += 1;
                return Ok(());
            }
            self.close(index);
        }
        if self.slots.len() - self.vacant.len() >= CONNECTIONS {
            self.waiting.push_back(request);
            return Ok(());
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        let token = u64::from(slot.generation) << 32 | index as u64;
        let mut connection = Connection::open(self.plan.address, &self.poll, token)?;
        connection.send(request, &self.texts[request.kind])?;
        slot.connection = Some(connection);
        self.deadlines.push_back((Instant::now() + PATIENCE, index, slot.generation, request.due));
        self.in_flight += 1;
        Ok(())
    }

    fn event(&mut self, token: u64) -> Result<()> {
        let (index, generation) = ((token & u64::from(u32::MAX)) as usize, (token >> 32) as u32);
        let slot = &mut self.slots[index];
        let Some(connection) = slot.connection.as_mut().filter(|_| slot.generation == generation) else {
            return Ok(());
        };
        let texts = &self.texts;
        let outcome = connection.ready(&self.poll, token, |kind| texts[kind].clone());
        match outcome {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let (request, first) = (connection.request.take(), connection.first);
                if answer.keeps {
                    self.idle.push(index);
                } else {
                    self.close(index);
                }
                if let Some(request) = request {
                    self.finish(request, Some(answer), first)?;
                }
            }
            Err(_) => {
                let (request, repeats) = (connection.request.take(), connection.can_repeat());
                let first = connection.first;
                self.close(index);
                match request {
                    Some(request) if repeats => {
                        self.in_flight -= 1;
                        self.dispatch(request)?;
                    }
                    Some(request) => self.finish(request, None, first)?,
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Gives up what has waited too long.
    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(&(deadline, index, generation, due)) = self.deadlines.front() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_front();
            let slot = &self.slots[index];
            let request = slot.connection.as_ref().filter(|_| slot.generation == generation);
            let request = request.and_then(|connection| Some((connection.request?, connection.first)));
            if let Some((request, first)) = request.filter(|(request, _)| request.due == due) {
                self.close(index);
                self.in_flight -= 1;
                self.record(request, None, first);
            }
        }
        while self.waiting.front().is_some_and(|request| now > request.due + PATIENCE) {
            let Some(request) = self.waiting.pop_front() else { break };
            self.record(request, None, None);
        }
        // Given up requests leave room for others.
        while self.slots.len() - self.vacant.len() < CONNECTIONS {
            let Some(request) = self.waiting.pop_front() else { break };
            if self.dispatch(request).is_err() {
                self.record(request, None, None);
            }
        }
    }

    fn close(&mut self, index: usize) {
        if self.slots[index].connection.take().is_some() {
            self.idle.retain(|other| *other != index);
            self.vacant.push(index);
        }
    }

    /// Records the end of a request; its connection is free for the next one.
    fn finish(&mut self, request: Request, answer: Option<Answer>, first: Option<Instant>) -> Result<()> {
        self.in_flight -= 1;
        self.record(request, answer, first);
        if let Some(request) = self.waiting.pop_front() {
            self.dispatch(request)?;
        } else if let Some((Demand::Closed(_), _)) = self.plan.phases.get(self.phase)
            && Instant::now() < self.ends[self.phase]
        {
            let request = Request { due: Instant::now(), kind: self.kind() };
            self.dispatch(request)?;
        }
        Ok(())
    }

    /// Records a request; `first`: the time of its response's first byte.
    fn record(&mut self, request: Request, answer: Option<Answer>, first: Option<Instant>) {
        let until = first.filter(|_| self.plan.to_first_byte).unwrap_or_else(Instant::now);
        let (latency, since) =
            (until.saturating_duration_since(request.due), request.due.saturating_duration_since(self.begin));
        let is_answered = answer.is_some_and(|answer| answer.status == 200);
        let in_time = u64::from(is_answered && latency <= self.plan.objective);
        let tick = (since.as_nanos() / TICK.as_nanos()) as usize;
        if self.ticks.len() <= tick {
            self.ticks.resize(tick + 1, Tick::default());
        }
        self.ticks[tick].due += 1;
        self.ticks[tick].in_time += in_time;
        self.ticks[tick].unserved += u64::from(!is_answered);
        if since < self.plan.warmup {
            return;
        }
        let group = &mut self.groups[self.plan.kinds[request.kind].group];
        group.due += 1;
        match answer.map(|answer| answer.status) {
            Some(200) => {
                group.answered += 1;
                group.in_time += in_time;
                group.latency.saturating_record(latency.as_micros() as u64);
            }
            Some(429 | 503) => group.refused += 1,
            _ => {
                group.failed += 1;
                group.cut += u64::from(first.is_some());
            }
        }
    }

    /// Draws the kind of a request.
    fn kind(&mut self) -> usize {
        pick(&self.plan.kinds, self.unit())
    }

    fn unit(&mut self) -> f64 {
        unit(&mut self.random)
    }
}

/// Index of a kind, by the kinds' weights.
pub(crate) fn pick(kinds: &[Kind], unit: f64) -> usize {
    let mut at = unit * kinds.iter().map(|kind| kind.weight).sum::<f64>();
    for (index, kind) in kinds.iter().enumerate() {
        at -= kind.weight;
        if at < 0.0 {
            return index;
        }
    }
    kinds.len().saturating_sub(1)
}

/// A number from 0 to 1 (xorshift64*).
pub(crate) fn unit(random: &mut u64) -> f64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
}

/// Time to the next arrival of a Poisson process.
pub(crate) fn gap(rate: f64, unit: f64) -> Duration {
    Duration::from_secs_f64(-(1.0 - unit).ln() / rate.max(1e-3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_of_their_rate() {
        let mean = (0..1_000).map(|step| gap(50.0, (f64::from(step) + 0.5) / 1e3).as_secs_f64()).sum::<f64>() / 1e3;
        assert!((mean - 0.02).abs() < 1e-4, "{mean}");
    }
}
