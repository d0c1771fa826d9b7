//! The text of a line of the access log: JSON, or the combined format of Apache and nginx. Whatever
//! a client sends, a line is one line of printable ASCII. Does not contain files.

use super::entry::Entry;
use crate::settings::access_log::LogFormat;
use http::Version;
use leeward_core::units::Nanos;
use serde::Serialize;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::UNIX_EPOCH;
use time::OffsetDateTime;

/// Names of the months in the combined format.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl LogFormat {
    /// Appends the line of an entry, with its end.
    pub(super) fn append(self, entry: &Entry, into: &mut Vec<u8>) {
        let line = match self {
            LogFormat::Json => json(entry),
            LogFormat::Combined => combined(entry),
        };
        into.extend_from_slice(line.as_bytes());
        into.push(b'\n');
    }
}

#[derive(Serialize)]
struct JsonLine {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    method: String,
    target: String,
    protocol: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    status: Option<u16>,
    bytes: u64,
    complete: bool,
    duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<String>,
}

fn json(entry: &Entry) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let optional = |bytes: &Option<Box<[u8]>>| bytes.as_deref().map(text);
    let line = JsonLine {
        time: rfc3339(time_of(entry)),
        client: entry.client,
        method: text(&entry.method),
        target: text(&entry.target),
        protocol: protocol(entry.version),
        host: optional(&entry.host),
        status: entry.status,
        bytes: entry.bytes,
        complete: entry.is_complete,
        duration_ms: ms(entry.duration),
        queue_ms: entry.queued.map(ms),
        backend_ms: entry.at_backend.map(ms),
        backend: entry.backend.clone(),
        class: entry.class,
        tenant: entry.tenant,
        reason: optional(&entry.reason),
        decision: optional(&entry.decision),
        request_id: optional(&entry.request_id),
        trace_id: optional(&entry.trace_id),
        user_agent: optional(&entry.user_agent),
        referer: optional(&entry.referer),
    };
    // Numbers, texts and truth values can't fail.
    ascii(&serde_json::to_string(&line).unwrap_or_default())
}

/// JSON in ASCII: some readers end a line at U+0085 or U+2028, some terminals obey U+009B. Outside
/// of texts, JSON has nothing else.
fn ascii(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, ' '..='~') {
            line.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(line, "\\u{unit:04x}");
        }
    }
    line
}

fn combined(entry: &Entry) -> String {
    let time = time_of(entry);
    let month = MONTHS[usize::from(u8::from(time.month())) - 1];
    let optional = |bytes: &Option<Box<[u8]>>| bytes.as_deref().map_or_else(|| "-".into(), escaped);
    format!(
        "{} - - [{:02}/{month}/{}:{:02}:{:02}:{:02} +0000] \"{} {} {}\" {} {} \"{}\" \"{}\"",
        entry.client.map_or_else(|| "-".into(), |client| client.to_string()),
        time.day(),
        time.year(),
        time.hour(),
        time.minute(),
        time.second(),
        escaped(&entry.method),
        escaped(&entry.target),
        protocol(entry.version),
        // As nginx has it: the client closed its connection.
        entry.status.unwrap_or(499),
        entry.bytes,
        optional(&entry.referer),
        optional(&entry.user_agent),
    )
}

/// Bytes as nginx writes them.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => _ = write!(text, "\\x{byte:02X}"),
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

fn time_of(entry: &Entry) -> OffsetDateTime {
    let since = entry.time.duration_since(UNIX_EPOCH).unwrap_or_default();
    OffsetDateTime::from_unix_timestamp_nanos(since.as_nanos() as i128).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn rfc3339(time: OffsetDateTime) -> String {
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    )
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_11 => "HTTP/1.1",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP",
    }
}

