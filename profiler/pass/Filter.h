// Decides which functions are instrumented. The engines decide how.
#pragma once

#include "Bounds.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/SpecialCaseList.h"

#include <memory>
#include <vector>

namespace leeward {

/// All names of a function: mangled, demangled, and demangled without its parameters.
std::vector<std::string> namesOf(const llvm::Function &F);

/// List of glob patterns, parsed once.
class Patterns {
public:
  explicit Patterns(llvm::ArrayRef<std::string> Texts);
  bool match(llvm::StringRef Text) const;
  bool matchAny(llvm::ArrayRef<std::string> Texts) const;

private:
  std::vector<llvm::GlobPattern> Globs;
};

/// Selects the functions of one module.
class Filter {
public:
  Filter(llvm::Module &M, Bounds &Bounded);
  /// True if `F` can and should be instrumented.
  bool wants(const llvm::Function &F) const;

private:
  bool excluded(const llvm::Function &F) const;
  bool isUnremarkable(const llvm::Function &F) const;

  Bounds &Bounded;
  Patterns Functions;
  Patterns Files;
  std::unique_ptr<llvm::SpecialCaseList> Lists;
  /// Functions that run before the program is relocated, or that have the annotation
  /// `leeward-ignore`.
  llvm::SmallPtrSet<const llvm::Function *, 8> Forbidden;
};

} // namespace leeward
