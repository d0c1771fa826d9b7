// Instrumentation by the engines and for requests, one function each. `rt/abi.h`, the other end of
// the interface, describes what they add to a program.
#pragma once

#include "Bounds.h"

#include "llvm/IR/Module.h"

namespace leeward {

/// Instruments `Body` for the `tick` engine: it reads the clock on entry and on every exit.
///
/// If the clock has moved, `Body` reports a call of `F` to the run-time. `F` is `Body` itself, or
/// the function whose instrumented copy (twin) is `Body`.
void instrumentTick(llvm::Function &Body, llvm::Function &F, Bounds &Bounded);

/// Instruments `Body` for the `scan` engine: while it runs, the thread's shadow stack has an entry
/// {`F`, generation}.
void instrumentScan(llvm::Function &Body, llvm::Function &F);

/// Adds calls of the run-time at the begin and the end of each function that `RequestFunctions`
/// names. Returns true if it changed the module.
bool instrumentRequests(llvm::Module &M);

/// True if `M` can only become part of the main program. Its code then reaches symbols without the
/// GOT.
bool isOfMainProgram(const llvm::Module &M);

/// True if an exception or a panic may unwind `F`. Functions of C++ and Rust only: C code does not
/// link the personality routine that a handler needs.
bool mayUnwind(const llvm::Function &F);

} // namespace leeward
