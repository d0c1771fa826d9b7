//! Tests of the proxy over sockets: a scripted backend behind it, plain clients in front of it.

mod access_log;
mod backend_tls;
mod backends;
mod certificates;
mod clients;
mod descriptors;
mod framing;
mod harness;
mod headers;
mod http2;
mod many;
mod messages;
mod proxy_protocol;
mod queue;
mod relay;
mod reload;
mod settings;
mod stop;
mod tls;
mod tls_hostile;
mod unix;
mod upgrades;
