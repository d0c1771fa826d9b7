// Decides which functions are instrumented: all but those that cannot be (naked, or run before
// relocation), those that the user excludes, and those that cannot be slow.
//
// The last are tiny leaves, and functions that only end in a call of a lock function, whose waits
// the shim records.
#include "Filter.h"
#include "Compat.h"
#include "Options.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Analysis/CFG.h"
#include "llvm/Demangle/Demangle.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/GlobalIFunc.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Support/VirtualFileSystem.h"

using namespace llvm;

namespace leeward {

std::vector<std::string> namesOf(const Function &F) {
  std::vector<std::string> Names{F.getName().str()};
  std::string Demangled = demangle(Names[0]);
  if (Demangled == Names[0])
    return Names;
  Names.push_back(Demangled);
  ItaniumPartialDemangler Parts;
  if (!Parts.partialDemangle(Names[0].c_str()) && Parts.isFunction()) {
    char *Text = Parts.getFunctionName(nullptr, nullptr);
    if (Text)
      Names.push_back(Text);
    std::free(Text);
  }
  return Names;
}

Patterns::Patterns(ArrayRef<std::string> Texts) {
  for (const std::string &Text : Texts) {
    Expected<GlobPattern> Glob = GlobPattern::create(Text);
    if (!Glob)
      report_fatal_error(Twine("leeward: bad pattern '") + Text + "': " + toString(Glob.takeError()), false);
    Globs.push_back(*Glob);
  }
}

bool Patterns::match(StringRef Text) const {
  return any_of(Globs, [&](const GlobPattern &Glob) { return Glob.match(Text); });
}

bool Patterns::matchAny(ArrayRef<std::string> Texts) const {
  return any_of(Texts, [&](const std::string &Text) { return match(Text); });
}

/// Adds functions with `__attribute__((annotate("leeward-ignore")))`, the expansion of
/// LEEWARD_IGNORE in leeward_profile.h.
static void addAnnotated(Module &M, SmallPtrSetImpl<const Function *> &Into) {
  GlobalVariable *Annotations = M.getGlobalVariable("llvm.global.annotations");
  if (!Annotations || !Annotations->hasInitializer())
    return;
  auto *Entries = dyn_cast<ConstantArray>(Annotations->getInitializer());
  if (!Entries)
    return;
  for (Value *Entry : Entries->operands()) {
    auto *Fields = dyn_cast<ConstantStruct>(Entry);
    if (!Fields || Fields->getNumOperands() < 2)
      continue;
    auto *F = dyn_cast<Function>(Fields->getOperand(0)->stripPointerCasts());
    auto *Text = dyn_cast<GlobalVariable>(Fields->getOperand(1)->stripPointerCasts());
    if (!F || !Text || !Text->hasInitializer())
      continue;
    auto *String = dyn_cast<ConstantDataSequential>(Text->getInitializer());
    if (String && String->isCString() && String->getAsCString() == "leeward-ignore")
      Into.insert(F);
  }
}

Filter::Filter(Module &M, Bounds &Bounded) : Bounded(Bounded), Functions(ExcludedFunctions), Files(ExcludedFiles) {
  if (!ExclusionLists.empty()) {
    std::string Error;
    std::vector<std::string> Paths(ExclusionLists.begin(), ExclusionLists.end());
    Lists = SpecialCaseList::create(Paths, *vfs::getRealFileSystem(), Error);
    if (!Lists)
      report_fatal_error(Twine("leeward: ") + Error, false);
  }
  // A resolver runs while the dynamic linker relocates the program: it cannot reach the clock yet.
  for (const GlobalIFunc &Indirect : M.ifuncs())
    if (const Function *Resolver = Indirect.getResolverFunction())
      Forbidden.insert(Resolver);
  addAnnotated(M, Forbidden);
}

bool Filter::excluded(const Function &F) const {
  std::vector<std::string> Names = namesOf(F);
  if (Functions.matchAny(Names))
    return true;
  // File of the definition, such as a header; without debug information, of the translation unit.
  StringRef File = F.getParent()->getSourceFileName();
  if (const DISubprogram *Where = F.getSubprogram())
    File = Where->getFilename();
  if (Files.match(File))
    return true;
  if (!Lists)
    return false;
  return Lists->inSection("leeward", "src", File) ||
         any_of(Names, [&](const std::string &Name) { return Lists->inSection("leeward", "fun", Name); });
}

static bool isPossible(const Function &F) {
  if (F.isDeclaration() || F.hasAvailableExternallyLinkage() || F.hasFnAttribute(Attribute::Naked))
    return false;
  // LLVM splits coroutines before the end of the pipeline; their parts are ordinary functions.
  if (F.isPresplitCoroutine())
    return false;
  if (F.hasFnAttribute(Attribute::NoProfile) || F.getName().starts_with("__leeward_") ||
      F.getName().starts_with("llvm."))
    return false;
  switch (F.getCallingConv()) {
  case CallingConv::GHC:
  case CallingConv::X86_INTR:
  case CallingConv::AnyReg:
    return false;
  default:
    return true;
  }
}

/// Properties of a function's code.
struct Shape {
  bool Loops = false;
  /// Has an instruction that may last and is no call, such as an atomic operation.
  bool Atomic = false;
  unsigned Instructions = 0;
  SmallVector<const CallBase *, 4> Calls;
};

/// Reads the code of `F`. Blocks that end the program, such as a failed assertion, do not count: a
/// call that reaches one never returns.
static Shape shapeOf(const Function &F) {
  Shape Found;
  for (const BasicBlock &BB : F) {
    if (isa<UnreachableInst>(BB.getTerminator()))
      continue;
    for (const Instruction &I : BB) {
      if (I.isDebugOrPseudoInst() || I.isLifetimeStartOrEnd())
        continue;
      ++Found.Instructions;
      if (!mayLast(I))
        continue;
      if (const auto *Call = dyn_cast<CallBase>(&I))
        Found.Calls.push_back(Call);
      else
        Found.Atomic = true;
    }
  }
  SmallVector<std::pair<const BasicBlock *, const BasicBlock *>, 4> BackEdges;
  FindFunctionBackedges(F, BackEdges);
  Found.Loops = !BackEdges.empty();
  return Found;
}

/// True if a function is short and has no loops: without its callees it takes less than a
/// microsecond.
static bool isShort(const Shape &Found) {
  return Found.Instructions > 0 && Found.Instructions < MinimumInstructions && !Found.Atomic && !Found.Loops;
}

/// True if a return of the call's value follows directly: code generation makes a jump of the call.
static bool isTailCall(const CallBase &Call) {
  const auto *Simple = dyn_cast<CallInst>(&Call);
  if (!Simple || !Simple->isTailCall())
    return false;
  const Instruction *Next = nextReal(*Simple);
  const auto *Return = dyn_cast_or_null<ReturnInst>(Next);
  return Return && (!Return->getReturnValue() || Return->getReturnValue() == Simple);
}

/// True for lock functions: the run-time's shim records waits in them, with the place of the call.
static bool isRecordedByShim(const Function &F) {
  return StringSwitch<bool>(F.getName())
      .Case("pthread_mutex_lock", true)
      .Case("pthread_mutex_unlock", true)
      .Case("pthread_spin_lock", true)
      .Case("pthread_spin_unlock", true)
      .Case("pthread_rwlock_rdlock", true)
      .Case("pthread_rwlock_wrlock", true)
      .Case("pthread_rwlock_unlock", true)
      .Default(false);
}

/// True if `F` is too short to be slow: it is bounded, calls nothing, or only ends in a call of a
/// lock function, whose waits are recorded.
bool Filter::isUnremarkable(const Function &F) const {
  if (MinimumInstructions == 0)
    return false;
  if (Bounded.isBounded(F))
    return true;
  Shape Found = shapeOf(F);
  if (!isShort(Found))
    return false;
  if (Found.Calls.empty())
    return true;
  // A function that only calls another one stays: its arguments may make that call slow, and its
  // own name then tells the reason.
  const Function *Next = Found.Calls.size() == 1 && isTailCall(*Found.Calls[0]) ? Found.Calls[0]->getCalledFunction() : nullptr;
  return Next && isRecordedByShim(*Next);
}

bool Filter::wants(const Function &F) const {
  return isPossible(F) && !Forbidden.contains(&F) && (!OnlyMarked || F.hasFnAttribute("instrument-function-entry-inlined")) && !excluded(F) &&
         !isUnremarkable(F);
}

} // namespace leeward
