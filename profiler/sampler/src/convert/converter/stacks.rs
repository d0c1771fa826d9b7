//! Stacks of samples and switches: the calls that they show.
//!
//! Does not reconstruct calls (`calls`).

use std::io;
use std::ops::Range;

use leeward_profile::format::event::{EventKind, Extent, OffCpu};
use leeward_profile::format::write::TraceWriter;

use super::super::calls::{Call, Frame};
use super::Converter;
use crate::record::LeaveReason;

/// Where the kernel lets a function return that has a uprobe at its return: the caller's address is
/// elsewhere then. On x86-64 it is the last page of a program's memory, elsewhere no program's.
const TRAMPOLINE: Range<u64> = 0x7FFF_FFFF_E000..0x7FFF_FFFF_F000;

impl Converter {
    pub(super) fn sample(&mut self, time: u64, tid: u32, stack: &[u64]) -> io::Result<()> {
        if !self.set_stack(stack) {
            return Ok(());
        }
        let interval = self.interval;
        let Converter { threads, stack, writer, .. } = self;
        let Some(state) = threads.get_mut(&tid) else { return Ok(()) };
        let number = state.thread.number;
        if state.calls.is_off() {
            // The record of its return was lost.
            let returned = time.saturating_sub(interval / 2).max(state.calls.seen());
            state.returned(returned);
            writer.event(number, returned, EventKind::SwitchedIn { cpu: state.cpu })?;
        }
        reporting(writer, number, |report| state.calls.sample(time, stack, interval, report))
    }

    pub(super) fn switched_out(
        &mut self,
        time: u64,
        tid: u32,
        why: LeaveReason,
        stack: Option<&[u64]>,
    ) -> io::Result<()> {
        let has_stack = stack.is_some_and(|stack| self.set_stack(stack));
        let interval = self.interval;
        let Converter { threads, stack, writer, modules, .. } = self;
        let Some(state) = threads.get_mut(&tid) else { return Ok(()) };
        let number = state.thread.number;
        let frames = has_stack.then_some(&stack[..]);
        let stays = why != LeaveReason::Waits;
        reporting(writer, number, |report| state.calls.switched_out(time, stays, frames, interval, report))?;
        if let Some(leaf) = frames.and_then(<[Frame]>::last).filter(|_| !stays) {
            // A system call's wrappers stand in the same library as it does.
            let of_wait = |frame: &&Frame| modules.is_shared(frame.address, leaf.address);
            let around = stack.len() - stack.iter().rev().take_while(of_wait).count();
            state.calls.set_around_wait(if around > 0 { around } else { stack.len() - 1 });
        }
        state.left(time, why == LeaveReason::Preempted);
        let reason = match why {
            LeaveReason::Preempted => OffCpu::Runnable,
            LeaveReason::Stopped => OffCpu::Stopped,
            LeaveReason::Waits | LeaveReason::Faults => OffCpu::Blocked,
        };
        writer.event(number, time, EventKind::SwitchedOut { cpu: state.cpu, next: 0, reason })
    }

    /// Prepares a stack, the outermost frame first. False if it is empty.
    fn set_stack(&mut self, stack: &[u64]) -> bool {
        self.stack.clear();
        for (index, address) in stack.iter().enumerate().rev() {
            if index > 0 && TRAMPOLINE.contains(address) {
                continue;
            }
            // A return address may be the first byte behind the function.
            let instruction = address.saturating_sub(u64::from(index > 0));
            let function = self.modules.function(instruction);
            self.stack.push(Frame { function, address: *address });
        }
        self.written.stacks += u64::from(!stack.is_empty());
        !stack.is_empty()
    }

    pub(super) fn end_calls(&mut self, tid: u32, time: u64, stops: bool) -> io::Result<()> {
        let interval = self.interval;
        let Converter { threads, writer, .. } = self;
        let Some(state) = threads.get_mut(&tid) else { return Ok(()) };
        let number = state.thread.number;
        reporting(writer, number, |report| state.calls.end(time, interval, stops, report))
    }
}

/// Writes the calls that `work` reports.
fn reporting(writer: &mut TraceWriter, thread: u32, work: impl FnOnce(&mut dyn FnMut(Call))) -> io::Result<()> {
    let mut result = Ok(());
    work(&mut |call: Call| {
        let Call { function, caller, start, end, is_cut } = call;
        let extent = if is_cut { Extent::Cut } else { Extent::Whole };
        let kind = EventKind::Call { function, caller, duration: end - start, extent };
        if result.is_ok() {
            result = writer.event(thread, end, kind);
        }
    });
    result
}
