"""Recordings of servers and traces of the profiler."""

from pathlib import Path

import pytest

import leeward as lw

GOLDEN = Path(__file__).parents[2] / "crates/control/tests/golden"


def test_a_recording_is_a_frame():
    recorded = lw.read(GOLDEN / "breakwater.rec")
    frame = recorded.frame("polars")
    requests = frame.filter(frame["event"] == "request")
    assert len(frame) > 1_000 and set(requests["verdict"]) <= {"admit", "reject"}
    assert frame["time_us"].is_sorted() or frame["time_us"].min() == 0
    ticks = frame.filter(frame["event"] == "tick")
    assert ticks["credit_pool"].null_count() == 0 and len(ticks) > 10


def test_what_is_none_is_said(tmp_path):
    cut = tmp_path / "cut.rec"
    cut.write_bytes((GOLDEN / "breakwater.rec").read_bytes()[:200])
    with pytest.raises(lw.ResultsError, match="cut.rec"):
        lw.read(cut)
    other = tmp_path / "result.json"
    other.write_text("{}")
    with pytest.raises(lw.ResultsError, match="not a results file"):
        lw.read(other)
    with pytest.raises(lw.ResultsError):
        lw.read(tmp_path).requests()
