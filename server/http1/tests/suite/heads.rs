//! Tests of the parser alone: each row's first answer, targets, split requests, and mutants against
//! a naive parser.

use crate::requests::rows;
use leeward_http1::{Fault, NO_FIELDS, Request, request, response};
use leeward_testkit::fuzz::FuzzSearch;
use std::path::Path;

/// Status of a port for `/healthz`, and whether its connection stays open; `None`: the head is not
/// whole.
fn answer(bytes: &[u8]) -> Option<(u16, bool)> {
    let mut fields = NO_FIELDS;
    match request(bytes, &mut fields) {
        Ok(None) => None,
        Ok(Some(request)) => Some((request.refusal().map_or(200, Fault::status), !request.closes_connection)),
        Err(fault) => Some((fault.status(), false)),
    }
}

#[test]
fn each_request_head_gets_its_status() {
    for (bytes, statuses, goes_on) in rows() {
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(answer(&bytes), Some((statuses[0], goes_on || statuses.len() > 1)), "{text:?}");
    }
}

#[test]
fn fragmented_heads_get_the_same_response() {
    for (bytes, ..) in rows().into_iter().filter(|(bytes, ..)| bytes.len() < 1_000) {
        let whole = answer(&bytes);
        let first = (0..=bytes.len()).find_map(|cut| answer(&bytes[..cut]));
        assert_eq!(first, whole, "{:?}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn targets_have_a_host_a_path_and_a_query() {
    for (line, host, path, query) in [
        ("GET /a?b?c HTTP/1.1", "field", "/a", "b?c"),
        ("GET //a HTTP/1.1", "field", "//a", ""),
        ("GET http://target:8080/a?b HTTP/1.1", "target:8080", "/a", "b"),
        ("GET http://target HTTP/1.1", "target", "/", ""),
        ("GET http://target?b/c HTTP/1.1", "target", "/", "b/c"),
        ("GET https://[::1]/ HTTP/1.1", "[::1]", "/", ""),
        ("GET http://[fe80::1%eth0]:80/ HTTP/1.1", "[fe80::1%eth0]:80", "/", ""),
        ("OPTIONS * HTTP/1.1", "field", "*", ""),
        ("CONNECT target:80 HTTP/1.1", "target:80", "target:80", ""),
    ] {
        let bytes = format!("{line}\r\nhost: field\r\n\r\n");
        let mut fields = NO_FIELDS;
        let found = request(bytes.as_bytes(), &mut fields).unwrap().unwrap();
        assert_eq!((found.host, found.path, found.query, found.length), (host, path, query, bytes.len()), "{line}");
    }
}

/// Parses an accepted head again, line by line, and checks all conditions of its framing.
fn check(head: &[u8], request: &Request<'_, '_>) {
    let text = head.trim_ascii_start();
    assert!(head.ends_with(b"\r\n\r\n"), "the head does not end");
    let mut values = Vec::new();
    for line in text[..text.len() - 4].split(|byte| *byte == b'\n').skip(1) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|byte| *byte == b':').expect("a field without a colon");
        assert!(!line[..colon].is_empty() && line[..colon].iter().all(u8::is_ascii_graphic), "a name that is none");
        assert!(line.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control()), "a control character");
        values.push((line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii().to_ascii_lowercase()));
    }
    let of = |name: &str| values.iter().filter(|(found, _)| found == name.as_bytes()).collect::<Vec<_>>();
    let (lengths, codings) = (of("content-length"), of("transfer-encoding"));
    assert!(of("host").len() <= 1 && lengths.len() + codings.len().min(1) <= 1, "framing in doubt");
    let has_length = lengths.iter().any(|(_, value)| value.iter().any(|digit| *digit != b'0'));
    assert_eq!(request.has_content, has_length || !codings.is_empty());
    assert!(!request.has_content || request.closes_connection, "content is read as the next request");
    let mut lines = text.split(|byte| *byte == b'\r');
    assert!(of("host").len() == 1 || lines.next().unwrap().ends_with(b"HTTP/1.0"));
}

#[test]
fn mutated_heads_are_framed_unambiguously() {
    let rows: Vec<Vec<u8>> = rows().into_iter().map(|(bytes, ..)| bytes).filter(|bytes| bytes.len() < 1_000).collect();
    let findings = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let search = FuzzSearch { name: "http1", findings, iterations: 200_000 };
    search.run(
        |random| {
            let mut bytes = rows[random.below(rows.len())].clone();
            for _ in 0..=random.below(3) {
                let other = &rows[random.below(rows.len())];
                let at = random.below(bytes.len() + 1);
                match random.below(4) {
                    0 => bytes.insert(at, random.byte(b"\r\n\0\t :,;?*/[]%0aA\x7f\xff")),
                    1 if at < bytes.len() => drop(bytes.remove(at)),
                    2 if at < bytes.len() => bytes[at] = random.byte(b"\r\n"),
                    _ => {
                        let from = random.below(other.len());
                        let to = (from + random.below(40)).min(other.len());
                        bytes.splice(at..at, other[from..to].iter().copied());
                    }
                }
            }
            bytes
        },
        |random, bytes| {
            let mut fields = NO_FIELDS;
            if let Ok(Some(request)) = request(bytes, &mut fields) {
                check(&bytes[..request.length], &request);
            }
            let cut = random.below(bytes.len() + 1);
            let piece = answer(&bytes[..cut]);
            assert!(piece.is_none() || piece == answer(bytes), "a piece is answered otherwise than the whole");
            let mut fields = NO_FIELDS;
            if let Ok(Some(response)) = response(bytes, &mut fields) {
                assert!(response.content().bytes.len() <= bytes.len());
            }
        },
    );
}
