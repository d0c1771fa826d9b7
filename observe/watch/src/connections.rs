//! Connections of one listener, followed from poll to poll.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use leeward_sockdiag::{AgeBounds, TcpSocket, TcpState, UnixSocket, UnreadTracker};

use crate::poll::FrontPoll;
use crate::turn::{Asker, TurnTracker, UsualAnswer};

/// Most connections that are followed; others are counted, and their ages have no upper bound.
const MAX_FOLLOWED: usize = 200_000;

/// A connection that its peer closed, or whose request was inside, for no longer was not given up.
const ANSWERED: Duration = Duration::from_millis(500);

/// A response that stands unread at the client for longer than this is not the service's fault.
const SLOW_READER: Duration = Duration::from_millis(200);

/// Connections of one listener.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTable {
    tcp: HashMap<(SocketAddr, SocketAddr), Followed>,
    unix: HashMap<u32, FollowedUnix>,
    /// Number of the current poll, by which connections that have gone are told.
    generation: u64,
    /// Connections that the kernel had dropped at the last poll.
    dropped_before: Option<u32>,
    /// Connections that it has dropped, of the sockets that this poll has seen.
    dropped: u32,
    /// Time of the latest poll that saw a connection.
    latest: Duration,
    usual_answer: UsualAnswer,
    front: FrontPoll,
}

/// A connection as the last poll saw it.
#[derive(Debug)]
struct Followed {
    first_seen: Duration,
    /// When its bytes were last seen unread.
    unread_at: Duration,
    generation: u64,
    unread: UnreadTracker,
    turn: TurnTracker,
    bytes_read: u64,
    segments_received: u32,
    segments_sent: u32,
    retransmitted: u32,
    /// Requests that came and have had no response.
    owed: u32,
    /// Whether a request stood there, unread or inside.
    is_waiting: bool,
    is_closed_by_peer: bool,
}

/// A Unix connection as the last poll saw it. The kernel tells no times of these.
#[derive(Debug)]
struct FollowedUnix {
    generation: u64,
    seen: Duration,
    length: u32,
    /// Times of the last poll without unread bytes, and of the first one with them.
    unread_between: Option<(Option<Duration>, Duration)>,
}

impl ConnectionTable {
    /// Begins a poll.
    pub(crate) fn begin(&mut self) {
        self.generation += 1;
        self.front = FrontPoll::default();
        self.dropped = 0;
    }

    /// Takes the listener's accept queue.
    pub(crate) fn accept_queue(&mut self, waiting: u32, limit: u32) {
        self.front.accept_queue += waiting;
        self.front.accept_limit += limit;
    }

    /// Takes the accept queue of a listener that is a Unix socket.
    pub(crate) fn unix_accept_queue(&mut self, waiting: u32, limit: u32) {
        self.front.is_unix = true;
        self.accept_queue(waiting, limit);
    }

    /// Takes the connections that the kernel has dropped since a listening socket was made. Several
    /// sockets may listen on one address.
    pub(crate) fn dropped(&mut self, total: u32) {
        self.dropped = self.dropped.saturating_add(total);
    }

    /// Takes a connection at the time `at`; returns whether a request stands there, unread or
    /// inside.
    pub(crate) fn tcp(&mut self, at: Duration, socket: &TcpSocket) -> bool {
        let front = &mut self.front;
        front.connections += 1;
        let key = (socket.local, socket.peer);
        let is_new = !self.tcp.contains_key(&key);
        if is_new && self.tcp.len() >= MAX_FOLLOWED {
            count_state(
                front,
                socket,
                (socket.unread > 0).then_some(AgeBounds {
                    estimate: socket.since_received,
                    at_least: socket.since_received,
                    at_most: None,
                }),
                socket.is_being_served(),
            );
            return socket.unread > 0 || socket.is_being_served();
        }
        self.latest = at;
        let followed = self.tcp.entry(key).or_insert_with(|| Followed::new(at, socket));
        let age = followed.unread.observe(at, socket);
        let is_open = followed.turn.observe(socket, Asker::Peer, &mut self.usual_answer);
        count_state(front, socket, age, is_open);
        let is_waiting = age.is_some() || is_open;
        followed.is_waiting = is_waiting;
        followed.unread_at = if age.is_some() { at } else { followed.unread_at };
        followed.is_closed_by_peer = socket.state == TcpState::CloseWait;
        let changes = followed.changes(socket);
        followed.generation = self.generation;
        // What a connection did before it was first seen belongs to no poll.
        if !is_new || self.generation > 1 {
            front.bytes_read += changes.bytes_read;
            front.arrivals += u64::from(changes.arrivals);
            front.responses += u64::from(changes.responses);
            front.retransmitted += u64::from(changes.retransmitted);
        }
        is_waiting
    }

