//! CPU time of a dump per 1,000 sockets: `cargo run --release --example cost -- 2000`.
//!
//! The argument is the number of connections, each of which is two sockets of this host. Prints the
//! median of 21 dumps, by port and of all sockets.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use leeward_sockdiag::{Namespace, SocketReader};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Connections to one address: fewer than there are ports for clients.
const PER_ADDRESS: usize = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted: usize = std::env::args().nth(1).unwrap_or_else(|| "2000".into()).parse()?;
    let limit = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit })?;
    let listener = TcpListener::bind("0.0.0.0:0")?;
    let port = listener.local_addr()?.port();
    let mut ends = Vec::new();
    for number in 0..wanted {
        let address = Ipv4Addr::new(127, 0, 0, 1 + u8::try_from(number / PER_ADDRESS)?);
        ends.push((TcpStream::connect((address, port))?, listener.accept()?));
    }
    let mut reader = SocketReader::open(&Namespace::Own)?;
    for (name, port) in [("by port", Some(port)), ("all", None)] {
        let mut seen = 0_usize;
        let mut times: Vec<Duration> = (0..21)
            .map(|_| {
                let before = cpu();
                seen = 0;
                reader.tcp_connections(port, &mut |_| seen += 1).map(|()| cpu().saturating_sub(before))
            })
            .collect::<Result<_, _>>()?;
        times.sort_unstable();
        let median = times[times.len() / 2];
        let per_thousand = median.as_secs_f64() * 1e6 / (seen.max(1) as f64 / 1e3);
        println!(
            "{name}: {seen} sockets in {:.2} ms of CPU, {per_thousand:.0} us per 1,000",
            median.as_secs_f64() * 1e3
        );
    }
    drop(ends);
    Ok(())
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
