//! Finds the requests in a connection's bytes. Its memory is bounded by one line and one data block of the largest size; a
//! multi-get of many keys comes out in parts, so that no request makes an answer of unbounded length.

use super::replies::ERROR;
use super::tokens::{is_command, is_key, seconds, tokens};
use super::update::{UpdateError, update};
use leeward_engine::{ClientProtocol, Input};

/// The longest line, and so the longest multi-get. memcached's other lines have 2048 bytes, too.
pub const LINE_MAX: usize = 64 * 1024;
/// The longest line that is no multi-get.
const SHORT_LINE_MAX: usize = 2048;
/// Keys of a multi-get that are one request.
const KEYS_PER_PART: usize = 16;
/// Bytes that one read gets room for.
const READ_SIZE: usize = 16 * 1024;
/// A buffer up to this length is every connection's own.
const SMALL: usize = 2 * READ_SIZE;

/// A request, out of its connection's buffer: a line and perhaps a data block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    bytes: Vec<u8>,
    line: usize,
    /// Whether another part of the same multi-get follows.
    has_more: bool,
}

impl Request {
    /// The line without its end.
    pub fn line(&self) -> &[u8] {
        &self.bytes[..self.line]
    }

    /// The data block without its end.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.line..]
    }

    /// Whether another part of the same multi-get follows: its answer has no end yet.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Bytes of memory that it keeps.
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

/// Result of a look at a decoder's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum DecoderOutput {
    /// Nothing whole.
    Incomplete,
    /// A request.
    Request,
    /// Something that is answered at once.
    Reply(&'static [u8]),
    /// Something after which nothing can be understood: the connection is to be closed.
    Close,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// At the beginning of the connection.
    Start,
    /// At the beginning of a line.
    Line,
    /// Behind the line of an update, whose length with its end is given: a data block follows.
    Data { line: usize, end: usize, length: usize, silent: bool },
    /// In a multi-get whose line without its end is given, and with it ends at `end`. Of its keys those behind `at` are
    /// not handed out. The first `fixed` words belong to each part.
    Keys { line: usize, end: usize, fixed: usize, at: usize },
    /// In a data block that is discarded.
    DiscardData(usize),
    /// In a line that is discarded: it was longer than any may be.
    DiscardLine,
}

/// Whether the second word of a line is a number of seconds.
fn has_seconds(line: &[u8]) -> bool {
    tokens(line).nth(1).and_then(seconds).is_some()
}

/// Bytes of a connection that are not requests yet.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Where what is not decoded begins and ends.
    start: usize,
    filled: usize,
    /// Bytes behind `start` that hold no line end.
    scanned: usize,
    state: State,
    /// The largest data block that is waited for.
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
            // Doubled, but not beyond what is needed: whoever bounds the memory of many connections counts by that.
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
        let wanted = self.needed().max(self.buffer.capacity());
        if wanted > SMALL { wanted } else { 0 }
    }

    fn release(&mut self) {
        if self.buffered() == 0 {
            self.buffer = Vec::new();
            (self.start, self.filled, self.scanned) = (0, 0, 0);
        }
    }
}

impl Decoder {
    /// For data blocks of up to `data_max` bytes; longer ones are answered and thrown away.
    pub fn new(data_max: usize) -> Self {
        Decoder { buffer: Vec::new(), start: 0, filled: 0, scanned: 0, state: State::Start, data_max, foreign: None }
    }

    /// Length of the buffer for what is coming, as far as that is known.
    fn needed(&self) -> usize {
        match self.state {
            State::Data { end, length, .. } => end + length + 2 + READ_SIZE,
            _ if self.buffered() >= READ_SIZE => LINE_MAX + READ_SIZE,
            _ => SMALL,
        }
    }

    /// Another protocol that the client speaks, where that is why its connection is to be closed.
    pub fn foreign(&self) -> Option<ClientProtocol> {
        self.foreign
    }

    /// Forgets the parts of a multi-get that have not been handed out.
    pub fn skip_parts(&mut self) {
        if let State::Keys { end, .. } = self.state {
            self.take(end);
        }
    }

