//! `leeward profile`: records programs and reads the profiler's traces. One file per subcommand.

mod args;
mod attached;
mod children;
mod control;
mod export;
mod info;
mod join;
mod read;
mod record;
mod requests;
mod signals;
mod stats;
mod stop;
mod tail;
mod timeline;

pub(crate) use args::ProfileArgs;
use args::ProfileCommand;

use crate::failure::Failure;

/// Runs the command.
pub(crate) fn profile(args: &ProfileArgs) -> Result<(), Failure> {
    match &args.command {
        ProfileCommand::Record(args) => record::record(args),
        ProfileCommand::Attach(args) => control::attach(args),
        ProfileCommand::Stop(args) => stop::stop(args),
        ProfileCommand::Info(args) => info::info(args),
        ProfileCommand::Stats(args) => stats::stats(args),
        ProfileCommand::Requests(args) => requests::requests(args),
        ProfileCommand::Timeline(args) => timeline::timeline(args),
        ProfileCommand::Tail(args) => tail::tail(args),
        ProfileCommand::Join(args) => join::join(args),
        ProfileCommand::Export(args) => export::export(args),
    }
}
