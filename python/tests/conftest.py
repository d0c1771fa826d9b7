"""Fixtures of the tests: a short scenario."""

import pytest

import leeward as lw

SHORT = {"workload.clients": 40, "run.duration": "6ms", "run.warmup": "2ms"}


@pytest.fixture(scope="session")
def short() -> lw.Scenario:
    """bw-overall with few clients and a few thousand requests per run."""
    return lw.scenario("bw-overall").quick().set(SHORT)
