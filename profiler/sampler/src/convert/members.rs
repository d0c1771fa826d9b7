//! Which processes are recorded, and in which trace.
//!
//! Children that execute no other program share the trace of their parent. Contains no traces.

use std::collections::{BTreeMap, BTreeSet};

use crate::process::Process;

/// Number of a trace in a recording.
pub(super) type TraceNumber = u64;

/// Limit of processes at a time, with those that have ended a moment ago.
pub(super) const PROCESSES: usize = 1 << 12;
/// Processes whose CPU time is read at a time: this takes 10 µs each.
const READ_AT_A_TIME: usize = 64;

/// A process that is recorded.
#[derive(Debug)]
struct Member {
    trace: TraceNumber,
    /// `None` if it ended before it could be opened: then its end is in the records.
    process: Option<Process>,
    /// When it was seen to have ended.
    ended: Option<u64>,
    /// Requests that it had answered at the last count.
    answered: u64,
    /// CPU time that it had used when that was last read.
    used: u64,
}

/// The recorded processes.
#[derive(Debug, Default)]
pub(super) struct Members {
    members: BTreeMap<u32, Member>,
    /// CPU time of processes that were forgotten.
    used_before: u64,
    /// From which process on the CPU time is read next.
    next_read: u32,
}

impl Member {
    fn read_cpu_time(&mut self) {
        let used = self.process.as_ref().and_then(Process::cpu_time);
        self.used = self.used.max(used.unwrap_or_default());
    }
}

impl Members {
    pub(super) fn is_full(&self) -> bool {
        self.members.len() >= PROCESSES
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.members.keys().copied()
    }

    /// Returns the trace of a process.
    pub(super) fn trace(&self, pid: u32) -> Option<TraceNumber> {
        self.members.get(&pid).map(|member| member.trace)
    }

    /// Returns whether other processes have, or lately had, the trace of this one.
    pub(super) fn shares(&self, pid: u32) -> bool {
        let trace = self.trace(pid);
        self.members.iter().any(|(other, member)| *other != pid && Some(member.trace) == trace)
    }

    pub(super) fn process(&self, pid: u32) -> Option<&Process> {
        self.members.get(&pid)?.process.as_ref()
    }

    /// Adds a process. One without a handle counts as ended at this time.
    pub(super) fn add(&mut self, pid: u32, trace: TraceNumber, process: Option<Process>, now: u64) {
        self.remove(pid);
        let ended = process.is_none().then_some(now);
        self.members.insert(pid, Member { trace, process, ended, answered: 0, used: 0 });
    }

    /// Forgets a process.
    pub(super) fn remove(&mut self, pid: u32) {
        let used = self.members.remove(&pid).map_or(0, |member| member.used);
        self.used_before = self.used_before.saturating_add(used);
    }

    /// From now on the process has another trace.
    pub(super) fn set_trace(&mut self, pid: u32, trace: TraceNumber) {
        if let Some(member) = self.members.get_mut(&pid) {
            member.trace = trace;
        }
    }

    /// Returns whether the process is recorded and has not ended: numbers are used again.
    pub(super) fn is_running(&self, pid: u32) -> bool {
        let is_running =
            |member: &Member| member.ended.is_none() && member.process.as_ref().is_some_and(Process::is_running);
        self.members.get(&pid).is_some_and(is_running)
    }

    /// Notes which processes have ended until this time: of all, or of this one.
    pub(super) fn note_ended(&mut self, of: Option<u32>, now: u64) {
        let range = of.map_or(0..=u32::MAX, |pid| pid..=pid);
        for (_, member) in self.members.range_mut(range) {
            if member.ended.is_none() && member.process.as_ref().is_some_and(|process| !process.is_running()) {
                member.read_cpu_time();
                member.ended = Some(now);
            }
        }
    }

    /// Returns whether all processes have ended.
    pub(super) fn have_ended(&self) -> bool {
        self.members.values().all(|member| member.ended.is_some())
    }

    /// Returns whether all processes of a trace have ended, and when the last one did.
    pub(super) fn end_of(&self, trace: TraceNumber) -> Option<u64> {
        let ends: Option<Vec<u64>> =
            self.members.values().filter(|member| member.trace == trace).map(|member| member.ended).collect();
        ends?.into_iter().max()
    }

