//! The processes whose requests are recorded, as programs in the kernel know them, and how many
//! requests each of them has answered.
//!
//! Contains no search for processes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;

use super::bpf::{
    Assembler, Condition, Helper, KernelTypes, Label, Map, MapKind, Operation, Probe, Program, ProgramError,
    ProgramKind, Register::*, Width,
};

/// Greatest number of processes at a time, with those that have ended a moment ago.
const PROCESSES_MAX: u32 = 1 << 14;
/// Nanoseconds for which the count of a process that has ended can still be read.
const REMEMBERED: u64 = 5_000_000_000;
/// Inode of the first namespace of processes (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

/// State of a process: requests that it has answered; when it ended, 0 before.
const ANSWERED: i16 = 0;
const ENDED: i16 = 8;
const STATE_BYTES: u32 = 16;
/// Places on a program's stack.
const KEY: i16 = -8;
const PAIR: i16 = -16;
const STATE: i16 = -32;

/// Recorded processes.
#[derive(Debug)]
pub(crate) struct Targets {
    processes: Map,
    /// 1 if there is, or was, more than one: else all requests are the first one's.
    several: Map,
    first: u32,
    /// Requests until a second process came, and of those that were forgotten.
    before: Option<u64>,
    gone: u64,
    /// Device and inode of our namespace of processes, where it is not the machine's.
    namespace: Option<(u64, u64)>,
    /// Probes that follow children.
    _probes: Vec<Probe>,
}

impl Targets {
    /// Begins with these processes. With `types` their later children follow, where the kernel
    /// and we have the same numbers for processes.
    pub(crate) fn new(processes: &[u32], types: Option<&KernelTypes>) -> Result<Targets, ProgramError> {
        let failed = |source| ProgramError::Load { source, log: String::new() };
        let namespace = namespace().map_err(failed)?;
        let map = Map::create(MapKind::Hash { key: 4, entries: PROCESSES_MAX }, "lw_processes", STATE_BYTES)
            .map_err(failed)?;
        let several = Map::create(MapKind::Value, "lw_several", 8).map_err(failed)?;
        let first = processes.first().copied().unwrap_or_default();
        let mut targets =
            Targets { processes: map, several, first, before: None, gone: 0, namespace, _probes: Vec::new() };
        for process in processes {
            targets.add(*process).map_err(failed)?;
        }
        if let Some(types) = types.filter(|_| namespace.is_none()) {
            for (tracepoint, program) in
                [("sched_process_fork", targets.children(types)), ("sched_process_exit", targets.ends(types))]
            {
                let program = program.ok_or_else(|| ProgramError::NoTracepoint(tracepoint.into()))?;
                let program = Program::load(ProgramKind::Tracepoint(types, tracepoint), tracepoint, program)?;
                targets._probes.push(program.at_tracepoint()?);
            }
        }
        Ok(targets)
    }

    /// Adds a process.
    fn add(&self, process: u32) -> io::Result<()> {
        if process != self.first {
            self.several.set(&[0; 4], &1_u64.to_ne_bytes())?;
        }
        self.processes.set(&process.to_ne_bytes(), &[0; STATE_BYTES as usize])
    }

    /// Returns the processes that have not ended.
    pub(super) fn present(&self) -> io::Result<BTreeSet<u32>> {
        if self.several.numbers()? == [0] {
            return Ok(BTreeSet::from([self.first]));
        }
        let entries = self.processes.entries(PROCESSES_MAX)?;
        Ok(entries.into_iter().filter(|(_, state)| state[1] == 0).map(|(process, _)| process).collect())
    }

    /// Returns how many requests each process has answered, of `total` until now.
    pub(super) fn answered(&mut self, total: u64, now: u64) -> io::Result<BTreeMap<u32, u64>> {
        if self.several.numbers()? == [0] {
            return Ok(BTreeMap::from([(self.first, total)]));
        }
        let mut answered = BTreeMap::new();
        let mut gone = self.gone;
        for (process, state) in self.processes.entries(PROCESSES_MAX)? {
            let (count, ended) = (state[0], state[1]);
            answered.insert(process, count);
            if ended > 0 && now.saturating_sub(ended) > REMEMBERED {
                self.processes.remove(&process.to_ne_bytes());
                gone += count;
            }
        }
        let counted = answered.values().sum::<u64>() + self.gone;
        let before = *self.before.get_or_insert(total.saturating_sub(counted));
        *answered.entry(self.first).or_default() += before;
        self.gone = gone;
        Ok(answered)
    }

    /// Emits: counts a request of the process that runs; jumps if it is not recorded. Destroys `R0`
    /// to `R5`, and `R7`. With one process there is nothing to tell apart, and the search is saved:
    /// it costs 70 ns.
    pub(super) fn emit_answered(&self, a: &mut Assembler, out: Label) {
        let alone = a.label();
        a.set_map_value(R1, self.several.number());
        a.load(Width::Double, R1, R1, 0);
        a.jump_if(R1, Condition::Equal, 0, alone);
        self.emit_filter(a, out);
        a.set(R1, 1);
        a.add_atomically(R0, ANSWERED, R1);
        a.place(alone);
    }

