//! A small program to record: tasks of a Tokio runtime serve requests, each of which awaits a
//! backend, and every fiftieth finds its worker busy with another task.
//!
//! `leeward profile record -- target/release/examples/awaits`, then `leeward profile tail TRACE`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use leeward_trace::{TraceFuture, trace, wait};

fn spin(span: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < span {
        black_box(());
    }
}

#[trace]
fn render() {
    spin(Duration::from_micros(200));
}

#[trace]
fn blocks_the_worker() {
    std::thread::sleep(Duration::from_millis(20));
}

async fn serve() {
    // The backend is another thread, so it wakes the request also while the worker is blocked.
    let answer = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(4)));
    let _ = wait("backend", answer).await;
    render();
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() {
    println!("{}", if leeward_trace::is_recordable() { "recordable" } else { "not recordable" });
    for id in 1..=200 {
        let request = tokio::spawn(serve().instrument(id));
        if id % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tokio::spawn(async { blocks_the_worker() });
        }
        let _ = request.await;
    }
}
