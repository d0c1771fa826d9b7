//! A datagram network in user space: it loses, duplicates and reorders a share of the datagrams,
//! both ways. It has its own address, with the server's ports.

use leeward_testkit::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Address of the relay.
const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Datagram kind of a cookie, which contains the port of a core.
const COOKIE: u8 = 2;

/// A running relay; dropping it stops it.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub(crate) fn to(server: SocketAddr, percent: u64) -> Relay {
        let address = SocketAddr::from((HERE, server.port()));
        let listener = bind(address);
        let stops = Arc::new(AtomicBool::new(false));
        let mut traffic = Traffic {
            server: server.ip(),
            sockets: BTreeMap::from([(server.port(), listener)]),
            clients: BTreeMap::new(),
            held: VecDeque::new(),
            random: Random::new(7),
            percent: percent as usize,
        };
        let ends = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                if !traffic.pass() {
                    // Wait for the next datagram, or a held one.
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
    /// Datagrams that the next one overtakes: client, port, direction and bytes.
    held: VecDeque<(SocketAddr, u16, bool, Vec<u8>)>,
    random: Random,
    /// Percentage of lost datagrams, and as much of duplicated and of overtaken ones.
    percent: usize,
}

impl Traffic {
    /// Forwards datagrams. Returns whether there were any.
    fn pass(&mut self) -> bool {
        let mut received = Vec::new();
        let mut bytes = [0; 2000];
        for (port, socket) in &self.sockets {
            while let Ok((count, from)) = socket.recv_from(&mut bytes) {
                received.push((from, *port, true, bytes[..count].to_vec()));
            }
        }
        for (client, socket) in &self.clients {
            loop {
                match socket.recv_from(&mut bytes) {
                    Ok((count, from)) => received.push((*client, from.port(), false, bytes[..count].to_vec())),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // A network does not report a server that is down.
                    Err(_) => {}
                }
            }
        }
        let any = !received.is_empty();
        let late: Vec<_> = self.held.drain(..).collect();
        for datagram in received {
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
