"""Tests of recording within a share of the CPU. Not a program: `tests/run` runs them.

They check which functions the run-time leaves out for it, and that the trace says so. Nothing may
go wrong while functions are left out and taken in again.
"""
import os, re, shutil, subprocess, time

from bench import ATTEMPTS, LIMIT, SLOW, Failed, ask

EVERY = ["-mllvm", "-leeward-min-instructions=0", "-mllvm", "-leeward-bounded-instructions=0"]


def share_of(text):
    said = re.search(r"^share (.*)", text, re.M)
    if not said:
        raise Failed("no share in the trace\n" + text[:2000])
    words = said[1].split()
    share = dict(zip(words[::2], map(int, words[1::2])))
    share["out"] = {name: (int(calls), int(missed), int(length))
                    for name, calls, missed, length in re.findall(r"^left out (\S+) calls (\d+) missed (\d+) length (\d+)", text, re.M)}
    return share


def shared(bench):
    """The short functions with the most calls are left out, and the trace says so.

    Hardly any call of the slow function is missing. If the share suffices for all functions, none
    is left out.
    """
    target = os.path.join(bench.tmp, "short")
    bench.compile("short.c", target, "tick", extra=EVERY)
    for attempt in range(ATTEMPTS):
        folder = os.path.join(bench.tmp, "shared")
        shutil.rmtree(folder, ignore_errors=True)
        done = bench.call([target, "2"], env=dict(os.environ, LEEWARD_PROFILE=f"on,dir={folder},overhead=3%"))
        slows = int(done.stdout.split()[1])
        text = bench.decode(folder)
        share, found = share_of(text), len(re.findall(SLOW % "slow from main", text, re.M))
        calls, missed, length = share["out"].get("tiny", (0, 0, 0))
        # A call of `hundred` takes some hundred times as long as one of `tiny`. If `hundred` is
        # left out, `tiny` must be, too.
        if share["asked"] == 30000 and missed > calls / 2 and calls > 1e6 and length < 1000 and "slow" not in share["out"] and found >= slows * 0.95:
            break
    else:
        raise Failed(f"shared: {found} of {slows} slow calls, {share}")
    if not re.search(r"^note 0 4 overhead: an estimated \d+\.\d % .* ticks of \d+\.\d us", text, re.M):
        raise Failed("shared: no note\n" + text[:2000])
    bench.compile("recursion.c", target, "tick", extra=EVERY)
    text = bench.recorded([target], "overhead=50%", [r"^share asked 500000 "])
    if share_of(text)["left_out"]:
        raise Failed(f"shared: functions were left out though there was room for all\n{text[:2000]}")
    print("ok shared", flush=True)


def shared_threads(bench):
    """Calls are counted, and functions left out, while threads run them and libraries come and go.

    Afterwards a recording measures all functions again.
    """
    target, library, other = (os.path.join(bench.tmp, name) for name in ("sleds", "sledlib.so", "other.so"))
    bench.compile("sledlib.c", library, "tick", extra=EVERY, link="library")
    shutil.copy(library, other)
    bench.compile("sleds.c", target, "tick", extra=EVERY)
    program = subprocess.Popen([target, library, other], env=dict(os.environ, LEEWARD_PROFILE="wait"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        program.stdout.readline()
        out = 0
        for phase in range(5):
            folder = os.path.join(bench.tmp, f"shares-{phase}")
            # The fourth recording measures all functions, also those that were left out before.
            answer = ask(program.pid, f"start dir={folder},disk=4M,sched=off,overhead={'1%' if phase != 3 else 'off'}")
            if not answer.startswith("ok recording"):
                raise Failed(f"shared_threads: {answer}")
            time.sleep(0.6)
            answer = ask(program.pid, "stop")
            if not answer.startswith("ok stopped"):
                raise Failed(f"shared_threads: {answer}")
            text = bench.decode(folder)
            if "missing: " in text or phase == 3 and not re.search(r"^call .* works from", text, re.M):
                raise Failed(f"shared_threads: {phase}\n{text[:2000]}")
            if phase != 3:
                out += share_of(text)["left_out"]
            shutil.rmtree(folder)
        said, complaint = program.communicate("", timeout=LIMIT)
    finally:
        program.kill()
        program.wait()
    if program.returncode != 0 or not said.startswith("right") or out == 0:
        raise Failed(f"shared_threads: {program.returncode} {said}{complaint}, {out} left out")
    print("ok shared_threads", flush=True)


def shared_forks(bench):
    """Children that are forked while calls are counted are recorded, and end."""
    target = os.path.join(bench.tmp, "storm")
    bench.compile("storm.c", target, "tick", extra=EVERY)
    bench.behave([target, "100"], f"on,dir={bench.tmp}/shared-storm,overhead=1%,disk=2M")
    found = [folder for folder in os.listdir(bench.tmp) if folder.startswith("shared-storm-")]
    if not found:
        raise Failed("shared_forks: no child was recorded")
    for folder in found:
        shutil.rmtree(os.path.join(bench.tmp, folder))
    print("ok shared_forks", flush=True)


SHARES = {"shared": shared, "shared_threads": shared_threads, "shared_forks": shared_forks}
