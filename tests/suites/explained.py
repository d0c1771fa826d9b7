"""Cases that fail through the proxy for a reason. Does not contain measurements."""

# Suite (its beginning), case (its beginning), why the proxy's answer is right or cannot be mended.
EXPLAINED = [
    ("h2spec/", "http2/3.5/2",
     "a port for both: what is not HTTP/2's preface is HTTP/1.1, which is answered with 400 and the connection's end"),
    ("curl/tls-http1", "version_10",
     "curl offers nothing but `http/1.0` by ALPN, which is not served: RFC 7301 §3.2 asks for this alert"),
    ("curl/", "early_hints",
     "hyper's server sends no interim answer but 100 and 101, so 103 does not pass: clients lose a hint, no answer"),
]


def reason(suite, case):
    """The explanation of a failure; none if there is no good one."""
    for of, begin, why in EXPLAINED:
        if suite.startswith(of) and case.startswith(begin):
            return why
    return None
