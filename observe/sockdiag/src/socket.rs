//! Sockets as the kernel describes them.

use std::cmp::Ordering;
use std::net::SocketAddr;
use std::time::Duration;

use netlink_packet_sock_diag::constants::{
    TCP_CLOSE, TCP_CLOSE_WAIT, TCP_CLOSING, TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_FIN_WAIT2, TCP_LAST_ACK, TCP_LISTEN,
    TCP_SYN_RECV, TCP_SYN_SENT, TCP_TIME_WAIT,
};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{InetResponse, InetResponseHeader};
use netlink_packet_sock_diag::unix::UnixResponse;
use netlink_packet_sock_diag::unix::nlas::UnixDiagName;

use crate::tcp_info::TcpInfo;

/// State of a TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// Open in both directions.
    Established,
    /// Connecting: the peer has not answered.
    SynSent,
    /// The peer has closed its direction; the program has not.
    CloseWait,
    /// Any state of opening or closing in which the program neither reads nor writes.
    Other,
}

impl TcpState {
    fn from_number(number: u8) -> TcpState {
        match number {
            TCP_ESTABLISHED => TcpState::Established,
            TCP_SYN_SENT => TcpState::SynSent,
            TCP_CLOSE_WAIT => TcpState::CloseWait,
            TCP_SYN_RECV | TCP_FIN_WAIT1 | TCP_FIN_WAIT2 | TCP_TIME_WAIT | TCP_CLOSE | TCP_LAST_ACK | TCP_LISTEN
            | TCP_CLOSING => TcpState::Other,
            _ => TcpState::Other,
        }
    }
}

/// A TCP connection, from the side of this host's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// Address on this host.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// State.
    pub state: TcpState,
    /// Inode number, which `/proc/PID/fd` names as `socket:[inode]`; 0 for a connection that no
    /// program has accepted.
    pub inode: u32,
    /// Bytes that have arrived and that the program has not read.
    pub unread: u32,
    /// Bytes that the program has written and that the peer has not acknowledged.
    pub unsent: u32,
    /// Time since the last data arrived, in the kernel's clock ticks (1 to 10 ms). Since the
    /// connection was made, if no data has arrived.
    pub since_received: Duration,
    /// Time since data was last sent, as [`since_received`](TcpSocket::since_received).
    pub since_sent: Duration,
    /// Bytes of data that have arrived, without repetitions.
    pub bytes_received: u64,
    /// Segments with data that have arrived.
    pub segments_received: u32,
    /// Segments with data that were sent.
    pub segments_sent: u32,
    /// Segments that were sent again.
    pub retransmitted: u32,
}

impl TcpSocket {
    /// Whether a program has accepted, or made, the connection.
    pub fn is_accepted(&self) -> bool {
        self.inode != 0
    }

    /// Bytes that the program has read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_received.saturating_sub(self.unread.into())
    }

    /// Whether the program has read all that came and has not answered: a request is in its hands.
    pub fn is_being_served(&self) -> bool {
        let received = (self.since_received, self.segments_received);
        self.unread == 0 && owes_answer(received, (self.since_sent, self.segments_sent))
    }

    /// Whether this host's program has sent something and waits for the peer's answer. The same as
    /// [`is_being_served`](TcpSocket::is_being_served), seen from the client.
    pub fn awaits_answer(&self) -> bool {
        let sent = (self.since_sent, self.segments_sent);
        self.state == TcpState::SynSent || owes_answer(sent, (self.since_received, self.segments_received))
    }

    /// Reads the kernel's message; `None` for a socket without TCP's information.
    pub(crate) fn from_message(message: &InetResponse) -> Option<TcpSocket> {
        let header = &message.header;
        let info = tcp_info(message)?;
        let state = TcpState::from_number(header.state);
        // An end of stream that was not read yet counts as one byte.
        let end = u32::from(state == TcpState::CloseWait && header.recv_queue > 0);
        Some(TcpSocket {
            local: local(header),
            peer: peer(header),
            state,
            inode: header.inode,
            unread: header.recv_queue - end,
            unsent: header.send_queue,
            since_received: Duration::from_millis(info.last_data_received_ms.into()),
            since_sent: Duration::from_millis(info.last_data_sent_ms.into()),
            bytes_received: info.bytes_received,
            segments_received: info.data_segments_received,
            segments_sent: info.data_segments_sent,
            retransmitted: info.retransmitted,
        })
    }
}

/// A listening TCP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpListener {
    /// Address.
    pub local: SocketAddr,
    /// Inode number.
    pub inode: u32,
    /// User of the program that made it.
    pub user: u32,
    /// Connections that no program has accepted.
    pub waiting: u32,
    /// Longest accept queue.
    pub limit: u32,
    /// Connections that the kernel dropped because the queue was full, since the socket was made.
    pub dropped: u32,
}

