// Which functions are instrumented: not those that can't be (naked, before relocation), that shouldn't be (asked for), or
// that can't be slow (tiny leaves).
#include "Filter.h"
#include "Options.h"

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
  std::string Demangled = demangle(F.getName());
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

/// Functions with `__attribute__((annotate("leeward-ignore")))`, which LEEWARD_IGNORE of leeward_profile.h stands for.
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

Filter::Filter(Module &M) : Functions(ExcludedFunctions), Files(ExcludedFiles) {
  if (!ExclusionLists.empty()) {
    std::string Error;
    std::vector<std::string> Paths(ExclusionLists.begin(), ExclusionLists.end());
    Lists = SpecialCaseList::create(Paths, *vfs::getRealFileSystem(), Error);
    if (!Lists)
      report_fatal_error(Twine("leeward: ") + Error, false);
  }
  // A resolver runs while the program is being relocated: the clock can't be reached yet.
  for (const GlobalIFunc &Indirect : M.ifuncs())
    if (const Function *Resolver = Indirect.getResolverFunction())
      Forbidden.insert(Resolver);
  addAnnotated(M, Forbidden);
}

bool Filter::excluded(const Function &F) const {
  std::vector<std::string> Names = namesOf(F);
  if (Functions.matchAny(Names))
    return true;
  // The file of the definition (a header, perhaps), else of the translation unit.
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

/// Without calls and loops, and short: not even a microsecond.
static bool isTinyLeaf(const Function &F) {
  if (MinimumInstructions == 0)
    return false;
  unsigned Count = 0;
  for (const BasicBlock &BB : F)
    for (const Instruction &I : BB) {
      if (I.isDebugOrPseudoInst() || I.isLifetimeStartOrEnd())
        continue;
      // Copying a block of memory may take long; the other intrinsics are an instruction or two.
      if (const auto *Call = dyn_cast<CallBase>(&I))
        if (!isa<IntrinsicInst>(Call) || isa<MemIntrinsic>(Call))
          return false;
      if (I.isAtomic() || ++Count >= MinimumInstructions)
        return false;
    }
  SmallVector<std::pair<const BasicBlock *, const BasicBlock *>, 4> BackEdges;
  FindFunctionBackedges(F, BackEdges);
  return BackEdges.empty();
}

static bool isPossible(const Function &F) {
  if (F.isDeclaration() || F.hasAvailableExternallyLinkage() || F.hasFnAttribute(Attribute::Naked))
    return false;
  // Coroutines are split before the end of the pipeline; their parts are ordinary functions.
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

bool Filter::wants(const Function &F) const {
  if (!isPossible(F) || Forbidden.contains(&F))
    return false;
  if (OnlyMarked && !F.hasFnAttribute("instrument-function-entry-inlined"))
    return false;
  return !isTinyLeaf(F) && !excluded(F);
}

} // namespace leeward
