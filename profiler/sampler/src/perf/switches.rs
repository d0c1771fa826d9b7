//! A program in the kernel that chooses which switches are reported, and which with a stack.
//!
//! A thread that waits at the same few places again and again, such as an event loop, has the same
//! stack at each: the program takes it at one of so many waits. A place is the instruction and the
//! stack pointer in user space. At a place that is not among the last ones of the thread, the stack
//! is taken much sooner. Waits without a stack are reported at their end, if they were long. A
//! second program notes which thread of a recorded process ends a wait.
//!
//! Contains no perf events.

use crate::clock::now;
use crate::probe::bpf::{
    Assembler, Condition, Helper, KernelTypes, Map, MapKind, Operation, Probe, Program, ProgramError, ProgramKind,
    Register::*, RunningProgram, TRACEPOINT, Width,
};
use crate::probe::targets::Targets;
use crate::record::LeaveReason;

/// State of a thread: begin of its wait, 0 while it runs; cost since the last stack; marks of the
/// wait; its place, and instruction; process and thread, as we number them; where in `PLACES` the
/// next place is put; process and thread that ended the wait, or 0; places of the last stacks that
/// were taken.
const BEGIN: i16 = 0;
const SINCE: i16 = 8;
const MARKS: i16 = 16;
const PLACE: i16 = 24;
const INSTRUCTION: i16 = 32;
const IDS: i16 = 40;
const NEXT: i16 = 48;
const WAKER: i16 = 56;
const PLACES: i16 = 64;
const STATE_BYTES: u32 = PLACES as u32 + 8 * KNOWN_PLACES as u32;

/// A place is the instruction plus the stack pointer, shifted by so many bits.
pub(super) const STACK_SHIFT: u32 = 17;

/// Places of a thread whose stacks are known.
pub(super) const KNOWN_PLACES: usize = 8;

/// Marks of a wait: the thread could have gone on; its stack was taken; it is in no system call; a
/// signal or a debugger has stopped it.
const PREEMPTED: i32 = 1;
const STACKED: i32 = 2;
const FAULTED: i32 = 4;
const STOPPED: i32 = 8;

/// States of a thread that is stopped: `__TASK_STOPPED` and `__TASK_TRACED`.
const STOPPED_STATES: i32 = 0xC;

/// Settings: cost from which on a stack is taken; cost of a wait at another place; nanoseconds of
/// the shortest wait that is reported without a stack; when recording was last switched on.
const PERIOD: i16 = 0;
const OTHER_PLACE: i16 = 8;
const SHORTEST: i16 = 16;
const WINDOW: i16 = 24;
const SETTING_BYTES: u32 = 32;

/// Places on the program's stack, below those of the targets.
const CHOSEN: i16 = -40;
const WAIT: i16 = -88;
const CHOSEN_BYTES: usize = 16;
const WAIT_BYTES: usize = 48;

/// The event of the CPU that the program runs on.
const THIS_CPU: u64 = 0xffff_ffff;

/// What user space sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SwitchSettings {
    /// Of so many waits at the same place one has its stack taken.
    pub(super) period: u64,
    /// Nanoseconds of the shortest wait that is reported without a stack.
    pub(super) shortest: u64,
}

impl SwitchSettings {
    fn bytes(self, window: u64) -> [u8; SETTING_BYTES as usize] {
        let mut bytes = [0; SETTING_BYTES as usize];
        // Very long periods bound the stacks of threads that change their place each time, too.
        let other = self.period.clamp(1, 64);
        for (part, value) in bytes.chunks_exact_mut(8).zip([self.period, other, self.shortest, window]) {
            part.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }
}

/// The programs.
#[derive(Debug)]
pub(super) struct SwitchFilter {
    targets: Targets,
    maps: Maps,
    samples: Program,
    switches: Program,
    wakes: Program,
    /// While recording is on.
    probes: Vec<Probe>,
    current: SwitchSettings,
    /// When recording was last switched on.
    window: u64,
}

/// What the programs share with us.
#[derive(Debug)]
struct Maps {
    settings: Map,
    stacks: Map,
    waits: Map,
    threads: Map,
}

impl SwitchFilter {
    /// Prepares programs for a process, and its later children if asked.
    pub(super) fn new(pid: u32, types: &KernelTypes, children: bool, cpus: u32) -> Result<SwitchFilter, ProgramError> {
        let map = |kind, name, size| Map::create(kind, name, size).map_err(load_error);
        let targets = Targets::new(&[pid], children.then_some(types))?;
        let maps = Maps {
            settings: map(MapKind::Value, "lw_switches", SETTING_BYTES)?,
            stacks: map(MapKind::Events { cpus }, "lw_stacks", 4)?,
            waits: map(MapKind::Events { cpus }, "lw_waits", 4)?,
            threads: map(MapKind::OfThread, "lw_threads", STATE_BYTES)?,
        };
        let samples = Program::load(ProgramKind::Sample, "lw_samples", sample_filter(&targets))?;
        let load = |tracepoint: &str, name, program: Option<Assembler>| {
            let program = program.ok_or_else(|| ProgramError::NoTracepoint(tracepoint.into()))?;
            Program::load(ProgramKind::Tracepoint(types, tracepoint), name, program)
        };
        let switches = load("sched_switch", "lw_switches", maps.program(types, &targets))?;
        let wakes = load("sched_waking", "lw_wakes", maps.waking_program(types, &targets))?;
        let current = SwitchSettings { period: 1, shortest: 0 };
        Ok(SwitchFilter { targets, maps, samples, switches, wakes, probes: Vec::new(), current, window: 0 })
    }

