//! The proxies that are measured: Leeward's, and its rivals at their best, each with one thread,
//! connections to the service kept, and no log.

use crate::process::{PROXY_CPU, Process, find, free_address};
use crate::sample::Protocol;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What stands before the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Ours,
    Direct,
    Haproxy,
    Nginx,
    Envoy,
}

/// Numbers of the rivals that need some.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Numbers {
    /// HAProxy's `maxconn` of the server; 0 for none.
    pub(crate) maxconn: u64,
    /// HAProxy's `timeout queue` in ms.
    pub(crate) queue_ms: u64,
    /// nginx's `limit_conn`; 0 for none.
    pub(crate) limit: u64,
}

/// Settings of one start.
pub(crate) struct Setup<'a> {
    pub(crate) service: SocketAddr,
    pub(crate) objective: Duration,
    pub(crate) numbers: Numbers,
    /// Rules for our proxy, as its configuration has them.
    pub(crate) rules: &'a str,
    /// Envoy's adaptive concurrency; without it Envoy only forwards.
    pub(crate) adaptive: bool,
    pub(crate) protocol: Protocol,
    pub(crate) folder: &'a Path,
}

impl Contender {
    pub(crate) const ALL: [Contender; 5] =
        [Contender::Ours, Contender::Direct, Contender::Haproxy, Contender::Nginx, Contender::Envoy];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Ours => "leeward",
            Contender::Direct => "none",
            Contender::Haproxy => "haproxy",
            Contender::Nginx => "nginx",
            Contender::Envoy => "envoy",
        }
    }

    /// Path of its program, `None` if it is not installed.
    pub(crate) fn program(self) -> Option<String> {
        match self {
            Contender::Direct => Some(String::new()),
            Contender::Haproxy => find("haproxy"),
            Contender::Nginx => find("nginx"),
            Contender::Envoy => existing("ENVOY", "target/recipes/envoy/_bin/envoy"),
            Contender::Ours => {
                let program = existing("LEEWARD", "target/release/leeward")?;
                // An older one has no such command.
                let help = std::process::Command::new(&program).args(["proxy", "--help"]).output().ok()?;
                help.status.success().then_some(program)
            }
        }
    }

    /// Starts the proxy; there is no process where nothing stands before the service.
    pub(crate) fn start(self, setup: &Setup) -> Result<Front> {
        if self == Contender::Direct {
            return Ok(Front { process: None, address: setup.service });
        }
        let program = self.program().with_context(|| format!("{} is not installed", self.name()))?;
        let address = free_address()?;
        let (listen, to) = (address.to_string(), setup.service.to_string());
        let file = |name: &str, text: String| -> Result<String> {
            let path = std::path::absolute(setup.folder.join(name))?;
            std::fs::write(&path, text)?;
            Ok(path.to_string_lossy().into_owned())
        };
        let mut command = vec![program];
        match self {
            Contender::Ours => {
                let slo = format!("{}ms", setup.objective.as_millis());
                let to = if setup.protocol == Protocol::Grpc { format!("h2c://{to}") } else { to };
                let flags = ["proxy", "--slo", &slo, "--listen", &listen, "--to", &to, "--threads", "1"];
                command.extend(flags.map(str::to_owned));
                if !setup.rules.is_empty() {
                    command.extend(["--config".into(), file("proxy.toml", setup.rules.to_owned())?]);
                }
            }
            Contender::Haproxy => command.extend(["-f".into(), file("haproxy.cfg", haproxy(address, setup))?]),
            Contender::Nginx => {
                let folder = std::path::absolute(setup.folder)?;
                let config = file("nginx.conf", nginx(address, setup, &folder))?;
                let folder = format!("{}/", folder.display());
                command.extend(["-p".into(), folder, "-e".into(), "/dev/null".into(), "-c".into(), config]);
            }
            Contender::Envoy => {
                let config = file("envoy.yaml", envoy(address, setup))?;
                let flags = ["--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c", &config];
                command.extend(flags.map(str::to_owned));
            }
            Contender::Direct => {}
        }
        let process = Process::start(&command, &[], PROXY_CPU, address, setup.folder)?;
        Ok(Front { process: Some(process), address })
    }
}

/// What a client connects to.
pub(crate) struct Front {
    pub(crate) process: Option<Process>,
    pub(crate) address: SocketAddr,
}

impl Front {
    /// CPU time of the proxy so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.process.as_ref().map_or(Duration::ZERO, Process::cpu_time)
    }
}

