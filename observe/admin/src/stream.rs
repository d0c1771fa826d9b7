//! Byte stream of a connection: plain or TLS. Never blocks. Does not contain the protocol.

#[cfg(feature = "tls")]
use crate::tls::TlsStream;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Byte stream of a connection.
pub(crate) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Encrypted(Box<TlsStream>),
}

impl Stream {
    /// Socket, for polling.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Stream::Encrypted(encrypted) => encrypted.socket(),
        }
    }

    /// True if written bytes have not been sent to the socket yet.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            #[cfg(feature = "tls")]
            Stream::Encrypted(encrypted) => encrypted.wants_write(),
        }
    }

    /// Ends the sending direction, once all written bytes have been sent.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Stream::Encrypted(encrypted) = self {
            encrypted.close()?;
        }
        let _ = self.socket().shutdown(Shutdown::Write);
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(into),
            #[cfg(feature = "tls")]
            Stream::Encrypted(encrypted) => encrypted.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            #[cfg(feature = "tls")]
            Stream::Encrypted(encrypted) => encrypted.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(_) => Ok(()),
            #[cfg(feature = "tls")]
            Stream::Encrypted(encrypted) => encrypted.flush(),
        }
    }
}
