//! Sends generated command lines to memcached 1.6.18 and to our port; the answers must be equal,
//! except for intended differences.
//!
//! The intended differences are in a table here and in `docs/kv.md`. `LEEWARD_FUZZ_ITERATIONS` sets
//! the number of lines, `LEEWARD_FUZZ_SEED` the seed.

use crate::support::lines::{self, KEYS, Line, length_word, loose_number};
use crate::support::memcached::{Memcached, is_equivalent, printable};
use crate::support::{Client, serve, store};
use leeward_testkit::fuzz;
use leeward_testkit::random::Random;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// Number of compared lines, unless `LEEWARD_FUZZ_ITERATIONS` sets it.
const LINES: u64 = 4000;
/// Attempts per session before its difference counts: the programs' clocks tick at different times.
const ATTEMPTS: usize = 3;
/// Longest wait for an answer. A line that waits for its data block has none.
const SILENCE: Duration = Duration::from_secs(2);

/// An intended difference.
struct KnownDifference {
    /// Name as in the table of `docs/kv.md`, which has the reason.
    name: &'static str,
    /// Commands that show the difference.
    example: &'static str,
    /// Our last answer to them.
    answer: &'static str,
}

const WIDE: KnownDifference = KnownDifference {
    name: "flags or times above 32 bits",
    example: "set a 0 2147483648 1\r\nx\r\n",
    answer: "CLIENT_ERROR bad command line format\r\n",
};
const BINARY_KEY: KnownDifference = KnownDifference {
    name: "a key in base64",
    example: "ms Zm9v 1 b\r\nx\r\nms Zm9v 1 MA b\r\ny\r\nmg Zm9v b k\r\n",
    answer: "HD kZm9v b\r\n",
};
const OVER: KnownDifference =
    KnownDifference { name: "a time that is over", example: "set a 0 0 1\r\nx\r\nmg a T-1 t\r\n", answer: "HD t0\r\n" };
const LONGER: KnownDifference = KnownDifference {
    name: "a number that gets longer",
    example: "set a 0 0 1\r\n9\r\nma a D9 T100\r\nmg a t\r\n",
    answer: "HD t100\r\n",
};
const REVIVED: KnownDifference = KnownDifference {
    name: "a flush with a delay",
    example: "set a 0 0 1\r\nx\r\nflush_all\r\nflush_all 100\r\nget a\r\n",
    answer: "END\r\n",
};
const OPAQUE: KnownDifference = KnownDifference {
    name: "an opaque of more than 32 bytes",
    example: "set a 0 0 1\r\n1\r\nma a O3456789012345678901234567890123456\r\nget a\r\n",
    answer: "VALUE a 0 1\r\n1\r\nEND\r\n",
};
const HTTP: KnownDifference = KnownDifference { name: "a request of HTTP", example: "abc HTTP/1.1\r\n", answer: "" };
const DEBUG: KnownDifference = KnownDifference {
    name: "`me`",
    example: "set a 0 100 1\r\nx\r\nme a\r\n",
    answer: "ME a exp=100 la=0 cas=2 fetch=no cls=1 size=64\r\n",
};
const MANY_KEYS: KnownDifference = KnownDifference {
    name: "a key that is too long among many",
    example: "set a 0 0 1\r\nx\r\nget a a a a a a a a a a a a a a a a {251}\r\nmg a h\r\n",
    answer: "HD h0\r\n",
};
const LONG_LINE: KnownDifference = KnownDifference {
    name: "a line of more than 2,048 bytes",
    example: "{9000}\r\n",
    answer: "CLIENT_ERROR line too long\r\n",
};
const VERSION: KnownDifference = KnownDifference {
    name: "`version`",
    example: "version\r\n",
    answer: concat!("VERSION 1.6.18-leeward-", env!("CARGO_PKG_VERSION"), "\r\n"),
};
const ABSENT: KnownDifference =
    KnownDifference { name: "a command that is not there", example: "bget a\r\n", answer: "ERROR\r\n" };

const KNOWN_DIFFERENCES: [&KnownDifference; 12] =
    [&WIDE, &BINARY_KEY, &OVER, &LONGER, &REVIVED, &OPAQUE, &HTTP, &DEBUG, &MANY_KEYS, &LONG_LINE, &VERSION, &ABSENT];

/// A connection to each of the two servers.
struct ClientPair {
    addresses: [SocketAddr; 2],
    clients: [Client; 2],
}

/// The two answers to a line, memcached's first: bytes, and whether the connection was closed.
type Answers = [(Vec<u8>, bool); 2];

