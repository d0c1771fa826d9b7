//! A connection's event about one call, kept until the connection is not borrowed any more.

use leeward_core::client::LocalOutcome;
use leeward_core::units::Nanos;

use crate::client::{Event, RequestStage};
use crate::wire::{FailureCode, PayloadLimit, RejectCode};

pub(super) struct CallEvent {
    /// Of which call.
    pub(super) number: u64,
    /// From which connection.
    pub(super) link: usize,
    pub(super) outcome: LinkOutcome,
}

/// How a call has ended at a connection, which need not be its end.
pub(super) enum LinkOutcome {
    Completed { payload: Vec<u8>, round_trip: Nanos, sojourn: Nanos },
    Rejected { reason: RejectCode, words: String, retry_after: Nanos, round_trip: Nanos },
    Failed { code: FailureCode, words: String },
    Local(LocalOutcome),
    TooLong(PayloadLimit),
    Disconnected(RequestStage),
}

impl CallEvent {
    /// Takes down a connection's events.
    pub(super) fn recorder(link: usize, notes: &mut Vec<CallEvent>) -> impl FnMut(Event<'_, u64>) {
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
            notes.push(CallEvent { number, link, outcome: end });
        }
    }
}
