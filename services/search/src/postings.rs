//! Compressed posting lists: the documents of a segment that contain a term, in order, with counts.

/// A document's number within its segment, from 0.
pub(super) type LocalId = u32;

/// A term in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Posting {
    /// The document.
    pub(super) document: LocalId,
    /// Number of occurrences in the document (≥ 1).
    pub(super) count: u32,
}

/// A compressed list of postings.
///
/// A posting is the distance from the previous document, and the count unless it is 1, as
/// variable-length integers: 1 to 3 bytes for nearly all.
#[derive(Clone, Debug, Default)]
pub(super) struct PostingList {
    bytes: Vec<u8>,
    length: u32,
    /// The least document number that may follow.
    next: LocalId,
}

impl PostingList {
    /// Appends a posting; documents must be in ascending order, and others are ignored.
    pub(super) fn push(&mut self, posting: Posting) {
        let Some(distance) = posting.document.checked_sub(self.next) else {
            debug_assert!(false, "documents come in order");
            return;
        };
        // The lowest bit marks a count of 1, which two postings of three have.
        let once = posting.count == 1;
        self.write(u64::from(distance) << 1 | u64::from(once));
        if !once {
            self.write(posting.count.into());
        }
        self.length += 1;
        self.next = posting.document.saturating_add(1);
    }

    fn write(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Returns the number of postings.
    pub(super) fn len(&self) -> usize {
        self.length as usize
    }

    /// Iterates over the postings, in order.
    pub(super) fn iter(&self) -> Postings<'_> {
        Postings { bytes: &self.bytes, next: 0 }
    }
}

/// Decodes a [`PostingList`].
pub(super) struct Postings<'a> {
    bytes: &'a [u8],
    next: LocalId,
}

impl Postings<'_> {
    fn read(&mut self) -> Option<u64> {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }
}

impl Iterator for Postings<'_> {
    type Item = Posting;

    fn next(&mut self) -> Option<Posting> {
        let head = self.read()?;
        let count = if head & 1 == 1 { 1 } else { self.read()? as u32 };
        let document = self.next + (head >> 1) as u32;
        self.next = document.saturating_add(1);
        Some(Posting { document, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn posting_lists_round_trip(
            documents in prop::collection::btree_map(any::<u32>(), prop_oneof![Just(1), 1..5u32, any::<u32>().prop_map(|n| n.max(1))], 0..60)
        ) {
            let mut list = PostingList::default();
            let postings: Vec<Posting> =
                documents.into_iter().map(|(document, count)| Posting { document, count }).collect();
            postings.iter().for_each(|posting| list.push(*posting));
            prop_assert_eq!(list.len(), postings.len());
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), postings);
        }
    }
}
