// Options of the plugin on the command line (`-mllvm -leeward-…`), and their values. No decisions here.
#pragma once

#include "llvm/Support/CommandLine.h"

#include <string>

namespace leeward {

/// How a function's time is taken.
enum class Engine { None, Tick, Scan };

extern llvm::cl::opt<Engine> EngineOption;
/// Functions without calls and loops and with fewer instructions than this can't be slow, and aren't instrumented.
extern llvm::cl::opt<unsigned> MinimumInstructions;
/// Functions that execute at most so many can't be slow either, with all that they call.
extern llvm::cl::opt<unsigned> BoundedInstructions;
/// Names (patterns) that are left alone.
extern llvm::cl::list<std::string> ExcludedFunctions;
/// Source files (patterns) that are left alone.
extern llvm::cl::list<std::string> ExcludedFiles;
/// Files in the format of sanitizers' special case lists: `fun:PATTERN`, `src:PATTERN`.
extern llvm::cl::list<std::string> ExclusionLists;
/// Only functions that the front end marked for -finstrument-functions-after-inlining, so that
/// `__attribute__((no_instrument_function))` counts. The marks are taken away.
extern llvm::cl::opt<bool> OnlyMarked;
/// Functions stay as they are but for a nop, which the run-time makes a jump to an instrumented twin while it records. Else they are
/// instrumented themselves.
extern llvm::cl::opt<bool> Patch;
/// Functions left by a C++ exception are measured too.
extern llvm::cl::opt<bool> MeasureUnwinding;
/// `NAME`, `NAME:N` or `NAME:N:L`: each call of it is a request, whose id is argument N (from 0) or, without N or with `-`, a counter, and
/// whose label is the text that argument L points to.
extern llvm::cl::list<std::string> RequestFunctions;

/// Takes options from LEEWARD_PASS_OPTIONS, one a line: for compilers that parse theirs before they load plugins. Once is enough.
void readEnvironment();

} // namespace leeward
