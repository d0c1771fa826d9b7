// Two bodies of a function: its own, with a nop at its entry, and an instrumented copy (twin).
// While something records, the run-time replaces the nop by a jump (`rt/sleds.c`). The engines
// decide how the twin is instrumented.
#pragma once

#include "llvm/IR/Module.h"

namespace leeward {

/// True if functions of this module can have twins.
bool mayHaveTwins(const llvm::Module &M);

/// True if `F` can have a twin: two copies of its body do the same, and nothing else comes first at
/// its entry.
bool mayHaveTwin(const llvm::Function &F);

/// Copies `F`, puts the nop in front of `F` and both addresses into the module's table. Returns the
/// copy.
llvm::Function *makeTwin(llvm::Function &F);

} // namespace leeward