impl TcpListener {
    pub(crate) fn from_message(message: &InetResponse) -> TcpListener {
        let header = &message.header;
        let dropped = message.nlas.iter().find_map(|nla| match nla {
            Nla::MemInfo(memory) => Some(memory.drops),
            _ => None,
        });
        TcpListener {
            local: local(header),
            inode: header.inode,
            user: header.uid,
            waiting: header.recv_queue,
            limit: header.send_queue,
            dropped: dropped.unwrap_or(0),
        }
    }
}

/// A UDP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSocket {
    /// Address on this host.
    pub local: SocketAddr,
    /// Peer, if the socket is connected; else its port is 0.
    pub peer: SocketAddr,
    /// Inode number.
    pub inode: u32,
    /// Bytes of memory of datagrams that were not read.
    pub unread: u32,
}

impl UdpSocket {
    pub(crate) fn from_message(message: &InetResponse) -> UdpSocket {
        let header = &message.header;
        UdpSocket { local: local(header), peer: peer(header), inode: header.inode, unread: header.recv_queue }
    }
}

/// State of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixState {
    /// Listening.
    Listen,
    /// Connected.
    Connected,
}

/// A Unix socket of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// State.
    pub state: UnixState,
    /// Inode number.
    pub inode: u32,
    /// Inode number of the peer's socket; `None` for a listener, and while nobody has accepted.
    pub peer: Option<u32>,
    /// Path, or `@name` for an abstract name. Accepted connections have their listener's.
    pub name: Option<String>,
    /// Unread bytes of a connection; connections that no program has accepted, of a listener.
    pub unread: u32,
    /// Longest accept queue of a listener; unread bytes of the peer, for a connection.
    pub limit: u32,
}

impl UnixSocket {
    pub(crate) fn from_message(message: &UnixResponse) -> Option<UnixSocket> {
        // Streams and sequenced packets; datagrams have no connections.
        if !matches!(message.header.kind, 1 | 5) {
            return None;
        }
        let is_listening = message.header.state == TCP_LISTEN;
        let lengths = message.nlas.iter().find_map(|nla| match nla {
            netlink_packet_sock_diag::unix::nlas::Nla::ReceiveQueueLength(first, second) => Some((*first, *second)),
            _ => None,
        });
        let (unread, limit) = lengths.unwrap_or((0, 0));
        Some(UnixSocket {
            state: if is_listening { UnixState::Listen } else { UnixState::Connected },
            inode: message.header.inode,
            peer: message.peer(),
            name: message.name().map(|name| match name {
                UnixDiagName::Pathname(path) => path.to_string_lossy().into_owned(),
                UnixDiagName::Abstract(bytes) => format!("@{}", String::from_utf8_lossy(bytes)),
            }),
            unread,
            limit,
        })
    }
}

/// Whether a question has come, `question` ago, that has no answer yet. Both have the time since
/// the last segment with data, and the number of such segments.
///
/// A client that asks again as soon as it has its answer does so within one tick of the kernel's
/// clock: then the times are equal and do not tell the order. The counts do, where answers have as
/// many segments as they had so far: one more question than there are answers is unanswered.
fn owes_answer(question: (Duration, u32), answer: (Duration, u32)) -> bool {
    let (questions, answers) = (u64::from(question.1), u64::from(answer.1));
    if questions == 0 || answers == 0 {
        return questions > 0;
    }
    let per_question = ((answers + questions / 2) / questions).max(1);
    match question.0.cmp(&answer.0) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal => answers < per_question * questions,
    }
}

/// The peer's address. An IPv4 connection of an IPv6 socket has an IPv4 address.
fn peer(header: &InetResponseHeader) -> SocketAddr {
    SocketAddr::new(header.socket_id.destination_address.to_canonical(), header.socket_id.destination_port)
}

/// Address on this host. An IPv4 connection of an IPv6 listener has an IPv4 address.
fn local(header: &InetResponseHeader) -> SocketAddr {
    SocketAddr::new(header.socket_id.source_address.to_canonical(), header.socket_id.source_port)
}

fn tcp_info(message: &InetResponse) -> Option<TcpInfo> {
    message.nlas.iter().find_map(|nla| match nla {
        Nla::TcpInfo(bytes) => TcpInfo::parse(bytes),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_open_until_an_answer_comes_later() {
        let at = |ms, segments| (Duration::from_millis(ms), segments);
        for (question, answer, open) in [
            (at(900, 0), at(900, 0), false),
            (at(40, 1), at(900, 0), true),
            (at(40, 7), at(90, 6), true),
            (at(40, 7), at(30, 7), false),
            // Within one tick: the counts tell.
            (at(40, 7), at(40, 7), false),
            (at(40, 8), at(40, 7), true),
            // Answers of three segments.
            (at(40, 20), at(40, 60), false),
            (at(40, 20), at(40, 57), true),
        ] {
            assert_eq!(owes_answer(question, answer), open, "{question:?} {answer:?}");
        }
    }
}
