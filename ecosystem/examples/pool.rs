//! An axum service with a pool: requests that would wait too long for it are rejected at once, and
//! the others get a connection in time.
use axum::{Router, routing::get};
use leeward_tower::{LockRejection, locks::AcquireQueue, ms, slo};
use std::sync::LazyLock;
use tokio::sync::Semaphore;

// Replaces any future that acquires something: `pool.get()` of deadpool, `pool.acquire()` of sqlx.
static POOL: Semaphore = Semaphore::const_new(4);
static LINE: LazyLock<AcquireQueue> = LazyLock::new(|| AcquireQueue::new("db pool"));

async fn handler() -> Result<&'static str, LockRejection> {
    let _connection = LINE.acquire(POOL.acquire()).await?;
    tokio::time::sleep(ms(5)).await;
    Ok("hello")
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = Router::new().route("/", get(handler));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    leeward_tower::axum::serve(listener, app, slo(ms(20))).await
}
