// Makes instrumented copies (twins) of functions, nops at the functions' entries, and the table by
// which the run-time patches the nops.
//
// While nothing records, a function is as without the plugin except for five bytes: it keeps its
// tail calls, its registers and its place among other code.
//
//     F:          nop                 // or `jmp F.leeward`
//                 the body as it was
//     F.leeward:  the instrumented body, in a section of its own among seldom-run code
//     .leeward.sleds: { magic, F - here, F.leeward - here }
#include "Sleds.h"

#include "llvm/IR/Constants.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"
#include "llvm/Transforms/Utils/ValueMapper.h"

#include <optional>

#include "Compat.h"

using namespace llvm;

namespace leeward {

/// Nop at a function's entry. It is one instruction, so that no thread is ever inside of it, and as
/// long as a jump to anywhere in the module.
static constexpr uint8_t Nop[] = {0x0f, 0x1f, 0x44, 0x00, 0x00};
/// Mark by which the run-time recognises entries of the table (`rt/abi.h`).
static constexpr uint32_t Magic = 0x4c575364;
/// Alignment of functions with a nop, in bytes. The run-time writes aligned words, and such a nop
/// lies within one.
static constexpr uint64_t EntryAlignment = 8;

static bool isSet(const Module &M, const char *Flag) {
  const auto *Value = mdconst::extract_or_null<ConstantInt>(M.getModuleFlag(Flag));
  return Value && !Value->isZero();
}

bool mayHaveTwins(const Module &M) {
  Triple Target(M.getTargetTriple());
  // With branch protection an endbr would have to come first. A jump reaches only two gigabytes.
  return Target.getArch() == Triple::x86_64 && !Target.isX32() && Target.isOSBinFormatELF() && !isSet(M, "cf-protection-branch") && !isSet(M, "kcfi") &&
         M.getCodeModel().value_or(CodeModel::Small) == CodeModel::Small;
}

/// True if inline assembly may appear twice in a file, because it defines no names. A directive may
/// define one, so assembly with a directive may not.
static bool mayBeRepeated(StringRef Assembly) {
  if (Assembly.contains(':'))
    return false;
  for (size_t Dot = Assembly.find('.'); Dot != StringRef::npos; Dot = Assembly.find('.', Dot + 1)) {
    bool Begins = Dot == 0 || isSpace(Assembly[Dot - 1]) || Assembly[Dot - 1] == ';';
    if (Begins && Dot + 1 < Assembly.size() && isAlpha(Assembly[Dot + 1]))
      return false;
  }
  return true;
}

static bool isRepeatable(const Instruction &I) {
  const auto *Call = dyn_cast<CallBase>(&I);
  if (!Call)
    return true;
  if (const auto *Asm = dyn_cast<InlineAsm>(Call->getCalledOperand()))
    if (!mayBeRepeated(Asm->getAsmString()))
      return false;
  return !Call->cannotDuplicate();
}

/// Finds the tables of block addresses of `F` (computed jumps), so that a twin can have copies.
///
/// Such a table must be constant and used by `F` alone. Returns nothing if a block's address is in
/// any other place.
static std::optional<SetVector<GlobalVariable *>> tablesOfBlocks(const Function &F) {
  SetVector<GlobalVariable *> Tables;
  SmallVector<const Constant *, 16> Left;
  for (const BasicBlock &BB : F)
    if (BB.hasAddressTaken())
      if (const BlockAddress *Address = BlockAddress::lookup(&BB))
        Left.push_back(Address);
  while (!Left.empty())
    for (const User *Each : Left.pop_back_val()->users()) {
      if (const auto *I = dyn_cast<Instruction>(Each)) {
        if (I->getFunction() != &F)
          return std::nullopt;
      } else if (const auto *Table = dyn_cast<GlobalVariable>(Each)) {
        if (!Table->hasLocalLinkage() || !Table->isConstant() || Table->hasSection() || Table->hasComdat())
          return std::nullopt;
        // Checks the table's users as it checks those of an address in it.
        if (Tables.insert(const_cast<GlobalVariable *>(Table)))
          Left.push_back(Table);
      } else if (isa<ConstantAggregate>(Each) || isa<ConstantExpr>(Each)) {
        Left.push_back(cast<Constant>(Each));
      } else {
        return std::nullopt;
      }
    }
  return Tables;
}

bool mayHaveTwin(const Function &F) {
  // Attributes by which other tools put code at a function's entry, or expect it there.
  for (const char *Name : {"fentry-call", "patchable-function", "patchable-function-entry", "function-instrument", "instrument-function-entry", "split-stack"})
    if (F.hasFnAttribute(Name))
      return false;
  if (F.hasPrologueData() || F.hasPrefixData())
    return false;
  if (!tablesOfBlocks(F))
    return false;
  return all_of(instructions(F), isRepeatable);
}

/// Difference between an address and the field that stores it. It needs no relocation when the
/// program is loaded.
static Constant *from(GlobalVariable &Table, unsigned Field, Constant *To) {
  LLVMContext &C = Table.getContext();
  Type *Int64 = Type::getInt64Ty(C), *Int32 = Type::getInt32Ty(C);
  // In this form LLVM knows that the difference is constant once the module is linked.
  Constant *Place = ConstantExpr::getInBoundsGetElementPtr(Table.getValueType(), &Table, ArrayRef<Constant *>{ConstantInt::get(Int32, 0), ConstantInt::get(Int32, Field)});
  return ConstantExpr::getTrunc(ConstantExpr::getSub(ConstantExpr::getPtrToInt(To, Int64), ConstantExpr::getPtrToInt(Place, Int64)), Int32);
}

static void addToTable(Function &F, Function &Twin) {
  Module &M = *F.getParent();
  LLVMContext &C = M.getContext();
  Type *Int32 = Type::getInt32Ty(C);
  // The alias always names this body. The function's name may end up at another one (weak
  // functions, functions of shared libraries).
  GlobalAlias *Entry = GlobalAlias::create(F.getValueType(), F.getAddressSpace(), GlobalValue::PrivateLinkage, F.getName() + ".leeward.entry", &F, &M);
  auto *Type = StructType::get(C, {Int32, Int32, Int32});
  auto *Table = new GlobalVariable(M, Type, /*isConstant=*/true, GlobalValue::PrivateLinkage, nullptr, F.getName() + ".leeward.sled");
  Table->setInitializer(ConstantStruct::get(Type, {ConstantInt::get(Int32, Magic), from(*Table, 1, Entry), from(*Table, 2, &Twin)}));
  Table->setSection(".leeward.sleds");
  Table->setAlignment(Align(4));
  // Entries must be adjacent, so no sanitizer may put a red zone around one.
  GlobalValue::SanitizerMetadata Bare;
  Bare.NoAddress = Bare.NoHWAddress = true;
  Table->setSanitizerMetadata(Bare);
  // The linker keeps the entry if it keeps the function, and drops both together.
  Table->setComdat(F.getComdat());
  Table->addMetadata(LLVMContext::MD_associated, *MDNode::get(C, ValueAsMetadata::get(&F)));
  appendToCompilerUsed(M, Table);
}

Function *makeTwin(Function &F) {
  ValueToValueMapTy Map;
  SetVector<GlobalVariable *> Tables = *tablesOfBlocks(F);
  for (GlobalVariable *Table : Tables) {
    auto *Own = new GlobalVariable(*F.getParent(), Table->getValueType(), /*isConstant=*/true, GlobalValue::PrivateLinkage, nullptr, Table->getName() + ".leeward");
    Own->copyAttributesFrom(Table);
    Own->setLinkage(GlobalValue::PrivateLinkage);
    Map[Table] = Own;
  }
  Function *Twin = CloneFunction(&F, Map);
  // The copies of the blocks exist now.
  for (GlobalVariable *Table : Tables)
    cast<GlobalVariable>(Map[Table])->setInitializer(MapValue(Table->getInitializer(), Map));
  Twin->setName(F.getName() + ".leeward");
  Twin->setLinkage(GlobalValue::InternalLinkage);
  Twin->setVisibility(GlobalValue::DefaultVisibility);
  Twin->setDSOLocal(true);
  Twin->setComdat(F.getComdat());
  // One section per twin, so that the linker can drop a twin without its neighbours. Linkers place
  // these sections together, apart from code that runs while nothing records.
  Twin->setSection((".text.unlikely." + Twin->getName()).str());
  // Checks of indirect calls use the address of `F`, not the twin's.
  Twin->eraseMetadata(LLVMContext::MD_type);

  LLVMContext &C = F.getContext();
  F.setPrologueData(ConstantDataArray::get(C, Nop));
  F.setAlignment(std::max(F.getAlign().valueOrOne(), Align(EntryAlignment)));
  addToTable(F, *Twin);
  return Twin;
}

} // namespace leeward