impl ClientPair {
    fn new(addresses: [SocketAddr; 2]) -> Self {
        ClientPair { addresses, clients: addresses.map(connect) }
    }

    /// Sends a line and a mark to both, and reads up to the mark's answer.
    fn ask(&mut self, line: &Line) -> Answers {
        let bytes = [&line.bytes[..], &b"\r\n".repeat(line.blanks), b"mg the-mark k\r\n"].concat();
        for client in &mut self.clients {
            // A closed connection shows in the read.
            let _ = client.0.write_all(&bytes);
        }
        let answers = self.clients.each_mut().map(read_until_mark);
        if answers.iter().any(|(_, has_ended)| *has_ended) {
            self.clients = self.addresses.map(connect);
        }
        answers
    }

    fn send(&mut self, text: &str) -> Answers {
        self.ask(&Line { bytes: text.into(), blanks: 0 })
    }

    /// Empties both stores, and makes their CAS counters equal; returns the last id.
    fn begin(&mut self) -> u64 {
        let deletes: String = KEYS.iter().map(|key| format!("delete {key} 0 noreply\r\n")).collect();
        let (filled, long) = ("k".repeat(250), "k".repeat(249));
        self.send(&format!("verbosity 0\r\nflush_all\r\n{deletes}delete {filled}\r\ndelete {long}\r\n"));
        let last = self.send("ms pad 0 c\r\n\r\n").map(|(answer, _)| {
            let text = String::from_utf8(answer).unwrap();
            text.strip_prefix("HD c").unwrap().trim_end().parse::<u64>().unwrap()
        });
        let most = last[0].max(last[1]);
        for (client, last) in self.clients.iter_mut().zip(last) {
            let bytes = [&b"ms pad 0 q\r\n\r\n".repeat((most - last) as usize)[..], b"mg the-mark k\r\n"].concat();
            client.0.write_all(&bytes).unwrap();
            assert_eq!(read_until_mark(client), (Vec::new(), false));
        }
        most
    }
}

fn connect(address: SocketAddr) -> Client {
    let client = Client::new(address);
    client.0.set_read_timeout(Some(SILENCE)).unwrap();
    client
}

/// Reads up to the mark's answer. A silent connection counts as closed.
fn read_until_mark(client: &mut Client) -> (Vec<u8>, bool) {
    const MARK: &[u8] = b"EN kthe-mark\r\n";
    let (mut taken, mut piece) = (Vec::new(), [0; 65536]);
    loop {
        match client.0.read(&mut piece) {
            Ok(count) if count > 0 => taken.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                taken.extend_from_slice(b"<silence>");
                return (taken, true);
            }
            _ => return (taken, true),
        }
        if taken.ends_with(MARK) {
            taken.truncate(taken.len() - MARK.len());
            return (taken, false);
        }
    }
}

