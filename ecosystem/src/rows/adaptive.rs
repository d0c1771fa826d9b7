//! A rival that is no layer: Envoy's adaptive concurrency in front of the unprotected service, set
//! up as in Envoy's documentation.
//!
//! Envoy runs on the generator's CPU; at 50 us of work it would be the limit itself. It is left out
//! if it is not installed (`scripts/setup recipes`).

use super::envoy::{Envoy, program};
use super::{Bench, SLO, connections};
use crate::args::Args;
use crate::child::Server;
use crate::load::{self, Demand, LoadResult, Plan, alike};
use anyhow::Result;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

impl Bench {
    /// Loads an unprotected service behind Envoy; also returns the CPUs that Envoy used. `None`
    /// without Envoy.
    pub(super) fn adaptive(
        &mut self,
        (work, wait): (u64, u64),
        phases: Vec<(Demand, Duration)>,
        warmup: Duration,
    ) -> Result<Option<(LoadResult, f64)>> {
        let Some(program) = program() else { return Ok(None) };
        let args = Args { work, wait, slo: SLO.as_millis() as u64, cpu: Some(0), ..Args::default() };
        let server = Server::start(&args)?;
        let entry = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let folder = std::env::temp_dir().join(format!("leeward-adaptive-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let config = folder.join("envoy.yaml");
        std::fs::write(&config, configured(entry, server.address))?;
        let envoy = Envoy::start(&program, &config, entry)?;
        self.seed += 1;
        let seed = self.seed;
        let connections = connections(work);
        let plan = Plan { address: entry, connections, phases, warmup, objective: SLO, seed, kind: alike };
        let before = (Instant::now(), envoy.cpu_time());
        let result = load::run(&plan)?;
        let used = envoy.cpu_time().saturating_sub(before.1).as_secs_f64() / before.0.elapsed().as_secs_f64();
        drop(envoy);
        server.stop()?;
        std::fs::remove_dir_all(&folder)?;
        Ok(Some((result, used)))
    }
}

fn configured(entry: SocketAddr, service: SocketAddr) -> String {
    format!(
        r#"
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: entry
          codec_type: AUTO
          generate_request_id: false
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{ match: {{ prefix: "/" }}, route: {{ cluster: service, timeout: 5s }} }}]
          http_filters:
          - name: envoy.filters.http.adaptive_concurrency
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
              enabled: {{ default_value: true, runtime_key: adaptive_concurrency.enabled }}
              gradient_controller_config:
                sample_aggregate_percentile: {{ value: 90 }}
                concurrency_limit_params: {{ concurrency_update_interval: 0.1s }}
                min_rtt_calc_params: {{ interval: 60s, request_count: 50, jitter: {{ value: 10 }} }}
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: service
    type: STATIC
    connect_timeout: 1s
    circuit_breakers:
      thresholds: [{{ max_connections: 65536, max_pending_requests: 65536, max_requests: 65536 }}]
    load_assignment:
      cluster_name: service
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {} }} }} }}
"#,
        entry.port(),
        service.port()
    )
}
