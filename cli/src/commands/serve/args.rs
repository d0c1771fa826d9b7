//! The command line of `leeward serve` and `leeward record`.

use std::path::PathBuf;

use anyhow::anyhow;
use leeward_core::units::parse_duration;
use leeward_runtime::IdlePolicy;

use super::cores::CoreRange;
use crate::admission::AdmissionArgs;
use crate::failure::Failure;
use crate::service::ServiceArgs;

/// Serve requests on real sockets under an admission controller
///
/// Runs until Ctrl-C, SIGTERM or SIGHUP: then it takes no more calls, sends the answers that it
/// owes, and ends. A second signal ends it at once, and what it owes is lost; repeats within 500 ms
/// of the first are the first, for some programs send two. The protocol is docs/protocol.md.
#[derive(Debug, clap::Args)]
#[command(after_help = SERVE)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// Time that a request may spend on queues, those of locks included, such as 2ms; by default no
    /// lock refuses anybody
    #[arg(long, value_name = "SPAN")]
    pub(crate) budget: Option<String>,
    #[command(flatten)]
    pub(crate) admission: AdmissionArgs,
    /// Refuse nobody: the controller decides on the queue that would be if it did, and what it
    /// would refuse is counted (docs/admin.md)
    #[arg(long, conflicts_with = "enforce")]
    pub(crate) shadow: bool,
    /// Refuse as the controller says for this share of the clients (of the tenants, where
    /// certificates name some) alone, such as 5%; for the others it is a rehearsal as with --shadow
    #[arg(long, value_name = "PERCENT")]
    pub(crate) enforce: Option<String>,
    /// Address and port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7117")]
    pub(crate) listen: String,
    /// Address and port at which datagrams are served, too, for requests and answers up to 1,296
    /// bytes (docs/datagrams.md)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) udp: Option<String>,
    /// The longest datagram with --udp, in bytes, from 1128 to 8972: what the network carries in
    /// one piece, less 28 (less 48 over IPv6). Of a server and a client the smaller size holds; 104
    /// bytes of it are no argument
    #[arg(long, value_name = "BYTES", default_value_t = 1400, value_parser = clap::value_parser!(u16).range(1128..=8972))]
    pub(crate) udp_size: u16,
    /// Encrypt all connections, and show this certificate to clients: a PEM file, with the
    /// certificates between it and its authority. It is read again when it changes (docs/tls.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Take only clients with a certificate that these authorities have signed: a PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Numbers of the tenants that clients count for, by the names in their certificates, and what
    /// becomes of others: a TOML file. Unless it is said, each name is a tenant of its own
    /// (docs/tls.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_tenants: Option<PathBuf>,
    /// Where metrics, health, decisions and the dashboard are, such as 127.0.0.1:9464; nothing of
    /// it unless it is said. It has no passwords: leave it on this machine (docs/admin.md)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Encrypt the admin port, and show this certificate there: a PEM file, read again when it
    /// changes
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_tls_cert: Option<PathBuf>,
    /// Private key of --admin-tls-cert, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_tls_key: Option<PathBuf>,
    /// Let only operators with a certificate that these authorities have signed ask the admin port:
    /// a PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_tls_client_ca: Option<PathBuf>,
    /// Push the metrics to a receiver of OpenTelemetry's, by OTLP over HTTP in JSON, such as
    /// http://127.0.0.1:4318/v1/metrics
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// How often --otlp pushes them, from 100ms to 1h
    #[arg(long, value_name = "SPAN", default_value = "10s")]
    pub(crate) otlp_every: String,
    /// Cores, one thread each; or a range such as 1..4 of which an allocator has as many there as
    /// the load needs
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) cores: CoreRange,
    /// Policy that grants and parks cores: delay, delay-range, buffer, utilization, per-request or
    /// static, with parameters such as delay:threshold=20us,search=1ms (docs/cores.md); by default,
    /// where --cores is a range, delay
    #[arg(long, value_name = "POLICY")]
    pub(crate) allocator: Option<String>,
    /// CPUs to pin the cores to, such as 0,1; by default wherever the system puts them
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    pub(crate) cpus: Vec<usize>,
    /// A core without work: spins (least latency), blocks (least CPU), or spins for a while first,
    /// such as 50us. By default it spins if --cpus names a CPU for each core of each port, and for
    /// 50us else
    #[arg(long, value_name = "POLICY")]
    pub(crate) idle: Option<String>,
    /// Read and write several sockets in one system call where the kernel has io_uring, or never
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) io_uring: IoUringMode,
    /// Connections that may be open at once, at each port; fewer where the system allows fewer
    /// descriptors
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Memory for requests that are coming and are longer than a connection's own buffer of 16 KiB
    /// (memcached: 32 KiB), of all connections of a port together, such as 64MB; who finds none is
    /// read when there is some
    #[arg(long, value_name = "SIZE", default_value = "64MB")]
    pub(crate) receiving: String,
    /// Memory for answers that clients have not taken, of all connections of a port together; while
    /// more waits, clients that take theirs go on until it is twice as much, and those that take
    /// nothing for half a second are sent away; of memcached's clients the others go on, too, but
    /// for values that are longer than 16 KiB
    #[arg(long, value_name = "SIZE", default_value = "128MB")]
    pub(crate) sending: String,
    /// Policy that changes a tier's setup, where --threading names curves: leeward, utune, tbd, fm
    /// or ipi (docs/threading-advise.md)
    #[arg(long, value_name = "POLICY", default_value = "leeward")]
    pub(crate) threading_policy: String,
    /// Take curves of another service, other data or another machine
    #[arg(long)]
    pub(crate) accept_curves: bool,
    /// Record what the controller is asked and decides, for `leeward replay`; a second port's
    /// controller is recorded in FILE.memcached
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Take what is not said here from a TOML file: its keys are the names of these flags
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// At the end, print what became of all requests, and of the cores, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Stop, as at Ctrl-C, when the standard input ends: so that a program that starts this one
    /// never leaves it behind
    #[arg(long, hide = true)]
    pub(crate) until_input_ends: bool,
    /// Print what would be served, as such a file, and end
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Ids of what was written on the command line.
    #[arg(skip)]
    pub(crate) written: Vec<String>,
}

