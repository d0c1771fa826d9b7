//! Splits a connection's bytes into requests.
//!
//! Its memory is bounded by one line and one data block of the largest size. A multi-get of many
//! keys becomes several requests, so that no request has an answer of unbounded length.

use super::replies::ERROR;
use super::tokens::{is_command, is_key, seconds, tokens};
use super::update::{UpdateError, update};
use leeward_engine::{ClientProtocol, Input};

/// Longest line, and so the longest multi-get, in bytes.
pub const LINE_MAX: usize = 64 * 1024;
/// Longest line of any other command, in bytes; memcached's lines have 2048 bytes, too.
const SHORT_LINE_MAX: usize = 2048;
/// Keys per request of a split multi-get.
const KEYS_PER_PART: usize = 16;
/// Free bytes in the buffer for one read.
const READ_SIZE: usize = 16 * 1024;
/// Length up to which a buffer needs no permission from the receive budget.
const SMALL: usize = 2 * READ_SIZE;

/// A request, copied from its connection's buffer: a line and perhaps a data block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    bytes: Vec<u8>,
    line: usize,
    /// Another part of the same multi-get follows.
    has_more: bool,
}

impl Request {
    /// Returns the line without its end.
    pub fn line(&self) -> &[u8] {
        &self.bytes[..self.line]
    }

    /// Returns the data block without its end.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.line..]
    }

    /// Returns whether another part of the same multi-get follows; then the answer has no `END`
    /// yet.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Returns the memory that the request keeps, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    fn fill(&mut self, line: &[u8], data: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(line);
        self.line = line.len();
        self.bytes.extend_from_slice(data);
        self.has_more = false;
    }
}

/// Result of one decoding step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum DecoderOutput {
    /// No complete request.
    Incomplete,
    /// A complete request.
    Request,
    /// An error reply, sent at once.
    Reply(&'static [u8]),
    /// Undecodable input: the connection must close.
    Close,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// At the start of the connection.
    Start,
    /// At the start of a line.
    Line,
    /// After the line of an update; the line has `end` bytes with its end. A data block follows.
    Data { line: usize, end: usize, length: usize, silent: bool },
    /// In a multi-get. The line has `line` bytes without its end, and `end` with it.
    ///
    /// Keys after offset `at` are still to be handed out. The first `fixed` tokens belong to each
    /// part.
    Keys { line: usize, end: usize, fixed: usize, at: usize },
    /// In a data block that is discarded.
    DiscardData(usize),
    /// In a line that is discarded because it is too long.
    DiscardLine,
}

/// Returns whether the second token of a line is a number of seconds.
fn has_seconds(line: &[u8]) -> bool {
    tokens(line).nth(1).and_then(seconds).is_some()
}

/// Bytes of a connection that are not decoded yet.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Range of undecoded bytes in `buffer`.
    start: usize,
    filled: usize,
    /// Bytes after `start` that contain no line end.
    scanned: usize,
    state: State,
    /// Length of the largest accepted data block, in bytes.
    data_max: usize,
    /// Another protocol that the client speaks.
    foreign: Option<ClientProtocol>,
}

impl Input for Decoder {
    fn spare(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
        }
        let length = self.filled + READ_SIZE;
        if self.buffer.len() < length {
            // Doubled, but not beyond the need: the receive budget of many connections counts on
            // this bound.
            let needed = length.max((2 * self.buffer.len()).min(self.needed()));
            self.buffer.reserve_exact(needed - self.buffer.len());
            self.buffer.resize(needed, 0);
        }
        &mut self.buffer[self.filled..]
    }

    fn filled(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.buffer.len());
    }

    fn buffered(&self) -> usize {
        self.filled - self.start
    }

    fn wanted(&self) -> usize {
        let needed = self.needed().max(self.buffer.capacity());
        if needed > SMALL { needed } else { 0 }
    }

    fn release(&mut self) {
        if self.buffered() == 0 {
            self.buffer = Vec::new();
            (self.start, self.filled, self.scanned) = (0, 0, 0);
        }
    }
}

impl Decoder {
    /// Creates a decoder for data blocks of up to `data_max` bytes; longer blocks are answered and
    /// discarded.
    pub fn new(data_max: usize) -> Self {
        Decoder { buffer: Vec::new(), start: 0, filled: 0, scanned: 0, state: State::Start, data_max, foreign: None }
    }

