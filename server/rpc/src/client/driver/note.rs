//! A connection's event about one call, kept until the connection is not borrowed any more.

use leeward_core::client::LocalEnd;
use leeward_core::units::Nanos;

use crate::client::{Disconnected, Event};
use crate::wire::{DropReason, FailureCode, PayloadLimit};

pub(super) struct Note {
    /// Of which call.
    pub(super) number: u64,
    /// From which connection.
    pub(super) link: usize,
    pub(super) end: End,
}

/// How a call has ended at a connection, which need not be its end.
pub(super) enum End {
    Completed { payload: Vec<u8>, round_trip: Nanos, sojourn: Nanos },
    Dropped { reason: DropReason, words: String, retry_after: Nanos, round_trip: Nanos },
    Failed { code: FailureCode, words: String },
    Local(LocalEnd),
    TooLong(PayloadLimit),
    Disconnected(Disconnected),
}

impl Note {
    /// Takes down a connection's events.
    pub(super) fn writer(link: usize, notes: &mut Vec<Note>) -> impl FnMut(Event<'_, u64>) {
        move |event| {
            let number = *event.token();
            let end = match event {
                Event::Completed { payload, round_trip, sojourn, .. } => {
                    End::Completed { payload: payload.to_vec(), round_trip, sojourn }
                }
                Event::Dropped { reason, message, retry_after, round_trip, .. } => {
                    End::Dropped { reason, words: message.as_str().to_string(), retry_after, round_trip }
                }
                Event::Failed { code, message, .. } => End::Failed { code, words: message.as_str().to_string() },
                Event::Ended { end, .. } => End::Local(end),
                Event::TooLong { limit, .. } => End::TooLong(limit),
                Event::Disconnected { at, .. } => End::Disconnected(at),
            };
            notes.push(Note { number, link, end });
        }
    }
}
