//! Questions to the kernel, and its answers.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_packet_sock_diag::unix::{self, ShowFlags, UnixRequest};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::SockDiagError;
use crate::socket::{TcpListener, TcpSocket, UdpSocket, UnixSocket};

/// Room for one part of an answer. The kernel fills at most 32 KiB at once.
const ANSWER_BYTES: usize = 64 * 1024;

/// Network namespace whose sockets are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// The namespace of this process.
    Own,
    /// The namespace of a process, such as one in a container.
    OfProcess(u32),
    /// A file that stands for a namespace, such as `/run/netns/NAME`.
    File(PathBuf),
}

impl Namespace {
    /// File that stands for the namespace; `None` for our own.
    fn path(&self) -> Option<PathBuf> {
        match self {
            Namespace::Own => None,
            Namespace::OfProcess(pid) => Some(PathBuf::from(format!("/proc/{pid}/ns/net"))),
            Namespace::File(path) => Some(path.clone()),
        }
    }
}

/// Whether the file stands for the namespace of this thread.
fn is_own(path: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((identity(path), identity(Path::new("/proc/thread-self/ns/net"))), (Ok(left), Ok(right)) if left == right)
}

/// A netlink socket on which the kernel is asked for sockets.
///
/// Needs no privilege in its own network namespace. Another namespace needs `CAP_SYS_ADMIN`.
#[derive(Debug)]
pub struct SocketReader {
    socket: Socket,
    answer: Vec<u8>,
}

