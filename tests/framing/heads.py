"""Requests with the classics of request smuggling, the same for the same seed.

A case is one request, perhaps with another one in its body, and then a last one that closes the
connection. Its number is in every target, so that a backend can tell whose it is. Does not contain
sockets.
"""

import random
import re

# What replaces a part of a valid request: the part, the name of the anomaly, its bytes. `%d` is the
# number of the case.
LINES = [
    ("method", [("lower", b"post"), ("at", b"P@ST"), ("empty", b""), ("trace", b"TRACE"), ("long", b"P" * 300),
                ("connect", b"CONNECT"), ("options", b"OPTIONS"), ("brace", b"PO{ST"), ("high", b"P\xc3\xb6ST"),
                ("head", b"HEAD"), ("get", b"GET"), ("nul", b"PO\0ST"), ("own", b"PURGE")]),
    ("target", [("absolute", b"http://other/t%d"), ("absolute-same", b"http://h/t%d"), ("user", b"http://u@other/t%d"),
                ("absolute-port", b"http://other:81/t%d"), ("ftp", b"ftp://other/t%d"), ("fragment", b"/t%d#f"),
                ("fragment-query", b"/t%d?a=b#f?c"), ("space", b"/t%d a"), ("tab", b"/t%d\ta"), ("double", b"//t%d"),
                ("nul", b"/t%d\0a"), ("control", b"/t%d\x01a"), ("delete", b"/t%d\x7fa"), ("high", b"/t%d\xff\xfea"),
                ("utf8", b"/t%d\xc3\xb6"), ("no-slash", b"t%d"), ("authority", b"h:80/t%d"), ("quote", b'/t%d"<>|^`{}\\'),
                ("percent", b"/t%d%%zz%%00%%0d%%0a"), ("dots", b"/a/../t%d/./b"), ("query", b"/t%d?a=b&c=%%20d"),
                ("star", b"*"), ("empty", b""), ("long-4k", b"/t%d" + b"a" * 4000), ("long-100k", b"/t%d" + b"a" * 100000),
                ("scheme-only", b"http:///t%d"), ("absolute-bad", b"http://o ther/t%d"), ("cr", b"/t%d\ra"),
                ("absolute-query", b"http://other?t%d"), ("absolute-colons", b"http://o:1:2/t%d"),
                ("https", b"https://h/t%d"), ("question", b"?t%d"), ("backslash", b"\\t%d"), ("semicolon", b"/t%d;a=b")]),
    ("version", [("1.0", b"HTTP/1.0"), ("0.9", b"HTTP/0.9"), ("1.2", b"HTTP/1.2"), ("2.0", b"HTTP/2.0"),
                 ("1.1x", b"HTTP/1.1x"), ("lower", b"http/1.1"), ("none", None), ("01.1", b"HTTP/01.1"), ("1.10", b"HTTP/1.10"),
                 ("1", b"HTTP/1"), ("space-after", b"HTTP/1.1 "), ("tab-after", b"HTTP/1.1\t"), ("comma", b"HTTP/1,1"),
                 ("3", b"HTTP/3"), ("icy", b"ICY/1.1"), ("11", b"HTTP/11"), ("0", b"HTTP/1.1\0")]),
    ("space", [("two", b"  "), ("tab", b"\t"), ("none", b""), ("vertical", b"\x0b"), ("cr", b"\r")]),
    ("first-end", [("lf", b"\n"), ("cr", b"\r"), ("crcrlf", b"\r\r\n"), ("lfcr", b"\n\r"), ("space", b" \r\n")]),
    ("before", [("crlf", b"\r\n"), ("two-crlf", b"\r\n\r\n"), ("lf", b"\n"), ("space", b" "), ("cr", b"\r"), ("nul", b"\0"),
                ("bom", b"\xef\xbb\xbf")]),
    ("last-end", [("lf", b"\n"), ("cr", b"\r"), ("crlf-space", b"\r\n \r\n"), ("crcrlf", b"\r\r\n")]),
]
HOSTS = [
    ("none", []), ("two", [b"Host: h", b"Host: other"]), ("same-twice", [b"Host: h", b"Host: h"]),
    ("slash", [b"Host: a/b"]), ("at", [b"Host: a@b"]), ("space", [b"Host: a b"]), ("comma", [b"Host: a,b"]),
    ("colons", [b"Host: a:80:80"]), ("port-word", [b"Host: a:b"]), ("port-large", [b"Host: h:99999"]),
    ("empty", [b"Host:"]), ("bracket", [b"Host: [::1"]), ("address-6", [b"Host: [::1]:80"]), ("nul", [b"Host: a\0b"]),
    ("quote", [b'Host: "a"']), ("high", [b"Host: \xff"]), ("question", [b"Host: a?b"]), ("hash", [b"Host: a#b"]),
    ("upper", [b"HOST: H"]), ("dots", [b"Host: ..a"]), ("port-empty", [b"Host: h:"]), ("space-colon", [b"Host : h"]),
    ("fold", [b"Host: a\r\n b"]), ("percent", [b"Host: a%00b"]), ("tab", [b"Host:\th\t"]), ("backslash", [b"Host: a\\b"]),
]
# Names and values of the headers that frame: N is the length of the body, its chunks included.
LENGTH = re.compile(rb"(?<![A-Z])N(?![A-Z])")
FRAMES = [
    ("cl-twice", [b"Content-Length: N", b"Content-Length: N"]), ("cl-differ", [b"Content-Length: N", b"Content-Length: 1"]),
    ("cl-differ-0", [b"Content-Length: 0", b"Content-Length: N"]), ("cl-list", [b"Content-Length: N, N"]),
    ("cl-list-differ", [b"Content-Length: N, 1"]), ("cl-plus", [b"Content-Length: +N"]), ("cl-minus", [b"Content-Length: -N"]),
    ("cl-hex", [b"Content-Length: 0xN"]), ("cl-zeros", [b"Content-Length: 000N"]), ("cl-empty", [b"Content-Length:"]),
    ("cl-word", [b"Content-Length: Na"]), ("cl-space-in", [b"Content-Length: 1 N"]), ("cl-huge", [b"Content-Length: 99999999999999999999"]),
    ("cl-wraps", [b"Content-Length: 18446744073709551616"]), ("cl-space-colon", [b"Content-Length : N"]),
    ("cl-tab-colon", [b"Content-Length\t: N"]), ("cl-space-before", [b" Content-Length: N"]), ("cl-fold", [b"Content-Length:\r\n N"]),
    ("cl-fold-in", [b"Content-Length: N\r\n 1"]), ("cl-tabs", [b"Content-Length:\t N \t"]), ("cl-vertical", [b"Content-Length:\x0bN"]),
    ("cl-underscore", [b"Content_Length: N"]), ("cl-nul", [b"Content-Length: N\0"]), ("cl-cr", [b"Content-Length: N\r"]),
    ("cl-quote", [b'Content-Length: "N"']), ("cl-dot", [b"Content-Length: N.0"]), ("cl-high", [b"Content-Length: N\xa0"]),
    ("cl-lf-end", [b"Content-Length: N\nX: y"]), ("cl-cr-name", [b"X: y\rContent-Length: N"]),
    ("cl-lf-name", [b"X: y\nContent-Length: N"]), ("cl-comma", [b"Content-Length: N,"]),
    ("te-cl", [b"Transfer-Encoding: chunked", b"Content-Length: N"]), ("cl-te", [b"Content-Length: N", b"Transfer-Encoding: chunked"]),
    ("te-cl-1", [b"Transfer-Encoding: chunked", b"Content-Length: 1"]), ("te-twice", [b"Transfer-Encoding: chunked"] * 2),
    ("te-identity-twice", [b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked"]),
    ("te-chunked-identity-twice", [b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"]),
    ("te-list", [b"Transfer-Encoding: chunked, chunked"]), ("te-identity-last", [b"Transfer-Encoding: chunked, identity"]),
    ("te-identity-first", [b"Transfer-Encoding: identity, chunked"]), ("te-gzip", [b"Transfer-Encoding: gzip, chunked"]),
    ("te-identity", [b"Transfer-Encoding: identity"]), ("te-identity-cl", [b"Transfer-Encoding: identity", b"Content-Length: N"]),
    ("te-x", [b"Transfer-Encoding: xchunked"]), ("te-x-cl", [b"Transfer-Encoding: xchunked", b"Content-Length: N"]),
    ("te-chunk", [b"Transfer-Encoding: chunk", b"Content-Length: N"]), ("te-quote", [b'Transfer-Encoding: "chunked"']),
    ("te-parameter", [b"Transfer-Encoding: chunked;a=b"]), ("te-upper", [b"TRANSFER-ENCODING: CHUNKED"]),
    ("te-space-colon", [b"Transfer-Encoding : chunked"]), ("te-space-colon-cl", [b"Transfer-Encoding : chunked", b"Content-Length: N"]),
    ("te-tab", [b"Transfer-Encoding:\tchunked"]), ("te-vertical", [b"Transfer-Encoding:\x0bchunked", b"Content-Length: N"]),
    ("te-fold", [b"Transfer-Encoding:\r\n chunked"]), ("te-fold-cl", [b"Transfer-Encoding:\r\n chunked", b"Content-Length: N"]),
    ("te-space-before", [b" Transfer-Encoding: chunked", b"Content-Length: N"]), ("te-empty", [b"Transfer-Encoding:"]),
    ("te-empty-cl", [b"Transfer-Encoding:", b"Content-Length: N"]), ("te-comma", [b"Transfer-Encoding: chunked,"]),
    ("te-comma-first", [b"Transfer-Encoding: ,chunked"]), ("te-nul", [b"Transfer-Encoding: chunked\0", b"Content-Length: N"]),
    ("te-cr", [b"X: y\rTransfer-Encoding: chunked", b"Content-Length: N"]),
    ("te-lf", [b"X: y\nTransfer-Encoding: chunked", b"Content-Length: N"]),
    ("te-cr-end", [b"Transfer-Encoding: chunked\r", b"Content-Length: N"]), ("te-underscore", [b"Transfer_Encoding: chunked", b"Content-Length: N"]),
    ("te-high", [b"Transfer-Encoding: chunked\xa0", b"Content-Length: N"]), ("te-name-high", [b"Transfer-Encoding\xa0: chunked", b"Content-Length: N"]),
    ("te-trailing", [b"Transfer-Encoding: chunked \t "]), ("te-1.0-close", [b"Transfer-Encoding: chunked", b"Connection: close"]),
    ("te-named", [b"Connection: Transfer-Encoding", b"Transfer-Encoding: chunked"]), ("cl-named", [b"Connection: Content-Length", b"Content-Length: N"]),
    ("none", []),
]
OTHERS = [
    ("fold", [b"X: a\r\n b"]), ("fold-tab", [b"X: a\r\n\tb"]), ("space-colon", [b"X : a"]), ("no-colon", [b"X"]), ("no-name", [b": a"]),
    ("nul", [b"X: a\0b"]), ("control", [b"X: a\x01b"]), ("vertical", [b"X: a\x0bb"]), ("delete", [b"X: a\x7fb"]), ("high", [b"X: a\xffb"]),
    ("cr", [b"X: a\rb"]), ("lf", [b"X: a\nY: b"]), ("cr-end", [b"X: a\r"]), ("name-space", [b"X Y: a"]), ("name-high", [b"X\xff: a"]),
    ("name-nul", [b"X\0: a"]), ("name-bracket", [b"X(y): a"]), ("name-slash", [b"X/y: a"]), ("name-cr", [b"X\ry: a"]),
    ("long-4k", [b"X: " + b"a" * 4000]), ("long-100k", [b"X: " + b"a" * 100000]), ("many", [b"X-%d: a" % at for at in range(150)]),
    ("empty-value", [b"X:"]), ("underscore", [b"X_Y: a"]), ("connection-host", [b"Connection: Host"]), ("upgrade", [b"Connection: upgrade", b"Upgrade: x"]),
    ("h2c", [b"Connection: upgrade, http2-settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"]),
    ("expect", [b"Expect: 100-continue"]), ("expect-other", [b"Expect: 200-ok"]), ("te-trailers", [b"TE: trailers"]),
    ("keep-alive", [b"Connection: keep-alive, close"]), ("colon-value", [b"X:: a"]), ("quote", [b'X: "a']),
]
CHUNKS = [
    ("extension", lambda size: b"%x;a=b" % size), ("extension-quote", lambda size: b'%x;a="\\"b;"' % size), ("extension-bare", lambda size: b"%x;" % size),
    ("extension-lf", lambda size: b"%x;a\nb" % size), ("extension-cr", lambda size: b"%x;a\rb" % size), ("extension-long", lambda size: b"%x;" % size + b"a" * 5000),
    ("upper", lambda size: b"%X" % size), ("zeros", lambda size: b"0000%x" % size), ("many-zeros", lambda size: b"0" * 40 + b"%x" % size),
    ("hex", lambda size: b"0x%x" % size), ("plus", lambda size: b"+%x" % size), ("minus", lambda size: b"-%x" % size), ("space-before", lambda size: b" %x" % size),
    ("space-after", lambda size: b"%x " % size), ("tab-after", lambda size: b"%x\t;a" % size), ("word", lambda size: b"%xg" % size), ("empty", lambda size: b""),
    ("huge", lambda size: b"ffffffffffffffff%x" % size), ("wraps", lambda size: b"1%016x" % size), ("comma", lambda size: b"%x,1" % size),
    ("nul", lambda size: b"%x\0" % size), ("vertical", lambda size: b"%x\x0b" % size), ("less", lambda size: b"%x" % max(size - 1, 1)),
    ("more", lambda size: b"%x" % (size + 1)), ("underscore", lambda size: b"%x_0" % size), ("high", lambda size: b"%x\xb2" % size),
]
CHUNK_ENDS = [("lf", b"\n"), ("cr", b"\r"), ("none", b""), ("crcrlf", b"\r\r\n"), ("lflf", b"\n\n"), ("letters", b"xx")]
TRAILERS = [
    ("one", b"X: a\r\n"), ("length", b"Content-Length: 9\r\n"), ("coding", b"Transfer-Encoding: chunked\r\n"), ("host", b"Host: other\r\n"),
    ("space-colon", b"X : a\r\n"), ("no-colon", b"X\r\n"), ("nul", b"X: a\0\r\n"), ("lf", b"X: a\n"), ("cr", b"X: a\rY: b\r\n"), ("fold", b"X: a\r\n b\r\n"),
    ("request", b"GET /s%d HTTP/1.1\r\nHost: h\r\n"), ("long", b"X: " + b"a" * 30000 + b"\r\n"), ("many", b"".join(b"X-%d: a\r\n" % at for at in range(200)).replace(b"%", b"%%")),
]
# Anomalies of the framing are what this is about: they are drawn more often.
KINDS = ["line"] * 3 + ["host"] * 2 + ["frame"] * 6 + ["other"] * 2 + ["chunk"] * 3 + ["chunk-end", "trailer", "final"]


class Case:
    """One case: its number, its bytes, and the names of its anomalies."""

    def __init__(self, number, data, names):
        self.number, self.data, self.names = number, data, names


def _numbered(pattern, number):
    return pattern % number if b"%d" in pattern else pattern


def case(seed, number):
    """The case of this number."""
    draw = random.Random(seed * 1_000_003 + number)
    names, parts = {}, {}
    hosts, others, chunk_line, chunk_end, trailer, final = [b"Host: h"], [], lambda size: b"%x" % size, b"\r\n", b"", b"\r\n"
    is_chunked = draw.random() < 0.4
    frame = [b"Transfer-Encoding: chunked"] if is_chunked else [b"Content-Length: N"]
    for _ in range(draw.choices([0, 1, 2, 3], [2, 70, 22, 6])[0]):
        kind = draw.choice(KINDS)
        if kind == "line":
            part, choices = draw.choice(LINES)
            name, parts[part] = draw.choice(choices)
            names[part] = name
        elif kind == "host":
            name, hosts = draw.choice(HOSTS)
            names["host"] = name
        elif kind == "frame":
            name, frame = draw.choice(FRAMES)
            is_chunked = any(b"chunk" in line.lower() for line in frame) and (draw.random() < 0.7 or name.startswith("te-") and "cl" not in name)
            names["frame"] = name
        elif kind == "other":
            name, others = draw.choice(OTHERS)
            names["header"] = name
        else:
            if kind != "final" or is_chunked:
                is_chunked, frame = True, frame if any(b"hunk" in line for line in frame) else [b"Transfer-Encoding: chunked"]
            if kind == "chunk":
                name, chunk_line = draw.choice(CHUNKS)
            elif kind == "chunk-end":
                name, chunk_end = draw.choice(CHUNK_ENDS)
            elif kind == "trailer":
                name, trailer = draw.choice(TRAILERS)
                trailer = _numbered(trailer, number)
            else:
                name, final = draw.choice([("lf", b"\n"), ("none", b""), ("cr", b"\r"), ("crcrlf", b"\r\r\n")])
            names[kind] = name
    inner = b"GET /s%d HTTP/1.1\r\nHost: h\r\n\r\n" % number
    content = draw.choice([b"", b"a", b"abcde", inner, b"0\r\n\r\n" + inner, b"a" * draw.randrange(1, 300)])
    if is_chunked:
        pieces = [content[: len(content) // 2], content[len(content) // 2 :]] if draw.random() < 0.3 else [content]
        body = b"".join(chunk_line(len(piece)) + b"\r\n" + piece + chunk_end for piece in pieces if piece)
        body += b"0\r\n" + trailer + final
        length = len(body)
    else:
        body, length = content, len(content)
    if parts.get("target", b"").startswith((b"*", b"?")) or b"t%d" not in parts.get("target", b"t%d"):
        others = others + [b"X-Case: %d" % number]
    if names.get("frame") in ("cl-differ", "cl-differ-0") and length in (0, 1):
        names["frame"] += f"-length-{length}"
    space, version = parts.get("space", b" "), parts.get("version", b"HTTP/1.1")
    target = _numbered(parts.get("target", b"/t%d"), number)
    line = parts.get("method", b"POST") + space + target + (space + version if version is not None else b"")
    lines = hosts + [LENGTH.sub(b"%d" % length, field) for field in frame]
    draw.shuffle(lines)
    at = draw.randrange(len(lines) + 1)
    lines[at:at] = others
    head = parts.get("before", b"") + line + parts.get("first-end", b"\r\n")
    head += b"".join(field + b"\r\n" for field in lines) + parts.get("last-end", b"\r\n")
    last = b"GET /e%d HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" % number
    return Case(number, head + body + last, sorted(f"{of}:{name}" for of, name in names.items()) or ["valid"])
