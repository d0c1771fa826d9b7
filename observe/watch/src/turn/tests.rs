//! A connection as the kernel counts it, and what the tracker says of it.

use std::time::Duration;

use leeward_sockdiag::TcpState;
use proptest::prelude::*;

use super::*;

/// Milliseconds of the kernel's clock tick, and of its delay before it acknowledges alone.
const TICK: u64 = 4;
const DELAY: u64 = 40;

/// The program's side of a connection to a client.
#[derive(Clone, Debug, Default)]
struct Connection {
    received: u32,
    sent: u32,
    acknowledgements: u32,
    unacknowledged: u32,
    /// Milliseconds at which data came and went, and an acknowledgement came.
    received_at: u64,
    sent_at: u64,
    acknowledged_at: u64,
    is_open: bool,
}

impl Connection {
    /// The peer acknowledges alone what stands unacknowledged for long.
    fn advance(&mut self, at: u64) {
        if self.unacknowledged > 0 && at >= self.sent_at + DELAY {
            self.acknowledge(self.sent_at + DELAY);
        }
    }

    fn acknowledge(&mut self, at: u64) {
        self.acknowledgements += 1;
        (self.unacknowledged, self.acknowledged_at) = (0, at);
    }

    fn question(&mut self, at: u64, segments: u32) {
        self.advance(at);
        if self.unacknowledged > 0 {
            (self.unacknowledged, self.acknowledged_at) = (0, at);
        }
        self.received += segments;
        (self.received_at, self.is_open) = (at, true);
    }

    /// A client's kernel acknowledges at once where its program does not answer in time.
    fn answer(&mut self, at: u64, segments: u32, is_acknowledged_at_once: bool) {
        self.advance(at);
        self.sent += segments;
        self.unacknowledged += segments;
        (self.sent_at, self.is_open) = (at, false);
        if is_acknowledged_at_once {
            self.acknowledge(at);
        }
    }

    fn seen(&mut self, at: u64) -> TcpSocket {
        self.advance(at);
        let since = |then: u64| Duration::from_millis(TICK * (at / TICK - then / TICK));
        TcpSocket {
            local: "127.0.0.1:80".parse().unwrap(),
            peer: "127.0.0.1:4000".parse().unwrap(),
            state: TcpState::Established,
            inode: 1,
            unread: 0,
            unsent: 100 * self.unacknowledged,
            since_received: since(self.received_at),
            since_sent: since(self.sent_at),
            since_acknowledged: since(self.acknowledged_at),
            bytes_received: u64::from(self.received) * 100,
            segments_received: self.received,
            segments_sent: self.sent,
            acknowledgements: self.acknowledgements,
            retransmitted: 0,
        }
    }
}

/// The same connection from the client's side.
fn mirrored(connection: &Connection) -> Connection {
    Connection { received: connection.sent, sent: connection.received, unacknowledged: 0, ..connection.clone() }
}

/// A connection of `questions` and `answers` segments, the last of both long ago within one tick,
/// all acknowledged at once.
fn ambiguous(questions: u32, answers: u32) -> Connection {
    Connection { received: questions, sent: answers, acknowledgements: answers + 1, ..Connection::default() }
}

/// Looks at connections twice; returns which of them have an open question.
fn open_of(connections: &[Connection], asker: Asker) -> Vec<bool> {
    let mut usual = UsualAnswer::default();
    let mut trackers: Vec<TurnTracker> = connections.iter().map(|_| TurnTracker::default()).collect();
    let mut open = Vec::new();
    for at in [5_000, 5_050] {
        let both = connections.iter().zip(&mut trackers);
        open = both
            .map(|(connection, tracker)| tracker.observe(&connection.clone().seen(at), asker, &mut usual))
            .collect();
        usual.end_poll();
    }
    open
}

