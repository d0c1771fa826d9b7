//! Request headers for deadline, importance and attempts, and response headers for rejections and
//! load. A malformed value is counted and ignored. Does not contain the use of the values.

use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use leeward_gate::{Class, Gate, Load};
use std::time::Duration;

/// Leeward's own header: a dictionary of integers.
///
/// `b` is the remaining budget in us, `p` the priority from 1 to 128, `a` the number of earlier
/// attempts. Other keys are ignored; the client layer replaces the whole header.
pub const LEEWARD: HeaderName = HeaderName::from_static("leeward");
/// Reason for a rejection, as one word.
pub const REASON: HeaderName = HeaderName::from_static("leeward-reason");
/// Decision number of a rejection, in hexadecimal digits.
pub const DECISION: HeaderName = HeaderName::from_static("leeward-decision");
/// Delay before a retry, in ms.
pub const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Marks a rejection for Envoy, which then doesn't retry.
pub const ENVOY_OVERLOADED: HeaderName = HeaderName::from_static("x-envoy-overloaded");
/// Load of a replica for load balancers (ORCA), in the form that Envoy reads.
pub const LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics");
/// Status of a gRPC call.
pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// Text for the status.
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Delay before a gRPC client may retry, in ms; -1: never.
pub const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

pub(crate) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
pub(crate) const GRPC_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

/// Writes a gate's load, if it is to be reported and a rate is known. Envoy ignores a report
/// without a rate.
pub(crate) fn write_load(reporter: &Option<Gate>, headers: &mut HeaderMap) {
    let Some(Load { utilization, delay, rate, .. }) = reporter.as_ref().map(Gate::load) else { return };
    if rate <= 0.0 {
        return;
    }
    let text = format!(
        "TEXT rps_fractional={rate:.1},application_utilization={utilization:.3},named_metrics.leeward_delay={delay:.3}"
    );
    if let Ok(load) = HeaderValue::from_str(&text) {
        headers.insert(LOAD, load);
    }
}

/// Longest `leeward` header that is parsed; a longer one is malformed.
const LONGEST: usize = 256;

/// Values of the request headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestHeaders {
    /// The shortest remaining time that any header allows.
    pub timeout: Option<Duration>,
    /// Importance.
    pub class: Option<Class>,
    /// Number of earlier attempts of the request.
    pub attempt: u8,
    /// Malformed headers.
    pub malformed: u32,
    /// Whether the request is a gRPC call.
    pub(crate) is_grpc: bool,
}

/// Reads the relevant headers in one pass; a look-up by name would hash every name.
///
/// If a header appears more than once, every value counts.
pub fn read(headers: &HeaderMap) -> RequestHeaders {
    let mut parsed = RequestHeaders::default();
    for (name, value) in headers {
        let bytes = name.as_str().as_bytes();
        // The first byte excludes most other names.
        match bytes.first() {
            Some(b'c') if bytes == b"content-type" => parsed.is_grpc |= is_grpc(value),
            Some(b'g') if bytes == b"grpc-timeout" => parsed.time(grpc_timeout(value)),
            Some(b'g') if bytes == b"grpc-previous-rpc-attempts" => parsed.parse_attempts(value, 0),
            Some(b'l') if bytes == b"leeward" => parsed.parse_leeward(value.as_bytes()),
            Some(b'x') if bytes == b"x-envoy-expected-rq-timeout-ms" => {
                parsed.time(number(value.as_bytes()).map(Duration::from_millis));
            }
            Some(b'x') if bytes == b"x-envoy-attempt-count" => parsed.parse_attempts(value, 1),
            _ => {}
        }
    }
    parsed
}

impl RequestHeaders {
    fn time(&mut self, parsed: Option<Duration>) {
        match parsed {
            Some(time) => self.timeout = Some(self.timeout.map_or(time, |timeout| timeout.min(time))),
            None => self.malformed += 1,
        }
    }

    /// `first`: the number of a first attempt.
    fn parse_attempts(&mut self, value: &HeaderValue, first: u64) {
        match number(value.as_bytes()) {
            Some(count) => self.set_attempt(count.saturating_sub(first)),
            None => self.malformed += 1,
        }
    }

