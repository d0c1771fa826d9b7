//! Memory is bounded for any trace size: the allocator counts it for a trace and for one three
//! times as large.

use std::path::Path;

use leeward_profile::analysis::slowest::slowest;
use leeward_profile::analysis::timeline::{RequestChoice, timeline};
use leeward_profile::analysis::{Selection, tail};
use leeward_profile::export::{self, Format, export};
use leeward_profile::stats::{self, Options};
use leeward_profile::symbols::{self, Symbols};
use leeward_profile::trace::ignore_progress;
use leeward_testkit::allocator::{CountingAllocator, peak_bytes, reset_peak_bytes};

#[path = "../examples/support/store.rs"]
mod store;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Peak memory of all questions about a trace of `events` events, in MB.
fn most(folder: &Path, events: u64) -> usize {
    let path = folder.join(events.to_string());
    store::write(&path, events).unwrap();
    reset_peak_bytes();
    let options = Options::default();
    let (trace, collector) = stats::open(&path, &options, 4, &mut ignore_progress).unwrap();
    let mut symbols = Symbols::new(&trace, symbols::Options::default());
    assert!(!collector.rows(&mut symbols, &options, 0).is_empty());
    let marked = Selection::Marked;
    assert!(slowest(&trace, &mut symbols, &marked, 10, &mut ignore_progress).unwrap().latencies.count() > 0);
    assert!(timeline(&trace, &mut symbols, &marked, RequestChoice::Slowest, &mut ignore_progress).unwrap().is_some());
    assert!(tail::tail(&trace, &mut symbols, &marked, 0.01, &mut ignore_progress).unwrap().slow > 0);
    let options = export::Options { selection: marked, slower_than: 0 };
    export(&trace, &mut symbols, Format::Perfetto, &options, &mut std::io::sink(), &mut ignore_progress).unwrap();
    peak_bytes() >> 20
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    // Large enough that each bounded structure has reached its bound.
    let small = most(folder.path(), 2_500_000);
    let large = most(folder.path(), 7_500_000);
    println!("{small} MB, {large} MB");
    assert!(large < 512, "{large} MB");
    assert!(large * 10 <= small * 12, "{small} MB of a trace, {large} MB of one three times as large");
}
