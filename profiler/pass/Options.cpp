// Definitions of the plugin's options, on the command line and in LEEWARD_PASS_OPTIONS.
#include "Options.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/ErrorHandling.h"

#include <cstdlib>
#include <mutex>

using namespace llvm;

namespace leeward {

cl::opt<Engine> EngineOption(
    "leeward-engine", cl::desc("How leeward takes a function's time"), cl::init(Engine::Tick),
    cl::values(clEnumValN(Engine::None, "none", "not at all"),
               clEnumValN(Engine::Tick, "tick", "a coarse clock, read on entry and on exit"),
               clEnumValN(Engine::Scan, "scan", "a shadow stack, looked at by another thread")));

cl::opt<unsigned> MinimumInstructions("leeward-min-instructions", cl::init(64),
                                      cl::desc("Leave smaller functions without calls and loops alone"));

cl::opt<unsigned> BoundedInstructions("leeward-bounded-instructions", cl::init(200),
                                      cl::desc("Leave functions alone that execute no more, without loops, those that they call included"));

cl::list<std::string> ExcludedFunctions("leeward-exclude", cl::CommaSeparated,
                                        cl::desc("Function names (patterns) to leave alone"));

cl::list<std::string> ExcludedFiles("leeward-exclude-file", cl::CommaSeparated,
                                    cl::desc("Source files (patterns) to leave alone"));

cl::list<std::string> ExclusionLists("leeward-exclude-list",
                                     cl::desc("File with lines `fun:PATTERN` and `src:PATTERN` to leave alone"));

cl::opt<bool> OnlyMarked("leeward-only-marked", cl::init(false),
                         cl::desc("Only functions marked by -finstrument-functions-after-inlining"));

cl::opt<bool> Patch("leeward-patch", cl::init(true),
                    cl::desc("Instrument a twin of each function, which a patched jump at its entry leads to while something records"));

cl::opt<bool> MeasureUnwinding("leeward-unwind", cl::init(true),
                               cl::desc("Measure functions left by a C++ exception, too"));

cl::list<std::string> RequestFunctions("leeward-request-fn", cl::CommaSeparated,
                                       cl::desc("NAME, NAME:N or NAME:N:L: each call is a request, its id argument N, its label the text in argument L"));

static void readText(StringRef Text) {
  SmallVector<StringRef, 8> Lines;
  Text.split(Lines, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef Line : Lines) {
    auto [Name, Value] = Line.split('=');
    Name = Name.ltrim('-');
    auto Found = cl::getRegisteredOptions().find(Name);
    bool Ours = Name.substr(0, 8) == "leeward-" && Found != cl::getRegisteredOptions().end();
    // `addOccurrence` prints its own message about a wrong value.
    if (!Ours || Found->second->addOccurrence(0, Name, Value))
      report_fatal_error(Twine("leeward: LEEWARD_PASS_OPTIONS: `") + Line + "` is no option", false);
  }
}

void readEnvironment() {
  // Compilers load plugins for each module, on several threads.
  static std::once_flag Once;
  std::call_once(Once, [] {
    if (const char *Text = std::getenv("LEEWARD_PASS_OPTIONS"))
      readText(Text);
  });
}

} // namespace leeward