/// Result of a session after a line.
#[derive(Debug)]
enum Outcome {
    Same,
    /// An intended difference shows only in the answer.
    Answer(&'static str),
    /// The two stores differ from here on, as intended.
    State(&'static str),
    Ended,
    Different,
}

fn outcome(pair: &mut ClientPair, line: &Line, has_flushed: bool) -> (Outcome, Answers) {
    let words = line.words();
    let verb = words.first().copied().unwrap_or_default();
    if is_wide(verb, &words) {
        return wide(pair, line, verb, &words);
    }
    let [theirs, ours] = pair.ask(line);
    let is_same = theirs.1 == ours.1 && is_equivalent(&theirs.0, &ours.0);
    let outcome = match verb {
        _ if is_same && ours.1 => Outcome::Ended,
        // A delayed flush revives flushed items in memcached.
        b"flush_all" if is_same && words.len() > 1 && loose_number(words[1]) > 0 => {
            let contents = format!("get {}\r\n", KEYS.join(" "));
            let contents = pair.send(&contents);
            match contents[0] == contents[1] {
                true => Outcome::Ended,
                false if has_flushed => Outcome::State(REVIVED.name),
                false => return (Outcome::Different, contents),
            }
        }
        b"mg" | b"ma" if ours.0.starts_with(b"CLIENT_ERROR opaque") => Outcome::State(OPAQUE.name),
        b"ma" if is_same && words[1..].iter().any(|word| word[0] == b'T') => {
            let key = String::from_utf8_lossy(words[1]);
            let binary = if words[2..].iter().any(|word| word[0] == b'b') { " b" } else { "" };
            let times = pair.send(&format!("mg {key}{binary} t u\r\n"));
            let same_time = is_equivalent(&times[0].0, &times[1].0) || is_over(&times[0].0, &times[1].0);
            if same_time { Outcome::Same } else { Outcome::State(LONGER.name) }
        }
        b"get" | b"gets" | b"gat" | b"gats"
            if is_same && words.len() > 17 && ours.0.starts_with(b"CLIENT_ERROR bad") =>
        {
            Outcome::State(MANY_KEYS.name)
        }
        _ if is_same => Outcome::Same,
        b"me" if without_numbers(&theirs.0) == without_numbers(&ours.0) => Outcome::Answer(DEBUG.name),
        _ if ours.1 && ours.0.is_empty() && !theirs.1 && theirs.0.starts_with(b"ERROR\r\n") => {
            match words.last().is_some_and(|word| word.starts_with(b"HTTP/")) {
                true => Outcome::State(HTTP.name),
                false => Outcome::Different,
            }
        }
        b"mg" | b"ma" if is_over(&theirs.0, &ours.0) => Outcome::Answer(OVER.name),
        b"mg" if words[1..].iter().any(|word| word[0] == b'b') && is_raw(&theirs.0, &ours.0) => {
            Outcome::Answer(BINARY_KEY.name)
        }
        _ => Outcome::Different,
    };
    (outcome, [theirs, ours])
}

/// Returns whether the line has a number that memcached truncates to 32 bits, in a command with
/// such numbers.
fn is_wide(verb: &[u8], words: &[&[u8]]) -> bool {
    let is_beyond = |word: &[u8], from: i128, to: i128| !(from..=to).contains(&loose_number(word));
    let seconds = |word: &&[u8]| is_beyond(word, i32::MIN.into(), i32::MAX.into());
    // A minus sign wraps: below -2^63 the result is a number again.
    let flags = |word: &&[u8]| loose_number(word) > u32::MAX.into() || loose_number(word) < -(1 << 63);
    match verb {
        b"touch" => words.get(2).is_some_and(seconds),
        b"gat" | b"gats" | b"flush_all" => words.get(1).is_some_and(seconds),
        b"ms" | b"mg" | b"md" | b"ma" => {
            let is_flag = |word: &&[u8]| match word[0] {
                b'T' | b'N' | b'R' => seconds(&&word[1..]),
                b'F' => flags(&&word[1..]),
                _ => false,
            };
            words.iter().skip(2).any(is_flag)
        }
        _ => length_word(verb).is_some() && (words.get(2).is_some_and(flags) || words.get(3).is_some_and(seconds)),
    }
}

/// Handles a line with such a number: we reject it, and skip its data block.
fn wide(pair: &mut ClientPair, line: &Line, verb: &[u8], words: &[&[u8]]) -> (Outcome, Answers) {
    let length = length_word(verb).and_then(|index| words.get(index)).map_or(0, |word| loose_number(word));
    if !(0..=4000).contains(&length) {
        // The test does not send so much data, and a data block may be cut short.
        pair.clients = pair.addresses.map(connect);
        return (Outcome::State(WIDE.name), Default::default());
    }
    let answers = pair.ask(line);
    let ours = &answers[1].0;
    let rejections: [&[u8]; 6] = [
        b"CLIENT_ERROR bad command line format\r\n",
        b"CLIENT_ERROR bad token in command line format\r\n",
        b"CLIENT_ERROR invalid exptime argument\r\n",
        b"CLIENT_ERROR invalid or duplicate flag\r\n",
        b"CLIENT_ERROR duplicate flag\r\n",
        b"ERROR\r\n",
    ];
    let is_rejected =
        rejections.iter().any(|rejection| ours.starts_with(rejection)) || line.text().ends_with(b"noreply");
    let other = ours.starts_with(b"CLIENT_ERROR") || ours.is_empty();
    let is_same = answers[0] == answers[1];
    match is_same || is_rejected || other {
        true => (Outcome::State(WIDE.name), answers),
        false => (Outcome::Different, answers),
    }
}

/// Returns whether the answers are equal except for expired times; memcached's wrap.
fn is_over(theirs: &[u8], ours: &[u8]) -> bool {
    let fields = |text: &[u8]| -> Vec<Vec<u8>> {
        text.split(|byte| *byte == b' ' || *byte == b'\r').map(<[u8]>::to_vec).collect()
    };
    let (theirs, ours) = (fields(theirs), fields(ours));
    let is_fine = |(theirs, ours): (&Vec<u8>, &Vec<u8>)| {
        theirs == ours || ours == b"t0" && theirs[0] == b't' && loose_number(&theirs[1..]) > 1 << 31
    };
    theirs.len() == ours.len() && theirs.iter().zip(&ours).all(is_fine)
}

/// Returns whether the answers are equal except for the key: memcached's is raw, and ours is in
/// base64.
fn is_raw(theirs: &[u8], ours: &[u8]) -> bool {
    let position = |text: &[u8], part: &[u8]| text.windows(part.len()).position(|window| window == part);
    let Some(at) = position(ours, b" k") else { return false };
    let Some(length) = position(&ours[at..], b" b") else { return false };
    let (before, after) = (&ours[..at + 2], &ours[at + length + 2..]);
    let is_longer = theirs.len() > before.len() + after.len();
    is_longer && theirs.starts_with(before) && theirs.ends_with(after)
}

/// Removes the numbers that depend on the programs' clocks and memory from an answer to `me`.
fn without_numbers(text: &[u8]) -> Vec<u8> {
    let of_the_item =
        |field: &&[u8]| [&b"exp="[..], b"la=", b"cls=", b"size="].iter().all(|name| !field.starts_with(name));
    text.split(|byte| *byte == b' ').filter(of_the_item).collect::<Vec<_>>().join(&b' ')
}

#[test]
fn generated_lines_are_answered_like_memcached() {
    let Some(memcached) = Memcached::start() else { return };
    let server = serve(&store());
    let mut pair = ClientPair::new([memcached.address, server.address()]);
    let (seed, wanted_lines) =
        (fuzz::env_number("LEEWARD_FUZZ_SEED", 1), fuzz::env_number("LEEWARD_FUZZ_ITERATIONS", LINES));
    let (mut compared, mut counts, mut findings) = (0, BTreeMap::<&str, u64>::new(), Vec::new());
    for session in 0.. {
        if compared >= wanted_lines || findings.len() >= 10 {
            break;
        }
        for attempt in 1..=ATTEMPTS {
            let lines = lines::session(&mut Random::new(seed << 40 | session), pair.begin());
            let mut has_flushed = false;
            let mut finding = None;
            for (index, line) in lines.iter().enumerate() {
                compared += 1;
                let (outcome, [theirs, ours]) = outcome(&mut pair, line, has_flushed);
                has_flushed |= line.words().first() == Some(&&b"flush_all"[..]);
                match outcome {
                    Outcome::Same => continue,
                    Outcome::Answer(name) => {
                        *counts.entry(name).or_default() += 1;
                        continue;
                    }
                    Outcome::State(name) => *counts.entry(name).or_default() += 1,
                    Outcome::Ended => {}
                    Outcome::Different => {
                        let before: Vec<u8> = lines[..index].iter().flat_map(|line| line.bytes.clone()).collect();
                        finding = Some(format!(
                            "{}\n  session {session}, after: {}\n  memcached: {} {}\n  leeward:   {} {}",
                            printable(&line.bytes),
                            printable(&before),
                            printable(&theirs.0),
                            theirs.1,
                            printable(&ours.0),
                            ours.1
                        ));
                    }
                }
                break;
            }
            match finding {
                Some(_) if attempt < ATTEMPTS => {}
                finding => {
                    findings.extend(finding);
                    break;
                }
            }
        }
    }
    eprintln!("seed {seed}: {compared} lines; wanted differences {counts:?}");
    assert!(findings.is_empty(), "{} differences:\n{}", findings.len(), findings.join("\n"));
    server.stop().unwrap();
}

/// Each intended difference exists, and is documented with its reason.
#[test]
fn intended_differences_exist_and_are_documented() {
    let docs = include_str!("../../../../docs/kv.md");
    for difference in KNOWN_DIFFERENCES {
        assert!(docs.contains(&format!("| {} |", difference.name)), "docs/kv.md has no row `{}`", difference.name);
    }
    let Some(memcached) = Memcached::start() else { return };
    let server = serve(&store());
    for difference in KNOWN_DIFFERENCES {
        let mut pair = ClientPair::new([memcached.address, server.address()]);
        let example = difference.example.replace("{251}", &"k".repeat(251)).replace("{9000}", &"x".repeat(9000));
        // A second may end between two commands, which changes remaining times.
        for attempt in 1.. {
            pair.begin();
            let [theirs, ours] = pair.send(&example);
            let text = String::from_utf8_lossy(&ours.0).into_owned();
            let is_so = if difference.name == DEBUG.name {
                text.contains("ME a exp=")
            } else {
                text.ends_with(difference.answer)
            };
            if is_so && theirs != ours {
                break;
            }
            assert!(attempt < ATTEMPTS, "{}: {text}; memcached: {theirs:?}", difference.name);
        }
    }
    server.stop().unwrap();
}
