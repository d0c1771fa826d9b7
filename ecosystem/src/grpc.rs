//! The same work as a unary method of tonic: it echoes a text. Does not contain protection.

use crate::work::Work;
use leeward_tower::{Listener, Slo};
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::body::Body;
use tower::Service;

/// Definition of the service, for clients that need one.
pub(crate) const PROTO: &str = "syntax = \"proto3\";\npackage bench;\nmessage Text { string value = 1; }\n\
    service Echo { rpc Echo(Text) returns (Text); }\n";

/// The service, without generated code.
#[derive(Clone)]
struct Echo(Work);

struct Unary(Work);

impl tonic::server::NamedService for Echo {
    const NAME: &'static str = "bench.Echo";
}

impl tonic::server::UnaryService<String> for Unary {
    type Response = String;
    type Future = Ready<Result<tonic::Response<String>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<String>) -> Self::Future {
        self.0.run();
        ready(Ok(tonic::Response::new(request.into_inner())))
    }
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let work = self.0;
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(tonic_prost::ProstCodec::default());
            Ok(grpc.unary(Unary(work), request).await)
        })
    }
}

/// Serves until the listener ends.
pub(crate) async fn serve(listener: tokio::net::TcpListener, work: Duration, layer: Option<Slo>) -> anyhow::Result<()> {
    let (listener, echo) = (Listener::new(listener).incoming(), Echo(Work::of(work)));
    let server = tonic::transport::Server::builder();
    match layer {
        Some(layer) => server.layer(layer).add_service(echo).serve_with_incoming(listener).await?,
        None => {
            let mut server = server;
            server.add_service(echo).serve_with_incoming(listener).await?
        }
    }
    Ok(())
}
