//! A table as a Parquet file; equal tables give equal bytes.
//!
//! The file's metadata has a checksum of its rows: Parquet's pages have none of their own here.
//!
//! The file is written under a temporary name and then renamed, so that an existing file is always
//! complete.

use super::{Column, Table, Texts, Values};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Key of the checksum in the metadata.
const CHECKSUM: &str = "leeward.crc32c";

/// Writes `table` to `path`.
pub(super) fn write(table: &Table, path: &Path) -> Result<(), ParquetError> {
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    let written = whole(table, &partial).and_then(|()| Ok(std::fs::rename(&partial, path)?));
    written.inspect_err(|_| drop(std::fs::remove_file(&partial))) // best effort: only the first error is reported
}

fn whole(table: &Table, path: &Path) -> Result<(), ParquetError> {
    let fields = table.columns.iter().map(|column| field(column)).collect::<Result<Vec<TypePtr>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(File::create(path)?, schema, properties)?;
    let mut group = writer.next_row_group()?;
    for column in table.columns.iter() {
        write_column(&mut group, column)?;
    }
    group.close()?;
    let sum = checksum(table.columns.iter().map(Arc::as_ref));
    writer.append_key_value_metadata(KeyValue::new(CHECKSUM.into(), sum));
    writer.into_inner()?.sync_all()?;
    Ok(())
}

/// The type of a column. Every field is optional: a sweep's files have the same columns, even if a
/// part of the sweep does not use them.
fn field(column: &Column) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match column.values {
        Values::Float(_) => (Physical::DOUBLE, None),
        Values::Whole(_) => (Physical::INT64, None),
        Values::Flag(_) => (Physical::BOOLEAN, None),
        Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let builder = Type::primitive_type_builder(&column.name, physical).with_repetition(Repetition::OPTIONAL);
    Ok(Arc::new(builder.with_logical_type(logical).build()?))
}

fn write_column(group: &mut SerializedRowGroupWriter<'_, File>, column: &Column) -> Result<(), ParquetError> {
    let rows = 0..column.len();
    let levels: Vec<i16> = rows.clone().map(|row| i16::from(column.has(row))).collect();
    let rows = rows.filter(|row| column.has(*row));
    match &column.values {
        Values::Float(values) => next::<DoubleType>(group, &rows.map(|row| values[row]).collect::<Vec<_>>(), &levels),
        Values::Whole(values) => next::<Int64Type>(group, &rows.map(|row| values[row]).collect::<Vec<_>>(), &levels),
        Values::Flag(values) => next::<BoolType>(group, &rows.map(|row| values[row] != 0).collect::<Vec<_>>(), &levels),
        Values::Text(texts) => {
            let values: Vec<ByteArray> = rows.map(|row| ByteArray::from(texts.get(row))).collect();
            next::<ByteArrayType>(group, &values, &levels)
        }
    }
}

/// Writes the next column of the row group.
fn next<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    levels: &[i16],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(values, Some(levels), None)?;
    column.close()
}

/// Reads and concatenates files that [`write`] wrote.
pub(super) fn read(paths: &[PathBuf]) -> Result<Table, (PathBuf, ParquetError)> {
    let mut all: Vec<Column> = Vec::new();
    for path in paths {
        let columns = file(path).map_err(|error| (path.clone(), error))?;
        let differ = || (path.clone(), ParquetError::General("other columns than the file before it".into()));
        if all.is_empty() {
            all = columns;
        } else if all.len() != columns.len()
            || !all.iter_mut().zip(columns).all(|(column, more)| column.name == more.name && column.append(more))
        {
            return Err(differ());
        }
    }
    Ok(Table::new(all))
}

/// Reads a file. The reader may panic on a damaged one.
fn file(path: &Path) -> Result<Vec<Column>, ParquetError> {
    let read = catch_unwind(AssertUnwindSafe(|| columns(path)));
    read.unwrap_or_else(|_| Err(ParquetError::General("the file is damaged".into())))
}

