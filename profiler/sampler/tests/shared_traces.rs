//! Which processes have one trace.
//!
//! Contains no source of records: those of a child are told.

mod reported;

use std::collections::BTreeMap;
use std::path::Path;

use leeward_profile::format::request_totals::RequestTotals;
use leeward_profile::trace::{Trace, ignore_progress};
use leeward_sampler::clock::now;
use leeward_sampler::convert::Recorder;
use leeward_sampler::convert::recorder::RecordedTrace;
use leeward_sampler::process::Process;
use leeward_sampler::record::{Mapping, Record, RecordKind};
use reported::{Reported, everything};

/// A child of this process that waits for its end.
struct ForkedChild(i32);

impl ForkedChild {
    fn new() -> ForkedChild {
        // SAFETY: the child only waits, by calls that are safe after a fork of threads.
        match unsafe { libc::fork() } {
            0 => loop {
                unsafe { libc::pause() };
            },
            child => ForkedChild(child),
        }
    }

    fn pid(&self) -> u32 {
        self.0 as u32
    }
}

impl Drop for ForkedChild {
    fn drop(&mut self) {
        // SAFETY: a child that was not waited for has its number.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// A recording of this process.
struct Recording {
    recorder: Recorder,
    time: u64,
    requests: u64,
    answered: BTreeMap<u32, u64>,
}

impl Recording {
    fn begin(out: &Path) -> Recording {
        let mut recorder = Recorder::new(everything(out));
        recorder.add(Process::open(std::process::id()).unwrap()).unwrap();
        Recording { recorder, time: now(), requests: 0, answered: BTreeMap::new() }
    }

    fn tell(&mut self, process: u32, kind: RecordKind) {
        self.time += 1000;
        let record = Record { time: self.time, process, thread: process, kind };
        self.recorder.poll(&mut [&mut Reported(vec![record])]).unwrap();
    }

    /// A process has answered a request.
    fn request(&mut self, process: u32) {
        self.requests += 1;
        *self.answered.entry(process).or_default() += 1;
        let start = self.time;
        self.tell(process, RecordKind::Request { id: self.requests, start, started_by: None, is_slow: true });
        let totals = RequestTotals { time: self.time, seen: self.requests, ..RequestTotals::default() };
        self.recorder.request_totals(&totals, &self.answered);
    }

    fn fork(&mut self) -> ForkedChild {
        let child = ForkedChild::new();
        self.tell(std::process::id(), RecordKind::Forked { child: child.pid() });
        child
    }

    /// The first process of each trace, with its requests and its threads.
    fn finish(self) -> Vec<(u32, u64, Vec<u32>)> {
        let described = |trace: &RecordedTrace| {
            let opened = Trace::open(&trace.folder, &mut ignore_progress).unwrap();
            let mut tids: Vec<u32> = opened.threads().map(|thread| thread.tid).collect();
            tids.sort_unstable();
            (trace.pid, opened.all_requests().unwrap().seen, tids)
        };
        self.recorder.finish().unwrap().iter().map(described).collect()
    }
}

fn mapping(start: u64, length: u64, path: &str) -> RecordKind {
    RecordKind::Mapped(Box::new(Mapping { start, length, offset: 0, path: path.into(), inode: 0 }))
}

/// An address at which nothing is.
const FREE: u64 = 0x1000_0000;

fn sorted(mut pids: Vec<u32>) -> Vec<u32> {
    pids.sort_unstable();
    pids
}

#[test]
fn forked_children_share_the_trace_and_its_count_of_requests() {
    let (folder, own) = (tempfile::tempdir().unwrap(), std::process::id());
    let mut recording = Recording::begin(folder.path());
    recording.request(own);
    let children = [recording.fork(), recording.fork()];
    let pids = children.each_ref().map(ForkedChild::pid);
    for pid in pids {
        // The same code, and a library that only they have.
        recording.tell(pid, mapping(FREE, 0x1000, "/usr/lib/libforked.so"));
        recording.request(pid);
        recording.request(pid);
    }
    assert_eq!(recording.finish(), [(own, 5, sorted(vec![own, pids[0], pids[1]]))]);
}

#[test]
fn a_child_that_executes_another_program_has_a_trace_of_its_own() {
    let (folder, own) = (tempfile::tempdir().unwrap(), std::process::id());
    let mut recording = Recording::begin(folder.path());
    let child = recording.fork();
    recording.request(child.pid());
    recording.tell(child.pid(), RecordKind::Executed);
    recording.request(child.pid());
    recording.request(own);
    assert_eq!(recording.finish(), [(own, 2, sorted(vec![own, child.pid()])), (child.pid(), 1, vec![child.pid()])]);
}

#[test]
fn other_code_at_the_same_place_separates_processes() {
    let (folder, own) = (tempfile::tempdir().unwrap(), std::process::id());
    let mut recording = Recording::begin(folder.path());
    let (first, second) = (recording.fork(), recording.fork());
    recording.tell(first.pid(), mapping(FREE, 0x2000, "/usr/lib/libone.so"));
    recording.request(first.pid());
    recording.tell(second.pid(), mapping(FREE + 0x1000, 0x2000, "/usr/lib/libother.so"));
    recording.request(second.pid());
    let traces = recording.finish();
    assert_eq!(traces.iter().map(|(pid, seen, _)| (*pid, *seen)).collect::<Vec<_>>(), [(own, 1), (second.pid(), 1)]);
}

#[test]
fn a_child_that_was_there_before_shares_the_trace_of_its_parent() {
    let (folder, own) = (tempfile::tempdir().unwrap(), std::process::id());
    let child = ForkedChild::new();
    let mut recording = Recording::begin(folder.path());
    recording.recorder.add(Process::open(child.pid()).unwrap()).unwrap();
    recording.request(own);
    recording.request(child.pid());
    assert_eq!(recording.finish(), [(own, 2, sorted(vec![own, child.pid()]))]);
}

#[test]
fn a_program_that_was_executed_before_has_a_trace_of_its_own() {
    let (folder, own) = (tempfile::tempdir().unwrap(), std::process::id());
    let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let mut recording = Recording::begin(folder.path());
    recording.recorder.add(Process::open(other.id()).unwrap()).unwrap();
    recording.request(own);
    recording.request(other.id());
    let traces = recording.finish();
    assert_eq!(traces.iter().map(|(pid, seen, _)| (*pid, *seen)).collect::<Vec<_>>(), [(own, 1), (other.id(), 1)]);
    other.kill().and_then(|()| other.wait()).unwrap();
}

#[test]
fn a_trace_goes_on_until_the_last_of_its_processes_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = Recording::begin(folder.path());
    let child = recording.fork();
    assert!(!recording.recorder.is_finished());
    let pid = child.pid();
    drop(child);
    recording.tell(pid, RecordKind::Ended);
    recording.request(pid);
    assert!(!recording.recorder.is_finished(), "this process still runs");
    assert_eq!(recording.finish().len(), 1);
}
