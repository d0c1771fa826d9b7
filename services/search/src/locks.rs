//! The locks of this service, in one place: which kind they are is decided here. All of them tell how long one waits for
//! them and refuse a search that can't wait that long; see `index` for what each guards.

pub use leeward_runtime::locks::Congested as Refused;
pub(super) use leeward_runtime::locks::Mutex as Lock;
