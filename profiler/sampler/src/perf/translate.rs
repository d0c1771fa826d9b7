//! Gives the kernel's records their meaning.
//!
//! Does not contain rings, and opens no events.

use std::collections::HashMap;
use std::sync::Arc;

use super::attach::EventKind;
use super::common_stacks::CommonStacks;
use super::parse::{Origin, Parsed, TakenStack, chain_addresses};
use super::switches::{ChosenSwitch, KNOWN_PLACES, Wait};
use crate::process::Process;
use crate::record::{LeaveReason, Mapping, Record, RecordKind, SourceError, Stack};
use crate::unwind::{ModuleFiles, ProcessModules, Registers, UnwindCache};

/// Most threads and processes that are remembered.
const MAX_THREADS: usize = 1 << 17;
const MAX_PROCESSES: usize = 1 << 12;

/// Most threads whose places of waiting are remembered.
const MAX_WAITING: usize = 1 << 14;

/// Longest name that is kept.
const MAX_NAME: usize = 4096;

/// Counts of what was translated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TranslatedCounts {
    pub(super) samples: u64,
    pub(super) switches: u64,
    pub(super) stacks_at_switches: u64,
    pub(super) truncated: u64,
    pub(super) lost: u64,
    pub(super) throttled: u64,
}

/// State between records.
#[derive(Debug)]
pub(super) struct Translator {
    root: u32,
    children: bool,
    unwinds: bool,
    names: HashMap<u32, Box<str>>,
    /// Stacks at a switch whose record comes next.
    pending: HashMap<u32, Stack>,
    /// Stacks of each thread's last places.
    taken: HashMap<u32, Places>,
    /// Stacks of waits that other threads may have.
    common: CommonStacks,
    modules: HashMap<u32, ProcessModules>,
    files: ModuleFiles,
    cache: UnwindCache,
    stack: Vec<u64>,
    empty: Stack,
    pub(super) counts: TranslatedCounts,
}

/// Stacks of a thread at its last places, which the program in the kernel knows, too.
#[derive(Debug, Default)]
struct Places {
    stacks: Vec<(u64, Stack)>,
    next: usize,
}

impl Places {
    fn put(&mut self, key: u64, stack: Stack) {
        if let Some(known) = self.stacks.iter_mut().find(|(known, _)| *known == key) {
            known.1 = stack;
        } else if self.stacks.len() < KNOWN_PLACES {
            self.stacks.push((key, stack));
        } else {
            self.stacks[self.next] = (key, stack);
            self.next = (self.next + 1) % KNOWN_PLACES;
        }
    }

    fn stack(&self, key: u64) -> Option<&Stack> {
        self.stacks.iter().find(|(known, _)| *known == key).map(|(_, stack)| stack)
    }
}

impl Translator {
    pub(super) fn new(root: u32, children: bool, files: ModuleFiles) -> Translator {
        Translator {
            root,
            children,
            unwinds: false,
            names: HashMap::new(),
            pending: HashMap::new(),
            taken: HashMap::new(),
            common: CommonStacks::default(),
            modules: HashMap::new(),
            files,
            cache: UnwindCache::default(),
            stack: Vec::new(),
            empty: Arc::from([]),
            counts: TranslatedCounts::default(),
        }
    }

    /// Threads and mappings that the process had before its events were opened, as records.
    pub(super) fn begin(&mut self, process: &Process, unwinds: bool, time: u64) -> Result<Vec<Record>, SourceError> {
        self.unwinds = unwinds;
        let pid = process.pid();
        let of = |thread, kind| Record { time, process: pid, thread, kind };
        let mut records = Vec::new();
        let mut modules = ProcessModules::default();
        for mapped in process.mappings()? {
            if unwinds {
                modules.add(&mut self.files, pid, &mapped);
            }
            records.push(of(pid, RecordKind::Mapped(Box::new(mapped))));
        }
        self.modules.insert(pid, modules);
        for thread in process.threads()? {
            let name: Box<str> = thread.name.into();
            self.names.insert(thread.id, name.clone());
            records.push(of(thread.id, RecordKind::Named { name }));
        }
        Ok(records)
    }

