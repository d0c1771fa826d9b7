//! A running server: looking at it, stopping it.

use crate::handle::{Handle, Job};
use crate::protocol::Protocol;
use crate::statistics::Statistics;
use leeward_control::server::Gauges;
use leeward_control::units::Nanos;
use leeward_host::Counts;
use leeward_runtime::{CoreUsage, Cores};
use std::io;
use std::net::SocketAddr;

/// A running server. Dropping it does not stop it: see [`Server::stop`].
pub struct Server {
    address: SocketAddr,
    engine: Box<dyn Running>,
}

/// A running engine, whatever it speaks. Asked seldom, so a virtual call is no matter.
trait Running: Send + Sync {
    fn counts(&self) -> Counts;
    fn gauges(&self) -> Gauges;
    fn delay(&self) -> Nanos;
    fn idle(&self) -> Nanos;
    fn core_usage(&self) -> Option<CoreUsage>;
    fn statistics(&self) -> Statistics;
    fn is_stopping(&self) -> bool;
    fn stop(self: Box<Self>) -> io::Result<Counts>;
}

struct Engine<P: Protocol> {
    cores: Cores<Job<P>>,
    handle: Handle<P>,
}

impl<P: Protocol> Running for Engine<P> {
    fn counts(&self) -> Counts {
        self.handle.counts()
    }

    fn gauges(&self) -> Gauges {
        self.handle.gauges()
    }

    fn delay(&self) -> Nanos {
        self.handle.delay()
    }

    fn idle(&self) -> Nanos {
        self.handle.idle()
    }

    fn core_usage(&self) -> Option<CoreUsage> {
        self.handle.core_usage()
    }

    fn statistics(&self) -> Statistics {
        self.handle.statistics()
    }

    fn is_stopping(&self) -> bool {
        self.handle.shared().is_stopping()
    }

    fn stop(self: Box<Self>) -> io::Result<Counts> {
        self.cores.stop();
        self.cores.join()?;
        Ok(self.handle.counts())
    }
}

impl Server {
    pub(crate) fn new<P: Protocol>(address: SocketAddr, cores: Cores<Job<P>>, handle: Handle<P>) -> Self {
        Server { address, engine: Box::new(Engine { cores, handle }) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The controller's state.
    pub fn gauges(&self) -> Gauges {
        self.engine.gauges()
    }

    /// Requests so far.
    pub fn counts(&self) -> Counts {
        self.engine.counts()
    }

    /// The queueing delay at this moment.
    pub fn delay(&self) -> Nanos {
        self.engine.delay()
    }

    /// How long the cores have had nothing to do since the start, all together.
    pub fn idle(&self) -> Nanos {
        self.engine.idle()
    }

    /// Who has had the cores so far; `None` without an allocator.
    pub fn core_usage(&self) -> Option<CoreUsage> {
        self.engine.core_usage()
    }

    /// What the server tells of itself.
    pub fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }

    /// Whether a core could not go on, and has ended the others with it: [`Server::stop`] then says why.
    pub fn has_failed(&self) -> bool {
        // Nobody else asks the cores to end while there is a server.
        self.engine.is_stopping()
    }

    /// Takes no more connections and requests, sends the answers that it owes, and ends. Returns what became of all requests.
    ///
    /// # Errors
    /// What made a core end before its time.
    pub fn stop(self) -> io::Result<Counts> {
        self.engine.stop()
    }
}
