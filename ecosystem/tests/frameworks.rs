//! The layer under each framework, over real sockets: requests pass, rejections are responses,
//! nothing stays in flight.

use axum::{Router, routing::get};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use leeward_tower::{Listener, RequestInfo, Slo, connection, ms, slo};
use std::time::Duration;
use tower::{Layer, Service, ServiceExt, service_fn};

/// A layer that rejects requests to `/late`, as if their deadlines had passed.
fn layer() -> Slo {
    slo(ms(30_000)).describe(|request, arriving: RequestInfo| {
        if request.uri.path().ends_with("late") { arriving.with_timeout(Duration::ZERO) } else { arriving }
    })
}

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello" })).route("/late", get(|| async { "never" }))
}

async fn check(address: std::net::SocketAddr, layer: &Slo) {
    let client = reqwest::Client::builder().build().unwrap();
    let served = client.get(format!("http://{address}/")).send().await.unwrap();
    assert_eq!((served.status().as_u16(), served.text().await.unwrap().as_str()), (200, "hello"));
    let refused = client.get(format!("http://{address}/late")).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 503);
    let headers = refused.headers().clone();
    assert_eq!(
        (&headers["leeward-reason"], &headers["x-envoy-overloaded"]),
        (&"deadline".parse().unwrap(), &"true".parse().unwrap())
    );
    let number = u64::from_str_radix(headers["leeward-decision"].to_str().unwrap(), 16).unwrap();
    let decision = layer.gate().decision(leeward_tower::DecisionId(number)).unwrap();
    let explanation = layer.gate().explain(decision.id).expect("it is kept");
    assert!(explanation.starts_with("Rejected: "), "{explanation}");
    let counts = layer.gate().counts();
    assert_eq!((counts.completed, counts.rejections(), counts.in_flight()), (1, 1, 0), "{counts:?}");
}

#[tokio::test]
async fn axum_works_with_its_own_listener_and_ours() {
    for ours in [true, false] {
        let (listener, layer) = (tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(), layer());
        let address = listener.local_addr().unwrap();
        let served = layer.clone();
        let server = tokio::spawn(async move {
            match ours {
                true => leeward_tower::axum::serve(listener, app(), served).await,
                false => axum::serve(listener, app().layer(served)).await,
            }
        });
        check(address, &layer).await;
        // Costs are learnt by route.
        let snapshot = leeward_gate::Source::snapshot(layer.gate());
        let answered: Vec<_> = snapshot.answers.iter().filter(|of| of.in_time > 0).map(|of| &of.route).collect();
        assert_eq!(answered, ["/"], "{ours}");
        server.abort();
    }
}

#[tokio::test]
async fn hyper_works_with_one_service_per_connection() {
    let layer = layer();
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hello = |_: hyper::Request<hyper::body::Incoming>| async {
        Ok::<_, std::convert::Infallible>(hyper::Response::new(Full::new(Bytes::from("hello"))))
    };
    let service = layer.layer(service_fn(hello));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = connection(service.clone(), stream.stamp());
            let service = hyper_util::service::TowerToHyperService::new(service);
            tokio::spawn(async move {
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    check(address, &layer).await;
}

/// A unary gRPC method without generated code that echoes a text.
#[derive(Clone)]
struct Echo;

impl tonic::server::NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl Service<http::Request<tonic::body::Body>> for Echo {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        struct Unary;
        impl tonic::server::UnaryService<String> for Unary {
            type Response = String;
            type Future = std::future::Ready<Result<tonic::Response<String>, tonic::Status>>;
            fn call(&mut self, request: tonic::Request<String>) -> Self::Future {
                std::future::ready(Ok(tonic::Response::new(request.into_inner())))
            }
        }
        Box::pin(async move {
            let codec = tonic_prost::ProstCodec::default();
            Ok(tonic::server::Grpc::new(codec).unary(Unary, request).await)
        })
    }
}

async fn call(channel: tonic::transport::Channel, timeout: Option<Duration>) -> Result<String, tonic::Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| tonic::Status::unknown(error.to_string()))?;
    let path = http::uri::PathAndQuery::from_static("/test.Echo/Echo");
    let mut request = tonic::Request::new("hello".to_owned());
    if let Some(timeout) = timeout {
        request.set_timeout(timeout);
    }
    client.unary(request, path, tonic_prost::ProstCodec::default()).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn tonic_works_with_the_layer_and_the_listener() {
    let layer = slo(ms(500)).describe(|request, arriving: RequestInfo| {
        // As if the call had waited for nearly all of its time.
        if request.headers.contains_key("grpc-timeout") { arriving.with_age(ms(499)) } else { arriving }
    });
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = layer.clone();
    tokio::spawn(async move {
        let server = tonic::transport::Server::builder().layer(served).add_service(Echo);
        server.serve_with_incoming(listener.incoming()).await
    });
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let channel = endpoint.connect().await.unwrap();
    assert_eq!(call(channel.clone(), None).await.unwrap(), "hello");
    let late = call(channel.clone(), Some(ms(900))).await.unwrap_err();
    assert_eq!(late.code(), tonic::Code::ResourceExhausted, "{late:?}");
    assert!(late.metadata().contains_key("grpc-retry-pushback-ms"));
    let gone = call(channel, Some(ms(400))).await.unwrap_err();
    assert_eq!(gone.code(), tonic::Code::DeadlineExceeded, "{gone:?}");
    let counts = layer.gate().counts();
    assert_eq!((counts.completed, counts.rejections(), counts.in_flight()), (1, 2, 0), "{counts:?}");
}

#[tokio::test]
async fn a_throttled_client_rejects_requests_locally() {
    let client = leeward_tower::client::client(ms(20));
    let refuses = |request: http::Request<Full<Bytes>>| async move {
        assert!(request.headers().contains_key("leeward"), "the budget travels");
        let mut response = http::Response::new(Full::new(Bytes::new()));
        *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        Ok::<_, std::convert::Infallible>(response)
    };
    let mut service = client.layer(service_fn(refuses));
    let mut ended_here = 0;
    for _ in 0..1_000 {
        let response = service.ready().await.unwrap().call(http::Request::new(Full::new(Bytes::new()))).await.unwrap();
        assert!(leeward_tower::client::is_overload(&response));
        ended_here += usize::from(response.headers().get("leeward-reason").is_some());
        assert!(response.into_body().collect().await.is_ok());
    }
    assert!(ended_here > 900, "{ended_here}");
}
