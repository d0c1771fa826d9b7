//! The `leeward` program: reads its arguments, runs a command, and reports an error in one line.
//! The libraries do the work of the commands; `commands` has their input and output.
#![forbid(unsafe_code)]

mod admission;
mod args;
mod commands;
mod demo;
mod failure;
mod file_limit;
mod hangup;
mod ignored_signals;
mod interrupt;
mod keyboard;
mod progress;
mod sanitize;
mod scenario;
mod service;
mod stdout;
mod systemd;
mod table;
mod terminal;
mod tls;
mod top;

use std::process::ExitCode;

fn main() -> ExitCode {
    file_limit::survive();
    let outcome = match args::Args::read() {
        Ok(args) => args.command.run(),
        Err(error) => args::report_clap_error(&error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
