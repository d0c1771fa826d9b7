"""What curl gets through the proxy: one check a case, the same for each version of HTTP.

A case that fails without the proxy, too, is no failure of the proxy's. Does not contain processes.
"""

import hashlib
import os
import subprocess

from programs import find

# What /file of the service is.
FILE = bytes((at ^ at >> 8) & 255 for at in range(1 << 20))


class Answer:
    """What curl printed: heads (interim ones and trailers included), body, and its own numbers."""

    def __init__(self, heads, body, numbers, code, error):
        self.heads, self.body, self.numbers, self.code, self.error = heads, body, numbers, code, error

    @property
    def text(self):
        return self.body.decode(errors="replace")

    def __str__(self):
        return f"exit {self.code} {self.error.strip()!r} {self.heads[-300:]!r} {self.body[:200]!r}"


class Curl:
    """curl with options of its own, asking one server."""

    def __init__(self, folder, base, options, has_proxy):
        self.folder, self.base, self.options, self.has_proxy = folder, base, options, has_proxy
        self.version = "2" if "--http2" in " ".join(options) else "1.1"

    def __call__(self, path, *options, data=None, urls=1, code=0):
        heads, body = self.folder / "curl-heads", self.folder / "curl-body"
        for file in (heads, body):
            file.write_bytes(b"")
        command = [find("curl"), "-sS", "--max-time", "60", *self.options, "-D", heads, *options]
        command += ["-w", "%{stdout}%{http_code} %{http_version} %{num_connects} %{size_upload}\n"]
        for _ in range(urls):
            command += ["-o", body, self.base + path]
        done = subprocess.run(list(map(str, command)), input=data, capture_output=True, timeout=90)
        numbers = [line.split() for line in done.stdout.decode().splitlines()]
        text = heads.read_text("latin-1").replace("\r", "").lower()
        answer = Answer(text, body.read_bytes(), numbers, done.returncode, done.stderr.decode(errors="replace"))
        assert done.returncode == code, answer
        return answer

    def status(self, status, path, *options, **more):
        answer = self(path, *options, **more)
        assert all(numbers[0] == str(status) for numbers in answer.numbers), answer
        return answer

    def echo(self, path, *options, **more):
        return self.status(200, path, *options, **more)


def has_body(answer, data):
    digest = hashlib.sha256(data).hexdigest()
    assert f"body: {len(data)} {digest}" in answer.text, answer


def get(curl):
    answer = curl.echo("/a/b?c=d%20e")
    assert answer.text.startswith("GET /a/b?c=d%20e HTTP/"), answer
    assert answer.numbers[0][1] == curl.version, answer
    if curl.has_proxy:
        assert "via: " in answer.heads and "via: " in answer.text and "x-forwarded-for: 127.0.0.1" in answer.text, answer


def head(curl):
    answer = curl.status(200, "/file", "-I")
    assert f"content-length: {len(FILE)}" in answer.heads, answer


def methods(curl):
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "PURGE"):
        answer = curl.echo("/m", "-X", method)
        assert answer.text.startswith(f"{method} /m "), answer


def path_as_is(curl):
    answer = curl.echo("/a/../b//c;d?e=[1]&f=%2F", "--path-as-is", "-g")
    assert answer.text.startswith("GET /a/../b//c;d?e=[1]&f=%2F "), answer


def statuses(curl):
    for status in (201, 400, 404, 418, 500, 503):
        answer = curl.status(status, f"/status/{status}")
        assert answer.text == "status\n", answer


def no_content(curl):
    for status in (204, 304):
        answer = curl.status(status, f"/status/{status}")
        assert answer.body == b"", answer


def host(curl):
    answer = curl.echo("/", "-H", "Host: other.example:81")
    assert "host: other.example:81\n" in answer.text, answer


def cookies(curl):
    answer = curl.echo("/", "-b", "a=1; b=2; c=3")
    assert "cookie: a=1; b=2; c=3\n" in answer.text, answer


def large_header(curl):
    answer = curl.echo("/", "-H", "x-large: " + "a" * 30_000)
    assert "x-large: " + "a" * 30_000 in answer.text, answer


def post(curl):
    for size in (0, 1, 100_000):
        data = os.urandom(size)
        has_body(curl.echo("/", "--data-binary", "@-", data=data), data)


def large_upload(curl):
    data, file = os.urandom(1 << 20) * 16, curl.folder / "upload"
    file.write_bytes(data)
    has_body(curl.echo("/", "-T", file), data)


