//! Measures the cost of the client's thread: an unloaded round trip through `Client`, and through a
//! `Connection` that its caller drives on a blocking socket. Both call an echo server on loopback
//! that never sleeps.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;

use criterion::{Criterion, criterion_group, criterion_main};
use leeward_core::none;
use leeward_core::params::Params;
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Priority};
use leeward_rpc::client::{Client, Connection, ConnectionConfig, Event, Request};
use leeward_rpc::server::{self, HandlerError, Server};
use leeward_rpc::wire::Method;
use leeward_runtime::Clock;

fn serve() -> Server {
    let echo = |request: &server::Request<'_>, reply: &mut Vec<u8>| -> Result<(), HandlerError> {
        reply.extend_from_slice(request.payload);
        Ok(())
    };
    Server::builder().start("127.0.0.1:0", echo).unwrap()
}

/// Makes a call, and returns after the response.
fn call(connection: &mut Connection<()>, socket: &mut TcpStream, clock: &Clock) {
    let answered = Cell::new(false);
    let mut on_event = |event: Event<'_, ()>| answered.set(matches!(event, Event::Completed { .. }));
    let request = Request { method: Method(1), payload: b"hello", priority: Priority::HIGHEST, random: 0 };
    connection.submit(clock.now(), (), &request, &mut on_event);
    let output = connection.output(clock.now());
    socket.write_all(output).unwrap();
    let count = output.len();
    connection.consume(clock.now(), count, &mut on_event);
    while !answered.get() {
        let count = socket.read(connection.spare()).unwrap();
        connection.on_received(clock.now(), count, &mut on_event).unwrap();
    }
}

fn round_trips(criterion: &mut Criterion) {
    let server = serve();
    let mut group = criterion.benchmark_group("round_trip");
    let client = Client::builder().replica(server.address().to_string()).build().unwrap();
    group.bench_function("client", |bencher| {
        bencher.iter(|| client.call_blocking(Method(1), b"hello".as_slice()).unwrap());
    });
    group.bench_function("client_of_16_at_once", |bencher| {
        bencher.iter(|| {
            let calls: Vec<_> = (0..16).map(|_| client.call(Method(1), b"hello".as_slice())).collect();
            calls.into_iter().for_each(|call| drop(pollster::block_on(call).unwrap()));
        });
    });
    let clock = Clock::start();
    let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
    let parts = (none::ALGORITHM.build_client)(&Params::default(), &environment).unwrap();
    let mut connection = Connection::new(parts, ConnectionConfig::default());
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_nodelay(true).unwrap();
    group.bench_function("connection", |bencher| bencher.iter(|| call(&mut connection, &mut socket, &clock)));
    group.finish();
}

criterion_group!(benches, round_trips);
criterion_main!(benches);