    /// Translates a record. `kind` says what an event is for.
    pub(super) fn translate(
        &mut self,
        parsed: Parsed<'_>,
        kind: impl Fn(u64) -> Option<EventKind>,
        report: &mut dyn FnMut(Record),
    ) {
        match parsed {
            Parsed::Sample { origin, stack, message } => {
                let Some(kind) = kind(origin.event) else { return };
                if kind == EventKind::Wait {
                    self.wait(origin, message, report);
                } else if self.is_recorded(origin.process) {
                    let stack = self.addresses(origin.process, stack);
                    self.sample(origin, kind, stack, message, report);
                }
            }
            Parsed::Switch { origin, is_out, preempted } if self.is_recorded(origin.process) => {
                let kind = if is_out {
                    self.counts.switches += 1;
                    let reason = if preempted { LeaveReason::Preempted } else { LeaveReason::Waits };
                    RecordKind::SwitchedOut { reason, stack: self.pending.remove(&origin.thread) }
                } else {
                    RecordKind::SwitchedIn { cpu: origin.cpu }
                };
                report(record(origin, kind));
            }
            Parsed::Mapped { origin, process, start, length, offset, inode, path } if self.is_recorded(process) => {
                let path = String::from_utf8_lossy(&path[..path.len().min(MAX_NAME)]).into();
                let mapped = Mapping { start, length, offset, path, inode };
                if self.unwinds {
                    let modules = self.modules.entry(process).or_default();
                    modules.add(&mut self.files, process, &mapped);
                }
                report(record(Origin { process, ..origin }, RecordKind::Mapped(Box::new(mapped))));
            }
            Parsed::Named { origin, process, thread, by_exec, name } if self.is_recorded(process) => {
                let origin = Origin { process, thread, ..origin };
                if by_exec {
                    self.modules.insert(process, ProcessModules::default());
                    self.taken.remove(&thread);
                    self.common.forget(process);
                    report(record(origin, RecordKind::Executed));
                }
                let name: Box<str> = String::from_utf8_lossy(name).into();
                self.remember(thread, name.clone());
                report(record(origin, RecordKind::Named { name }));
            }
            Parsed::Forked { origin, process, thread, parent, parent_thread } => {
                self.fork(origin, (process, thread), (parent, parent_thread), report);
            }
            Parsed::Ended { origin, process, thread } if self.is_recorded(process) => {
                self.names.remove(&thread);
                self.pending.remove(&thread);
                self.taken.remove(&thread);
                if thread == process && process != self.root {
                    self.modules.remove(&process);
                    self.common.forget(process);
                }
                report(record(Origin { process, thread, ..origin }, RecordKind::Ended));
            }
            Parsed::Lost { origin, count } => {
                self.counts.lost += count;
                report(record(origin, RecordKind::Lost { count }));
            }
            Parsed::Throttled { .. } => self.counts.throttled += 1,
            _ => {}
        }
    }

    fn sample(
        &mut self,
        origin: Origin,
        kind: EventKind,
        stack: Stack,
        message: &[u8],
        report: &mut dyn FnMut(Record),
    ) {
        // A thread that has ended switches once more.
        if stack.is_empty() && kind != EventKind::Clock {
            return;
        }
        if kind == EventKind::Clock {
            self.counts.samples += 1;
            report(record(origin, RecordKind::Sample { stack }));
            return;
        }
        self.counts.stacks_at_switches += 1;
        if kind == EventKind::SwitchStack {
            if self.pending.len() < MAX_THREADS {
                self.pending.insert(origin.thread, stack);
            }
        } else if let Some(switch) = ChosenSwitch::parse(message) {
            self.counts.switches += 1;
            if self.taken.len() < MAX_WAITING || self.taken.contains_key(&origin.thread) {
                self.taken.entry(origin.thread).or_default().put(switch.key, stack.clone());
            }
            if switch.reason == LeaveReason::Waits {
                self.common.add(origin.process, switch.key, &stack);
            }
            report(record(origin, RecordKind::SwitchedOut { reason: switch.reason, stack: Some(stack) }));
        }
    }

