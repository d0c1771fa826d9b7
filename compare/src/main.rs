//! The program behind `make compare`: Leeward's server against bare echoes and tonic, and the cost
//! of admission control.
//!
//! - `case`: the comparisons and their bounds. `measure`: rounds and ratios. `outcome`: the
//!   numbers. `report`: the table and the JSON.
//! - `threading`: threading models of a tier. `tier`: the same tier on Tokio.
//! - `servers`: the contenders, each in a process of its own. `load`: the load generator for all of
//!   them.

#![forbid(unsafe_code)]

mod args;
mod case;
mod certificate;
mod child;
mod load;
mod measure;
mod outcome;
mod report;
mod servers;
mod statistics;
mod system;
mod threading;
mod tier;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    let outcome = match &args.command {
        Some(args::Command::Serve(serve)) => servers::serve(serve),
        Some(args::Command::Threading(threading)) => threading::compare(threading),
        None => measure::compare(&args.compare),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