#[test]
fn counts_tell_whether_an_answer_is_missing_where_all_have_as_many_segments() {
    for (counts, open) in [
        (&[(7, 7)][..], &[false][..]),
        (&[(8, 7)], &[true]),
        (&[(20, 60)], &[false]),
        (&[(20, 57)], &[true]),
        // Answers of two segments whose clients asked again at once.
        (&[(3, 4), (2, 2)], &[true, true]),
        (&[(3, 4), (2, 4), (2, 2), (4, 6)], &[true, false, true, true]),
        // One segment for the first two, or two for one of them: nobody knows.
        (&[(2, 2)], &[false]),
        (&[(2, 1), (3, 2)], &[true, true]),
        (&[(2, 1), (6, 3), (8, 3)], &[false, false, true]),
        // Answers of various sizes.
        (&[(5, 8), (6, 8), (9, 11), (40, 57), (7, 12)], &[false; 5]),
    ] {
        let connections: Vec<Connection> =
            counts.iter().map(|(asked, answered)| ambiguous(*asked, *answered)).collect();
        assert_eq!(open_of(&connections, Asker::Peer), open, "{counts:?}");
        let connections: Vec<Connection> = connections.iter().map(mirrored).collect();
        assert_eq!(open_of(&connections, Asker::Program), open, "{counts:?}, to a backend");
    }
}

#[test]
fn an_acknowledgement_that_came_with_data_says_that_the_data_came_last() {
    let (mut usual, mut tracker, mut connection) = <(UsualAnswer, TurnTracker, Connection)>::default();
    connection.question(100, 1);
    assert!(tracker.observe(&connection.seen(110), Asker::Peer, &mut usual));
    connection.answer(200, 3, false);
    connection.question(200, 1);
    assert!(tracker.observe(&connection.seen(900), Asker::Peer, &mut usual));
}

#[test]
fn questions_of_two_segments_are_answered_by_one() {
    let (mut usual, mut tracker) = <(UsualAnswer, TurnTracker)>::default();
    let mut connection = ambiguous(20, 10);
    for at in (400..8_000).step_by(400) {
        assert!(!tracker.observe(&connection.seen(at - 10), Asker::Peer, &mut usual), "at {at} ms");
        connection.question(at, 2);
        connection.answer(at, 1, true);
        usual.end_poll();
    }
}

#[test]
fn long_answers_of_some_connections_make_no_question_of_others_open() {
    let mut usual = UsualAnswer::default();
    let mut trackers: [TurnTracker; 8] = Default::default();
    let mut connections: [Connection; 8] = Default::default();
    for at in (100..9_000).step_by(100) {
        for (number, (connection, tracker)) in connections.iter_mut().zip(&mut trackers).enumerate() {
            // One request takes a moment, so that the turn is certain then.
            connection.question(at, 1);
            connection.answer(at + if at == 100 { 9 } else { 0 }, if number < 2 { 60 } else { 1 }, true);
            assert!(!tracker.observe(&connection.seen(at + 90), Asker::Peer, &mut usual), "{number} at {at} ms");
        }
        usual.end_poll();
    }
}

#[test]
fn a_look_between_the_two_segments_of_an_answer_leaves_the_next_question_open() {
    let (mut usual, mut tracker, mut connection) = <(UsualAnswer, TurnTracker, Connection)>::default();
    usual.compare(5, 10, Some(false));
    usual.end_poll();
    connection.question(100, 1);
    for at in (400..4_000).step_by(400) {
        // The second waits for the acknowledgement of the first, and the client for both.
        connection.answer(at, 1, false);
        assert!(!tracker.observe(&connection.seen(at + 20), Asker::Peer, &mut usual), "at {at} ms");
        connection.answer(at + DELAY, 1, true);
        connection.question(at + DELAY, 1);
        assert!(tracker.observe(&connection.seen(at + 300), Asker::Peer, &mut usual), "at {at} ms");
    }
}

