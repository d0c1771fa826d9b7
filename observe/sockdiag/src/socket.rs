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

/// The latest acknowledgement of data: a round trip and the peer's delay of 40 to 200 ms. Probes of
/// silent connections are answered after seconds.
const LATEST_ACKNOWLEDGEMENT: Duration = Duration::from_secs(1);

/// Which data passed last on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastData {
    /// No data has passed.
    None,
    /// The peer's.
    Received,
    /// That of this host's program.
    Sent,
    /// Both passed within one tick of the kernel's clock, and one dump does not tell their order.
    Unknown,
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
    /// Time since an acknowledgement last arrived, alone or with data, as
    /// [`since_received`](TcpSocket::since_received).
    pub since_acknowledged: Duration,
    /// Bytes of data that have arrived, without repetitions.
    pub bytes_received: u64,
    /// Segments with data that have arrived.
    pub segments_received: u32,
    /// Segments with data that were sent.
    pub segments_sent: u32,
    /// Segments without data that have arrived: acknowledgements alone.
    pub acknowledgements: u32,
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

    /// Which data passed last, as far as one dump tells.
    ///
    /// A client that asks again as soon as it has its answer does so within one tick of the
    /// kernel's clock: then the times of both are equal, and acknowledgements tell the order. Data
    /// that has not been acknowledged was sent after the peer's last data, which would have
    /// acknowledged it. So was data whose acknowledgement came alone and later: an older one would
    /// have come with the peer's data. An acknowledgement within the same tick says nothing.
    pub fn last_data(&self) -> LastData {
        match (self.segments_received, self.segments_sent) {
            (0, 0) => return LastData::None,
            (_, 0) => return LastData::Received,
            (0, _) => return LastData::Sent,
            _ => {}
        }
        match self.since_received.cmp(&self.since_sent) {
            Ordering::Less => LastData::Received,
            Ordering::Greater => LastData::Sent,
            Ordering::Equal if self.unsent > 0 || self.was_acknowledged_later() => LastData::Sent,
            Ordering::Equal => LastData::Unknown,
        }
    }

    /// Whether an acknowledgement came alone after the last data. One that came much later answered
    /// a probe of a silent connection.
    fn was_acknowledged_later(&self) -> bool {
        let after = self.since_received.saturating_sub(self.since_acknowledged);
        !after.is_zero() && after < LATEST_ACKNOWLEDGEMENT
    }

    /// Whether the program has read all that came and has certainly not answered: a request is in
    /// its hands.
    pub fn is_being_served(&self) -> bool {
        self.unread == 0 && self.last_data() == LastData::Received
    }

    /// Whether this host's program has certainly sent something and waits for the peer's answer.
    /// The same as [`is_being_served`](TcpSocket::is_being_served), seen from the client.
    pub fn awaits_answer(&self) -> bool {
        self.state == TcpState::SynSent || self.last_data() == LastData::Sent
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
            since_acknowledged: Duration::from_millis(info.last_acknowledgement_ms.into()),
            bytes_received: info.bytes_received,
            segments_received: info.data_segments_received,
            segments_sent: info.data_segments_sent,
            acknowledgements: info.segments_received.wrapping_sub(info.data_segments_received),
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

    /// A connection with the times since data came, went and was acknowledged, in milliseconds.
    fn socket(received: u64, sent: u64, acknowledged: u64) -> TcpSocket {
        TcpSocket {
            local: "127.0.0.1:80".parse().unwrap(),
            peer: "127.0.0.1:4000".parse().unwrap(),
            state: TcpState::Established,
            inode: 1,
            unread: 0,
            unsent: 0,
            since_received: Duration::from_millis(received),
            since_sent: Duration::from_millis(sent),
            since_acknowledged: Duration::from_millis(acknowledged),
            bytes_received: 70,
            segments_received: 7,
            segments_sent: 7,
            acknowledgements: 1,
            retransmitted: 0,
        }
    }

    #[test]
    fn times_tell_which_data_passed_last() {
        let silent = TcpSocket { segments_received: 0, segments_sent: 0, ..socket(900, 900, 900) };
        assert_eq!(silent.last_data(), LastData::None);
        assert_eq!(TcpSocket { segments_sent: 0, ..socket(40, 40, 40) }.last_data(), LastData::Received);
        assert_eq!(TcpSocket { segments_received: 0, ..socket(40, 40, 40) }.last_data(), LastData::Sent);
        assert_eq!(socket(40, 44, 40).last_data(), LastData::Received);
        assert_eq!(socket(40, 30, 40).last_data(), LastData::Sent);
    }

    #[test]
    fn within_one_tick_acknowledgements_tell_which_data_passed_last() {
        // With the peer's data, or alone at once: nobody knows.
        assert_eq!(socket(400, 400, 400).last_data(), LastData::Unknown);
        // Not yet, or alone after the usual delay: no data has come since.
        assert_eq!(TcpSocket { unsent: 2, ..socket(400, 400, 900) }.last_data(), LastData::Sent);
        assert_eq!(socket(400, 400, 360).last_data(), LastData::Sent);
        // The answer to a probe, after 15 s.
        assert_eq!(socket(20_000, 20_000, 5_000).last_data(), LastData::Unknown);
    }
}
