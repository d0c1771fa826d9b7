//! Request heads: path and the few fields that matter. Does not contain sockets or responses.

use leeward_http1::{Fault, NO_FIELDS};

/// A complete request head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Path without the query.
    pub(crate) path: String,
    /// Query after the question mark.
    pub(crate) query: String,
    pub(crate) accept: String,
    pub(crate) host: String,
    pub(crate) origin: Option<String>,
}

/// Parses the request at the start of the received bytes. Returns the request and the length of its
/// head; `None` until the head is complete.
///
/// # Errors
/// Returns the fault to respond with: malformed, too long, or not a read request.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Fault> {
    let mut fields = NO_FIELDS;
    let Some(head) = leeward_http1::request(bytes, &mut fields)? else { return Ok(None) };
    if let Some(fault) = head.refusal() {
        return Err(fault);
    }
    let text = |value| str::from_utf8(value).unwrap_or("\u{fffd}");
    let request = Request {
        path: head.path.into(),
        query: head.query.into(),
        accept: head.values("accept").map(text).collect::<Vec<_>>().join(","),
        host: head.host.into(),
        origin: head.values("origin").next().map(|origin| text(origin).into()),
    };
    Ok(Some((request, head.length)))
}

impl Request {
    /// Value of a query parameter, without percent-decoding: no accepted value needs it.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_http1::HEAD_MAX;
    use proptest::prelude::*;

    fn status(text: &str) -> u16 {
        parse(text.as_bytes()).unwrap_err().status()
    }

    #[test]
    fn only_get_requests_without_a_body_are_accepted() {
        let text = "GET /debug/why?id=8f3a&port=rpc HTTP/1.1\r\nHost: 127.0.0.1:9464\r\nACCEPT: a\r\naccept: b\r\n\r\n";
        let (request, length) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!((request.path.as_str(), request.accept.as_str()), ("/debug/why", "a,b"));
        assert_eq!((request.parameter("id"), request.parameter("port")), (Some("8f3a"), Some("rpc")));
        assert_eq!((request.parameter("i"), request.host.as_str()), (None, "127.0.0.1:9464"));
        assert_eq!(length, text.len());
        for cut in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(status("POST / HTTP/1.1\r\nhost: a\r\n\r\n"), 405);
        assert_eq!(status("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n"), 413);
        assert_eq!(status("GET / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400, "no host");
        assert_eq!(status("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"), 400);
        assert_eq!(status("GET ftp://x/ HTTP/1.1\r\nhost: a\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/2.0\r\n\r\n"), 505);
        assert_eq!(status("\x16\x03\x01\x02\x00"), 400, "TLS to a port without");
    }

    #[test]
    fn the_host_of_an_absolute_target_takes_precedence() {
        let text = "GET http://evil.example/metrics HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let (request, _) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!((request.path.as_str(), request.host.as_str()), ("/metrics", "evil.example"));
    }

    #[test]
    fn heads_are_bounded() {
        let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(1 << 20));
        assert_eq!(parse(&long.as_bytes()[..HEAD_MAX]), Err(Fault::TooLarge));
        assert_eq!(status(&long), 431);
        let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "a: b\r\n".repeat(100));
        assert_eq!(status(&many), 431);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn mutated_heads_are_parsed_without_a_panic(index in 0..60_usize, byte in any::<u8>()) {
            let mut text = *b"GET /debug/decisions?n=5 HTTP/1.1\r\nhost: localhost:94\r\n\r\n\0\0\0";
            text[index] = byte;
            if let Ok(Some((request, _))) = parse(&text) {
                prop_assert!(request.path.starts_with('/'));
            }
        }
    }
}
