//! The mid-tier: asks every leaf, and averages the predictions of the leaves that know both.

use crate::wire::{self, PREDICT, Query, TierResult};
use leeward_rpc::server::{HandlerError, Request};
use leeward_rpc::tier::{Calls, GatherCondition, MidTier, Replies, Reply, RequiredLeaves, Step};

/// Part of the leaves that is worth an answer: the average of half of the predictions.
const ENOUGH_PERCENT: u8 = 50;

/// The mid-tier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recommend;

impl MidTier for Recommend {
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
        _: &mut Vec<u8>,
    ) -> Result<Step, HandlerError> {
        if request.method != PREDICT {
            return Err(HandlerError::UnknownMethod);
        }
        let query = Query::read(request.payload)?;
        for leaf in calls.leaves() {
            calls.call(leaf, PREDICT, |argument| query.append(argument)).repeatable();
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
        let (mut answered, mut known, mut sum) = (0, 0, 0.0);
        for answer in replies.iter() {
            // A malformed answer counts as missing.
            let Reply::Result(bytes) = answer else { continue };
            let Some(prediction) = wire::read(bytes) else { continue };
            answered += 1;
            if let Some(rating) = prediction {
                known += 1;
                sum += f64::from(rating);
            }
        }
        let prediction = (known > 0).then(|| (sum / f64::from(known)) as f32);
        // A tier has at most 255 leaves (`Leaves`).
        TierResult { asked: replies.len() as u8, answered, prediction }.append(reply);
        Ok(Step::Done)
    }
}
