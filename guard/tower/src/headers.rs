//! Headers that say how long a request may take, how important it is and whether it was sent before. Whatever cannot be
//! read is no header, and counted. Never here: what follows from them.

use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use leeward_gate::{Class, Gate, Load};
use std::time::Duration;

/// Ours: a dictionary of whole numbers, `b` the budget left in us, `p` the priority from 1 to 128, `a` the times sent
/// before. Other keys are not looked at; the client layer replaces the header as a whole.
pub const LEEWARD: HeaderName = HeaderName::from_static("leeward");
/// The reason of a refusal, in a word.
pub const REASON: HeaderName = HeaderName::from_static("leeward-reason");
/// The number of a refusal's decision, in hexadecimal digits.
pub const DECISION: HeaderName = HeaderName::from_static("leeward-decision");
/// When to come back, in ms.
pub const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Envoy retries nothing that an upstream has marked so.
pub const ENVOY_OVERLOADED: HeaderName = HeaderName::from_static("x-envoy-overloaded");
/// Load of a replica for balancers (ORCA), as Envoy reads it.
pub const LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics");
/// Status of a call in gRPC.
pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// Why, in words.
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// When a gRPC client may retry, in ms; -1: never.
pub const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

pub(crate) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
pub(crate) const GRPC_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

/// Says a gate's load, where it is to be said and there is a rate, without which Envoy takes no report.
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

/// Longer than any of these values; the rest of a header is not looked at.
const LONGEST: usize = 256;

/// Content of the headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestHeaders {
    /// The least of the times that the client still gives the request.
    pub timeout: Option<Duration>,
    /// Importance.
    pub class: Option<Class>,
    /// Times that the request was sent before.
    pub attempt: u8,
    /// Headers that could not be read.
    pub malformed: u32,
}

/// Reads what concerns us, in one pass: a look-up by each name would hash all of its bytes. Of a header that is there
/// more than once every value counts.
pub fn read(headers: &HeaderMap) -> RequestHeaders {
    let mut said = RequestHeaders::default();
    for (name, value) in headers {
        let bytes = name.as_str().as_bytes();
        // Every name that concerns us begins so.
        match bytes.first() {
            Some(b'g') if bytes == b"grpc-timeout" => said.time(grpc_timeout(value)),
            Some(b'g') if bytes == b"grpc-previous-rpc-attempts" => said.parse_attempts(value, 0),
            Some(b'l') if bytes == b"leeward" => said.parse_leeward(value.as_bytes()),
            Some(b'x') if bytes == b"x-envoy-expected-rq-timeout-ms" => {
                said.time(number(value.as_bytes()).map(Duration::from_millis));
            }
            Some(b'x') if bytes == b"x-envoy-attempt-count" => said.parse_attempts(value, 1),
            _ => {}
        }
    }
    said
}

impl RequestHeaders {
    fn time(&mut self, read: Option<Duration>) {
        match read {
            Some(time) => self.timeout = Some(self.timeout.map_or(time, |left| left.min(time))),
            None => self.malformed += 1,
        }
    }

    /// `first`: the number that a first attempt has.
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

/// Digits alone, at most 18 of them.
fn number(digits: &[u8]) -> Option<u64> {
    let sound = !digits.is_empty() && digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit);
    sound.then(|| digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// A number of up to eight digits and a unit (gRPC over HTTP/2, `TimeoutValue TimeoutUnit`).
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

/// Form in which a gRPC call is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Grpc {
    /// gRPC over HTTP/2: the status stands in trailers.
    Native,
    /// gRPC-Web, for browsers, which read no trailers: the status stands in the content's last
    /// frame.
    Web {
        /// Content type of the call, and so of its answer.
        kind: HeaderValue,
        /// The content is encoded as base64.
        is_text: bool,
    },
}

/// Form of the gRPC call that these are the headers of; `None`: they are another request's.
pub(crate) fn grpc(headers: &HeaderMap) -> Option<Grpc> {
    let kind = headers.get(CONTENT_TYPE)?;
    let (name, rest) = media_type(kind).split_at_checked(b"application/grpc".len())?;
    // `+proto`, `+json` and others say how messages are encoded, which no refusal has.
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
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| media_type(kind).eq_ignore_ascii_case(b"text/event-stream"))
}

/// A content type without its parameters.
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
    fn content_types_are_told_apart() {
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
    fn the_least_of_all_deadlines_counts() {
        let left = |left| RequestHeaders { timeout: Some(left), ..RequestHeaders::default() };
        check(&[("grpc-timeout", "20m")], left(Duration::from_millis(20)));
        check(&[("grpc-timeout", "0n")], left(Duration::ZERO));
        check(&[("grpc-timeout", "99999999H")], left(Duration::from_secs(99_999_999 * 3_600)));
        check(&[("x-envoy-expected-rq-timeout-ms", "15"), ("grpc-timeout", "1S")], left(Duration::from_millis(15)));
        check(&[("leeward", "id=4, b=1800"), ("grpc-timeout", "1S")], left(Duration::from_micros(1_800)));
    }

    #[test]
    fn what_cannot_be_read_is_no_header() {
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
    fn importance_and_attempts() {
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
        fn any_bytes_are_read(name in 0..5usize, value in prop::collection::vec(32u8..=255, 0..400)) {
            let names = ["grpc-timeout", "x-envoy-expected-rq-timeout-ms", "x-envoy-attempt-count",
                "grpc-previous-rpc-attempts", "leeward"];
            let name = HeaderName::from_static(names[name]);
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                let said = read(&[(name, value)].into_iter().collect());
                prop_assert!(said.malformed <= 400);
            }
        }
    }
}
