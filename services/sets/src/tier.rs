//! The mid-tier: removes stop words, asks every leaf, and concatenates their lists.

use crate::stop::StopWords;
use crate::wire::{ALL, RESULT_MAX, SearchResult, append_words, read_words};
use leeward_rpc::server::{HandlerError, Request};
use leeward_rpc::tier::{Calls, GatherCondition, MidTier, Replies, Reply, RequiredLeaves, Step};
use std::sync::Arc;

/// Part of the leaves that is worth an answer: a list of half of the documents.
const ENOUGH_PERCENT: u8 = 50;

/// The mid-tier. Its leaves hold ranges of documents, in the order of the leaves.
#[derive(Clone, Debug)]
pub struct Sets {
    stop: Arc<StopWords>,
}

impl Sets {
    /// Creates a mid-tier that removes these words from queries.
    pub fn new(stop: StopWords) -> Self {
        Sets { stop: Arc::new(stop) }
    }
}

impl MidTier for Sets {
    type State = ();

    fn required_leaves(&self, _: &Request<'_>, required: &mut RequiredLeaves<'_>) {
        required.all();
        required.at_least(ENOUGH_PERCENT);
    }

    fn begin(
        &self,
        request: &Request<'_>,
        (): &mut (),
        calls: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        if request.method != ALL {
            return Err(HandlerError::UnknownMethod);
        }
        let words = read_words(request.payload)?.filter(|word| !self.stop.contains(word));
        if words.clone().next().is_none() {
            // Without words no leaf is asked, and the result is empty.
            reply.extend_from_slice(&[0; 6]);
            return Ok(Step::Done);
        }
        for leaf in calls.leaves() {
            calls.call(leaf, ALL, |argument| append_words(words.clone(), argument)).repeatable();
        }
        Ok(Step::Gather(GatherCondition::AtLeast { percent: ENOUGH_PERCENT }))
    }

    fn resume(
        &self,
        (): &mut (),
        replies: &Replies<'_>,
        _: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        let lists = || {
            replies.iter().filter_map(|answer| match answer {
                // A malformed answer counts as missing.
                Reply::Result(bytes) => SearchResult::read(bytes),
                _ => None,
            })
        };
        let (answered, total) =
            lists().fold((0, 0u32), |(answered, total), list| (answered + 1, u32::saturating_add(total, list.total)));
        // A tier has at most 255 leaves (`Leaves`).
        reply.extend_from_slice(&[replies.len() as u8, answered]);
        reply.extend_from_slice(&total.to_le_bytes());
        reply.extend(lists().flat_map(|list| list.ids()).take(RESULT_MAX).flat_map(u32::to_le_bytes));
        Ok(Step::Done)
    }
}
