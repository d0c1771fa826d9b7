// The part of a function in which it may be slow: from the nearest place that all its calls and loops have in common to where paths
// leave what lies behind it. Many functions look at something first and return; that costs nothing then.
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

/// `__builtin_setjmp` is an intrinsic, of which `callsFunctionThatReturnsTwice` knows nothing.
static bool isJumpTarget(const Instruction &I) {
  const auto *Call = dyn_cast<IntrinsicInst>(&I);
  return Call && Call->getIntrinsicID() == Intrinsic::eh_sjlj_setjmp;
}

/// What only ends or only goes on to one of some blocks. Everything else (exceptions, computed jumps, coroutines' ends) is left alone.
static bool isPlain(const BasicBlock &BB) {
  const Instruction *End = BB.getTerminator();
  return !BB.isEHPad() && (isa<BranchInst>(End) || isa<SwitchInst>(End) || isa<ReturnInst>(End) || isa<UnreachableInst>(End));
}

/// In front of what this block's exit is checked: its return, or the call that must stay right before it.
static Instruction *exitOf(BasicBlock &BB) {
  if (CallInst *Tail = BB.getTerminatingMustTailCall())
    return Tail;
  return isa<ReturnInst>(BB.getTerminator()) ? BB.getTerminator() : nullptr;
}

/// The block that is on the way to everything that may last, and in no loop; none if that is the entry, or there is nothing.
static BasicBlock *commonWay(Function &F, const DominatorTree &Tree, const LoopInfo &Loops, Bounds &Bounded) {
  BasicBlock *Way = nullptr;
  for (BasicBlock &BB : F) {
    // A path to code that ends the program is not slow, but over.
    if (!Tree.isReachableFromEntry(&BB) || isa<UnreachableInst>(BB.getTerminator()) || !(Loops.getLoopFor(&BB) || any_of(BB, [&](const Instruction &I) { return Bounded.mayLast(I); })))
      continue;
    Way = Way ? Tree.findNearestCommonDominator(Way, &BB) : &BB;
  }
  // A loop's header is never the entry, so something is in front of it.
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
  // A call that returns twice comes back inside of the region, and may leave beside it.
  if (F.callsFunctionThatReturnsTwice() || !all_of(F, isPlain) || any_of(instructions(F), isJumpTarget))
    return std::nullopt;
  DominatorTree Tree(F);
  LoopInfo Loops(Tree);
  ReversePostOrderTraversal<Function *> Order(&F);
  if (containsIrreducibleCFG<BasicBlock *>(Order, Loops))
    return std::nullopt;
  BasicBlock *Way = commonWay(F, Tree, Loops, Bounded);
  // The code in front of the way and beside it must be short: as short as a function that is not looked at.
  if (!Way || instructionsOutside(F, Tree, Way) >= ShortInstructions)
    return std::nullopt;

  SmallVector<BasicBlock *, 4> Exits;
  // Blocks right behind the region, where its paths come together with others.
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
