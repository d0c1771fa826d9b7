//! Headers of a request that a client sends: remaining time, importance and attempts. A deadline
//! only shrinks on its way, for any header of the caller. Does not contain the decision to send.

use crate::headers::{self, GRPC_ATTEMPTS, GRPC_TIMEOUT, LEEWARD};
use crate::scope::RequestContext;
use http::HeaderMap;
use http::header::HeaderValue;
use leeward_core::units::Time;
use std::fmt::Write;
use std::time::Duration;

/// The client half's knowledge of a request before it is sent.
pub(crate) struct OutgoingRequest {
    /// Time that the client allows for its requests.
    pub(crate) objective: Duration,
    /// Number of earlier attempts that this client has marked.
    pub(crate) own: u8,
    /// The served request that this one is sent for.
    pub(crate) context: Option<RequestContext>,
    /// Current time, by the process's clock.
    pub(crate) now: Time,
}

/// Summary of the written headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenHeaders {
    /// Time until the deadline; `None` without a deadline.
    pub(crate) timeout: Option<Duration>,
    /// Whether this client sent the request before.
    pub(crate) is_retry: bool,
    /// Malformed header values.
    pub(crate) malformed: u32,
}

/// Replaces the headers for deadline, importance and attempts.
pub(crate) fn write(headers: &mut HeaderMap, out: &OutgoingRequest) -> WrittenHeaders {
    let parsed = headers::read(headers);
    let served_timeout = out.context.and_then(|serving| serving.remaining_at(out.now));
    let deadline = [parsed.timeout, served_timeout].into_iter().flatten().min();
    let budget = deadline.map_or(out.objective, |deadline| deadline.min(out.objective));
    let inherited = out.context.map_or(0, |serving| serving.attempt());
    // Marks that a proxy copied from the served request are no retry by this client.
    let own_attempts = if parsed.attempt > inherited { out.own.max(parsed.attempt) } else { out.own };
    let attempt = inherited.max(own_attempts);
    let class = parsed.class.or(out.context.map(|serving| serving.class()));

    let mut value = String::with_capacity(32);
    let _ = write!(value, "b={}", budget.as_micros().min(999_999_999_999));
    if let Some(class) = class {
        let _ = write!(value, ", p={}", class.number() * 16 + 1);
    }
    if attempt > 0 {
        let _ = write!(value, ", a={attempt}");
    }
    set(headers, LEEWARD, &value);
    if headers::grpc(headers).is_some() {
        // The objective is only this client's target; a deadline alone may end a call.
        if let Some(deadline) = deadline {
            set(headers, GRPC_TIMEOUT, &timeout(deadline));
        } else {
            // A valid timeout would have been the deadline, so the header is malformed.
            headers.remove(GRPC_TIMEOUT);
        }
        if attempt > 0 {
            set(headers, GRPC_ATTEMPTS, &attempt.to_string());
        }
    }
    WrittenHeaders { timeout: deadline, is_retry: own_attempts > 0, malformed: parsed.malformed }
}