    /// Sets what is reported.
    pub(super) fn set(&mut self, settings: SwitchSettings) -> Result<(), ProgramError> {
        self.current = settings;
        self.maps.settings.set(&0u32.to_ne_bytes(), &settings.bytes(self.window)).map_err(load_error)
    }

    /// Begins or stops to report. Waits that began before are left out.
    pub(super) fn set_recording(&mut self, is_on: bool) -> Result<(), ProgramError> {
        self.probes.clear();
        if is_on {
            self.window = now();
            self.set(self.current)?;
            self.probes = vec![self.switches.at_tracepoint()?, self.wakes.at_tracepoint()?];
        }
        Ok(())
    }

    /// Says that a recorded process has forked.
    pub(super) fn forked(&self, child: u32) {
        self.targets.forked(child);
    }

    /// Returns the program that keeps samples of the process alone.
    pub(super) fn samples(&self) -> &Program {
        &self.samples
    }

    /// Returns the programs that run at switches and wake-ups.
    pub(super) fn programs(&self) -> Vec<RunningProgram<'_>> {
        [&self.switches, &self.wakes].map(|program| RunningProgram { program, around: TRACEPOINT }).into()
    }

    /// Sends a CPU's reports to these events.
    pub(super) fn send_to(&self, cpu: u32, stacks: i32, waits: i32) -> Result<(), ProgramError> {
        for (map, event) in [(&self.maps.stacks, stacks), (&self.maps.waits, waits)] {
            map.set(&cpu.to_ne_bytes(), &event.to_ne_bytes()).map_err(load_error)?;
        }
        Ok(())
    }
}

/// Program that keeps samples of the process alone.
fn sample_filter(targets: &Targets) -> Assembler {
    let mut a = Assembler::default();
    let out = a.label();
    targets.emit_filter(&mut a, out);
    a.exit_with(1);
    a.place(out);
    a.exit();
    a
}

