//! Converts files of packages to lines that `--data` reads. Pure: text in, lines out.
//!
//! Does not contain programs or files (`data`).

use leeward_search::Document;
use leeward_search::corpus::deb822;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};

/// Numbers per image of a digit.
const PIXELS: usize = 28 * 28;
/// Numbers per word vector; the norm and the index follow them.
const DIMENSIONS: usize = 100;
/// Words of a sentence that become its title.
const TITLE: usize = 6;

fn wrong(problem: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, problem)
}

fn put(numbers: &[&str], into: &mut impl Write) -> io::Result<()> {
    writeln!(into, "{}", numbers.join(" "))
}

/// Converts images of one digit: `{"data": [0, 0.2, …]}`, one image after the other. Returns their
/// number.
pub(super) fn digits(json: &str, into: &mut impl Write) -> io::Result<u64> {
    let numbers = json.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let (numbers, _) = numbers.ok_or_else(|| wrong("no list of numbers"))?;
    let numbers: Vec<&str> = numbers.split(',').map(str::trim).filter(|number| !number.is_empty()).collect();
    let images = numbers.chunks_exact(PIXELS);
    let count = images.len() as u64;
    for image in images {
        put(image, into)?;
    }
    Ok(count)
}

/// Converts vectors of words: `"vectors":{"the":[-0.03,…],…}`. Returns their number.
pub(super) fn words(json: &str, into: &mut impl Write) -> io::Result<u64> {
    let (_, mut rest) = json.split_once("\"vectors\":{").ok_or_else(|| wrong("no vectors"))?;
    let mut count = 0;
    while let Some(word) = rest.trim_start_matches(',').strip_prefix('"') {
        let after = end_of_string(word).ok_or_else(|| wrong("a word without an end"))?;
        let list = word[after..].strip_prefix(":[").and_then(|list| list.split_once(']'));
        let (numbers, after) = list.ok_or_else(|| wrong("a word without its vector"))?;
        let numbers: Vec<&str> = numbers.split(',').take(DIMENSIONS).collect();
        if numbers.len() < DIMENSIONS {
            return Err(wrong("a vector that is too short"));
        }
        put(&numbers, into)?;
        (count, rest) = (count + 1, after);
    }
    Ok(count)
}

/// Returns the index after the quote that ends a string of JSON.
fn end_of_string(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '"' if !is_escaped => return Some(at + 1),
            _ => is_escaped = letter == '\\' && !is_escaped,
        }
    }
    None
}

/// Converts sentences of a tagged text, `The/at jury/nn said/vbd`, to one document each. Returns
/// their number.
pub(super) fn sentences(tagged: &str, name: &str, into: &mut impl Write) -> io::Result<u64> {
    let mut count = 0;
    let mut text = String::new();
    for line in tagged.lines().map(str::trim).filter(|line| !line.is_empty()) {
        count += 1;
        text.clear();
        for tagged in line.split_whitespace() {
            let word = tagged.rsplit_once('/').map_or(tagged, |(word, _)| word);
            // Writing to a string never fails.
            let _ = write!(text, "{word} ");
        }
        let title = text.split_whitespace().take(TITLE).collect::<Vec<_>>().join(" ");
        deb822::write(&Document { title: format!("{name}-{count} {title}"), text: text.clone() }, into)?;
    }
    Ok(count)
}

/// Converts ratings of lectures: a table with the columns `s` (student), `d` (lecturer) and `y`
/// (rating). Returns their number.
pub(super) fn ratings(csv: &str, into: &mut impl Write) -> io::Result<u64> {
    fn cells(line: &str) -> impl Iterator<Item = &str> {
        line.split(',').map(|cell| cell.trim_matches('"'))
    }
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().map(|line| cells(line).collect()).unwrap_or_default();
    let column =
        |name: &str| names.iter().position(|other| *other == name).ok_or_else(|| wrong("columns without s, d, y"));
    let (student, lecturer, rating) = (column("s")?, column("d")?, column("y")?);
    let mut count = 0;
    for line in lines.filter(|line| !line.is_empty()) {
        let row: Vec<&str> = cells(line).collect();
        let cell = |column: usize| row.get(column).copied().ok_or_else(|| wrong("a row that is too short"));
        writeln!(into, "{},{},{}", cell(student)?, cell(lecturer)?, cell(rating)?)?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(convert: impl FnOnce(&mut Vec<u8>) -> io::Result<u64>, count: u64, expected: &str) {
        let mut out = Vec::new();
        assert_eq!(convert(&mut out).unwrap(), count);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn package_data_is_converted_to_lines() {
        let image = vec!["0.5"; PIXELS].join(",");
        let line = format!("{}\n", vec!["0.5"; PIXELS].join(" "));
        check(|out| digits(&format!("{{ \"data\": [{image},{image},1]}}"), out), 2, &format!("{line}{line}"));
        let vector = vec!["-1"; DIMENSIONS].join(",");
        let line = format!("{}\n", vec!["-1"; DIMENSIONS].join(" "));
        let json =
            format!("{{\"words\":[\"a\"],\"vectors\":{{\"a\":[{vector},7,0],\"\\\"\":[{vector},7,1]}},\"unk\":[0]}}");
        check(|out| words(&json, out), 2, &format!("{line}{line}"));
        check(
            |out| sentences("\n\tThe/at jury/nn and/or/cc\n", "ca01", out),
            1,
            "Package: ca01-1 The jury and/or\nDescription-en: The jury and/or\n\n",
        );
        let csv = "\"\",\"s\",\"d\",\"service\",\"y\"\n\"1\",\"1\",\"1002\",\"0\",5\n";
        check(|out| ratings(csv, out), 1, "1,1002,5\n");
    }

    #[test]
    fn invalid_files_are_rejected() {
        for json in [
            "",
            "{}",
            "[1",
            "{\"vectors\":{\"a\"",
            "{\"vectors\":{\"a",
            "{\"vectors\":{\"a\":[1]}}",
            "{\"vectors\":{\"a\\\"",
        ] {
            assert!(words(json, &mut Vec::new()).is_err(), "{json}");
        }
        assert!(digits("{}", &mut Vec::new()).is_err());
        assert!(ratings("a,b\n1,2", &mut Vec::new()).is_err());
        assert!(ratings("s,d,y\n1,2", &mut Vec::new()).is_err());
    }
}
