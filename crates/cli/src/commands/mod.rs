//! One file per command. A command reads its input, calls the libraries and says what came out.

mod calibrate;
mod cargo;
mod compile;
mod corpus;
mod demo;
mod list;
mod load;
pub(crate) mod profile;
mod record;
mod replay;
mod report;
mod run;
pub(crate) mod serve;
mod summary;
mod target;
mod top;
mod tune;

use crate::args::Command;
use crate::compiler::Language;
use crate::failure::Failure;

/// Runs a command.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::demo(&args),
        Command::Run(args) => run::run(&args),
        Command::List(args) => list::list(&args),
        Command::Report(args) => report::report(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Serve(args) => serve::serve(args),
        Command::Load(args) => load::load(&args),
        Command::Corpus(args) => corpus::corpus(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Record(args) => record::record(args),
        Command::Replay(args) => replay::replay(&args),
        Command::Cc(args) => compile::compile(Language::C, args.arguments),
        Command::Cxx(args) => compile::compile(Language::Cxx, args.arguments),
        Command::Cargo(args) => cargo::cargo(args.arguments),
        Command::Profile(args) => profile::profile(&args),
        Command::Top(args) => top::top(&args),
    }
}