#[test]
fn the_turn_stays_as_it_was_where_answers_have_various_sizes() {
    let mut usual = UsualAnswer::default();
    let mut starved = (Connection::default(), TurnTracker::default());
    starved.0.question(100, 1);
    assert!(starved.1.observe(&starved.0.seen(150), Asker::Peer, &mut usual));
    for (number, at) in (400..3_000).step_by(400).enumerate() {
        starved.0.answer(at, 1 + number as u32 % 3, true);
        starved.0.question(at, 1);
        assert!(starved.1.observe(&starved.0.seen(at + 300), Asker::Peer, &mut usual), "at {at} ms");
    }
}

#[test]
fn a_new_connection_between_the_same_addresses_begins_anew() {
    let (mut usual, mut tracker) = <(UsualAnswer, TurnTracker)>::default();
    tracker.observe(&ambiguous(30, 30).seen(5_000), Asker::Peer, &mut usual);
    let mut connection = Connection::default();
    connection.question(5_500, 1);
    assert!(tracker.observe(&connection.seen(5_600), Asker::Peer, &mut usual));
}

#[derive(Clone, Copy, Debug)]
struct Step {
    thinks_ms: u64,
    serves_ms: u64,
    is_acknowledged_at_once: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let thinks = prop_oneof![4 => Just(0), 1 => 1..8_u64, 1 => 30..900_u64];
    let serves = prop_oneof![1 => Just(0), 1 => 1..8_u64, 2 => 30..900_u64];
    let step = (thinks, serves, any::<bool>());
    let step = step.prop_map(|(thinks_ms, serves_ms, is_acknowledged_at_once)| Step {
        thinks_ms,
        serves_ms,
        is_acknowledged_at_once,
    });
    proptest::collection::vec(step, 1..30)
}

/// Runs the steps, and calls `look` every 50 ms with the connection and the time.
fn run(steps: &[Step], segments: impl Fn(usize) -> (u32, u32), mut look: impl FnMut(&mut Connection, u64)) {
    let (mut connection, mut now, mut next) = (Connection::default(), 0, 7);
    let mut until = |connection: &mut Connection, now: u64| {
        while next <= now {
            look(connection, next);
            next += 50;
        }
    };
    for (number, step) in steps.iter().enumerate() {
        let (asks, answers) = segments(number);
        now += step.thinks_ms;
        until(&mut connection, now.saturating_sub(1));
        connection.question(now, asks);
        now += step.serves_ms;
        until(&mut connection, now.saturating_sub(1));
        connection.answer(now, answers, step.is_acknowledged_at_once);
    }
    until(&mut connection, now + 400);
}

proptest! {
    /// What one dump tells is true, whatever the sizes.
    #[test]
    fn one_dump_is_never_wrong(steps in steps(), sizes in proptest::collection::vec((1..4_u32, 1..5_u32), 30)) {
        run(&steps, |number| sizes[number], |connection, at| {
            let is_open = match connection.seen(at).last_data() {
                LastData::Unknown | LastData::None => connection.is_open,
                order => order == LastData::Received,
            };
            assert_eq!(is_open, connection.is_open, "at {at} ms: {connection:?}");
        });
    }

    /// Where all questions and answers have as many segments, the turn is always known, from the
    /// connection's beginning on or from later.
    #[test]
    fn answers_of_one_size_are_all_found(steps in steps(), asks in 1..3_u32, answers in 1..4_u32, skipped in 0..40_u64) {
        // A service is of this kind if its answers or its questions fit into one segment.
        prop_assume!(asks == 1 || answers == 1);
        let (mut usual, mut tracker) = <(UsualAnswer, TurnTracker)>::default();
        usual.compare(5 * asks, 5 * answers, Some(false));
        usual.end_poll();
        run(&steps, |_| (asks, answers), |connection, at| {
            if at >= 50 * skipped {
                let socket = connection.seen(at);
                assert_eq!(tracker.observe(&socket, Asker::Peer, &mut usual), connection.is_open, "at {at} ms: {connection:?}");
            }
        });
    }
}
