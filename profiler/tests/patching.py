"""Tests of functions' two bodies. Not a program: `tests/run` runs them.

The body that runs while nothing records must be what the compiler makes without the plugin. The
run-time switches to the other body and back while threads run the function.
"""
import ctypes, os, re, shutil, subprocess, time

from bench import ATTEMPTS, HERE, LIMIT, SLOW, Failed, ask
from skips import missing

EVERY = ["-mllvm", "-leeward-min-instructions=0"]
NOP = re.compile(r'^\s+\.asci[iz]\s+"\\017\\037D\\000"$')
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1


def bodies(assembly):
    """Each function's instructions and labels, without directives.

    Labels lose the number that is the function's place in the file.
    """
    found, name = {}, None
    functions = set(re.findall(r"\.type\s+([\w.]+),@function", assembly))
    for line in assembly.splitlines():
        if match := re.match(r"([\w.]+):\s", line + " "):
            if not match[1].startswith(".L"):
                name = match[1] if match[1] in functions else None
                if name:
                    found[name] = []
                continue
            if match[1].startswith(".Lfunc_end"):
                name = None
            if match[1].startswith(".Lfunc_begin"):
                continue
        if name and (NOP.match(line) or not re.match(r"^\s+\.", line)):
            found[name].append(re.sub(r"\s*#.*", "", re.sub(r"\.LBB\d+_", ".LBB_", re.sub(r"\.LJTI\d+_|\.Ltmp\d+", ".L", line))))
    return found


def unchanged(bench):
    """A function's own body is as without the plugin, except for its nop: the same instructions.

    That includes tail calls.
    """
    if bench.sanitized:
        return
    target = os.path.join(bench.tmp, "unchanged.s")
    sleds = 0
    for source in ("recursion.c", "sleds.c", "planted.c", "exceptions.cpp", "requests.cpp", "computed.c"):
        made = []
        for instrument in (False, True):
            bench.compile(source, target, "tick", extra=[*EVERY, "-fno-asynchronous-unwind-tables"], link="assembly", instrument=instrument)
            made.append(bodies(open(target).read()))
        plain, ours = made
        for name, body in plain.items():
            mine = ours[name]
            if mine and NOP.match(mine[0]):
                sleds += 1
                mine = mine[1:]
                twin = f"{name}.leeward"
                if not any("__leeward_clock" in line for line in ours[twin]):
                    raise Failed(f"unchanged: {source}: {twin} reads no clock")
            elif f"{name}.leeward" in ours:
                raise Failed(f"unchanged: {source}: {name} has a twin and no nop")
            elif any("__leeward_clock" in line for line in mine):
                continue  # instrumented itself
            if mine != body:
                raise Failed(f"unchanged: {source}: {name} differs\n" + "\n".join(body) + "\n----\n" + "\n".join(mine))
    if sleds < 20:
        raise Failed(f"unchanged: {sleds} functions with twins only")
    print("ok unchanged", flush=True)


