"""`examine ages`: the age of the queue as the program tells it, against the clients' clocks.

What is compared. The service (c/single) has one thread and takes one request at a time. So the
clients know when it read each request: when the one before was answered, or at once if none was
there. At any instant t the oldest unread request is therefore known exactly: the greatest `t -
sent` of the requests that are sent and not yet read. That is the quantity that the program
estimates (`oldest_unread_ms.estimate`), so each of its samples is compared with it at the same time, and
not a mean of one with a percentile of the other.

A sample is older than its line by an unknown moment, and the queue moves meanwhile. So the truth of
a sample is the range that the clients saw within the 30 ms before its line; the error of a sample
is the distance from the program's estimate to that range, 0 inside it. A level passes
if the median error is within 20 % of the truth + 2 ms, and three of four samples are: a few late
samples on a busy machine do not decide, a bias does, and so does "nothing unread" at loads at which
that is true half of the time. The bounds beside the estimate are printed, and do not count.
"""
import bisect
import json
import pathlib
import statistics
import time

from client import Client, baseline
from process import end_all
from service import start_service
from stream import Stream

# Load as a share of the capacity: connections. In overload each of them has one request waiting,
# so that their number decides the age: 4 ms times 20 to 160.
LEVELS = {0.3: 100, 0.5: 100, 0.6: 100, 0.7: 100, 0.8: 100, 0.9: 100,
          1.0: 20, 1.1: 40, 1.3: 80, 1.5: 160}
COST_MS = 4
SETTLE, SECONDS = 2.0, 12.0
BACK = 0.03         # seconds before a line in which its sample was taken
# An error is tolerated up to a share of the truth and a floor; so many samples must be within.
TOLERANCE, TOLERANCE_FLOOR_MS, PASS_SHARE = 0.2, 2.0, 0.75


def unread_spans(requests):
    """(sent, read) of each answered request of a server that does one thing at a time."""
    done_before = 0.0
    spans = []
    for _, sent, done in sorted((r for r in requests if r[2]), key=lambda r: r[2]):
        read = max(sent, done_before)
        done_before = done
        if read > sent:
            spans.append((sent, read))
    return sorted(spans)


class Truth:
    """The oldest unread request's age at any instant."""

    def __init__(self, requests, stop):
        self.spans = unread_spans(requests) + [(r[1], stop) for r in requests
                                               if r[1] and not r[2]]
        self.spans.sort()
        self.starts = [sent for sent, _ in self.spans]
        self.longest = max((read - sent for sent, read in self.spans), default=0)

    def at(self, instant):
        """Age in ms of the oldest unread request; 0 without one."""
        first = bisect.bisect_left(self.starts, instant - self.longest)
        for sent, read in self.spans[first:]:
            if sent > instant:
                break
            if read > instant:
                return 1e3 * (instant - sent)
        return 0.0

    def around(self, instant):
        """Least, greatest and median age in ms within the BACK seconds before an instant."""
        seen = [self.at(instant - BACK * i / 30) for i in range(31)]
        return min(seen), max(seen), statistics.median(seen)


def reported(listener):
    """(estimate, least, greatest) age in ms that the program reports; nothing unread is 0."""
    bounds = listener.get("oldest_unread_ms") or {}
    low = bounds.get("at_least") or 0.0
    high = bounds.get("at_most")
    high = low if high is None else high
    return bounds.get("estimate", (low + high) / 2) if bounds else 0.0, low, high


def compare(samples, truth, first, last):
    """Per sample: (truth, at_least, at_most, error), all in ms."""
    rows = []
    for instant, listener in samples:
        if not first <= instant <= last:
            continue
        least, most, middle = truth.around(instant)
        estimate, low, high = reported(listener)
        rows.append((middle, low, high, max(0.0, least - estimate, estimate - most)))
    return rows


def level(load, program, command, machine, limit):
    """Compares the program with the clients at one level of load."""
    # With a higher priority the service keeps its share of a busy machine; otherwise all levels
    # would be overloads.
    _, port = start_service(command, "plain", {"COST_MS": COST_MS},
                               machine.folder / "service.err", nice=-15)
    try:
        service_ms = baseline(machine.folder, port, 20)[0]
        rate = load * 1e3 / COST_MS
        client = Client(machine.folder, "ages", port, rate, connections=LEVELS[load],
                        seconds=SETTLE + SECONDS + 30)
        time.sleep(SETTLE)
        stream = Stream(program, port, limit)
        first = time.monotonic()
        time.sleep(SECONDS)
        last = time.monotonic()
        samples = stream.finish()
        truth = Truth(*client.stop())
    finally:
        end_all()
    rows = compare(samples, truth, first + 1, last)
    grid = [truth.at(first + (last - first) * i / 4000) for i in range(4000)]
    result = {"load": load, "service_ms": service_ms, "samples": len(rows),
              "clients_mean_ms": statistics.fmean(grid)}
    if rows:
        bars = [TOLERANCE * row[0] + TOLERANCE_FLOOR_MS for row in rows]
        result.update(
            clients_ms=statistics.median(row[0] for row in rows),
            at_least_ms=statistics.median(row[1] for row in rows),
            at_most_ms=statistics.median(row[2] for row in rows),
            error_ms=statistics.median(row[3] for row in rows),
            within=sum(row[3] <= bar for row, bar in zip(rows, bars)) / len(rows))
        result["passed"] = (
            result["within"] >= PASS_SHARE
            and result["error_ms"] <= TOLERANCE * result["clients_ms"] + TOLERANCE_FLOOR_MS)
    else:
        result["passed"] = False
    return result


def examine(options, machine, programs):
    """Runs all levels and prints a row for each; returns the exit status."""
    command = programs.command("c/single")
    print("oldest unread request, ms: medians over the samples of each level (clients' mean: over "
          f"all instants)\n{'load':>5} {'service':>8} {'samples':>8} {'clients':>9} "
          f"{'at least':>9} {'at most':>9} {'error':>8} {'within':>7} {'clients mean':>13}",
          flush=True)
    results = []
    for load in LEVELS:
        result = level(load, options.leeward, command, machine, SECONDS + 30)
        results.append(result)
        if result["samples"]:
            print(f"{load:5.2f} {result['service_ms']:8.2f} {result['samples']:8} "
                  f"{result['clients_ms']:9.2f} {result['at_least_ms']:9.2f} "
                  f"{result['at_most_ms']:9.2f} {result['error_ms']:8.2f} "
                  f"{result['within']:7.0%} {result['clients_mean_ms']:13.2f} "
                  f"{'ok' if result['passed'] else 'beyond the bar'}", flush=True)
        else:
            print(f"{load:5.2f} {result['service_ms']:8.2f} no sample of this listener, clients' "
                  f"mean {result['clients_mean_ms']:.2f} ms", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n",
                                              encoding="utf-8")
    passed = sum(result["passed"] for result in results)
    print(f"{passed} of {len(results)} levels within {TOLERANCE:.0%} + "
          f"{TOLERANCE_FLOOR_MS:.0f} ms")
    return 0 if passed == len(results) else 1
