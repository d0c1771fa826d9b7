//! Synthetic traces for the tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::Path;

use leeward_profile::analysis::{Selection, slowest, tail, timeline};
use leeward_profile::format::event::{Extent, OffCpu};
use leeward_profile::format::meta::Thread;
use leeward_profile::format::write::{TraceConfig, TraceWriter};
use leeward_profile::format::{EventKind, ObjectKind};
use leeward_profile::symbols::{Options, Symbols};
use leeward_profile::trace::{Trace, ignore_progress};

/// Addresses of functions in the synthetic program.
pub(crate) const HANDLE: u64 = 0x1000;
pub(crate) const PARSE: u64 = 0x2000;
pub(crate) const RARE: u64 = 0x3000;
pub(crate) const SNAPSHOT: u64 = 0x4000;
pub(crate) const WRITE: u64 = 0x5000;
/// Address of a mutex.
pub(crate) const LOCK: u64 = 0x7f00_0000_1000;

pub(crate) const WORKER: u32 = 0;
pub(crate) const BACKGROUND: u32 = 1;

pub(crate) fn thread(number: u32, name: &str) -> Thread {
    Thread { number, tid: 100 + number, started: None, ended: None, name: name.into() }
}

pub(crate) fn setup() -> TraceConfig {
    TraceConfig { threads: vec![thread(WORKER, "worker"), thread(BACKGROUND, "background")], ..TraceConfig::default() }
}

pub(crate) fn call(function: u64, duration: u64) -> EventKind {
    EventKind::Call { function, caller: 0x1234, duration, extent: Extent::Whole }
}

pub(crate) fn lock_held(site: u64, wait: u64, hold: u64) -> EventKind {
    EventKind::Held { object: ObjectKind::Mutex, lock: LOCK, site, wait, hold }
}

pub(crate) fn switched_out(why: OffCpu) -> EventKind {
    EventKind::SwitchedOut { cpu: 0, next: 0, reason: why }
}

/// Writes a request from `start` to `end` on the worker; `between` writes the events during it.
pub(crate) fn request(writer: &mut TraceWriter, id: u64, start: u64, end: u64, between: impl FnOnce(&mut TraceWriter)) {
    writer.event(WORKER, start, EventKind::RequestStart { id, queue: None }).unwrap();
    between(writer);
    writer.event(WORKER, end - 100, call(HANDLE, end - start - 200)).unwrap();
    writer.event(WORKER, end, EventKind::RequestEnd { id }).unwrap();
}

/// Writes a usual request of about 10 µs.
pub(crate) fn usual_request(writer: &mut TraceWriter, id: u64, start: u64) {
    let more = id % 7 * 100;
    request(writer, id, start, start + 10_000 + more, |writer| {
        writer.event(WORKER, start + 5_000, call(PARSE, 3_000)).unwrap();
    });
}

pub(crate) fn open(folder: &Path) -> (Trace, Symbols) {
    let trace = Trace::open(folder, &mut ignore_progress).unwrap();
    let symbols = Symbols::new(&trace, Options::default());
    (trace, symbols)
}

pub(crate) fn tail_of(folder: &Path) -> tail::Tail {
    let (trace, mut symbols) = open(folder);
    tail::tail(&trace, &mut symbols, &Selection::Marked, 0.01, &mut ignore_progress).unwrap()
}

pub(crate) fn timeline_of(folder: &Path, which: timeline::RequestChoice) -> timeline::Timeline {
    let (trace, mut symbols) = open(folder);
    timeline::timeline(&trace, &mut symbols, &Selection::Marked, which, &mut ignore_progress).unwrap().unwrap()
}

pub(crate) fn slowest_of(folder: &Path, most: usize) -> slowest::RequestSummary {
    let (trace, mut symbols) = open(folder);
    slowest::slowest(&trace, &mut symbols, &Selection::Marked, most, &mut ignore_progress).unwrap()
}