    /// Forgets processes that ended before this time; returns when the last one of each trace did.
    pub(super) fn forget_ended(&mut self, before: u64) -> BTreeMap<TraceNumber, u64> {
        let mut ends = BTreeMap::new();
        let used_before = &mut self.used_before;
        self.members.retain(|_, member| {
            let Some(ended) = member.ended.filter(|ended| *ended < before) else { return true };
            let end = ends.entry(member.trace).or_insert(ended);
            *end = ended.max(*end);
            *used_before = used_before.saturating_add(member.used);
            false
        });
        ends
    }

    /// Returns the traces of the processes.
    pub(super) fn traces(&self) -> BTreeSet<TraceNumber> {
        self.members.values().map(|member| member.trace).collect()
    }

    /// Returns how many requests the processes of each trace have answered since the last count.
    pub(super) fn count(&mut self, answered: &BTreeMap<u32, u64>) -> BTreeMap<TraceNumber, u64> {
        let mut counts = BTreeMap::new();
        for (pid, member) in &mut self.members {
            let now = answered.get(pid).copied().unwrap_or(member.answered);
            *counts.entry(member.trace).or_default() += now.saturating_sub(member.answered);
            member.answered = now;
        }
        counts
    }

    /// Returns the CPU time that the processes have used, those that have ended included. Of many
    /// processes, the times of some are those of a moment ago.
    pub(super) fn cpu_time(&mut self) -> u64 {
        let mut next = 0;
        for (read, (pid, member)) in self.members.range_mut(self.next_read..).enumerate() {
            if read == READ_AT_A_TIME {
                next = *pid;
                break;
            }
            member.read_cpu_time();
        }
        self.next_read = next;
        self.members.values().map(|member| member.used).fold(self.used_before, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes 1 to 4 in traces 7, 7, 8 and 8. None is open, so that all end when they come.
    fn members() -> Members {
        let mut members = Members::default();
        for (pid, trace, time) in [(1, 7, 10), (2, 7, 20), (3, 8, 30), (4, 8, 40)] {
            members.add(pid, trace, None, time);
        }
        members
    }

    #[test]
    fn a_trace_ends_with_its_last_process() {
        let mut members = members();
        assert_eq!((members.end_of(7), members.end_of(9)), (Some(20), None));
        assert_eq!(members.forget_ended(20), BTreeMap::from([(7, 10)]));
        assert_eq!(members.traces(), BTreeSet::from([7, 8]), "process 2 still has it");
        assert!(!members.shares(2) && members.shares(3));
        assert_eq!(members.forget_ended(40), BTreeMap::from([(7, 20), (8, 30)]));
        assert_eq!(members.traces(), BTreeSet::from([8]));
    }

    #[test]
    fn requests_count_for_the_trace_that_the_process_has_now() {
        let mut members = members();
        let mut answered = BTreeMap::from([(1, 5), (2, 6), (3, 1)]);
        assert_eq!(members.count(&answered), BTreeMap::from([(7, 11), (8, 1)]));
        members.set_trace(2, 9);
        answered.insert(2, 16);
        // The source has forgotten process 1.
        answered.remove(&1);
        assert_eq!(members.count(&answered), BTreeMap::from([(7, 0), (8, 0), (9, 10)]));
    }

    #[test]
    fn cpu_time_of_processes_that_ended_stays() {
        let own = std::process::id();
        let mut members = members();
        members.add(own, 9, Some(Process::open(own).unwrap()), 5);
        let mut turns = 0_u64;
        while members.cpu_time() == 0 {
            turns = turns.wrapping_add(1);
        }
        let before = members.cpu_time();
        members.remove(own);
        members.forget_ended(u64::MAX);
        assert!(members.cpu_time() >= before && members.pids().count() == 0);
    }

    #[test]
    fn a_process_that_runs_has_not_ended() {
        let mut members = Members::default();
        let own = std::process::id();
        members.add(own, 1, Some(Process::open(own).unwrap()), 5);
        members.note_ended(Some(own), 6);
        members.note_ended(None, 7);
        assert!(members.is_running(own) && !members.have_ended());
        assert_eq!(members.end_of(1), None);
    }
}
