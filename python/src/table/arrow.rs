//! Arrow's C data and stream interfaces, written by hand: three structures and their release
//! functions.
//!
//! Buffers are the table's own memory, which every array keeps alive. Only the bitmaps of presence
//! and of flags are allocated for an array.
//!
//! <https://arrow.apache.org/docs/format/CDataInterface.html>,
//! <https://arrow.apache.org/docs/format/CStreamInterface.html>

use super::{Column, Table, Values};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// `ARROW_FLAG_NULLABLE`.
const NULLABLE: i64 = 2;

#[repr(C)]
pub(crate) struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

#[repr(C)]
pub(crate) struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private_data: *mut c_void,
}

impl Array {
    /// A released array: the end of a stream.
    const RELEASED: Array = Array {
        length: 0,
        null_count: 0,
        offset: 0,
        n_buffers: 0,
        n_children: 0,
        buffers: null_mut(),
        children: null_mut(),
        dictionary: null_mut(),
        release: None,
        private_data: null_mut(),
    };
}

/// A stream of one batch.
#[repr(C)]
pub(crate) struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut Array) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

// SAFETY: its pointers lead to memory of its own, or to immutable memory that an `Arc` keeps alive.
unsafe impl Send for Stream {}

/// Private data of a stream.
struct Source {
    table: Table,
    done: bool,
}

/// Memory that a schema points to.
struct SchemaParts {
    _format: CString,
    _name: CString,
    children: Vec<*mut Schema>,
}

/// Memory that an array points to.
struct ArrayParts {
    _columns: Arc<Vec<Arc<Column>>>,
    _bits: Vec<Vec<u8>>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut Array>,
}

impl Stream {
    /// Exports all of `table` as one batch.
    pub(crate) fn of(table: &Table) -> Stream {
        let source = Box::new(Source { table: table.clone(), done: false });
        Stream {
            get_schema: Some(stream_schema),
            get_next: Some(stream_next),
            get_last_error: Some(stream_error),
            release: Some(stream_release),
            private_data: Box::into_raw(source).cast(),
        }
    }
}

impl Drop for Stream {
    /// Releases the stream if no consumer has taken it over; a consumer that released it has
    /// cleared `release`.
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: `release` is set, so the stream is valid.
            unsafe { release(self) }
        }
    }
}

unsafe extern "C" fn stream_schema(stream: *mut Stream, out: *mut Schema) -> c_int {
    // SAFETY: the consumer passes a stream that is not released, whose private data is a `Source`,
    // and memory for a schema.
    unsafe {
        let source = &*(*stream).private_data.cast::<Source>();
        let children = source.table.columns.iter().map(|column| schema(format_of(column), &column.name, Vec::new()));
        out.write(schema("+s", "", children.map(|child| Box::into_raw(Box::new(child))).collect()));
    }
    0
}

unsafe extern "C" fn stream_next(stream: *mut Stream, out: *mut Array) -> c_int {
    // SAFETY: as above, with memory for an array.
    unsafe {
        let source = &mut *(*stream).private_data.cast::<Source>();
        if std::mem::replace(&mut source.done, true) {
            out.write(Array::RELEASED);
        } else {
            out.write(batch(&source.table));
        }
    }
    0
}

unsafe extern "C" fn stream_error(_: *mut Stream) -> *const c_char {
    null()
}

unsafe extern "C" fn stream_release(stream: *mut Stream) {
    // SAFETY: called once, by the consumer or by `drop`, because `release` is cleared.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Source>()));
        (*stream).private_data = null_mut();
        (*stream).release = None;
    }
}

fn format_of(column: &Column) -> &'static str {
    match column.values {
        Values::Float(_) => "g",
        Values::Whole(_) => "l",
        Values::Flag(_) => "b",
        // 64-bit offsets, because a column of texts may be larger than 2 GB.
        Values::Text(_) => "U",
    }
}

