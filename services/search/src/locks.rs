//! The type of this service's locks. They measure their waiting time and reject a search that can't
//! wait that long. `index` lists what each lock guards.

pub use leeward_runtime::locks::Congested as Refused;
pub(super) use leeward_runtime::locks::Mutex as Lock;
