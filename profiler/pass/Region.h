// Part of a function in which it may be slow.
#pragma once

#include "Bounds.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Function.h"

#include <optional>

namespace leeward {

/// Places at which the clock is read (`Begin`) and compared (`Ends`). A call that does not pass
/// `Begin` executes nothing that may last.
struct Region {
  llvm::Instruction *Begin;
  /// The comparisons go before these. Each path from `Begin` to an exit has exactly one.
  llvm::SmallVector<llvm::Instruction *, 4> Ends;
};

/// Finds the region of `F`, if it is smaller than the function.
///
/// The code outside of the region must have fewer than `ShortInstructions` instructions. A function
/// with exceptions, indirect jumps or loops with two entries has no region, because its paths
/// cannot be cut. May add blocks to `F` for paths that leave the region.
std::optional<Region> findRegion(llvm::Function &F, unsigned ShortInstructions, Bounds &Bounded);

} // namespace leeward