impl Maps {
    /// The program at a switch. Arguments: preempted, previous and next thread, previous state.
    fn program(&self, types: &KernelTypes, targets: &Targets) -> Option<Assembler> {
        let register = |name| Some(types.field("pt_regs", name)?.offset);
        let instruction = register(if cfg!(target_arch = "x86_64") { "ip" } else { "pc" })?;
        let stack = register("sp")?;
        let system_call = register(SYSTEM_CALL)?;
        let mut a = Assembler::default();
        let (stopped, marked) = (a.label(), a.label());
        let (next, blocked, called, known, add) = (a.label(), a.label(), a.label(), a.label(), a.label());
        let (take, chosen, report, out) = (a.label(), a.label(), a.label(), a.label());
        a.set(R6, R1);
        targets.emit_filter(&mut a, next);
        emit_state(&mut a, &self.threads, 8, true);
        a.jump_if(R0, Condition::Equal, 0, next);
        a.set(R9, R0);
        a.store(Width::Double, R9, IDS, R7);
        a.call(Helper::KtimeGetNs);
        a.store(Width::Double, R9, BEGIN, R0);
        // A thread that yields its CPU could go on, too: its state is 0.
        a.load(Width::Double, R1, R6, 0);
        a.apply(Operation::And, R1, PREEMPTED);
        a.load(Width::Double, R2, R6, 24);
        a.jump_if_32(R2, Condition::NotEqual, 0, blocked);
        a.set(R1, PREEMPTED);
        a.place(blocked);
        a.jump_if_32(R2, Condition::AnyBit, STOPPED_STATES, stopped);
        a.jump(marked);
        a.place(stopped);
        a.apply(Operation::Or, R1, STOPPED);
        a.place(marked);
        a.store(Width::Double, R9, MARKS, R1);
        a.load(Width::Double, R1, R6, 8);
        a.call(Helper::TaskPtRegs);
        a.load(Width::Word, R1, R0, system_call);
        a.jump_if_32(R1, Condition::NotEqual, -1, called);
        a.load(Width::Double, R1, R9, MARKS);
        a.apply(Operation::Or, R1, FAULTED);
        a.store(Width::Double, R9, MARKS, R1);
        a.place(called);
        a.load(Width::Double, R8, R0, stack);
        a.apply(Operation::ShiftLeft, R8, STACK_SHIFT as i32);
        a.load(Width::Double, R1, R0, instruction);
        a.store(Width::Double, R9, INSTRUCTION, R1);
        a.apply(Operation::Add, R8, R1);
        a.store(Width::Double, R9, PLACE, R8);
        a.set_map_value(R3, self.settings.number());
        a.load(Width::Double, R4, R9, SINCE);
        // `R7`: the place is not among the known ones.
        a.set(R7, 0);
        for index in 0..KNOWN_PLACES {
            a.load(Width::Double, R5, R9, PLACES + 8 * index as i16);
            a.jump_if(R8, Condition::Equal, R5, known);
        }
        a.set(R7, 1);
        a.load(Width::Double, R1, R3, OTHER_PLACE);
        a.jump(add);
        a.place(known);
        a.set(R1, 1);
        a.place(add);
        a.apply(Operation::Add, R4, R1);
        a.load(Width::Double, R2, R3, PERIOD);
        a.jump_if(R4, Condition::AboveOrEqual, R2, take);
        a.store(Width::Double, R9, SINCE, R4);
        a.jump(next);

        a.place(take);
        a.store(Width::Double, R9, SINCE, 0);
        a.jump_if(R7, Condition::Equal, 0, chosen);
        a.load(Width::Double, R2, R9, NEXT);
        a.apply(Operation::And, R2, KNOWN_PLACES as i32 - 1);
        a.set(R3, R2);
        a.apply(Operation::ShiftLeft, R3, 3);
        a.set(R4, R9);
        a.apply(Operation::Add, R4, R3);
        a.store(Width::Double, R4, PLACES, R8);
        a.apply(Operation::Add, R2, 1);
        a.store(Width::Double, R9, NEXT, R2);
        a.place(chosen);
        a.load(Width::Double, R1, R9, MARKS);
        a.apply(Operation::Or, R1, STACKED);
        a.store(Width::Double, R9, MARKS, R1);
        a.store(Width::Double, R10, CHOSEN, R8);
        a.store(Width::Double, R10, CHOSEN + 8, R1);
        emit_output(&mut a, &self.stacks, CHOSEN, CHOSEN_BYTES);

        a.place(next);
        emit_state(&mut a, &self.threads, 16, false);
        a.jump_if(R0, Condition::Equal, 0, out);
        a.set(R9, R0);
        a.load(Width::Double, R8, R9, BEGIN);
        a.jump_if(R8, Condition::Equal, 0, out);
        a.store(Width::Double, R9, BEGIN, 0);
        a.load(Width::Double, R1, R9, WAKER);
        a.store(Width::Double, R10, WAIT + 40, R1);
        a.store(Width::Double, R9, WAKER, 0);
        a.set_map_value(R3, self.settings.number());
        a.load(Width::Double, R2, R3, WINDOW);
        a.jump_if(R8, Condition::Below, R2, out);
        a.load(Width::Double, R7, R9, MARKS);
        a.jump_if(R7, Condition::AnyBit, STACKED, report);
        a.call(Helper::KtimeGetNs);
        a.apply(Operation::Subtract, R0, R8);
        a.set_map_value(R3, self.settings.number());
        a.load(Width::Double, R2, R3, SHORTEST);
        a.jump_if(R0, Condition::Below, R2, out);
        a.place(report);
        for (at, of_state) in [(0, IDS), (16, PLACE), (32, INSTRUCTION)] {
            a.load(Width::Double, R1, R9, of_state);
            a.store(Width::Double, R10, WAIT + at, R1);
        }
        a.store(Width::Double, R10, WAIT + 8, R8);
        a.store(Width::Double, R10, WAIT + 24, R7);
        emit_output(&mut a, &self.waits, WAIT, WAIT_BYTES);
        a.place(out);
        a.exit();
        Some(a)
    }

