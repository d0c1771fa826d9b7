// The `tick` engine: each call loads a coarse clock twice and compares the two values.
//
//     start = clock                         // on entry, or before the first code that may last
//     …
//     if (start != clock)                   // on each exit: return, musttail call, unwinding
//         slow(start, clock, this function, its return address)
//
// Another thread writes the clock's cache line once per tick. Otherwise the line stays in every
// core's cache.
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
  // The callee saves the general registers, so only the rare call costs anything.
  F->setCallingConv(CallingConv::PreserveMost);
  F->addFnAttr(Attribute::Cold);
  F->addFnAttr(Attribute::NoUnwind);
  // Lazy binding does not keep to the calling convention.
  F->addFnAttr(Attribute::NonLazyBind);
  F->setDSOLocal(isOfMainProgram(M));
  return Callee;
}

/// Emits a volatile load of the clock, so that no later pass assumes its value on entry.
///
/// The clock is an aligned word, so code generation emits one load, or makes it part of a
/// comparison. It would not make an atomic load part of a comparison. The thread sanitizer needs an
/// atomic load, because another thread writes the clock.
static LoadInst *readClock(IRBuilder<> &B, Function &F, const char *Name) {
  LoadInst *Load = B.CreateAlignedLoad(B.getInt64Ty(), clock(*F.getParent()), Align(8), /*isVolatile=*/true, Name);
  if (F.hasFnAttribute(Attribute::SanitizeThread))
    Load->setAtomic(AtomicOrdering::Monotonic);
  return Load;
}

/// Inserts the comparison before `Where`, and the call of the slow path if the clock has moved.
static void compareClock(Function &Body, Function &F, Value *Start, Instruction *Where) {
  Module &M = *F.getParent();
  IRBuilder<> AtExit(Where);
  Value *Moved = AtExit.CreateICmpNE(Start, readClock(AtExit, Body, "leeward.now"));
  Instruction *Then = SplitBlockAndInsertIfThen(Moved, Where, /*Unreachable=*/false, unlikely(M.getContext()));
  IRBuilder<> Slow(Then);
  // Reads the clock again, so that the comparison needs no register for its value.
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
