//! Prints to stdout, whose reader may have gone (`leeward list | head -1`).

use std::io::{ErrorKind, Write};

use anyhow::Context;

use crate::failure::Failure;

pub(crate) use crate::sanitize::sanitize;

/// Prints `text` and a newline. A closed pipe is not a failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()).or_else(ignore_broken_pipe)
}

/// Ignores a broken pipe.
pub(crate) fn ignore_broken_pipe(error: std::io::Error) -> Result<(), Failure> {
    if error.kind() == ErrorKind::BrokenPipe {
        return Ok(());
    }
    Err(error).context("stdout").map_err(Failure::Runtime)
}
