"""Why proxies read a case differently, by the anomalies in it. Does not contain measurements."""

# Anomalies that are valid HTTP/1.1, or that everybody takes: a refusal of these alone is an error.
VALID = {
    "valid", "method:get", "method:head", "method:options", "method:trace", "method:own", "method:lower",
    "target:absolute", "target:absolute-same", "target:absolute-port", "target:double", "target:percent", "target:dots",
    "target:query", "target:semicolon", "target:long-4k", "host:upper", "host:address-6", "frame:cl-zeros",
    "frame:none", "frame:te-upper", "frame:te-tab", "frame:te-trailing", "header:long-4k", "header:empty-value",
    "header:underscore", "header:upgrade", "header:h2c", "header:te-trailers", "header:high", "header:colon-value",
    "header:quote", "header:keep-alive", "chunk:extension", "chunk:extension-quote", "chunk:upper", "chunk:zeros",
    "trailer:one", "before:crlf",
}

# Where `leeward proxy` takes what a rival refuses, or reads it differently: the rival (None: any),
# the beginning of the kind, the beginnings of anomalies of which one must be there, and why.
EXPLAINED = [
    ("haproxy", "laxer", ["target:absolute", "target:https"],
     "the target's host outranks Host (RFC 9112 §3.2.2), which is replaced; HAProxy refuses that they differ"),
    ("haproxy", "laxer", ["host:"], "with an absolute target Host is replaced, whatever it was"),
    ("nginx", "laxer", ["target:absolute", "target:https"], "the target's host outranks Host, which is replaced"),
    (None, "host", ["target:absolute", "target:https"], "Host becomes that of the target (RFC 9112 §3.2.2)"),
    ("haproxy", "target", ["target:absolute", "target:https"], "HAProxy passes an absolute target on, ours its path"),
    (None, "target", ["target:fragment"], "hyper's URI ends before a fragment; nginx passes it on"),
    ("haproxy", "laxer", ["target:fragment"], "hyper's URI ends before a fragment; HAProxy refuses it"),
    ("haproxy", "laxer", ["target:utf8", "target:quote"], "characters outside a URI's pass on as they came, as by nginx"),
    ("nginx", "laxer", ["frame:cl-twice", "frame:cl-differ-length-1", "frame:cl-differ-0-length-0"],
     "equal lengths are one (RFC 9112 §6.3), and one is passed on"),
    (None, "laxer", ["frame:te-cl", "frame:cl-te", "frame:te-lf", "frame:te-trailing-cl"],
     "chunks outrank a length (RFC 9112 §6.3): they alone are passed on, and the connection ends"),
    ("nginx", "laxer", ["frame:cl-tabs", "frame:te-tab", "frame:te-trailing", "host:tab"],
     "tabs around a value are allowed (RFC 9110 §5.6.3)"),
    ("nginx", "laxer", ["host:dots", "host:empty"], "hosts that nginx does not like; the backend decides"),
    ("nginx", "laxer", ["method:lower", "method:trace"], "methods that nginx does not know or forbids; the backend decides"),
    ("nginx", "laxer", ["target:percent"], "nginx decodes paths; others pass `%` on as it came"),
    ("haproxy", "laxer", ["version:1.0"], "HAProxy refuses a GET of HTTP/1.0 with a length, which counts as in HTTP/1.1"),
    ("nginx", "laxer", ["target:star", "method:options"], "nginx does not serve `OPTIONS *`"),
    ("haproxy", "what follows: ours ends", ["frame:te-cl", "frame:cl-te", "frame:te-lf"],
     "after chunks beside a length the connection ends (RFC 9112 §6.1)"),
    (None, "what follows: ours ends", ["final:", "trailer:", "chunk-end:", "chunk:"],
     "after a bad end of chunks hyper reads what follows as trailers: no request arrives from it"),
    ("nginx", "what follows: ours goes on", ["frame:none", "frame:cl-underscore", "last-end:crlf-space"],
     "the rest of the content and the next method are a method that nginx does not know"),
]


def reason(rival, kind, names):
    """The explanation of a difference; none if there is no good one."""
    if kind.startswith("stricter"):
        return None if VALID.issuperset(names) else "no valid HTTP/1.1, or two ways to read it: refused"
    for of, begin, anomalies, why in EXPLAINED:
        if of in (None, rival) and kind.startswith(begin) and any(name.startswith(tuple(anomalies)) for name in names):
            return why
    return None
