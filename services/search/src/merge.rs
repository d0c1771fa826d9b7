//! Merges several segments into one, in batches, while searches go on.

use super::postings::{Posting, PostingList};
use super::segment::{Layout, Segment, SegmentData};
use leeward_runtime::tasks::yield_now;
use std::collections::VecDeque;
use std::sync::Arc;

/// Terms that are read under a segment's lock at once.
const BATCH: usize = 256;

/// Returns whether the last segments have equal magnitude and are enough to be merged.
///
/// `sizes` has the number of documents of each segment.
pub(super) fn is_merge_due(sizes: &[usize], layout: Layout) -> bool {
    let magnitude = |documents: &usize| (documents / layout.seal_at).max(1).ilog(layout.merge_factor);
    match sizes.split_at_checked(sizes.len().wrapping_sub(layout.merge_factor)) {
        Some((_, last)) => last.iter().all(|documents| magnitude(documents) == magnitude(&last[0])),
        None => false,
    }
}

/// A segment during the merge.
struct Source<'a> {
    segment: &'a Segment,
    /// Index of its first document in the new segment.
    offset: u32,
    read: usize,
    next: VecDeque<(Box<str>, PostingList)>,
}

/// Merges neighbouring sealed segments into one, keeping the order of documents.
///
/// The writer never gives up a lock: its work has no deadline, and it takes each lock for a few
/// microseconds.
pub(super) async fn merge(segments: &[Arc<Segment>]) -> Arc<Segment> {
    let first = segments.first().map_or(0, |segment| segment.first);
    let mut norms = Vec::new();
    let mut sources = Vec::with_capacity(segments.len());
    for segment in segments {
        norms.extend_from_slice(segment.data.lock().await.norms());
        sources.push(Source { segment, offset: segment.first - first, read: 0, next: VecDeque::new() });
    }
    let mut terms: Vec<(Box<str>, PostingList)> = Vec::new();
    loop {
        for source in &mut sources {
            if source.next.is_empty() {
                // An empty batch is the end; another call costs little.
                source.next = source.segment.data.lock().await.part(source.read, BATCH).into();
                source.read += source.next.len();
            }
        }
        let Some(term) = sources.iter().filter_map(|source| source.next.front()).map(|(term, _)| term).min() else {
            break;
        };
        let term = term.clone();
        let mut merged = PostingList::default();
        for source in &mut sources {
            if source.next.front().is_some_and(|(next, _)| *next == term)
                && let Some((_, list)) = source.next.pop_front()
            {
                let moved = |posting: Posting| Posting { document: source.offset + posting.document, ..posting };
                list.iter().map(moved).for_each(|posting| merged.push(posting));
            }
        }
        terms.push((term, merged));
        if terms.len().is_multiple_of(BATCH) {
            // Lets the core's other tasks run.
            yield_now().await;
        }
    }
    Segment::new(first, SegmentData::assemble(terms, norms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_is_due_for_enough_segments_of_similar_size() {
        let layout = Layout { segments: 1, seal_at: 10, merge_factor: 3 };
        let check = |sizes: &[usize]| is_merge_due(sizes, layout);
        assert!(!check(&[]) && !check(&[10, 10]));
        assert!(check(&[10, 10, 10]) && check(&[300, 10, 10, 10]) && check(&[5, 10, 20]));
        assert!(!check(&[30, 10, 10]));
        assert!(check(&[30, 30, 89]) && !check(&[30, 30, 90]));
    }
}
