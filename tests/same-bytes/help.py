"""Part `help`: help, completions, man pages, lists, and error messages for wrong arguments."""

import re

from processes import Unusable

BAD = [
    "", "no-such-command", "--no-such-flag", "run", "run no-such-scenario", "run bw-overall --set nonsense", "run bw-overall --set run.seeds=0",
    "run bw-overall --set no.such=1", "run bw-overall --threads none", "run bw-overall --plant moon", "list no-such-name", "report no-such-folder",
    "replay", "replay no-such-file", "replay . --set nonsense", "serve --admission no-such", "serve --admission codel --set nonsense",
    "serve --admission codel --set target=none", "serve --slo 5", "serve --listen nowhere", "serve --service no-such", "serve --idle sometimes",
    "serve --cores 0", "serve --cores 4..1", "serve --enforce 200%", "serve --config no-such-file", "serve --tls-cert no-such-file",
    "serve --admission none --shadow", "serve --print-config", "serve --print-config --cores 1..4 --admission edge --slo 20ms",
    "load", "load nowhere", "load 127.0.0.1:1", "load 127.0.0.1:1 --demand none", "load 127.0.0.1:1 --service no-such", "top", "top 127.0.0.1:1",
    "why", "why zz", "why 8f3a 127.0.0.1:1", "completions no-such-shell", "profile", "profile info no-such-trace", "profile export .",
    "profile stats . --percentile 101", "tune bw-overall --controller no-such", "train no-such --out x", "twin no-such-folder", "--version",
]
TIMEOUT = 60


def commands(subject, work, path=()):
    """Yields the path of each subcommand with its help; `--help` lists them under *Commands*."""
    ended = subject.run(*path, "--help", folder=work, timeout=TIMEOUT)
    yield path, ended
    listed = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", ended.out.decode("utf-8", "replace"), re.MULTILINE | re.DOTALL)
    for name in re.findall(r"^  (\S+)", listed[1], re.MULTILINE) if listed else []:
        if name != "help" and len(path) < 4:
            yield from commands(subject, work, (*path, name))


def listed_names(subject, work):
    """Names of the scenarios and controllers that the program lists."""
    return re.findall(r"^  ([a-z0-9][\w-]*)  ", subject.run("list", folder=work).out.decode("utf-8", "replace"), re.MULTILINE)


def collect(subject, results, work, options):
    def keep(name, *arguments):
        # The file's name is the command, without `/`.
        path = results / (re.sub(r"[^\w.+=-]+", "_", name) + ".txt")
        path.write_bytes(subject.run(*arguments, folder=work, timeout=TIMEOUT).text())

    found = 0
    for path, ended in commands(subject, work):
        found += 1
        name = " ".join(path)
        (results / f"help_{name.replace(' ', '_')}_--help.txt").write_bytes(ended.text())
        keep(f"help {name} -h", *path, "-h")
        keep(f"help help {name}", "help", *path)
        if len(path) > 1:
            keep(f"help {path[0]} help {name}", path[0], "help", *path[1:])
        options.progress(name or "leeward")
    if found < 2:
        raise Unusable(f"{subject.label}: `--help` lists no command")
    shells = re.search(r"possible values: ([\w, ]+)\]", subject.run("completions", "--help", folder=work).out.decode())
    for shell in shells[1].split(", ") if shells else []:
        keep(f"completions {shell}", "completions", shell)
    subject.run("man", "man", folder=results)
    keep("list", "list")
    keep("list --controllers", "list", "--controllers")
    for name in listed_names(subject, work):
        keep(f"list {name}", "list", name)
    for bad in BAD:
        keep(f"bad {bad}", *bad.split())
        options.progress(bad)
