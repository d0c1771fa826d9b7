//! The functions that C calls, and their structures. Does not contain decisions: each function
//! checks its pointers, and calls safe code.
//!
//! Common rules for C programs: a pointer is NULL or points to a valid object of its type, which
//! nothing else changes during the call. Texts end with a zero byte.
#![allow(unsafe_code)]

pub(crate) mod cancel;
mod gate;
mod lock_types;
mod mutex;
mod pointers;
mod receive;
mod request;
mod rwlock;
mod semaphore;
pub(crate) mod sleeps;
mod types;

pub use gate::*;
pub use mutex::*;
pub use receive::*;
pub use request::*;
pub use rwlock::*;
pub use semaphore::*;
pub use types::*;

pub use crate::stamp::Stamp;
