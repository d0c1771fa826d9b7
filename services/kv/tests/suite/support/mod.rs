//! Servers for the tests, memcached among them, and a plain client that sends bytes.

pub(crate) mod lines;
pub(crate) mod memcached;

use leeward_core::units::Nanos;
use leeward_kv::server::{Builder, Server};
use leeward_kv::store::{Store, StoreConfig};
use leeward_runtime::IdlePolicy;
pub(crate) use leeward_testkit::wait::until;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Time after which the test fails.
pub(crate) const LIVENESS: Duration = Duration::from_secs(30);

/// Creates a store of the default size.
pub(crate) fn store() -> Arc<Store> {
    Arc::new(Store::new(&StoreConfig::default()).unwrap())
}

/// Creates a server that sleeps when idle: tests share their CPUs.
pub(crate) fn builder() -> Builder {
    Server::builder().idle(IdlePolicy::Adaptive(Nanos::from_micros(20))).cores(2)
}

pub(crate) fn serve(store: &Arc<Store>) -> Server {
    builder().start("127.0.0.1:0", store).unwrap()
}

/// A client that sends and reads bytes.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIVENESS)).unwrap();
        stream.set_write_timeout(Some(LIVENESS)).unwrap();
        Client(stream)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Reads bytes up to and including `end`.
    pub(crate) fn until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut taken = Vec::new();
        let mut piece = [0; 4096];
        while !taken.ends_with(end) {
            match self.0.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => taken.extend_from_slice(&piece[..count]),
                Err(error) => panic!("{error}; so far: {}", String::from_utf8_lossy(&taken)),
            }
        }
        taken
    }

    pub(crate) fn line(&mut self) -> String {
        String::from_utf8(self.until(b"\r\n")).unwrap()
    }

    /// Reads exactly one line, if several have arrived.
    pub(crate) fn until_line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// Sends bytes and reads one line.
    pub(crate) fn ask(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        self.line()
    }

    /// Reads until the server closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut taken = Vec::new();
        match self.0.read_to_end(&mut taken) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            _ => taken,
        }
    }

    /// Sends `bytes` and a mark while reading, so that neither end blocks.
    ///
    /// Returns the answers up to the mark's answer, and whether the server closed the connection
    /// instead.
    pub(crate) fn exchange(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut writer = self.0.try_clone().unwrap();
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A closed connection shows in the read.
                let _ = writer.write_all(bytes).and_then(|()| writer.write_all(b"\r\nmg the-mark k\r\n"));
            });
            let mut piece = [0; 65536];
            loop {
                match self.0.read(&mut piece) {
                    Ok(count) if count > 0 => taken.extend_from_slice(&piece[..count]),
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        panic!("no answer to {bytes:?}; so far: {}", String::from_utf8_lossy(&taken))
                    }
                    _ => return (taken, true),
                }
                if taken.ends_with(b"EN kthe-mark\r\n") {
                    return (taken, false);
                }
            }
        })
    }
}