/// The program that a variable names, or where the build and `scripts/setup` put it.
fn existing(variable: &str, default: &str) -> Option<String> {
    let path = std::env::var_os(variable).filter(|path| !path.is_empty()).map_or_else(|| default.into(), PathBuf::from);
    path.exists().then(|| std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned())
}

/// Without strict limits it starts even where it may not have two files per connection.
fn haproxy(listen: SocketAddr, setup: &Setup) -> String {
    let (service, queue) = (setup.service, setup.numbers.queue_ms.max(1));
    let http2 = |is_spoken| if is_spoken { " proto h2" } else { "" };
    let (front, back) = (http2(setup.protocol != Protocol::Http1), http2(setup.protocol == Protocol::Grpc));
    let limit = match setup.numbers.maxconn {
        0 => String::new(),
        maxconn => format!(" maxconn {maxconn}"),
    };
    format!(
        "global
  nbthread 1
  no strict-limits
  maxconn 15000
defaults
  mode http
  timeout client 60s
  timeout server 30s
  timeout connect 5s
  timeout queue {queue}ms
  http-reuse always
frontend entry
  bind {listen} backlog 4096{front}
  default_backend service
backend service
  server one {service}{limit}{back}
"
    )
}

/// nginx has no queue: beyond the limit it rejects at once, so what is tuned is the number alone.
fn nginx(listen: SocketAddr, setup: &Setup, folder: &Path) -> String {
    let (service, folder) = (setup.service, folder.display());
    let http2 = if setup.protocol == Protocol::Http1 { "" } else { " http2" };
    let pass = match setup.protocol {
        Protocol::Grpc => "grpc_pass grpc://service;",
        _ => "proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection \"\";",
    };
    let limit = match setup.numbers.limit {
        0 => String::new(),
        limit => format!("limit_conn all {limit}; limit_conn_status 503; limit_conn_log_level info;"),
    };
    format!(
        "worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log /dev/null crit;
worker_rlimit_nofile 40000;
events {{ worker_connections 20000; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  limit_conn_zone $server_port zone=all:1m;
  upstream service {{ server {service} max_fails=0; keepalive 1000; keepalive_requests 1000000000; }}
  server {{
    listen {listen} backlog=4096{http2};
    http2_max_concurrent_streams 10000;
    client_max_body_size 0;
    location / {{
      {limit}
      {pass}
      proxy_buffering off;
      proxy_request_buffering off;
    }}
  }}
}}
"
    )
}

/// Adaptive concurrency as in Envoy's documentation.
fn envoy(listen: SocketAddr, setup: &Setup) -> String {
    let adaptive = "
          - name: envoy.filters.http.adaptive_concurrency
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
              enabled: { default_value: true, runtime_key: adaptive_concurrency.enabled }
              gradient_controller_config:
                sample_aggregate_percentile: { value: 90 }
                concurrency_limit_params: { concurrency_update_interval: 0.1s }
                min_rtt_calc_params: { interval: 60s, request_count: 50, jitter: { value: 10 } }";
    let adaptive = if setup.adaptive { adaptive } else { "" };
    let http2 = "
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }";
    let http2 = if setup.protocol == Protocol::Grpc { http2 } else { "" };
    let (entry, service) = (listen.port(), setup.service.port());
    format!(
        "static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {entry} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: entry
          codec_type: AUTO
          generate_request_id: false
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes: [{{ match: {{ prefix: \"/\" }}, route: {{ cluster: service, timeout: 30s }} }}]
          http_filters:{adaptive}
          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: service
    type: STATIC
    connect_timeout: 1s{http2}
    circuit_breakers: {{ thresholds: [{{ max_connections: 20000, max_pending_requests: 20000, max_requests: 20000 }}] }}
    load_assignment:
      cluster_name: service
      endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {service} }} }} }} }}] }}]
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_stands_in_the_configuration_only_where_there_is_one() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let of = |numbers| Setup {
            service: address,
            objective: Duration::from_millis(50),
            numbers,
            rules: "",
            adaptive: false,
            protocol: Protocol::Http1,
            folder: Path::new("/tmp"),
        };
        let (free, tuned) = (of(Numbers::default()), of(Numbers { maxconn: 7, queue_ms: 30, limit: 9 }));
        assert!(!haproxy(address, &free).contains(" maxconn 0") && haproxy(address, &tuned).contains(":1 maxconn 7\n"));
        assert!(haproxy(address, &tuned).contains("timeout queue 30ms"));
        assert!(!nginx(address, &free, Path::new("/")).contains("limit_conn all"));
        assert!(nginx(address, &tuned, Path::new("/")).contains("limit_conn all 9;"));
        assert!(!envoy(address, &free).contains("adaptive"));
    }
}
