// Names and signatures that differ between the supported major versions of LLVM. Contains no
// decisions of the plugin.
#pragma once

#include "llvm/Config/llvm-config.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

#if __has_include("llvm/Plugins/PassPlugin.h")
#include "llvm/Plugins/PassPlugin.h" // since LLVM 22
#else
#include "llvm/Passes/PassPlugin.h"
#endif
#if __has_include("llvm/TargetParser/Triple.h")
#include "llvm/TargetParser/Triple.h" // since LLVM 17
#else
#include "llvm/ADT/Triple.h"
#endif

namespace leeward {

/// Next instruction after `I`, without debug information and pseudo instructions. Since LLVM 20
/// debug information is not among the instructions.
inline const llvm::Instruction *nextReal(const llvm::Instruction &I) {
#if LLVM_VERSION_MAJOR >= 20
  const llvm::Instruction *Next = I.getNextNode();
  while (Next && Next->isDebugOrPseudoInst())
    Next = Next->getNextNode();
  return Next;
#else
  return I.getNextNonDebugInstruction(/*SkipPseudoOp=*/true);
#endif
}

/// Weights of a branch that is seldom taken.
inline llvm::MDNode *unlikely(llvm::LLVMContext &C) {
#if LLVM_VERSION_MAJOR >= 17
  return llvm::MDBuilder(C).createUnlikelyBranchWeights();
#else
  return llvm::MDBuilder(C).createBranchWeights(1, (1u << 20) - 1);
#endif
}

inline void moveBefore(llvm::Instruction &Which, llvm::Instruction &Where) {
#if LLVM_VERSION_MAJOR >= 20
  Which.moveBefore(Where.getIterator());
#else
  Which.moveBefore(&Where);
#endif
}

} // namespace leeward
