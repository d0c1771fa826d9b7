// Options of the plugin on the command line (`-mllvm -leeward-…`), and their values. Contains no
// decisions.
#pragma once

#include "llvm/Support/CommandLine.h"

#include <string>

namespace leeward {

/// Engine: the way in which a function's time is measured.
enum class Engine { None, Tick, Scan };

extern llvm::cl::opt<Engine> EngineOption;
/// Functions with fewer instructions, and without calls and loops, cannot be slow. They are not
/// instrumented.
extern llvm::cl::opt<unsigned> MinimumInstructions;
/// Functions that execute at most this many instructions, callees included, cannot be slow either.
extern llvm::cl::opt<unsigned> BoundedInstructions;
/// Names (patterns) of functions that are not instrumented.
extern llvm::cl::list<std::string> ExcludedFunctions;
/// Source files (patterns) whose functions are not instrumented.
extern llvm::cl::list<std::string> ExcludedFiles;
/// Files in the format of sanitizers' special case lists: `fun:PATTERN`, `src:PATTERN`.
extern llvm::cl::list<std::string> ExclusionLists;
/// Instruments only functions that the front end marked for -finstrument-functions-after-inlining,
/// so that `__attribute__((no_instrument_function))` counts. The pass removes the marks.
extern llvm::cl::opt<bool> OnlyMarked;
/// Instruments a copy (twin) of each function. The function itself only gets a nop at its entry,
/// which the run-time replaces by a jump to the twin while it records. If false, functions are
/// instrumented themselves.
extern llvm::cl::opt<bool> Patch;
/// Also measures calls that a C++ exception leaves.
extern llvm::cl::opt<bool> MeasureUnwinding;
/// `NAME`, `NAME:N` or `NAME:N:L`: each call of the function NAME is a request.
///
/// Argument N (from 0) is the request's id; without N, or with `-`, a counter is. Argument L points
/// to the text of its label.
extern llvm::cl::list<std::string> RequestFunctions;

/// Reads options from LEEWARD_PASS_OPTIONS, one per line. Compilers that parse their options before
/// they load plugins need this. Only the first call has an effect.
void readEnvironment();

} // namespace leeward
