//! tonic's unary echo on one thread, with tonic's own server and router, and messages as prost
//! generates them.

use std::convert::Infallible;
use std::net::TcpListener;
use std::path::Path;
use std::task::{Context as Task, Poll};

use anyhow::{Context, Result};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::certificate;

/// Streams that one connection may have open; hyper's default of 200 is too small for these loads.
const STREAMS_MAX: u32 = 4_096;

/// `message Echo { bytes payload = 1; }`, without a copy where prost allows it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Echo {
    /// Bytes to echo.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) payload: prost::bytes::Bytes,
}

/// Path of the only method.
pub(crate) const PATH: &str = "/leeward.Echo/Echo";

/// Reads the certificate and the key in `folder`.
///
/// # Errors
/// A file can't be read.
pub(crate) fn identity(folder: &Path) -> Result<Identity> {
    let read = |name: &str| std::fs::read(folder.join(name)).with_context(|| folder.join(name).display().to_string());
    Ok(Identity::from_pem(read(certificate::CERT)?, read(certificate::KEY)?))
}

/// Serves until the process ends, within TLS if there is a certificate.
///
/// # Errors
/// The runtime can't be built, or tonic fails.
pub(crate) fn serve(listener: TcpListener, identity: Option<Identity>) -> Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("tokio")?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let mut server = Server::builder().max_concurrent_streams(STREAMS_MAX);
        if let Some(identity) = identity {
            server = server.tls_config(ServerTlsConfig::new().identity(identity)).context("tonic's TLS")?;
        }
        server.add_service(EchoService).serve_with_incoming(incoming).await.context("tonic")
    })
}

/// The service that tonic-build generates for `service Echo { rpc Echo(Echo) returns (Echo); }`.
#[derive(Clone, Copy)]
struct EchoService;

impl NamedService for EchoService {
    const NAME: &'static str = "leeward.Echo";
}

impl Service<http::Request<Body>> for EchoService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Task<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(Status::unimplemented("").into_http());
            }
            Ok(Grpc::new(ProstCodec::<Echo, Echo>::default()).unary(EchoMethod, request).await)
        })
    }
}

struct EchoMethod;

impl UnaryService<Echo> for EchoMethod {
    type Response = Echo;
    type Future = std::future::Ready<Result<Response<Echo>, Status>>;

    fn call(&mut self, request: Request<Echo>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_inner())))
    }
}
