// Upper bound on the instructions that a call of a function executes, callees included. Filter
// decides which functions stay uninstrumented because of it.
#pragma once

#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/Function.h"

namespace leeward {

/// True if `I` may last long, without knowledge of other functions.
///
/// Such instructions are calls, copies of memory blocks of large or unknown size, atomic operations
/// and FRem. Intrinsics of an instruction or two are none.
bool mayLast(const llvm::Instruction &I);

/// Bounds of the functions of one module, each computed on first use.
class Bounds {
public:
  /// `Most`: largest bound in instructions. A function above it counts as unbounded.
  explicit Bounds(unsigned Most) : Most(Most) {}

  /// True if a call of `F` ends after at most `Most` instructions: it has no loops and no
  /// recursion, and calls only bounded functions.
  bool isBounded(const llvm::Function &F) { return instructionsOf(F) <= Most; }
  /// As the function `mayLast` above, but false for a call of a bounded function.
  bool mayLast(const llvm::Instruction &I);

private:
  unsigned instructionsOf(const llvm::Function &F);
  unsigned longestPath(const llvm::Function &F);
  /// Function that `I` certainly calls, if its code is in this module; otherwise null.
  static const llvm::Function *calleeOf(const llvm::Instruction &I);

  unsigned Most;
  llvm::DenseMap<const llvm::Function *, unsigned> Known;
};

} // namespace leeward
