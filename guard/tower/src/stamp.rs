//! When the kernel received what a connection read last, for whoever asks while the request is on its way. Never here: sockets.

use crate::wall;
use http::Request;
use leeward_core::units::Time;
use leeward_runtime::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tower_service::Service;

/// An age over this is a clock that was set.
const OLDEST: Duration = Duration::from_secs(60);

/// The kernel's receive stamp of one connection. Clones are the same stamp.
///
/// Travels with each request of the connection among its extensions. Not by thread: the next request of a pipeline, or
/// another stream of HTTP/2, is served on any.
#[derive(Clone, Debug, Default)]
pub struct Stamp(Arc<AtomicU64>);

impl Stamp {
    /// Time since the kernel received the last bytes that were read; `None` without stamps. Wall clocks are set now and then: a
    /// stamp of the future is no age, and of more than a minute ago none.
    pub fn age(&self) -> Option<Duration> {
        self.age_at(clock::process())
    }

    /// The same at a reading of the process's clock.
    pub(crate) fn age_at(&self, reading: Time) -> Option<Duration> {
        let stamp = self.0.load(Ordering::Relaxed);
        if stamp == 0 {
            return None;
        }
        let age = Duration::from_nanos(wall::at(reading)?.saturating_sub(stamp));
        (age <= OLDEST).then_some(age)
    }

    /// A listener of another make has read bytes that the kernel received at `received`.
    pub fn record(&self, received: SystemTime) {
        self.note(received.duration_since(UNIX_EPOCH).ok(), false);
    }

    /// Bytes were read that the kernel received at `stamp`. `more`: the read before filled its buffer, so these were behind bytes
    /// that are older.
    pub(crate) fn note(&self, stamp: Option<Duration>, more: bool) {
        let stamp = stamp.and_then(|stamp| u64::try_from(stamp.as_nanos()).ok()).unwrap_or(0);
        let before = self.0.load(Ordering::Relaxed);
        let stamp = if more && before != 0 && stamp != 0 { before.min(stamp) } else { stamp };
        self.0.store(stamp, Ordering::Relaxed);
    }
}

/// The other side of a connection, as `ConnectInfo<Peer>`.
#[cfg(feature = "axum")]
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: std::net::SocketAddr,
    /// When the kernel received what it sent last.
    pub stamp: Stamp,
}

/// A service of one connection, whose requests carry the connection's stamp: for servers that take a service per connection.
#[derive(Clone, Debug)]
pub struct Connection<S> {
    inner: S,
    stamp: Stamp,
}

/// Lets the requests of one connection carry its stamp.
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
    fn clocks_that_were_set_make_no_ages() {
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
    fn the_oldest_of_reads_that_follow_each_other_counts() {
        let stamp = Stamp::default();
        stamp.note(at(Duration::from_millis(500)), false);
        stamp.note(at(Duration::from_millis(100)), true);
        assert!(stamp.age().unwrap() >= Duration::from_millis(500));
        stamp.note(at(Duration::from_millis(100)), false);
        assert!(stamp.age().unwrap() < Duration::from_millis(500));
    }
}
