//! Servers and clients for tests, and waits for conditions.

use leeward_core::units::Nanos;
use leeward_engine::statistics::Statistics;
use leeward_rpc::client::{CallError, Client};
use leeward_rpc::server::{Builder, HandlerError, Request, Server};
use leeward_rpc::tls::{ClientTls, ServerTls};
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;

/// A server that sleeps when idle: tests share the machine.
pub(crate) fn builder(tls: ServerTls) -> Builder {
    Server::builder().idle(IdlePolicy::Block).tls(tls)
}

/// Answers a call with its argument, and an empty call with the client's identity.
pub(crate) fn echo(request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
    if request.payload.is_empty() {
        reply.extend_from_slice(request.peer.map_or("nobody".into(), ToString::to_string).as_bytes());
    }
    reply.extend_from_slice(request.payload);
    Ok(())
}

pub(crate) fn start(builder: Builder) -> Server {
    builder.start("127.0.0.1:0", echo).unwrap()
}

/// A client of a server, with TLS or without.
pub(crate) fn client(server: &Server, tls: Option<ClientTls>) -> Client {
    let builder = Client::builder().replica(server.address().to_string()).timeout(Nanos::from_secs(20));
    let builder = builder.connection_wait(Nanos::from_secs(5));
    match tls {
        Some(tls) => builder.tls(tls).build().unwrap(),
        None => builder.build().unwrap(),
    }
}

/// Result of a call.
pub(crate) fn ask(client: &Client, argument: &[u8]) -> Result<Vec<u8>, CallError> {
    pollster::block_on(client.call(Method(1), argument)).map(|response| response.payload.to_vec())
}

/// Error message with which a client gives up.
pub(crate) fn refused(server: &Server, tls: Option<ClientTls>) -> String {
    let builder = Client::builder().replica(server.address().to_string()).connection_wait(Nanos::from_millis(300));
    let client = match tls {
        Some(tls) => builder.tls(tls).build().unwrap(),
        None => builder.build().unwrap(),
    };
    ask(&client, b"hello").unwrap_err().to_string()
}

/// Handshakes that a server has rejected for this reason.
pub(crate) fn refusals(server: &Server, reason: &str) -> u64 {
    let Statistics { tls, .. } = server.statistics();
    tls.unwrap().refused.get(reason).copied().unwrap_or(0)
}
