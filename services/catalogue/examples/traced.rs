//! A server with two records: Leeward records its controller's calls, and the profiler its
//! functions and requests.
//!
//! Every 100th request rebuilds an index, and the requests after it wait.
//! `python/notebooks/slow-request.ipynb` finds these requests and the reason.
//!
//! ```sh
//! cargo build -p leeward-catalogue --example traced
//! leeward profile record --out traces -- target/debug/examples/traced 127.0.0.1:7117 server.rec
//! ```
//!
//! The server ends with its standard input. Requests are numbered in the order of execution, like
//! the replies of a one-core server in the recording; the number identifies a request in both
//! records.

use leeward_core::units::Nanos;
use leeward_host::Recording;
use leeward_rpc::server::{Handler, HandlerError, Request, Server};
use leeward_trace::{request, trace};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of requests per rebuild of the index.
const REBUILDS: u64 = 100;

/// Keeps the core busy.
fn spin(span: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < span {
        black_box(());
    }
}

#[trace]
fn look_up() {
    spin(Duration::from_micros(20));
}

#[trace]
fn rebuild_index() {
    spin(Duration::from_millis(5));
}

#[derive(Default)]
struct Store {
    executed: AtomicU64,
}

impl Handler for Store {
    fn call(&self, _: &Request<'_>, _: &mut Vec<u8>) -> Result<(), HandlerError> {
        let number = self.executed.fetch_add(1, Ordering::Relaxed) + 1;
        let _request = request(number); // for the profiler, until the end of this function
        look_up();
        if number.is_multiple_of(REBUILDS) {
            rebuild_index();
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path] = arguments.as_slice() else { return Err("usage: traced ADDRESS RECORDING".into()) };
    let recording = Recording::create(Path::new(path))?;
    let registry = leeward_controllers::builtin();
    let breakwater = registry.find("breakwater")?;
    let params = breakwater.params(&[])?;
    let server = Server::builder()
        .admission(breakwater, params)
        .objective(Nanos::from_micros(50), Nanos::from_millis(10))
        .cores(1)
        .record(&recording)
        .start(address, Store::default())?;
    println!("serving on {}", server.address());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    let counts = server.stop()?;
    recording.finish()?;
    println!("{counts:?}");
    Ok(())
}
