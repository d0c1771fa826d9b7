//! The contenders. Each runs in a process of its own, prints its address and ends with its standard
//! input.
//!
//! Does not contain load, or the bounds of comparisons.

pub(crate) mod bare;
mod busy;
mod epoll;
mod leeward;
mod mmsg;
pub(crate) mod tonic;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::args::ServeArgs;
use crate::system;
use crate::tier::{self, Threads};

/// Text that a server prints before its address.
pub(crate) const ANNOUNCEMENT: &str = "listening on ";

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServerKind {
    /// Leeward with the echo service and no admission control
    Leeward,
    /// The first, with metrics and a ring of decisions, as an admin port reads them
    LeewardWatched,
    /// The first, asked by datagrams
    LeewardUdp,
    /// The first, within TLS
    LeewardTls,
    /// Datagrams sent back, many in one system call
    Mmsg,
    /// Length-framed messages sent back; reads one socket again and again
    Busy,
    /// Length-framed messages sent back; any number of sockets, over epoll
    Epoll,
    /// tonic's unary echo on one thread of Tokio
    Tonic,
    /// The same within TLS by rustls
    TonicTls,
    /// Leeward with the synthetic service and no admission control
    NoControl,
    /// Leeward with the synthetic service under Breakwater
    Breakwater,
    /// A leaf that answers after a while without keeping a CPU busy
    Leaf,
    /// A tier that asks leaves, on Leeward under a threading model
    Tier,
    /// The same tier on Tokio's runtime whose threads steal from each other
    TokioShared,
    /// The same tier on Tokio's runtimes of one thread
    TokioApart,
}

/// Behaviour of a server while there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Idling {
    /// Looks again and again
    Spin,
    /// Sleeps
    Block,
}

/// Runs a contender until its standard input ends.
///
/// # Errors
/// The contender can't start.
pub(crate) fn serve(args: &ServeArgs) -> Result<()> {
    system::allow_connections(4_096);
    match args.server {
        ServerKind::Leeward => announce(leeward::start_echo(args)?)?,
        ServerKind::LeewardWatched => announce(leeward::start_watched(args)?)?,
        ServerKind::LeewardTls => announce(leeward::start_sealed(args)?)?,
        ServerKind::LeewardUdp => announce(leeward::start_far(args)?)?,
        ServerKind::Mmsg => {
            let (socket, work) = (mmsg::listen()?, work(args));
            announce(socket.local_addr()?)?;
            on_its_cpu(args.cpu, move || mmsg::serve(&socket, work));
        }
        ServerKind::NoControl => announce(leeward::start_synthetic("none", args)?)?,
        ServerKind::Breakwater => announce(leeward::start_synthetic("breakwater", args)?)?,
        ServerKind::Busy => {
            let listener = listen()?;
            announce(listener.local_addr()?)?;
            on_its_cpu(args.cpu, move || busy::serve(&listener));
        }
        ServerKind::Epoll => {
            let (listener, idle, work) = (listen()?, args.idle, work(args));
            announce(listener.local_addr()?)?;
            on_its_cpu(args.cpu, move || epoll::serve(listener, idle, work));
        }
        ServerKind::Leaf => announce(leeward::start_leaf(args)?)?,
        ServerKind::Tier => announce(leeward::start_tier(args)?)?,
        ServerKind::TokioShared | ServerKind::TokioApart => {
            let (listener, leaves, threads) = (listen()?, args.leaves.clone(), usize::from(args.threads));
            announce(listener.local_addr()?)?;
            let threads = match args.server {
                ServerKind::TokioShared => Threads::Shared(threads),
                _ => Threads::Apart(threads),
            };
            on_its_cpu(args.cpu, move || tier::serve(listener, &leaves, threads));
        }
        ServerKind::Tonic => {
            let listener = listen()?;
            announce(listener.local_addr()?)?;
            on_its_cpu(args.cpu, move || tonic::serve(listener, None));
        }
        ServerKind::TonicTls => {
            let (listener, identity) = (listen()?, tonic::identity(&args.certificates)?);
            announce(listener.local_addr()?)?;
            on_its_cpu(args.cpu, move || tonic::serve(listener, Some(identity)));
        }
    }
    // The parent process has ended, or has closed the pipe.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Time for which an echo keeps the CPU busy per message.
fn work(args: &ServeArgs) -> Duration {
    Duration::from_micros(args.work_us)
}

/// Any port of the loopback address.
pub(crate) const ANY: &str = "127.0.0.1:0";

fn listen() -> Result<TcpListener> {
    TcpListener::bind(ANY).context("listening")
}

fn announce(address: SocketAddr) -> Result<()> {
    println!("{ANNOUNCEMENT}{address}");
    std::io::stdout().flush().context("announcing the address")
}

/// Runs `work` on a pinned thread of its own; an error ends the process.
fn on_its_cpu(cpu: Option<usize>, work: impl FnOnce() -> Result<()> + Send + 'static) {
    std::thread::spawn(move || {
        let outcome = cpu.map_or(Ok(()), system::pin).and_then(|()| work());
        if let Err(error) = outcome {
            eprintln!("error: {error:#}");
            std::process::exit(1);
        }
    });
}