/// CRC-32C of names, presence and values, in hexadecimal digits.
fn checksum<'a>(columns: impl Iterator<Item = &'a Column>) -> String {
    let mut sum = 0;
    let mut add = |bytes: &[u8]| sum = crc32c::crc32c_append(sum, bytes);
    for column in columns {
        add(column.name.as_bytes());
        for row in 0..column.len() {
            add(&[u8::from(column.has(row))]);
            if !column.has(row) {
                continue;
            }
            match &column.values {
                Values::Float(values) => add(&values[row].to_bits().to_le_bytes()),
                Values::Whole(values) => add(&values[row].to_le_bytes()),
                Values::Flag(values) => add(&values[row..=row]),
                Values::Text(texts) => add(texts.get(row).as_bytes()),
            }
        }
    }
    format!("{sum:08x}")
}

fn columns(path: &Path) -> Result<Vec<Column>, ParquetError> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let mut columns = Vec::new();
    for (index, column) in schema.columns().iter().enumerate() {
        let mut whole: Option<Column> = None;
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            let rows = group.metadata().num_rows() as usize;
            let part = column_of(column.name(), group.get_column_reader(index)?, rows)?;
            match &mut whole {
                None => whole = Some(part),
                Some(whole) => drop(whole.append(part)),
            }
        }
        columns.extend(whole);
    }
    let pairs = reader.metadata().file_metadata().key_value_metadata();
    let sum = pairs.into_iter().flatten().find(|pair| pair.key == CHECKSUM);
    if sum.is_none_or(|sum| sum.value.as_ref() != Some(&checksum(columns.iter()))) {
        return Err(ParquetError::General("the file is damaged, or none that this version wrote".into()));
    }
    Ok(columns)
}

fn column_of(name: &str, reader: ColumnReader, rows: usize) -> Result<Column, ParquetError> {
    let (values, present) = match reader {
        ColumnReader::DoubleColumnReader(reader) => {
            let (values, present) = typed(reader, rows)?;
            (Values::Float(spread(values, &present)), present)
        }
        ColumnReader::Int64ColumnReader(reader) => {
            let (values, present) = typed(reader, rows)?;
            (Values::Whole(spread(values, &present)), present)
        }
        ColumnReader::BoolColumnReader(reader) => {
            let (values, present) = typed(reader, rows)?;
            (Values::Flag(spread(values.into_iter().map(u8::from).collect(), &present)), present)
        }
        ColumnReader::ByteArrayColumnReader(reader) => {
            let (values, present) = typed(reader, rows)?;
            let (mut texts, mut values) = (Texts::default(), values.into_iter());
            for present in &present {
                let value = if *present { values.next() } else { None };
                texts.push(value.as_ref().map_or(Ok(""), |value| value.as_utf8())?);
            }
            (Values::Text(texts), present)
        }
        _ => return Err(ParquetError::General(format!("column {name}: a type that no sweep writes"))),
    };
    Ok(Column { name: name.into(), values, present: Some(present).filter(|present| present.contains(&false)) })
}

/// Returns the present values, and the presence of each row.
fn typed<T: DataType>(mut reader: ColumnReaderImpl<T>, rows: usize) -> Result<(Vec<T::T>, Vec<bool>), ParquetError> {
    let (mut values, mut present) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    while present.len() < rows {
        let (read, _, _) = reader.read_records(rows - present.len(), Some(&mut present), None, &mut values)?;
        if read == 0 {
            return Err(ParquetError::General("fewer rows than the file says".into()));
        }
    }
    Ok((values, present.into_iter().map(|level: i16| level > 0).collect()))
}

/// Places values at their rows; rows without one get the default.
fn spread<T: Default>(values: Vec<T>, present: &[bool]) -> Vec<T> {
    let mut values = values.into_iter();
    present.iter().map(|present| if *present { values.next().unwrap_or_default() } else { T::default() }).collect()
}
