//! A running server: observing and stopping it.

use crate::handle::Handle;
use crate::job::Job;
use crate::protocol::Protocol;
use crate::statistics::Statistics;
use leeward_core::server::Gauges;
use leeward_core::units::Nanos;
use leeward_host::RequestCounts;
use leeward_observe::Source;
use leeward_runtime::{CoreUsage, Cores};
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

/// A running server of any protocol: see [`RunningServer`] for its state. Dropping it does not stop
/// it: see [`Server::stop`].
pub struct Server(Box<dyn RunningServer>);

/// State of a running server. Asked for seldom, so the cost of a virtual call doesn't matter.
pub trait RunningServer: Send + Sync {
    /// The listening address.
    fn address(&self) -> SocketAddr;

    /// Address that serves datagrams; `None` without datagrams.
    fn datagram_address(&self) -> Option<SocketAddr> {
        None
    }

    /// Requests so far.
    fn counts(&self) -> RequestCounts;

    /// The controller's state.
    fn gauges(&self) -> Gauges;

    /// The current queueing delay.
    fn delay(&self) -> Nanos;

    /// Idle time of all cores since the start.
    fn idle(&self) -> Nanos;

    /// Core usage so far; `None` without an allocator.
    fn core_usage(&self) -> Option<CoreUsage>;

    /// The server's statistics.
    fn statistics(&self) -> Statistics;

    /// The server as an observed source ([`Config::watched`](crate::Config)); `None` if it is not
    /// watched.
    fn source(&self) -> Option<Arc<dyn Source>> {
        None
    }

    /// Returns whether a core has failed and ended the others with it. [`Server::stop`] then
    /// returns the error.
    fn has_failed(&self) -> bool;

    /// Stops the server, see [`Server::stop`].
    ///
    /// # Errors
    /// The error that made a core end early.
    fn stop(self: Box<Self>) -> io::Result<RequestCounts>;
}

struct Engine<P: Protocol> {
    address: SocketAddr,
    datagrams: Option<SocketAddr>,
    cores: Cores<Job<P::Call>>,
    handle: Handle<P>,
}

impl<P: Protocol> RunningServer for Engine<P> {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn datagram_address(&self) -> Option<SocketAddr> {
        self.datagrams
    }

    fn counts(&self) -> RequestCounts {
        self.handle.counts()
    }

    fn gauges(&self) -> Gauges {
        self.handle.gauges()
    }

    fn delay(&self) -> Nanos {
        self.handle.delay()
    }

    fn idle(&self) -> Nanos {
        self.handle.shared().idle()
    }

    fn core_usage(&self) -> Option<CoreUsage> {
        self.handle.shared().core_usage()
    }

    fn statistics(&self) -> Statistics {
        self.handle.statistics()
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        self.handle.source()
    }

    fn has_failed(&self) -> bool {
        // While the server exists, only a failing core ends the others.
        self.handle.shared().is_stopping()
    }

    fn stop(self: Box<Self>) -> io::Result<RequestCounts> {
        self.cores.stop();
        self.cores.join()?;
        Ok(self.handle.counts())
    }
}

impl Server {
    pub(crate) fn new<P: Protocol>(
        address: SocketAddr,
        datagrams: Option<SocketAddr>,
        cores: Cores<Job<P::Call>>,
        handle: Handle<P>,
    ) -> Self {
        Server(Box::new(Engine { address, datagrams, cores, handle }))
    }

    /// Wraps a server of another kind than the engine's own.
    pub fn of(running: impl RunningServer + 'static) -> Self {
        Server(Box::new(running))
    }

    /// Stops the server: it accepts no more connections and requests, sends the pending responses,
    /// and ends. Returns the final counts of all requests.
    ///
    /// # Errors
    /// The error that made a core end early.
    pub fn stop(self) -> io::Result<RequestCounts> {
        self.0.stop()
    }
}

impl Deref for Server {
    type Target = dyn RunningServer;

    fn deref(&self) -> &(dyn RunningServer + 'static) {
        &*self.0
    }
}
