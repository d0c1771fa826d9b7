//! Clients over other streams than TCP: bytes are copied to and from one. Does not contain tests.

use crate::harness::Wire;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

/// Copies bytes until one side has gone, then tells the other side.
pub(crate) fn pump(mut from: impl Read, mut to: impl Write + Close) {
    let _ = std::io::copy(&mut from, &mut to);
    to.close();
}

/// A stream whose writing side can be closed.
pub(crate) trait Close {
    /// Sends the end.
    fn close(&mut self);
}

impl Close for TcpStream {
    fn close(&mut self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Close for UnixStream {
    fn close(&mut self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

/// A client over another kind of stream.
pub(crate) fn relay(from: impl Read + Send + 'static, to: impl Write + Close + Send + 'static) -> Wire {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let wire = Wire::to(listener.local_addr().expect("an address"));
    let (stream, _) = listener.accept().expect("a connection");
    let other = stream.try_clone().expect("a second handle");
    thread::spawn(move || pump(from, other));
    thread::spawn(move || pump(stream, to));
    wire
}
