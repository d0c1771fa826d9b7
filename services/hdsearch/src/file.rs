//! Reads points from a file: a point per line, numbers separated by spaces or commas, optionally
//! after a name.
//!
//! Does not contain the use of points.

use crate::data::Points;
use leeward_services::tiers::file;
use std::path::Path;

/// Greatest number of points in a file.
const POINTS_MAX: usize = 10_000_000;
/// Greatest number of dimensions.
const DIMENSIONS_MAX: usize = 2_048;

/// Reads a file of points.
///
/// # Errors
/// A one-line message: the file can't be read, or the message has the wrong line's number and the
/// accepted form.
pub(crate) fn read(path: &Path) -> Result<Points, String> {
    parse(&file::read(path, file::BYTES_MAX)?).map_err(|wrong| format!("{}: {wrong}", path.display()))
}

fn parse(text: &str) -> Result<Points, String> {
    let mut points: Option<Points> = None;
    let mut point = Vec::new();
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
        point.clear();
        read_point(line, &mut point).map_err(|wrong| format!("line {number}: {wrong}"))?;
        let points = points.get_or_insert_with(|| Points::new(point.len()));
        if point.len() != points.dimensions() {
            let (count, first) = (point.len(), points.dimensions());
            return Err(format!("line {number}: {count} numbers; accepted: {first}, as in the first line"));
        }
        if points.len() == POINTS_MAX {
            return Err(format!("line {number}: accepted: up to {POINTS_MAX} points"));
        }
        points.push(&point);
    }
    points.ok_or_else(|| "no points; accepted: a point on each line, numbers with spaces or commas between them".into())
}

fn read_point(line: &str, point: &mut Vec<f32>) -> Result<(), String> {
    let tokens = line.split(|letter: char| letter.is_whitespace() || letter == ',').filter(|token| !token.is_empty());
    for (at, token) in tokens.enumerate() {
        match token.parse::<f32>() {
            Ok(value) if value.is_finite() && point.len() < DIMENSIONS_MAX => point.push(value),
            Ok(value) if value.is_finite() => return Err(format!("accepted: up to {DIMENSIONS_MAX} numbers")),
            // A name may precede the numbers.
            Err(_) if at == 0 => {}
            _ => {
                let token: String = token.chars().take(40).collect();
                return Err(format!("`{token}` is no number"));
            }
        }
    }
    if point.is_empty() { Err("no numbers".into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_with_their_names_or_without() {
        let points = parse("king 1 2.5 -3\n\nqueen 4,5 6e0\n").unwrap();
        assert_eq!((points.dimensions(), points.len()), (3, 2));
        assert_eq!(points.get(1), Some(&[4.0, 5.0, 6.0][..]));
        assert_eq!(parse("1 2\n3 4").unwrap().len(), 2);
    }

    #[test]
    fn invalid_files_are_rejected_in_one_line() {
        let long = "1 ".repeat(DIMENSIONS_MAX + 1);
        for (text, told) in [
            ("", "no points"),
            ("1 2\n3", "line 2: 1 numbers; accepted: 2"),
            ("a b 1", "line 1: `b` is no number"),
            ("1 NaN", "line 1: `NaN` is no number"),
            ("1 inf", "line 1: `inf` is no number"),
            ("name", "line 1: no numbers"),
            (&long, "line 1: accepted: up to 2048"),
        ] {
            let wrong = parse(text).unwrap_err();
            assert!(wrong.contains(told) && wrong.lines().count() == 1, "{wrong}");
        }
        assert!(read(Path::new("/nowhere/at/all")).unwrap_err().starts_with("/nowhere/at/all: "));
    }
}