    /// The end of a wait, whose begin was reported only if it had a stack.
    fn wait(&mut self, origin: Origin, message: &[u8], report: &mut dyn FnMut(Record)) {
        let Some(wait) = Wait::parse(message).filter(|wait| self.is_recorded(wait.process)) else { return };
        let origin = Origin { process: wait.process, thread: wait.thread, ..origin };
        if !wait.has_stack {
            self.counts.switches += 1;
            let own = self.taken.get(&wait.thread).and_then(|places| places.stack(wait.key));
            // Without a stack, the function that waits is better than nothing. Who lost the CPU, or
            // waits for memory, is still in the calls that were seen last.
            let waits = wait.reason == LeaveReason::Waits;
            let common = || self.common.get(wait.process, wait.key, wait.instruction).filter(|_| waits);
            let stack = own.or_else(common).cloned().or_else(|| waits.then(|| Arc::from([wait.instruction])));
            let begin = Origin { time: wait.begin.min(origin.time), ..origin };
            report(record(begin, RecordKind::SwitchedOut { reason: wait.reason, stack }));
        }
        if wait.waker != 0 {
            report(record(origin, RecordKind::Woken { waker: wait.waker }));
        }
        report(record(origin, RecordKind::SwitchedIn { cpu: origin.cpu }));
    }

    fn fork(&mut self, origin: Origin, child: (u32, u32), parent: (u32, u32), report: &mut dyn FnMut(Record)) {
        let ((process, thread), (parent, parent_thread)) = (child, parent);
        if !self.is_recorded(parent) {
            return;
        }
        if process != parent {
            let origin = Origin { process: parent, thread: parent_thread, ..origin };
            report(record(origin, RecordKind::Forked { child: process }));
            if !self.children || self.modules.len() >= MAX_PROCESSES {
                return;
            }
            let modules = self.modules.get(&parent).cloned().unwrap_or_default();
            self.modules.insert(process, modules);
        }
        // A thread has its parent's name until it takes another.
        if let Some(name) = self.names.get(&parent_thread).cloned() {
            self.remember(thread, name.clone());
            report(record(Origin { process, thread, ..origin }, RecordKind::Named { name }));
        }
    }

    /// Returns the process that a record says is forked, if it is to be recorded.
    pub(super) fn recorded_child(&self, parsed: &Parsed<'_>) -> Option<u32> {
        match parsed {
            Parsed::Forked { process, parent, .. } if self.children && process != parent => {
                self.is_recorded(*parent).then_some(*process)
            }
            _ => None,
        }
    }

    fn is_recorded(&self, process: u32) -> bool {
        process == self.root || (self.children && self.modules.contains_key(&process))
    }

    fn remember(&mut self, thread: u32, name: Box<str>) {
        if self.names.len() < MAX_THREADS {
            self.names.insert(thread, name);
        }
    }

    fn addresses(&mut self, process: u32, taken: TakenStack<'_>) -> Stack {
        match taken {
            TakenStack::Nothing => return self.empty.clone(),
            TakenStack::Chain(chain) => {
                self.stack.clear();
                self.stack.extend(chain_addresses(chain));
            }
            TakenStack::Copy { registers, memory } => {
                let Some(modules) = self.modules.get(&process) else { return self.empty.clone() };
                let complete = modules.unwind(&mut self.cache, in_order(registers), memory, &mut self.stack);
                self.counts.truncated += u64::from(!complete);
            }
        }
        Arc::from(&self.stack[..])
    }
}

fn record(origin: Origin, kind: RecordKind) -> Record {
    Record { time: origin.time, process: origin.process, thread: origin.thread, kind }
}

/// Registers in the order of the kernel's numbers: frame pointer, stack pointer, instruction.
#[cfg(target_arch = "x86_64")]
fn in_order([frame, stack, instruction]: [u64; 3]) -> Registers {
    Registers { instruction, stack, frame, link: 0 }
}

