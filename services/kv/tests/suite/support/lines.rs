//! Random command lines: all commands, their mistakes, extreme numbers, and blanks in odd places.

use leeward_testkit::random::Random;

/// Keys that several commands share. `Zm9v` is `foo` in base64.
pub(crate) const KEYS: [&str; 8] = ["a", "b", "n", "Zm9v", "foo", "noreply", "HTTP/1.1", "-1"];
const VALUES: [&str; 16] = [
    "",
    "0",
    "1",
    "9",
    "10",
    "99",
    "-0",
    "-5",
    " 7",
    "8 ",
    "7\t",
    "12x",
    "hello",
    "18446744073709551615",
    "18446744073709551616",
    "4294967296",
];
/// Numbers around the limits of 32 and 64 bits, and texts that are nearly numbers.
const NUMBERS: [&str; 34] = [
    "0",
    "1",
    "2",
    "5",
    "30",
    "250",
    "00",
    "01",
    "+1",
    "-0",
    "-1",
    "-5",
    "1\t",
    "1\r",
    "1\x0b",
    "\t1",
    "1\tx",
    "1x",
    "x",
    "1.5",
    "0x10",
    "2147483645",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-18446744073709551615",
];
/// Seconds. None is so short that the programs' clocks would decide.
const TIMES: [&str; 14] =
    ["0", "0", "0", "0", "100", "1000", "-1", "-0", "2592000", "2592001", "2147483647", "+100", "100\t", "x"];
const LETTERS: &[u8] = b"vksctfhlqubIOPLNTRFCDJMESx~\x7f\xff1";
/// Limit of the length that a line announces for its data block.
const DATA_MAX: i64 = 4000;

/// A command, and the number of blank lines that must follow, so that the next line is not taken
/// for its data.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) bytes: Vec<u8>,
    pub(crate) blanks: usize,
}

impl Line {
    /// Returns the line without its end, up to a NUL, and without its data.
    pub(crate) fn text(&self) -> &[u8] {
        let line = self.bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").filter(|line| !line.is_empty()).unwrap_or(line);
        line.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    pub(crate) fn words(&self) -> Vec<&[u8]> {
        self.text().split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect()
    }
}

/// Returns the index of the token with the data block's length; `None` for a command without one.
pub(crate) fn length_word(verb: &[u8]) -> Option<usize> {
    match verb {
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => Some(4),
        b"ms" => Some(2),
        _ => None,
    }
}

/// Parses the number at the start of a token, with any number of digits.
pub(crate) fn loose_number(word: &[u8]) -> i128 {
    let text: String = word.iter().map(|byte| *byte as char).collect();
    let text = text.trim_start_matches(|letter: char| letter.is_ascii_whitespace() || letter == '\x0b');
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits: String = digits.chars().take_while(char::is_ascii_digit).take(30).collect();
    sign * digits.parse::<i128>().unwrap_or(0)
}

/// Generates the lines of a session, on servers with CAS ids up to `cas`.
pub(crate) fn session(random: &mut Random, cas: u64) -> Vec<Line> {
    (0..25).filter_map(|_| line(random, cas)).collect()
}

fn pick<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    all[random.below(all.len())]
}

/// Draws a usual value, or sometimes an extreme.
fn number(random: &mut Random, usual: &[&str]) -> String {
    if random.below(6) == 0 { pick(random, &NUMBERS).into() } else { pick(random, usual).into() }
}

fn key(random: &mut Random) -> String {
    match random.below(40) {
        0 => "k".repeat(250),
        1 => "k".repeat(251),
        2 => "t\tb".into(),
        3 => "%Zm9v=".into(),
        4 => "Zg==".into(),
        // Most commands use the same few items.
        number => KEYS[if number < 12 { random.below(KEYS.len()) } else { random.below(4) }].into(),
    }
}

fn near(random: &mut Random, cas: u64) -> String {
    match random.below(5) {
        0 => number(random, &["0", "1"]),
        _ => (cas + random.below(12) as u64).to_string(),
    }
}

/// Generates flags of a meta command, in any order.
fn flags(random: &mut Random, usual: &str, cas: u64) -> String {
    let mut all = String::new();
    let most = if random.below(60) == 0 { 22 } else { 6 };
    for _ in 0..random.below(most) {
        let letters = if random.below(12) == 0 { LETTERS } else { usual.as_bytes() };
        let letter = letters[random.below(letters.len())] as char;
        let value = match letter {
            'N' | 'T' | 'R' => number(random, &TIMES),
            'F' | 'J' | 'D' => number(random, &["1", "7", "100"]),
            'C' => near(random, cas),
            'M' => pick(random, &["S", "E", "A", "P", "R", "I", "D", "+", "-", "s", "x", "", "SS"]).into(),
            'O' if random.below(20) == 0 => "q".repeat(30 + random.below(4)),
            'O' => pick(random, &["", "1", "abc"]).into(),
            _ if random.below(40) == 0 => "1".into(),
            _ => String::new(),
        };
        all += &format!(" {letter}{value}");
    }
    all
}

