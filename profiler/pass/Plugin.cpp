// The plugin's places in clang's pipeline: requests at its begin, engines at its end (so that a function that was inlined
// costs nothing), and both by name for `opt`.
#include "Compat.h"
#include "Engines.h"
#include "Filter.h"
#include "Options.h"
#include "Sleds.h"

#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"

using namespace llvm;

namespace leeward {

bool isOfMainProgram(const Module &M) {
  return M.getPICLevel() == PICLevel::NotPIC || M.getPIELevel() != PIELevel::Default;
}

bool mayUnwind(const Function &F) {
  StringRef Name = F.getName();
  return !F.doesNotThrow() && (F.hasPersonalityFn() || Name.starts_with("_Z") || Name.starts_with("_R"));
}

namespace {

class EnginePass : public PassInfoMixin<EnginePass> {
public:
  explicit EnginePass(Engine Which) : Which(Which) {}

  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    if (Which == Engine::None)
      return PreservedAnalyses::all();
    if (!Triple(M.getTargetTriple()).isArch64Bit()) {
      WithColor::warning() << "leeward: only 64-bit targets are instrumented\n";
      return PreservedAnalyses::all();
    }
    Bounds Bounded(MinimumInstructions > 0 ? BoundedInstructions : 0);
    Filter Wanted(M, Bounded);
    SmallVector<Function *, 64> Chosen;
    for (Function &F : M)
      if (!F.hasFnAttribute(Done) && Wanted.wants(F))
        Chosen.push_back(&F);
    bool Twins = Patch && mayHaveTwins(M);
    for (Function *F : Chosen) {
      // Also of the twin, which is a copy.
      F->addFnAttr(Done);
      Function *Body = Twins && mayHaveTwin(*F) ? makeTwin(*F) : F;
      Which == Engine::Tick ? instrumentTick(*Body, *F, Bounded) : instrumentScan(*Body, *F);
    }
    bool Unmarked = OnlyMarked && takeMarksAway(M);
    return Chosen.empty() && !Unmarked ? PreservedAnalyses::all() : PreservedAnalyses::none();
  }

  /// At -O0 functions are `optnone`, and count as well.
  static bool isRequired() { return true; }

private:
  /// Functions with this attribute are instrumented. rustc optimises a module twice, before and after it knows the others.
  static constexpr const char *Done = "leeward-instrumented";

  /// Or code generation would turn them into calls of __cyg_profile_func_enter.
  static bool takeMarksAway(Module &M) {
    bool Any = false;
    for (Function &F : M) {
      Any |= F.hasFnAttribute("instrument-function-entry-inlined");
      F.removeFnAttr("instrument-function-entry-inlined");
      F.removeFnAttr("instrument-function-exit-inlined");
    }
    return Any;
  }

  Engine Which;
};

class RequestPass : public PassInfoMixin<RequestPass> {
public:
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    return instrumentRequests(M) ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

void addEngine(ModulePassManager &Passes, OptimizationLevel Level) {
  // What nobody uses any more goes now, as it would a little later: our tables would keep it.
  if (Level != OptimizationLevel::O0 && EngineOption != Engine::None)
    Passes.addPass(GlobalDCEPass());
  Passes.addPass(EnginePass(EngineOption));
}

void registerCallbacks(PassBuilder &Builder) {
  Builder.registerPipelineStartEPCallback([](ModulePassManager &Passes, OptimizationLevel) {
    if (!RequestFunctions.empty())
      Passes.addPass(RequestPass());
  });
#if LLVM_VERSION_MAJOR >= 20
  Builder.registerOptimizerLastEPCallback([](ModulePassManager &Passes, OptimizationLevel Level, ThinOrFullLTOPhase) { addEngine(Passes, Level); });
#else
  Builder.registerOptimizerLastEPCallback([](ModulePassManager &Passes, OptimizationLevel Level) { addEngine(Passes, Level); });
#endif
  Builder.registerPipelineParsingCallback(
      [](StringRef Name, ModulePassManager &Passes, ArrayRef<PassBuilder::PipelineElement>) {
        if (Name == "leeward-tick")
          Passes.addPass(EnginePass(Engine::Tick));
        else if (Name == "leeward-scan")
          Passes.addPass(EnginePass(Engine::Scan));
        else if (Name == "leeward-requests")
          Passes.addPass(RequestPass());
        else
          return false;
        return true;
      });
}

} // namespace
} // namespace leeward

// Everything else in here is hidden.
extern "C" LLVM_ATTRIBUTE_WEAK __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  leeward::readEnvironment();
  return {LLVM_PLUGIN_API_VERSION, "leeward", "1", leeward::registerCallbacks};
}
