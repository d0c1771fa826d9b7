//! A running server: looking at it, stopping it.

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

/// A running server, whatever it speaks: see [`Running`] for what can be asked. Dropping it does not stop it: see
/// [`Server::stop`].
pub struct Server(Box<dyn RunningServer>);

/// Questions to a running server. Asked seldom, so a virtual call is no matter.
pub trait RunningServer: Send + Sync {
    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// Where datagrams are served; `None` if they are not.
    fn datagram_address(&self) -> Option<SocketAddr> {
        None
    }

    /// Requests so far.
    fn counts(&self) -> RequestCounts;

    /// The controller's state.
    fn gauges(&self) -> Gauges;

    /// The queueing delay at this moment.
    fn delay(&self) -> Nanos;

    /// How long the cores have had nothing to do since the start, all together.
    fn idle(&self) -> Nanos;

    /// Use of the cores so far; `None` without an allocator.
    fn core_usage(&self) -> Option<CoreUsage>;

    /// Statistics of the server.
    fn statistics(&self) -> Statistics;

    /// The server for those who watch it ([`Config::watched`](crate::Config)); `None` where no watch is kept.
    fn source(&self) -> Option<Arc<dyn Source>> {
        None
    }

    /// Whether a core could not go on, and has ended the others with it: [`Server::stop`] then says why.
    fn has_failed(&self) -> bool;

    /// See [`Server::stop`].
    ///
    /// # Errors
    /// What made a core end before its time.
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
        // Nobody else asks the cores to end while there is a server.
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

    /// A server of another kind than the engine's own.
    pub fn of(running: impl RunningServer + 'static) -> Self {
        Server(Box::new(running))
    }

    /// Takes no more connections and requests, sends the answers that it owes, and ends. Returns what became of all requests.
    ///
    /// # Errors
    /// What made a core end before its time.
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
