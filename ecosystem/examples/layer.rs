//! An axum service with the layer alone: the listener is axum's own, and a probe in a worker
//! estimates the requests' ages.
use axum::{Router, routing::get};
use leeward_tower::{ms, slo};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = Router::new().route("/", get(|| async { "hello" })).layer(slo(ms(20)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await
}
