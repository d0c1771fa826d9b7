"""Sweeps inside a process of `multiprocessing`: they end, and leave no process behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

import leeward as lw

MARK = "LEEWARD_TEST_FAMILY"
# Seconds; longer than any of these sweeps takes on a busy machine.
PATIENCE = 120

CODE = """
import multiprocessing
import sys
import leeward as lw

def child(on, answer):
    s = lw.scenario("bw-overall").quick().set({"workload.clients": 40, "run.duration": "6ms", "run.warmup": "2ms"}).controllers("none")
    try:
        answer.put(len(lw.sweep(s, {"demand": [0.8, 1.2, 2.0]}, on=on, workers=2).table()))
    except lw.LeewardError as error:
        answer.put(f"{type(error).__name__}: {error}")

if __name__ == "__main__":
    _, method, on, daemon = sys.argv
    context = multiprocessing.get_context(method)
    answer = context.SimpleQueue()
    process = context.Process(target=child, args=(on, answer), daemon=daemon == "daemonic")
    process.start()
    process.join()
    print(process.exitcode, "nothing" if answer.empty() else answer.get())
"""

LONG = """
import sys
import leeward as lw

if __name__ == "__main__":
    s = lw.scenario("bw-overall").set({"run.duration": "100s", "run.seeds": 1})
    print("begins", flush=True)
    lw.sweep(s, {"demand": [1.0, 2.0]}, on=sys.argv[1], workers=2)
"""


def family(mark: str) -> list[int]:
    """Ids of the processes with this mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass  # the process has ended, or is another user's
    return found


def all_end(mark: str) -> bool:
    """Waits up to 10 seconds for all processes with this mark to end; returns whether they have."""
    for _ in range(200):
        if not family(mark):
            return True
        time.sleep(0.05)
    return False


def begun(folder: Path, code: str, *arguments: str) -> tuple[str, subprocess.Popen]:
    """Runs the code in a process with a new mark, from a file that its workers can import."""
    mark = uuid.uuid4().hex
    file = folder / "program.py"
    file.write_text(code)
    environment = os.environ | {MARK: mark}
    return mark, subprocess.Popen([sys.executable, file, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("on", ["processes", "threads"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_sweep_in_a_child_ends_with_all_of_its_workers(tmp_path, method, on):
    mark, program = begun(tmp_path, CODE, method, on, "plain")
    try:
        out, errors = program.communicate(timeout=PATIENCE)
    finally:
        for left in family(mark):
            if program.poll() is None:
                os.kill(left, signal.SIGKILL)
    assert (out, errors) == ("0 3\n", ""), errors
    assert all_end(mark)


def test_a_daemonic_child_is_told_what_it_can_not_have(tmp_path):
    mark, program = begun(tmp_path, CODE, "fork", "processes", "daemonic")
    out, _ = program.communicate(timeout=PATIENCE)
    assert out.startswith("0 SweepError: on: a daemonic process") and "accepted: threads" in out, out
    mark, program = begun(tmp_path, CODE, "fork", "threads", "daemonic")
    assert program.communicate(timeout=PATIENCE)[0] == "0 3\n" and all_end(mark)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path, how):
    mark, program = begun(tmp_path, LONG, "processes")
    assert program.stdout.readline() == "begins\n"
    # At least the parent and its two workers; multiprocessing may have helpers of its own.
    while len(family(mark)) < 3 and program.poll() is None:
        time.sleep(0.05)
    time.sleep(0.5)
    program.send_signal(how)
    _, errors = program.communicate(timeout=PATIENCE)
    assert all_end(mark)
    if how == signal.SIGINT:
        assert errors.count("KeyboardInterrupt") == 1 and "ForkProcess" not in errors and "SpawnProcess" not in errors, errors


def test_a_part_that_can_not_be_written_ends_the_sweep(short, tmp_path, monkeypatch):
    def full(self, part, table):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("leeward.datasets.Dataset.write", full)
    before = multiprocessing.active_children()
    with pytest.raises(OSError, match="No space"):
        lw.sweep(short, {"demand": [0.8, 2.0]}, on="processes", workers=2, out=tmp_path / "set")
    assert multiprocessing.active_children() == before
