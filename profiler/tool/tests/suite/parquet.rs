//! A trace exported to Parquet, read back by an independent reader.

use std::fs::File;

use leeward_profile::analysis::Selection;
use leeward_profile::export::{Format, Options, export};
use leeward_profile::format::event::Extent;
use leeward_profile::format::write::{TraceConfig, TraceWriter};
use leeward_profile::format::{EventKind, ObjectKind};
use leeward_profile::symbols::{self, Symbols};
use leeward_profile::trace::{Trace, ignore_progress};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

#[test]
fn parquet_exports_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut writer = TraceWriter::create(&path, &TraceConfig::default()).unwrap();
    // More than one row group.
    let calls = 150_000_u64;
    for id in 0..calls {
        let call = EventKind::Call { function: 0x100 + id % 7, caller: 0, duration: 500, extent: Extent::Whole };
        writer.event((id % 3) as u32, 1_000_000 + id * 1000, call).unwrap();
    }
    let held = EventKind::Held { object: ObjectKind::Mutex, lock: u64::MAX, site: 0x201, wait: 40, hold: 60 };
    writer.event(0, 1_000_000_000, held).unwrap();
    writer.event(0, 1_000_000_001, EventKind::RequestEnd { id: u64::MAX - 1 }).unwrap();
    writer.finish(1_000_000_002).unwrap();

    let trace = Trace::open(&path, &mut ignore_progress).unwrap();
    let mut symbols = Symbols::new(&trace, symbols::Options::default());
    let file = folder.path().join("trace.parquet");
    let options = Options { selection: Selection::Marked, slower_than: 0 };
    let mut out = File::create(&file).unwrap();
    export(&trace, &mut symbols, Format::Parquet, &options, &mut out, &mut ignore_progress).unwrap();

    let reader = SerializedFileReader::new(File::open(&file).unwrap()).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows() as u64, calls + 2);
    assert_eq!(reader.num_row_groups(), 2);
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let text = |row: usize, column: usize| rows[row].get_string(column).unwrap().as_str();
    let number = |row: usize, column: usize| rows[row].get_long(column).unwrap();
    assert_eq!((text(8, 0), text(8, 1), text(8, 5)), ("thread #2", "call", "0x101"));
    // Relative to the start of the trace, which is the start of the first call.
    assert_eq!((number(8, 2), number(8, 3)), (8000, 8500));
    assert!(rows[8].get_string(6).is_err() && rows[8].get_ulong(8).is_err(), "there is none: null");
    let (held, end) = (calls as usize, calls as usize + 1);
    assert_eq!((text(held, 1), text(held, 5), text(held, 6)), ("held", "mutex", "0x200"));
    assert_eq!((number(held, 4), rows[held].get_ulong(7).unwrap()), (40, u64::MAX));
    assert_eq!((text(end, 1), rows[end].get_ulong(8).unwrap()), ("request end", u64::MAX - 1));
}