    /// Takes an accepted connection of a Unix listener.
    pub(crate) fn unix(&mut self, at: Duration, socket: &UnixSocket) {
        let front = &mut self.front;
        front.connections += 1;
        if self.unix.len() >= MAX_FOLLOWED && !self.unix.contains_key(&socket.inode) {
            front.unread += u32::from(socket.unread > 0);
            front.unread_accepted += u32::from(socket.unread > 0);
            return;
        }
        let generation = self.generation;
        let followed = self.unix.entry(socket.inode).or_insert(FollowedUnix {
            generation,
            seen: at,
            length: 0,
            unread_between: None,
        });
        // Fewer bytes than before: the program reads, and what stands there now came later.
        let was_read = socket.unread < followed.length;
        let last_poll = (followed.generation < generation).then_some(followed.seen);
        if socket.unread == 0 {
            followed.unread_between = None;
        } else if was_read || followed.unread_between.is_none() {
            followed.unread_between = Some((last_poll, at));
        }
        if let Some((earliest, latest)) = followed.unread_between {
            front.unread += 1;
            front.unread_accepted += 1;
            let at_most = earliest.map(|earliest| at.saturating_sub(earliest));
            let at_least = at.saturating_sub(latest);
            let estimate = at_most.map_or(at_least, |at_most| (at_least + at_most) / 2);
            oldest(&mut front.oldest_unread, AgeBounds { estimate, at_least, at_most });
        }
        front.bytes_read += u64::from(followed.length.saturating_sub(socket.unread));
        (followed.generation, followed.seen, followed.length) = (generation, at, socket.unread);
    }

    /// Ends a poll: forgets connections that have gone.
    pub(crate) fn end(&mut self) -> FrontPoll {
        let before = self.dropped_before.replace(self.dropped).unwrap_or(self.dropped);
        self.front.dropped = self.dropped.saturating_sub(before);
        let generation = self.generation;
        // Where each request has a connection of its own, most answers are seen only by its end.
        let has_gone = |followed: &&Followed| followed.generation != generation;
        for followed in self.tcp.values().filter(has_gone) {
            self.front.responses += u64::from(followed.answered_by_end(self.latest));
        }
        self.tcp.retain(|_, followed| followed.generation == generation);
        self.unix.retain(|_, followed| followed.generation == generation);
        self.usual_answer.end_poll();
        std::mem::take(&mut self.front)
    }
}

/// Changes of a connection since the last poll.
struct Changes {
    bytes_read: u64,
    arrivals: u32,
    responses: u32,
    retransmitted: u32,
}

impl Followed {
    fn new(at: Duration, socket: &TcpSocket) -> Followed {
        Followed {
            first_seen: at,
            unread_at: at,
            generation: 0,
            unread: UnreadTracker::default(),
            turn: TurnTracker::default(),
            bytes_read: 0,
            segments_received: 0,
            segments_sent: 0,
            retransmitted: socket.retransmitted,
            owed: 0,
            is_waiting: false,
            is_closed_by_peer: false,
        }
    }

    /// Requests whose answer ended the connection, which has gone at the time `at`.
    ///
    /// A program ends a connection that it has answered, however long the request waited unread.
    /// One that its peer closed first, or whose request was inside for long, may have been given
    /// up: not each poll sees who closed it.
    fn answered_by_end(&self, at: Duration) -> u32 {
        let since = if self.is_closed_by_peer { self.first_seen } else { self.unread_at };
        if at.saturating_sub(since) >= ANSWERED {
            return 0;
        }
        match self.segments_sent {
            0 => self.owed,
            // Former requests may have had more segments than their answers.
            _ => self.owed.min(self.is_waiting.into()),
        }
    }