    fn set_attempt(&mut self, count: u64) {
        self.attempt = self.attempt.max(u8::try_from(count).unwrap_or(u8::MAX));
    }

    fn parse_leeward(&mut self, value: &[u8]) {
        if value.len() > LONGEST {
            self.malformed += 1;
            return;
        }
        for member in value.split(|byte| *byte == b',') {
            let member = member.trim_ascii();
            let (key, value) = match member.iter().position(|byte| *byte == b'=') {
                Some(at) => (&member[..at], &member[at + 1..]),
                None => (member, &b""[..]),
            };
            match (key, number(value)) {
                (b"b", Some(us)) => self.time(Some(Duration::from_micros(us))),
                (b"p", Some(level @ 1..=128)) => self.class = Some(Class::new((level - 1) as u8 / 16)),
                (b"a", Some(count)) => self.set_attempt(count),
                (b"b" | b"p" | b"a", _) => self.malformed += 1,
                _ => {}
            }
        }
    }
}

/// Parses a number of 1 to 18 digits.
fn number(digits: &[u8]) -> Option<u64> {
    let is_valid = !digits.is_empty() && digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit);
    is_valid.then(|| digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Parses up to eight digits and a unit (gRPC over HTTP/2, `TimeoutValue TimeoutUnit`).
fn grpc_timeout(value: &HeaderValue) -> Option<Duration> {
    let (unit, digits) = value.as_bytes().split_last()?;
    let value = number(digits).filter(|_| digits.len() <= 8)?;
    Some(match unit {
        b'H' => Duration::from_secs(value * 3_600),
        b'M' => Duration::from_secs(value * 60),
        b'S' => Duration::from_secs(value),
        b'm' => Duration::from_millis(value),
        b'u' => Duration::from_micros(value),
        b'n' => Duration::from_nanos(value),
        _ => return None,
    })
}

/// Form of the answer to a gRPC call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grpc {
    /// gRPC over HTTP/2: the status is in the trailers.
    Native,
    /// gRPC-Web, for browsers, which read no trailers: the status is in the content's last frame.
    Web {
        /// Content type of the call and of its answer.
        kind: HeaderValue,
        /// The content is encoded as base64.
        is_text: bool,
    },
}

/// The first value of a header, found by a scan: a look-up would hash the name, which takes longer
/// than comparing the few names of a response.
pub(crate) fn first<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a HeaderValue> {
    headers.iter().find_map(|(found, value)| (found.as_str() == name).then_some(value))
}

/// Whether a content type is one of gRPC or gRPC-Web.
fn is_grpc(kind: &HeaderValue) -> bool {
    // The common types of other requests end here.
    kind.as_bytes().get(12..16).is_some_and(|name| name.eq_ignore_ascii_case(b"grpc")) && form(kind).is_some()
}

/// Form of the gRPC call with these headers; `None`: the request is no gRPC call.
pub fn grpc(headers: &HeaderMap) -> Option<Grpc> {
    form(headers.get(CONTENT_TYPE)?)
}

/// Form of the gRPC call with this content type.
fn form(kind: &HeaderValue) -> Option<Grpc> {
    let (name, rest) = media_type(kind).split_at_checked(b"application/grpc".len())?;
    // `+proto`, `+json` and others name the encoding of messages; a rejection has no message.
    let form = rest.split(|byte| *byte == b'+').next().unwrap_or_default();
    if !name.eq_ignore_ascii_case(b"application/grpc") {
        None
    } else if form.is_empty() {
        Some(Grpc::Native)
    } else if form.eq_ignore_ascii_case(b"-web") {
        Some(Grpc::Web { kind: kind.clone(), is_text: false })
    } else if form.eq_ignore_ascii_case(b"-web-text") {
        Some(Grpc::Web { kind: kind.clone(), is_text: true })
    } else {
        None
    }
}

/// Whether the content is a stream of server-sent events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    const KIND: &[u8] = b"text/event-stream";
    let is_long = |kind: &&HeaderValue| kind.len() >= KIND.len();
    first(headers, "content-type").filter(is_long).is_some_and(|kind| media_type(kind).eq_ignore_ascii_case(KIND))
}