fn set(headers: &mut HeaderMap, name: http::header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Formats up to eight digits and a unit, never more than `left` (gRPC over HTTP/2, `TimeoutValue
/// TimeoutUnit`).
fn timeout(left: Duration) -> String {
    const MOST: u128 = 99_999_999;
    match (left.as_micros(), left.as_millis()) {
        (micros, _) if micros <= MOST => format!("{micros}u"),
        (_, millis) if millis <= MOST => format!("{millis}m"),
        _ => format!("{}S", left.as_secs().min(99_999_999)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::HeaderName;
    use leeward_gate::{Class, RequestInfo};
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const NOW: Time = Time(5_000_000_000);

    fn out(serving: Option<RequestInfo>, own: u8) -> OutgoingRequest {
        let serving = serving.map(|arriving| RequestContext::new(&arriving, NOW));
        OutgoingRequest { objective: MS(20), own, context: serving, now: Time(NOW.0 + 4_000_000) }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(header).collect()
    }

    #[test]
    fn an_outgoing_deadline_shrinks_by_the_time_spent() {
        let serving = RequestInfo::default().with_timeout(MS(15)).with_age(MS(2)).with_class(Class::BATCH);
        let mut sent = headers(&[("content-type", "application/grpc"), ("grpc-timeout", "1S")]);
        let written = write(&mut sent, &out(Some(serving), 0));
        assert_eq!(written, WrittenHeaders { timeout: Some(MS(9)), is_retry: false, malformed: 0 });
        assert_eq!(
            (sent["grpc-timeout"].as_bytes(), sent["leeward"].as_bytes()),
            (&b"9000u"[..], &b"b=9000, p=81"[..])
        );
    }

    #[test]
    fn without_a_deadline_there_is_an_objective_and_no_timeout() {
        let mut sent = headers(&[("content-type", "application/grpc")]);
        assert_eq!(write(&mut sent, &out(None, 0)).timeout, None);
        assert_eq!((sent.get("grpc-timeout"), sent["leeward"].as_bytes()), (None, &b"b=20000"[..]));
    }

    #[test]
    fn attempts_are_marked_and_inherited() {
        let mut sent = headers(&[("content-type", "application/grpc")]);
        assert!(write(&mut sent, &out(None, 2)).is_retry);
        assert_eq!(sent["grpc-previous-rpc-attempts"], "2");
        assert_eq!(headers::read(&sent).attempt, 2);
        let mut sent = HeaderMap::new();
        assert!(
            !write(&mut sent, &out(Some(RequestInfo::default().with_attempt(1)), 0)).is_retry,
            "a part of a repeated one"
        );
        assert_eq!(headers::read(&sent).attempt, 1);
    }

    #[test]
    fn copied_retry_headers_do_not_count_as_a_retry() {
        let serving = || Some(RequestInfo::default().with_attempt(2));
        let copied = [("content-type", "application/grpc"), ("leeward", "a=2"), ("grpc-previous-rpc-attempts", "2")];
        let mut sent = headers(&copied);
        assert!(!write(&mut sent, &out(serving(), 0)).is_retry);
        assert_eq!(headers::read(&sent).attempt, 2);
        let mut sent = headers(&[("leeward", "a=3")]);
        assert!(write(&mut sent, &out(serving(), 0)).is_retry, "marked once more on the way here");
        assert!(write(&mut headers(&copied), &out(serving(), 1)).is_retry, "the proxy's own retry");
    }

    #[test]
    fn malformed_headers_are_counted_and_replaced() {
        let mut sent = headers(&[("leeward", "b=-1, p=900"), ("leeward", "a=x")]);
        assert_eq!(write(&mut sent, &out(None, 0)).malformed, 3);
        assert_eq!(headers::read(&sent).malformed, 0);
    }

    #[test]
    fn timeouts_have_at_most_eight_digits() {
        let cases =
            [(Duration::ZERO, "0u"), (MS(99_999), "99999000u"), (MS(100_000), "100000m"), (Duration::MAX, "99999999S")];
        for (left, expected) in cases {
            assert_eq!(timeout(left), expected);
        }
    }

    proptest! {
        /// P8: the sent deadline exceeds neither the caller's nor the served request's.
        #[test]
        fn a_deadline_never_grows(left in 0..200_000_000u64, waited in 0..60_000u64, said in 0..99_999_999u64) {
            let arriving = RequestInfo::default().with_timeout(Duration::from_micros(left)).with_age(MS(waited));
            let mut sent = headers(&[("content-type", "application/grpc")]);
            sent.insert(GRPC_TIMEOUT, HeaderValue::from_str(&format!("{said}u")).unwrap());
            let _ = write(&mut sent, &out(Some(arriving), 0));
            let sent_timeout = headers::read(&sent).timeout.unwrap();
            prop_assert!(sent_timeout <= Duration::from_micros(said) && sent_timeout <= Duration::from_micros(left));
            prop_assert!(sent["grpc-timeout"].len() <= 9);
        }

        #[test]
        fn any_malformed_headers_are_replaced(value in prop::collection::vec(32u8..=255, 0..300)) {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                let mut sent: HeaderMap = [(LEEWARD, value.clone()), (GRPC_TIMEOUT, value)].into_iter().collect();
                sent.insert("content-type", HeaderValue::from_static("application/grpc"));
                let _ = write(&mut sent, &out(None, 1));
                prop_assert_eq!(headers::read(&sent).malformed, 0);
            }
        }
    }
}
