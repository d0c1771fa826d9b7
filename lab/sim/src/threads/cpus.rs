//! CPUs and the threads on them, scheduled like an operating system does: wake-ups, slices,
//! preemption, and idle CPUs that steal threads.
//!
//! A thread computes for a known time or spins without end. Does not contain a thread's work
//! (`thread_pool`).

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
    /// Switching to a woken thread.
    Waking(ThreadId),
    Runs(ThreadId),
}

#[derive(Debug)]
struct Cpu {
    phase: Phase,
    /// Runnable threads that wait for this CPU.
    queue: VecDeque<ThreadId>,
    /// Beginning of this phase, or of this thread's time on the CPU.
    since: Time,
    /// Time up to which the running thread is accounted for.
    accounted: Time,
    /// Earliest time at which another thread may take the CPU.
    switch_at: Time,
    /// Thread that ran last, and its time on the CPU.
    last: (ThreadId, Nanos),
    generation: u32,
}

/// Scheduling state of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct SchedEntity {
    cpu: u32,
    /// CPU time that it needs until its next step.
    remaining: Nanos,
    spins: bool,
}

/// Result of a CPU's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpuEvent {
    /// No effect on threads.
    Nothing,
    /// A thread has finished computing and has the CPU: it needs its next step.
    Done(ThreadId),
    /// A spinning thread has lost its CPU; it needs its next step once it has one again.
    SpinEnded(ThreadId),
}

/// CPU time, in integers (ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuAccounting {
    /// Time in which CPUs ran threads.
    pub(super) busy: u128,
    /// Part of `busy` since the warm-up.
    pub(super) measured: u128,
    /// Time that threads were told to compute, plus the time of switches and cold caches.
    pub(super) charged: u128,
    /// Time that threads spun.
    pub(super) spun: u128,
    /// Part of `spun` since the warm-up.
    pub(super) spun_measured: u128,
    /// Number of wake-ups.
    pub(super) wakes: u64,
    /// Number of switches between threads on busy CPUs.
    pub(super) switches: u64,
}

/// All CPUs and threads.
pub(super) struct Cpus {
    cpus: Vec<Cpu>,
    entities: Vec<SchedEntity>,
    /// Bit mask of the idle CPUs.
    idle: u128,
    /// Number of threads in all queues.
    queued: usize,
    costs: ThreadCosts,
    rng: Rng,
    measured_from: Time,
    pub(super) accounting: CpuAccounting,
}

const NO_THREAD: ThreadId = ThreadId::MAX;

