//! Runs against small servers over real sockets: good ones by hyper, bad ones by hand.

mod bad_servers;
mod grpc;
mod http1;
mod http2;
mod mix;
mod outcomes;
mod support;
mod tls;
