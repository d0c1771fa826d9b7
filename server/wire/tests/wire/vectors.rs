//! `docs/protocol-vectors.txt` against the code, both ways, and the tables of bytes, kinds and
//! codes of `docs/protocol.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::{encoded, examples, sender};
use leeward_wire::{DecodeStatus, ErrorCode, FailureCode, Field, Kind, PayloadLimit, Regime, RejectCode, Side, decode};

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

fn document() -> String {
    read("protocol.md")
}

/// The blocks that begin with `[NAME]` and end with an empty line, by name; `#` begins a comment.
fn vectors() -> BTreeMap<String, Vec<u8>> {
    let text = read("protocol-vectors.txt");
    let mut vectors = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) else { continue };
        let bytes = lines
            .by_ref()
            .take_while(|line| !line.is_empty())
            .flat_map(|line| line.split('#').next().unwrap().split_whitespace())
            .map(|byte| u8::from_str_radix(byte, 16).unwrap_or_else(|_| panic!("`{byte}` in vector {name}")))
            .collect();
        assert!(vectors.insert(name.to_string(), bytes).is_none(), "two vectors {name}");
    }
    vectors
}

/// The cells of the table whose first heading is `first`, without the heading rows.
fn table(document: &str, first: &str) -> Vec<Vec<String>> {
    document
        .lines()
        .skip_while(|line| !line.starts_with(&format!("| {first} |")))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    let rows = bytes.chunks(16).map(|row| row.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "));
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_kind_has_its_vector() {
    let vectors = vectors();
    for (name, frame) in examples() {
        let bytes = encoded(&frame);
        let written =
            vectors.get(name).unwrap_or_else(|| panic!("no vector; it would be\n[{name}]\n{}\n", hex(&bytes)));
        assert_eq!(hex(written), hex(&bytes), "{name}");
        let decoded = decode(written, sender(&frame), PayloadLimit::DEFAULT);
        assert_eq!(decoded, Ok(DecodeStatus::Frame { frame, length: written.len() }), "{name}");
    }
    let hostile = vectors.iter().filter(|(name, _)| name.starts_with("bad-")).count();
    assert_eq!(vectors.len(), examples().len() + hostile, "a vector of nothing");
}

#[test]
fn hostile_vectors_are_refused_as_written() {
    let vectors = vectors();
    let rows = table(&document(), "hostile vector");
    assert_eq!(rows.len(), vectors.keys().filter(|name| name.starts_with("bad-")).count());
    for row in rows {
        let error = decode(&vectors[&row[0]], Side::Client, PayloadLimit::DEFAULT).expect_err(&row[0]);
        assert_eq!(format!("{:?}", error.code()), row[2], "{}", row[0]);
    }
}

#[test]
fn the_documented_table_of_bytes_matches_the_code() {
    let rows = table(&document(), "offset");
    let written: Vec<_> = rows.iter().map(|row| (row[0].clone(), row[1].clone(), row[2].clone())).collect();
    let coded: Vec<_> = Field::ALL
        .iter()
        .map(|field| (field.offset().to_string(), field.size().to_string(), field.to_string()))
        .collect();
    assert_eq!(written, coded);
}

#[test]
fn the_documented_table_of_kinds_matches_the_code() {
    let rows = table(&document(), "kind");
    assert_eq!(rows.len(), Kind::ALL.len());
    for (row, kind) in rows.iter().zip(Kind::ALL) {
        let from = match (kind.is_sent_by(Side::Client), kind.is_sent_by(Side::Server)) {
            (true, true) => "either",
            (true, false) => "client",
            _ => "server",
        };
        let fields = kind.fields().iter().map(Field::to_string).collect::<Vec<_>>().join(", ");
        let fields = if fields.is_empty() { "—".to_string() } else { fields };
        assert_eq!(row[..4], [kind.to_string(), kind.number().to_string(), from.to_string(), fields]);
    }
}

#[test]
fn the_documented_tables_of_codes_match_the_code() {
    fn check<T: std::fmt::Debug>(first: &str, all: &[T], number: impl Fn(&T) -> u8) {
        let written: Vec<_> =
            table(&document(), first).into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
        let coded: Vec<_> = all.iter().map(|code| (format!("{code:?}"), number(code).to_string())).collect();
        assert_eq!(written, coded, "{first}");
    }
    check("drop reason", RejectCode::ALL, |code| code.number());
    check("failure", FailureCode::ALL, |code| code.number());
    check("error", ErrorCode::ALL, |code| code.number());
    check("regime", Regime::ALL, |code| code.number());
}
