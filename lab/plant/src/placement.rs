//! CPUs of the server's cores and of the clients. The two ends must not share a CPU: each would
//! wait for the other.

use crate::error::RealError;
use leeward_core::units::Nanos;
use leeward_load::Polling;
use leeward_rpc::client::Transport;
use leeward_runtime::IdlePolicy;
use rustix::thread::{CpuSet, sched_getaffinity};

/// CPUs of the two ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPUs of the server's cores, one each, by the kernel's numbers.
    pub server: Vec<usize>,
    /// The clients' CPU.
    pub load: usize,
    /// Whether the ends share a CPU; measurements of a synthetic service then mean little.
    pub shared: bool,
    /// Transport between the ends.
    pub transport: Transport,
}

impl Placement {
    /// Chooses up to `cores` CPUs for the server and one for the clients, of those that this
    /// process may use.
    ///
    /// # Errors
    ///
    /// The system does not report its CPUs.
    pub fn choose(cores: u32) -> Result<Self, RealError> {
        let set = sched_getaffinity(None).map_err(|error| RealError::Cpus(error.into()))?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
        Ok(Self::from_cpus(&cpus, cores))
    }

    /// Chooses up to `cores` CPUs for the server, and the last CPU for the clients, even if the
    /// server has it.
    ///
    /// For services that take locks: CPUs are not their bottleneck, and clients need little time.
    ///
    /// # Errors
    ///
    /// The system does not report its CPUs.
    pub fn choose_shared(cores: u32) -> Result<Self, RealError> {
        let separate = Self::choose(cores)?;
        if separate.shared || separate.server.len() >= cores as usize {
            return Ok(separate);
        }
        let server = separate.server.iter().copied().chain([separate.load]).collect();
        Ok(Placement { server, shared: true, ..separate })
    }

    fn from_cpus(cpus: &[usize], cores: u32) -> Self {
        let transport = Transport::Tcp;
        match cpus {
            [] => Placement { server: vec![0], load: 0, shared: true, transport },
            [only] => Placement { server: vec![*only], load: *only, shared: true, transport },
            // The clients get the last CPU: the first often handles interrupts, which a real server
            // meets, too.
            [rest @ .., last] => {
                let cores = (cores.max(1) as usize).min(rest.len());
                Placement { server: rest[..cores].to_vec(), load: *last, shared: false, transport }
            }
        }
    }

    /// Sets the transport between the ends.
    #[must_use]
    pub fn with_transport(self, transport: Transport) -> Self {
        Placement { transport, ..self }
    }

    /// Idle policy of the server's cores: they spin, unless the clients need their CPU.
    pub(crate) fn idle(&self) -> IdlePolicy {
        if self.shared { IdlePolicy::Adaptive(Nanos::from_micros(20)) } else { IdlePolicy::Spin }
    }

    /// Polling of the clients.
    pub(crate) fn polling(&self) -> Polling {
        if self.shared { Polling::Sleep } else { Polling::Busy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_and_server_use_different_cpus_if_possible() {
        let choose = |cpus: &[usize], cores| Placement::from_cpus(cpus, cores);
        assert_eq!(
            choose(&[0, 1], 10),
            Placement { server: vec![0], load: 1, shared: false, transport: Transport::Tcp }
        );
        assert_eq!(
            choose(&[2, 4, 6, 8], 2),
            Placement { server: vec![2, 4], load: 8, shared: false, transport: Transport::Tcp }
        );
        assert_eq!(choose(&[2, 4, 6, 8], 10).server, [2, 4, 6]);
        assert!(choose(&[3], 4).shared);
    }
}