fn schema(format: &str, name: &str, children: Vec<*mut Schema>) -> Schema {
    let format = CString::new(format).unwrap_or_default();
    let name = CString::new(name).unwrap_or_default(); // a name that contains NUL becomes empty
    let (format_at, name_at) = (format.as_ptr(), name.as_ptr());
    let mut parts = Box::new(SchemaParts { _format: format, _name: name, children });
    Schema {
        format: format_at,
        name: name_at,
        metadata: null(),
        flags: NULLABLE,
        n_children: parts.children.len() as i64,
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(schema_release),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn schema_release(schema: *mut Schema) {
    // SAFETY: called once for a schema that `schema` above has made; a child that was moved out has
    // no `release` any more.
    unsafe {
        let parts = Box::from_raw((*schema).private_data.cast::<SchemaParts>());
        for child in &parts.children {
            let mut child = Box::from_raw(*child);
            if let Some(release) = child.release {
                release(&raw mut *child);
            }
        }
        (*schema).release = None;
    }
}

/// Builds the struct array of all columns.
fn batch(table: &Table) -> Array {
    let children = table.columns.iter().map(|column| Box::into_raw(Box::new(of_column(&table.columns, column))));
    let children = children.collect();
    array(&table.columns, table.rows(), 0, vec![null()], Vec::new(), children)
}

fn of_column(columns: &Arc<Vec<Arc<Column>>>, column: &Column) -> Array {
    let rows = column.len();
    let absent = column.present.as_ref().map_or(0, |present| present.iter().filter(|has| !**has).count());
    let mut bits = Vec::new();
    let mut buffers: Vec<*const c_void> = Vec::new();
    let presence = column.present.as_ref().filter(|_| absent > 0).map(|present| packed(present, |has| *has));
    buffers.push(presence.as_ref().map_or(null(), |bits| bits.as_ptr().cast()));
    bits.extend(presence);
    match &column.values {
        Values::Float(values) => buffers.push(values.as_ptr().cast()),
        Values::Whole(values) => buffers.push(values.as_ptr().cast()),
        Values::Flag(values) => {
            let flags = packed(values, |value| *value != 0);
            buffers.push(flags.as_ptr().cast());
            bits.push(flags);
        }
        Values::Text(texts) => {
            buffers.extend([texts.begins.as_ptr().cast::<c_void>(), texts.bytes.as_ptr().cast()]);
        }
    }
    array(columns, rows, absent, buffers, bits, Vec::new())
}

/// Packs values into bits, least significant bit first.
fn packed<T>(values: &[T], is_set: impl Fn(&T) -> bool) -> Vec<u8> {
    let byte = |eight: &[T]| {
        let bits = eight.iter().enumerate().map(|(bit, value)| u8::from(is_set(value)) << bit);
        bits.fold(0, |all, bit| all | bit)
    };
    values.chunks(8).map(byte).collect()
}

fn array(
    columns: &Arc<Vec<Arc<Column>>>,
    rows: usize,
    absent: usize,
    buffers: Vec<*const c_void>,
    bits: Vec<Vec<u8>>,
    children: Vec<*mut Array>,
) -> Array {
    let mut parts = Box::new(ArrayParts { _columns: Arc::clone(columns), _bits: bits, buffers, children });
    Array {
        length: rows as i64,
        null_count: absent as i64,
        offset: 0,
        n_buffers: parts.buffers.len() as i64,
        n_children: parts.children.len() as i64,
        buffers: parts.buffers.as_mut_ptr(),
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(array_release),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn array_release(array: *mut Array) {
    // SAFETY: called once for an array that `array` above has made; a child that was moved out has
    // no `release` any more.
    unsafe {
        let parts = Box::from_raw((*array).private_data.cast::<ArrayParts>());
        for child in &parts.children {
            let mut child = Box::from_raw(*child);
            if let Some(release) = child.release {
                release(&raw mut *child);
            }
        }
        (*array).release = None;
    }
}
