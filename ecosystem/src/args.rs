//! Command-line settings of one service and of its protection.

use crate::guard::Guard;
use clap::ValueEnum;
use std::net::SocketAddr;

/// Service and protection.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Args {
    /// Protection.
    #[arg(long, value_enum)]
    pub(crate) guard: Guard,
    /// CPU time of a request, in us.
    #[arg(long)]
    pub(crate) work: u64,
    /// Time that the handler awaits before, in ms.
    #[arg(long, default_value_t = 0)]
    pub(crate) wait: u64,
    /// Pool of four connections, of which the handler takes one before it waits.
    #[arg(long, value_enum, default_value_t = Pool::None)]
    pub(crate) pool: Pool,
    /// From the first so many ms after the first request on until the second the work is three
    /// times as much.
    #[arg(long, value_delimiter = ',')]
    pub(crate) slower: Vec<u64>,
    /// Time that a request occupies the worker without computing, in ms: it takes as long whatever
    /// else this machine does.
    #[arg(long, default_value_t = 0)]
    pub(crate) blocks: u64,
    /// Responses say the gate's load (ORCA).
    #[arg(long)]
    pub(crate) reports: bool,
    /// Serves a method of tonic's instead of axum's route.
    #[arg(long)]
    pub(crate) grpc: bool,
    /// Requests with a header `x-dear` take fifty times the work.
    #[arg(long)]
    pub(crate) dear: bool,
    /// Asks the service at this address once it has worked, before it answers.
    #[arg(long)]
    pub(crate) behind: Option<SocketAddr>,
    /// Passes deadlines on to the service behind, and minds its refusals.
    #[arg(long, requires = "behind")]
    pub(crate) passes: bool,
    /// The objective, in ms.
    #[arg(long, default_value_t = 20)]
    pub(crate) slo: u64,
    /// CPU to run on.
    #[arg(long)]
    pub(crate) cpu: Option<usize>,
}

/// How a handler gets one of the connections of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pool {
    /// There is no pool.
    #[default]
    None,
    /// Awaiting its turn.
    Plain,
    /// In a line, which refuses.
    Line,
}
