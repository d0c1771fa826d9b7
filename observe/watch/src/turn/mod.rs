//! Whose turn it is on a connection: whether a question stands open, from poll to poll.
//!
//! The kernel's times tell the order of a question and an answer, unless both passed within one
//! tick of its clock: so they do where a client asks again as soon as it has its answer. Then, in
//! this order:
//!
//! 1. [`TcpSocket::last_data`]: acknowledgements that came late, or not yet.
//! 2. Acknowledgements between two polls: where none came alone, the peer's data brought the one
//!    of our last data, and came after it.
//! 3. Counts since the connection's beginning, if one number of segments per answer explains those
//!    of most connections: a question is open if exactly that many are missing. Where they explain
//!    not this one, the counts since a poll at which the turn was certain.
//! 4. Where answers have various sizes, the turn stays as it was: each answer may have been
//!    followed by a question, or each question by an answer.
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

/// Most questions after which a poll at which the turn was certain is near. An answer of another
/// size among them is unlikely; further back, only exact counts tell.
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
        let order = match socket.last_data() {
            LastData::Unknown if last.is_some_and(|last| brought_by_data(&last, &now)) => LastData::Received,
            order => order,
        };
        let is_open = match order {
            LastData::Unknown => {
                usual.compare(now.questions, now.answers, None);
                return self.is_open_by_counts(now, usual);
            }
            LastData::None => return false,
            LastData::Received => asker == Asker::Peer,
            LastData::Sent => asker == Asker::Program,
        };
        usual.compare(now.questions, now.answers, Some(is_open));
        self.certain = Certain { questions: now.questions, answers: now.answers, is_open, is_seen: true };
        is_open
    }

    fn is_open_by_counts(&self, now: Counts, usual: &UsualAnswer) -> bool {
        let Certain { questions, answers, is_open, is_seen } = self.certain;
        let (questions, answers) = (now.questions - questions, now.answers - answers);
        if questions == 0 && answers == 0 {
            return is_open;
        }
        let is_near = is_seen && questions <= NEAR;
        let Some(size) = usual.segments() else { return is_near && is_open && questions > 0 };
        // A question of several segments has one answer.
        let whole = size.max(1.0);
        let missing = size * f64::from(now.questions) - f64::from(now.answers);
        if missing.abs() < 0.01 || (missing - whole).abs() < 0.01 {
            return missing > 0.01;
        }
        let owed = size * f64::from(questions) + if is_open { whole } else { 0.0 };
        is_near && owed - f64::from(answers) > whole - 0.01
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
