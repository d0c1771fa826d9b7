//! Which CPUs the server's cores and the clients get. The two ends must not share one: each would be measured waiting for
//! the other.

use crate::error::RealError;
use leeward_core::units::Nanos;
use leeward_load::Polling;
use leeward_rpc::client::Transport;
use leeward_runtime::IdlePolicy;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Where the two ends run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The server's cores, one CPU each, by the kernel's numbers.
    pub server: Vec<usize>,
    /// The clients' CPU.
    pub load: usize,
    /// Whether the ends share a CPU: with a synthetic service nothing measured means much then.
    pub shared: bool,
    /// Transport between the ends.
    pub transport: Transport,
}

impl Placement {
    /// Up to `cores` CPUs for the server and one for the clients, of those that this process may use.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn choose(cores: u32) -> Result<Self, RealError> {
        let set = sched_getaffinity(None).map_err(|error| RealError::Cpus(error.into()))?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
        Ok(Self::from_cpus(&cpus, cores))
    }

    /// Up to `cores` CPUs for the server, and the last of them all for the clients, whether the server has it or not: for
    /// services that take locks, where CPUs are not what is short and clients ask for little.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn choose_shared(cores: u32) -> Result<Self, RealError> {
        let apart = Self::choose(cores)?;
        if apart.shared || apart.server.len() >= cores as usize {
            return Ok(apart);
        }
        let server = apart.server.iter().copied().chain([apart.load]).collect();
        Ok(Placement { server, shared: true, ..apart })
    }

    fn from_cpus(cpus: &[usize], cores: u32) -> Self {
        let transport = Transport::Tcp;
        match cpus {
            [] => Placement { server: vec![0], load: 0, shared: true, transport },
            [only] => Placement { server: vec![*only], load: *only, shared: true, transport },
            // The last one for the clients: the first is where a machine's interrupts tend to be, and a server meets those.
            [rest @ .., last] => {
                let cores = (cores.max(1) as usize).min(rest.len());
                Placement { server: rest[..cores].to_vec(), load: *last, shared: false, transport }
            }
        }
    }

    /// The same CPUs, and this transport between the ends.
    #[must_use]
    pub fn with_transport(self, transport: Transport) -> Self {
        Placement { transport, ..self }
    }

    /// How an idle core of the server waits: it spins, unless the clients need its CPU.
    pub(crate) fn idle(&self) -> IdlePolicy {
        if self.shared { IdlePolicy::Adaptive(Nanos::from_micros(20)) } else { IdlePolicy::Spin }
    }

    /// How the clients wait.
    pub(crate) fn polling(&self) -> Polling {
        if self.shared { Polling::Sleep } else { Polling::Busy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_share_no_cpu_if_there_are_two() {
        let place = |cpus: &[usize], cores| Placement::from_cpus(cpus, cores);
        assert_eq!(
            place(&[0, 1], 10),
            Placement { server: vec![0], load: 1, shared: false, transport: Transport::Tcp }
        );
        assert_eq!(
            place(&[2, 4, 6, 8], 2),
            Placement { server: vec![2, 4], load: 8, shared: false, transport: Transport::Tcp }
        );
        assert_eq!(place(&[2, 4, 6, 8], 10).server, [2, 4, 6]);
        assert!(place(&[3], 4).shared);
    }
}
