//! Where an HTTP/1 response ends.

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether the connection can carry another request.
    pub(crate) keeps: bool,
}

/// Returns the response once its last byte is there; `Err` for bytes that are no response.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Answer>, ()> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head]).map_err(|_| ())?;
    let status = text.get(9..12).and_then(|digits| digits.parse().ok()).ok_or(())?;
    let (mut length, mut keeps, mut is_chunked) = (None, text.starts_with("HTTP/1.1"), false);
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.parse::<usize>().map_err(|_| ())?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            keeps = !value.eq_ignore_ascii_case("close") && keeps;
        }
    }
    let body = &bytes[head + 4..];
    let is_complete = if is_chunked {
        // No service here sends chunks that contain this.
        body.ends_with(b"0\r\n\r\n")
    } else {
        match length {
            Some(length) => body.len() >= length,
            // Delimited by the end of the connection: nothing more is asked on it.
            None => {
                keeps = false;
                true
            }
        }
    };
    Ok(is_complete.then_some(Answer { status, keeps }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_complete_with_its_last_byte() {
        for answer in [
            &b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno"[..],
            b"HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
        ] {
            for cut in 0..answer.len() {
                assert_eq!(parse(&answer[..cut]), Ok(None), "{cut}");
            }
            assert_eq!(parse(answer), Ok(Some(Answer { status: 503, keeps: true })));
        }
        assert!(parse(b"gibberish\r\n\r\n").is_err());
    }

    #[test]
    fn a_connection_ends_where_the_server_says_so() {
        let closed = Ok(Some(Answer { status: 200, keeps: false }));
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"), closed);
        assert_eq!(parse(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"), closed);
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n\r\n"), closed);
    }
}
