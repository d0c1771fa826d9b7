//! Replays `tests/corpus/`: small files of bytes, valid and hostile, one per difficult case. A
//! file's name has its sender (`client-` or `server-`) and its outcome: `good` ends between frames,
//! `part` inside one, `bad` is rejected.
//!
//! [`corpus`] below generates the files: `cargo test -p leeward-wire --test wire -- --ignored`
//! writes them again. A file from a fuzzer or a bug report is added by hand, and replayed too.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::support::{call, decode_chunks, encoded, encoded_in, examples, sender};
use leeward_wire::{Call, Frame, HEADER_LEN, Kind, PayloadLimit, Side, Version, WireError};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn name_of(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

/// All generated files, by name.
fn corpus() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut add = |name: String, bytes: Vec<u8>| assert!(files.insert(format!("{name}.bin"), bytes).is_none());
    let mut all = BTreeMap::from([("client", Vec::new()), ("server", Vec::new())]);
    let mut second_all = all.clone();
    for (name, frame) in examples() {
        let side = name_of(sender(&frame));
        let bytes = encoded(&frame);
        let second = encoded_in(Version::Two, &frame);
        if frame.min_version() == Version::One {
            all.get_mut(side).unwrap().extend(&bytes);
        }
        second_all.get_mut(side).unwrap().extend(&second);
        add(format!("{side}-good-{name}"), bytes.clone());
        let mut flagged = bytes.clone();
        flagged[63] = 1;
        add(format!("{side}-bad-{name}-flags"), flagged);
        let other = name_of(if side == "client" { Side::Server } else { Side::Client });
        if !matches!(frame.kind(), Kind::Ping | Kind::Pong) {
            add(format!("{other}-bad-{name}-wrong-way"), bytes);
        }
    }
    for (side, bytes) in all {
        add(format!("{side}-part-all-but-a-byte"), bytes[..bytes.len() - 1].to_vec());
        add(format!("{side}-bad-all-then-zeros"), [&bytes[..], &[0; HEADER_LEN]].concat());
        add(format!("{side}-good-all"), bytes);
    }
    for (side, bytes) in second_all {
        add(format!("{side}-good-all-of-version-2"), bytes);
    }
    let good = encoded(&Frame::Call(call()));
    let empty = encoded(&Frame::Call(Call { payload: b"", ..call() }));
    let changed = |at: usize, bytes: &[u8]| {
        let mut all = good.clone();
        all[at..at + bytes.len()].copy_from_slice(bytes);
        all
    };
    let mut add = |name: &str, bytes: Vec<u8>| add(format!("client-{name}"), bytes);
    add("good-nothing", Vec::new());
    add("good-call-empty", empty.clone());
    add("good-calls-back-to-back", [&good[..], &empty, &good, &empty].concat());
    // The decoder must not take a header inside a payload for a header.
    add("good-call-in-a-call", encoded(&Frame::Call(Call { payload: &good, ..call() })));
    add("part-header-cut-at-8", good[..8].to_vec());
    add("part-header-cut-at-63", good[..63].to_vec());
    add("part-no-payload", good[..HEADER_LEN].to_vec());
    add("part-longest-announced", changed(4, &PayloadLimit::DEFAULT.bytes().to_le_bytes()));
    add("bad-too-long-by-one", changed(4, &(PayloadLimit::DEFAULT.bytes() + 1).to_le_bytes())[..8].to_vec());
    add("bad-longest-there-is", changed(4, &[255; 4]));
    // A header and 2^32 - 1 bytes: wraps if lengths are counted in 32 bits.
    add("bad-length-that-wraps", changed(4, &(u32::MAX - 63).to_le_bytes()));
    add("bad-length-one-short", [&changed(4, &4_u32.to_le_bytes())[..], &good].concat());
    add("bad-request-zero", changed(8, &[0; 8]));
    add("bad-priority-zero", changed(60, &[0]));
    add("bad-priority-129", changed(60, &[129]));
    add("bad-kind-zero", changed(3, &[0]));
    // Version 1 has no such kind.
    add("bad-kind-13", changed(3, &[13]));
    add("bad-kind-14-of-version-2", [&[b'L', b'W', 2, 14][..], &good[4..]].concat());
    add("good-call-of-version-2", changed(2, &[2]));
    add("bad-version-3", changed(2, &[3]));
    add("bad-two-versions", [&good[..], &changed(2, &[2])].concat());
    add("bad-big-endian-magic", changed(0, b"WL"));
    add("bad-http", b"GET / HTTP/1.1\r\n\r\n".to_vec());
    add("bad-tls", vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    add("bad-zeros", vec![0; 256]);
    add("bad-ones", vec![255; 256]);
    files
}

fn expect(name: &str, bytes: &[u8]) {
    let from = if name.starts_with("client-") { Side::Client } else { Side::Server };
    let whole = decode_chunks(bytes, &[], from, PayloadLimit::DEFAULT);
    for chunk in [1, 2, 7, 63, 64, 65] {
        let cut = decode_chunks(bytes, &[chunk], from, PayloadLimit::DEFAULT);
        assert_eq!(cut, whole, "{name} in pieces of {chunk}");
    }
    match name.split('-').nth(1) {
        Some("good") => {
            assert_eq!(whole.end, Ok(()), "{name}");
            assert_eq!(whole.frames.concat(), bytes, "{name}");
        }
        Some("part") => assert!(matches!(whole.end, Err(WireError::Truncated { .. })), "{name}: {:?}", whole.end),
        Some("bad") => {
            assert!(!matches!(whole.end, Ok(()) | Err(WireError::Truncated { .. })), "{name}: {:?}", whole.end);
        }
        _ => panic!("{name} doesn't say what to expect of it"),
    }
}

#[test]
fn every_corpus_file_matches_its_name() {
    let files: Vec<_> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(files.len() >= 60, "{} files", files.len());
    for file in files {
        expect(file.file_name().to_str().unwrap(), &fs::read(file.path()).unwrap());
    }
}

#[test]
fn the_generated_files_are_what_is_committed() {
    for (name, bytes) in corpus() {
        let committed = fs::read(folder().join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(committed, bytes, "{name}");
    }
}

#[test]
#[ignore = "writes the corpus anew"]
fn write() {
    fs::create_dir_all(folder()).unwrap();
    for (name, bytes) in corpus() {
        fs::write(folder().join(name), bytes).unwrap();
    }
}