impl SocketReader {
    /// Opens a netlink socket in a namespace.
    ///
    /// # Errors
    /// The kernel has no `sock_diag`, or the namespace can't be entered.
    pub fn open(namespace: &Namespace) -> Result<SocketReader, SockDiagError> {
        let Some(path) = namespace.path() else { return SocketReader::open_here() };
        // Entering the own namespace needs the same privilege as entering another one.
        if is_own(&path) {
            return SocketReader::open_here();
        }
        // A netlink socket keeps the namespace of the thread that opened it. This thread keeps its
        // own, so another one enters the namespace and ends.
        let opened = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let enter = File::open(&path).and_then(|file| {
                        Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
                    });
                    enter.map_err(|source| SockDiagError::Namespace { path: path.clone(), source })?;
                    SocketReader::open_here()
                })
                .join()
        });
        opened.unwrap_or_else(|_| Err(SockDiagError::Open(std::io::Error::other("a thread ended early"))))
    }

    fn open_here() -> Result<SocketReader, SockDiagError> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG).map_err(SockDiagError::Open)?;
        socket.bind_auto().map_err(SockDiagError::Open)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(SockDiagError::Open)?;
        Ok(SocketReader { socket, answer: Vec::with_capacity(ANSWER_BYTES) })
    }

    /// Calls `each` for every TCP connection, or only those with the local port `local_port`.
    ///
    /// Connections that are closing or not yet made are left out, except those that this host is
    /// making. The kernel does the selection by port, which still costs about 0.2 ms of CPU per
    /// 1,000 other sockets of the host, those in TIME-WAIT included.
    ///
    /// # Errors
    /// The kernel refuses the question, or its answer can't be read.
    pub fn tcp_connections(
        &mut self,
        local_port: Option<u16>,
        each: &mut dyn FnMut(TcpSocket),
    ) -> Result<(), SockDiagError> {
        let states = StateFlags::ESTABLISHED | StateFlags::CLOSE_WAIT | StateFlags::SYN_SENT;
        self.inet(IPPROTO_TCP, ExtensionFlags::INFO, states, local_port, "TCP connections", &mut |message| {
            if let Some(socket) = TcpSocket::from_message(message) {
                each(socket);
            }
        })
    }

    /// Calls `each` for every listening TCP socket.
    ///
    /// # Errors
    /// As [`tcp_connections`](SocketReader::tcp_connections).
    pub fn tcp_listeners(&mut self, each: &mut dyn FnMut(TcpListener)) -> Result<(), SockDiagError> {
        self.inet(IPPROTO_TCP, ExtensionFlags::SKMEMINFO, StateFlags::LISTEN, None, "TCP listeners", &mut |message| {
            each(TcpListener::from_message(message));
        })
    }

    /// Calls `each` for every UDP socket.
    ///
    /// # Errors
    /// As [`tcp_connections`](SocketReader::tcp_connections).
    pub fn udp_sockets(&mut self, each: &mut dyn FnMut(UdpSocket)) -> Result<(), SockDiagError> {
        // A connected UDP socket has the state "established", another one "close".
        let states = StateFlags::ESTABLISHED | StateFlags::CLOSE;
        self.inet(IPPROTO_UDP, ExtensionFlags::empty(), states, None, "UDP sockets", &mut |message| {
            each(UdpSocket::from_message(message));
        })
    }

    /// Calls `each` for every Unix socket of streams or sequenced packets that listens or is
    /// connected.
    ///
    /// # Errors
    /// As [`tcp_connections`](SocketReader::tcp_connections).
    pub fn unix_sockets(&mut self, each: &mut dyn FnMut(UnixSocket)) -> Result<(), SockDiagError> {
        let request = SockDiagMessage::UnixRequest(UnixRequest {
            state_flags: unix::StateFlags::ESTABLISHED | unix::StateFlags::LISTEN,
            inode: 0,
            show_flags: ShowFlags::NAME | ShowFlags::PEER | ShowFlags::RQLEN,
            cookie: [0xff; 8],
        });
        self.dump(request, "Unix sockets", &mut |message| {
            if let SockDiagMessage::UnixResponse(message) = message
                && let Some(socket) = UnixSocket::from_message(message)
            {
                each(socket);
            }
        })
    }

    /// Asks for IPv4 and IPv6 sockets.
    fn inet(
        &mut self,
        protocol: u8,
        extensions: ExtensionFlags,
        states: StateFlags,
        local_port: Option<u16>,
        what: &'static str,
        each: &mut dyn FnMut(&InetResponse),
    ) -> Result<(), SockDiagError> {
        for (family, any) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            let request = SockDiagMessage::InetRequest(InetRequest {
                family,
                protocol,
                extensions: extensions.clone(),
                states: states.clone(),
                socket_id: SocketId { source_port: local_port.unwrap_or(0), cookie: [0xff; 8], ..any },
            });
            self.dump(request, what, &mut |message| {
                if let SockDiagMessage::InetResponse(message) = message {
                    each(message);
                }
            })?;
        }
        Ok(())
    }

    /// Sends one question and reads its answer to the end.
    fn dump(
        &mut self,
        request: SockDiagMessage,
        what: &'static str,
        each: &mut dyn FnMut(&SockDiagMessage),
    ) -> Result<(), SockDiagError> {
        let refused = |source| SockDiagError::Refused { what, source };
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut question = NetlinkMessage::new(header, request.into());
        question.finalize();
        let mut bytes = vec![0; question.buffer_len()];
        question.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(refused)?;
        loop {
            self.answer.clear();
            match self.socket.recv(&mut self.answer, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(refused(error)),
            }
            if self.read_part(what, each)? {
                return Ok(());
            }
        }
    }

    /// Reads one part of an answer; returns whether it was the last.
    fn read_part(&self, what: &'static str, each: &mut dyn FnMut(&SockDiagMessage)) -> Result<bool, SockDiagError> {
        let malformed = |reason: String| SockDiagError::Malformed { what, reason };
        let mut rest = &self.answer[..];
        while !rest.is_empty() {
            let message =
                NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(|error| malformed(error.to_string()))?;
            match &message.payload {
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) => {
                    return Err(SockDiagError::Refused { what, source: error.to_io() });
                }
                NetlinkPayload::InnerMessage(message) => each(message),
                _ => {}
            }
            // Messages begin at multiples of four bytes.
            let length = (message.header.length as usize).next_multiple_of(4);
            if length == 0 {
                return Err(malformed("a message has no length".into()));
            }
            rest = rest.get(length..).unwrap_or(&[]);
        }
        Ok(false)
    }
}
