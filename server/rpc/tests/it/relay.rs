//! A network for datagrams in user space: it loses, doubles and reorders what passes, both ways, as often as it is told. It
//! stands at an address of its own with the server's ports.

use leeward_testkit::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where it stands.
const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The kind of a cookie, whose slot is the port of a core.
const COOKIE: u8 = 2;

/// A relay under way; it ends when it is dropped.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub(crate) fn to(server: SocketAddr, percent: u64) -> Relay {
        let address = SocketAddr::from((HERE, server.port()));
        let door = bind(address);
        let stops = Arc::new(AtomicBool::new(false));
        let mut traffic = Traffic {
            server: server.ip(),
            sockets: BTreeMap::from([(server.port(), door)]),
            clients: BTreeMap::new(),
            held: VecDeque::new(),
            random: Random::new(7),
            percent: percent as usize,
        };
        let ends = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                if !traffic.pass() {
                    // The next datagram comes, or a held one is due.
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        Relay { address, stops, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn bind(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

struct Traffic {
    server: IpAddr,
    /// Sockets towards clients, by port.
    sockets: BTreeMap<u16, UdpSocket>,
    /// Sockets towards the server, by client.
    clients: BTreeMap<SocketAddr, UdpSocket>,
    /// A datagram that is overtaken by the next: the client, the port, the direction and the bytes.
    held: VecDeque<(SocketAddr, u16, bool, Vec<u8>)>,
    random: Random,
    /// Datagrams of a hundred that are lost, and as many that are doubled, and overtaken.
    percent: usize,
}

impl Traffic {
    /// Whether anything passed.
    fn pass(&mut self) -> bool {
        let mut come = Vec::new();
        let mut bytes = [0; 2000];
        for (port, socket) in &self.sockets {
            while let Ok((count, from)) = socket.recv_from(&mut bytes) {
                come.push((from, *port, true, bytes[..count].to_vec()));
            }
        }
        for (client, socket) in &self.clients {
            loop {
                match socket.recv_from(&mut bytes) {
                    Ok((count, from)) => come.push((*client, from.port(), false, bytes[..count].to_vec())),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // A server that is down is nothing that a network tells of.
                    Err(_) => {}
                }
            }
        }
        let any = !come.is_empty();
        let late: Vec<_> = self.held.drain(..).collect();
        for datagram in come {
            let percent = self.percent;
            if self.random.below(100) < percent {
                continue;
            }
            if self.random.below(100) < percent {
                self.send(&datagram);
            }
            if self.random.below(100) < percent {
                self.held.push_back(datagram);
            } else {
                self.send(&datagram);
            }
        }
        late.iter().for_each(|datagram| self.send(datagram));
        any
    }

    fn send(&mut self, (client, port, to_server, bytes): &(SocketAddr, u16, bool, Vec<u8>)) {
        if *to_server {
            let socket = self.clients.entry(*client).or_insert_with(|| bind("127.0.0.1:0".parse().unwrap()));
            let _ = socket.send_to(bytes, SocketAddr::from((self.server, *port)));
            return;
        }
        if bytes.get(3) == Some(&COOKIE) {
            let core = u16::from_le_bytes([bytes[8], bytes[9]]);
            self.sockets.entry(core).or_insert_with(|| bind(SocketAddr::from((HERE, core))));
        }
        if let Some(socket) = self.sockets.get(port) {
            let _ = socket.send_to(bytes, client);
        }
    }
}
