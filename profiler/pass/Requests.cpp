// Requests by function name: every call of a named function is a request.
//
// Its id is one of the call's integer or pointer arguments, or a counter of the run-time. The pass
// runs before optimisation, while functions still have the arguments of their source.
#include "Engines.h"
#include "Filter.h"
#include "Options.h"

#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Transforms/Utils/EscapeEnumerator.h"

#include <optional>

using namespace llvm;

namespace leeward {

namespace {

/// Parsed option `NAME`, `NAME:N` or `NAME:N:L`. With `-` for N the run-time counts the ids.
struct Named {
  std::string Name;
  std::optional<unsigned> Argument;
  std::optional<unsigned> Label;
};

} // namespace

/// Removes `:WORD` from the end of `Text` if WORD is a number, or `-` and `MayBeNone` allows it.
/// Returns true if it did.
static bool takeNumber(StringRef &Text, std::optional<unsigned> &Into, bool MayBeNone) {
  // C++ names have colons, too: only digits after the last colon are an argument's number.
  size_t Colon = Text.rfind(':');
  if (Colon == StringRef::npos || Colon == 0)
    return false;
  StringRef Word = Text.substr(Colon + 1);
  unsigned Number;
  if (!Word.getAsInteger(10, Number))
    Into = Number;
  else if (!MayBeNone || Word != "-")
    return false;
  Text = Text.substr(0, Colon);
  return true;
}

static Named parse(StringRef Text) {
  Named Which;
  std::optional<unsigned> Last;
  if (takeNumber(Text, Last, false)) {
    if (takeNumber(Text, Which.Argument, true))
      Which.Label = Last;
    else
      Which.Argument = Last;
  }
  Which.Name = Text.str();
  return Which;
}

/// Declares a function of the run-time that does not throw. Otherwise each call of it would add an
/// exit to the function.
static FunctionCallee runtime(Module &M, StringRef Name, FunctionType *Type) {
  FunctionCallee Callee = M.getOrInsertFunction(Name, Type);
  if (auto *F = dyn_cast<Function>(Callee.getCallee()))
    F->addFnAttr(Attribute::NoUnwind);
  return Callee;
}

/// Emits the id of a call of `F`: the argument as 64 bits, or the run-time's next number.
static Value *requestId(IRBuilder<> &B, Function &F, const Named &Which) {
  if (Which.Argument) {
    // A structure that is returned through memory adds an argument that the source does not have.
    unsigned Index = *Which.Argument + (F.hasStructRetAttr() ? 1 : 0);
    if (Index < F.arg_size()) {
      Value *Argument = F.getArg(Index);
      if (Argument->getType()->isIntegerTy())
        return B.CreateZExtOrTrunc(Argument, B.getInt64Ty());
      if (Argument->getType()->isPointerTy())
        return B.CreatePtrToInt(Argument, B.getInt64Ty());
    }
    WithColor::warning() << "leeward: argument " << *Which.Argument << " of " << F.getName()
                         << " is no integer or pointer; its requests are counted instead\n";
  }
  return B.CreateCall(runtime(*F.getParent(), "__leeward_next_request", FunctionType::get(B.getInt64Ty(), false)));
}

/// Gives `F` the personality routine of another function of the module, if one has any. LLVM never
/// inlines functions with different routines into each other.
static void adoptPersonality(Function &F) {
  for (const Function &Other : *F.getParent()) {
    if (F.hasPersonalityFn())
      return;
    if (Other.hasPersonalityFn())
      F.setPersonalityFn(Other.getPersonalityFn());
  }
}

static void instrument(Function &F, const Named &Which) {
  Module &M = *F.getParent();
  BasicBlock &Entry = F.getEntryBlock();
  BasicBlock::iterator First = Entry.getFirstInsertionPt();
  while (isa<AllocaInst>(*First))
    ++First;
  IRBuilder<> B(&Entry, First);
  // A call in code with debug information needs a location in case it is inlined.
  if (DISubprogram *Where = F.getSubprogram())
    B.SetCurrentDebugLocation(DILocation::get(M.getContext(), 0, 0, Where));
  auto *StartType = FunctionType::get(B.getVoidTy(), {B.getInt64Ty(), B.getPtrTy()}, false);
  auto *EndType = FunctionType::get(B.getVoidTy(), {B.getInt64Ty()}, false);
  FunctionCallee End = runtime(M, "leeward_req_end", EndType);
  Value *Id = requestId(B, F, Which);
  B.CreateCall(runtime(M, "leeward_req_start", StartType), {Id, ConstantPointerNull::get(B.getPtrTy())});
  if (Which.Label) {
    unsigned Index = *Which.Label + (F.hasStructRetAttr() ? 1 : 0);
    if (Index < F.arg_size() && F.getArg(Index)->getType()->isPointerTy()) {
      auto *LabelType = FunctionType::get(B.getVoidTy(), {B.getInt64Ty(), B.getPtrTy()}, false);
      B.CreateCall(runtime(M, "leeward_req_label", LabelType), {Id, F.getArg(Index)});
    } else {
      WithColor::warning() << "leeward: argument " << *Which.Label << " of " << F.getName()
                           << " is no pointer to a text; its requests have no label\n";
    }
  }
  bool Unwinding = mayUnwind(F);
  if (Unwinding)
    adoptPersonality(F);
  EscapeEnumerator Exits(F, "leeward.request", Unwinding);
  while (IRBuilder<> *AtExit = Exits.Next())
    AtExit->CreateCall(End, {Id});
}

bool instrumentRequests(Module &M) {
  bool Changed = false;
  for (const std::string &Text : RequestFunctions) {
    Named Which = parse(Text);
    Patterns Pattern(ArrayRef<std::string>(Which.Name));
    for (Function &F : M) {
      if (F.isDeclaration() || F.hasAvailableExternallyLinkage() || F.hasFnAttribute(Attribute::Naked) ||
          !Pattern.matchAny(namesOf(F)))
        continue;
      if (F.isPresplitCoroutine()) {
        WithColor::warning() << "leeward: " << F.getName() << " is a coroutine and can't be a request\n";
        continue;
      }
      instrument(F, Which);
      Changed = true;
    }
  }
  return Changed;
}

} // namespace leeward
