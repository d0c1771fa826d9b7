//! `leeward cc` and `leeward c++`: clang with the profiler's plugin and run-time.

use std::ffi::OsString;

use anyhow::anyhow;
use leeward_compilers::{Language, clang};

use crate::args;
use crate::failure::Failure;

/// Compile as clang does, for the profiler: in the place of the compiler of make, CMake or configure
///
/// Adds the profiler's plugin when it compiles and its run-time when it links; everything else is clang's. The program
/// records nothing until LEEWARD_PROFILE or `leeward profile` says so. Options of ours begin with --leeward-.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, after_help = COMPILER)]
pub(crate) struct CompilerArgs {
    /// The compiler's arguments
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

const COMPILER: &str = "\
Examples:
  make CC='leeward cc' CXX='leeward c++'
  CC='leeward cc' ./configure && make
  cmake -DCMAKE_C_COMPILER=leeward -DCMAKE_C_COMPILER_ARG1=cc …
  leeward cc -O2 -g server.c -o server && LEEWARD_PROFILE=on ./server

Options of ours, here or in LEEWARD_CC_OPTIONS:
  --leeward-engine=tick|scan|none         how calls are timed
  --leeward-request-fn=NAME[:N]           each call of NAME is a request, its id argument N (from 0) or a counter
  --leeward-exclude=PATTERN[,…]           functions to leave alone, by name; --leeward-exclude-file= by source file,
                                          --leeward-exclude-list= by a file of `fun:PATTERN` and `src:PATTERN`
  --leeward-min-instructions=N            functions without calls and loops and with fewer instructions are left alone
  --leeward-unwind=true|false             measure functions left by a C++ exception, too
  --leeward-clang=PATH                    another clang of the plugin's version";

/// The command: only comes back if clang can't be run.
pub(crate) fn compile(language: Language, args: CompilerArgs) -> Result<(), Failure> {
    let wants_help = args::is_help(&args.arguments);
    let error = clang::compile(language, args.arguments);
    let name = if language == Language::C { "cc" } else { "c++" };
    if wants_help { args::help_instead(name, &error) } else { Err(Failure::Input(anyhow!(error))) }
}