    /// Returns the buffer length for the expected input, as far as it is known.
    fn needed(&self) -> usize {
        match self.state {
            State::Data { end, length, .. } => end + length + 2 + READ_SIZE,
            _ if self.buffered() >= READ_SIZE => LINE_MAX + READ_SIZE,
            _ => SMALL,
        }
    }

    /// Returns the other protocol that the client speaks, if the connection must close for that
    /// reason.
    pub fn foreign(&self) -> Option<ClientProtocol> {
        self.foreign
    }

    /// Skips the parts of a multi-get that are not handed out yet.
    pub fn skip_parts(&mut self) {
        if let State::Keys { end, .. } = self.state {
            self.take(end);
        }
    }

    /// Decodes the next request into `request`.
    pub fn next(&mut self, request: &mut Request) -> DecoderOutput {
        loop {
            match self.state {
                State::Start => {
                    let begun = &self.buffer[self.start..self.filled];
                    if begun.is_empty() || ClientProtocol::is_proxy_prefix(begun) {
                        return DecoderOutput::Incomplete;
                    }
                    // Nothing of the greeting is executed: lines of an HTTP body might be commands.
                    self.foreign =
                        ClientProtocol::detect(begun).filter(|greeting| *greeting != ClientProtocol::Memcached);
                    if self.foreign.is_some() {
                        return DecoderOutput::Close;
                    }
                    if begun.contains(&b'\n') || begun.len() > SHORT_LINE_MAX {
                        self.state = State::Line;
                    } else {
                        return DecoderOutput::Incomplete;
                    }
                }
                State::Line => match self.line() {
                    None => return DecoderOutput::Incomplete,
                    Some((line, end)) => {
                        if let Some(next) = self.begin(line, end, request) {
                            return next;
                        }
                    }
                },
                State::DiscardLine => {
                    let rest = &self.buffer[self.start..self.filled];
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    let count = end.map_or(rest.len(), |end| end + 1);
                    self.take(count);
                    match end {
                        Some(_) => self.state = State::Line,
                        None => {
                            self.state = State::DiscardLine;
                            return DecoderOutput::Incomplete;
                        }
                    }
                }
                State::DiscardData(0) => self.state = State::Line,
                State::DiscardData(left) => {
                    let count = left.min(self.buffered());
                    if count == 0 {
                        return DecoderOutput::Incomplete;
                    }
                    self.take(count);
                    self.state = State::DiscardData(left - count);
                }
                State::Data { line, end, length, silent } => {
                    if self.buffered() < end + length + 2 {
                        return DecoderOutput::Incomplete;
                    }
                    let rest = &self.buffer[self.start..self.filled];
                    let (data, terminator) = rest[end..end + length + 2].split_at(length);
                    let is_whole = terminator == b"\r\n";
                    if is_whole {
                        request.fill(&rest[..line], data);
                    }
                    self.take(end + length + 2);
                    match (is_whole, silent) {
                        (true, _) => return DecoderOutput::Request,
                        (false, false) => return DecoderOutput::Reply(b"CLIENT_ERROR bad data chunk\r\n"),
                        (false, true) => {}
                    }
                }
                State::Keys { line, end, fixed, at } => {
                    self.part(line, end, fixed, at, request);
                    return DecoderOutput::Request;
                }
            }
        }
    }

    /// Returns a complete line's length without and with its end; `usize::MAX` marks a line that is
    /// too long.
    fn line(&mut self) -> Option<(usize, usize)> {
        let rest = &self.buffer[self.start..self.filled];
        let Some(found) = rest[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            self.scanned = rest.len();
            // An endless line is answered as soon as it is too long.
            return self.is_too_long(self.scanned).then_some((0, usize::MAX));
        };
        let end = self.scanned + found;
        if self.is_too_long(end) {
            return Some((0, usize::MAX));
        }
        let line = if end > 1 && rest[end - 1] == b'\r' { end - 1 } else { end };
        Some((line, end + 1))
    }

    /// Returns whether a line of `length` bytes so far is longer than any command.
    ///
    /// The line end does not count: its arrival depends on how the bytes were split into reads.
    fn is_too_long(&self, length: usize) -> bool {
        let rest = &self.buffer[self.start..self.filled];
        let may_be_long = || [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|verb| rest.starts_with(verb));
        length > LINE_MAX || (length > SHORT_LINE_MAX && !may_be_long())
    }

