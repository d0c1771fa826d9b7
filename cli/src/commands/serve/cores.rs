//! Number of cores of a server: a fixed number, or a range within which an allocator follows the
//! load.

use std::fmt;
use std::str::FromStr;

/// Least and greatest number of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoreRange {
    /// `None`: always `max` cores, or at least one if there is an allocator.
    pub(super) min: Option<u16>,
    pub(crate) max: u16,
}

impl CoreRange {
    /// A fixed number of cores, or the upper end of a range.
    pub(crate) fn up_to(most: u16) -> Self {
        CoreRange { min: None, max: most }
    }
}

impl FromStr for CoreRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |text: &str| text.parse().ok().filter(|number| (1..=128).contains(number));
        let range = match text.split_once("..") {
            None => read(text).map(CoreRange::up_to),
            Some((least, most)) => {
                let range = read(least).zip(read(most)).filter(|(least, most)| least <= most);
                range.map(|(least, most)| CoreRange { min: Some(least), max: most })
            }
        };
        range.ok_or_else(|| "accepted: 1 to 128, or a range such as 1..4".into())
    }
}

impl fmt::Display for CoreRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min {
            Some(least) => write!(f, "{least}..{}", self.max),
            None => write!(f, "{}", self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_written() {
        for (text, least, most) in [("4", None, 4), ("1..4", Some(1), 4), ("128..128", Some(128), 128)] {
            let range: CoreRange = text.parse().unwrap();
            assert_eq!((range.min, range.max), (least, most));
            assert_eq!(range.to_string(), text);
        }
        for wrong in ["", "0", "129", "4..1", "0..4", "1..", "..4", "1...4", "1..129", "-1", "1,4"] {
            assert!(wrong.parse::<CoreRange>().is_err(), "{wrong}");
        }
    }
}
