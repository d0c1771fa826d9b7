//! Response heads and bodies. Does not contain the routes.

use leeward_http1::status_line;

/// A complete response, or the start of a stream of events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Response {
    /// Makes a response with this content type.
    pub(crate) fn new(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Response { status, fields: vec![("content-type", kind.into())], body: body.into() }
    }

    /// Makes a response with one line of text.
    pub(crate) fn line(status: u16, text: &str) -> Self {
        let answer = Response::new(status, "text/plain; charset=utf-8", format!("{text}\n"));
        if status == 405 { answer.with("allow", "GET") } else { answer }
    }

    /// Makes a response with the status as text. A 405 has no body, since the request may have been
    /// a `HEAD`.
    pub(crate) fn status(status: u16) -> Self {
        let phrase = status_line(status).split_once(' ').map_or("", |(_, phrase)| phrase);
        let answer = Response::line(status, phrase);
        if status == 405 { Response { body: Vec::new(), ..answer } } else { answer }
    }

    pub(crate) fn json(status: u16, value: &serde_json::Value) -> Self {
        Response::new(status, "application/json", format!("{value}\n"))
    }

    /// Adds a field. The value must not have line breaks.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Bytes of the response. A stream has no length; the connection's end ends it.
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
