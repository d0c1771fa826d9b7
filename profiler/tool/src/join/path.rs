//! Critical path of a request: at each moment either the request's own work, or the call to
//! another process for which it waits.
//!
//! Does not know the other processes.

use crate::format::context::RemoteCall;

/// A piece of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Index of the call for which the request waits; `None` for its own work.
    pub(super) call: Option<usize>,
    /// Duration in nanoseconds.
    pub(super) nanos: u64,
}

/// Divides the time from `start` to `end`, from its end backwards.
///
/// Among calls at the same time the one that is answered last counts: without it the request would
/// have ended earlier. Calls without an answer last until `end`.
pub(super) fn critical_path(start: u64, end: u64, calls: &[RemoteCall]) -> Vec<Piece> {
    let answered = |call: &RemoteCall| call.answered.unwrap_or(end).min(end);
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(answered(&calls[*index])), calls[*index].sent));
    let (mut pieces, mut now) = (Vec::new(), end);
    for index in order {
        let (sent, until) = (calls[index].sent.max(start), answered(&calls[index]).min(now));
        if sent >= until {
            continue;
        }
        if now > until {
            pieces.push(Piece { call: None, nanos: now - until });
        }
        pieces.push(Piece { call: Some(index), nanos: until - sent });
        now = sent;
    }
    if now > start {
        pieces.push(Piece { call: None, nanos: now - start });
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(sent: u64, answered: u64) -> RemoteCall {
        RemoteCall { span: 1, peer: 0, sent, answered: Some(answered) }
    }

    fn path(calls: &[RemoteCall]) -> Vec<(Option<usize>, u64)> {
        critical_path(100, 200, calls).iter().map(|piece| (piece.call, piece.nanos)).collect()
    }

    #[test]
    fn calls_one_after_the_other_alternate_with_own_work() {
        assert_eq!(
            path(&[call(110, 130), call(150, 160)]),
            [(None, 40), (Some(1), 10), (None, 20), (Some(0), 20), (None, 10)]
        );
    }

    #[test]
    fn of_calls_at_the_same_time_the_last_answered_counts() {
        assert_eq!(path(&[call(110, 130), call(110, 190)]), [(None, 10), (Some(1), 80), (None, 10)]);
        // The first call is awaited until the second one is sent.
        assert_eq!(path(&[call(110, 160), call(150, 190)]), [(None, 10), (Some(1), 40), (Some(0), 40), (None, 10)]);
    }

    #[test]
    fn calls_without_an_answer_last_until_the_end() {
        assert_eq!(path(&[RemoteCall { answered: None, ..call(150, 0) }]), [(Some(0), 50), (None, 50)]);
    }

    proptest! {
        #[test]
        fn each_moment_counts_once(raw in prop::collection::vec((0_u64..300, 0_u64..300), 0..30)) {
            let calls: Vec<RemoteCall> = raw.into_iter().map(|(sent, answered)| call(sent, answered)).collect();
            let total: u64 = critical_path(100, 200, &calls).iter().map(|piece| piece.nanos).sum();
            prop_assert_eq!(total, 100);
        }
    }
}
