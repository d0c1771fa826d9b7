//! The mid-tier: drops stop words, asks every leaf, and puts their lists one behind the other.

use crate::stop::StopWords;
use crate::wire::{ALL, RESULT_MAX, SearchResult, append_words, read_words};
use leeward_rpc::server::{HandlerError, Request};
use leeward_rpc::tier::{Calls, GatherCondition, MidTier, Replies, Reply, Step};
use std::sync::Arc;

/// The mid-tier. Its leaves hold ranges of documents, in the order of the leaves.
#[derive(Clone, Debug)]
pub struct Sets {
    stop: Arc<StopWords>,
}

impl Sets {
    /// That leaves these words out of questions.
    pub fn new(stop: StopWords) -> Self {
        Sets { stop: Arc::new(stop) }
    }
}

impl MidTier for Sets {
    type State = ();

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
            // Nothing is asked for, so nobody is asked, and nothing is found.
            reply.extend_from_slice(&[0; 6]);
            return Ok(Step::Done);
        }
        for leaf in calls.leaves() {
            calls.call(leaf, ALL, |argument| append_words(words.clone(), argument)).repeatable();
        }
        Ok(Step::Gather(GatherCondition::All))
    }

    fn resume(
        &self,
        (): &mut (),
        came: &Replies<'_>,
        _: &mut Calls<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        let lists = || {
            came.iter().filter_map(|said| match said {
                // An answer that is none counts as missing.
                Reply::Result(bytes) => SearchResult::read(bytes),
                _ => None,
            })
        };
        let (answered, total) =
            lists().fold((0, 0u32), |(answered, total), list| (answered + 1, u32::saturating_add(total, list.total)));
        // There are fewer leaves than a byte says (`Leaves`).
        reply.extend_from_slice(&[came.len() as u8, answered]);
        reply.extend_from_slice(&total.to_le_bytes());
        reply.extend(lists().flat_map(|list| list.ids()).take(RESULT_MAX).flat_map(u32::to_le_bytes));
        Ok(Step::Done)
    }
}
