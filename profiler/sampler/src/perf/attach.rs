//! Opens the events of a process: of each thread on each CPU.
//!
//! Does not contain the meaning of records.

use std::collections::{HashMap, HashSet};
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::attr::{EventAttr, Inheritance, StackCapture};
use super::budget::Effort;
use super::parse::{Header, Layout, Parsed, parse};
use super::rights::{refusal, ring_refusal};
use super::ring::RingSet;
use super::switches::{SwitchFilter, SwitchSettings};
use super::sys::{Event, SharedRing};
use crate::probe::bpf::ProgramError;
use crate::process::Process;
use crate::record::SourceError;

/// Most memory of all rings, and the limits of one.
const ALL_RINGS: usize = 128 << 20;
const LARGEST_RING: usize = 4 << 20;
const SMALLEST_RING: usize = 128 << 10;

/// Memory of a ring that each user gets without special rights (`kernel.perf_event_mlock_kb`).
const UNPRIVILEGED_RING: usize = 256 << 10;

/// How often threads are listed until no new one is found.
const MAX_PASSES: usize = 16;

/// What an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// Changes of threads and mappings: also while nothing else is recorded.
    Changes,
    /// Samples of the CPU clock; with events of threads, switches come with it.
    Clock,
    /// Stacks at switches away from the CPU.
    SwitchStack,
    /// Stacks at switches that a program in the kernel has chosen.
    ChosenStack,
    /// Waits, at their end.
    Wait,
}

impl EventKind {
    /// Fields of its samples.
    pub(super) fn layout(self, capture: StackCapture) -> Layout {
        Layout {
            stack: (!matches!(self, EventKind::Wait | EventKind::Changes)).then_some(capture),
            has_message: matches!(self, EventKind::ChosenStack | EventKind::Wait),
        }
    }
}

/// What to open.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventPlan {
    pub(super) capture: StackCapture,
    /// Nanoseconds of CPU time between samples.
    pub(super) clock_period: u64,
    /// Switches from one with a stack to the next.
    pub(super) switch_period: u64,
    pub(super) inheritance: Inheritance,
}

/// Open events, and the rings with their records.
#[derive(Debug)]
pub(super) struct OpenEvents {
    pub(super) rings: RingSet<SharedRing>,
    /// Numbers by which records name events.
    pub(super) kinds: HashMap<u64, EventKind>,
    pub(super) sees_kernel: bool,
    pub(super) events: Vec<(EventKind, Event)>,
    /// Programs in the kernel that choose among the events of whole CPUs.
    pub(super) filter: Option<SwitchFilter>,
}

impl OpenEvents {
    /// Opens and enables the events of each thread of a process.
    pub(super) fn of_threads(process: &Process, plan: EventPlan) -> Result<OpenEvents, SourceError> {
        raise_file_limit();
        let cpus = online_cpus();
        let mut opener = Opener {
            pid: process.pid(),
            plan,
            sees_kernel: true,
            events: Vec::new(),
            kinds: HashMap::new(),
            first_of: HashMap::new(),
            cpu_of: Vec::new(),
        };
        let mut known = HashSet::new();
        let mut rings = Vec::new();
        // Threads that begin between the list and their parent's event have no event yet.
        for thread in process.threads()? {
            if opener.open_thread(thread.id, &cpus)? {
                known.insert(thread.id);
            }
        }
        for cpu in &cpus {
            if let Some(first) = opener.first_of.get(cpu) {
                rings.push(map_ring(&opener.events[*first].1, cpus.len())?);
            }
        }
        if known.is_empty() || rings.is_empty() {
            return Err(SourceError::NoProcess(process.pid()));
        }
        let mut rings = RingSet::new(rings);
        opener.redirect_and_enable(0)?;
        let kinds = opener.kinds.clone();
        for _ in 0..MAX_PASSES {
            rings.read(u64::MAX, |header, record| note_inherited(header, record, &kinds, plan, &mut known));
            let late: Vec<u32> =
                process.threads()?.iter().map(|thread| thread.id).filter(|id| !known.contains(id)).collect();
            if late.is_empty() {
                break;
            }
            let first = opener.events.len();
            for thread in late {
                opener.open_thread(thread, &cpus)?;
                known.insert(thread);
            }
            opener.redirect_and_enable(first)?;
        }
        Ok(OpenEvents {
            rings,
            kinds: opener.kinds,
            sees_kernel: opener.sees_kernel,
            events: opener.events,
            filter: None,
        })
    }

    /// Changes what is recorded.
    pub(super) fn set_effort(&mut self, before: Effort, effort: Effort) {
        if effort.rate != before.rate {
            self.set_period(EventKind::Clock, effort.clock_period());
        }
        if let Some(filter) = &mut self.filter {
            // The map is there, so that setting its value can't fail.
            let _ = filter.set(SwitchSettings { period: effort.switch_period, shortest: effort.shortest_wait });
        } else if effort.switch_period != before.switch_period {
            self.set_period(EventKind::SwitchStack, effort.switch_period);
        }
    }

    /// Begins or stops to record anything but changes. What began before it is on again is left
    /// out.
    pub(super) fn set_recording(&mut self, is_on: bool) -> Result<(), ProgramError> {
        for (_, event) in
            self.events.iter().filter(|(kind, _)| matches!(kind, EventKind::Clock | EventKind::SwitchStack))
        {
            // An event whose thread has ended can't be changed, and need not be.
            let _ = if is_on { event.enable() } else { event.disable() };
        }
        self.filter.as_mut().map_or(Ok(()), |filter| filter.set_recording(is_on))
    }

