// Computes the longest path through a function without loops, in instructions. About three hundred
// instructions take a tenth of a tick.
#include "Bounds.h"

#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/CFG.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"

#include <algorithm>

using namespace llvm;

namespace leeward {

/// Largest memory block, in bytes, that a few instructions copy without a call.
static constexpr uint64_t SmallBlock = 128;
static constexpr unsigned Endless = ~0u;

bool mayLast(const Instruction &I) {
  const auto *Call = dyn_cast<CallBase>(&I);
  if (!Call)
    return I.isAtomic() || I.getOpcode() == Instruction::FRem;
  const auto *Own = dyn_cast<IntrinsicInst>(Call);
  if (!Own)
    return true;
  if (Own->isAssumeLikeIntrinsic())
    return false;
  if (const auto *Block = dyn_cast<MemIntrinsic>(Call)) {
    const auto *Length = dyn_cast<ConstantInt>(Block->getLength());
    return !Length || Length->getValue().ugt(SmallBlock);
  }
  // Most intrinsics are at most two instructions. A target's own intrinsic may be a pause or a
  // wait. An intrinsic that accesses memory may access much of it.
  const Function *Which = Call->getCalledFunction();
  return Which->isTargetIntrinsic() || isa<AnyMemIntrinsic>(Call) || I.mayReadOrWriteMemory();
}

const Function *Bounds::calleeOf(const Instruction &I) {
  const auto *Call = dyn_cast<CallBase>(&I);
  const Function *Callee = Call ? Call->getCalledFunction() : nullptr;
  return Callee && !Callee->isDeclaration() && !Callee->isInterposable() ? Callee : nullptr;
}

bool Bounds::mayLast(const Instruction &I) {
  if (!leeward::mayLast(I))
    return false;
  const Function *Callee = calleeOf(I);
  return !Callee || !isBounded(*Callee);
}

unsigned Bounds::instructionsOf(const Function &F) {
  // `Endless` stands here while the path is computed, so a recursive call finds `Endless`.
  auto [Place, IsNew] = Known.try_emplace(&F, Endless);
  if (!IsNew || Most == 0)
    return Place->second;
  unsigned Found = longestPath(F);
  Known[&F] = Found;
  return Found;
}

unsigned Bounds::longestPath(const Function &F) {
  SmallVector<std::pair<const BasicBlock *, const BasicBlock *>, 4> BackEdges;
  FindFunctionBackedges(F, BackEdges);
  if (!BackEdges.empty())
    return Endless;
  DenseMap<const BasicBlock *, unsigned> From;
  for (const BasicBlock *BB : post_order(&F)) {
    unsigned Longest = 0;
    for (const BasicBlock *Next : successors(BB))
      Longest = std::max(Longest, From.lookup(Next));
    // Blocks that end the program count as 0: a call that reaches one never returns.
    for (const Instruction &I : *BB) {
      if (isa<UnreachableInst>(BB->getTerminator()))
        break;
      if (I.isDebugOrPseudoInst() || I.isLifetimeStartOrEnd())
        continue;
      ++Longest;
      if (!leeward::mayLast(I))
        continue;
      const Function *Callee = calleeOf(I);
      unsigned Within = Callee ? instructionsOf(*Callee) : Endless;
      if (Within > Most)
        return Endless;
      Longest += Within;
    }
    if (Longest > Most)
      return Endless;
    From[BB] = Longest;
  }
  return From.lookup(&F.getEntryBlock());
}

} // namespace leeward
