//! Reads ratings from a file: USER,ITEM,RATING per line, separated by commas or spaces, optionally
//! below a line of column names.
//!
//! Does not contain the learning.

use crate::data::{Rating, Ratings};
use leeward_services::tiers::file;
use std::collections::BTreeMap;
use std::path::Path;

/// Greatest number of ratings in a file.
const RATINGS_MAX: usize = 10_000_000;

/// Reads a file of ratings. Users and items have any names, and are numbered in order of first
/// occurrence.
///
/// # Errors
/// A one-line message: the file can't be read, or the message has the wrong line's number and the
/// accepted form.
pub(crate) fn read(path: &Path) -> Result<Ratings, String> {
    parse(&file::read(path, file::BYTES_MAX)?).map_err(|wrong| format!("{}: {wrong}", path.display()))
}

fn parse(text: &str) -> Result<Ratings, String> {
    let (mut users, mut items, mut pairs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut known = Vec::new();
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
        let split = |letter: char| letter.is_whitespace() || letter == ',';
        let mut tokens = line.split(split).filter(|token| !token.is_empty());
        let (user, item, rating) = (tokens.next(), tokens.next(), tokens.next());
        let rating = rating.filter(|_| tokens.next().is_none()).and_then(|token| token.parse::<f32>().ok());
        let (Some(user), Some(item), Some(rating)) = (user, item, rating.filter(|rating| rating.is_finite())) else {
            if number == 1 {
                // The names of the columns.
                continue;
            }
            return Err(format!("line {number}: accepted: USER,ITEM,RATING"));
        };
        if known.len() == RATINGS_MAX {
            return Err(format!("line {number}: accepted: up to {RATINGS_MAX} ratings"));
        }
        let (user, item) = (number_of(&mut users, user), number_of(&mut items, item));
        // For a repeated pair the first rating counts.
        if pairs.insert((user, item), ()).is_none() {
            known.push(Rating { user, item, rating });
        }
    }
    if known.is_empty() {
        return Err("no ratings; accepted: a rating on each line as USER,ITEM,RATING".into());
    }
    // At most the number of ratings.
    Ok(Ratings { users: users.len() as u32, items: items.len() as u32, known })
}

fn number_of<'a>(names: &mut BTreeMap<&'a str, u32>, name: &'a str) -> u32 {
    let next = names.len() as u32;
    *names.entry(name).or_insert(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratings_are_read_after_the_column_names() {
        let ratings = parse("s,d,y\nann,7,5\nbob,7,3.5\nann,9,1\nann,9,2\n").unwrap();
        assert_eq!((ratings.users, ratings.items, ratings.known.len()), (2, 2, 3));
        assert_eq!(ratings.known[1], Rating { user: 1, item: 0, rating: 3.5 });
    }

    #[test]
    fn invalid_files_are_rejected_in_one_line() {
        for (text, told) in [
            ("", "no ratings"),
            ("user item rating", "no ratings"),
            ("1 2 3\n1 2", "line 2: accepted: USER,ITEM,RATING"),
            ("1 2 3\n1 2 3 4", "line 2"),
            ("1 2 3\n1 2 NaN", "line 2"),
        ] {
            let wrong = parse(text).unwrap_err();
            assert!(wrong.contains(told) && wrong.lines().count() == 1, "{wrong}");
        }
    }
}
