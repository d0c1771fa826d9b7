//! What a uprobe costs on this machine: a trap, whose price differs tenfold between machines.
//!
//! Contains no probe of another process.

use std::hint::black_box;
use std::path::Path;

use super::bpf::{Assembler, Program, ProgramKind, RETURN_PROBE, UPROBE, Uprobe, UprobePmu};
use crate::clock::thread_time;
use crate::process::Process;

/// Calls that are timed: a few milliseconds where traps are dear.
const CALLS: u64 = 300;

/// Nanoseconds of a run of a program, without the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrapCosts {
    /// At an instruction that the kernel executes itself: one that pushes a register.
    pub(super) push: u64,
    /// At another instruction, which the processor executes in a single step, with a second trap.
    pub(super) step: u64,
    /// Behind a return.
    pub(super) at_return: u64,
}

impl TrapCosts {
    /// Measures the costs in this process; usual ones where that fails.
    pub(super) fn measure(pmu: &UprobePmu) -> TrapCosts {
        let usual = TrapCosts { push: UPROBE, step: 2 * UPROBE, at_return: RETURN_PROBE };
        measured(pmu).unwrap_or(usual)
    }

    /// Returns whether code begins with an instruction that the kernel executes itself.
    pub(super) fn is_push(code: &[u8]) -> bool {
        cfg!(target_arch = "x86_64") && matches!(code, [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..])
    }
}

/// A function of this process that is called to be timed.
type Timed = extern "C" fn(u64) -> u64;

fn measured(pmu: &UprobePmu) -> Option<TrapCosts> {
    let process = std::process::id();
    let mappings = Process::open(process).ok()?.mappings().ok()?;
    let offset = |function: Timed| {
        let address = function as usize as u64;
        mappings.iter().find_map(|mapped| {
            let within = address.checked_sub(mapped.start).filter(|within| *within < mapped.length)?;
            within.checked_add(mapped.offset)
        })
    };
    let mut assembler = Assembler::default();
    assembler.exit();
    let program = Program::load(ProgramKind::Uprobe, "lw_nothing", assembler).ok()?;
    let file = Path::new("/proc/self/exe");
    let cost = |function: Timed, at_return| {
        let bare = time(function);
        let place = Uprobe { process, file, offset: offset(function)?, at_return, counter: 0 };
        let _probe = program.at_uprobe(&place, pmu).ok()?;
        Some(time(function).saturating_sub(bare))
    };
    let (push, step) = (cost(pushing, false)?, cost(stepping, false)?);
    // A probe at a return has one at the first instruction, too.
    let at_return = cost(pushing, true)?.saturating_sub(push);
    Some(TrapCosts { push, step, at_return })
}

/// Returns the CPU time of a call in nanoseconds.
fn time(function: Timed) -> u64 {
    let before = thread_time();
    for call in 0..CALLS {
        black_box(black_box(function)(call));
    }
    thread_time().saturating_sub(before) / CALLS
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn pushing(_: u64) -> u64 {
    // Leaves the stack as it was, and returns the argument.
    std::arch::naked_asm!("push rbx", "pop rbx", "mov rax, rdi", "ret")
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn stepping(_: u64) -> u64 {
    // Returns the argument.
    std::arch::naked_asm!("mov rax, rdi", "ret")
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
extern "C" fn pushing(number: u64) -> u64 {
    black_box(number)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
extern "C" fn stepping(number: u64) -> u64 {
    black_box(number) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_costs_more_than_none() {
        let costs = measured(&UprobePmu::find().unwrap()).unwrap();
        assert!(costs.push > 0 && costs.step > 0, "{costs:?}");
        assert_eq!((pushing(7), stepping(7) / 7), (7, 1));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn instructions_that_push_are_told() {
        // push rbp; push r12; mov rax, rdi; endbr64; nothing
        let code: [&[u8]; 5] = [&[0x55], &[0x41, 0x54], &[0x48, 0x89, 0xf8], &[0xf3, 0x0f, 0x1e, 0xfa], &[]];
        assert_eq!(code.map(TrapCosts::is_push), [true, true, false, false, false]);
    }
}
