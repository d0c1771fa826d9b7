"""Part `names`: keys and types of JSON, paths of the admin port, metrics, memcached's statistics.

It omits values, which differ from run to run. Two servers get load: one with synthetic work beyond
its capacity, and a key-value store with a port for memcached's clients.
"""

import http.client
import json
import re
import socket
import time

from processes import Unusable, serving

TIMEOUT = 120
SERVERS = {
    "synthetic": ("breakwater", ["--service", "synthetic"], ["--service", "const:200us", "--demand", "12k"]),
    "kv": ("none", ["--service", "kv", "--memcached", "127.0.0.1:0"], ["--service", "kv:usr", "--demand", "1k"]),
}
FILES = {"dashboard": "/", "config": "/debug/config"}


def keys(value, path="$"):
    """Yields each path in a JSON value with its type. All entries of an array have one path."""
    if isinstance(value, dict):
        yield f"{path}: object"
        for key, inner in value.items():
            yield from keys(inner, f"{path}.{key}")
    elif isinstance(value, list):
        yield f"{path}: array"
        for inner in value:
            yield from keys(inner, f"{path}[]")
    else:
        kind = {bool: "boolean", int: "number", float: "number", str: "string"}.get(type(value), "null")
        yield f"{path}: {kind}"


def key_lines(text):
    """Sorted paths of a JSON value, or of a JSON value per line; other text unchanged."""
    try:
        found = set(keys(json.loads(text)))
    except ValueError:
        try:
            found = {line for one in text.splitlines() for line in keys(json.loads(one))}
        except ValueError:
            return text
    # A path whose value is null in some entries has the type of the other entries.
    typed = {line.rsplit(": ", 1)[0] for line in found if not line.endswith(": null")}
    return "".join(f"{line}\n" for line in sorted(found) if not (line.endswith(": null") and line[:-6] in typed))


def metric_lines(text):
    """Help, type and unit of each metric, and its series with the names of their labels."""
    found = set()
    for line in text.splitlines():
        if line.startswith("#"):
            found.add(line)
        elif sample := re.match(r"(\w+)(?:\{(.*?)\} )?", line):
            labels = re.findall(r'(\w+)="', sample[2] or "")
            found.add(f"{sample[1]}{{{','.join(labels)}}}")
    return "".join(f"{line}\n" for line in sorted(found))


def ask(address, path, accept="*/*"):
    """Returns status with headers, and the body; of a stream of events the first 2.5 seconds."""
    link = http.client.HTTPConnection(*address, timeout=10)
    try:
        link.request("GET", path, headers={"Accept": accept})
        answer = link.getresponse()
        head = [f"{name.lower()}: {value}" for name, value in answer.getheaders() if name.lower() not in ("content-length", "date")]
        body, until = b"", time.monotonic() + 2.5
        if "event-stream" not in (answer.getheader("content-type") or ""):
            body = answer.read()
        while "event-stream" in (answer.getheader("content-type") or "") and time.monotonic() < until:
            body += answer.read1(1 << 16)
        return f"{answer.status} {answer.reason}\n" + "".join(f"{line}\n" for line in head), body.decode("utf-8", "replace")
    finally:
        link.close()


def event_lines(text):
    """The kinds of events in a stream, each with the keys of its data."""
    found = {}
    for event in text.split("\n\n")[:-1]:
        lines = event.split("\n")
        kind = next((line[7:] for line in lines if line.startswith("event: ")), "message")
        data = "\n".join(line[6:] for line in lines if line.startswith("data: "))
        if data:
            found.setdefault(kind, []).append(data)
    return "".join(f"event {kind}\n{key_lines(chr(10).join(data))}" for kind, data in sorted(found.items()))


def paths(subject):
    """Paths of the admin port in its guide, and some with arguments or unknown."""
    for _, guide in subject.inputs("*docs/admin.md", "*/admin.md"):
        found = re.findall(r"^\| `(/[^`]*)` \|", guide.read_text(), re.MULTILINE)
        if found:
            return [*found, "/readyz?overload=1", "/debug/decisions?n=1000", "/debug/decisions?n=none", "/no/such/path"]
    raise Unusable(f"{subject.label}: no guide lists the paths of the admin port")


def admin(subject, address, keep):
    decisions = json.loads(ask(address, "/debug/decisions?n=1000")[1]).get("decisions", [])
    # Asks for a rejection if there is one. An admission has no reason and no bound, and the verdict
    # of the last request depends on chance.
    first = next((str(one.get("id")) for one in sorted(decisions, key=lambda one: one.get("reason") is None)), "none")
    for path in paths(subject):
        asked = path + first if path.endswith("id=") else path
        head, body = ask(address, asked)
        if path in FILES.values():
            text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", body)
        elif path == "/metrics":
            text = metric_lines(body)
        elif "event-stream" in head:
            text = ""
        else:
            text = key_lines(body)
        keep(f"admin{path}", head + text)
    head, body = ask(address, "/metrics", "application/openmetrics-text")
    keep("admin/metrics of OpenMetrics", head + metric_lines(re.sub(r" # \{.*", "", body)))


def statistics(address):
    """Keys of memcached's statistics, in order, with numbers in keys as `N`."""
    found = []
    for what in ("stats", "stats settings", "stats items", "stats slabs", "stats sizes", "stats conns", "stats nonsense"):
        with socket.create_connection(address, 10) as link:
            link.sendall(f"{what}\r\nquit\r\n".encode())
            text = b"".join(iter(lambda: link.recv(1 << 16), b"")).decode("latin-1")
        found += [f"{what}: {re.sub(r'[0-9]+', 'N', line.split(' ')[1]) if line.startswith('STAT ') else line}\n" for line in text.splitlines()]
    return "".join(found)


def server(subject, work, keep, name):
    admission, flags, load = SERVERS[name]
    command = [subject.program, "serve", "--admission", admission, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json", "--idle", "block"]
    with serving([*command, *flags], work / name, subject.env) as running:
        address = "%s:%d" % running.main()
        asked = ["load", address, "--admission", admission, "--clients", "20", *load[:2], "--json"]
        # Events describe the last second: the stream is read while the load runs.
        with serving([subject.program, *asked, *load[2:], "--duration", "5s", "--warmup", "200ms"], work / "load", subject.env) as loading:
            time.sleep(1.5)
            keep(f"{name} events", event_lines(ask(running.admin(), "/events")[1]))
            loading.process.wait(TIMEOUT)
            keep(f"{name} load", key_lines(loading.printed()))
        ended = subject.run(*asked, "--closed", "1", "--duration", "1s", folder=work, timeout=TIMEOUT)
        keep(f"{name} load closed", key_lines(ended.out.decode()) or ended.text().decode())
        keep(f"{name} top", key_lines(subject.run("top", address, "--json", folder=work, timeout=TIMEOUT).out.decode()))
        admin(subject, running.admin(), lambda title, text: keep(f"{name} {title}", text))
        if "--memcached" in flags:
            keep("memcached statistics", statistics(running.memcached()))
    last = running.printed().strip().split("\n")[-1]
    keep(f"{name} serve", key_lines(last))


def collect(subject, results, work, options):
    def keep(name, text):
        (results / (re.sub(r"[^\w.-]+", "_", name) + ".txt")).write_text(text, "utf-8")
        options.progress(name)

    for name in SERVERS:
        server(subject, work, keep, name)
    ran = subject.run("run", "mt-twin", "--quick", "--set", "run.seeds=1", "--json", folder=work, timeout=TIMEOUT)
    keep("run", key_lines(ran.out.decode()))