def switched(bench):
    """Recordings start and stop while threads run patched functions.

    Nothing goes wrong, and each recording has calls of the program and of its libraries.
    """
    target, library, other = (os.path.join(bench.tmp, name) for name in ("sleds", "sledlib.so", "other.so"))
    for engine in ("tick", "scan"):
        bench.compile("sledlib.c", library, engine, extra=EVERY, link="library")
        shutil.copy(library, other)
        bench.compile("sleds.c", target, engine, extra=EVERY)
        program = subprocess.Popen([target, library, other], env=dict(os.environ, LEEWARD_PROFILE="wait"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        try:
            program.stdout.readline()
            folders = []
            for phase in range(8):
                folder = os.path.join(bench.tmp, f"switched-{engine}-{phase}")
                answer = ask(program.pid, f"start dir={folder},disk=4M,sched=off")
                if not answer.startswith("ok recording"):
                    raise Failed(f"switched: {answer}")
                folders.append(folder)
                time.sleep(0.25)
                answer = ask(program.pid, "stop")
                if not answer.startswith("ok stopped"):
                    raise Failed(f"switched: {answer}")
                time.sleep(0.02 * (phase % 3))
            said, complaint = program.communicate("", timeout=LIMIT)
        finally:
            program.kill()
            program.wait()
        if program.returncode != 0 or not said.startswith("right"):
            raise Failed(f"switched: {program.returncode} {said}{complaint}")
        for folder in folders:
            text = bench.decode(folder)
            calls = {name: len(re.findall(rf"^call .* {name} from", text, re.M)) for name in ("works", "other_in_library", "quick_in_library")}
            if calls["works"] == 0 or calls["other_in_library"] == 0 or "missing: " in text:
                raise Failed(f"switched: {folder}: {calls}\n{text[:2000]}")
            shutil.rmtree(folder)
        # The library that comes and goes is called once per load.
        if engine == "tick" and not calls["quick_in_library"]:
            print("   switched: no call of the library that comes and goes was long enough in the last recording", flush=True)
        print(f"ok switched {engine}", flush=True)


COMDAT = """
#include <unistd.h>
template <class T> __attribute__((noinline)) T twice(T x) { static int n; usleep(2000); n++; return x + x; }
inline __attribute__((noinline)) int throws(int x) { usleep(2000); if (x) throw x; return 0; }
int %s(int x) { try { return twice(x) + throws(x); } catch (int y) { return y; } }
"""
MAIN = "#include <stdio.h>\nint one(int), two(int);\nint main() { puts(one(1) + two(2) == 3 ? \"right\" : \"wrong\"); }\n"
DEAD = """
#include <stdio.h>
#include <unistd.h>
int nowhere(int);
__attribute__((noinline)) int lives(int n) { usleep(2000); return n; }
int dead(int n) { for (int i = 0; i < n; i++) n += nowhere(n); return n; }
int main(void) { puts(lives(1) ? "right" : "wrong"); }
"""


def linked(bench):
    """Linkers keep one of two copies, drop unused sections, and resolve names defined twice.

    Static programs have no dynamic linker.
    """
    def write(name, text):
        with open(os.path.join(bench.tmp, name), "w") as file:
            file.write(text)
        return os.path.join(bench.tmp, name)

    target = os.path.join(bench.tmp, "linked")
    one, two = write("one.cpp", COMDAT % "one"), write("two.cpp", COMDAT % "two")
    for plain in (None, one, two):
        objects = []
        for source in (one, two):
            objects.append(source[:-4] + ".o")
            bench.compile(source, objects[-1], "tick", extra=EVERY, link="object", instrument=source != plain)
        bench.compile(write("main.cpp", MAIN), target, "tick", extra=objects)
        bench.behave([target])
        # The linker may take either copy; usually it takes the first one.
        bench.recorded([target], "", [SLOW % r"twice<int>\(int\) from", SLOW % r"throws\(int\) from"] if plain != one else [SLOW % r"two\(int\) from main"])
    print("ok linked, copies", flush=True)

    bench.compile(write("dead.c", DEAD), target, "tick", extra=["-ffunction-sections", "-Wl,--gc-sections"])
    bench.recorded([target], "", [SLOW % "lives from main"])
    print("ok linked, dead code", flush=True)

    over = write("over.c", "#include <unistd.h>\nint overridden(int n) { usleep(2000); return n + 100; }\n")
    bench.compile("computed.c", target, "tick", extra=EVERY)
    bench.recorded([target], "", [SLOW % f"{name} from main" for name in ("runs", "assembles", "overridden", "changes")])
    bench.compile(over, over + ".o", "tick", extra=EVERY, link="object")
    bench.compile("computed.c", target, "tick", extra=[*EVERY, over + ".o"])
    bench.recorded([target], "", [SLOW % "overridden from main"])
    print("ok linked, weak", flush=True)

    if not bench.sanitized:
        bench.compile("recursion.c", target, "tick", extra=EVERY, link="static")
        bench.behave([target])
        bench.recorded([target], "", [SLOW % "slow_afterwards from (?!down)"])
        print("ok linked, static", flush=True)


def hardened(bench):
    """A program that has forbidden itself to make its code writable runs.

    Its trace has a note about the missing calls.
    """
    target = os.path.join(bench.tmp, "hardened")
    libc = ctypes.CDLL(None, use_errno=True)
    refuse = lambda: libc.prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)
    if subprocess.run(["true"], preexec_fn=lambda: refuse() == 0 or os._exit(9)).returncode != 0:
        return missing("scheduler", "hardened", "this kernel has no PR_SET_MDWE")
    bench.compile("recursion.c", target, "tick", extra=EVERY)
    folder = os.path.join(bench.tmp, "hardened.trace")
    bench.behave([target], f"on,dir={folder}", before=refuse)
    text = bench.decode(folder)
    if "their code may not be changed here" not in text or re.search(r"^call ", text, re.M):
        raise Failed("hardened: no note, or calls all the same\n" + text[:3000])
    bench.compile("recursion.c", target, "tick", extra=[*EVERY, "-mllvm", "-leeward-patch=false"])
    for attempt in range(ATTEMPTS):
        shutil.rmtree(folder)
        bench.behave([target], f"on,dir={folder}", before=refuse)
        text = bench.decode(folder)
        if re.search(SLOW % "slow_afterwards from (?!down)", text, re.M):
            break
    else:
        raise Failed("hardened: nothing recorded without patching\n" + text[:3000])
    print("ok hardened", flush=True)


PATCHING = {"unchanged": unchanged, "switched": switched, "linked": linked, "hardened": hardened}
