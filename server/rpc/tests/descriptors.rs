//! A server without free descriptors neither dies nor spins. It serves its connections, and accepts
//! further ones once descriptors are free again.
//!
//! Runs in its own process, because the limit is the process's.

#[path = "it/peer.rs"]
mod peer;
#[path = "it/serve.rs"]
mod serve;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, socket};
use nix::sys::time::TimeValLike;
use peer::{Peer, is_settled, register, start};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Descriptor limit that leaves room for `more` further descriptors.
fn limit_for(more: usize) -> u64 {
    let used: Vec<u64> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str().and_then(|name| name.parse().ok()))
        .collect();
    // The directory's own descriptor was one of the used ones; it is free again.
    (0..).filter(|number| !used.contains(number)).nth(more - 1).unwrap()
}

fn time_on_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    Duration::from_micros((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as u64)
}

#[test]
fn the_server_recovers_from_a_lack_of_descriptors() {
    const CLIENTS: usize = 20;
    const ROOM: usize = 5;
    let server = start("breakwater", 2);
    let SocketAddr::V4(address) = server.address() else { panic!("an address of version 4 was asked for") };
    // Take the clients' descriptors before too few are left.
    let sockets: Vec<_> = (0..CLIENTS)
        .map(|_| socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap())
        .collect();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, limit_for(ROOM), hard).unwrap();

    let mut peers: Vec<Peer> = sockets
        .into_iter()
        .map(|socket| {
            connect(socket.as_raw_fd(), &SockaddrIn::from(address)).unwrap();
            Peer::over(TcpStream::from(socket))
        })
        .collect();
    peers.iter_mut().for_each(|peer| peer.send(&register()));
    peer::eventually(&server, |server| server.counts().connections >= ROOM as u64 - 1);
    let (before, started) = (time_on_cpu(), Instant::now());
    // Time over which the test measures CPU use.
    std::thread::sleep(Duration::from_millis(500));
    let (used, span) = (time_on_cpu() - before, started.elapsed());
    assert!(used * 4 < span, "{used:?} of CPU time within {span:?} of waiting");
    assert!(server.counts().connections < CLIENTS as u64);

    // As clients leave, others take their descriptors, until the server has served all.
    for mut peer in peers {
        assert!(peer.receive().unwrap().starts_with("Welcome"));
        assert!(peer.ask(1, b"x").starts_with("Response"));
    }
    is_settled(&server);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    peer::is_well(&server);
    is_settled(&server);
    server.stop().unwrap();
}
