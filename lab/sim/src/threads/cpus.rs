//! CPUs and the threads on them, as an operating system shares them: wake-ups, slices, preemption, and idle CPUs that pull. A thread
//! computes for a known span or spins without end; what it does that for is the business of `crew`.

use super::event::{Event, ThreadId};
use super::model::ThreadCosts;
use crate::event_queue::EventQueue;
use leeward_core::units::{Nanos, Time};
use leeward_workload::rng::{Purpose, Rng};
use std::collections::VecDeque;

/// State of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// A woken thread is on its way.
    Waking(ThreadId),
    Runs(ThreadId),
}

#[derive(Debug)]
struct Cpu {
    phase: Phase,
    /// Runnable threads that wait for this CPU.
    queue: VecDeque<ThreadId>,
    /// When this phase, or this thread's stay on the CPU, began.
    since: Time,
    /// Up to when the running thread's time has been accounted for.
    accounted: Time,
    /// When another thread may have the CPU.
    switch_at: Time,
    /// The thread that ran last, and for how long.
    last: (ThreadId, Nanos),
    generation: u32,
}

/// A thread as its CPU sees it.
#[derive(Clone, Copy, Debug, Default)]
struct SchedEntity {
    cpu: u32,
    /// CPU time that it still needs before it is asked what next.
    remaining: Nanos,
    spins: bool,
}

/// Meaning of an event on a CPU to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpuEvent {
    /// Nothing.
    Nothing,
    /// A thread has done what it had to compute: it has the CPU and must be told what next.
    Done(ThreadId),
    /// A thread that spun has lost its CPU; it will be asked what next when it gets one again.
    SpinEnded(ThreadId),
}

/// CPU time, in integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuAccounting {
    /// Time in which CPUs ran threads.
    pub(super) busy: u128,
    /// The part of it since the measured part began.
    pub(super) measured: u128,
    /// Time that threads were asked to compute, and that switches and cold caches took.
    pub(super) charged: u128,
    /// Time that threads spun.
    pub(super) spun: u128,
    /// The part of it since the measured part began.
    pub(super) spun_measured: u128,
    /// Threads woken.
    pub(super) wakes: u64,
    /// Changes between threads on busy CPUs.
    pub(super) switches: u64,
}

/// All CPUs and threads.
pub(super) struct Cpus {
    cpus: Vec<Cpu>,
    entities: Vec<SchedEntity>,
    /// A bit per CPU that is idle.
    idle: u128,
    /// Threads in all queues.
    queued: usize,
    costs: ThreadCosts,
    rng: Rng,
    measured_from: Time,
    pub(super) accounting: CpuAccounting,
}

const NO_THREAD: ThreadId = ThreadId::MAX;

impl Cpus {
    pub(super) fn new(count: u32, costs: &ThreadCosts, warmup: Nanos, seed: u64) -> Self {
        let cpu = || Cpu {
            phase: Phase::Idle,
            queue: VecDeque::new(),
            since: Time::ZERO,
            accounted: Time::ZERO,
            switch_at: Time::NEVER,
            last: (NO_THREAD, Nanos::ZERO),
            generation: 0,
        };
        Cpus {
            cpus: (0..count).map(|_| cpu()).collect(),
            entities: Vec::new(),
            idle: if count == 128 { u128::MAX } else { (1 << count) - 1 },
            queued: 0,
            costs: costs.clone(),
            rng: Rng::new(seed, Purpose::Wakes),
            measured_from: Time::ZERO + warmup,
            accounting: CpuAccounting::default(),
        }
    }

    /// A new thread, asleep; it has never run anywhere, so it belongs to a CPU by its number.
    pub(super) fn add_thread(&mut self) -> ThreadId {
        let id = self.entities.len() as ThreadId;
        self.entities.push(SchedEntity { cpu: id % self.cpus.len() as u32, ..SchedEntity::default() });
        id
    }

