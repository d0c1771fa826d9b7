//! Heads of requests: their method, path and the few fields that matter. Never here: sockets, answers.

/// The longest head, bytes.
pub(crate) const LONGEST: usize = 8 * 1024;
/// Fields that a head may have.
const FIELDS: usize = 64;

/// A request whose head is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Path without the query.
    pub(crate) path: String,
    /// The part behind the question mark.
    pub(crate) query: String,
    pub(crate) accept: String,
    pub(crate) host: String,
    pub(crate) origin: Option<String>,
}

/// Result of looking at the bytes that have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// More bytes are needed.
    Partial,
    Whole(Request),
    /// A request that is none, is too long, or wants something else than to read: the status of the answer.
    Wrong(u16),
}

/// Looks at all bytes that have come.
pub(crate) fn parse(bytes: &[u8]) -> Head {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() >= LONGEST => return Head::Wrong(431),
        Ok(httparse::Status::Partial) => return Head::Partial,
        Ok(httparse::Status::Complete(length)) if length > LONGEST => return Head::Wrong(431),
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Head::Wrong(431),
        Err(_) => return Head::Wrong(400),
    }
    if head.method != Some("GET") {
        return Head::Wrong(405);
    }
    let target = head.path.unwrap_or_default();
    if !target.starts_with('/') {
        return Head::Wrong(400);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    // Nothing is asked for with a body: what would follow is not read.
    let has_body = |name: &str, value: &[u8]| {
        name.eq_ignore_ascii_case("transfer-encoding") || (name.eq_ignore_ascii_case("content-length") && value != b"0")
    };
    if head.headers.iter().any(|field| has_body(field.name, field.value)) {
        return Head::Wrong(413);
    }
    let all = |name: &str| -> Vec<&str> {
        let meant = head.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        meant.map(|field| str::from_utf8(field.value).unwrap_or("\u{fffd}")).collect()
    };
    // RFC 9112, 3.2: one host, or the request is wrong.
    let hosts = all("host");
    if hosts.len() > 1 || (hosts.is_empty() && head.version == Some(1)) {
        return Head::Wrong(400);
    }
    Head::Whole(Request {
        path: path.into(),
        query: query.into(),
        accept: all("accept").join(","),
        host: hosts.concat(),
        origin: all("origin").first().map(|origin| (*origin).into()),
    })
}

impl Request {
    /// Value of a parameter of the query. Values that matter here need no escapes: none is decoded.
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
    use proptest::prelude::*;

    fn status(text: &str) -> u16 {
        match parse(text.as_bytes()) {
            Head::Wrong(status) => status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_get_is_read_and_nothing_else() {
        let text = "GET /debug/why?id=8f3a&port=rpc HTTP/1.1\r\nHost: 127.0.0.1:9464\r\nACCEPT: a\r\naccept: b\r\n\r\n";
        let Head::Whole(request) = parse(text.as_bytes()) else { panic!() };
        assert_eq!((request.path.as_str(), request.accept.as_str()), ("/debug/why", "a,b"));
        assert_eq!((request.parameter("id"), request.parameter("port")), (Some("8f3a"), Some("rpc")));
        assert_eq!((request.parameter("i"), request.host.as_str()), (None, "127.0.0.1:9464"));
        for cut in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..cut]), Head::Partial, "{cut}");
        }
        assert_eq!(status("POST / HTTP/1.1\r\nhost: a\r\n\r\n"), 405);
        assert_eq!(status("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n"), 413);
        assert_eq!(status("GET / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400, "no host");
        assert_eq!(status("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"), 400);
        assert_eq!(status("GET http://x/ HTTP/1.1\r\nhost: a\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/2.0\r\n\r\n"), 400);
        assert_eq!(status("\x16\x03\x01\x02\x00"), 400, "TLS to a port without");
    }

    #[test]
    fn heads_are_bounded() {
        let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(1 << 20));
        assert_eq!(parse(&long.as_bytes()[..LONGEST]), Head::Wrong(431));
        assert_eq!(status(&long), 431);
        let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "a: b\r\n".repeat(100));
        assert_eq!(status(&many), 431);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_waited_for(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn changed_heads_are_answered_or_waited_for(place in 0..60_usize, byte in any::<u8>()) {
            let mut text = *b"GET /debug/decisions?n=5 HTTP/1.1\r\nhost: localhost:94\r\n\r\n\0\0\0";
            text[place] = byte;
            if let Head::Whole(request) = parse(&text) {
                prop_assert!(request.path.starts_with('/'));
            }
        }
    }
}
