//! Graceful stop. Does not contain the program.

use crate::harness::{Backend, Hold, address, connect, queued, start};
use leeward_testkit::require::retry_if_busy;
use leeward_testkit::wait::until;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_stop_waits_for_requests_in_progress_and_refuses_new_ones() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let address = address(&proxy);
    let (mut busy, mut waiting, mut idle) = (connect(&proxy), connect(&proxy), connect(&proxy));
    busy.send("GET /busy HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    waiting.send("GET /waiting HTTP/1.1\r\nhost: h\r\n\r\n");
    queued(&proxy, 1);
    let stop = thread::spawn(move || proxy.stop());
    until("new connections are refused", || TcpStream::connect(address).is_err());
    idle.closed();
    assert!(!stop.is_finished());
    hold.open();
    for (client, path) in [(&mut busy, "/busy"), (&mut waiting, "/waiting")] {
        let answer = client.answer();
        assert_eq!((answer.text(), answer.head.get("connection")), (path.into(), Some("close".into())));
        client.closed();
    }
    stop.join().unwrap();
}

/// A client learns of the end with the answer, or it would lose the request that it sends
/// meanwhile.
#[test]
fn a_stop_answers_a_request_that_was_on_its_way() {
    retry_if_busy(|| {
        let backend = Backend::echo();
        let proxy = start(&[backend.address], "");
        let address = address(&proxy);
        let (mut client, mut idle) = (connect(&proxy), connect(&proxy));
        for client in [&mut client, &mut idle] {
            assert_eq!(client.get("/first").head.get("connection"), None);
        }
        let begun = Instant::now();
        let stop = thread::spawn(move || proxy.stop());
        until("new connections are refused", || TcpStream::connect(address).is_err());
        client.send("POST /late HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc");
        // It waits for a second.
        if begun.elapsed() > Duration::from_millis(700) {
            return Err(format!("the request left after {:?}", begun.elapsed()));
        }
        let answer = client.answer();
        assert_eq!((answer.text(), answer.head.get("connection")), ("/late".into(), Some("close".into())));
        client.closed();
        // Nothing comes on this one, which does not hold the end up for long.
        idle.closed();
        stop.join().unwrap();
        Ok(())
    });
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "[timeouts]\nstop = \"100ms\"");
    let mut busy = connect(&proxy);
    busy.send("GET /busy HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    proxy.stop();
    busy.closed();
    hold.open();
}

#[test]
fn a_stop_ends_tunnels() {
    let backend = Backend::start(|exchange| {
        exchange.raw("HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
        exchange.wire.rest();
        exchange.close();
    });
    let proxy = start(&[backend.address], "[timeouts]\nstop = \"100ms\"");
    let mut client = connect(&proxy);
    client.send("GET / HTTP/1.1\r\nhost: h\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
    assert_eq!(client.answer().head.status(), 101);
    proxy.stop();
    client.closed();
    backend.request(1);
}

#[test]
fn a_dropped_proxy_frees_its_port() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let address = address(&proxy);
    assert_eq!(connect(&proxy).get("/").head.status(), 200);
    drop(proxy);
    until("the port is free", || std::net::TcpListener::bind(address).is_ok());
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let text = format!("slo = \"1s\"\nlisten = \"{}\"\nto = [\":1\"]", proxy.address());
    let settings = leeward_proxy::settings::file::FileSettings::parse(&text).unwrap().settings().unwrap();
    let error = leeward_proxy::Proxy::start(settings).expect_err("the port is taken").to_string();
    assert!(error.contains(&proxy.address().to_string()), "{error}");
}

#[test]
fn settings_without_a_backend_are_an_error() {
    let mut settings = leeward_proxy::Settings::new(std::time::Duration::from_secs(1), "127.0.0.1:0", Vec::new());
    assert!(leeward_proxy::Proxy::start(settings.clone()).is_err());
    settings.backends.push("127.0.0.1:1".parse().unwrap());
    settings.threads = 0;
    assert_eq!(connect(&leeward_proxy::Proxy::start(settings).unwrap()).get("/").head.status(), 502);
}

#[test]
fn draining_ends_connections_with_their_answers() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "");
    let address = address(&proxy);
    let (mut busy, mut idle) = (connect(&proxy), connect(&proxy));
    hold.release(1);
    assert_eq!(idle.get("/first").head.get("connection"), None);
    busy.send("GET /busy HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(2);
    proxy.begin_draining();
    until("new connections are refused", || TcpStream::connect(address).is_err());
    assert!(!proxy.is_drained());
    hold.open();
    let answer = busy.answer();
    assert_eq!((answer.text(), answer.head.get("connection")), ("/busy".into(), Some("close".into())));
    busy.closed();
    // An idle one may have a request on its way; it is answered.
    let answer = idle.get("/late");
    assert_eq!((answer.text(), answer.head.get("connection")), ("/late".into(), Some("close".into())));
    idle.closed();
    until("all have ended", || proxy.is_drained());
    proxy.stop();
}

#[test]
fn draining_ends_in_time_and_at_once_when_the_proxy_stops() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "[timeouts]\nstop = \"100ms\"");
    let mut idle = connect(&proxy);
    assert_eq!(idle.get("/").head.status(), 200);
    proxy.begin_draining();
    until("the time is over", || proxy.is_drained());
    idle.closed();
    let proxy = start(&[backend.address], "[timeouts]\nstop = \"20s\"");
    let mut idle = connect(&proxy);
    assert_eq!(idle.get("/").head.status(), 200);
    proxy.begin_draining();
    proxy.stop();
    idle.closed();
}
