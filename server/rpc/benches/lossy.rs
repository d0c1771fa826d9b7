//! Measures requests over a datagram network that loses, duplicates and reorders. Checks that each
//! ends once and none is executed twice, and reports the remaining goodput.
//!
//! Run: `cargo bench -p leeward-rpc --bench lossy -- --calls 10000000 --percent 5`.
//!
//! Threads first call without pauses and without faults: that is the capacity of server, relay and
//! client on this machine. Then they call at half of it, at scheduled times, without faults and
//! with them. Goodput counts right responses within the objective, from the scheduled time.

#[path = "../tests/it/relay.rs"]
mod relay;

use leeward_core::params::Params;
use leeward_core::units::Nanos;
use leeward_rpc::client::Client;
use leeward_rpc::server::{HandlerError, Request, Server};
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use relay::Relay;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ECHO: Method = Method(1);
const THREADS: u64 = 32;
const ADMISSION: &str = "auto";
const ROUND_TRIP: Nanos = Nanos::from_micros(500);
/// Long enough for a few tries: the shortest timeout of a try is 1 ms, and each try doubles it.
const OBJECTIVE: Nanos = Nanos::from_millis(50);

/// Share of calls at half load that must be answered.
const LEAST_ANSWERED: f64 = 0.9;

/// Outcomes of a run's calls.
#[derive(Debug, Default)]
struct CallCounts {
    right: AtomicU64,
    in_time: AtomicU64,
    wrong: AtomicU64,
    refused: AtomicU64,
}

/// Executions of each call, by its number.
type Executed = Arc<Vec<AtomicU8>>;

fn main() -> ExitCode {
    let (mut calls, mut percent) = (200_000, 5);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let target = match arg.as_str() {
            "--calls" => &mut calls,
            "--percent" => &mut percent,
            // Cargo's own argument.
            "--bench" => continue,
            _ => return usage(&format!("unknown argument `{arg}`")),
        };
        match args.next().map(|value| value.parse::<u64>()) {
            Some(Ok(value)) => *target = value,
            _ => return usage(&format!("`{arg}` takes a number")),
        }
    }
    if !(THREADS..=1_000_000_000).contains(&calls) || percent > 50 {
        return usage("--calls is 32 to 1000000000, --percent 0 to 50");
    }
    let warm = (calls / 20).clamp(THREADS, 500_000);
    let (capacity, warm_well) = run(warm, 0, None);
    let half = capacity / 2.0;
    println!("capacity of server, relay and client: {:.1} k/s; half of it is asked for", capacity / 1e3);
    let (clean, clean_well) = run(calls, 0, Some(half));
    let (faulty, faulty_well) = run(calls, percent, Some(half));
    println!("goodput with {percent} % lost, doubled and overtaken each way, over that without: {:.3}", faulty / clean);
    if warm_well && clean_well && faulty_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("error: {problem}\nusage: cargo bench -p leeward-rpc --bench lossy -- [--calls N] [--percent P]");
    ExitCode::from(2)
}

/// Makes `calls` calls, at `rate` or as fast as they end. Returns the goodput per second, and
/// whether each ended once and none was executed twice.
fn run(calls: u64, percent: u64, rate: Option<f64>) -> (f64, bool) {
    let executed: Executed = Arc::new((0..calls).map(|_| AtomicU8::new(0)).collect());
    let server = serve(&executed);
    let relay = Relay::to(server.datagram_address().expect("the server has a port for datagrams"), percent);
    let client = client(&relay);
    let ends = CallCounts::default();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (client, ends) = (&client, &ends);
            scope.spawn(move || {
                for call in (thread..calls).step_by(THREADS as usize) {
                    let due = rate.map(|rate| started + Duration::from_secs_f64(call as f64 / rate));
                    if let Some(due) = due {
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    }
                    let due = due.unwrap_or_else(Instant::now);
                    let argument = call.to_le_bytes();
                    match client.call_blocking(ECHO, argument) {
                        Ok(answer) if answer.payload == argument => {
                            ends.right.fetch_add(1, Ordering::Relaxed);
                            let in_time = due.elapsed() <= Duration::from_nanos(OBJECTIVE.0);
                            ends.in_time.fetch_add(u64::from(in_time), Ordering::Relaxed);
                        }
                        Ok(_) => drop(ends.wrong.fetch_add(1, Ordering::Relaxed)),
                        Err(_) => drop(ends.refused.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    drop(client);
    drop(relay);
    let completed = server.stop().expect("the server stops").completed;
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let twice = executed.iter().filter(|times| times.load(Ordering::Relaxed) > 1).count();
    let once = executed.iter().filter(|times| times.load(Ordering::Relaxed) == 1).count();
    let (right, wrong, refused) = (read(&ends.right), read(&ends.wrong), read(&ends.refused));
    let goodput = read(&ends.in_time) as f64 / seconds;
    println!(
        "{percent:2} % faults: {calls} calls in {seconds:.1} s: {right} answered ({:.2} % in time), {refused} ended otherwise, {wrong} wrongly; \
         executed once {once}, twice {twice}; {:.1} k/s in time",
        read(&ends.in_time) as f64 / right.max(1) as f64 * 100.0,
        goodput / 1e3
    );
    // Few calls end without a response at half load, and few because of faults: the client
    // retransmits each.
    let is_answered = rate.is_none() || right as f64 >= calls as f64 * LEAST_ANSWERED;
    let is_once = twice == 0 && right <= completed && completed <= once as u64;
    let is_well = right + refused == calls && wrong == 0 && is_once && is_answered && right > 0;
    (goodput, is_well)
}

fn serve(executed: &Executed) -> Server {
    let registry = leeward_controllers::builtin();
    let executed = Arc::clone(executed);
    Server::builder()
        .admission(registry.find(ADMISSION).expect("a controller of ours"), Params::default())
        .objective(ROUND_TRIP, OBJECTIVE)
        .idle(IdlePolicy::Block)
        .cores(1)
        .udp("127.0.0.1:0")
        .start("127.0.0.1:0", move |request: &Request<'_>, reply: &mut Vec<u8>| {
            let number = request.payload.try_into().map(u64::from_le_bytes).map_err(|_| HandlerError::UnknownMethod)?;
            // An unknown number gets a response that counts as wrong.
            match executed.get(number as usize) {
                Some(times) => drop(times.fetch_add(1, Ordering::Relaxed)),
                None => reply.push(0),
            }
            reply.extend_from_slice(request.payload);
            Ok::<_, HandlerError>(())
        })
        .expect("a server on this machine")
}

fn client(relay: &Relay) -> Client {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(ADMISSION).expect("a controller of ours");
    let builder = Client::builder().admission(algorithm, Params::default()).objective(ROUND_TRIP, OBJECTIVE);
    let builder = builder.connection_wait(Nanos::from_secs(30)).timeout(Nanos::from_secs(30)).retries(0, 0).seed(1);
    builder.connections(4).udp(relay.address.to_string()).build().expect("a client on this machine")
}
