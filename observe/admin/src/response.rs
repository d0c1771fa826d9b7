//! Heads of answers. Never here: what is answered.

use leeward_http1::status_line;

/// A whole answer, or the beginning of one without an end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Response {
    /// An answer of this kind.
    pub(crate) fn new(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Response { status, fields: vec![("content-type", kind.into())], body: body.into() }
    }

    /// A line for people.
    pub(crate) fn line(status: u16, text: &str) -> Self {
        let answer = Response::new(status, "text/plain; charset=utf-8", format!("{text}\n"));
        if status == 405 { answer.with("allow", "GET") } else { answer }
    }

    /// Only the status, in words; none where a `HEAD` may have been asked, whose answer has no
    /// content.
    pub(crate) fn status(status: u16) -> Self {
        let words = status_line(status).split_once(' ').map_or("", |(_, words)| words);
        let answer = Response::line(status, words);
        if status == 405 { Response { body: Vec::new(), ..answer } } else { answer }
    }

    pub(crate) fn json(status: u16, value: &serde_json::Value) -> Self {
        Response::new(status, "application/json", format!("{value}\n"))
    }

    /// Adds a field. The value has no line breaks: each is ours, or was checked.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// The bytes. A stream's end is the connection's: it has no length.
    pub(crate) fn bytes(&self, is_stream: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {}\r\nconnection: close\r\n", status_line(self.status));
        head += "cache-control: no-store\r\nx-content-type-options: nosniff\r\n";
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        if !is_stream {
            head += &format!("content-length: {}\r\n", self.body.len());
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}
