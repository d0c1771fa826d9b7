"""Damaged bytes of tables and recordings are refused, or are another valid table."""

import json
import random
from collections.abc import Callable
from typing import Any

import polars
import pyarrow
import pytest

import leeward as lw
from leeward import _leeward

SEED, MUTATIONS = 7, 3_000
TEXTS = {"type": "text", "values": {"begins": [0, 2, 2, 5], "bytes": "äxyz"}}
COLUMNS: list[dict[str, Any]] = [
    {"name": "text", "values": TEXTS, "present": [True, False, True]},
    {"name": "float", "values": {"type": "float", "values": [0.5, 1.5, -2.0]}, "present": [True, True, False]},
    {"name": "whole", "values": {"type": "whole", "values": [7, 8, 9]}, "present": None},
    {"name": "flag", "values": {"type": "flag", "values": [0, 1, 0]}, "present": None},
]


def use(table: lw.Table) -> None:
    """Reads all values by all ways."""
    for name in table.names:
        assert len(table.column(name)) == len(table)
    pyarrow.table(table).validate(full=True)
    polars.DataFrame(table.without("float"))
    assert len(lw.Table.concat([table, table])) == 2 * len(table) and set(table.dense().names) <= set(table.names)
    assert lw.Table.from_bytes(table.to_bytes()).to_bytes() == table.to_bytes()


def test_the_undamaged_table_is_read() -> None:
    table = lw.Table.from_bytes(json.dumps(COLUMNS).encode())
    use(table)
    assert table.column("text") == ["ä", None, "xyz"] and table.column("flag") == [False, True, False]


@pytest.mark.parametrize(
    "damage",
    [
        lambda columns: columns[0]["present"].pop(),
        lambda columns: columns[1].update(name="text"),
        lambda columns: columns[1]["present"].append(True),
        lambda columns: columns[0]["values"]["values"].update(begins=[]),
        lambda columns: columns[0]["values"]["values"].update(begins=[0, 2, 1, 5]),
        lambda columns: columns[0]["values"]["values"].update(begins=[0, 2, 9, 5]),
        lambda columns: columns[0]["values"]["values"].update(begins=[0, 2, 2, 1 << 40]),
        lambda columns: columns[0]["values"]["values"].update(begins=[0, 2, 2, 4]),
        lambda columns: columns[0]["values"]["values"].update(begins=[2, 2, 2, 5]),
        lambda columns: columns[0]["values"]["values"].update(begins=[-1, 2, 2, 5]),
        lambda columns: columns[0]["values"]["values"].update(begins=[0, 1, 2, 5]),
        lambda columns: columns[3]["values"]["values"].append(1),
        lambda columns: columns[3]["values"].update(values=[0, 1, 2]),
    ],
)
def test_columns_that_contradict_themselves_are_refused(damage: Callable[[list[dict[str, Any]]], object]) -> None:
    columns = json.loads(json.dumps(COLUMNS))
    damage(columns)
    with pytest.raises(lw.ResultsError):
        lw.Table.from_bytes(json.dumps(columns).encode())


def mutated(draw: random.Random, whole: bytes) -> bytes:
    """The bytes with one to three changes: a bit, a digit, a removed part, or a missing end."""
    damaged = bytearray(whole)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(damaged))
        match draw.randrange(8):
            case 0:
                damaged[at] ^= 1 << draw.randrange(8)
            case 1:
                del damaged[at : at + draw.randint(1, 4)]
            case 2 if draw.randrange(10) == 0:
                del damaged[max(at, 1) :]
            case _:
                # Most bytes are digits and commas, and so are most damages that can still be read.
                digits = [place for place, byte in enumerate(damaged) if chr(byte) in "0123456789"]
                if digits:
                    damaged[draw.choice(digits)] = draw.choice(b"0123456789,")
        if not damaged:
            return b""
    return bytes(damaged)


def test_mutated_tables_are_refused_or_valid(short: lw.Scenario) -> None:
    draw = random.Random(SEED)
    run = short.run(seeds=1).table().to_bytes()
    read = 0
    for number in range(MUTATIONS):
        damaged = mutated(draw, json.dumps(COLUMNS).encode() if number % 4 else run)
        try:
            table = lw.Table.from_bytes(damaged)
        except lw.ResultsError:
            continue
        use(table)
        read += 1
    assert MUTATIONS / 20 < read < MUTATIONS, f"the mutations test nothing: {read} of {MUTATIONS} were read"


def test_counts_of_recordings_add_up_without_an_overflow() -> None:
    most = (1 << 64) - 1
    buckets = {"buckets": {"1000": most}, "sum_ns": most}
    counts = {"completed": most}
    recording = {
        **{"generators": (1 << 32) - 1, "seconds": 1.0, "slo_us": 1.0, "totals": counts, "measured": counts},
        **{"throughput_rps": 1.0, "goodput_rps": 1.0, "latency": buckets, "latency_from_send": buckets},
        **{"reject_delay": buckets, "kept": True, "failures": counts},
    }
    one = _leeward.Recording.from_bytes(json.dumps(recording).encode())
    both = _leeward.merge([one, one])
    assert both.totals == counts and both.buckets("latency") == [(1.0, most)]
    assert both.percentiles("latency")["count"] == most


def test_what_was_not_measured_says_so() -> None:
    counts = {"completed": 9}
    buckets = {"buckets": {"1000": 9}, "sum_ns": 9}
    late = {
        **{"generators": 1, "seconds": 1.0, "slo_us": 1.0, "totals": counts, "measured": counts},
        **{"throughput_rps": 9.0, "goodput_rps": 9.0, "latency": buckets, "latency_from_send": buckets},
        **{"reject_delay": buckets, "kept": False, "failures": counts},
    }
    load = lw.cluster.Load(_leeward.Recording.from_bytes(json.dumps(late).encode()))
    assert "not measured" in repr(load) and "in time" not in repr(load)
    assert "Not measured" in load.cdf().axes[0].get_title()
