// What can last: how many instructions a function executes at most, those that it calls included. Which functions are left alone for it is
// Filter's decision.
#pragma once

#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/Function.h"

namespace leeward {

/// Whether this may last, whatever is known of other functions: it calls something, copies a large or unknown block of memory, or is an atomic
/// operation.
bool mayLast(const llvm::Instruction &I);

/// What is known of the functions of one module, found out when it is first asked for.
class Bounds {
public:
  /// More instructions than this are as good as any number.
  explicit Bounds(unsigned Most) : Most(Most) {}

  /// Whether a call of `F` is over after at most so many instructions: it has no loops and no recursion, and calls only what is so, too.
  bool isBounded(const llvm::Function &F) { return instructionsOf(F) <= Most; }
  /// As `mayLast`, but a call of a bounded function does not.
  bool mayLast(const llvm::Instruction &I);

private:
  unsigned instructionsOf(const llvm::Function &F);
  unsigned longestPath(const llvm::Function &F);
  /// The function that is called for certain, if its code is here.
  static const llvm::Function *calleeOf(const llvm::Instruction &I);

  unsigned Most;
  llvm::DenseMap<const llvm::Function *, unsigned> Known;
};

} // namespace leeward