    /// Says that a recorded process has forked. For those who follow children where the kernel's
    /// numbers are not ours: a child's first moments are left out, and when there are too many,
    /// so are further children.
    pub(crate) fn forked(&self, child: u32) {
        if self.namespace.is_some() {
            let _ = self.add(child);
        }
    }

    /// Emits: `R7` = process and thread, as we number them; jumps if the process is not recorded.
    /// Destroys `R0` to `R5`.
    pub(crate) fn emit_filter(&self, a: &mut Assembler, out: Label) {
        self.emit_thread(a, out);
        a.set(R1, R7);
        a.apply(Operation::ShiftRight, R1, 32);
        self.emit_lookup(a, out);
    }

    /// Emits: `R7` = process and thread, as we number them; jumps if we can't see it. Destroys `R0`
    /// to `R5`.
    pub(super) fn emit_thread(&self, a: &mut Assembler, out: Label) {
        match self.namespace {
            None => {
                a.call(Helper::GetCurrentPidTgid);
                a.set(R7, R0);
            }
            Some((device, inode)) => {
                a.set_wide(R1, device);
                a.set_wide(R2, inode);
                a.set(R3, R10);
                a.apply(Operation::Add, R3, i32::from(PAIR));
                a.set(R4, 8);
                a.call(Helper::GetNsCurrentPidTgid);
                a.jump_if(R0, Condition::NotEqual, 0, out);
                // Thread, then process.
                a.load(Width::Double, R7, R10, PAIR);
            }
        }
    }

    /// Emits: `R0` = state of the process in `R1`; jumps if it is not recorded.
    fn emit_lookup(&self, a: &mut Assembler, out: Label) {
        a.store(Width::Word, R10, KEY, R1);
        a.look_up(self.processes.number(), KEY, out);
    }

    /// Program at the birth of a task: a recorded process's child is recorded.
    fn children(&self, types: &KernelTypes) -> Option<Assembler> {
        let group = types.field("task_struct", "tgid")?.offset;
        let mut a = Assembler::default();
        let out = a.label();
        a.load(Width::Double, R2, R1, 0);
        a.load(Width::Double, R3, R1, 8);
        for task in [R2, R3] {
            a.jump_if(task, Condition::Equal, 0, out);
        }
        a.load(Width::Word, R1, R2, group);
        a.load(Width::Word, R6, R3, group);
        // A thread of the same process.
        a.jump_if(R1, Condition::Equal, R6, out);
        self.emit_lookup(&mut a, out);
        a.set_map_value(R1, self.several.number());
        a.store(Width::Double, R1, 0, 1);
        a.store(Width::Word, R10, KEY, R6);
        a.store(Width::Double, R10, STATE + ANSWERED, 0);
        a.store(Width::Double, R10, STATE + ENDED, 0);
        a.set_map(R1, self.processes.number());
        a.set(R2, R10);
        a.apply(Operation::Add, R2, i32::from(KEY));
        a.set(R3, R10);
        a.apply(Operation::Add, R3, i32::from(STATE));
        a.set(R4, 0);
        a.call(Helper::MapUpdate);
        a.place(out);
        a.exit();
        Some(a)
    }

    /// Program at the end of a task: a process without threads is forgotten, once its requests were
    /// counted.
    fn ends(&self, types: &KernelTypes) -> Option<Assembler> {
        let [group, signal] = ["tgid", "signal"].map(|field| types.field("task_struct", field));
        let live = types.field("signal_struct", "live")?.offset;
        let mut a = Assembler::default();
        let (out, forget) = (a.label(), a.label());
        a.load(Width::Double, R2, R1, 0);
        a.jump_if(R2, Condition::Equal, 0, out);
        a.load(Width::Word, R6, R2, group?.offset);
        a.load(Width::Double, R3, R2, signal?.offset);
        a.jump_if(R3, Condition::Equal, 0, out);
        a.load(Width::Word, R3, R3, live);
        a.jump_if(R3, Condition::NotEqual, 0, out);
        a.set(R1, R6);
        self.emit_lookup(&mut a, out);
        a.load(Width::Double, R1, R0, ANSWERED);
        a.jump_if(R1, Condition::Equal, 0, forget);
        a.set(R6, R0);
        a.call(Helper::KtimeGetNs);
        a.store(Width::Double, R6, ENDED, R0);
        a.jump(out);
        a.place(forget);
        a.set_map(R1, self.processes.number());
        a.set(R2, R10);
        a.apply(Operation::Add, R2, i32::from(KEY));
        a.call(Helper::MapDelete);
        a.place(out);
        a.exit();
        Some(a)
    }
}

/// Returns device and inode of our namespace of processes, unless it is the machine's.
pub(crate) fn namespace() -> io::Result<Option<(u64, u64)>> {
    let file = std::fs::metadata("/proc/self/ns/pid")?;
    Ok((file.ino() != FIRST_NAMESPACE).then(|| (file.dev(), file.ino())))
}
