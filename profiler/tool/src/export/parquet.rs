//! Export as Parquet: a row per event, in the order of time, with the columns of the CSV export.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::rows::EventRow;
use super::{Attempt, ExportError, watching};
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace};

/// Times are in nanoseconds from the start of the trace; missing values are null.
const SCHEMA: &str = "message event {
    required binary thread (UTF8);
    required binary kind (UTF8);
    required int64 start_ns;
    required int64 end_ns;
    required int64 wait_ns;
    optional binary name (UTF8);
    optional binary place (UTF8);
    optional int64 object (INTEGER(64, false));
    optional int64 id (INTEGER(64, false));
    optional int64 cpu;
}";
/// Rows that are buffered and written together: some 30 MB.
const GROUP: usize = 1 << 17;

/// Bytes between the Parquet writer and the export's output.
///
/// The writer requires a `Send` output, and an export's output is not always `Send`.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The buffered rows, by column.
#[derive(Default)]
struct Columns {
    threads: Vec<ByteArray>,
    kinds: Vec<ByteArray>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    waits: Vec<i64>,
    names: OptionalColumn<ByteArray>,
    locations: OptionalColumn<ByteArray>,
    objects: OptionalColumn<i64>,
    ids: OptionalColumn<i64>,
    cpus: OptionalColumn<i64>,
}

/// The existing values, and a definition level per row: 1 with a value, 0 without.
struct OptionalColumn<T> {
    values: Vec<T>,
    definition_levels: Vec<i16>,
}

impl<T> Default for OptionalColumn<T> {
    fn default() -> OptionalColumn<T> {
        OptionalColumn { values: Vec::new(), definition_levels: Vec::new() }
    }
}

impl<T> OptionalColumn<T> {
    fn push(&mut self, value: Option<T>) {
        self.definition_levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

fn text(text: String) -> Option<ByteArray> {
    (!text.is_empty()).then(|| ByteArray::from(text.into_bytes()))
}

impl Columns {
    /// Adds a row. `zero` is the start of the trace. Numbers above `i64::MAX` keep their bits.
    fn push(&mut self, thread: &str, row: EventRow, end: u64, zero: u64) {
        self.threads.push(ByteArray::from(thread));
        self.kinds.push(ByteArray::from(row.kind));
        self.starts.push(row.start.saturating_sub(zero) as i64);
        self.ends.push(end.saturating_sub(zero) as i64);
        self.waits.push(row.wait as i64);
        self.names.push(text(row.name));
        self.locations.push(text(row.location));
        self.objects.push((row.object != 0).then_some(row.object as i64));
        self.ids.push(row.id.map(|id| id as i64));
        self.cpus.push(row.cpu.map(i64::from));
    }

    fn write(&self, mut group: SerializedRowGroupWriter<'_, SharedBuffer>) -> Result<(), ParquetError> {
        let all = None;
        column::<ByteArrayType>(&mut group, &self.threads, all)?;
        column::<ByteArrayType>(&mut group, &self.kinds, all)?;
        column::<Int64Type>(&mut group, &self.starts, all)?;
        column::<Int64Type>(&mut group, &self.ends, all)?;
        column::<Int64Type>(&mut group, &self.waits, all)?;
        column::<ByteArrayType>(&mut group, &self.names.values, Some(&self.names.definition_levels))?;
        column::<ByteArrayType>(&mut group, &self.locations.values, Some(&self.locations.definition_levels))?;
        column::<Int64Type>(&mut group, &self.objects.values, Some(&self.objects.definition_levels))?;
        column::<Int64Type>(&mut group, &self.ids.values, Some(&self.ids.definition_levels))?;
        column::<Int64Type>(&mut group, &self.cpus.values, Some(&self.cpus.definition_levels))?;
        group.close().map(|_| ())
    }
}

/// Writes the next column of a group.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, SharedBuffer>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

pub(super) fn export(
    trace: &Trace,
    symbols: &mut Symbols,
    out: &mut dyn Write,
    watch: &mut ProgressCallback<'_>,
) -> Result<(), ExportError> {
    let schema = Arc::new(parse_message_type(SCHEMA).map_err(io::Error::other)?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let written = SharedBuffer::default();
    let mut writer = SerializedFileWriter::new(written.clone(), schema, properties).map_err(io::Error::other)?;
    let zero = trace.counts().first;
    let failed = Cell::new(false);
    let mut attempt = Attempt::new();
    let mut columns = Columns::default();
    let mut put = |columns: &mut Columns| {
        let columns = std::mem::take(columns);
        writer.next_row_group().and_then(|group| columns.write(group)).map_err(io::Error::other)?;
        out.write_all(&written.take())
    };
    let read = trace.in_order(
        &mut watching(watch, &failed),
        |_| true,
        |event| {
            if failed.get() {
                return;
            }
            columns.push(&trace.thread_name(event.thread), EventRow::from_event(event, symbols), event.time, zero);
            if columns.kinds.len() >= GROUP {
                attempt.run(|| put(&mut columns));
                failed.set(attempt.failed());
            }
        },
    );
    if read.is_ok() {
        attempt.run(|| if columns.kinds.is_empty() { Ok(()) } else { put(&mut columns) });
        attempt.run(|| writer.close().map(|_| ()).map_err(io::Error::other));
        attempt.run(|| out.write_all(&written.take()));
    }
    attempt.finish(read)
}
