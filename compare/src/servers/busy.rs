//! The minimal echo: one connection at a time, read repeatedly without a poll for readiness.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result, bail};

use super::bare;

/// Serves until the process ends.
///
/// # Errors
/// No connection can be accepted.
pub(crate) fn serve(listener: &TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().context("accepting")?;
        // A client's error ends only its own connection.
        let _ = echo(stream);
    }
}

fn echo(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut buffer = vec![0; 64 * 1024];
    let mut end = 0;
    loop {
        match stream.read(&mut buffer[end..]) {
            Ok(0) => return Ok(()),
            Ok(count) => end += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(error) => return Err(error.into()),
        }
        let Some(whole) = bare::whole(&buffer[..end]) else { bail!("no message") };
        let mut sent = 0;
        while sent < whole {
            match stream.write(&buffer[sent..whole]) {
                Ok(count) => sent += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if whole == 0 && end == buffer.len() {
            bail!("a message longer than the buffer");
        }
        buffer.copy_within(whole..end, 0);
        end -= whole;
    }
}
