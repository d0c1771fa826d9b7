#!/usr/bin/env python3
"""Numbers of the thesis about its profiler, and verdicts on ours by the rule of docs/verdicts.md.

A number is reproduced if the interval of our median lies within half of the thesis's number either
way. Run as a program, this file checks itself. It contains no measurements.
"""
import random, statistics

# Fig. 3.17 (§3.6.1): the scanner at a depth of 20, calls rebuilt every microsecond.
GRANULARITY = {"ns between two valid scans": 119, "scans that raced, %": 6, "scans that read the stack, %": 21, "scans that found no change, %": 73}
# Fig. 3.19 (§3.6.3): latency at a fifth of the load over the plain program, %.
OVERHEAD = {"SET": {"p50": 16, "p99": 1}, "GET": {"p50": 22, "p99": 10}}
# Fig. 3.20 (§3.6.3): a second of full load.
TRACE = {100: {"MB/s": 149, "s to decode a second": 1.7}, 0: {"MB/s": 237, "s to decode a second": 2.7}}

RESAMPLES = 2000


def interval(values):
    """The interval of the median with 95 % probability, by the percentile bootstrap.

    The same values give the same interval.

    >>> interval([3.0])
    (3.0, 3.0)
    >>> low, high = interval([1, 2, 3, 4, 5, 6, 7, 8, 9])
    >>> 1 <= low < 5 < high <= 9
    True
    """
    draw = random.Random(len(values))
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[RESAMPLES * 25 // 1000], medians[-1 - RESAMPLES * 25 // 1000]


def verdict(paper, values):
    """Reproduced, not reproduced, or undecided if the interval crosses a bound.

    >>> verdict(119, [100, 110, 120])
    'reproduced'
    >>> verdict(119, [20, 25, 30]), verdict(16, [7, 9, 12])
    ('not reproduced', 'undecided')
    >>> verdict(1, [])
    'not measured'
    """
    if not values:
        return "not measured"
    low, high = interval(values)
    least, most = paper - abs(paper) / 2, paper + abs(paper) / 2
    if least <= low and high <= most:
        return "reproduced"
    return "not reproduced" if high < least or most < low else "undecided"


def row(what, paper, values):
    """A row of the table `what the thesis says`.

    >>> row("ns", 119, [100.0, 110.0, 120.0])
    ['ns', '119', '110 (100 to 120)', '59.5 to 178.5', 'reproduced']
    >>> row("ns", 119, [])
    ['ns', '119', '', '59.5 to 178.5', 'not measured']
    """
    measured = f"{statistics.median(values):.4g} ({interval(values)[0]:.4g} to {interval(values)[1]:.4g})" if values else ""
    return [what, f"{paper:g}", measured, f"{paper / 2:g} to {paper * 1.5:g}", verdict(paper, values)]


def table(report, rows):
    """Adds a table to the report, of rows (what, the thesis's number, ours of each round)."""
    made = [row(*one) for one in rows]
    data = [{"what": one[0], "thesis": paper, "values": values, "verdict": one[-1]} for one, (_, paper, values) in zip(made, rows)]
    report.table("what the thesis says (on its machine), and ours", ["", "thesis", "ours", "accepted", "verdict"], made, data)


if __name__ == "__main__":
    import doctest, sys

    sys.exit(1 if doctest.testmod().failed else 0)
