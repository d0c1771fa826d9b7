"""One fault: plants slow requests among ordinary ones, records, and judges the answers.

Does not start services, and does not measure what recording costs.
"""
import re
import time

import code_search
from faults import ordinary
from recording import Recording, ask, text

# A stranger asks for the slowest per cent.
SLOWEST_SHARE = 0.01
# A reported request may begin this much before the client's clock says it was asked: the wall
# clock is adjusted meanwhile.
EARLY_NS = 2_000_000
# Ordinary requests take a tenth of a millisecond.
SLOW_NS = 3_000_000


def drive(service, fault, connection, requests, slow):
    """Asks all requests; returns (begin, end) of the planted ones, in ns since 1970.

    One that the client did not find slow was not planted, such as a wait for a lock that was free
    again: another one takes its place.
    """
    spacing, planted, turn = requests // slow, [], 0
    while turn < requests or len(planted) < slow and turn < 2 * requests:
        ordinary(service, connection, turn)
        if turn % spacing == spacing // 2 and len(planted) < slow:
            fault.before(service, connection)
            begin = time.time_ns()
            fault.plant(service, connection)
            end = time.time_ns()
            if end - begin >= SLOW_NS:
                planted.append((begin, end))
        turn += 1
    return planted


def matched(planted, reported):
    """How many planted requests are among the reported, each of which counts once.

    A reported request is the planted one if it overlaps it by at least half of the client's time.
    """
    found, free = 0, sorted(reported)
    for begin, end in planted:
        for at, (start, latency) in enumerate(free):
            overlap = min(end, start + latency) - max(begin, start)
            if start >= begin - EARLY_NS and overlap >= (end - begin) / 2:
                found += 1
                del free[at]
                break
    return found


def is_right(fault, service, culprit, path):
    """Whether the named culprit is the planted one. In a stripped program its path may be: the
    function's callers can't be told from its code."""
    if isinstance(fault.culprit, tuple):
        return any(code_search.is_in(name, service.program, text) for name in [culprit, *path] for text in fault.culprit)
    return bool(re.search(fault.culprit, culprit))


def judge(leeward, trace, planted, fault, service):
    """Asks `requests` and `tail`; returns the row's columns."""
    info = ask(leeward, "info", trace)
    asked = max(len(planted), int(SLOWEST_SHARE * info["counts"].get("requests", 0) or 200))
    listed = ask(leeward, "requests", trace, "-n", min(10_000, max(asked, 200)))
    first = info["wall_start_ns"]
    reported = [(first + one["start"], one["latency"]) for one in listed["slowest"]]
    tail = ask(leeward, "tail", trace)
    culprit, findings = tail.get("culprit"), tail.get("findings") or []
    name = culprit["function"] if culprit else findings[0]["cause"] if findings else "nothing"
    path = culprit["path"] if culprit else []
    return {
        "found": matched(planted, reported), "planted": len(planted), "culprit": name,
        "right": is_right(fault, service, name, path), "path": path,
        "findings": [finding["cause"] for finding in findings[:4]], "requests": listed["requests"],
        "tail": text(leeward, "tail", trace),
    }


def examine(leeward, service, fault, folder, requests, slow, more=()):
    """Records the service while a client asks; returns the row."""
    connection = service.connect()
    try:
        for turn in range(200):
            ordinary(service, connection, turn)
        recording = Recording(leeward, service.recorded(connection), folder / fault.name, *more)
        try:
            # Where each connection has a process, this one's is recorded. Else one that the
            # recorder sees being accepted.
            if service.recorded(connection) == service.pid:
                connection.close()
                connection = service.connect()
            planted = drive(service, fault, connection, requests, slow)
            time.sleep(0.5)
            trace = recording.stop()
        except BaseException:
            recording.kill()
            raise
    finally:
        connection.close()
    row = judge(leeward, trace, planted, fault, service)
    return {**row, "expected": fault.culprit, "said": recording.said()}