impl Cpus {
    pub(super) fn new(count: u32, costs: &ThreadCosts, measured_from: Time, seed: u64) -> Self {
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
            measured_from,
            accounting: CpuAccounting::default(),
        }
    }

    /// Changes the start of the measurement. What was measured before is removed.
    pub(super) fn measure_from(&mut self, from: Time) {
        self.measured_from = from;
        let CpuAccounting { busy, charged, spun, .. } = self.accounting;
        self.accounting = CpuAccounting { busy, charged, spun, ..CpuAccounting::default() };
    }

    /// Adds a sleeping thread. It has never run, so its number determines its CPU.
    pub(super) fn add_thread(&mut self) -> ThreadId {
        let id = self.entities.len() as ThreadId;
        self.entities.push(SchedEntity { cpu: id % self.cpus.len() as u32, ..SchedEntity::default() });
        id
    }

    /// Makes a sleeping thread runnable.
    pub(super) fn wake(&mut self, thread: ThreadId, now: Time, events: &mut EventQueue<Event>) {
        self.accounting.wakes += u64::from(now >= self.measured_from);
        let last = self.entities[thread as usize].cpu;
        match self.idle_from(last) {
            Some(index) => {
                self.idle &= !(1 << index);
                self.entities[thread as usize].cpu = index;
                let cpu = &mut self.cpus[index as usize];
                let delay = self.costs.wake.at(now.since(cpu.since), self.rng.unit());
                cpu.phase = Phase::Waking(thread);
                self.schedule(index, now + delay, events);
            }
            None => {
                let cpu = &mut self.cpus[last as usize];
                cpu.queue.push_back(thread);
                self.queued += 1;
                if let Phase::Runs(running) = cpu.phase {
                    // A thread that ran alone has no event for the end of its slice, even if the
                    // slice is over.
                    cpu.switch_at = cpu.switch_at.min((cpu.since + self.costs.preempt).max(now));
                    self.rearm(last, running, now, events);
                }
            }
        }
    }

    /// The idle CPU nearest to `last`, upwards and around.
    fn idle_from(&self, last: u32) -> Option<u32> {
        let above = self.idle & (u128::MAX << last);
        let candidates = if above != 0 { above } else { self.idle };
        (candidates != 0).then(|| candidates.trailing_zeros())
    }

    fn schedule(&mut self, index: u32, at: Time, events: &mut EventQueue<Event>) {
        let cpu = &mut self.cpus[index as usize];
        cpu.generation = cpu.generation.wrapping_add(1);
        events.schedule(at, Event::Cpu(index, cpu.generation));
    }

    /// Schedules the end of the computation of `thread`, or of its slice if that ends first.
    fn rearm(&mut self, index: u32, thread: ThreadId, now: Time, events: &mut EventQueue<Event>) {
        let entity = self.entities[thread as usize];
        let cpu = &self.cpus[index as usize];
        let left = entity.remaining.saturating_sub(now.since(cpu.accounted));
        let end = if entity.spins { Time::NEVER } else { now + left };
        let at = if cpu.queue.is_empty() { end } else { end.min(cpu.switch_at.max(now)) };
        if at == Time::NEVER {
            // A spinning thread without a competitor needs no event; older events become outdated.
            let cpu = &mut self.cpus[index as usize];
            cpu.generation = cpu.generation.wrapping_add(1);
        } else {
            self.schedule(index, at, events);
        }
    }

    /// Accounts for the running thread's time up to `now`.
    fn account(&mut self, index: u32, thread: ThreadId, now: Time) {
        let cpu = &mut self.cpus[index as usize];
        let entity = &mut self.entities[thread as usize];
        let span = now.since(cpu.accounted);
        let measured = now.since(cpu.accounted.max(self.measured_from));
        cpu.accounted = now;
        self.accounting.busy += u128::from(span.0);
        self.accounting.measured += u128::from(measured.0);
        if entity.spins {
            self.accounting.spun += u128::from(span.0);
            self.accounting.spun_measured += u128::from(measured.0);
        } else {
            entity.remaining = entity.remaining.saturating_sub(span);
        }
    }

    /// Handles the event of a CPU.
    pub(super) fn on_event(
        &mut self,
        index: u32,
        generation: u32,
        now: Time,
        events: &mut EventQueue<Event>,
    ) -> CpuEvent {
        let cpu = &self.cpus[index as usize];
        if cpu.generation != generation {
            return CpuEvent::Nothing;
        }
        match cpu.phase {
            Phase::Idle => CpuEvent::Nothing,
            Phase::Waking(thread) => {
                self.start(index, thread, Nanos::ZERO, now);
                self.resume(index, thread, now, events)
            }
            Phase::Runs(thread) => {
                self.account(index, thread, now);
                let entity = self.entities[thread as usize];
                if !entity.spins && entity.remaining == Nanos::ZERO {
                    return CpuEvent::Done(thread);
                }
                let cpu = &self.cpus[index as usize];
                if cpu.queue.is_empty() || now < cpu.switch_at {
                    self.rearm(index, thread, now, events);
                    return CpuEvent::Nothing;
                }
                self.leave(index, now);
                let spun = std::mem::take(&mut self.entities[thread as usize].spins);
                self.cpus[index as usize].queue.push_back(thread);
                self.queued += 1;
                self.next(index, now, events);
                if spun { CpuEvent::SpinEnded(thread) } else { CpuEvent::Nothing }
            }
        }
    }

    fn resume(&mut self, index: u32, thread: ThreadId, now: Time, events: &mut EventQueue<Event>) -> CpuEvent {
        if self.entities[thread as usize].remaining == Nanos::ZERO {
            return CpuEvent::Done(thread);
        }
        self.rearm(index, thread, now, events);
        CpuEvent::Nothing
    }

    /// Starts `thread` on a CPU after a switch that costs `switch`.
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
        // The time on the CPU begins after the switch. A slice shorter than a switch is then slow,
        // but makes progress.
        cpu.since = now + switch + cold;
        cpu.switch_at = cpu.since + self.costs.slice;
        let entity = &mut self.entities[thread as usize];
        entity.cpu = index;
        entity.remaining += switch + cold;
        self.accounting.charged += u128::from((switch + cold).0);
    }

    /// Records the time of the running thread, which leaves its CPU.
    fn leave(&mut self, index: u32, now: Time) {
        let cpu = &mut self.cpus[index as usize];
        if let Phase::Runs(thread) = cpu.phase {
            cpu.last = (thread, now.since(cpu.since));
        }
    }

    /// Starts the next thread on a CPU, from its own or another queue; the CPU idles if there is
    /// none.
    fn next(&mut self, index: u32, now: Time, events: &mut EventQueue<Event>) {
        let own = self.cpus[index as usize].queue.pop_front();
        let next = own.or_else(|| if self.queued == 0 { None } else { self.pull() });
        match next {
            Some(thread) => {
                self.queued -= 1;
                self.accounting.switches += u64::from(now >= self.measured_from);
                self.start(index, thread, self.costs.switch, now);
                self.rearm(index, thread, now, events);
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

    /// Takes the oldest thread of the longest queue.
    fn pull(&mut self) -> Option<ThreadId> {
        let longest = self.cpus.iter_mut().rev().max_by_key(|cpu| cpu.queue.len())?;
        longest.queue.pop_front()
    }

    /// Lets the running `thread` compute for `span`.
    pub(super) fn compute(&mut self, thread: ThreadId, span: Nanos, now: Time, events: &mut EventQueue<Event>) {
        self.accounting.charged += u128::from(span.0);
        let entity = &mut self.entities[thread as usize];
        entity.remaining = span;
        let index = entity.cpu;
        self.rearm(index, thread, now, events);
    }

    /// Lets the running `thread` spin.
    pub(super) fn spin(&mut self, thread: ThreadId, now: Time, events: &mut EventQueue<Event>) {
        let entity = &mut self.entities[thread as usize];
        entity.spins = true;
        let index = entity.cpu;
        self.rearm(index, thread, now, events);
    }

    /// Ends the spinning of `thread`, which has found work and needs its next step.
    pub(super) fn stop_spinning(&mut self, thread: ThreadId, now: Time) {
        let index = self.entities[thread as usize].cpu;
        self.account(index, thread, now);
        let entity = &mut self.entities[thread as usize];
        (entity.spins, entity.remaining) = (false, Nanos::ZERO);
    }

    /// Lets the running `thread` sleep until it is woken.
    pub(super) fn sleep(&mut self, thread: ThreadId, now: Time, events: &mut EventQueue<Event>) {
        let index = self.entities[thread as usize].cpu;
        self.leave(index, now);
        self.next(index, now, events);
    }

    /// Whether a CPU is idle while a thread waits for one.
    pub(super) fn idles_beside_work(&self) -> bool {
        self.idle != 0 && self.queued > 0
    }

    /// Accounts for threads that still run at the end.
    pub(super) fn close(&mut self, now: Time) {
        for index in 0..self.cpus.len() as u32 {
            if let Phase::Runs(thread) = self.cpus[index as usize].phase {
                self.account(index, thread, now);
            }
        }
    }

    /// Whether the CPUs' time equals the sum of the threads' time, to the nanosecond; valid after
    /// [`close`](Self::close).
    pub(super) fn is_balanced(&self) -> bool {
        let left: u128 = self.entities.iter().map(|entity| u128::from(entity.remaining.0)).sum();
        self.accounting.busy + left == self.accounting.charged + self.accounting.spun
    }
}