    /// A sleeping thread becomes runnable.
    pub(super) fn wake(&mut self, thread: ThreadId, now: Time, agenda: &mut EventQueue<Event>) {
        self.accounting.wakes += u64::from(now >= self.measured_from);
        let last = self.entities[thread as usize].cpu;
        match self.idle_from(last) {
            Some(index) => {
                self.idle &= !(1 << index);
                self.entities[thread as usize].cpu = index;
                let cpu = &mut self.cpus[index as usize];
                let delay = self.costs.wake.at(now.since(cpu.since), self.rng.unit());
                cpu.phase = Phase::Waking(thread);
                self.schedule(index, now + delay, agenda);
            }
            None => {
                let cpu = &mut self.cpus[last as usize];
                cpu.queue.push_back(thread);
                self.queued += 1;
                if let Phase::Runs(running) = cpu.phase {
                    // A thread that was alone has no end of its turn on the agenda, however long ago its slice was over.
                    cpu.switch_at = cpu.switch_at.min((cpu.since + self.costs.preempt).max(now));
                    self.rearm(last, running, now, agenda);
                }
            }
        }
    }

    /// The idle CPU nearest to `last`, upwards and around.
    fn idle_from(&self, last: u32) -> Option<u32> {
        let above = self.idle & (u128::MAX << last);
        let found = if above != 0 { above } else { self.idle };
        (found != 0).then(|| found.trailing_zeros())
    }

    fn schedule(&mut self, index: u32, at: Time, agenda: &mut EventQueue<Event>) {
        let cpu = &mut self.cpus[index as usize];
        cpu.generation = cpu.generation.wrapping_add(1);
        agenda.schedule(at, Event::Cpu(index, cpu.generation));
    }

    /// Schedules the end of what `thread` computes, or the end of its turn, whichever comes first.
    fn rearm(&mut self, index: u32, thread: ThreadId, now: Time, agenda: &mut EventQueue<Event>) {
        let host = self.entities[thread as usize];
        let cpu = &self.cpus[index as usize];
        let left = host.remaining.saturating_sub(now.since(cpu.accounted));
        let end = if host.spins { Time::NEVER } else { now + left };
        let at = if cpu.queue.is_empty() { end } else { end.min(cpu.switch_at.max(now)) };
        if at == Time::NEVER {
            // No event: a poll that nobody disturbs. Older events must not count.
            let cpu = &mut self.cpus[index as usize];
            cpu.generation = cpu.generation.wrapping_add(1);
        } else {
            self.schedule(index, at, agenda);
        }
    }

    /// Brings the running thread's account up to `now`.
    fn account(&mut self, index: u32, thread: ThreadId, now: Time) {
        let cpu = &mut self.cpus[index as usize];
        let host = &mut self.entities[thread as usize];
        let span = now.since(cpu.accounted);
        let measured = now.since(cpu.accounted.max(self.measured_from));
        cpu.accounted = now;
        self.accounting.busy += u128::from(span.0);
        self.accounting.measured += u128::from(measured.0);
        if host.spins {
            self.accounting.spun += u128::from(span.0);
            self.accounting.spun_measured += u128::from(measured.0);
        } else {
            host.remaining = host.remaining.saturating_sub(span);
        }
    }

    /// The event of a CPU.
    pub(super) fn on_event(
        &mut self,
        index: u32,
        generation: u32,
        now: Time,
        agenda: &mut EventQueue<Event>,
    ) -> CpuEvent {
        let cpu = &self.cpus[index as usize];
        if cpu.generation != generation {
            return CpuEvent::Nothing;
        }
        match cpu.phase {
            Phase::Idle => CpuEvent::Nothing,
            Phase::Waking(thread) => {
                self.start(index, thread, Nanos::ZERO, now);
                self.resume(index, thread, now, agenda)
            }
            Phase::Runs(thread) => {
                self.account(index, thread, now);
                let host = self.entities[thread as usize];
                if !host.spins && host.remaining == Nanos::ZERO {
                    return CpuEvent::Done(thread);
                }
                let cpu = &self.cpus[index as usize];
                if cpu.queue.is_empty() || now < cpu.switch_at {
                    self.rearm(index, thread, now, agenda);
                    return CpuEvent::Nothing;
                }
                self.leave(index, now);
                let spun = std::mem::take(&mut self.entities[thread as usize].spins);
                self.cpus[index as usize].queue.push_back(thread);
                self.queued += 1;
                self.next(index, now, agenda);
                if spun { CpuEvent::SpinEnded(thread) } else { CpuEvent::Nothing }
            }
        }
    }

    fn resume(&mut self, index: u32, thread: ThreadId, now: Time, agenda: &mut EventQueue<Event>) -> CpuEvent {
        if self.entities[thread as usize].remaining == Nanos::ZERO {
            return CpuEvent::Done(thread);
        }
        self.rearm(index, thread, now, agenda);
        CpuEvent::Nothing
    }