const SERVE: &str = "\
Examples:
  leeward serve                                                 auto on one core
  leeward serve --admission none --cores 4 --cpus 0,1,2,3
  leeward serve --slo 1ms --set target=300us --idle 50us
  leeward serve --cores 1..4 --allocator delay                  cores that come with the load and go without it
  leeward serve --service kv --memcached 127.0.0.1:11211        pairs, for memcached's clients too
  leeward serve --udp 127.0.0.1:7117                            datagrams, too: half the cost of a short request
  leeward serve --tls-cert server.pem --tls-key server.key      with TLS: leeward load --tls-ca ca.pem
  leeward serve --admin 127.0.0.1:9464                          with a dashboard, http://127.0.0.1:9464/
  leeward serve --admission edge --slo 20ms --shadow            refuses nobody, and counts whom it would refuse
  leeward serve --otlp http://127.0.0.1:4318/v1/metrics         metrics for OpenTelemetry
  leeward serve --cores 2 --print-config > server.toml          a file to begin with
  leeward serve --config server.toml --cores 4";

/// Something that not every kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IoUringMode {
    Auto,
    Off,
}

impl IoUringMode {
    /// Name in flags and configuration files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            IoUringMode::Auto => "auto",
            IoUringMode::Off => "off",
        }
    }
}

/// Values of a switch in configuration files; on the command line a switch has no value.
pub(super) const OFF_ON: [&str; 2] = ["off", "on"];

/// Parses `spin`, `block`, or the time to spin before sleeping.
pub(crate) fn parse_idle(text: &str) -> Result<IdlePolicy, Failure> {
    match text {
        "spin" => Ok(IdlePolicy::Spin),
        "block" => Ok(IdlePolicy::Block),
        _ => parse_duration(text).map(IdlePolicy::Adaptive).map_err(|_| {
            Failure::Input(anyhow!("--idle `{text}`; accepted: `spin`, `block`, or how long to spin, such as `50us`"))
        }),
    }
}

/// Warning if a CPU is named more than once, since its cores take turns.
pub(super) fn repeated_cpu(cpus: &[usize]) -> Option<String> {
    let times = |cpu: &usize| cpus.iter().filter(|other| *other == cpu).count();
    let cpu = cpus.iter().find(|cpu| times(cpu) > 1)?;
    Some(format!("--cpus names CPU {cpu} {} times: the cores there take turns", times(cpu)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::units::Nanos;

    #[test]
    fn a_cpu_that_is_named_twice_is_warned_of() {
        assert_eq!((repeated_cpu(&[]), repeated_cpu(&[0, 1, 2])), (None, None));
        assert_eq!(repeated_cpu(&[1, 0, 0, 0]).unwrap(), "--cpus names CPU 0 3 times: the cores there take turns");
    }

    #[test]
    fn idle_policies_are_read() {
        assert_eq!(parse_idle("spin").unwrap(), IdlePolicy::Spin);
        assert_eq!(parse_idle("block").unwrap(), IdlePolicy::Block);
        assert_eq!(parse_idle("50us").unwrap(), IdlePolicy::Adaptive(Nanos::from_micros(50)));
        assert!(parse_idle("sometimes").unwrap_err().to_string().contains("accepted"));
    }
}
