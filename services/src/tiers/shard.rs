//! Parts of a service's data, and the sizes of synthetic data.

use super::SHARD;
use crate::arguments::Values;
use crate::definition::PrepareError;
use std::ops::Range;

/// A part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of the part, from 0.
    pub index: u32,
    /// Number of parts.
    pub count: u32,
}

impl Shard {
    /// Parses `2/4`, the second of four.
    ///
    /// # Errors
    /// Any other text; the message lists the accepted forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(at, of)| Some((at.parse::<u32>().ok()?, of.parse::<u32>().ok()?)));
        match parts {
            Some((at, of)) if (1..=of).contains(&at) && of <= 255 => Ok(Shard { index: at - 1, count: of }),
            _ => Err("accepted: K/N with K from 1 to N, and N up to 255, such as 2/4".into()),
        }
    }

    /// Parses the argument `--shard`.
    ///
    /// # Errors
    /// The argument can't be parsed.
    pub fn from_values(values: &Values) -> Result<Self, PrepareError> {
        let text = values.text(SHARD.name).or(SHARD.default).unwrap_or_default();
        Shard::parse(text).map_err(|accepted| PrepareError::input(format!("--shard {text}: {accepted}")))
    }

    /// Iterates over all parts of `of`.
    pub fn all(of: u32) -> impl Iterator<Item = Shard> {
        (0..of).map(move |at| Shard { index: at, count: of })
    }

    /// Returns the range of items in this part, of `count` items in all.
    ///
    /// Parts are consecutive ranges, so that an item's number determines its part.
    pub fn range(&self, count: u32) -> Range<u32> {
        let bound = |at: u32| (u64::from(count) * u64::from(at) / u64::from(self.count.max(1))) as u32;
        bound(self.index)..bound(self.index + 1)
    }
}

/// Parses the numbers of `synthetic:3000:1100`, each within its bounds.
///
/// # Errors
/// The message shows `expected`.
pub fn sizes<const N: usize>(text: &str, bounds: [(u64, u64); N], expected: &str) -> Result<[u64; N], String> {
    let error = || format!("`{}`; accepted: {expected}", text.chars().take(60).collect::<String>());
    let mut parts = text.strip_prefix("synthetic:").ok_or_else(error)?.split(':');
    let mut sizes = [0; N];
    for (size, (least, most)) in sizes.iter_mut().zip(bounds) {
        let part = parts.next().and_then(|part| part.parse().ok());
        *size = part.filter(|size| (least..=most).contains(size)).ok_or_else(error)?;
    }
    if parts.next().is_some() { Err(error()) } else { Ok(sizes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_parsed_or_rejected_with_a_message() {
        assert_eq!(Shard::parse("2/4"), Ok(Shard { index: 1, count: 4 }));
        for wrong in ["5/4", "0/4", "1/0", "1", "1/", "-1/4", "1/256", "1/4/2"] {
            assert!(Shard::parse(wrong).unwrap_err().contains("2/4"), "{wrong}");
        }
    }

    #[test]
    fn shards_are_contiguous_and_cover_all_items() {
        for (count, of) in [(0, 3), (1, 4), (1_003, 7), (u32::MAX, 255)] {
            let mut next = 0;
            for part in Shard::all(of) {
                let range = part.range(count);
                assert_eq!(range.start, next);
                next = range.end;
            }
            assert_eq!(next, count);
        }
    }

    #[test]
    fn sizes_are_parsed_or_rejected_with_a_message() {
        let read = |text| sizes(text, [(1, 10), (0, u64::MAX)], "synthetic:N:SEED");
        assert_eq!(read("synthetic:3:18446744073709551615"), Ok([3, u64::MAX]));
        for wrong in ["synthetic", "synthetic:0:1", "synthetic:11:1", "synthetic:1", "synthetic:1:1:1", "other:1:1"] {
            assert!(read(wrong).unwrap_err().ends_with("accepted: synthetic:N:SEED"), "{wrong}");
        }
    }
}
