"""The wheel: its name, its requirements, and its use by later interpreters."""

import email
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

NEEDED = "cp311-abi3"


@pytest.fixture(scope="module")
def wheel() -> Path:
    path = os.environ.get("LEEWARD_WHEEL")
    if not path:
        pytest.skip("LEEWARD_WHEEL names no wheel: `make python-check` does")
    return Path(path)


def interpreters() -> list[str]:
    """Installed interpreters of later versions than 3.11."""
    names = [f"python3.{minor}" for minor in range(12, 20)]
    places = [os.defpath, os.environ.get("PATH", ""), *(str(one) for one in sorted(Path.home().glob(".pyenv/versions/*/bin")))]
    found = {}
    for name in names:
        for folder in os.pathsep.join(places).split(os.pathsep):
            program = shutil.which(name, path=folder)
            # A shim of pyenv fails if its version is not selected.
            if program and subprocess.run([program, "-c", ""], capture_output=True).returncode == 0:
                found.setdefault(name, program)
    return list(found.values())


def test_one_wheel_is_for_all_versions(wheel):
    assert NEEDED in wheel.name
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(file.read(metadata))
    assert any(name.endswith("leeward/py.typed") for name in names)
    assert not [name for name in names if "test" in name or "notebook" in name], "only what is used"
    needs = told.get_all("Requires-Dist") or []
    assert needs and all("extra ==" in need for need in needs), "nothing is required without an extra"


def test_later_interpreters_import_and_run_it(wheel, tmp_path):
    found = interpreters()
    if not found:
        pytest.skip("no Python later than 3.11 is installed")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import leeward as lw

class Half(lw.Controller):
    def tick(self, signals):
        return {"admit": 0.5}

short = lw.scenario("bw-overall").quick().set({"workload.clients": 20, "run.duration": "4ms", "run.warmup": "1ms"})
print(len(short.controllers("breakwater", Half).run(seeds=1).table()))
"""
    for program in found:
        done = subprocess.run([program, "-S", "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
        assert done.stdout.strip() == "10", f"{program}: {done.stderr}"
