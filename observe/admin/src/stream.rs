//! Bytes of a connection: as they are, or by TLS. Never waits. Never here: what they mean.

#[cfg(feature = "tls")]
use crate::tls::TlsStream;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

/// A connection's stream.
pub(crate) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Encrypted(Box<TlsStream>),
}

impl Stream {
    /// The socket, to wait for.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Stream::Encrypted(encrypted) => encrypted.socket(),
        }
    }

    /// Whether bytes that were written have not left.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            #[cfg(feature = "tls")]
            Stream::Encrypted(encrypted) => encrypted.wants_write(),
        }
    }

    /// Says that nothing more comes, once all that was written has left.
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
