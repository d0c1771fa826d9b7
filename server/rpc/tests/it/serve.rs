//! Servers with boxed handlers: the engine is compiled once for all tests, instead of once for each
//! handler, which took minutes.

use leeward_rpc::client::{self, Transport};
use leeward_rpc::server::{AsyncHandler, Builder, Handler, HandlerError, OwnedRequest, Request, Server, ServerError};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

struct BoxHandler(Box<dyn Handler>);

impl Handler for BoxHandler {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        self.0.call(request, reply)
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Vec<u8>, HandlerError>> + Send>>;

struct BoxAsyncHandler(Box<dyn Fn(OwnedRequest) -> Answer + Send + Sync>);

impl AsyncHandler for BoxAsyncHandler {
    fn call(&self, request: OwnedRequest) -> impl Future<Output = Result<Vec<u8>, HandlerError>> + Send {
        (self.0)(request)
    }
}

/// Starts a server on a free port.
#[allow(dead_code, reason = "some programs have no tasks")]
pub(crate) trait Serve {
    fn serve(self, handler: impl Handler) -> Result<Server, ServerError>;
    fn serve_async(self, handler: impl AsyncHandler) -> Result<Server, ServerError>;
}

impl Serve for Builder {
    fn serve(self, handler: impl Handler) -> Result<Server, ServerError> {
        self.start("127.0.0.1:0", BoxHandler(Box::new(handler)))
    }

    fn serve_async(self, handler: impl AsyncHandler) -> Result<Server, ServerError> {
        let handler = Arc::new(handler);
        let task = move |request| -> Answer {
            let handler = Arc::clone(&handler);
            Box::pin(async move { handler.call(request).await })
        };
        self.start_async("127.0.0.1:0", BoxAsyncHandler(Box::new(task)))
    }
}

/// Sets the server's transport.
#[allow(dead_code, reason = "some programs have one transport")]
pub(crate) fn over(transport: Transport, builder: Builder) -> Builder {
    if transport == Transport::Udp { builder.udp("127.0.0.1:0") } else { builder }
}

/// Adds a server as a client's replica: by datagrams, if the server accepts them.
#[allow(dead_code, reason = "some programs have one transport")]
pub(crate) fn replica_of(builder: client::Builder, server: &Server) -> client::Builder {
    match server.datagram_address() {
        Some(udp_address) => builder.udp(udp_address.to_string()),
        None => builder.replica(server.address().to_string()),
    }
}
