//! Whose turn it is on a connection: whether a question stands open, from poll to poll.
//!
//! The kernel's times tell the order of a question and an answer, unless both passed within one
//! tick of its clock: so they do where a client asks again as soon as it has its answer. Then, in
//! this order:
//!
//! 1. [`TcpSocket::last_data`]: acknowledgements that came late, or not yet.
//! 2. Acknowledgements between two polls: where none came alone, the peer's data brought the one
//!    of our last data, and came after it.
//! 3. Counts since a poll at which the turn was certain: a question without its usual number of
//!    answer segments is open. The connection's beginning is such a time, too; but so far back
//!    counts tell only where each answer has the same number of segments.
//!
//! Where nothing tells, no question is taken for open: a healthy service looks like that.

mod backends;
mod usual;

#[cfg(test)]
mod tests;

use leeward_sockdiag::{LastData, TcpSocket};

pub(crate) use backends::BackendTurns;
pub(crate) use usual::UsualAnswer;

/// Who asks on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The peer: a client of the program.
    Peer,
    /// The program: a client of its backend.
    Program,
}

/// Most questions after which answers of various sizes still tell whether one is missing.
const NEAR: u32 = 8;

/// Follows one connection.
#[derive(Debug, Default)]
pub(crate) struct TurnTracker {
    last: Option<Counts>,
    certain: Certain,
}

/// Segments with questions and with answers so far, and acknowledgements alone.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    questions: u32,
    answers: u32,
    sent: u32,
    acknowledgements: u32,
}

/// A time at which the turn was certain. By default it is the connection's beginning.
#[derive(Debug, Default)]
struct Certain {
    questions: u32,
    answers: u32,
    is_open: bool,
    is_seen: bool,
}

impl TurnTracker {
    /// Takes the connection's state, and returns whether a question stands open on it.
    pub(crate) fn observe(&mut self, socket: &TcpSocket, asker: Asker, usual: &mut UsualAnswer) -> bool {
        let now = Counts::of(socket, asker);
        // Another connection between the same addresses.
        if self.last.is_some_and(|last| now.questions < last.questions || now.answers < last.answers) {
            *self = TurnTracker::default();
        }
        let last = self.last.replace(now);
        if let Some(last) = last {
            usual.learn(now.questions - last.questions, now.answers - last.answers);
        }
        let order = match socket.last_data() {
            LastData::Unknown if last.is_some_and(|last| brought_by_data(&last, &now)) => LastData::Received,
            order => order,
        };
        let is_open = match order {
            LastData::Unknown => return self.is_open_by_counts(now, usual),
            LastData::None => false,
            LastData::Received => asker == Asker::Peer,
            LastData::Sent => asker == Asker::Program,
        };
        self.certain = Certain { questions: now.questions, answers: now.answers, is_open, is_seen: true };
        is_open
    }

    fn is_open_by_counts(&self, now: Counts, usual: &mut UsualAnswer) -> bool {
        let Certain { questions, answers, is_open, is_seen } = self.certain;
        let (questions, answers) = (now.questions - questions, now.answers - answers);
        if questions == 0 && answers == 0 {
            return is_open;
        }
        if !is_seen {
            usual.compare(questions, answers);
        }
        let Some(size) = usual.segments() else { return false };
        let expected = size * (f64::from(questions) + f64::from(u8::from(is_open)));
        let missing = expected - f64::from(answers);
        if is_seen && questions <= NEAR {
            return missing >= size / 2.0;
        }
        // One answer is missing as a whole. A question of several segments may be under way.
        let is_one = if size >= 1.0 { (missing - size).abs() < 0.01 } else { (0.01..1.01).contains(&missing) };
        usual.is_constant() && is_one
    }
}

impl Counts {
    fn of(socket: &TcpSocket, asker: Asker) -> Counts {
        let (received, sent) = (socket.segments_received, socket.segments_sent.saturating_sub(socket.retransmitted));
        let (questions, answers) = match asker {
            Asker::Peer => (received, sent),
            Asker::Program => (sent, received),
        };
        Counts { questions, answers, sent, acknowledgements: socket.acknowledgements }
    }
}

/// Whether the peer's data acknowledged all that was sent since the last poll. Asked where all has
/// been acknowledged.
fn brought_by_data(last: &Counts, now: &Counts) -> bool {
    now.sent != last.sent && now.acknowledgements == last.acknowledgements
}