fn line(random: &mut Random, cas: u64) -> Option<Line> {
    let key_of = key(random);
    let value = pick(random, &VALUES);
    let verb = pick(random, &["set", "set", "set", "add", "replace", "append", "prepend", "cas"]);
    let noreply = pick(random, &["", "", "", "", " noreply", " noreply", " x", " noreply x"]);
    let text;
    let mut data = None;
    let stored = |random: &mut Random| match random.below(12) {
        0 => number(random, &["3"]),
        _ => value.len().to_string(),
    };
    match random.below(20) {
        0..=4 => {
            let (flags, exptime, length) = (number(random, &["0", "1", "77"]), number(random, &TIMES), stored(random));
            let expected = if verb == "cas" { format!(" {}", near(random, cas)) } else { String::new() };
            text = format!("{verb} {key_of} {flags} {exptime} {length}{expected}{noreply}");
            data = Some(value);
        }
        5..=7 => {
            let length = stored(random);
            text = format!("ms {key_of} {length}{}", flags(random, "ckOqbTFCMIMC", cas));
            data = Some(value);
        }
        8 | 9 => text = format!("mg {key_of}{}", flags(random, "vksctfhlqubNRTOv", cas)),
        10 => text = format!("ma {key_of}{}", flags(random, "vtcqbkONJDTMCN", cas)),
        11 => text = format!("md {key_of}{}", flags(random, "qbkOITC", cas)),
        12 => {
            let verb = pick(random, &["get", "gets", "gat", "gats"]);
            let seconds = if verb.starts_with("gat") { format!(" {}", number(random, &TIMES)) } else { String::new() };
            let count = if random.below(20) == 0 { random.below(60) } else { random.below(4) };
            let keys: String = (0..count).map(|_| format!(" {}", key(random))).collect();
            text = format!("{verb}{seconds}{keys}");
        }
        13 | 14 => {
            let (verb, by) = (pick(random, &["incr", "decr"]), number(random, &["1", "5", "1000"]));
            text = format!("{verb} {key_of} {by}{noreply}");
        }
        15 => text = format!("touch {key_of} {}{noreply}", number(random, &TIMES)),
        16 => text = format!("delete {key_of}{}{noreply}", pick(random, &["", "", "", " 0", " 5"])),
        17 => {
            let which = random.below(7);
            text = match which {
                0 => format!("flush_all{noreply}"),
                1 => format!("flush_all {}{noreply}", number(random, &["0", "1", "100", "-1"])),
                2 => format!("verbosity {}{noreply}", number(random, &["0", "1"])),
                3 => pick(
                    random,
                    &["mn", "mn x", "me", "quit", "quit x", "stats nonsense", "shutdown", "shutdown noreply"],
                )
                .into(),
                4 => format!("me {key_of}{}", pick(random, &["", " b", " x", " b x"])),
                _ => pick(
                    random,
                    &["noreply", "noreply noreply", "", " ", "x", "mx", "get", "set", "gat 0", "cas a 0 0"],
                )
                .into(),
            };
        }
        18 => {
            let verb = pick(random, &["POST", "GET", "bogus", "abc", "x", "mx", "PUT", "", "get", "incr", "delete"]);
            text = format!("{verb} {}HTTP/{}", pick(random, &["/ ", "", "/x y "]), pick(random, &["1.1", "", "1.0 x"]));
        }
        // Too large to be stored.
        19 if random.below(40) == 0 => {
            let line = pick(
                random,
                &["set a 0 0 1100000", "set a 0 0 1100000 noreply", "ms a 1100000 q k", "add n 0 0 1100000"],
            );
            let bytes = [line.as_bytes(), b"\r\n", &vec![b'x'; 1_100_000], b"\r\n"].concat();
            return Some(Line { bytes, blanks: 0 });
        }
        _ => {
            let expected = if verb == "cas" { format!(" {}", near(random, cas)) } else { String::new() };
            text = format!("{verb} {key_of} 0 0 {}{expected}{noreply}", value.len());
            data = Some(value);
        }
    }
    let mut bytes = text.into_bytes();
    damage(random, &mut bytes);
    bytes.extend_from_slice(match random.below(30) {
        0 => b"\n",
        1 => b"\r\r\n",
        _ => &b"\r\n"[..],
    });
    if let Some(data) = data {
        bytes.extend_from_slice(data.as_bytes());
        bytes.extend_from_slice(match random.below(30) {
            0 => b"",
            1 => b"x\r\n",
            2 => b"\n",
            _ => &b"\r\n"[..],
        });
        if !bytes.ends_with(b"\n") {
            bytes.extend_from_slice(b"\n");
        }
    }
    let line = Line { bytes, blanks: 0 };
    let words = line.words();
    let declared = words.first().and_then(|verb| length_word(verb)).and_then(|index| words.get(index).copied());
    let declared = declared.map_or(0, loose_number);
    // memcached wraps the length, and then waits for the data.
    let expected_length = declared as i32;
    if i64::from(expected_length) > DATA_MAX && declared == i128::from(expected_length) {
        return None;
    }
    let present = line.bytes.len() - 1 - line.bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let missing = usize::try_from(i64::from(expected_length) + 2).unwrap_or(0).saturating_sub(present);
    let blanks = if missing == 0 { 0 } else { missing / 2 + 2 };
    Some(Line { blanks, ..line })
}

/// Inserts blanks at odd places, and sometimes replaces a byte.
fn damage(random: &mut Random, line: &mut Vec<u8>) {
    match random.below(14) {
        0 => line.insert(0, b' '),
        1 => line.push(b' '),
        2 => {
            if let Some(at) = line.iter().position(|byte| *byte == b' ') {
                line.insert(at, b' ');
            }
        }
        3 if !line.is_empty() => {
            let at = random.below(line.len());
            line[at] = b" \t\r\0-+09aZ=~\x7f\x80\xffnq/"[random.below(18)];
        }
        4 if random.below(4) == 0 => line.extend_from_slice(b"\t"),
        5 if random.below(4) == 0 => line.extend_from_slice(b" a".repeat(random.below(30)).as_slice()),
        6 if random.below(6) == 0 => line.make_ascii_uppercase(),
        _ => {}
    }
}
