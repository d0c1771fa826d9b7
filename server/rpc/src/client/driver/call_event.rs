//! Event of a connection about one call, kept until the borrow of the connection ends.

use leeward_core::client::LocalOutcome;
use leeward_core::units::Nanos;

use crate::client::{Event, RequestStage};
use crate::wire::{FailureCode, PayloadLimit, RejectCode};

pub(super) struct CallEvent {
    /// Number of the call.
    pub(super) number: u64,
    /// Index of the connection.
    pub(super) link: usize,
    pub(super) outcome: LinkOutcome,
}

/// Outcome of a call at one connection, which need not be the call's final outcome.
pub(super) enum LinkOutcome {
    Completed { payload: Vec<u8>, round_trip: Nanos, sojourn: Nanos },
    Rejected { reason: RejectCode, words: String, retry_after: Nanos, round_trip: Nanos },
    Failed { code: FailureCode, words: String },
    Local(LocalOutcome),
    TooLong(PayloadLimit),
    Disconnected(RequestStage),
}

impl CallEvent {
    /// Records a connection's events in `events`.
    pub(super) fn recorder(link: usize, events: &mut Vec<CallEvent>) -> impl FnMut(Event<'_, u64>) {
        move |event| {
            let number = *event.token();
            let end = match event {
                Event::Completed { payload, round_trip, sojourn, .. } => {
                    LinkOutcome::Completed { payload: payload.to_vec(), round_trip, sojourn }
                }
                Event::Rejected { reason, message, retry_after, round_trip, .. } => {
                    LinkOutcome::Rejected { reason, words: message.as_str().to_string(), retry_after, round_trip }
                }
                Event::Failed { code, message, .. } => {
                    LinkOutcome::Failed { code, words: message.as_str().to_string() }
                }
                Event::EndedLocally { end, .. } => LinkOutcome::Local(end),
                Event::TooLong { limit, .. } => LinkOutcome::TooLong(limit),
                Event::Disconnected { stage: at, .. } => LinkOutcome::Disconnected(at),
            };
            events.push(CallEvent { number, link, outcome: end });
        }
    }
}
