"""Skips tests whose need this machine lacks, as tests/testkit/src/require.rs does in Rust.

`missing` prints a line and appends it to the file that LEEWARD_SKIPS names. If LEEWARD_REQUIRE
lists the need, it ends the tests instead.
"""
import os, sys, time

# The same as Need::ALL of require.rs, whose tests compare the two.
KNOWN = ("memcached", "profiler", "rustc_plugin", "io_uring", "scheduler", "promtool", "readers", "otlp", "recipes")


def required():
    words = [word.strip() for word in os.environ.get("LEEWARD_REQUIRE", "").split(",") if word.strip()]
    for word in words:
        if word not in KNOWN:
            sys.exit(f"LEEWARD_REQUIRE: unknown requirement `{word}` (known: {', '.join(KNOWN)})")
    return words


def missing(need, test, why):
    """Reports a skipped test, which returns next."""
    if need in required():
        sys.exit(f"FAILED: {test}: {need} is required and missing: {why}")
    note("skipped", need, test, why)


ATTEMPTS = 5
busy = {}


def too_busy(test, why):
    """Reports that other work disturbed a test.

    The test tries again after a pause, and fails the fifth time.
    """
    note("busy", "", test, why)
    busy[test] = busy.get(test, 0) + 1
    if busy[test] == ATTEMPTS:
        sys.exit(f"FAILED: {test}: the machine was too busy for {ATTEMPTS} attempts")
    # Other work lasts for seconds at a time.
    time.sleep(2 ** (busy[test] - 1))


def note(kind, need, test, why):
    line = "\t".join([kind, need, f"{os.path.basename(sys.argv[0])}::{test}", " ".join(why.split())])
    print(line.replace("\t", " "), flush=True)
    if path := os.environ.get("LEEWARD_SKIPS"):
        with open(path, "a") as file:
            file.write(line + "\n")