    /// Takes the counters, and returns their changes.
    ///
    /// A segment with data counts as a request: right where a request fits into one segment. A
    /// response of several segments counts once, since no more can be answered than is owed.
    fn changes(&mut self, socket: &TcpSocket) -> Changes {
        let arrivals = socket.segments_received.wrapping_sub(self.segments_received);
        let sent = socket.segments_sent.wrapping_sub(self.segments_sent);
        self.owed = self.owed.saturating_add(arrivals);
        let responses = sent.min(self.owed);
        self.owed -= responses;
        let changes = Changes {
            bytes_read: socket.bytes_read().saturating_sub(self.bytes_read),
            arrivals,
            responses,
            retransmitted: socket.retransmitted.wrapping_sub(self.retransmitted),
        };
        self.bytes_read = socket.bytes_read();
        self.segments_received = socket.segments_received;
        self.segments_sent = socket.segments_sent;
        self.retransmitted = socket.retransmitted;
        changes
    }
}

/// Counts what a connection waits for. A request is inside if its question is open, and read.
fn count_state(front: &mut FrontPoll, socket: &TcpSocket, unread: Option<AgeBounds>, is_open: bool) {
    if let Some(age) = unread {
        front.unread += 1;
        front.unread_accepted += u32::from(socket.is_accepted());
        oldest(&mut front.oldest_unread, age);
    } else if is_open {
        front.inside += 1;
        front.oldest_inside = front.oldest_inside.max(Some(socket.since_received));
    } else if socket.unsent > 0 && socket.since_sent > SLOW_READER {
        front.slow_readers += 1;
    }
}