def chunked_upload(curl):
    data = os.urandom(300_000)
    has_body(curl.echo("/up", "-T", "-", data=data), data)
    has_body(curl.echo("/up", "-X", "GET", "-T", "-", data=data[:1000]), data[:1000])


def expect(curl):
    data = os.urandom(50_000)
    answer = curl.echo("/", "-H", "Expect: 100-continue", "--data-binary", "@-", data=data)
    has_body(answer, data)
    if curl.version == "1.1":
        assert answer.heads.startswith("http/1.1 100 "), answer


def expect_refused(curl):
    options = ("-H", "Expect: 100-continue", "--expect100-timeout", "30", "--data-binary", "@-")
    answer = curl.status(413, "/refuse", *options, data=bytes(8 << 20))
    assert int(answer.numbers[0][3]) < 8 << 20, answer


def ranges(curl):
    answer = curl.status(206, "/file", "-r", "1000-1999")
    assert answer.body == FILE[1000:2000] and f"content-range: bytes 1000-1999/{len(FILE)}" in answer.heads, answer
    answer = curl.status(206, "/file", "-r", "0-9,100-109")
    assert "multipart/byteranges" in answer.heads, answer
    assert curl.status(416, "/file", "-r", "9999999-").heads.count("content-range: bytes */") == 1


def resumed(curl):
    file = curl.folder / "partial"
    file.write_bytes(FILE[:300_001])
    command = [find("curl"), "-sS", "--max-time", "60", *curl.options, "-C", "-", "-o", str(file), curl.base + "/file"]
    done = subprocess.run(list(map(str, command)), capture_output=True, timeout=90)
    assert done.returncode == 0 and file.read_bytes() == FILE, done.stderr


def conditional(curl):
    assert curl.status(304, "/file", "-H", 'If-None-Match: "one"').body == b""


def early_hints(curl):
    answer = curl.status(200, "/early")
    first, _, rest = answer.heads.partition("\n\n")
    assert " 103" in first.splitlines()[0] and "rel=preload" in first and " 200" in rest, answer
    assert answer.text == "final\n", answer


def trailers(curl):
    answer = curl.status(200, "/trailers", "-H", "TE: trailers")
    assert answer.text == "piece\n" * 3 and "x-sum: 18" in answer.heads, answer


def events(curl):
    answer = curl.status(200, "/events", "-N")
    assert answer.text == "".join(f"data: {at}\n\n" for at in range(5)), answer


def one_connection(curl):
    answer = curl.echo("/", urls=5)
    assert [numbers[2] for numbers in answer.numbers] == ["1", "0", "0", "0", "0"], answer


def parallel(curl):
    answer = curl.echo("/?[1-30]", "-Z", "--parallel-max", "15")
    assert len(answer.numbers) == 30, answer


def close(curl):
    answer = curl.echo("/", "-H", "Connection: close", urls=2)
    if curl.version == "1.1":
        assert [numbers[2] for numbers in answer.numbers] == ["1", "1"], answer


def hop_by_hop(curl):
    answer = curl.echo("/", "-H", "Connection: x-hop", "-H", "X-Hop: 1", "-H", "Keep-Alive: 5", "-H", "X-Rest: 2")
    assert "x-rest: 2" in answer.text, answer
    if curl.has_proxy and curl.version == "1.1":
        assert "x-hop" not in answer.text and "keep-alive" not in answer.text, answer


def version_10(curl):
    if curl.version == "1.1":
        answer = curl.status(200, "/file", "--http1.0")
        assert answer.body == FILE, answer


def upgrade_to_http2(curl):
    """A server may ignore the header (RFC 9113 §3.1)."""
    if curl.version == "1.1" and curl.base.startswith("http://"):
        assert curl.echo("/", "--http2").text.startswith("GET / HTTP/"), "an answer"


CASES = [
    get, head, methods, path_as_is, statuses, no_content, host, cookies, large_header, post, large_upload, chunked_upload,
    expect, expect_refused, ranges, resumed, conditional, early_hints, trailers, events, one_connection, parallel, close,
    hop_by_hop, version_10, upgrade_to_http2,
]


def run(folder, base, options, has_proxy):
    """The cases' reasons of failure; empty: passed."""
    curl = Curl(folder, base, options, has_proxy)
    results = {}
    for case in CASES:
        try:
            case(curl)
            results[case.__name__] = ""
        except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
            results[case.__name__] = " ".join(str(error).split())[:700] or "failed"
    return results
