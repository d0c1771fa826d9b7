//! Settings of a proxy; the objective determines what the caller leaves out. Does not contain
//! flags or files ([`mod@file`]).

pub mod access_log;
mod error;
pub mod file;
pub mod rules;
pub mod tls;

use crate::backend::address::BackendAddress;
use crate::transport::proxy_protocol::encode::Version as ProxyProtocolVersion;
use access_log::AccessLogSettings;
use ipnet::IpNet;
use leeward_concurrency::registry::LimitPolicy;
use leeward_concurrency::{ConcurrencyLimit, LimitEnvironment, registry};
use leeward_core::params::{ParamError, Params, RawParam};
use leeward_gate::Mode;
use rules::{Rule, TenantSource};
use std::time::Duration;
use tls::{BackendTlsSettings, TlsSettings};

/// Settings of a proxy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Latency objective, from the arrival of a request's head to the last byte of its answer.
    pub slo: Duration,
    /// Address to listen on.
    pub listen: String,
    /// Address of the admin port, which the program opens; `None`: there is none.
    pub admin: Option<String>,
    /// Backends, at least one.
    pub backends: Vec<BackendAddress>,
    /// Whether the backends share one resource, so that one limit holds for their sum.
    pub is_shared: bool,
    /// Limit of requests at a backend.
    pub limit: LimitChoice,
    /// Worker threads.
    pub threads: usize,
    /// Most open client connections.
    pub connections: usize,
    /// Networks whose headers about classes, deadlines and clients are believed.
    pub trusted: Vec<IpNet>,
    /// Whether rejections are enforced.
    pub mode: Mode,
    /// Path that the proxy asks for to learn whether a backend is well; `None`: it only connects to
    /// a backend that was unreachable.
    pub health: Option<String>,
    /// Paths that never wait and are never rejected.
    pub exempt: Vec<String>,
    /// End of a request's stay at the backend.
    pub until: PlaceEnd,
    /// Most requests that wait.
    pub queue_requests: usize,
    /// Most bytes that waiting requests hold.
    pub queue_bytes: usize,
    /// Time-outs.
    pub timeouts: Timeouts,
    /// TLS to clients; `None`: none.
    pub tls: Option<TlsSettings>,
    /// TLS to backends whose addresses begin with `https://`.
    pub backend_tls: BackendTlsSettings,
    /// Whether clients' connections begin with a header of the PROXY protocol, from trusted peers
    /// only.
    pub accepts_proxy_protocol: bool,
    /// Version of the PROXY protocol that connections to backends begin with; `None`: none.
    pub sends_proxy_protocol: Option<ProxyProtocolVersion>,
    /// Access log.
    pub access_log: AccessLogSettings,
    /// Classes and tenants of requests; the first rule that matches counts.
    pub rules: Vec<Rule>,
    /// Origin of the tenant of a request without a rule for it.
    pub tenant_by: Option<TenantSource>,
}

/// Event that frees a request's place at the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlaceEnd {
    /// The last byte of the answer.
    #[default]
    LastByte,
    /// The first byte of the answer: for answers that stream for long, such as tokens.
    FirstByte,
}

/// Time-outs; `None`: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Connecting to a backend.
    pub connect: Duration,
    /// From the end of the request to the first byte of the answer.
    pub first_byte: Option<Duration>,
    /// Between two pieces of an answer.
    pub idle: Option<Duration>,
    /// From sending a request to the end of its answer.
    pub total: Option<Duration>,
    /// For a client's head, and between two requests of a connection.
    pub client: Duration,
    /// Between two pieces of a request's body, and between two reads of an answer.
    pub client_idle: Duration,
    /// For requests in progress when the proxy is told to stop.
    pub stop: Duration,
}

/// Most open client connections, unless the file says another number.
pub(crate) const DEFAULT_CONNECTIONS: usize = 20_000;

impl Timeouts {
    /// The defaults under an objective.
    pub fn for_objective(slo: Duration) -> Self {
        let longest = Duration::from_secs(60);
        Timeouts {
            connect: (slo * 4).clamp(Duration::from_secs(1), Duration::from_secs(10)),
            first_byte: Some((slo * 100).clamp(Duration::from_secs(30), Duration::from_secs(600))),
            idle: Some(longest),
            total: None,
            client: Duration::from_secs(30),
            client_idle: Duration::from_secs(30),
            stop: Duration::from_secs(30),
        }
    }
}

/// A concurrency limit by name, with its parameters.
#[derive(Clone, Debug)]
pub struct LimitChoice {
    policy: &'static LimitPolicy,
    params: Params,
}

/// Error: there is no such limit, or it rejects its parameter.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// No limit has the name.
    #[error("no limit is named `{name}`; there are: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The limits that there are.
        known: String,
    },
    /// The parameter is out of range or malformed.
    #[error(transparent)]
    Param(#[from] ParamError),
}

impl Default for LimitChoice {
    fn default() -> Self {
        LimitChoice { policy: &leeward_concurrency::knee::POLICY, params: Params::default() }
    }
}

impl PartialEq for LimitChoice {
    fn eq(&self, other: &Self) -> bool {
        (self.policy.name, &self.params) == (other.policy.name, &other.params)
    }
}

impl LimitChoice {
    /// Reads a limit: its name, such as `knee`, or a number.
    ///
    /// # Errors
    /// See [`LimitError`].
    pub fn parse(text: &str) -> Result<Self, LimitError> {
        let text = text.trim();
        if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            let policy = &leeward_concurrency::fixed::POLICY;
            let params = policy.params(&[("limit", RawParam::Text(text.into()))])?;
            return Ok(LimitChoice { policy, params });
        }
        let known = || registry::POLICIES.iter().map(|policy| policy.name).collect::<Vec<_>>().join(", ");
        let policy = registry::find(text)
            .map_err(|_| LimitError::Unknown { name: text.chars().take(40).collect(), known: known() })?;
        Ok(LimitChoice { policy, params: policy.params(&[])? })
    }

    /// Name of the limit.
    pub fn name(&self) -> &'static str {
        self.policy.name
    }

    pub(crate) fn build(&self, slo: Duration, seed: u64) -> Box<dyn ConcurrencyLimit> {
        self.policy.build(&self.params, &LimitEnvironment { objective: slo.into(), seed })
    }
}

impl Settings {
    /// Settings for an objective, an address to listen on, and backends.
    pub fn new(slo: Duration, listen: &str, backends: Vec<BackendAddress>) -> Self {
        Settings {
            slo,
            listen: listen.into(),
            admin: None,
            backends,
            is_shared: false,
            limit: LimitChoice::default(),
            threads: std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(4)),
            connections: DEFAULT_CONNECTIONS,
            trusted: vec![IpNet::from(LOOPBACK_4), IpNet::from(LOOPBACK_6)],
            mode: Mode::Enforce,
            health: None,
            exempt: vec!["/healthz".into()],
            until: PlaceEnd::default(),
            queue_requests: 10_000,
            queue_bytes: 64 << 20,
            timeouts: Timeouts::for_objective(slo),
            tls: None,
            accepts_proxy_protocol: false,
            sends_proxy_protocol: None,
            backend_tls: BackendTlsSettings::default(),
            access_log: AccessLogSettings::default(),
            rules: Vec::new(),
            tenant_by: None,
        }
    }
}

const LOOPBACK_4: ipnet::Ipv4Net = ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(127, 0, 0, 0), 8);
const LOOPBACK_6: ipnet::Ipv6Net = ipnet::Ipv6Net::new_assert(std::net::Ipv6Addr::LOCALHOST, 128);