/// Takes the larger of two ages, bound by bound. An unknown upper bound stays unknown.
fn oldest(known: &mut Option<AgeBounds>, age: AgeBounds) {
    *known = Some(match *known {
        None => age,
        Some(known) => AgeBounds {
            estimate: known.estimate.max(age.estimate),
            at_least: known.at_least.max(age.at_least),
            at_most: known.at_most.zip(age.at_most).map(|(known, age)| known.max(age)),
        },
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_sockdiag::UnixState;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn socket(port: u16) -> TcpSocket {
        TcpSocket {
            local: "127.0.0.1:80".parse().unwrap(),
            peer: SocketAddr::from(([127, 0, 0, 1], port)),
            state: TcpState::Established,
            inode: 1,
            unread: 0,
            unsent: 0,
            since_received: ms(900),
            since_sent: ms(900),
            since_acknowledged: ms(900),
            bytes_received: 0,
            segments_received: 0,
            segments_sent: 0,
            acknowledgements: 0,
            retransmitted: 0,
        }
    }

    fn poll(table: &mut ConnectionTable, at: u64, sockets: &[TcpSocket]) -> FrontPoll {
        table.begin();
        for socket in sockets {
            table.tcp(ms(at), socket);
        }
        table.end()
    }

    #[test]
    fn connections_are_counted_by_what_they_wait_for() {
        let unread =
            TcpSocket { unread: 10, bytes_received: 10, segments_received: 1, since_received: ms(40), ..socket(1) };
        let inside = TcpSocket { bytes_received: 10, segments_received: 1, since_received: ms(30), ..socket(2) };
        let idle = TcpSocket {
            segments_received: 1,
            segments_sent: 1,
            since_received: ms(20),
            since_sent: ms(10),
            ..socket(3)
        };
        let slow = TcpSocket { unsent: 5000, since_received: ms(600), since_sent: ms(500), ..idle.clone() };
        let slow = TcpSocket { peer: socket(4).peer, ..slow };
        let front = poll(&mut ConnectionTable::default(), 1000, &[unread, inside, idle, slow]);
        assert_eq!((front.connections, front.unread, front.inside, front.slow_readers), (4, 1, 1, 1));
        assert_eq!(front.oldest_unread, Some(AgeBounds { estimate: ms(40), at_least: ms(40), at_most: None }));
        assert_eq!(front.oldest_inside, Some(ms(30)));
    }

    #[test]
    fn clients_that_ask_again_at_once_wait_though_their_answers_have_two_segments() {
        // Twenty threads at one lock, each for a client: the third answer is due, or the second.
        let clients: Vec<TcpSocket> = (1..=20)
            .map(|port| {
                let (segments_received, segments_sent) = if port % 2 == 0 { (3, 4) } else { (2, 2) };
                let since = ms(200 * u64::from(port));
                let times =
                    TcpSocket { since_received: since, since_sent: since, since_acknowledged: since, ..socket(port) };
                TcpSocket { segments_received, segments_sent, acknowledgements: segments_sent + 1, ..times }
            })
            .collect();
        let mut table = ConnectionTable::default();
        poll(&mut table, 5000, &clients);
        let front = poll(&mut table, 5000, &clients);
        assert_eq!((front.inside, front.oldest_inside), (20, Some(ms(4000))));
    }

    #[test]
    fn requests_and_responses_are_counted_from_the_second_poll_on() {
        let mut table = ConnectionTable::default();
        let first = TcpSocket { segments_received: 5, segments_sent: 9, bytes_received: 50, ..socket(1) };
        assert_eq!(poll(&mut table, 0, std::slice::from_ref(&first)).arrivals, 0);
        // Three requests; two responses of three segments each; the last request is unread.
        let later = TcpSocket { segments_received: 8, segments_sent: 15, bytes_received: 80, unread: 10, ..first };
        let front = poll(&mut table, 100, &[later]);
        assert_eq!((front.arrivals, front.bytes_read), (3, 20));
        assert!(front.responses <= 3, "no more responses than requests: {}", front.responses);
        // A connection that is made and used between two polls counts whole.
        let fresh = TcpSocket { segments_received: 1, segments_sent: 1, bytes_received: 10, ..socket(2) };
        assert_eq!(poll(&mut table, 200, &[fresh]).responses, 1);
        assert_eq!(table.tcp.len(), 1, "a connection that has gone is forgotten");
    }

    #[test]
    fn a_connection_that_the_program_ends_has_had_its_answer() {
        let request = |port| TcpSocket { unread: 10, bytes_received: 10, segments_received: 1, ..socket(port) };
        let given_up = TcpSocket { state: TcpState::CloseWait, ..request(2) };
        // Earlier requests had two segments, and their answers one.
        let kept = TcpSocket { segments_received: 8, segments_sent: 4, ..request(3) };
        let idle = TcpSocket { unread: 0, since_sent: ms(800), peer: socket(4).peer, ..kept.clone() };
        let inside = TcpSocket { unread: 0, since_received: ms(1500), peer: socket(5).peer, ..request(5) };
        for (socket, responses) in [(request(1), 1), (given_up, 0), (kept, 1), (idle, 0), (inside, 0)] {
            let mut table = ConnectionTable::default();
            // It waits to be accepted for longer than a second.
            for at in (0..1500).step_by(50) {
                assert_eq!(poll(&mut table, at, &[request(9), socket.clone()]).responses, 0, "{socket:?}");
            }
            assert_eq!(poll(&mut table, 1500, &[request(9)]).responses, responses, "{socket:?}");
        }
    }

    #[test]
    fn unread_connections_count_as_accepted_where_a_program_has_them() {
        let unread = TcpSocket { unread: 10, bytes_received: 10, segments_received: 1, ..socket(1) };
        let queued = TcpSocket { inode: 0, peer: socket(2).peer, ..unread.clone() };
        let front = poll(&mut ConnectionTable::default(), 1000, &[unread, queued]);
        assert_eq!((front.unread, front.unread_accepted, front.is_unix), (2, 1, false));
        let mut table = ConnectionTable::default();
        table.begin();
        table.unix_accept_queue(3, 128);
        let (state, peer, name) = (UnixState::Connected, Some(2), None);
        table.unix(ms(0), &UnixSocket { state, inode: 1, peer, name, unread: 10, limit: 0 });
        let front = table.end();
        assert_eq!((front.unread_accepted, front.accept_queue, front.is_unix), (1, 3, true));
    }

    #[test]
    fn unread_bytes_of_a_unix_socket_have_an_age_from_poll_to_poll() {
        let mut table = ConnectionTable::default();
        let mut poll = |at, unread| {
            let (state, peer, name, limit) = (UnixState::Connected, Some(2), None, 0);
            table.begin();
            table.unix(ms(at), &UnixSocket { state, inode: 1, peer, name, unread, limit });
            table.end().oldest_unread.map(|age| (age.at_least, age.at_most))
        };
        assert_eq!(poll(0, 0), None);
        assert_eq!(poll(100, 10), Some((ms(0), Some(ms(100)))));
        assert_eq!(poll(200, 10), Some((ms(100), Some(ms(200)))));
        assert_eq!(poll(300, 5), Some((ms(0), Some(ms(100)))), "it reads");
        assert_eq!(poll(400, 0), None);
    }

    #[test]
    fn drops_count_from_the_first_poll_on() {
        let mut table = ConnectionTable::default();
        for (total, expected) in [(7, 0), (9, 2), (9, 0), (3, 0)] {
            table.begin();
            // Two sockets listen on the address.
            table.dropped(total);
            table.dropped(1);
            assert_eq!(table.end().dropped, expected);
        }
    }
}
