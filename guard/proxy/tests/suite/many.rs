//! Ten thousand random requests with everything that goes wrong: each ends once. Does not contain
//! what each of them is answered.

use crate::certificates::Certificates;
use crate::harness::{Backend, Wire, address, rejected, settle, shadowed, start, start_with};
use crate::proxy_protocol::Stripper;
use leeward_proxy::Proxy;
use leeward_testkit::net::vacant_address;
use leeward_testkit::random::Random;
use std::net::{Shutdown, SocketAddr};
use std::thread::{self, sleep};
use std::time::Duration;

/// A backend that behaves as the path says.
fn erratic() -> Backend {
    Backend::start(|exchange| {
        let target = exchange.head.target().to_owned();
        match target.get(1..2) {
            Some("s") => {
                sleep(Duration::from_millis(3));
                exchange.ok("slow");
            }
            Some("e") => {
                exchange.message();
                exchange.raw("HTTP/1.1 500 Bad\r\ncontent-length: 3\r\n\r\nbad");
            }
            Some("c") => exchange.close(),
            Some("m") => {
                exchange.raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\ncut");
                exchange.close();
            }
            Some("g") => {
                exchange.raw("garbage\r\n\r\n");
                exchange.close();
            }
            Some("k") => {
                exchange.message();
                exchange.raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
            }
            Some("n") => {
                exchange.message();
                exchange.raw("HTTP/1.1 204 Empty\r\n\r\n");
            }
            Some("x") => {
                exchange.ok("kept for no longer");
                exchange.close();
            }
            Some("w") if exchange.head.get("upgrade").is_some() => {
                exchange.raw("HTTP/1.1 101 Go\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n");
                exchange.wire.rest();
                exchange.close();
            }
            Some("t") => {
                // No answer until the client or a time-out ends it.
                exchange.wire.rest();
                exchange.close();
            }
            _ => exchange.ok("well"),
        }
    })
}

/// Reads what comes until the answer's head has come, or the connection has ended.
fn read_some(client: &mut Wire) -> bool {
    let Some(head) = client.head() else { return false };
    let length = head.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let is_kept = head.get("connection").is_none() && head.get("transfer-encoding").is_none();
    client.exactly(length).is_some() && is_kept && head.status() < 400
}

fn client(address: SocketAddr, seed: u64, count: usize) {
    let mut random = Random::new(seed);
    let mut kept: Option<Wire> = None;
    for number in 0..count {
        let mut wire = kept.take().unwrap_or_else(|| Wire::to(address));
        let kind = ["o", "o", "o", "o", "s", "e", "c", "m", "g", "k", "n", "x", "w", "t", "healthz"][random.below(15)];
        let mut headers = String::new();
        if random.below(3) == 0 {
            headers += &format!("leeward: p={},b={}\r\n", 1 + random.below(128), random.below(60_000));
        }
        if random.below(3) == 0 {
            headers += &format!("x-key: {}\r\n", random.below(20));
        }
        if kind == "w" {
            headers += "upgrade: websocket\r\nconnection: upgrade\r\n";
        }
        let head = format!("/{kind}{number} HTTP/1.1\r\nhost: h\r\n{headers}");
        let request = match random.below(8) {
            0..=3 => format!("GET {head}\r\n"),
            4 => format!("POST {head}content-length: 5\r\n\r\nabcde"),
            5 => format!("POST {head}transfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"),
            6 => format!("POST {head}content-length: 50\r\n\r\nabc"),
            _ => format!("GET {head}\r\nGET {head}\r\n"),
        };
        let is_part = request.contains("content-length: 50");
        wire.send(&request);
        match random.below(6) {
            0 => drop(wire),
            1 => {
                sleep(Duration::from_millis(random.below(4) as u64));
                drop(wire);
            }
            2 => {
                let _ = wire.stream.shutdown(Shutdown::Write);
                wire.rest();
            }
            _ if is_part || kind == "w" => drop(wire),
            _ => {
                if read_some(&mut wire) && !request.contains("\r\n\r\nGET") {
                    kept = Some(wire);
                }
            }
        }
    }
}

fn play(extra: &str, count: usize, seed: u64) {
    let (first, second, dead) = (erratic(), erratic(), vacant_address());
    let proxy = start(&[first.address, second.address, dead], extra);
    let address = address(&proxy);
    ask(proxy, address, count, seed);
}

/// Asks a proxy for random paths at an address that leads to it.
fn ask(proxy: Proxy, address: SocketAddr, count: usize, seed: u64) {
    let clients: Vec<_> = (0..8).map(|at| thread::spawn(move || client(address, seed * 100 + at, count / 8))).collect();
    clients.into_iter().for_each(|client| client.join().expect("a client"));
    let snapshot = settle(&proxy);
    assert_eq!(snapshot.arrived + shadowed(&proxy), snapshot.admitted + rejected(&snapshot));
    assert_eq!(snapshot.in_flight_by_class.iter().sum::<u64>(), 0);
    assert!(snapshot.completed > 0 && snapshot.abandoned > 0, "{} {}", snapshot.completed, snapshot.abandoned);
    assert!(snapshot.arrived > count as u64 / 4, "{}", snapshot.arrived);
    proxy.stop();
}

const TIMES: &str =
    "tenant-by = \"header x-key\"\n[timeouts]\nfirst-byte = \"60ms\"\nclient-idle = \"50ms\"\nstop = \"5s\"\n";

#[test]
fn each_of_many_requests_ends_once() {
    play(&format!("slo = \"50ms\"\nlimit = \"4\"\n{TIMES}[queue]\nrequests = 12\n"), 6_000, 1);
}

#[test]
fn each_request_ends_once_under_the_law_that_finds_the_limit() {
    play(&format!("slo = \"20ms\"\n{TIMES}"), 2_000, 2);
}

#[test]
fn each_request_ends_once_in_shadow_mode_and_under_a_shared_limit() {
    play(&format!("slo = \"20ms\"\nmode = \"40%\"\n{TIMES}"), 1_000, 3);
    play(&format!("slo = \"50ms\"\nlimit = \"6\"\nshared = true\nuntil = \"first-byte\"\n{TIMES}"), 1_000, 4);
}

#[test]
fn each_request_ends_once_over_tls_on_both_sides() {
    let (certificates, first, second) = (Certificates::new(), erratic(), erratic());
    let ports = [first.address, second.address].map(|of| certificates.in_front_of(of, "server", false).port());
    let dead = vacant_address();
    let to: Vec<String> =
        ports.iter().chain([&dead.port()]).map(|port| format!("\"https://localhost:{port}\"")).collect();
    let text = format!(
        "slo = \"50ms\"\nlisten = \"127.0.0.1:0\"\nto = [{}]\nlimit = \"8\"\n{TIMES}{}[backend-tls]\nca = {}\n",
        to.join(", "),
        certificates.section("server", ""),
        certificates.value("ca.pem")
    );
    let proxy = start_with(&text).expect("a proxy");
    let port = certificates.client().port_to(&proxy);
    ask(proxy, port, 2_000, 5);
}

#[test]
fn each_request_ends_once_while_backends_are_told_their_clients() {
    let (first, second) = (erratic(), erratic());
    let ports = [first.address, second.address].map(|of| Stripper::in_front_of(of).port);
    // Drawn last, or a stripper could be given the same port.
    let dead = vacant_address();
    let extra = format!("slo = \"50ms\"\nlimit = \"8\"\nsend-proxy-protocol = \"v2\"\n{TIMES}");
    let proxy = start(&[ports[0], ports[1], dead], &extra);
    let address = address(&proxy);
    ask(proxy, address, 1_000, 6);
}
