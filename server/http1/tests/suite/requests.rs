//! Requests with the correct answers by RFC 9110 and 9112, for every port of this project with `GET
//! /healthz`. Tests of those ports include this file.

/// Bytes that a client sends, the statuses of all answers in order, and whether the connection
/// accepts another request afterwards.
pub(crate) type Row = (Vec<u8>, Vec<u16>, bool);

/// A request that no client has sent, in the content of another one.
const INNER: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Fields of a `GET /healthz HTTP/1.1`, with lines that end in CR LF; the status; whether the
/// connection stays open.
const FIELDS: &[(&str, u16, bool)] = &[
    ("host: localhost\r\n", 200, true),
    // Options of the connection: a list, in any case, over several lines (RFC 9110 §7.6.1).
    ("host: localhost\r\nconnection: close\r\n", 200, false),
    ("host: localhost\r\nConnection: CLOSE\r\n", 200, false),
    ("host: localhost\r\nconnection: close, TE\r\n", 200, false),
    ("host: localhost\r\nconnection: TE,Close\r\n", 200, false),
    ("host: localhost\r\nconnection: , ,close\t\r\n", 200, false),
    ("host: localhost\r\nconnection: te\r\nconnection: close\r\n", 200, false),
    ("host: localhost\r\nconnection: close\r\nconnection: keep-alive\r\n", 200, false),
    ("host: localhost\r\nconnection: keep-alive\r\n", 200, true),
    ("host: localhost\r\nconnection: closed, x-close\r\n", 200, true),
    ("host: localhost\r\nconnection:\r\n", 200, true),
    // One host, and a valid one (RFC 9112 §3.2).
    ("", 400, false),
    ("host: localhost\r\nhost: localhost\r\n", 400, false),
    ("host: localhost\r\nhost: other\r\n", 400, false),
    ("host: localhost, other\r\n", 400, false),
    ("host: localhost,other\r\n", 400, false),
    ("host: local host\r\n", 400, false),
    ("host: localhost/\r\n", 400, false),
    ("host: http://localhost\r\n", 400, false),
    ("host: me@localhost\r\n", 400, false),
    ("host: localhost?\r\n", 400, false),
    ("host: localhost#\r\n", 400, false),
    ("host: localhost:port\r\n", 400, false),
    ("host: localhost:65536\r\n", 400, false),
    ("host: localhost:+80\r\n", 400, false),
    ("host: localhost:80:80\r\n", 400, false),
    ("host: :80\r\n", 400, false),
    ("host: [::1\r\n", 400, false),
    ("host: [::1]80\r\n", 400, false),
    ("host: [localhost]\r\n", 400, false),
    ("host: loc%zzalhost\r\n", 400, false),
    ("host: l\u{f6}calhost\r\n", 400, false),
    ("host: localhost:65535\r\n", 200, true),
    ("host: LOCALHOST:\r\n", 200, true),
    ("host: [::1]:80\r\n", 200, true),
    ("host:127.0.0.1\r\n", 200, true),
    ("host: \r\n", 200, true),
    // A length: digits, once (RFC 9112 §6.3).
    ("host: localhost\r\ncontent-length: 0\r\n", 200, true),
    ("host: localhost\r\ncontent-length: 00\r\n", 200, true),
    ("host: localhost\r\ncontent-length: 42\r\n", 413, false),
    ("host: localhost\r\ncontent-length: 9999999999999999999\r\n", 413, false),
    ("host: localhost\r\ncontent-length: 0\r\ncontent-length: 42\r\n", 400, false),
    ("host: localhost\r\ncontent-length: 42\r\nContent-Length: 0\r\n", 400, false),
    ("host: localhost\r\ncontent-length: 0\r\ncontent-length: 0\r\n", 400, false),
    ("host: localhost\r\ncontent-length: 0, 42\r\n", 400, false),
    ("host: localhost\r\ncontent-length: 0, 0\r\n", 400, false),
    ("host: localhost\r\ncontent-length: +0\r\n", 400, false),
    ("host: localhost\r\ncontent-length: -0\r\n", 400, false),
    ("host: localhost\r\ncontent-length: 0x0\r\n", 400, false),
    ("host: localhost\r\ncontent-length: 0 0\r\n", 400, false),
    ("host: localhost\r\ncontent-length: \"0\"\r\n", 400, false),
    ("host: localhost\r\ncontent-length:\r\n", 400, false),
    ("host: localhost\r\ncontent-length: 18446744073709551616\r\n", 400, false),
    ("host: localhost\r\ncontent-length: 100000000000000000000\r\n", 400, false),
    // Transfer codings: `chunked` last and once, and no length beside it (RFC 9112 §6.1, §6.3).
    ("host: localhost\r\ntransfer-encoding: chunked\r\n", 413, false),
    ("host: localhost\r\nTransfer-Encoding: Chunked\r\n", 413, false),
    ("host: localhost\r\ntransfer-encoding:\t, chunked ,\r\n", 413, false),
    ("host: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 0\r\n", 400, false),
    ("host: localhost\r\ncontent-length: 42\r\ntransfer-encoding: chunked\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: chunked, chunked\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: chunked, gzip\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: gzip, chunked\r\n", 501, false),
    ("host: localhost\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", 501, false),
    ("host: localhost\r\ntransfer-encoding: gzip\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: identity\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: xchunked\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: chunked;x\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: \"chunked\"\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding:\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: ,\r\ncontent-length: 0\r\n", 400, false),
    ("host: localhost\r\ntransfer-encoding: \u{b}chunked\r\n", 400, false),
    // Lines (RFC 9112 §2.2, §5).
    ("host: localhost\r\ntransfer-encoding : chunked\r\n", 400, false),
    ("host: localhost\r\ncontent-length\t: 42\r\n", 400, false),
    ("host: localhost\r\nx: y\r\n z\r\n", 400, false),
    ("host: localhost\r\nx: y\r\n\tz\r\n", 400, false),
    ("host: localhost\r\nx:\r\n content-length: 42\r\n", 400, false),
    (" host: localhost\r\n", 400, false),
    ("host: localhost\r\nx: \0\r\n", 400, false),
    ("host: localhost\r\nx: \u{1}\r\n", 400, false),
    ("host: localhost\r\nx: \u{7f}\r\n", 400, false),
    ("host: localhost\r\nx: y\rz: content\r\n", 400, false),
    ("host: localhost\r\nx: y\r\r\n", 400, false),
    ("host: localhost\nx: y\r\n", 400, false),
    ("host: localhost\r\nx: y\n", 400, false),
    ("host: localhost\r\nx: y\n\n", 400, false),
    ("host: localhost\r\nx\r\n", 400, false),
    ("host: localhost\r\n: x\r\n", 400, false),
    ("host: localhost\r\nx y: z\r\n", 400, false),
    ("host: localhost\r\nx(y): z\r\n", 400, false),
    ("host: localhost\r\nx\0: y\r\n", 400, false),
    ("host: localhost\r\n\u{fc}: y\r\n", 400, false),
    ("host: localhost\r\nx:\ty\t \u{fc} \t\r\ny:\r\n", 200, true),
];

