//! Sends the same bytes to memcached 1.6 and to our port, and compares the answers.

use crate::support::memcached::{Memcached, is_equivalent, printable};
use crate::support::{Client, serve, store};

#[test]
fn answers_may_differ_only_in_clock_values() {
    assert!(is_equivalent(b"HD h1 l1 t-1\r\nEN\r\n", b"HD h1 l0 t-1\r\nEN\r\n"));
    assert!(is_equivalent(b"VA 1 t100\r\nl\r\n", b"VA 1 t99\r\nl\r\n"));
    for (theirs, ours) in [
        ("HD h1 l1 t-1\r\n", "HD h0 l1 t-1\r\n"),
        ("HD l9\r\n", "HD l1\r\n"),
        ("HD t0\r\n", "HD t-1\r\n"),
        ("HD l1\r\n", "HD l1 t5\r\n"),
        ("HD l1\r\n", "HD t1\r\n"),
        ("VALUE a l1\r\n", "VALUE a l2\r\n"),
        ("HD l1\r\n", "HD l1\r\nEN\r\n"),
    ] {
        assert!(!is_equivalent(theirs.as_bytes(), ours.as_bytes()), "{theirs} {ours}");
    }
}

/// Compares sessions one after the other, on new connections but with the stores' previous
/// contents.
///
/// Each part of a session waits for the previous part's answer: memcached counts references to a
/// value that is still being sent, and then answers `decr` differently.
fn compare(sessions: &[Vec<Vec<u8>>]) {
    let Some(memcached) = Memcached::start() else { return };
    let server = serve(&store());
    let mut differences = Vec::new();
    for session in sessions {
        let (mut them, mut us) = (Client::new(memcached.address), Client::new(server.address()));
        for (index, part) in session.iter().enumerate() {
            let (theirs, ours) = (them.exchange(part), us.exchange(part));
            let has_ended = theirs.1 || ours.1;
            if theirs.1 == ours.1 && is_equivalent(&theirs.0, &ours.0) {
                if has_ended {
                    break;
                }
                continue;
            }
            let (part, theirs, ours) =
                (printable(part), (printable(&theirs.0), theirs.1), (printable(&ours.0), ours.1));
            let before = String::from_utf8_lossy(&session[..index].concat()).replace("\r\n", "~");
            differences.push(format!("{part}\n  after: {before}\n  memcached: {theirs:?}\n  leeward:   {ours:?}"));
            // From here on their contents differ.
            break;
        }
    }
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), sessions.len(), differences.join("\n"));
    server.stop().unwrap();
}

#[test]
fn commands_and_errors_are_answered_like_memcached() {
    let long = "k".repeat(251);
    let mut sessions: Vec<Vec<u8>> = include_str!("../sessions.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            line.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t").replace("{251}", &long).into_bytes()
        })
        .collect();
    let large = |line: &str, length: usize, rest: &str| {
        [line.as_bytes(), b"\r\n", &vec![b'x'; length], b"\r\n", rest.as_bytes()].concat()
    };
    sessions.push(large("set big 0 0 2000000", 2_000_000, "get big\r\n"));
    sessions.push(large("set big 0 0 2000000 noreply", 2_000_000, "get big\r\n"));
    sessions.push(large("ms big 2000000", 2_000_000, "mg big v\r\n"));
    sessions.push(large("set big 0 0 1000000", 1_000_000, "get big\r\n"));
    sessions.push(large("append big 0 0 100000", 100_000, "get big\r\n"));
    sessions.push(large("set big 0 0 2000000", 2_000_000, "get big\r\n"));
    sessions.push(format!("set n 0 0 100\r\n7{}\r\nincr n 5\r\nget n\r\n", " ".repeat(99)).into_bytes());
    let many: Vec<String> = (0..100).map(|number| format!("key{number}")).collect();
    sessions.push(format!("set key7 0 0 1\r\na\r\nset key77 0 0 1\r\nb\r\nget {}\r\n", many.join(" ")).into_bytes());
    sessions.push(format!("gets {}\r\n", vec!["k".repeat(200); 20].join(" ")).into_bytes());
    sessions.push(format!("get {} {long}\r\n", many.join(" ")).into_bytes());
    compare(&sessions.into_iter().map(|session| vec![session]).collect::<Vec<_>>());
}

/// Random sessions with few keys, so that commands meet each other's items.
#[test]
fn random_sessions_are_answered_like_memcached() {
    let seed = std::env::var("LEEWARD_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut below = move |count: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % count
    };
    let mut sessions = Vec::new();
    for _ in 0..60 {
        let mut session = Vec::new();
        for _ in 0..60 {
            let key = ["a", "b", "c", "d", "Zm9v"][below(5)];
            let value = ["", "1", "10", "99", "18446744073709551615", "hello", "0"][below(7)];
            let (length, flags) = (value.len(), below(3));
            let quiet = ["", "", "", " noreply"][below(4)];
            let exptime = [0, 0, 0, 100, -1][below(5)];
            let verb = ["set", "add", "replace", "append", "prepend"][below(5)];
            let mode = ["", "", " MS", " ME", " MA", " MP", " MR"][below(7)];
            let extra = ["", " k", " Oq7", " k O1 b", " T100", " F5", " q", " I"][below(8)];
            let shown =
                ["v", "k v", "s t f", "v t k Oabc", "v q", "h l t", "k b v", "N30 v t", "R30 v", "T50 t", "u v", ""]
                    [below(12)];
            let number = ["", " N0", " N0 J5", " D7", " MD", " MI D3 v", " N0 v t", " q"][below(8)];
            session.push(
                match below(12) {
                    0..=2 => format!("{verb} {key} {flags} {exptime} {length}{quiet}\r\n{value}\r\n"),
                    3 | 4 => format!("get {key} a\r\n"),
                    5 => format!("{} {key} {}{quiet}\r\n", ["incr", "decr"][below(2)], below(20)),
                    6 => format!("delete {key}{quiet}\r\n"),
                    7 => format!("touch {key} {exptime}{quiet}\r\n"),
                    8 => format!("ms {key} {length}{mode}{extra}\r\n{value}\r\n"),
                    9 => format!("mg {key} {shown}\r\n"),
                    10 => format!("ma {key}{number}\r\n"),
                    _ => [
                        "md a\r\n",
                        "md a q\r\n",
                        "md b I T30\r\n",
                        "flush_all\r\n",
                        "gat 100 a b\r\n",
                        "mn\r\n",
                        "md c I\r\n",
                    ][below(7)]
                    .to_string(),
                }
                .into_bytes(),
            );
        }
        sessions.push(session);
    }
    compare(&sessions);
}
