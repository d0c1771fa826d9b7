//! `leeward cargo`: cargo with the profiler's plugin and run-time.

use std::ffi::OsString;

use crate::commands::compile::MissingCompiler;

/// Build Rust for the profiler: cargo with the profiler's rustc plugin and run-time
///
/// Needs the plugin for the LLVM of the installed rustc, and fails with a message without it.
/// Enables rustc's unstable options for the plugin. The programs are in target/TRIPLE/, and record
/// nothing until LEEWARD_PROFILE or `leeward profile` starts a recording.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, after_help = CARGO)]
pub(crate) struct CargoArgs {
    /// Arguments of cargo
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

const CARGO: &str = "\
Examples:
  leeward cargo build --release
  leeward cargo --leeward-request-fn='server::handle*' build --release

Leeward's own options, here or in LEEWARD_CC_OPTIONS: those of `leeward help cc`, except --leeward-clang.";

/// Runs cargo; returns only if cargo cannot be run.
pub(crate) fn cargo(args: CargoArgs) -> MissingCompiler {
    MissingCompiler::from_exec(args.arguments, leeward_compilers::cargo::cargo)
}