/// Request lines with their line ends, before `host: localhost`; the status; whether the connection
/// stays open.
const LINES: &[(&str, u16, bool)] = &[
    // The four forms of a target (RFC 9112 §3.2).
    ("GET http://localhost/healthz HTTP/1.1\r\n", 200, true),
    ("GET HTTPS://LocalHost:443/healthz?x=http://y/ HTTP/1.1\r\n", 200, true),
    ("GET http://127.0.0.1:80/healthz HTTP/1.0\r\n", 200, false),
    ("GET http:///healthz HTTP/1.1\r\n", 400, false),
    ("GET http://me@localhost/healthz HTTP/1.1\r\n", 400, false),
    ("GET http://localhost:x/healthz HTTP/1.1\r\n", 400, false),
    ("GET http:/healthz HTTP/1.1\r\n", 400, false),
    ("GET ftp://localhost/healthz HTTP/1.1\r\n", 400, false),
    ("GET healthz HTTP/1.1\r\n", 400, false),
    ("GET localhost:80 HTTP/1.1\r\n", 400, false),
    ("GET * HTTP/1.1\r\n", 400, false),
    ("OPTIONS * HTTP/1.1\r\n", 405, true),
    ("CONNECT localhost:80 HTTP/1.1\r\n", 405, false),
    ("CONNECT localhost HTTP/1.1\r\n", 400, false),
    ("CONNECT /healthz HTTP/1.1\r\n", 400, false),
    // Methods (RFC 9110 §9.1).
    ("HEAD /healthz HTTP/1.1\r\n", 405, true),
    ("DELETE /healthz HTTP/1.1\r\n", 405, true),
    ("BREW /healthz HTTP/1.1\r\n", 501, true),
    ("get /healthz HTTP/1.1\r\n", 501, true),
    ("G@T /healthz HTTP/1.1\r\n", 400, false),
    // Versions (RFC 9110 §15.6.6).
    ("GET /healthz HTTP/2.0\r\n", 505, false),
    ("GET /healthz HTTP/1.2\r\n", 505, false),
    ("GET /healthz HTTP/0.9\r\n", 505, false),
    ("PRI * HTTP/2.0\r\n", 505, false),
    ("GET /healthz http/1.1\r\n", 400, false),
    ("GET /healthz HTTP/x.y\r\n", 400, false),
    ("GET /healthz HTTP/1.1x\r\n", 400, false),
    ("GET /healthz ICAP/1.0\r\n", 400, false),
    ("GET /healthz\r\n", 400, false),
    ("GET /healthz \r\n", 400, false),
    // Blanks and line ends.
    ("\r\nGET /healthz HTTP/1.1\r\n", 200, true),
    ("\r\n\r\nGET /healthz HTTP/1.1\r\n", 200, true),
    ("\nGET /healthz HTTP/1.1\r\n", 400, false),
    ("\rGET /healthz HTTP/1.1\r\n", 400, false),
    (" GET /healthz HTTP/1.1\r\n", 400, false),
    ("GET  /healthz HTTP/1.1\r\n", 400, false),
    ("GET /healthz  HTTP/1.1\r\n", 400, false),
    ("GET\t/healthz\tHTTP/1.1\r\n", 400, false),
    ("GET /healthz HTTP/1.1 \r\n", 400, false),
    ("GET /healthz HTTP/1.1\n", 400, false),
    ("GET /health\0z HTTP/1.1\r\n", 400, false),
    ("GET  HTTP/1.1\r\n", 400, false),
];