/// The content type without its parameters.
fn media_type(kind: &HeaderValue) -> &[u8] {
    kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pairs: &[(&'static str, &str)], expected: RequestHeaders) {
        let headers =
            pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        assert_eq!(read(&headers.collect()), expected, "{pairs:?}");
    }

    #[test]
    fn content_types_are_distinguished() {
        let form = |kind: &'static str| {
            let headers: HeaderMap = [(CONTENT_TYPE, HeaderValue::from_static(kind))].into_iter().collect();
            grpc(&headers)
        };
        for kind in ["application/grpc", "application/grpc+proto", "Application/GRPC;a=b", "application/grpc+json"] {
            assert_eq!(form(kind), Some(Grpc::Native), "{kind}");
        }
        for (kind, is_text) in [
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpc-web+thrift; charset=utf-8", false),
            ("application/grpc-web-text", true),
            ("application/gRPC-Web-Text+proto", true),
        ] {
            assert_eq!(form(kind), Some(Grpc::Web { kind: HeaderValue::from_static(kind), is_text }), "{kind}");
        }
        for kind in
            ["", "application/grp", "application/grpcs", "application/grpc-webs", "application/json", "text/grpc"]
        {
            assert_eq!(form(kind), None, "{kind}");
        }
        for (kind, expected) in
            [("text/event-stream", true), ("Text/Event-Stream; charset=utf-8", true), ("text/event-streams", false)]
        {
            let headers: HeaderMap = [(CONTENT_TYPE, HeaderValue::from_static(kind))].into_iter().collect();
            assert_eq!(is_event_stream(&headers), expected, "{kind}");
        }
    }

    #[test]
    fn the_earliest_deadline_applies() {
        let timeout = |timeout| RequestHeaders { timeout: Some(timeout), ..RequestHeaders::default() };
        check(&[("grpc-timeout", "20m")], timeout(Duration::from_millis(20)));
        check(&[("grpc-timeout", "0n")], timeout(Duration::ZERO));
        check(&[("grpc-timeout", "99999999H")], timeout(Duration::from_secs(99_999_999 * 3_600)));
        check(&[("x-envoy-expected-rq-timeout-ms", "15"), ("grpc-timeout", "1S")], timeout(Duration::from_millis(15)));
        check(&[("leeward", "id=4, b=1800"), ("grpc-timeout", "1S")], timeout(Duration::from_micros(1_800)));
    }

    #[test]
    fn malformed_headers_are_ignored_and_counted() {
        let malformed = RequestHeaders { malformed: 1, ..RequestHeaders::default() };
        for value in ["", "m", "12", "123456789m", "-1S", "1.5S", "1s"] {
            check(&[("grpc-timeout", value)], malformed);
        }
        for value in ["b=-1", "b=99999999999999999999", "b", "p=0", "p=129", "a=x", &"b=1,".repeat(100)] {
            check(&[("leeward", value)], malformed);
        }
        check(&[("leeward", "zz=5, q")], RequestHeaders::default());
    }

    #[test]
    fn class_and_attempt_are_parsed() {
        check(
            &[("leeward", "p=40,a=2")],
            RequestHeaders { class: Some(Class::new(2)), attempt: 2, ..RequestHeaders::default() },
        );
        check(&[("x-envoy-attempt-count", "1")], RequestHeaders::default());
        check(&[("x-envoy-attempt-count", "900")], RequestHeaders { attempt: 255, ..RequestHeaders::default() });
        check(&[("grpc-previous-rpc-attempts", "2")], RequestHeaders { attempt: 2, ..RequestHeaders::default() });
    }

    proptest! {
        #[test]
        fn any_header_bytes_parse_without_panic(name in 0..5usize, value in prop::collection::vec(32u8..=255, 0..400)) {
            let names = ["grpc-timeout", "x-envoy-expected-rq-timeout-ms", "x-envoy-attempt-count",
                "grpc-previous-rpc-attempts", "leeward"];
            let name = HeaderName::from_static(names[name]);
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                let parsed = read(&[(name, value)].into_iter().collect());
                prop_assert!(parsed.malformed <= 400);
            }
        }
    }
}
