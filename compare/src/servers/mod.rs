//! The contenders. Each runs in a process of its own, says where it listens and ends with its standard input.
//!
//! Never here: load, and what is asked.

pub(crate) mod bare;
mod busy;
mod epoll;
mod leeward;
mod mmsg;
mod stamps;
pub(crate) mod tonic;
#[allow(unsafe_code)]
mod uring;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};
use leeward_rpc::server::IoUring;

use crate::args::ServeArgs;
use crate::system;
use crate::tier::{self, Threads};

/// Words that a server says before its address.
pub(crate) const ANNOUNCEMENT: &str = "listening on ";

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServerKind {
    /// Leeward with the echo service and no admission control
    Leeward,
    /// The same, with one system call per socket: without io_uring
    LeewardSingle,
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
    /// The same, which also reads the kernel's receive timestamps
    EpollStamps,
    /// The same with timestamps, which reads some sockets before it writes to any of them
    EpollBatches,
    /// Length-framed messages sent back; any number of sockets, over io_uring
    Uring,
    /// The same, which also reads the kernel's receive timestamps
    UringStamps,
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

/// Work of the bare echoes over many sockets besides echoing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras {
    /// Reading the kernel's receive timestamps.
    stamps: bool,
    /// Reading some sockets before writing to any; epoll only, io_uring always does.
    batches: bool,
    /// Keeping the CPU busy for so long per message.
    work: Duration,
}

/// Why `kind` can't run here.
///
/// # Errors
/// The reason.
pub(crate) fn probe(kind: ServerKind) -> Result<(), String> {
    match kind {
        ServerKind::Uring | ServerKind::UringStamps => uring::probe(),
        _ => Ok(()),
    }
}

/// Runs a contender until its standard input ends.
///
/// # Errors
/// It can't start.
pub(crate) fn serve(args: &ServeArgs) -> Result<()> {
    system::allow_connections(4_096);
    match args.server {
        ServerKind::Leeward => announce(leeward::start_echo(args, IoUring::Auto)?)?,
        ServerKind::LeewardWatched => announce(leeward::start_watched(args)?)?,
        ServerKind::LeewardTls => announce(leeward::start_sealed(args)?)?,
        ServerKind::LeewardUdp => announce(leeward::start_far(args)?)?,
        ServerKind::Mmsg => {
            let (socket, work) = (mmsg::listen()?, extras(args).work);
            announce(socket.local_addr()?)?;
            on_its_cpu(args.cpu, move || mmsg::serve(&socket, work));
        }
        ServerKind::LeewardSingle => announce(leeward::start_echo(args, IoUring::Off)?)?,
        ServerKind::NoControl => announce(leeward::start_synthetic("none", args)?)?,
        ServerKind::Breakwater => announce(leeward::start_synthetic("breakwater", args)?)?,
        ServerKind::Busy => {
            let listener = listen()?;
            announce(listener.local_addr()?)?;
            on_its_cpu(args.cpu, move || busy::serve(&listener));
        }
        ServerKind::Epoll | ServerKind::EpollStamps | ServerKind::EpollBatches => {
            let (listener, idle, extras) = (listen()?, args.idle, extras(args));
            announce(listener.local_addr()?)?;
            on_its_cpu(args.cpu, move || epoll::serve(listener, idle, extras));
        }
        ServerKind::Uring | ServerKind::UringStamps => {
            let (listener, idle, extras) = (listen()?, args.idle, extras(args));
            announce(listener.local_addr()?)?;
            on_its_cpu(args.cpu, move || uring::serve(&listener, idle, extras));
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
    // Whoever started it is gone, or has had enough.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

fn extras(args: &ServeArgs) -> Extras {
    let batches = args.server == ServerKind::EpollBatches;
    let stamps = batches || matches!(args.server, ServerKind::EpollStamps | ServerKind::UringStamps);
    Extras { stamps, batches, work: Duration::from_micros(args.work_us) }
}

/// Any port, on this machine only.
pub(crate) const ANY: &str = "127.0.0.1:0";

fn listen() -> Result<TcpListener> {
    TcpListener::bind(ANY).context("listening")
}

fn announce(address: SocketAddr) -> Result<()> {
    println!("{ANNOUNCEMENT}{address}");
    std::io::stdout().flush().context("announcing the address")
}

/// Runs `work` on a thread of its own; where it fails, the process ends.
fn on_its_cpu(cpu: Option<usize>, work: impl FnOnce() -> Result<()> + Send + 'static) {
    std::thread::spawn(move || {
        let outcome = cpu.map_or(Ok(()), system::pin).and_then(|()| work());
        if let Err(error) = outcome {
            eprintln!("error: {error:#}");
            std::process::exit(1);
        }
    });
}