/// Whole streams.
const STREAMS: &[(&str, &[u16], bool)] = &[
    ("GET /healthz HTTP/1.0\r\n\r\n", &[200], false),
    ("GET /healthz HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", &[200], true),
    ("GET /healthz HTTP/1.0\r\nconnection: x\r\nConnection: Keep-Alive, y\r\n\r\n", &[200], true),
    ("GET /healthz HTTP/1.0\r\nconnection: keep-alive, close\r\n\r\n", &[200], false),
    ("GET /healthz HTTP/1.0\r\nhost: localhost\r\nhost: localhost\r\n\r\n", &[400], false),
    ("GET /healthz HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", &[400], false),
    ("GET /healthz HTTP/1.0\r\nconnection: keep-alive\r\ncontent-length: 5\r\n\r\nhello", &[413], false),
    ("POST /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", &[405], true),
    ("POST /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhello", &[405], false),
    ("POST /healthz HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n", &[405], false),
    ("POST /healthz HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", &[405], false),
    (
        "POST /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        &[400],
        false,
    ),
    ("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n\r\n", &[200], true),
    ("\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n", &[400], false),
    ("SSH-2.0-OpenSSH_9.6\r\n", &[400], false),
];

/// All rows.
pub(crate) fn rows() -> Vec<Row> {
    let row = |bytes: String, statuses: &[u16], goes_on| -> Row { (bytes.into(), statuses.into(), goes_on) };
    let mut rows = Vec::new();
    for (fields, status, goes_on) in FIELDS {
        let inner = if *status == 200 { "" } else { INNER };
        rows.push(row(format!("GET /healthz HTTP/1.1\r\n{fields}\r\n{inner}"), &[*status], *goes_on));
    }
    for (line, status, goes_on) in LINES {
        rows.push(row(format!("{line}host: localhost\r\n\r\n"), &[*status], *goes_on));
    }
    for (stream, statuses, goes_on) in STREAMS {
        rows.push(row((*stream).into(), statuses, *goes_on));
    }
    rows.push(row(INNER.repeat(2), &[200, 200], true));
    rows.push(row(format!("{INNER}GET * HTTP/1.1\r\nhost: localhost\r\n\r\n{INNER}"), &[200, 400], false));
    let fields =
        |count: usize| format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(count - 1));
    rows.push(row(fields(64), &[200], true));
    rows.push(row(fields(65), &[431], false));
    let long = |length: usize| {
        let head = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ";
        format!("{head}{}\r\n\r\n", "y".repeat(length - head.len() - 4))
    };
    rows.push(row(long(8_192), &[200], true));
    rows.push(row(long(8_193), &[431], false));
    rows.push(row(long(60_000), &[431], false));
    rows
}
