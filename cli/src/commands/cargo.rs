//! `leeward cargo`: cargo with the profiler's plugin and run-time.

use std::ffi::OsString;

use crate::commands::compile::MissingCompiler;

/// Build Rust for the profiler: cargo, with its plugin in rustc and its run-time in programs
///
/// Needs the plugin for the LLVM of the installed rustc, and says so where it isn't; rustc's
/// unstable options are unlocked for it. The programs are in target/TRIPLE/, and record nothing
/// until LEEWARD_PROFILE or `leeward profile` says so.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, after_help = CARGO)]
pub(crate) struct CargoArgs {
    /// cargo's arguments
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

const CARGO: &str = "\
Examples:
  leeward cargo build --release
  leeward cargo --leeward-request-fn='server::handle*' build --release

Options of ours, here or in LEEWARD_CC_OPTIONS: those of `leeward help cc`, except --leeward-clang.";

/// Runs cargo; returns only if cargo cannot be run.
pub(crate) fn cargo(args: CargoArgs) -> MissingCompiler {
    MissingCompiler::from_exec(args.arguments, leeward_compilers::cargo::cargo)
}
