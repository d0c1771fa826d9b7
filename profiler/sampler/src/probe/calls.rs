//! Requests that are calls of functions: uprobes where a function begins and where it returns.
//!
//! Of nested calls the outermost counts. It is known by the stack: a nested call's frame lies
//! deeper. So a call that was left by an exception or `longjmp` hides no later one.
//!
//! Contains no search for functions.

use super::bpf::{
    Assembler, Condition, Helper, Label, Map, MapKind, Operation, Program, ProgramError, ProgramKind, Register,
    Register::*, Width,
};
use super::report::{EventKind, Shared};
use super::targets::Targets;

/// Offsets of registers in the kernel's `struct pt_regs`: the stack's end, and Go's goroutine.
#[cfg(target_arch = "x86_64")]
const REGISTERS: (i16, i16) = (152, 8);
#[cfg(target_arch = "aarch64")]
const REGISTERS: (i16, i16) = (248, 224);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the offsets of registers are known for x86-64 and aarch64 only");

/// A return removes the return address from the stack.
const RETURN_POPS: bool = cfg!(target_arch = "x86_64");

/// State of a thread or goroutine: when the call began, 0 without one; its place on the stack; the
/// thread that began it.
const START: i16 = 0;
const PLACE: i16 = 8;
const THREAD: i16 = 16;
const STATE_BYTES: u32 = 24;

/// Places on a program's stack: a new state, and a goroutine with its process.
const STATE: i16 = -96;
const GOROUTINE: i16 = -112;
const TOP: i16 = -120;
/// Offset of the stack's upper end in Go's `runtime.g`, since Go 1.0.
const STACK_END: i32 = 8;
/// Goroutines that are in a call at a time.
const GOROUTINES_MAX: u32 = 1 << 16;

/// Language whose rules for stacks a function follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackRules {
    /// A call stays on its thread, and its frame in its place.
    Native,
    /// A call stays on its goroutine, whose stack may move; the kernel can't replace return
    /// addresses there.
    Go,
}

/// Programs for calls of functions.
#[derive(Debug)]
pub(super) struct CallPrograms {
    _state: Map,
    /// Runs where functions begin.
    pub(super) entry: Program,
    /// Runs behind returns; for Go at the instructions that return.
    pub(super) exit: Program,
}

impl CallPrograms {
    pub(super) fn load(rules: StackRules, targets: &Targets, shared: &Shared) -> Result<CallPrograms, ProgramError> {
        let kind = match rules {
            StackRules::Native => MapKind::OfThread,
            StackRules::Go => MapKind::RecentHash { key: 16, entries: GOROUTINES_MAX },
        };
        let state = Map::create(kind, "lw_calls", STATE_BYTES)
            .map_err(|source| ProgramError::Load { source, log: String::new() })?;
        let builder = Builder { rules, targets, shared, state: &state };
        let entry = Program::load(ProgramKind::Uprobe, "lw_entry", builder.entry())?;
        let exit = Program::load(ProgramKind::Uprobe, "lw_exit", builder.exit())?;
        Ok(CallPrograms { entry, exit, _state: state })
    }
}

struct Builder<'a> {
    rules: StackRules,
    targets: &'a Targets,
    shared: &'a Shared,
    state: &'a Map,
}