#[cfg(target_arch = "aarch64")]
fn in_order([frame, link, stack, instruction]: [u64; 4]) -> Registers {
    Registers { instruction, stack, frame, link }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(address: u64) -> Stack {
        Arc::from([address])
    }

    #[test]
    fn the_last_places_of_a_thread_have_their_stacks() {
        let mut places = Places::default();
        for key in 0..KNOWN_PLACES as u64 + 2 {
            places.put(key, stack(key));
        }
        assert_eq!((places.stack(0), places.stack(1)), (None, None), "the oldest ones are forgotten");
        assert_eq!(places.stack(2), Some(&stack(2)));
        places.put(5, stack(50));
        assert_eq!(places.stack(5), Some(&stack(50)), "the stack of a known place is renewed");
        places.put(100, stack(100));
        assert_eq!(places.stack(2), None);
        assert_eq!(places.stacks.len(), KNOWN_PLACES);
    }

    #[test]
    fn a_wait_without_a_stack_has_that_of_its_place_or_its_function() {
        let mut translator = Translator::new(7, false, ModuleFiles::default());
        translator.taken.entry(8).or_default().put(1, stack(0x10));
        let origin = Origin { time: 9, process: 7, thread: 8, ..Origin::default() };
        let mut stacks = |key: u64, marks: u64| {
            let message: Vec<u8> =
                [7 << 32 | 8, 5, key, marks, 0x99, 0].iter().flat_map(|n: &u64| n.to_ne_bytes()).collect();
            let mut found = Vec::new();
            translator.wait(origin, &message, &mut |record| {
                if let RecordKind::SwitchedOut { stack, .. } = record.kind {
                    found.push(stack);
                }
            });
            found
        };
        assert_eq!(stacks(1, 0), [Some(stack(0x10))]);
        assert_eq!(stacks(2, 0), [Some(stack(0x99))]);
        // Who lost the CPU is where it was seen last.
        assert_eq!(stacks(2, 1), [None]);
        // The begin of a wait with a stack was reported.
        assert_eq!(stacks(2, 2), []);
    }

    /// Returns the stack of a thread's wait, after that of thread 7 was taken at a place.
    fn stack_after(marks: u64, (thread, pointer): (u64, u64), between: Option<Parsed<'_>>) -> Option<Stack> {
        let key = |pointer: u64| (pointer << 17).wrapping_add(0x99);
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let mut translator = Translator::new(7, false, ModuleFiles::default());
        let origin = Origin { time: 9, process: 7, thread: 7, ..Origin::default() };
        let taken = bytes(&[key(0x7f00_1234_5670), marks]);
        translator.sample(origin, EventKind::ChosenStack, Stack::from([0x99, 0x20]), &taken, &mut |_| {});
        if let Some(between) = between {
            translator.translate(between, |_| None, &mut |_| {});
        }
        let mut found = None;
        translator.wait(origin, &bytes(&[7 << 32 | thread, 5, key(pointer), 0, 0x99, 0]), &mut |record| {
            if let RecordKind::SwitchedOut { stack, .. } = record.kind {
                found = stack;
            }
        });
        found
    }

    #[test]
    fn a_wait_without_a_stack_has_that_of_another_thread_at_its_place() {
        let (there, alone) = (Some(Stack::from([0x99, 0x20])), Some(stack(0x99)));
        assert_eq!(stack_after(0, (8, 0x7f00_abcd_e670), None), there);
        assert_eq!(stack_after(0, (8, 0x7f00_abcd_e680), None), alone, "of another depth");
        assert_eq!(stack_after(1, (8, 0x7f00_abcd_e670), None), alone, "the other one lost the CPU there");
    }

    #[test]
    fn stacks_of_places_end_with_the_program() {
        for waits in [(8, 0x7f00_abcd_e670), (7, 0x7f00_1234_5670)] {
            let origin = Origin::default();
            let executed = Parsed::Named { origin, process: 7, thread: 7, by_exec: true, name: b"a" };
            assert_eq!(stack_after(0, waits, Some(executed)), Some(stack(0x99)));
        }
    }

    #[test]
    fn a_wait_names_the_thread_that_ended_it() {
        let mut translator = Translator::new(7, false, ModuleFiles::default());
        let origin = Origin { time: 9, process: 7, thread: 8, ..Origin::default() };
        let mut wakers = |waker: u64| {
            let message: Vec<u8> =
                [7 << 32 | 8, 5, 1, 2, 0x99, waker].iter().flat_map(|n: &u64| n.to_ne_bytes()).collect();
            let mut found = Vec::new();
            translator.wait(origin, &message, &mut |record| found.push(record.kind));
            found
        };
        let back = RecordKind::SwitchedIn { cpu: 0 };
        assert_eq!(wakers(7 << 32 | 12), [RecordKind::Woken { waker: 12 }, back.clone()]);
        assert_eq!(wakers(0), [back], "by an interrupt, or another program");
    }
}
