//! An axum service behind one line, with exact queueing delays.
use axum::{Router, routing::get};
use leeward_tower::{ms, slo};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = Router::new().route("/", get(|| async { "hello" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    leeward_tower::axum::serve(listener, app, slo(ms(20))).await
}