    /// Changes the period of one kind of events.
    fn set_period(&self, kind: EventKind, period: u64) {
        for (_, event) in self.events.iter().filter(|(found, _)| *found == kind) {
            // An event whose thread has ended can't be changed, and need not be.
            let _ = event.set_period(period);
        }
    }
}

/// Threads whose begin is in a ring have inherited the events of their parent.
fn note_inherited(
    header: Header,
    record: &[u8],
    kinds: &HashMap<u64, EventKind>,
    plan: EventPlan,
    known: &mut HashSet<u32>,
) {
    let layout = |event| kinds.get(&event).map(|kind| kind.layout(plan.capture));
    if let Some(Parsed::Forked { thread, .. }) = parse(header, record, layout) {
        known.insert(thread);
    }
}

struct Opener {
    pid: u32,
    plan: EventPlan,
    sees_kernel: bool,
    events: Vec<(EventKind, Event)>,
    kinds: HashMap<u64, EventKind>,
    /// Index of the event whose ring the others of a CPU use.
    first_of: HashMap<u32, usize>,
    /// CPU of each event.
    cpu_of: Vec<u32>,
}

impl Opener {
    /// Opens a thread's events; false if the thread has ended.
    fn open_thread(&mut self, thread: u32, cpus: &[u32]) -> Result<bool, SourceError> {
        let EventPlan { capture, clock_period, switch_period, inheritance } = self.plan;
        let mut found = false;
        for cpu in cpus {
            let changes = EventAttr::changes().inherited(inheritance);
            found |= self.open_event(EventKind::Changes, changes, thread, *cpu)?;
            let clock = EventAttr::cpu_clock(clock_period, capture).with_switches();
            let clock = self.open_event(EventKind::Clock, clock.inherited(inheritance), thread, *cpu)?;
            if clock && self.sees_kernel {
                let switches = EventAttr::context_switches(switch_period.max(1), capture).inherited(inheritance);
                self.open_event(EventKind::SwitchStack, switches, thread, *cpu)?;
            }
        }
        Ok(found)
    }

    fn open_event(&mut self, kind: EventKind, attr: EventAttr, thread: u32, cpu: u32) -> Result<bool, SourceError> {
        let open = |attr: &EventAttr| Event::open(attr, Some(thread), cpu);
        let opened = match (self.sees_kernel, open(&attr)) {
            (false, _) => open(&attr.without_kernel()),
            (true, Err(error)) if error.raw_os_error() == Some(libc::EACCES) && kind == EventKind::Changes => {
                let without = open(&attr.without_kernel());
                self.sees_kernel &= without.is_err();
                without
            }
            (true, opened) => opened,
        };
        let event = match opened {
            Ok(event) => event,
            // The thread has ended, or the CPU was taken offline.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => return Ok(false),
            Err(error) => return Err(refusal(self.pid, error)),
        };
        let id = event.id().map_err(|error| refusal(self.pid, error))?;
        self.kinds.insert(id, kind);
        self.first_of.entry(cpu).or_insert(self.events.len());
        self.cpu_of.push(cpu);
        self.events.push((kind, event));
        Ok(true)
    }

    /// Sends the records of events to the ring of their CPU, and enables them.
    fn redirect_and_enable(&mut self, from: usize) -> Result<(), SourceError> {
        let failed = |error: io::Error| SourceError::Io { what: "enabling a perf event".into(), source: error };
        for index in from..self.events.len() {
            let first = self.first_of[&self.cpu_of[index]];
            if first != index {
                self.events[index].1.send_to(&self.events[first].1).map_err(failed)?;
            }
        }
        for index in from..self.events.len() {
            self.events[index].1.enable().map_err(failed)?;
        }
        Ok(())
    }
}

/// Maps a ring: large where the user may, otherwise as large as everybody may.
pub(super) fn map_ring(event: &Event, cpus: usize) -> Result<SharedRing, SourceError> {
    let share = (ALL_RINGS / cpus.max(1)).clamp(SMALLEST_RING, LARGEST_RING);
    let size = if share.is_power_of_two() { share } else { share.next_power_of_two() / 2 };
    SharedRing::map(event, size)
        .or_else(|_| SharedRing::map(event, UNPRIVILEGED_RING))
        .or_else(|_| SharedRing::map(event, SMALLEST_RING))
        .map_err(ring_refusal)
}

/// Numbers of the CPUs that run.
pub(super) fn online_cpus() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_cpus(&text);
    if !cpus.is_empty() {
        return cpus;
    }
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..count as u32).collect()
}

/// Reads a list such as `0-3,8`.
fn parse_cpus(text: &str) -> Vec<u32> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        Some(first..=last.min(first.saturating_add(1 << 13)))
    });
    ranges.flatten().take(1 << 13).collect()
}

/// Each thread needs three events per CPU, each of which is a file.
pub(super) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // A refusal shows when a file can't be opened.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_cpus("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(parse_cpus("0"), [0]);
        assert_eq!(parse_cpus("3-1,x,,-"), [0u32; 0]);
        assert!(parse_cpus("0-4294967295").len() <= 1 << 13);
    }
}
