//! Wrappers of compilers: `leeward cc`, `leeward c++` and `leeward cargo` run the real ones with
//! the profiler's plugin and run-time added.
//!
//! For the commands `leeward cc`, `c++` and `cargo`. Entry points: [`clang::compile`] and
//! [`cargo::cargo`].
//!
//! - [`clang`]: finds the profiler's files and clang, and runs clang. [`cargo`]: runs cargo.
//! - `arguments`: conversion of clang's command line. `response`: the response files that it names.
//!
//! # Example
//! ```
//! use leeward_compilers::cargo::cargo;
//!
//! // The call returns only if cargo can't be run: rustc does not use clang.
//! let error = cargo(vec!["--leeward-clang=clang".into(), "build".into()]);
//! assert!(error.to_string().contains("cargo does not use clang"));
//! ```
//!
//! Does not contain the plugin and the run-time (`profiler/pass`, `profiler/rt`), or the reading of
//! traces (`leeward-profile`).

#![forbid(unsafe_code)]

mod arguments;
pub mod cargo;
pub mod clang;
mod response;

pub use arguments::Language;

/// Reason why the real compiler could not be run: something is missing, or an option is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrapError(String);

impl WrapError {
    /// Creates an error: `action` failed because of `cause`.
    fn because(action: impl std::fmt::Display, cause: impl std::fmt::Display) -> Self {
        WrapError(format!("{action}: {cause}"))
    }
}
