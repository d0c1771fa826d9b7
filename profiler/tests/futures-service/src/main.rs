//! An axum service with planted latency faults, which `profiler/tests/futures` records.
//!
//! `futures-service FAULT` prints its address. `GET /` is an ordinary request: it looks into the
//! stock, awaits a timer of some milliseconds, and computes for 100 µs. The test asks `GET /fault`
//! now and then, which plants the fault beside the requests under way. `GET /slow` asks a slow
//! downstream service, and `GET /checkout` one that is not slow.
//!
//! Contains no load, and no analysis.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long a fault lasts.
const FAULT: Duration = Duration::from_millis(30);

#[derive(Clone)]
struct Service {
    stock: Arc<Mutex<u64>>,
    backend: SocketAddr,
}

/// Keeps the CPU busy.
#[inline(never)]
fn compute(span: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < span {
        black_box(());
    }
}

/// The ordinary work of a request.
#[inline(never)]
fn render() {
    compute(Duration::from_micros(100));
}

async fn ordinary(State(service): State<Service>) -> &'static str {
    look_up(&service);
    tokio::time::sleep(Duration::from_millis(4)).await;
    render();
    "ordinary"
}

#[inline(never)]
fn look_up(service: &Service) -> u64 {
    *service.stock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fault 1: a task calls a function that blocks the worker.
async fn write_report() {
    flush_to_disk();
}

#[inline(never)]
fn flush_to_disk() {
    std::thread::sleep(FAULT);
}

/// Fault 2: a thread holds a mutex of the standard library while it works.
#[inline(never)]
fn take_inventory(stock: &Mutex<u64>) {
    let mut guard = stock.lock().unwrap_or_else(PoisonError::into_inner);
    count_shelves();
    *guard += 1;
}

#[inline(never)]
fn count_shelves() {
    std::thread::sleep(FAULT);
}

/// Fault 3: a task computes without yielding, so its worker starves the others.
async fn train_model() {
    multiply_matrices();
}

#[inline(never)]
fn multiply_matrices() {
    compute(FAULT);
}

/// Fault 4: a downstream service answers late, to a request that has awaited a timer before.
async fn ask_backend(address: SocketAddr, slow: bool) -> std::io::Result<u8> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&[u8::from(slow)]).await?;
    stream.read_u8().await
}

async fn serve_backend(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            if matches!(stream.read_u8().await, Ok(1)) {
                tokio::time::sleep(FAULT).await;
            }
            let _ = stream.write_all(&[1]).await;
        });
    }
}

async fn back_off() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn checkout(State(service): State<Service>) -> &'static str {
    render();
    back_off().await;
    let _ = ask_backend(service.backend, false).await;
    "checkout"
}

async fn slow_checkout(State(service): State<Service>) -> &'static str {
    render();
    back_off().await;
    let _ = ask_backend(service.backend, true).await;
    "slow checkout"
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> std::io::Result<()> {
    let fault = std::env::args().nth(1).unwrap_or_default();
    let backend = TcpListener::bind("127.0.0.1:0").await?;
    let service = Service { stock: Arc::default(), backend: backend.local_addr()? };
    // The backend has a thread of its own, as another process would.
    std::thread::Builder::new().name("backend".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let backend = backend.into_std()?;
        runtime.block_on(async { Ok::<_, std::io::Error>(serve_backend(TcpListener::from_std(backend)?).await) })
    })?;
    let stock = Arc::clone(&service.stock);
    // A fault is triggered by a request of its own, which returns at once.
    let trigger = move || async move {
        match fault.as_str() {
            "blocking" => drop(tokio::spawn(write_report())),
            "starved" => drop(tokio::spawn(train_model())),
            "mutex" => {
                let thread = std::thread::Builder::new().name("inventory".into());
                let _ = thread.spawn(move || take_inventory(&stock));
            }
            _ => {}
        }
        "triggered"
    };
    let app = Router::new()
        .route("/", get(ordinary))
        .route("/checkout", get(checkout))
        .route("/slow", get(slow_checkout))
        .route("/fault", get(trigger))
        .with_state(service);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    #[cfg(feature = "layer")]
    return leeward_tower::axum::serve(listener, app, leeward_tower::slo(Duration::from_secs(10)).shadow()).await;
    #[cfg(not(feature = "layer"))]
    axum::serve(listener, app).await
}
