// The `scan` engine: each call pushes {function, generation} to its thread's shadow stack, which
// the scanner's thread reads. There are no locks: `rt/abi.h` has the order of the stores, and
// explains how the scanner detects a race.
//
//     d = depth
//     if (d < limit) { slots[d] = {this function, ++generation} }  // 0: nothing records
//     depth = d + 1
//     …
//     depth = d                                                     // on each exit
#include "Compat.h"
#include "Engines.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/Transforms/Utils/EscapeEnumerator.h"

using namespace llvm;

namespace leeward {

namespace {

/// Byte offsets in the thread's `__leeward_shadow`, the same as in `rt/abi.h`.
enum : unsigned { Slots = 0, Depth = 8, Limit = 16, Generation = 24 };

class Shadow {
public:
  explicit Shadow(Module &M) : M(M) {
    Variable = M.getGlobalVariable("__leeward_shadow");
    if (Variable)
      return;
    auto *Words = ArrayType::get(Type::getInt64Ty(M.getContext()), 4);
    Variable = new GlobalVariable(M, Words, false, GlobalValue::ExternalLinkage, nullptr, "__leeward_shadow", nullptr,
                                  GlobalValue::InitialExecTLSModel);
    Variable->setAlignment(Align(8));
    Variable->setDSOLocal(isOfMainProgram(M));
  }

  Value *address(IRBuilder<> &B, unsigned Offset) {
    Value *Base = B.CreateThreadLocalAddress(Variable);
    return B.CreateConstInBoundsGEP1_32(B.getInt8Ty(), Base, Offset);
  }

  Value *load(IRBuilder<> &B, unsigned Offset) {
    LoadInst *Load = B.CreateAlignedLoad(B.getInt64Ty(), address(B, Offset), Align(8), /*isVolatile=*/true);
    Load->setAtomic(AtomicOrdering::Monotonic);
    return Load;
  }

  /// Stores with release order: the scanner sees all earlier stores before this one.
  void publish(IRBuilder<> &B, unsigned Offset, Value *What) {
    StoreInst *Store = B.CreateAlignedStore(What, address(B, Offset), Align(8), /*isVolatile=*/true);
    Store->setAtomic(AtomicOrdering::Release);
  }

private:
  Module &M;
  GlobalVariable *Variable;
};

} // namespace

/// Stores the depth again where callees have left without their exit code: after unwinding, or at a
/// second return of setjmp.
static void republishAfterJumps(Function &F, Shadow &Words, Value *Own) {
  SmallVector<Instruction *, 8> Places;
  for (BasicBlock &BB : F) {
    if (BB.isLandingPad())
      Places.push_back(&*std::next(BB.getLandingPadInst()->getIterator()));
    for (Instruction &I : BB)
      if (auto *Call = dyn_cast<CallInst>(&I))
        if (Call->hasFnAttr(Attribute::ReturnsTwice))
          Places.push_back(Call->getNextNode());
  }
  for (Instruction *Place : Places) {
    IRBuilder<> B(Place);
    Words.publish(B, Depth, Own);
  }
}

/// Defines `__leeward_scan_wanted`, by which `rt/init.c` knows that there are stacks to scan.
static void announce(Module &M) {
  if (M.getGlobalVariable("__leeward_scan_wanted"))
    return;
  Type *Byte = Type::getInt8Ty(M.getContext());
  auto *Wanted = new GlobalVariable(M, Byte, true, GlobalValue::WeakODRLinkage, ConstantInt::get(Byte, 1),
                                    "__leeward_scan_wanted");
  Wanted->setVisibility(GlobalValue::HiddenVisibility);
}

void instrumentScan(Function &Body, Function &F) {
  Module &M = *F.getParent();
  announce(M);
  Shadow Words(M);
  BasicBlock &Entry = Body.getEntryBlock();
  BasicBlock::iterator First = Entry.getFirstInsertionPt();
  while (isa<AllocaInst>(*First))
    ++First;
  IRBuilder<> B(&Entry, First);
  Value *Below = Words.load(B, Depth);
  Value *Own = B.CreateAdd(Below, B.getInt64(1));
  Value *Room = B.CreateICmpULT(Below, Words.load(B, Limit));
  Instruction *AfterPush = &*B.GetInsertPoint();
  Instruction *Then = SplitBlockAndInsertIfThen(Room, AfterPush, /*Unreachable=*/false);
  // An alloca outside the entry block would become dynamic.
  SmallVector<AllocaInst *, 8> Late;
  for (Instruction &I : *AfterPush->getParent())
    if (auto *Alloca = dyn_cast<AllocaInst>(&I))
      if (isa<ConstantInt>(Alloca->getArraySize()))
        Late.push_back(Alloca);
  for (AllocaInst *Alloca : Late)
    moveBefore(*Alloca, *Entry.getTerminator());

  IRBuilder<> Push(Then);
  Value *Next = Push.CreateAdd(Words.load(Push, Generation), Push.getInt64(1));
  Value *Base = Push.CreateIntToPtr(Words.load(Push, Slots), Push.getPtrTy());
  Value *Slot = Push.CreateInBoundsGEP(ArrayType::get(Push.getInt64Ty(), 2), Base, Below);
  Push.CreateAlignedStore(&F, Slot, Align(16), /*isVolatile=*/true)->setAtomic(AtomicOrdering::Monotonic);
  Push.CreateAlignedStore(Next, Push.CreateConstInBoundsGEP1_32(Push.getInt64Ty(), Slot, 1), Align(8), true)
      ->setAtomic(AtomicOrdering::Monotonic);
  Words.publish(Push, Generation, Next);
  IRBuilder<> AfterwardsB(AfterPush);
  Words.publish(AfterwardsB, Depth, Own);

  republishAfterJumps(Body, Words, Own);
  EscapeEnumerator Exits(Body, "leeward.unwind", /*HandleExceptions=*/false);
  while (IRBuilder<> *AtExit = Exits.Next())
    Words.publish(*AtExit, Depth, Below);
}

} // namespace leeward
