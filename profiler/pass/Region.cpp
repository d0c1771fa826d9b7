// Finds the part of a function in which it may be slow.
//
// The part begins at the nearest block that all paths to its calls and loops share. It ends where
// paths leave the blocks that this block dominates. Many functions test something first and return
// early; such a call then reads no clock.
#include "Region.h"

#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/CFG.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace leeward {

/// True for `__builtin_setjmp`: an intrinsic, so `callsFunctionThatReturnsTwice` does not find it.
static bool isJumpTarget(const Instruction &I) {
  const auto *Call = dyn_cast<IntrinsicInst>(&I);
  return Call && Call->getIntrinsicID() == Intrinsic::eh_sjlj_setjmp;
}

/// True if `BB` only ends, or only continues at one of some blocks. A function with any other block
/// (exceptions, computed jumps, coroutines' ends) has no region.
static bool isPlain(const BasicBlock &BB) {
  const Instruction *End = BB.getTerminator();
  return !BB.isEHPad() && (isa<BranchInst>(End) || isa<SwitchInst>(End) || isa<ReturnInst>(End) || isa<UnreachableInst>(End));
}

/// Instruction before which the exit of `BB` is checked: its return, or the call that must stay
/// right before the return. Null if `BB` has no exit.
static Instruction *exitOf(BasicBlock &BB) {
  if (CallInst *Tail = BB.getTerminatingMustTailCall())
    return Tail;
  return isa<ReturnInst>(BB.getTerminator()) ? BB.getTerminator() : nullptr;
}

/// Nearest block, outside of loops, on all paths to code that may last. Null if that block is the
/// entry, or if no code may last.
static BasicBlock *commonWay(Function &F, const DominatorTree &Tree, const LoopInfo &Loops, Bounds &Bounded) {
  BasicBlock *Way = nullptr;
  for (BasicBlock &BB : F) {
    // A block that ends the program does not count: a call that reaches it never returns.
    if (!Tree.isReachableFromEntry(&BB) || isa<UnreachableInst>(BB.getTerminator()) || !(Loops.getLoopFor(&BB) || any_of(BB, [&](const Instruction &I) { return Bounded.mayLast(I); })))
      continue;
    Way = Way ? Tree.findNearestCommonDominator(Way, &BB) : &BB;
  }
  // A loop's header is never the entry, so another block dominates it.
  while (Way && Loops.getLoopFor(Way))
    Way = Tree.getNode(Loops.getLoopFor(Way)->getOutermostLoop()->getHeader())->getIDom()->getBlock();
  return Way == &F.getEntryBlock() ? nullptr : Way;
}

static unsigned instructionsOutside(Function &F, const DominatorTree &Tree, const BasicBlock *Way) {
  unsigned Count = 0;
  for (const BasicBlock &BB : F)
    if (!Tree.dominates(Way, &BB))
      Count += BB.sizeWithoutDebug();
  return Count;
}

std::optional<Region> findRegion(Function &F, unsigned ShortInstructions, Bounds &Bounded) {
  // A call that returns twice returns into the region again, and may leave it past its ends.
  if (F.callsFunctionThatReturnsTwice() || !all_of(F, isPlain) || any_of(instructions(F), isJumpTarget))
    return std::nullopt;
  DominatorTree Tree(F);
  LoopInfo Loops(Tree);
  ReversePostOrderTraversal<Function *> Order(&F);
  if (containsIrreducibleCFG<BasicBlock *>(Order, Loops))
    return std::nullopt;
  BasicBlock *Way = commonWay(F, Tree, Loops, Bounded);
  // The code before `Way` and beside it must be as short as a function that is not instrumented.
  if (!Way || instructionsOutside(F, Tree, Way) >= ShortInstructions)
    return std::nullopt;

  SmallVector<BasicBlock *, 4> Exits;
  // Blocks directly after the region, where its paths join other paths.
  SetVector<BasicBlock *> Behind;
  for (BasicBlock &BB : F) {
    if (!Tree.dominates(Way, &BB) || !Tree.isReachableFromEntry(&BB))
      continue;
    if (exitOf(BB))
      Exits.push_back(&BB);
    for (BasicBlock *Next : successors(&BB))
      if (!Tree.dominates(Way, Next) && !isa<UnreachableInst>(Next->getTerminator()))
        Behind.insert(Next);
  }

  Region Found;
  for (BasicBlock *Join : Behind) {
    SetVector<BasicBlock *> From;
    for (BasicBlock *Before : predecessors(Join))
      if (Tree.isReachableFromEntry(Before) && Tree.dominates(Way, Before))
        From.insert(Before);
    BasicBlock *Own = SplitBlockPredecessors(Join, From.getArrayRef(), ".leeward");
    if (!Own)
      report_fatal_error("leeward: a path can't be cut", true);
    Found.Ends.push_back(Own->getTerminator());
  }
  for (BasicBlock *Exit : Exits)
    Found.Ends.push_back(exitOf(*Exit));
  auto First = find_if(*Way, [&](const Instruction &I) { return Bounded.mayLast(I); });
  Found.Begin = First != Way->end() ? &*First : Way->getTerminator();
  return Found;
}

} // namespace leeward
