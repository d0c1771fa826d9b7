//! tonic's unary echo: one thread, tonic's own server and router, messages as prost generates them.

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

/// Streams that one connection may have open: hyper's default of 200 would be less than is asked for.
const STREAMS_MAX: u32 = 4_096;

/// `message Echo { bytes payload = 1; }`, not copied where prost can avoid it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Echo {
    /// Bytes that are sent back.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) payload: prost::bytes::Bytes,
}

/// The only method's path.
pub(crate) const PATH: &str = "/leeward.Echo/Echo";

/// The certificate and the key in a folder.
///
/// # Errors
/// They are not there.
pub(crate) fn identity(folder: &Path) -> Result<Identity> {
    let read = |name: &str| std::fs::read(folder.join(name)).with_context(|| folder.join(name).display().to_string());
    Ok(Identity::from_pem(read(certificate::CERT)?, read(certificate::KEY)?))
}

/// Serves for ever, within TLS if there is a certificate.
///
/// # Errors
/// The runtime can't be built, or tonic gives up.
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

/// Service that tonic-build generates for `service Echo { rpc Echo(Echo) returns (Echo); }`.
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
