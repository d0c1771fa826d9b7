//! Requests of several processes: each trace counts its own.
//!
//! Contains no source of records.

mod reported;

use std::collections::BTreeMap;
use std::process::{Child, Command};

use leeward_profile::format::request_totals::RequestTotals;
use leeward_profile::trace::{Trace, ignore_progress};
use leeward_sampler::clock::now;
use leeward_sampler::convert::Recorder;
use leeward_sampler::process::Process;
use leeward_sampler::record::{Record, RecordKind};
use reported::{Reported, everything};

#[test]
fn each_trace_counts_the_requests_of_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::new(everything(folder.path()));
    let mut children: Vec<Child> = [(); 3].map(|()| Command::new("sleep").arg("60").spawn().unwrap()).into();
    let pids: Vec<u32> = children.iter().map(Child::id).collect();
    let mut answered: BTreeMap<u32, u64> = BTreeMap::new();
    let began = now();
    let mut seen = 0;
    // The third begins later. One of so many requests is reported, in another turn than it ends.
    for turn in 1..=30_u64 {
        if turn == 1 || turn == 20 {
            for pid in if turn == 1 { &pids[..2] } else { &pids[2..] } {
                recorder.add(Process::open(*pid).unwrap()).unwrap();
            }
        }
        let time = began + turn * 1_000_000;
        let mut records = Vec::new();
        for (pid, count) in pids.iter().zip([160, 19, if turn < 20 { 0 } else { 1 }]) {
            *answered.entry(*pid).or_default() += count;
            seen += count;
            let id = turn * 1000 + u64::from(*pid);
            let is_slow = turn % 7 == 0;
            let kind = RecordKind::Request { id, start: time - 900_000, started_by: None, is_slow };
            if count > 0 && turn % 3 > 0 {
                records.push(Record { time: time - 500_000, process: *pid, thread: *pid, kind });
            }
        }
        recorder.poll(&mut [&mut Reported(records)]).unwrap();
        let totals = RequestTotals { time, seen, threshold: 950_000, ..RequestTotals::default() };
        recorder.request_totals(&totals, &answered);
    }
    let traces = recorder.finish().unwrap();
    let counted: BTreeMap<u32, u64> = traces
        .iter()
        .map(|trace| {
            let opened = Trace::open(&trace.folder, &mut ignore_progress).unwrap();
            let totals = opened.all_requests().unwrap();
            assert_eq!((totals.slow, totals.sampled), (trace.written.slow, trace.written.sampled));
            (trace.pid, totals.seen)
        })
        .collect();
    assert_eq!(counted, BTreeMap::from([(pids[0], 4800), (pids[1], 570), (pids[2], 11)]));
    children.iter_mut().for_each(|child| drop(child.kill().and_then(|()| child.wait())));
}
