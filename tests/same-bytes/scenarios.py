"""Part `scenarios`: the results and the report of each scenario that can be simulated.

A scenario runs with `--quick`, one seed and, without `--full`, a tenth of the time. A scenario
whose load changes later rejects so short a run, and then runs in its whole quick length. For a
scenario that can only be measured, the comparison is of the error message.
"""

import re
import time

from processes import Unusable

TIMEOUT = 1800
CUT = 10
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, None: 1}
KEYS = {"duration": "run", "warmup": "run", "at_least": "run", "requests": "train"}


def names(subject, work):
    """Ids of the scenarios that the program lists."""
    listed = subject.run("list", folder=work).out.decode().split("\n")
    found, inside = [], False
    for line in listed:
        if line and not line.startswith(" "):
            inside = line.startswith("Scenarios")
        named = re.match(r"  ([a-z0-9][\w-]*)", line)
        if inside and named:
            found.append(named[1])
    if not found:
        raise Unusable(f"{subject.label}: `leeward list` names no scenario")
    return found


def cut_down(text):
    """Flags that divide the times and numbers of requests of a scenario by `CUT`."""
    sections = dict(re.findall(r"^\[(run|train|quick)\]$(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL))
    flags = []
    for key, section in KEYS.items():
        for name in ("quick", section):
            found = re.search(rf'^{key} *= *"?([\d.]+)(ns|us|ms|s)?"?$', sections.get(name, ""), re.MULTILINE)
            if found:
                value = round(float(found[1]) * UNITS[found[2]] / CUT)
                flags += ["--set", f"{section}.{key}={value}{'ns' if found[2] else ''}"]
                break
    return flags


def collect(subject, results, work, options):
    files = dict(subject.inputs("*.toml"))
    all_names = names(subject, work)
    for at, name in enumerate(all_names, 1):
        began = time.monotonic()
        base = ["run", name, "--quick", "--set", "run.seeds=1", "--out", name]
        file = files.get(f"{name}.toml")
        cut = cut_down(file.read_text()) if file and not options.full else []
        ended = subject.run(*base, *cut, folder=results, timeout=TIMEOUT)
        if cut and ended.code == 2:
            ended = subject.run(*base, folder=results, timeout=TIMEOUT)
        (results / f"{name}.txt").write_bytes(ended.text())
        options.progress(f"{at} of {len(all_names)}: {name}, {time.monotonic() - began:.1f} s")
