//! The program behind `make ecosystem`: typical services, protected by Leeward's layer or by a
//! rival, under an open-loop load from the other CPU.
//!
//! - `server`: a service in a process of its own. `guard`: its protection. `args`: settings of
//!   both.
//! - `handler`: work per request; `grpc`: the same under tonic; `front`: a service that calls
//!   another.
//! - `load`: the generator. `rows`: expected and measured outcomes. `overhead`: the layer's own
//!   time.

mod args;
mod child;
mod front;
mod grpc;
mod guard;
mod handler;
mod load;
mod overhead;
mod rows;
mod server;
mod work;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures Leeward's layer and its rivals in front of an axum service.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    measure: rows::Args,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one service until its standard input ends. Used by the measurement itself.
    Serve(args::Args),
    /// Measures the layer's own time alone, in so many rounds: for profilers, too.
    Overhead {
        /// Rounds of which the median is taken.
        #[arg(default_value_t = 5)]
        rounds: usize,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.command {
        Some(Command::Serve(serve)) => server::serve(serve),
        Some(Command::Overhead { rounds }) => {
            println!("{:.0} ns per request", overhead::measure(*rounds));
            Ok(())
        }
        None => rows::measure(&args.measure),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
