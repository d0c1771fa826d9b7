"""The command line of `scripts/same-bytes`: its arguments, and the report of all parts."""

import argparse
import importlib
import signal
import sys
import time
from pathlib import Path

import differences
from processes import Unusable
from subjects import ROOT, finished, made_by, revision

PARTS = {
    "scenarios": "results and reports of all simulated scenarios, quick, one seed",
    "recordings": "replays of the golden recordings",
    "traces": "what the profiler reads from the traces in the repository",
    "wire": "answers to frames and to memcached's commands, good and bad ones",
    "help": "help, man pages, completions, lists, messages for bad uses",
    "names": "keys of JSON, paths and metrics of the admin port, memcached's statistics",
    "instructions": "instructions per operation of the hot paths (with --instructions; needs valgrind)",
}
SHOWN = 8

EXAMPLES = """\
examples:
  scripts/same-bytes main .                      does the working tree do all that main does?
  scripts/same-bytes HEAD~5 HEAD --only help names
  scripts/same-bytes main . --only scenarios --full     the quick runs in their whole length
  scripts/same-bytes main . --only wire,names --instructions
  scripts/same-bytes --old-program /usr/bin/leeward --new-program target/debug/leeward

Revisions are built in worktrees below target/same-bytes/, and their results are kept there: the
same OLD costs nothing the second time. `git worktree remove` and `make clean` free the space.

exit codes: 0 the same, 1 different, 2 a bad use or a revision that does not build, 130 interrupted
"""


class Options:
    """Options of the command line for the parts, and their progress messages: one per 5 seconds."""

    def __init__(self, full):
        self.full, self.what, self.told = full, "", time.monotonic()

    def progress(self, text):
        now = time.monotonic()
        if now - self.told >= 5:
            self.told = now
            print(f"same-bytes: {self.what}: {text}", file=sys.stderr, flush=True)


def arguments(given):
    parser = argparse.ArgumentParser(
        prog="same-bytes", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXAMPLES,
        description="Builds two revisions and compares all that users and other programs see, part by part (--list).")
    parser.add_argument("old", metavar="OLD", nargs="?", help="git revision to hold the other against")
    parser.add_argument("new", metavar="NEW", nargs="?", help="git revision, or `.`: the working tree as it stands")
    parser.add_argument("--old-program", metavar="P", help="a finished program instead of OLD")
    parser.add_argument("--new-program", metavar="P", help="a finished program instead of NEW")
    parser.add_argument("--only", metavar="PART", nargs="+", action="extend", default=[], help="these parts alone")
    parser.add_argument("--list", action="store_true", help="list the parts, and end")
    parser.add_argument("--full", action="store_true", help="do not cut long scenarios down")
    parser.add_argument("--instructions", action="store_true", help="count instructions, too, of release builds")
    parser.add_argument("--work", metavar="DIR", default=ROOT / "target" / "same-bytes", type=Path,
                        help="folder for builds and results [default: target/same-bytes]")
    asked = parser.parse_args(given)
    only = [part for word in asked.only for part in word.split(",") if part]
    unknown = [part for part in only if part not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are: {', '.join(PARTS)} (revisions go before --only)")
    asked.parts = [part for part in PARTS if part in only or not only and part != "instructions"]
    if asked.instructions and "instructions" not in asked.parts:
        asked.parts.append("instructions")
    if not asked.list:
        positions = [word for word in (asked.old, asked.new) if word is not None]
        wanted = ["OLD"] * (asked.old_program is None) + ["NEW"] * (asked.new_program is None)
        if len(positions) != len(wanted):
            parser.error(f"{' and '.join(wanted) or 'no revision'} expected, {len(positions)} given")
        asked.old = positions.pop(0) if asked.old_program is None else None
        asked.new = positions.pop(0) if asked.new_program is None else None
    return asked


def compared(part, old, new, key, options):
    """Collects and compares both sides' results of a part; returns whether they are the same."""
    began = time.monotonic()
    collect = importlib.import_module(part).collect
    folders = []
    for side, subject in (("old", old), ("new", new)):
        options.what = f"{part} of {side}"
        folders.append(subject.collect(part, collect, key, options))
    count, found = differences.compare(*folders)
    took = f"{time.monotonic() - began:.0f} s"
    if not found:
        print(f"{part:<12} same       {count} items, {took}", flush=True)
        return True
    print(f"{part:<12} DIFFERENT  {len(found)} of {count} items, {took}")
    for name, shown in found[:SHOWN]:
        print(f"  {name}")
        for line in shown:
            print(f"    {line}")
    if len(found) > SHOWN:
        print(f"  and {len(found) - SHOWN} more: {', '.join(name for name, _ in found[SHOWN:SHOWN + 20])}…"[:400])
    print(f"  OLD: {folders[0]}\n  NEW: {folders[1]}", flush=True)
    return False


def compare(asked):
    work = asked.work.absolute()
    old = finished(asked.old_program, "old", work) if asked.old_program else revision(asked.old, work)
    new = finished(asked.new_program, "new", work) if asked.new_program else revision(asked.new, work)
    print(f"OLD {old.label}\nNEW {new.label}", flush=True)
    options, same, made = Options(asked.full), True, made_by()
    for part in asked.parts:
        if part == "instructions":
            from instructions import compare_instructions
            same = compare_instructions(old, new, options) and same
            continue
        for subject in (old, new):
            subject.use("dev")
        key = f"{made} {'full' if asked.full else 'cut'}"
        same = compared(part, old, new, key, options) and same
    return same


def interrupted(*_):
    raise KeyboardInterrupt


def main(given=None):
    asked = arguments(given)
    if asked.list:
        for part, what in PARTS.items():
            print(f"{part:<12} {what}")
        return 0
    signal.signal(signal.SIGTERM, interrupted)
    try:
        return 0 if compare(asked) else 1
    except Unusable as error:
        print(f"same-bytes: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("same-bytes: interrupted", file=sys.stderr)
        return 130
