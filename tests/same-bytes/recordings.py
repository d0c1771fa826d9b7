"""Part `recordings`: replays of the golden recordings, and of damaged ones."""

import hashlib
import shutil

from processes import Unusable


def collect(subject, results, work, options):
    found = subject.inputs("*golden/*.rec")
    if not found:
        raise Unusable(f"{subject.label}: no golden recording")
    for name, path in found:
        shutil.copy(path, work / name)
        (results / f"{name}.sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest() + "\n")
        for title, flags in (("", []), (".by-codel", ["--admission", "codel"])):
            (results / f"{name}{title}.txt").write_bytes(subject.run("replay", name, *flags, folder=work).text())
            (results / f"{name}{title}.json").write_bytes(subject.run("replay", name, *flags, "--json", folder=work).out)
        options.progress(name)
    # Damaged recordings: one cut in half, one with a changed byte.
    for name, path in found[:3]:
        whole = path.read_bytes()
        half = len(whole) // 2
        for title, data in (("cut", whole[:half]), ("changed", whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1:])):
            (work / f"{title}.rec").write_bytes(data)
            (results / f"{name}.{title}.txt").write_bytes(subject.run("replay", f"{title}.rec", folder=work).text())
