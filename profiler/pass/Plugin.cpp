// Adds the plugin's passes to clang's pipeline: requests at its begin, engines at its end, so that
// an inlined function costs nothing. `opt` finds both by name.
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
      // Before `makeTwin`, so that the twin, a copy, has this attribute, too.
      F->addFnAttr(Done);
      Function *Body = Twins && mayHaveTwin(*F) ? makeTwin(*F) : F;
      Which == Engine::Tick ? instrumentTick(*Body, *F, Bounded) : instrumentScan(*Body, *F);
    }
    bool Unmarked = OnlyMarked && takeMarksAway(M);
    return Chosen.empty() && !Unmarked ? PreservedAnalyses::all() : PreservedAnalyses::none();
  }

  /// At -O0 functions are `optnone`; the pass runs for them, too.
  static bool isRequired() { return true; }

private:
  /// Attribute of functions that are instrumented already. rustc optimises a module twice, before
  /// and after it knows the other modules.
  static constexpr const char *Done = "leeward-instrumented";

  /// Removes the marks, or code generation would turn them into calls of __cyg_profile_func_enter.
  /// Returns true if there were any.
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
  // Removes unused functions, as the pipeline would do a little later. The table of sleds would
  // keep them.
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

// The only symbol that the plugin exports.
extern "C" LLVM_ATTRIBUTE_WEAK __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  leeward::readEnvironment();
  return {LLVM_PLUGIN_API_VERSION, "leeward", "1", leeward::registerCallbacks};
}