    /// `thread` begins its stay on a CPU; `switch` is what the change costs.
    fn start(&mut self, index: u32, thread: ThreadId, switch: Nanos, now: Time) {
        let cpu = &mut self.cpus[index as usize];
        let (last, ran) = cpu.last;
        let cold = if last != thread && last != NO_THREAD && ran >= ThreadCosts::COLD_AFTER {
            self.costs.cold_cache
        } else {
            Nanos::ZERO
        };
        cpu.phase = Phase::Runs(thread);
        cpu.accounted = now;
        // A stay counts from the first instruction: a slice shorter than a switch is a slow machine, not one that stands still.
        cpu.since = now + switch + cold;
        cpu.switch_at = cpu.since + self.costs.slice;
        let host = &mut self.entities[thread as usize];
        host.cpu = index;
        host.remaining += switch + cold;
        self.accounting.charged += u128::from((switch + cold).0);
    }

    /// The running thread gives its CPU up.
    fn leave(&mut self, index: u32, now: Time) {
        let cpu = &mut self.cpus[index as usize];
        if let Phase::Runs(thread) = cpu.phase {
            cpu.last = (thread, now.since(cpu.since));
        }
    }

    /// A CPU without a running thread takes the next one, its own or another CPU's, or idles.
    fn next(&mut self, index: u32, now: Time, agenda: &mut EventQueue<Event>) {
        let own = self.cpus[index as usize].queue.pop_front();
        let next = own.or_else(|| if self.queued == 0 { None } else { self.pull() });
        match next {
            Some(thread) => {
                self.queued -= 1;
                self.accounting.switches += u64::from(now >= self.measured_from);
                self.start(index, thread, self.costs.switch, now);
                self.rearm(index, thread, now, agenda);
            }
            None => {
                let cpu = &mut self.cpus[index as usize];
                cpu.phase = Phase::Idle;
                cpu.since = now;
                cpu.generation = cpu.generation.wrapping_add(1);
                self.idle |= 1 << index;
            }
        }
    }

    /// The thread that has waited longest in the longest queue.
    fn pull(&mut self) -> Option<ThreadId> {
        let longest = self.cpus.iter_mut().rev().max_by_key(|cpu| cpu.queue.len())?;
        longest.queue.pop_front()
    }

    /// The running `thread` computes for `span`.
    pub(super) fn compute(&mut self, thread: ThreadId, span: Nanos, now: Time, agenda: &mut EventQueue<Event>) {
        self.accounting.charged += u128::from(span.0);
        let host = &mut self.entities[thread as usize];
        host.remaining = span;
        let index = host.cpu;
        self.rearm(index, thread, now, agenda);
    }

    /// The running `thread` spins.
    pub(super) fn spin(&mut self, thread: ThreadId, now: Time, agenda: &mut EventQueue<Event>) {
        let host = &mut self.entities[thread as usize];
        host.spins = true;
        let index = host.cpu;
        self.rearm(index, thread, now, agenda);
    }

    /// The spinning `thread` has seen something, and must be told what next.
    pub(super) fn stop_spinning(&mut self, thread: ThreadId, now: Time) {
        let index = self.entities[thread as usize].cpu;
        self.account(index, thread, now);
        let host = &mut self.entities[thread as usize];
        (host.spins, host.remaining) = (false, Nanos::ZERO);
    }

    /// The running `thread` sleeps until it is woken.
    pub(super) fn sleep(&mut self, thread: ThreadId, now: Time, agenda: &mut EventQueue<Event>) {
        let index = self.entities[thread as usize].cpu;
        self.leave(index, now);
        self.next(index, now, agenda);
    }

    /// Whether a CPU idles although a thread waits for one.
    pub(super) fn idles_beside_work(&self) -> bool {
        self.idle != 0 && self.queued > 0
    }

    /// Accounts for those who still run at the end.
    pub(super) fn close(&mut self, now: Time) {
        for index in 0..self.cpus.len() as u32 {
            if let Phase::Runs(thread) = self.cpus[index as usize].phase {
                self.account(index, thread, now);
            }
        }
    }

    /// Whether the CPUs' time is the sum of what threads were charged, to the nanosecond; after [`close`](Self::close).
    pub(super) fn is_balanced(&self) -> bool {
        let left: u128 = self.entities.iter().map(|host| u128::from(host.remaining.0)).sum();
        self.accounting.busy + left == self.accounting.charged + self.accounting.spun
    }
}
