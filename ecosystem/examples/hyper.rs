//! A hyper service: the listener, one layer, and each connection's receive stamp on its requests.
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::{server::conn::auto::Builder, service::TowerToHyperService};
use leeward_tower::{Listener, connection, ms, slo};
use tower::{Layer, service_fn};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let hello = |_: Request<Incoming>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from("hello"))))
    };
    let service = slo(ms(20)).layer(service_fn(hello));
    let listener = Listener::bind("127.0.0.1:3000").await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(connection(service.clone(), stream.stamp()));
        tokio::spawn(async move {
            Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await
        });
    }
}
