//! The `leeward` program: reads its arguments, runs a command, says what went wrong in one line. What the commands do
//! lives in the libraries; how they talk lives in `commands`.
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
mod service;
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