/// Milliseconds, with three digits behind the point.
fn ms(span: Nanos) -> f64 {
    (span.0 / 1_000) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_testkit::fuzz::FuzzSearch;
    use leeward_testkit::random::Random;
    use serde_json::Value;
    use std::time::Duration;

    fn entry(bytes: &[u8]) -> Entry {
        let text = || Some(Box::from(bytes));
        Entry {
            time: UNIX_EPOCH + Duration::from_millis(1_795_822_931_007),
            client: Some([10, 0, 0, 1].into()),
            method: bytes.into(),
            target: bytes.into(),
            version: Version::HTTP_11,
            host: text(),
            user_agent: text(),
            referer: text(),
            request_id: text(),
            trace_id: text(),
            status: Some(200),
            bytes: 7,
            is_complete: true,
            duration: Nanos(1_234_567),
            class: Some(3),
            tenant: Some(9),
            queued: Some(Nanos(1_000)),
            at_backend: Some(Nanos(1_233_567)),
            backend: Some("127.0.0.1:3000".into()),
            reason: None,
            decision: None,
        }
    }

    fn line(format: LogFormat, entry: &Entry) -> String {
        let mut bytes = Vec::new();
        format.append(entry, &mut bytes);
        assert!(bytes.ends_with(b"\n"));
        bytes.pop();
        assert!(bytes.iter().all(|byte| (b' '..=b'~').contains(byte)), "{}", String::from_utf8_lossy(&bytes));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_says_what_happened() {
        let mut of = entry(b"a");
        (of.method, of.target) = (Box::from(&b"GET"[..]), Box::from(&b"/x?y=1"[..]));
        assert_eq!(
            line(LogFormat::Combined, &of),
            "10.0.0.1 - - [27/Nov/2026:23:42:11 +0000] \"GET /x?y=1 HTTP/1.1\" 200 7 \"a\" \"a\""
        );
        let json: Value = serde_json::from_str(&line(LogFormat::Json, &of)).unwrap();
        assert_eq!(json["time"], "2026-11-27T23:42:11.007Z");
        assert_eq!((&json["duration_ms"], &json["queue_ms"]), (&1.234.into(), &0.001.into()));
        assert_eq!(
            (&json["backend"], &json["class"], &json["tenant"]),
            (&"127.0.0.1:3000".into(), &3.into(), &9.into())
        );
        assert_eq!((json.get("reason"), &json["complete"]), (None, &true.into()));
        (of.status, of.client, of.referer, of.user_agent) = (None, None, None, None);
        assert_eq!(
            line(LogFormat::Combined, &of),
            "- - - [27/Nov/2026:23:42:11 +0000] \"GET /x?y=1 HTTP/1.1\" 499 7 \"-\" \"-\""
        );
        let json: Value = serde_json::from_str(&line(LogFormat::Json, &of)).unwrap();
        assert_eq!((json.get("client"), &json["status"]), (None, &Value::Null));
    }

    /// Pieces of lines that a client may want to forge, and of what readers take for an end.
    const PIECES: [&[u8]; 14] = [
        b"\"",
        b"\\",
        b"\n",
        b"\r\n",
        b"\\\"",
        b"\x1b[2J",
        b"\0",
        b"\x7f",
        b"\xff\xfe",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"\xf0\x9f\x98\x80",
        b"\",\"status\":500,\"x\":\"",
        b"\" 200 1 \"-\" \"-\"\n10.0.0.2 - - [",
    ];

    fn mutant(random: &mut Random) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..random.below(6) {
            bytes.extend_from_slice(PIECES[random.below(PIECES.len())]);
            for _ in 0..random.below(4) {
                bytes.push(random.below(256) as u8);
            }
        }
        bytes
    }

    /// Whatever a client sends, a line is one line, and what it says is what the client sent.
    #[test]
    fn no_client_can_forge_a_line() {
        let findings = std::env::temp_dir();
        let search = FuzzSearch { name: "proxy-access-log", findings: &findings, iterations: 40_000 };
        search.run(mutant, |_, bytes| {
            let of = entry(bytes);
            let json: Value = serde_json::from_str(&line(LogFormat::Json, &of)).unwrap();
            let text = String::from_utf8_lossy(bytes);
            for key in ["method", "target", "host", "user_agent", "referer", "request_id", "trace_id"] {
                assert_eq!(json[key], *text, "{key}");
            }
            assert_eq!((&json["status"], json.as_object().unwrap().len()), (&200.into(), 19));
            let combined = line(LogFormat::Combined, &of);
            // Each quotation mark is one of the format's own.
            assert_eq!(combined.matches('"').count(), 6, "{combined}");
            let back = |text: &str| {
                let mut bytes = Vec::new();
                let mut rest = text;
                while let Some((before, after)) = rest.split_once("\\x") {
                    bytes.extend_from_slice(before.as_bytes());
                    bytes.push(u8::from_str_radix(&after[..2], 16).unwrap());
                    rest = &after[2..];
                }
                bytes.extend_from_slice(rest.as_bytes());
                bytes
            };
            assert_eq!(back(combined.split('"').nth(5).unwrap()), bytes);
        });
    }
}
