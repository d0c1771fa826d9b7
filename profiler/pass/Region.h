// The part of a function in which it may be slow.
#pragma once

#include "Bounds.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Function.h"

#include <optional>

namespace leeward {

/// Where the clock is read, and where it is compared: whoever gets from the function's entry to its exit without passing `Begin` has done
/// nothing that lasts.
struct Region {
  llvm::Instruction *Begin;
  /// In front of these; each path from `Begin` to an exit has exactly one.
  llvm::SmallVector<llvm::Instruction *, 4> Ends;
};

/// The region, if it is smaller than the function; nothing otherwise, and nothing where paths are of kinds that can't be cut (exceptions,
/// indirect jumps, loops with two entries). May make blocks of their own for the paths that leave the region.
std::optional<Region> findRegion(llvm::Function &F, unsigned ShortInstructions, Bounds &Bounded);

} // namespace leeward
