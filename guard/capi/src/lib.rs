//! `libleeward`: the gate and the locks with budgets for servers in C and C++.
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
