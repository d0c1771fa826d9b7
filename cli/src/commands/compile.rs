//! `leeward cc` and `leeward c++`: clang with the profiler's plugin and run-time.

use std::ffi::OsString;

use leeward_compilers::{Language, clang};

/// Compile for the profiler: replaces the compiler of make, CMake or configure
///
/// Runs clang, with the profiler's plugin when it compiles and with the run-time when it links. The
/// program records nothing until LEEWARD_PROFILE or `leeward profile` starts a recording. Leeward's
/// own options begin with --leeward-.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, after_help = COMPILER)]
pub(crate) struct CompilerArgs {
    /// Arguments of the compiler
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

const COMPILER: &str = "\
Examples:
  make CC='leeward cc' CXX='leeward c++'
  CC='leeward cc' ./configure && make
  cmake -DCMAKE_C_COMPILER=leeward -DCMAKE_C_COMPILER_ARG1=cc …
  leeward cc -O2 -g server.c -o server && LEEWARD_PROFILE=on ./server

Leeward's own options, here or in LEEWARD_CC_OPTIONS:
  --leeward-engine=tick|scan|none         how calls are timed
  --leeward-request-fn=NAME[:N]           each call of NAME is a request, its id argument N (from 0) or a counter
  --leeward-exclude=PATTERN[,…]           functions that are not instrumented, by name; --leeward-exclude-file= by source file,
                                          --leeward-exclude-list= by a file of `fun:PATTERN` and `src:PATTERN`
  --leeward-min-instructions=N            functions without calls and loops and with fewer instructions are not instrumented
  --leeward-unwind=true|false             also measure functions that a C++ exception leaves
  --leeward-clang=PATH                    another clang of the plugin's version";

/// Failure to run a compiler.
#[derive(Debug)]
pub(crate) struct MissingCompiler {
    /// True if only the compiler's help was requested.
    pub(crate) wants_help: bool,
    /// Reason of the failure.
    pub(crate) error: anyhow::Error,
}

impl MissingCompiler {
    /// Calls `run`, which replaces this process by the compiler and returns only on failure.
    pub(crate) fn from_exec<E: Into<anyhow::Error>>(
        arguments: Vec<OsString>,
        run: impl FnOnce(Vec<OsString>) -> E,
    ) -> MissingCompiler {
        let wants_help = matches!(&arguments[..], [only] if only == "--help" || only == "-h");
        MissingCompiler { wants_help, error: run(arguments).into() }
    }
}

/// Runs clang; returns only if clang cannot be run.
pub(crate) fn compile(language: Language, args: CompilerArgs) -> MissingCompiler {
    MissingCompiler::from_exec(args.arguments, |arguments| clang::compile(language, arguments))
}
