"""Recordings of servers and traces of the profiler."""

from pathlib import Path

import pytest

import leeward as lw

GOLDEN = Path(__file__).parents[2] / "controllers/recording/tests/golden"


def test_a_recording_is_a_frame():
    recorded = lw.read(GOLDEN / "breakwater.rec")
    frame = recorded.frame("polars")
    requests = frame.filter(frame["event"] == "request")
    assert len(frame) > 1_000 and set(requests["verdict"]) <= {"admit", "reject"}
    assert frame["time_us"].is_sorted() or frame["time_us"].min() == 0
    ticks = frame.filter(frame["event"] == "tick")
    assert ticks["credit_pool"].null_count() == 0 and len(ticks) > 10


def test_a_reply_says_how_its_request_ended():
    frames = [lw.read(path).frame("polars") for path in sorted(GOLDEN.glob("*.rec"))]
    ends = set()
    for frame in frames:
        replies = frame.filter(frame["event"] == "reply")
        assert len(replies) > 0 and replies["outcome"].null_count() == 0
        assert frame.filter(frame["event"] != "reply")["outcome"].null_count() == len(frame) - len(replies)
        ends |= set(replies["outcome"])
    assert ends == {"completed", "dropped"}


# A trace of the profiler's run-time; the program in the same folder has the names.
TRACE = Path(__file__).parents[2] / "profiler/tool/tests/golden/tick.lwt"


def test_a_trace_is_frames():
    trace = lw.read(TRACE)
    assert isinstance(trace, lw.Trace)
    requests, events = trace.requests(), trace.events()
    assert len(requests) > 0 and (requests["end_us"] - requests["start_us"] - requests["latency_us"]).abs().max() < 0.01
    assert requests["end_us"].is_sorted() and (requests["worked_us"] <= requests["latency_us"] + 0.01).any()
    calls = events.filter(events["kind"] == "call")
    assert len(calls) > 0 and (calls["end_us"] >= calls["start_us"]).all()
    # A part of the trace has the events of its time alone.
    middle = requests["start_us"].median()
    part = trace.events(from_us=middle, to_us=middle + 100)
    assert 0 < len(part) < len(events)
    assert (part["end_us"] >= middle).all() and (part["start_us"] <= middle + 100).all()


def test_a_timeline_is_that_of_its_request(tmp_path):
    trace = lw.read(TRACE)
    slowest = trace.requests().sort("latency_us").row(-1, named=True)
    timeline = trace.timeline()
    assert f"{slowest['id']}" in repr(timeline) and "srcdoc" in timeline._repr_html_()
    assert repr(trace.timeline(slowest["id"])) == repr(timeline)
    timeline.save(tmp_path / "slow.html")
    assert (tmp_path / "slow.html").read_text() == timeline.page
    with pytest.raises(lw.ResultsError, match="no request 999999"):
        trace.timeline(999_999)
    with pytest.raises(lw.ResultsError, match="tick.lwt"):
        trace.timeline(request_fn="nothing_of_that_name")


def test_what_is_none_is_said(tmp_path):
    cut = tmp_path / "cut.rec"
    cut.write_bytes((GOLDEN / "breakwater.rec").read_bytes()[:40])
    with pytest.raises(lw.ResultsError, match="cut.rec"):
        lw.read(cut)
    whole = (GOLDEN / "breakwater.rec").read_bytes()
    cut.write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.warns(UserWarning, match="cut off at byte"):
        read = lw.read(cut)
    entries, all_entries = read.frame().rows(), lw.read(GOLDEN / "breakwater.rec").frame().rows()
    assert read.damage is not None and "cut off" in repr(read)
    assert 0 < len(entries) < len(all_entries) and entries == all_entries[: len(entries)]
    other = tmp_path / "result.json"
    other.write_text("{}")
    with pytest.raises(lw.ResultsError, match="not a results file"):
        lw.read(other)
    other.unlink()
    with pytest.raises(lw.ResultsError, match="a folder without"):
        lw.read(tmp_path)
    for neither in [Path(__file__), Path("/dev/null")]:
        with pytest.raises(lw.ResultsError, match="neither a recording nor a trace"):
            lw.read(neither)
