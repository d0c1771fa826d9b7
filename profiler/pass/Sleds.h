// Two bodies of a function: its own, with a nop at its entry, and a twin that is instrumented. While something records, the run-time makes a
// jump of the nop (`rt/sleds.c`). How the twin is instrumented is the engines' business.
#pragma once

#include "llvm/IR/Module.h"

namespace leeward {

/// Whether functions of this module can have twins at all.
bool mayHaveTwins(const llvm::Module &M);

/// Whether this one can: two copies of its body mean the same, and nothing else comes first at its entry.
bool mayHaveTwin(const llvm::Function &F);

/// Copies `F`, puts the nop in front of `F` and both addresses into the module's table. The copy.
llvm::Function *makeTwin(llvm::Function &F);

} // namespace leeward
