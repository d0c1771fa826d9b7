//! A share of the documents, indexed by word: the lists to intersect. Does not contain the choice
//! of words.

use crate::data::Documents;
use crate::intersect;
use std::collections::HashMap;
use std::ops::Range;

/// Lists of documents by word, ascending.
#[derive(Clone, Debug, Default)]
pub struct Postings {
    lists: HashMap<Box<str>, Vec<u32>>,
}

impl Postings {
    /// Indexes the documents with these numbers.
    pub fn build(data: &Documents, numbers: Range<u32>) -> Self {
        let mut postings = Postings::default();
        data.words(numbers, |number, word| postings.add(number, word));
        postings.lists.values_mut().for_each(Vec::shrink_to_fit);
        postings
    }

    fn add(&mut self, number: u32, word: &str) {
        let list = match self.lists.get_mut(word) {
            Some(list) => list,
            None => self.lists.entry(word.into()).or_default(),
        };
        // Documents arrive in order, so a repeated word's document is the last entry.
        if list.last() != Some(&number) {
            list.push(number);
        }
    }

    /// Returns the number of different words.
    pub fn words(&self) -> usize {
        self.lists.len()
    }

    /// Returns the documents with this word.
    pub fn list(&self, word: &[u8]) -> &[u32] {
        let list = std::str::from_utf8(word).ok().and_then(|word| self.lists.get(word));
        list.map_or(&[], Vec::as_slice)
    }

    /// Puts the documents with all of these words into `found`; empty without words.
    pub fn with_all<'a>(&self, words: impl Iterator<Item = &'a [u8]>, found: &mut Vec<u32>) {
        let mut lists: Vec<&[u32]> = words.map(|word| self.list(word)).collect();
        intersect::all(&mut lists, found);
    }
}
