"""Ctrl-C during runs and sweeps, and other threads of Python during a run."""

import signal
import subprocess
import sys
import threading
import time

import pytest

import leeward as lw

# A run that would last for minutes.
LONG = 'lw.scenario("bw-overall").set({"run.duration": "100s", "run.seeds": 8})'


def interrupted(code: str) -> None:
    """Runs `code` until it prints `begins`, sends Ctrl-C, and expects `KeyboardInterrupt`."""
    program = subprocess.Popen([sys.executable, "-c", "import leeward as lw\n" + code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "begins\n"
    time.sleep(0.3)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors and program.returncode != 0, errors


def test_ctrl_c_ends_a_run():
    interrupted(f'print("begins", flush=True)\n{LONG}.run()')


def test_a_run_ends_in_its_middle():
    """After Ctrl-C the process continues, and no thread simulates any more."""
    code = """
import resource
import signal
import threading
import time
import leeward as lw

scenario = lw.scenario("bw-overall").controllers("breakwater").set({"run.duration": "1000s", "run.seeds": 1, "workload.demand": [1.0]})
threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
try:
    scenario.run(threads=1)
except KeyboardInterrupt:
    time.sleep(0.5)  # the threads have time to end
    before = time.process_time()
    time.sleep(1)
    print("idle" if time.process_time() - before < 0.2 else "still at work")
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout == "idle\n"


def test_ctrl_c_ends_a_sweep_on_threads():
    interrupted(f'print("begins", flush=True)\nlw.sweep({LONG}, {{"demand": [1.0, 2.0]}}, on="threads")')


def test_ctrl_c_ends_a_controller_in_python():
    code = f"""
class Mine(lw.Controller):
    def request(self, arrival):
        return True
print("begins", flush=True)
{LONG}.controllers(Mine).run()
"""
    interrupted(code)


def test_the_interpreter_is_free_while_a_run_lasts(short):
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    short.set({"run.duration": "200ms", "workload.demand": [2.0]}).run(seeds=2, threads=1)
    done.set()
    other.join()
    assert counted > 5


ENDLESS = """
import os
import leeward as lw

class Endless(lw.Controller):
    def tick(self, signals):
        os.write(1, b"begins\\n")
        while True:
            pass

scenario = lw.scenario("bw-overall").quick().controllers(Endless)
"""


def ended(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Sends Ctrl-C once `begins` is there; returns how the program ends."""
    assert program.stdout.readline() == "begins\n"
    time.sleep(0.2)
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=60)
    return program.returncode, output, errors


@pytest.mark.parametrize("call", ["scenario.run()", 'lw.sweep(scenario, {"demand": [1.0, 2.0]}, on="threads")'])
def test_ctrl_c_ends_an_endless_controller(call):
    """The process neither computes on nor aborts when it exits."""
    code = f"""{ENDLESS}
import time
try:
    {call}
except KeyboardInterrupt:
    before = time.process_time()
    time.sleep(0.5)
    print("idle" if time.process_time() - before < 0.2 else "still at work")
"""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    code, output, errors = ended(program)
    assert (code, output.splitlines()[-1]) == (0, "idle"), errors


def test_python_ends_while_a_controller_computes():
    """A thread of the program's own is in a run when the program ends."""
    code = f"""{ENDLESS}
import threading, time
threading.Thread(target=scenario.run, daemon=True).start()
time.sleep(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
