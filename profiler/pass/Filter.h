// Which functions are instrumented. How is the engines' business.
#pragma once

#include "Bounds.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/SpecialCaseList.h"

#include <memory>
#include <vector>

namespace leeward {

/// The names a function goes by: mangled, demangled, and demangled without its parameters.
std::vector<std::string> namesOf(const llvm::Function &F);

/// A list of patterns, read once.
class Patterns {
public:
  explicit Patterns(llvm::ArrayRef<std::string> Texts);
  bool match(llvm::StringRef Text) const;
  bool matchAny(llvm::ArrayRef<std::string> Texts) const;

private:
  std::vector<llvm::GlobPattern> Globs;
};

/// Decides for the functions of one module.
class Filter {
public:
  Filter(llvm::Module &M, Bounds &Bounded);
  /// Whether `F` can and should be instrumented.
  bool wants(const llvm::Function &F) const;

private:
  bool excluded(const llvm::Function &F) const;
  bool isUnremarkable(const llvm::Function &F) const;

  Bounds &Bounded;
  Patterns Functions;
  Patterns Files;
  std::unique_ptr<llvm::SpecialCaseList> Lists;
  /// Functions that run before the program is relocated, or that carry an annotation.
  llvm::SmallPtrSet<const llvm::Function *, 8> Forbidden;
};

} // namespace leeward