    /// The program at a wake-up. Argument: the thread that is woken. It runs in the waker, unless
    /// an interrupt wakes: then the thread that was interrupted is in no system call, and not
    /// noted.
    fn waking_program(&self, types: &KernelTypes, targets: &Targets) -> Option<Assembler> {
        let system_call = types.field("pt_regs", SYSTEM_CALL)?.offset;
        let mut a = Assembler::default();
        let out = a.label();
        a.set(R6, R1);
        targets.emit_filter(&mut a, out);
        emit_state(&mut a, &self.threads, 0, false);
        a.jump_if(R0, Condition::Equal, 0, out);
        a.set(R9, R0);
        a.load(Width::Double, R1, R9, BEGIN);
        a.jump_if(R1, Condition::Equal, 0, out);
        a.call(Helper::GetCurrentTaskBtf);
        a.set(R1, R0);
        a.call(Helper::TaskPtRegs);
        a.load(Width::Word, R1, R0, system_call);
        a.jump_if_32(R1, Condition::Equal, -1, out);
        a.store(Width::Double, R9, WAKER, R7);
        a.place(out);
        a.exit();
        Some(a)
    }
}

/// Field of the registers with the number of the system call; below 0 outside of one.
const SYSTEM_CALL: &str = if cfg!(target_arch = "x86_64") { "orig_ax" } else { "syscallno" };

/// Emits: `R0` = state of the thread that is the argument at an offset.
fn emit_state(a: &mut Assembler, threads: &Map, argument: i16, create: bool) {
    a.set_map(R1, threads.number());
    a.load(Width::Double, R2, R6, argument);
    a.set(R3, 0);
    a.set(R4, i32::from(create));
    a.call(Helper::TaskStorageGet);
}

/// Emits: writes a part of the program's stack to this CPU's event.
fn emit_output(a: &mut Assembler, events: &Map, place: i16, bytes: usize) {
    a.set(R1, R6);
    a.set_map(R2, events.number());
    a.set_wide(R3, THIS_CPU);
    a.set(R4, R10);
    a.apply(Operation::Add, R4, i32::from(place));
    a.set(R5, bytes as i32);
    a.call(Helper::PerfEventOutput);
}

fn load_error(source: std::io::Error) -> ProgramError {
    ProgramError::Load { source, log: String::new() }
}

/// Message of a switch whose stack was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChosenSwitch {
    pub(super) key: u64,
    pub(super) reason: LeaveReason,
}

impl ChosenSwitch {
    pub(super) fn parse(message: &[u8]) -> Option<ChosenSwitch> {
        let [key, marks] = numbers(message)?;
        Some(ChosenSwitch { key, reason: reason(marks) })
    }
}

/// Message at the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) begin: u64,
    pub(super) key: u64,
    pub(super) reason: LeaveReason,
    pub(super) has_stack: bool,
    /// The thread of a recorded process that ended the wait; 0 for an interrupt, or for another
    /// program.
    pub(super) waker: u32,
    /// Where in the program the thread waited.
    pub(super) instruction: u64,
}

impl Wait {
    pub(super) fn parse(message: &[u8]) -> Option<Wait> {
        let [ids, begin, key, marks, instruction, waker] = numbers(message)?;
        let (process, thread) = ((ids >> 32) as u32, ids as u32);
        let (reason, has_stack) = (reason(marks), has(marks, STACKED));
        Some(Wait { process, thread, begin, key, reason, has_stack, instruction, waker: waker as u32 })
    }
}

fn reason(marks: u64) -> LeaveReason {
    match marks {
        _ if has(marks, STOPPED) => LeaveReason::Stopped,
        _ if has(marks, PREEMPTED) => LeaveReason::Preempted,
        _ if has(marks, FAULTED) => LeaveReason::Faults,
        _ => LeaveReason::Waits,
    }
}

fn has(marks: u64, mark: i32) -> bool {
    marks & mark as u64 != 0
}

fn numbers<const N: usize>(message: &[u8]) -> Option<[u64; N]> {
    let mut found = [0; N];
    for (number, bytes) in found.iter_mut().zip(message.get(..N * 8)?.chunks_exact(8)) {
        *number = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(found)
}