impl Builder<'_> {
    /// Emits: `R7` = process and thread, `R6` = place of the call on its stack: the greater, the
    /// further out. For Go the goroutine is kept as the key of its state.
    fn emit_begin(&self, a: &mut Assembler, out: Label) {
        let (stack, goroutine) = REGISTERS;
        a.set(R6, R1);
        self.targets.emit_thread(a, out);
        if self.rules == StackRules::Native {
            a.load(Width::Double, R6, R6, stack);
            return;
        }
        a.load(Width::Double, R3, R6, goroutine);
        a.load(Width::Double, R6, R6, stack);
        a.store(Width::Double, R10, GOROUTINE, R3);
        a.set(R1, R7);
        a.apply(Operation::ShiftRight, R1, 32);
        a.store(Width::Double, R10, GOROUTINE + 8, R1);
        // The distance to the stack's end stays when the stack moves.
        a.set(R1, R10);
        a.apply(Operation::Add, R1, i32::from(TOP));
        a.set(R2, 8);
        a.apply(Operation::Add, R3, STACK_END);
        a.call(Helper::ProbeReadUser);
        a.jump_if(R0, Condition::NotEqual, 0, out);
        a.load(Width::Double, R1, R10, TOP);
        a.apply(Operation::Subtract, R6, R1);
        // Below 0, as the end is above: a number in the upper half, as are addresses of one stack.
    }

    /// Emits: `R0` = the state, or 0; `create` makes one where the kernel can.
    fn emit_state(&self, a: &mut Assembler, create: bool) {
        if self.rules == StackRules::Go {
            a.set_map(R1, self.state.number());
            self.emit_address(a, R2, GOROUTINE);
            a.call(Helper::MapLookup);
            return;
        }
        a.call(Helper::GetCurrentTaskBtf);
        a.set_map(R1, self.state.number());
        a.set(R2, R0);
        a.set(R3, 0);
        a.set(R4, i32::from(create));
        a.call(Helper::TaskStorageGet);
    }

    fn emit_address(&self, a: &mut Assembler, register: Register, place: i16) {
        a.set(register, R10);
        a.apply(Operation::Add, register, i32::from(place));
    }

    /// Program where a function begins.
    fn entry(&self) -> Assembler {
        let mut a = Assembler::default();
        let (out, begins, none) = (a.label(), a.label(), a.label());
        self.emit_begin(&mut a, out);
        self.emit_state(&mut a, true);
        a.jump_if(R0, Condition::Equal, 0, none);
        a.set(R9, R0);
        a.load(Width::Double, R1, R9, START);
        a.jump_if(R1, Condition::Equal, 0, begins);
        // The return may have passed between windows.
        self.shared.emit_if_earlier(&mut a, R1, begins);
        a.load(Width::Double, R1, R9, PLACE);
        a.jump_if(R6, Condition::Below, R1, out);
        a.place(begins);
        a.call(Helper::KtimeGetNs);
        a.store(Width::Double, R9, START, R0);
        a.store(Width::Double, R9, PLACE, R6);
        a.store(Width::Word, R9, THREAD, R7);
        a.jump(out);
        a.place(none);
        if self.rules == StackRules::Go {
            a.call(Helper::KtimeGetNs);
            a.store(Width::Double, R10, STATE + START, R0);
            a.store(Width::Double, R10, STATE + PLACE, R6);
            a.store(Width::Double, R10, STATE + THREAD, R7);
            a.set_map(R1, self.state.number());
            self.emit_address(&mut a, R2, GOROUTINE);
            self.emit_address(&mut a, R3, STATE);
            a.set(R4, 0);
            a.call(Helper::MapUpdate);
        }
        a.place(out);
        a.exit();
        a
    }

    /// Program where a function returns.
    fn exit(&self) -> Assembler {
        let mut a = Assembler::default();
        let out = a.label();
        self.emit_begin(&mut a, out);
        self.emit_state(&mut a, false);
        a.jump_if(R0, Condition::Equal, 0, out);
        a.set(R9, R0);
        a.load(Width::Double, R1, R9, START);
        a.jump_if(R1, Condition::Equal, 0, out);
        a.load(Width::Double, R1, R9, PLACE);
        // A nested call's return. Behind a return the stack is shorter than at the call.
        let is_nested = match self.rules {
            StackRules::Native if RETURN_POPS => Condition::BelowOrEqual,
            _ => Condition::Below,
        };
        a.jump_if(R6, is_nested, R1, out);
        a.call(Helper::KtimeGetNs);
        a.set(R8, R0);
        a.load(Width::Double, R6, R9, START);
        a.store(Width::Double, R9, START, 0);
        self.shared.emit_if_earlier(&mut a, R6, out);
        a.load(Width::Word, R1, R9, THREAD);
        a.store(Width::Double, R10, TOP, R1);
        a.set(R9, R8);
        a.apply(Operation::Subtract, R9, R6);
        self.targets.emit_answered(&mut a, out);
        Shared::emit_bucket(&mut a);
        self.shared.emit_count(&mut a, 1, out);
        self.shared.emit_choice(&mut a);
        self.shared.emit_slow(&mut a);
        a.jump_if(R0, Condition::Equal, 0, out);
        a.set(R1, R6);
        a.set(R2, 0);
        a.load(Width::Double, R3, R10, TOP);
        self.shared.emit_report(&mut a, EventKind::Request, out);
        a.place(out);
        a.exit();
        a
    }
}
