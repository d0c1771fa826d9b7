//! The `leeward` program: reads its arguments, runs a command, reports an error in one line. The libraries do the
//! commands' work; `commands` has their input and output.
#![forbid(unsafe_code)]

mod admission;
mod allocator;
mod args;
mod commands;
mod compiler;
mod demo;
mod failure;
mod interrupt;
mod progress;
mod scenario;
mod serve_config;
mod stdout;
mod table;
mod top;

use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match args::Args::read() {
        Ok(args) => commands::run(args.command),
        Err(error) => args::explain(&error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
