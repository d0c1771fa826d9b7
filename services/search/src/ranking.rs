//! The matching documents of a search, and the best of them. Belongs to one request; nothing is
//! shared.

use super::postings::LocalId;
use super::query::MatchMode;
use super::score::Score;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Documents of one segment that match the words so far, in order, with their scores.
#[derive(Debug, Default)]
pub(super) struct MatchSet {
    documents: Vec<(LocalId, Score)>,
    spare: Vec<(LocalId, Score)>,
    has_terms: bool,
}

impl MatchSet {
    /// Resets the set for a segment's first word.
    pub(super) fn clear(&mut self) {
        self.documents.clear();
        self.has_terms = false;
    }

    /// Adds the documents of one more word.
    pub(super) fn add(&mut self, matching: MatchMode, postings: impl Iterator<Item = (LocalId, Score)>) {
        if !self.has_terms {
            self.has_terms = true;
            self.documents.extend(postings);
            return;
        }
        self.spare.clear();
        match matching {
            MatchMode::Any => self.unite(postings),
            MatchMode::All => self.intersect(postings),
        }
        std::mem::swap(&mut self.documents, &mut self.spare);
    }

    fn unite(&mut self, postings: impl Iterator<Item = (LocalId, Score)>) {
        let mut known = self.documents.iter().copied().peekable();
        for (document, score) in postings {
            while let Some(before) = known.next_if(|(before, _)| *before < document) {
                self.spare.push(before);
            }
            let mut sum = score;
            if let Some((_, other)) = known.next_if(|(before, _)| *before == document) {
                sum += other;
            }
            self.spare.push((document, sum));
        }
        self.spare.extend(known);
    }

    fn intersect(&mut self, postings: impl Iterator<Item = (LocalId, Score)>) {
        let mut known = self.documents.iter().copied().peekable();
        for (document, score) in postings {
            while known.next_if(|(before, _)| *before < document).is_some() {}
            match known.peek() {
                None => break,
                Some((before, other)) if *before == document => {
                    let mut sum = score;
                    sum += *other;
                    self.spare.push((document, sum));
                }
                Some(_) => {}
            }
        }
    }

    /// Returns the documents, in order.
    pub(super) fn documents(&self) -> &[(LocalId, Score)] {
        &self.documents
    }
}

/// The best `results` documents: by score, and among equals those with the lower number.
#[derive(Debug)]
pub(super) struct TopHits {
    /// The worst of them is on top.
    heap: BinaryHeap<Reverse<(Score, Reverse<u32>)>>,
    results: usize,
    matches: u64,
}

impl TopHits {
    pub(super) fn new(results: usize) -> Self {
        TopHits { heap: BinaryHeap::with_capacity(results + 1), results, matches: 0 }
    }

    /// Adds the matches of a segment whose first document has the number `first` in the index.
    pub(super) fn add_segment(&mut self, first: u32, matches: &MatchSet) {
        self.matches += matches.documents.len() as u64;
        for (document, score) in &matches.documents {
            let entry = (*score, Reverse(first + document));
            if self.heap.len() < self.results {
                self.heap.push(Reverse(entry));
            } else if let Some(mut worst) = self.heap.peek_mut()
                && entry > worst.0
            {
                *worst = Reverse(entry);
            }
        }
    }

    /// Returns the number of matches, and the best documents in descending order.
    pub(super) fn finish(self) -> (u64, Vec<(u32, Score)>) {
        let sorted = self.heap.into_sorted_vec();
        (self.matches, sorted.into_iter().map(|Reverse((score, Reverse(document)))| (document, score)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type List = BTreeMap<u32, u32>;

    fn lists() -> impl Strategy<Value = Vec<List>> {
        prop::collection::vec(prop::collection::btree_map(0u32..40, 1u32..9, 0..20), 1..5)
    }

    proptest! {
        #[test]
        fn match_sets_equal_plain_sets(lists in lists(), all in any::<bool>()) {
            let matching = if all { MatchMode::All } else { MatchMode::Any };
            let mut matches = MatchSet::default();
            for list in &lists {
                matches.add(matching, list.iter().map(|(document, score)| (*document, Score(*score))));
            }
            let expected: Vec<(u32, Score)> = (0..40)
                .filter_map(|document| {
                    let scores: Vec<u32> = lists.iter().filter_map(|list| list.get(&document).copied()).collect();
                    let fits = if all { scores.len() == lists.len() } else { !scores.is_empty() };
                    fits.then(|| (document, Score(scores.iter().sum())))
                })
                .collect();
            prop_assert_eq!(matches.documents(), &expected);
        }

        #[test]
        fn top_hits_equal_the_sorted_scores(list in prop::collection::btree_map(0u32..100, 1u32..5, 0..60), results in 1usize..20) {
            let mut matches = MatchSet::default();
            matches.add(MatchMode::Any, list.iter().map(|(document, score)| (*document, Score(*score))));
            let mut top = TopHits::new(results);
            top.add_segment(1_000, &matches);
            let mut sorted: Vec<(u32, Score)> = list.iter().map(|(document, score)| (1_000 + document, Score(*score))).collect();
            sorted.sort_by_key(|(document, score)| (Reverse(*score), *document));
            sorted.truncate(results);
            prop_assert_eq!(top.finish(), (list.len() as u64, sorted));
        }
    }
}
