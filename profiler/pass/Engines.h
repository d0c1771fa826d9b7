// The engines' and the requests' instrumentation, one function each. What they leave in a program is described in
// `rt/abi.h`, the other end of it.
#pragma once

#include "Bounds.h"

#include "llvm/IR/Module.h"

namespace leeward {

/// `tick`: the clock is read on entry and on every exit of `Body`; if it moved on, the run-time is told of `F`, which is `Body` or has it for its
/// twin.
void instrumentTick(llvm::Function &Body, llvm::Function &F, Bounds &Bounded);

/// `scan`: an entry {function, generation} on the thread's shadow stack while the function runs.
void instrumentScan(llvm::Function &Body, llvm::Function &F);

/// Requests by name: calls of the run-time at the begin and the end of each function that was named.
/// Returns whether anything changed.
bool instrumentRequests(llvm::Module &M);

/// Whether this code can only end up in the main program, so that its symbols are reached without the GOT.
bool isOfMainProgram(const llvm::Module &M);

/// Whether an exception or a panic may pass through. C code has no personality routine that would have to be linked: C++ and Rust only.
bool mayUnwind(const llvm::Function &F);

} // namespace leeward
