//! Time at which the kernel received the last bytes of a connection, shared with its requests. Does
//! not contain sockets.

use http::{Request, Version};
use leeward_core::units::Time;
use leeward_runtime::{clock, wall};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tower_service::Service;

/// An older stamp comes from a clock that was set.
const OLDEST: Duration = Duration::from_secs(60);

/// The kernel's receive stamp of one connection. Clones are the same stamp.
///
/// The stamp travels in the extensions of each request. A thread-local would not do: any thread may
/// serve the next pipelined request or another HTTP/2 stream.
#[derive(Clone, Debug, Default)]
pub struct Stamp(Arc<Times>);

/// Times of a connection.
#[derive(Debug, Default)]
struct Times {
    /// When the kernel received the last bytes that were read, by the wall clock in ns; 0: unknown.
    received: AtomicU64,
    /// Whether bytes were written since, after a request.
    has_written: AtomicBool,
    /// Whether a request has asked for its age. What was written before is no response: TLS 1.3
    /// writes tickets after the read with the end of its handshake and the first request.
    has_request: AtomicBool,
}

impl Stamp {
    /// Time since the kernel received the last bytes that were read; `None` without stamps.
    ///
    /// The wall clock may be set: a stamp in the future gives 0, and one older than a minute gives
    /// `None`.
    pub fn age(&self) -> Option<Duration> {
        self.age_at(clock::process())
    }

    /// Time for which a request of this version has waited that arrives here at a reading of the
    /// process's clock; as for [`Self::age`].
    ///
    /// One that its client has sent with an earlier one waits behind its own connection, where
    /// nobody else does: it begins when the response before it is written. HTTP/2 writes at any
    /// time.
    pub(crate) fn age_of(&self, version: Version, reading: Time) -> Option<Duration> {
        if !self.0.has_request.load(Ordering::Relaxed) {
            self.0.has_request.store(true, Ordering::Relaxed);
        }
        let age = self.age_at(reading)?;
        let is_pipelined = version < Version::HTTP_2 && self.0.has_written.load(Ordering::Relaxed);
        Some(if is_pipelined { Duration::ZERO } else { age })
    }

    fn age_at(&self, reading: Time) -> Option<Duration> {
        let received = self.0.received.load(Ordering::Relaxed);
        if received == 0 {
            return None;
        }
        let age = Duration::from_nanos(wall::at(reading)?.saturating_sub(received));
        (age <= OLDEST).then_some(age)
    }

    /// Records a read by another kind of listener; the kernel received the bytes at `received`.
    pub fn record(&self, received: SystemTime) {
        self.note(received.duration_since(UNIX_EPOCH).ok(), false);
    }

    /// Records a read of bytes that the kernel received at `stamp`.
    ///
    /// `more`: the previous read filled its buffer, so older bytes were ahead of these.
    pub(crate) fn note(&self, stamp: Option<Duration>, more: bool) {
        let stamp = stamp.and_then(|stamp| u64::try_from(stamp.as_nanos()).ok()).unwrap_or(0);
        let before = self.0.received.load(Ordering::Relaxed);
        let stamp = if more && before != 0 && stamp != 0 { before.min(stamp) } else { stamp };
        self.0.received.store(stamp, Ordering::Relaxed);
        self.0.has_written.store(false, Ordering::Relaxed);
    }

    /// Records a write.
    pub(crate) fn note_write(&self) {
        if self.0.has_request.load(Ordering::Relaxed) {
            self.0.has_written.store(true, Ordering::Relaxed);
        }
    }
}

/// The peer of a connection, as `ConnectInfo<Peer>`.
#[cfg(feature = "axum")]
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address of the peer.
    pub address: std::net::SocketAddr,
    /// When the kernel received the peer's last bytes.
    pub stamp: Stamp,
}

/// Service of one connection; adds the connection's stamp to its requests.
///
/// For servers that take a service per connection.
#[derive(Clone, Debug)]
pub struct Connection<S> {
    inner: S,
    stamp: Stamp,
}

/// Adds the connection's stamp to its requests.
pub fn connection<S>(inner: S, stamp: Stamp) -> Connection<S> {
    Connection { inner, stamp }
}

impl<S, B> Service<Request<B>> for Connection<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.extensions_mut().insert(self.stamp.clone());
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ago: Duration) -> Option<Duration> {
        Some(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().saturating_sub(ago))
    }

    #[test]
    fn a_changed_clock_gives_no_age() {
        let stamp = Stamp::default();
        assert_eq!(stamp.age(), None);
        stamp.note(at(Duration::from_secs(3_600)), false);
        assert_eq!(stamp.age(), None);
        let future = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(9);
        stamp.note(Some(future), false);
        assert_eq!(stamp.age(), Some(Duration::ZERO));
        stamp.note(Some(Duration::MAX), false);
        assert_eq!(stamp.age(), None);
    }

    #[test]
    fn the_oldest_stamp_of_consecutive_reads_counts() {
        let stamp = Stamp::default();
        stamp.note(at(Duration::from_millis(500)), false);
        stamp.note(at(Duration::from_millis(100)), true);
        assert!(stamp.age().unwrap() >= Duration::from_millis(500));
        stamp.note(at(Duration::from_millis(100)), false);
        assert!(stamp.age().unwrap() < Duration::from_millis(500));
    }
}
