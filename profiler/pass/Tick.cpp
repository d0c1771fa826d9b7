// The `tick` engine: two loads of a coarse clock and a comparison per call.
//
//     start = clock                         // on entry, or before the first thing that may last
//     …
//     if (start != clock)                   // on each exit: return, musttail call, unwinding
//         slow(start, clock, this function, its return address)
//
// The clock's line is written once per tick by another thread and otherwise stays in every core's cache.
#include "Compat.h"
#include "Engines.h"
#include "Options.h"
#include "Region.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/Transforms/Utils/EscapeEnumerator.h"

using namespace llvm;

namespace leeward {

static GlobalVariable *clock(Module &M) {
  if (GlobalVariable *Existing = M.getGlobalVariable("__leeward_clock"))
    return Existing;
  auto *Clock = new GlobalVariable(M, Type::getInt64Ty(M.getContext()), false, GlobalValue::ExternalLinkage, nullptr,
                                   "__leeward_clock");
  Clock->setDSOLocal(isOfMainProgram(M));
  return Clock;
}

static FunctionCallee slowPath(Module &M) {
  LLVMContext &C = M.getContext();
  Type *Int64 = Type::getInt64Ty(C);
  Type *Pointer = PointerType::getUnqual(C);
  FunctionCallee Callee = M.getOrInsertFunction("__leeward_tick_slow", Type::getVoidTy(C), Int64, Int64, Pointer, Pointer);
  auto *F = cast<Function>(Callee.getCallee());
  // Callers keep what they have in general registers; only the rare call pays for saving.
  F->setCallingConv(CallingConv::PreserveMost);
  F->addFnAttr(Attribute::Cold);
  F->addFnAttr(Attribute::NoUnwind);
  // Lazy binding would not keep to the calling convention.
  F->addFnAttr(Attribute::NonLazyBind);
  F->setDSOLocal(isOfMainProgram(M));
  return Callee;
}

/// Volatile, so that no later pass thinks that the clock still reads as it did on entry. It is an aligned word, so code
/// generation makes one load of it, or part of a comparison; of an atomic load it makes no part of a comparison. The thread sanitizer
/// wants it atomic, since another thread writes it.
static LoadInst *readClock(IRBuilder<> &B, Function &F, const char *Name) {
  LoadInst *Load = B.CreateAlignedLoad(B.getInt64Ty(), clock(*F.getParent()), Align(8), /*isVolatile=*/true, Name);
  if (F.hasFnAttribute(Attribute::SanitizeThread))
    Load->setAtomic(AtomicOrdering::Monotonic);
  return Load;
}

/// The comparison in front of `Where`, and what follows if the clock moved on.
static void compareClock(Function &Body, Function &F, Value *Start, Instruction *Where) {
  Module &M = *F.getParent();
  IRBuilder<> AtExit(Where);
  Value *Moved = AtExit.CreateICmpNE(Start, readClock(AtExit, Body, "leeward.now"));
  Instruction *Then = SplitBlockAndInsertIfThen(Moved, Where, /*Unreachable=*/false, unlikely(M.getContext()));
  IRBuilder<> Slow(Then);
  // Once more, so that the comparison needs no register for it.
  Value *End = readClock(Slow, Body, "leeward.end");
  Value *Caller = Slow.CreateIntrinsic(Intrinsic::returnaddress, {}, {Slow.getInt32(0)});
  CallInst *Call = Slow.CreateCall(slowPath(M), {Start, End, &F, Caller});
  Call->setCallingConv(CallingConv::PreserveMost);
}

void instrumentTick(Function &Body, Function &F, Bounds &Bounded) {
  bool Unwinding = MeasureUnwinding && mayUnwind(Body);
  if (!Unwinding)
    if (std::optional<Region> Part = findRegion(Body, MinimumInstructions, Bounded)) {
      IRBuilder<> AtBegin(Part->Begin);
      Value *Start = readClock(AtBegin, Body, "leeward.start");
      for (Instruction *Where : Part->Ends)
        compareClock(Body, F, Start, Where);
      return;
    }
  BasicBlock &Entry = Body.getEntryBlock();
  BasicBlock::iterator First = Entry.getFirstInsertionPt();
  while (isa<AllocaInst>(*First))
    ++First;
  IRBuilder<> AtEntry(&Entry, First);
  Value *Start = readClock(AtEntry, Body, "leeward.start");

  EscapeEnumerator Exits(Body, "leeward.unwind", Unwinding);
  while (IRBuilder<> *AtExit = Exits.Next())
    compareClock(Body, F, Start, &*AtExit->GetInsertPoint());
}

} // namespace leeward
