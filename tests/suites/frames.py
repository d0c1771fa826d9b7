"""h2spec, h2load and gRPC's interop cases. Does not contain processes or their settings."""

import re
import subprocess
import xml.etree.ElementTree as xml

from programs import find

# gRPC's interop test descriptions, without those that need accounts.
INTEROP = [
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream", "cancel_after_begin",
    "cancel_after_first_response", "timeout_on_sleeping_server", "status_code_and_message", "special_status_message",
    "unimplemented_method", "unimplemented_service", "custom_metadata", "rpc_soak", "channel_soak",
]


def h2spec(folder, port, is_tls=False):
    """Results of all cases, the strict ones included: the reason of a failure; empty: passed."""
    report = folder / "h2spec.xml"
    report.unlink(missing_ok=True)
    command = [find("h2spec"), "-S", "-h", "127.0.0.1", "-p", str(port), "-o", "5", "-j", str(report)]
    command += ["-t", "-k"] if is_tls else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if not report.exists():
        raise RuntimeError("h2spec ended without a report: " + (done.stdout + done.stderr)[-300:])
    results = {}
    for suite in xml.parse(report).getroot().iter("testsuite"):
        for at, case in enumerate(suite.iter("testcase"), 1):
            failure = case.find("failure")
            if failure is None:
                failure = case.find("error")
            text = "" if failure is None else " ".join("".join(failure.itertext()).split()) or "failed"
            if case.find("skipped") is None:
                results[f"{case.get('package')}/{at}: {case.get('classname')}"] = text
    return results


def h2load(url, options, requests):
    """Whether all of so many requests were answered with success."""
    command = [find("h2load"), "-n", str(requests), *options, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    succeeded = re.search(r"status codes: (\d+) 2xx", done.stdout)
    succeeded = int(succeeded.group(1)) if succeeded else 0
    lines = [line for line in done.stdout.splitlines() if line.startswith(("requests:", "status codes:"))]
    is_well = done.returncode == 0 and succeeded == requests
    return {"requests": "" if is_well else " ".join(lines) or (done.stdout + done.stderr)[-300:]}


def interop(port, options=()):
    """Results of gRPC's interop cases by grpc-go's client."""
    results = {}
    for case in INTEROP:
        command = [find("interop-client"), "-server_host", "localhost", "-server_port", str(port), "-test_case", case]
        if case == "channel_soak":
            command += ["-soak_iterations", "5"]
        try:
            done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=40)
            text = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]
        except subprocess.TimeoutExpired:
            text = "no end within 40 s"
        results[case] = text
    return results
