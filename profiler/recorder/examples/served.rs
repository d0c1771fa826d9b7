//! A small program to record: one thread accepts requests, another serves them, and every hundredth
//! is slow in `recompute`.
//!
//! `leeward profile record -- target/release/examples/served`, then `leeward profile tail TRACE`.

use std::hint::black_box;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use leeward_trace::{Queued, request, trace};

/// Keeps the CPU busy. Calls last at least 200 µs here, so the run-time sees them even if a busy
/// machine delays its clock.
fn spin(span: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < span {
        black_box(());
    }
}

struct Store;

#[trace]
impl Store {
    fn look_up(&self, id: u64) {
        spin(Duration::from_micros(200));
        if id.is_multiple_of(100) {
            self.recompute(id);
        }
    }

    fn recompute<T: Copy>(&self, _key: T) {
        spin(Duration::from_millis(4));
    }

    #[trace(skip)]
    fn unseen(&self) {
        spin(Duration::from_micros(10));
    }
}

#[trace]
fn handle(store: &Store, id: u64) {
    store.look_up(id);
    store.unseen();
    // A call that ends with a panic counts as a call.
    if id % 100 == 7 {
        panicking();
    }
}

#[trace]
fn panicking() {
    spin(Duration::from_millis(1));
    std::panic::resume_unwind(Box::new("on purpose"));
}

fn main() {
    println!("{}", if leeward_trace::is_recordable() { "recordable" } else { "not recordable" });
    let (sender, receiver) = mpsc::channel::<Queued>();
    let server = std::thread::Builder::new().name("server".into());
    let server = server.spawn(move || {
        let store = Store;
        for queued in receiver {
            let request = queued.resume();
            let id = request.id();
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handle(&store, id)));
        }
    });
    let queue = 0_u8;
    for id in 1..=1000 {
        let request = request(id);
        if sender.send(request.into_queue(&queue)).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    drop(sender);
    if let Ok(server) = server {
        let _ = server.join();
    }
}
