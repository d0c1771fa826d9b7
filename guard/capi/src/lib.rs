//! `libleeward`: the gate and the locks with budgets for servers in C and C++.
//!
//! For servers in C and C++; a Rust program uses `leeward-gate` itself. Entry points:
//! `lw_gate_new`, `lw_arrive`, and the locks.
//!
//! The interface is `include/leeward.h`, which cbindgen writes from this crate; the guide is
//! `docs/c.md`.
//!
//! - `border`: the functions that C calls, and their structures. The only unsafe code.
//! - `gates`, `slots`, `request`: gates in a table of fixed size, and permits by numbers that are
//!   never valid twice.
//! - `locks`: locks that know their holder.
//! - `stamp`: the kernel's receive time of a connection's bytes.
//! - `report`: counters, explanations and the admin port.
//! - `status`: result codes. A panic becomes one, so none leaves the library.
//! - `thread`, `fork`, `log`: the calling thread's request; child processes; messages.
//!
//! # Example
//! ```
//! use std::ffi::CStr;
//!
//! // `leeward.h` has the same functions for C.
//! assert!(leeward_capi::lw_version() > 0);
//! let text = leeward_capi::lw_strerror(0);
//! // SAFETY: the text is a constant of the library, and ends with a zero byte.
//! let text = unsafe { CStr::from_ptr(text) };
//! assert!(!text.is_empty());
//! ```
//!
//! Does not contain decisions about requests (`leeward-gate`), or waiting (`leeward-runtime`).

mod border;
mod fork;
mod gates;
mod locks;
mod log;
mod report;
mod request;
mod settings;
mod slots;
mod stamp;
mod status;
mod thread;

pub use border::*;