    /// Begins a request with a line. `None`: continue in the new state.
    fn begin(&mut self, line: usize, end: usize, request: &mut Request) -> Option<DecoderOutput> {
        if end == usize::MAX {
            self.state = State::DiscardLine;
            return Some(DecoderOutput::Reply(b"CLIENT_ERROR line too long\r\n"));
        }
        let text = &self.buffer[self.start..][..line];
        // memcached's lines are C strings: a zero byte ends them.
        let line = text.iter().position(|byte| *byte == 0).unwrap_or(line);
        let text = &text[..line];
        let verb = tokens(text).next().unwrap_or_default();
        match verb {
            b"get" | b"gets" | b"gat" | b"gats" => {
                let fixed = if verb.starts_with(b"get") { 1 } else { 2 };
                let has_parts = tokens(text).skip(fixed).nth(KEYS_PER_PART).is_some();
                let is_wrong = |key: &&[u8]| !is_key(key) || fixed == 2 && !has_seconds(text);
                match tokens(text).skip(fixed).find(is_wrong).filter(|_| has_parts) {
                    // The executor rejects the bad key. The other keys are not looked up, because
                    // they would not be answered.
                    Some(key) => {
                        request.fill(&tokens(text).take(fixed).chain([key]).collect::<Vec<_>>().join(&b' '), &[]);
                    }
                    None if has_parts => {
                        self.state = State::Keys { line, end, fixed, at: 0 };
                        return None;
                    }
                    None => request.fill(text, &[]),
                }
                self.take(end);
                Some(DecoderOutput::Request)
            }
            _ if !is_command(verb) => {
                // A misdirected browser sends a form; the form's fields would be the next commands.
                let is_http = tokens(text).last().is_some_and(|token| token.starts_with(b"HTTP/"));
                self.take(end);
                Some(if is_http { DecoderOutput::Close } else { DecoderOutput::Reply(ERROR) })
            }
            _ => match update(text) {
                None => {
                    request.fill(text, &[]);
                    self.take(end);
                    Some(DecoderOutput::Request)
                }
                Some(Err(UpdateError { reply, silent, discard: swallow })) => {
                    self.take(end);
                    if let Some(length) = swallow {
                        self.state = State::DiscardData(length + 2);
                    }
                    (!silent).then_some(DecoderOutput::Reply(reply))
                }
                // memcached trusts the length in the line, too, and does not wait for a block that
                // is too large.
                //
                // The store itself reports values that are too large for its classes. The executor
                // gets the line without the block, which is enough for the reply.
                Some(Ok(update)) if update.length > self.data_max => {
                    let length = update.length;
                    request.fill(text, &[]);
                    self.take(end);
                    self.state = State::DiscardData(length + 2);
                    Some(DecoderOutput::Request)
                }
                Some(Ok(update)) => {
                    let silent = update.silent && !update.is_meta;
                    self.state = State::Data { line, end, length: update.length, silent };
                    None
                }
            },
        }
    }

    /// Fills `request` with the next keys of a multi-get.
    fn part(&mut self, length: usize, end: usize, fixed: usize, at: usize, request: &mut Request) {
        let line = &self.buffer[self.start..][..length];
        request.fill(&[], &[]);
        let mut done = at;
        let first = tokens(line).take(fixed).map(|token| (token, true));
        let count = if at == 0 { fixed + KEYS_PER_PART } else { KEYS_PER_PART };
        let others = tokens(&line[at..]).take(count).map(|token| (token, false));
        for (token, is_repeated) in first.take(if at == 0 { 0 } else { fixed }).chain(others) {
            request.bytes.extend_from_slice(token);
            request.bytes.push(b' ');
            if !is_repeated {
                done = token.as_ptr() as usize - line.as_ptr() as usize + token.len();
            }
        }
        request.line = request.bytes.len();
        request.has_more = tokens(&line[done..]).next().is_some();
        if request.has_more {
            self.state = State::Keys { line: length, end, fixed, at: done };
        } else {
            self.take(end);
        }
    }

    /// Consumes `bytes` decoded bytes and returns to the start of a line.
    fn take(&mut self, bytes: usize) {
        self.start += bytes;
        self.scanned = 0;
        self.state = State::Line;
        if self.start == self.filled {
            (self.start, self.filled) = (0, 0);
        }
    }
}
