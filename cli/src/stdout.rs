//! Printing to stdout, where the reader may have left (`leeward list | head -1`).

use std::io::{ErrorKind, Write};

use anyhow::Context;

use crate::failure::Failure;

pub(crate) use crate::sanitize::sanitize;

/// Prints `text` and a line's end. A reader that has gone has seen enough: no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()).or_else(ignore_broken_pipe)
}

/// Lets a broken pipe pass.
pub(crate) fn ignore_broken_pipe(error: std::io::Error) -> Result<(), Failure> {
    if error.kind() == ErrorKind::BrokenPipe {
        return Ok(());
    }
    Err(error).context("stdout").map_err(Failure::Runtime)
}