    /// The next request, into `request`.
    pub fn next(&mut self, request: &mut Request) -> DecoderOutput {
        loop {
            match self.state {
                State::Start => {
                    let begun = &self.buffer[self.start..self.filled];
                    if begun.is_empty() || ClientProtocol::is_proxy_prefix(begun) {
                        return DecoderOutput::Incomplete;
                    }
                    // Nothing of it is executed: lines of a request's body may be commands.
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

    /// A whole line's length without and with its end.
    fn line(&mut self) -> Option<(usize, usize)> {
        let rest = &self.buffer[self.start..self.filled];
        let Some(found) = rest[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            self.scanned = rest.len();
            // A line that never ends is answered as soon as it is too long.
            return self.is_too_long(self.scanned).then_some((0, usize::MAX));
        };
        let end = self.scanned + found;
        if self.is_too_long(end) {
            return Some((0, usize::MAX));
        }
        let line = if end > 1 && rest[end - 1] == b'\r' { end - 1 } else { end };
        Some((line, end + 1))
    }

    /// Whether a line of so many bytes, or so many yet, is longer than any command may be. Its end does not matter:
    /// whether it has come yet depends on how the bytes were cut into pieces.
    fn is_too_long(&self, length: usize) -> bool {
        let rest = &self.buffer[self.start..self.filled];
        let may_be_long = || [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|verb| rest.starts_with(verb));
        length > LINE_MAX || (length > SHORT_LINE_MAX && !may_be_long())
    }

    /// Begins a request with a line. `None`: go on in the new state.
    fn begin(&mut self, line: usize, end: usize, request: &mut Request) -> Option<DecoderOutput> {
        if end == usize::MAX {
            self.state = State::DiscardLine;
            return Some(DecoderOutput::Reply(b"CLIENT_ERROR line too long\r\n"));
        }
        let text = &self.buffer[self.start..][..line];
        // memcached's lines are C's strings.
        let line = text.iter().position(|byte| *byte == 0).unwrap_or(line);
        let text = &text[..line];
        let verb = tokens(text).next().unwrap_or_default();
        match verb {
            b"get" | b"gets" | b"gat" | b"gats" => {
                let fixed = if verb.starts_with(b"get") { 1 } else { 2 };
                let has_parts = tokens(text).skip(fixed).nth(KEYS_PER_PART).is_some();
                let is_wrong = |key: &&[u8]| !is_key(key) || fixed == 2 && !has_seconds(text);
                match tokens(text).skip(fixed).find(is_wrong).filter(|_| has_parts) {
                    // The executor refuses it. The other keys are not worth looking up: they would not be answered.
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
                // A browser that was led here sends a form, whose fields would be the next commands.
                let is_http = tokens(text).last().is_some_and(|word| word.starts_with(b"HTTP/"));
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
                // memcached takes the line's word for the size, too: what is too large is not waited for. Where the store's
                // classes are smaller, the store says so.
                // The executor gets the line without the block, which says all that is to be said.
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

    /// The next keys of a multi-get as a request of their own.
    fn part(&mut self, length: usize, end: usize, fixed: usize, at: usize, request: &mut Request) {
        let line = &self.buffer[self.start..][..length];
        request.fill(&[], &[]);
        let mut done = at;
        let first = tokens(line).take(fixed).map(|word| (word, true));
        let count = if at == 0 { fixed + KEYS_PER_PART } else { KEYS_PER_PART };
        let others = tokens(&line[at..]).take(count).map(|word| (word, false));
        for (word, again) in first.take(if at == 0 { 0 } else { fixed }).chain(others) {
            request.bytes.extend_from_slice(word);
            request.bytes.push(b' ');
            if !again {
                done = word.as_ptr() as usize - line.as_ptr() as usize + word.len();
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

    /// Has decoded so many bytes, and is at the beginning of a line.
    fn take(&mut self, bytes: usize) {
        self.start += bytes;
        self.scanned = 0;
        self.state = State::Line;
        if self.start == self.filled {
            (self.start, self.filled) = (0, 0);
        }
    }
}
