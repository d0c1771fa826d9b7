//! Compilers in whose place `leeward cc`, `leeward c++` and `leeward cargo` stand: they run the real ones, with the
//! profiler's plugin and run-time added.
//!
//! - [`clang`]: finds the profiler's files and clang, and becomes clang. [`cargo`]: becomes cargo.
//! - `arguments`: what clang's command line becomes, as a function of it. `response`: the files that it names.
//!
//! Never here: the plugin and the run-time (`profiler/pass`, `profiler/rt`), reading traces (`leeward-profile`).

#![forbid(unsafe_code)]

mod arguments;
pub mod cargo;
pub mod clang;
mod response;

pub use arguments::Language;

/// Why the real compiler could not be run: something is missing, or an option is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrapError(String);

impl WrapError {
    /// `doing` failed because of `cause`.
    fn because(doing: impl std::fmt::Display, cause: impl std::fmt::Display) -> Self {
        WrapError(format!("{doing}: {cause}"))
    }
}
