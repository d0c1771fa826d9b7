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
/// Runs until Ctrl-C, SIGTERM or SIGHUP. Then it accepts no more calls, sends the pending
/// responses, and ends. A second signal ends it at once, without these responses. A repeat within
/// 500 ms counts as the first signal, because some programs send two. The protocol is in
/// docs/protocol.md.
#[derive(Debug, clap::Args)]
#[command(after_help = SERVE)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// Time that a request may spend in queues, those of locks included, such as 2ms; by default no
    /// lock rejects requests
    #[arg(long, value_name = "SPAN")]
    pub(crate) budget: Option<String>,
    #[command(flatten)]
    pub(crate) admission: AdmissionArgs,
    /// Shadow mode: reject no request. The controller decides as if its rejections were enforced,
    /// and they are only counted (docs/admin.md)
    #[arg(long, conflicts_with = "enforce")]
    pub(crate) shadow: bool,
    /// Enforce rejections for this share of the clients only (of the tenants, if certificates name
    /// them), such as 5%; the others are in shadow mode, as with --shadow
    #[arg(long, value_name = "PERCENT")]
    pub(crate) enforce: Option<String>,
    /// Address and port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7117")]
    pub(crate) listen: String,
    /// Also serve datagrams at this address and port, for requests and responses up to 1,296 bytes
    /// (docs/datagrams.md)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) udp: Option<String>,
    /// Longest datagram with --udp, in bytes, from 1128 to 8972: the network's MTU minus 28 (minus
    /// 48 over IPv6). The smaller size of server and client applies; 104 bytes of it are overhead
    #[arg(long, value_name = "BYTES", default_value_t = 1400, value_parser = clap::value_parser!(u16).range(1128..=8972))]
    pub(crate) udp_size: u16,
    /// Encrypt all connections with this certificate: a PEM file, with its intermediate
    /// certificates. It is read again when it changes (docs/tls.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept only clients with a certificate signed by the authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// TOML file that maps the names in client certificates to tenant numbers, and has a policy for
    /// unknown names. By default each name is a tenant of its own (docs/tls.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_tenants: Option<PathBuf>,
    /// Address of the admin port with metrics, health, decisions and the dashboard, such as
    /// 127.0.0.1:9464; by default there is none. It has no passwords: use a local address
    /// (docs/admin.md)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Encrypt the admin port with this certificate: a PEM file, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_tls_cert: Option<PathBuf>,
    /// Private key of --admin-tls-cert, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_tls_key: Option<PathBuf>,
    /// Accept at the admin port only clients with a certificate signed by the authorities in this
    /// PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_tls_client_ca: Option<PathBuf>,
    /// Push the metrics to an OpenTelemetry receiver, by OTLP over HTTP in JSON, such as
    /// http://127.0.0.1:4318/v1/metrics
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// Interval between two pushes of --otlp, from 100ms to 3600s
    #[arg(long, value_name = "SPAN", default_value = "10s")]
    pub(crate) otlp_every: String,
    /// Number of cores, one thread each; or a range such as 1..4, within which an allocator follows
    /// the load
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) cores: CoreRange,
    /// Policy that grants and parks cores: delay, delay-range, buffer, utilization, per-request or
    /// static, with parameters such as delay:threshold=20us,search=1ms (docs/cores.md); by default
    /// delay, if --cores is a range
    #[arg(long, value_name = "POLICY")]
    pub(crate) allocator: Option<String>,
    /// CPUs to pin the cores to, such as 0,1; by default wherever the system puts them
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    pub(crate) cpus: Vec<usize>,
    /// Idle cores: `spin` (lowest latency), `block` (lowest CPU use), or the time to spin before
    /// blocking, such as 50us. By default `spin` if --cpus names a CPU for each core of each port,
    /// otherwise 50us
    #[arg(long, value_name = "POLICY")]
    pub(crate) idle: Option<String>,
    /// Read and write several sockets in one system call if the kernel has io_uring, or never
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) io_uring: IoUringMode,
    /// Maximum of open connections at each port; fewer if the system allows fewer descriptors
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Memory for incoming requests that are longer than a connection's own buffer of 16 KiB, for
    /// all connections of a port together, such as 64MB; a connection that gets none is not read
    /// until some is free
    #[arg(long, value_name = "SIZE", default_value = "64MB")]
    pub(crate) receiving: String,
    /// Memory for responses that clients have not read yet, for all connections of a port together.
    /// Above it, the server serves only clients that read their responses, up to twice as much, and
    /// disconnects clients that read nothing for half a second. The memcached port continues to
    /// serve all clients, except for values longer than 16 KiB
    #[arg(long, value_name = "SIZE", default_value = "128MB")]
    pub(crate) sending: String,
    /// Policy that changes a tier's setup, if --threading names curves: leeward, utune, tbd, fm or
    /// ipi (docs/threading-advise.md)
    #[arg(long, value_name = "POLICY", default_value = "leeward")]
    pub(crate) threading_policy: String,
    /// Accept curves of another service, other data or another machine
    #[arg(long)]
    pub(crate) accept_curves: bool,
    /// Record the calls of the controller and its decisions, for `leeward replay`; a second port's
    /// controller is recorded in FILE.memcached
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Read flags that are not given here from a TOML file: its keys are the names of these flags
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// At the end, print the counts of all requests, and the use of the cores, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Stop, as at Ctrl-C, when the standard input ends, so that this process does not outlive the
    /// program that started it
    #[arg(long, hide = true)]
    pub(crate) until_input_ends: bool,
    /// Print the effective settings as a file for --config, and end
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
  leeward serve --cores 1..4 --allocator delay                  cores that follow the load
  leeward serve --service kv --memcached 127.0.0.1:11211        a key-value store, also for memcached clients
  leeward serve --udp 127.0.0.1:7117                            also datagrams, at half the cost of a short request
  leeward serve --tls-cert server.pem --tls-key server.key      with TLS: leeward load --tls-ca ca.pem
  leeward serve --admin 127.0.0.1:9464                          with a dashboard, http://127.0.0.1:9464/
  leeward serve --admission edge --slo 20ms --shadow            rejects no request, and counts the rejections
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
    Some(format!("--cpus names CPU {cpu} {} times: its cores share it", times(cpu)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::units::Nanos;

    #[test]
    fn a_repeated_cpu_gives_a_warning() {
        assert_eq!((repeated_cpu(&[]), repeated_cpu(&[0, 1, 2])), (None, None));
        assert_eq!(repeated_cpu(&[1, 0, 0, 0]).unwrap(), "--cpus names CPU 0 3 times: its cores share it");
    }

    #[test]
    fn idle_policies_are_read() {
        assert_eq!(parse_idle("spin").unwrap(), IdlePolicy::Spin);
        assert_eq!(parse_idle("block").unwrap(), IdlePolicy::Block);
        assert_eq!(parse_idle("50us").unwrap(), IdlePolicy::Adaptive(Nanos::from_micros(50)));
        assert!(parse_idle("sometimes").unwrap_err().to_string().contains("accepted"));
    }
}
