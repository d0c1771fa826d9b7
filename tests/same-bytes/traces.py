"""Part `traces`: the profiler's output for each trace in the repository, in all forms."""

import hashlib
import shutil

from processes import Unusable

READ = [
    "info", "info --json", "stats", "stats --json", "stats -p 50 -n 100", "stats --by-caller", "stats --per-request", "stats --filter a",
    "requests", "requests --json", "requests -n 100", "timeline", "timeline --json", "tail", "tail --json", "tail --slowest 10",
    "tail --by label", "tail --request-fn main",
]
WRITTEN = [
    ("timeline --html", "page.html"), ("export --format perfetto -o", "perfetto"), ("export --format chrome -o", "chrome.json"),
    ("export --format csv -o", "csv"), ("export --format parquet -o", "parquet"), ("export --format folded -o", "folded"),
    ("export --format folded --slowest 5 -o", "slow.folded"),
]


def collect(subject, results, work, options):
    found = subject.inputs("*.lwt")
    if not found:
        raise Unusable(f"{subject.label}: no trace")
    for name, path in found:
        (results / f"{name}.sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest() + "\n")
        # The folder of a trace has the traced program, which contains the names of functions.
        folder = work / path.stem
        shutil.copytree(path.parent, folder)
        for flags in READ:
            command, *rest = flags.split()
            ended = subject.run("profile", command, path.name, "--symbols", ".", *rest, folder=folder)
            kind = "json" if "--json" in rest else "txt"
            (results / f"{name}.{flags.replace(' ', '')}.{kind}").write_bytes(ended.out if kind == "json" else ended.text())
        for flags, form in WRITTEN:
            command, *rest = flags.split()
            ended = subject.run("profile", command, path.name, "--symbols", ".", *rest, form, folder=folder)
            (results / f"{name}.{form}.txt").write_bytes(ended.text())
            if (folder / form).exists():
                shutil.copy(folder / form, results / f"{name}.{form}")
        options.progress(name)
