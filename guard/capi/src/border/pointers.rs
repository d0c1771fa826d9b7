//! Reads and writes through pointers of C. Does not contain the functions that C calls.

use crate::status::Failure;
use std::ffi::{CStr, c_char, c_int};

/// Structure that begins with its size as a `u32`, and for which all bytes zero are a value.
///
/// # Safety
/// The type is `repr(C)`, its first member is the size, and any bytes are a valid value of it.
pub(crate) unsafe trait Sized32: Copy {
    /// Size in the first version of the library.
    const FIRST_SIZE: usize;
}

/// Largest size of a structure of any version.
const SIZE_MAX: usize = 1_024;

/// Reads a structure. An older program's is shorter: the rest is zero. A newer program's is longer:
/// the rest must be zero.
///
/// # Safety
/// `from` is NULL or points to as many readable bytes as its first member says.
#[inline]
pub(crate) unsafe fn read_sized<T: Sized32>(from: *const T) -> Result<T, Failure> {
    if from.is_null() || !from.is_aligned() {
        return Err(Failure::Argument);
    }
    // SAFETY: not NULL and aligned; the caller promises at least the size itself.
    let size = unsafe { from.cast::<u32>().read() } as usize;
    if size == size_of::<T>() {
        // SAFETY: the caller promises `size` bytes, and any bytes are a value (`Sized32`).
        return Ok(unsafe { from.read() });
    }
    if !(T::FIRST_SIZE..=SIZE_MAX).contains(&size) {
        return Err(Failure::Size);
    }
    // SAFETY: the caller promises `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    if bytes.iter().skip(size_of::<T>()).any(|byte| *byte != 0) {
        return Err(Failure::Size);
    }
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both have `min` bytes, and a new value doesn't overlap; all bytes are initialized,
    // and any bytes are a value.
    unsafe {
        value.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), size.min(size_of::<T>()));
        Ok(value.assume_init())
    }
}

/// Writes a value.
///
/// # Safety
/// `to` is NULL or points to writable memory for a `T`.
#[inline]
pub(crate) unsafe fn write<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() || !to.is_aligned() {
        return Err(Failure::Argument);
    }
    // SAFETY: not NULL, aligned, and writable by the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// Reads a value.
///
/// # Safety
/// `from` is NULL or points to an initialized `T`.
#[inline]
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Result<T, Failure> {
    if from.is_null() || !from.is_aligned() {
        return Err(Failure::Argument);
    }
    // SAFETY: not NULL, aligned, and initialized by the caller's promise.
    Ok(unsafe { from.read() })
}

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: the thread's own number.
    unsafe { *libc::__errno_location() = error };
}

/// Reads a text; NULL is empty.
///
/// # Safety
/// `from` is NULL or points to a text that ends with a zero byte, and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(from: *const c_char) -> Result<&'a str, Failure> {
    if from.is_null() {
        return Ok("");
    }
    // SAFETY: the caller promises a text that ends.
    unsafe { CStr::from_ptr(from) }.to_str().map_err(|_| Failure::Argument)
}

/// Writes as much of a text as fits, and a zero byte. Returns the bytes of the whole text.
///
/// # Safety
/// `to` points to `length` writable bytes; with `length` 0, any pointer does.
pub(crate) unsafe fn write_text(to: *mut c_char, length: usize, text: &str) -> Result<i32, Failure> {
    if length > 0 {
        if to.is_null() {
            return Err(Failure::Argument);
        }
        let fits = text.len().min(length - 1);
        // SAFETY: the caller promises `length` bytes, of which `fits` and one more are written.
        unsafe {
            to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), fits);
            to.add(fits).write(0);
        }
    }
    i32::try_from(text.len()).map_err(|_| Failure::Limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::border::types::{Arrival, Options};
    use proptest::prelude::*;

    #[test]
    fn older_and_newer_structures_are_read() {
        #[repr(C)]
        struct Newer {
            arrival: Arrival,
            further: u64,
        }
        let size = size_of::<Newer>() as u32;
        let mut newer = Newer { arrival: Arrival { size, tenant: 7, ..Arrival::UNKNOWN }, further: 0 };
        // SAFETY: `size` says how many bytes there are.
        let read = |newer: &Newer| unsafe { read_sized(std::ptr::from_ref(newer).cast::<Arrival>()) };
        assert_eq!(read(&newer).map(|arrival| arrival.tenant), Ok(7));
        newer.further = 1;
        assert_eq!(read(&newer).err(), Some(Failure::Size), "an unknown setting is not ignored");
        for size in [0, 4, 8, 1_025, u32::MAX] {
            newer.arrival.size = size;
            assert_eq!(read(&newer).err(), Some(Failure::Size));
        }
        // SAFETY: NULL, and an address that is never read because it is not aligned.
        unsafe {
            assert_eq!(read_sized(std::ptr::null::<Options>()).err(), Some(Failure::Argument));
            assert_eq!(read_sized(std::ptr::without_provenance::<Options>(3)).err(), Some(Failure::Argument));
        }
    }

    proptest! {
        #[test]
        fn a_text_is_cut_to_the_buffer(text in "\\PC{0,40}", length in 0_usize..48) {
            let mut buffer = vec![b'!' as c_char; length];
            // SAFETY: the buffer has `length` bytes.
            let whole = unsafe { write_text(buffer.as_mut_ptr(), length, &text) };
            prop_assert_eq!(whole, Ok(text.len() as i32));
            let written: Vec<u8> = buffer.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
            let fits = text.len().min(length.saturating_sub(1));
            prop_assert_eq!(&written, &text.as_bytes()[..fits]);
        }
    }
}
