//! Backends that fail, and the choice among several. Does not contain slow clients.

use crate::harness::{Backend, Hold, address, connect, metric, settle, start};
use leeward_observe::Source;
use leeward_proxy::Proxy;
use leeward_testkit::net::{free_address, vacant_address};
use leeward_testkit::wait::until;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// The status and the reason of the answer when the only backend does this.
fn failure(extra: &str, bytes: impl Into<String>, is_kept: bool) -> (u16, Option<String>) {
    let bytes = bytes.into();
    let answer = bytes.clone();
    let backend = Backend::start(move |exchange| {
        exchange.message();
        exchange.raw(&answer);
        if is_kept {
            exchange.wire.rest();
        }
        exchange.close();
    });
    let proxy = start(&[backend.address], extra);
    let mut client = connect(&proxy);
    let answer = client.get("/").head;
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.completed, snapshot.failed), (1, 1), "{bytes:?}");
    (answer.status(), answer.get("leeward-reason"))
}

#[test]
fn backends_that_fail_are_told_apart() {
    let proxy = start(&[vacant_address()], "");
    let answer = connect(&proxy).get("/").head;
    assert_eq!((answer.status(), answer.get("leeward-reason")), (502, Some("backend-unreachable".into())));
    settle(&proxy);

    let failed = (502, Some("backend-failed".into()));
    for bytes in ["", "HTTP/1.1 200 OK\r\ncontent-le"] {
        assert_eq!(failure("", bytes, false), failed, "{bytes:?}");
    }
    let malformed = (502, Some("backend-malformed".into()));
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(200_000));
    assert_eq!(failure("", long, false), malformed);
    for bytes in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\r\n b\r\n\r\n",
        "HTTP/1.1 99999 OK\r\n\r\n",
        "HTTP/1.1 99 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        "\0\0\0\0\0\0",
    ] {
        assert_eq!(failure("", bytes, false), malformed, "{bytes:?}");
    }
    let late = (504, Some("backend-timeout".into()));
    for bytes in ["", "HTTP/1.1 2"] {
        assert_eq!(failure("[timeouts]\nfirst-byte = \"100ms\"", bytes, true), late, "{bytes:?}");
        assert_eq!(failure("[timeouts]\ntotal = \"100ms\"", bytes, true), late, "{bytes:?}");
    }
}

#[test]
fn an_answer_that_is_cut_is_cut_for_the_client() {
    for (extra, head, is_kept) in [
        ("", "content-length: 11", false),
        ("", "transfer-encoding: chunked", false),
        ("[timeouts]\nidle = \"100ms\"", "content-length: 11", true),
        ("[timeouts]\ntotal = \"100ms\"", "transfer-encoding: chunked", true),
    ] {
        let backend = Backend::start(move |exchange| {
            exchange.message();
            exchange.raw(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nabcde\r\n"));
            if is_kept {
                exchange.wire.rest();
            }
            exchange.close();
        });
        let proxy = start(&[backend.address], extra);
        let mut client = connect(&proxy);
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
        // A cut that comes at once may take the head with it; on a busy machine, the whole time may
        // pass before there is one.
        if let Some(head) = client.head() {
            let answer = client.body(head, true);
            let is_late = answer.head.status() == 504 && extra.contains("total");
            assert!(is_late || (answer.head.status() == 200 && answer.is_cut), "{extra} {answer:?}");
        }
        let snapshot = settle(&proxy);
        assert_eq!((snapshot.completed, snapshot.failed), (1, 1), "{extra} {head}");
    }
}

/// The time to the first byte begins when the client has sent its request.
#[test]
fn a_slow_upload_is_no_time_out_of_the_backend() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "[timeouts]\nfirst-byte = \"2s\"");
    let mut client = connect(&proxy);
    client.send("POST /slow HTTP/1.1\r\nhost: h\r\ncontent-length: 20\r\n\r\n");
    for _ in 0..20 {
        sleep(Duration::from_millis(130));
        client.send("a");
    }
    assert_eq!(client.answer().text(), "/slow");
    settle(&proxy);
}

/// A second answer ends the connection. One that comes after the next request has been sent is
/// taken for its own, as by any client of HTTP/1.1: here it comes in one piece with the first.
#[test]
fn a_second_answer_is_nobodys() {
    let backend = Backend::start(|exchange| {
        let target = exchange.message().head.target().to_owned();
        let length = target.len();
        exchange.raw(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{target}\
             HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison"
        ));
    });
    let proxy = start(&[backend.address], "threads = 1");
    for number in 0..50 {
        let path = format!("/{number}");
        assert_eq!(connect(&proxy).get(&path).text(), path);
    }
    settle(&proxy);
}

/// Whether a program of this machine has a connection to the port.
fn is_connected(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!(":{port:04X}");
    // Remote address and state; 01 is an established connection.
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(2);
        fields.next().is_some_and(|address| address.ends_with(&remote)) && fields.next() == Some("01")
    })
}

#[test]
fn a_backend_that_reads_nothing_does_not_keep_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = start(&[listener.local_addr().unwrap()], "[timeouts]\ntotal = \"300ms\"");
    let mut client = connect(&proxy);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 30000000\r\n\r\n");
    let uploading = thread::spawn(move || {
        // More than all buffers on the way hold. The proxy closes in the middle.
        client.send(vec![b'x'; 30_000_000]);
    });
    let _accepted = listener.accept().unwrap();
    until("the connection", || is_connected(port));
    settle(&proxy);
    until("its end", || !is_connected(port));
    uploading.join().unwrap();
}

#[test]
fn an_answer_before_the_end_of_the_request_passes() {
    let backend = Backend::start(|exchange| {
        exchange.raw("HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig");
        exchange.close();
    });
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\nabc");
    let answer = client.answer();
    assert_eq!((answer.head.status(), answer.text()), (413, "big".into()));
    client.send("a".repeat(97));
    settle(&proxy);
}

/// It closes with unread bytes, which resets the connection while the proxy still writes; and so
/// would the proxy's own connection to its client.
#[test]
fn an_answer_to_an_upload_that_nobody_reads_passes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = start(&[listener.local_addr().unwrap()], "");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1_000]);
            let _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig");
        }
    });
    for _ in 0..20 {
        let mut client = connect(&proxy);
        client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3000000\r\n\r\n");
        client.send(vec![b'a'; 3_000_000]);
        let answer = client.answer();
        assert_eq!((answer.head.status(), answer.text()), (413, "big".into()));
    }
    settle(&proxy);
}

/// Many servers close a connection without notice, some after each answer.
#[test]
fn no_request_is_lost_to_a_connection_that_closes() {
    let backend = Backend::start(|exchange| {
        exchange.ok("well");
        exchange.close();
    });
    let proxy = start(&[backend.address], "");
    let address = address(&proxy);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                let mut client = crate::harness::Wire::to(address);
                (0..250).filter(|_| client.get("/").text() == "well").count()
            })
        })
        .collect();
    let well: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!(well, 1_000);
    assert_eq!(settle(&proxy).failed, 0);
}

/// It works on each second request of a connection, and closes without a response. That is no race
/// between the request and the end of an idle connection: repeating it is load.
#[test]
fn repetitions_of_what_a_backend_has_worked_on_are_counted_and_bounded() {
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let backend = Backend::start(move |exchange| {
        let is_first = seen.lock().unwrap().insert(exchange.wire.stream.peer_addr().unwrap());
        if is_first {
            return exchange.ok("well");
        }
        exchange.message();
        sleep(Duration::from_millis(150));
        exchange.close();
    });
    let proxy = start(&[backend.address], "threads = 1");
    let mut client = connect(&proxy);
    let count = 40;
    let well = (0..count).filter(|_| client.get("/").head.status() == 200).count();
    let repeated = backend.requests().len() - count;
    assert_eq!(metric(proxy.admission(), "leeward_proxy_retries_total") as usize, repeated);
    // One in ten, and ten.
    assert!((1..=count / 10 + 10).contains(&repeated), "{repeated}");
    assert!(well < count, "the others have failed");
    settle(&proxy);
}

#[test]
fn requests_go_where_places_are_free() {
    let (left, right) = (Hold::default(), Hold::default());
    let (first, second) = (left.backend(), right.backend());
    let proxy = start(&[first.address, second.address], "limit = \"3\"");
    let mut clients: Vec<_> = (0..6).map(|_| connect(&proxy)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    }
    left.arrived(3);
    right.arrived(3);
    // All places of one get free: it takes the next ones.
    left.release(3);
    until("three are done", || proxy.admission().snapshot().completed == 3);
    let mut more: Vec<_> = (0..3).map(|_| connect(&proxy)).collect();
    for client in &mut more {
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    }
    left.arrived(6);
    assert_eq!(right.arrived(3).len(), 3);
    left.open();
    right.open();
    for client in clients.iter_mut().chain(&mut more) {
        assert_eq!(client.answer().head.status(), 200);
    }
    settle(&proxy);
}

/// A request that hangs, before its answer or in the middle of it, gives its place to others: a few
/// of them must not lock out all.
#[test]
fn requests_that_hang_keep_no_places() {
    for begun in ["", "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc"] {
        keep_no_places(begun);
    }
}

/// Requests hang after these bytes of their answers.
fn keep_no_places(begun: &'static str) {
    let backend = Backend::start(move |exchange| {
        if exchange.message().head.target() == "/hang" {
            exchange.raw(begun);
            exchange.wire.rest();
        } else {
            exchange.ok("well");
        }
    });
    let proxy = start(&[backend.address], "limit = \"4\"\nslo = \"100ms\"");
    let mut hanging: Vec<_> = (0..4).map(|_| connect(&proxy)).collect();
    for client in &mut hanging {
        client.send("GET /hang HTTP/1.1\r\nhost: h\r\n\r\n");
    }
    backend.request(3);
    let mut client = connect(&proxy);
    // All places are taken: one is given up for a trial, the others when they are overtaken.
    until("a place", || client.get("/").head.status() == 200);
    until("all places", || {
        client.get("/");
        metric(proxy.admission(), "leeward_proxy_backend_in_flight") == 0.0
    });
    drop(hanging);
    settle(&proxy);
}

#[test]
fn a_shared_limit_holds_for_the_sum() {
    let hold = Hold::default();
    let (first, second) = (hold.backend(), hold.backend());
    let proxy = start(&[first.address, second.address], "limit = \"3\"\nshared = true");
    let mut clients: Vec<_> = (0..5).map(|_| connect(&proxy)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    }
    hold.arrived(3);
    crate::harness::queued(&proxy, 2);
    let metrics = proxy.admission().backend_metrics();
    let busy: Vec<&str> = metrics.lines().filter(|line| line.starts_with("leeward_proxy_backend_in_flight{")).collect();
    assert!(busy.iter().any(|line| line.ends_with(" 2")) && busy.iter().any(|line| line.ends_with(" 1")), "{busy:?}");
    hold.open();
    for client in &mut clients {
        assert_eq!(client.answer().head.status(), 200);
    }
    settle(&proxy);
}

#[test]
fn a_backend_that_dies_is_put_aside_until_it_is_back() {
    let well = Backend::echo();
    let address = free_address();
    let proxy = start(&[well.address, address], "");
    let mut client = connect(&proxy);
    for _ in 0..20 {
        assert_eq!(client.get("/").head.status(), 200, "the other one answers");
    }
    let up = || {
        proxy.admission().backend_metrics().contains(&format!("leeward_proxy_backend_up{{backend=\"{address}\"}} 1"))
    };
    assert!(!up());
    let back = Backend::on(TcpListener::bind(address).expect("the port is free"), |exchange| exchange.ok("back"));
    until("it is back", up);
    until("it gets requests", || client.get("/").text() == "back");
    assert_eq!(settle(&proxy).failed, 0);
    drop(back);
}

/// It gets the requests all the same, for there is no other.
#[test]
fn the_only_backend_is_known_to_be_down_until_it_is_back() {
    for health in ["", "health = \"/health\""] {
        let address = free_address();
        let proxy = start(&[address], health);
        let up = || metric(proxy.admission(), "leeward_proxy_backend_up");
        let mut client = connect(&proxy);
        assert_eq!(client.get("/").head.status(), 502);
        until("it is down", || up() == 0.0);
        let back = Backend::on(TcpListener::bind(address).expect("the port is free"), |exchange| exchange.ok("back"));
        assert_eq!(client.get("/").text(), "back");
        until("it is back", || up() == 1.0);
        drop(back);
        settle(&proxy);
    }
}

#[test]
fn a_backend_that_is_not_well_is_put_aside() {
    let is_well = Arc::new(AtomicBool::new(false));
    let health = Arc::clone(&is_well);
    let sick = Backend::start(move |exchange| match (exchange.head.target(), health.load(Ordering::SeqCst)) {
        ("/health", false) => exchange.raw("HTTP/1.1 503 Sick\r\ncontent-length: 0\r\n\r\n"),
        _ => exchange.ok("sick"),
    });
    let well = Backend::echo();
    let proxy = start(&[well.address, sick.address], "health = \"/health\"");
    let up = || {
        let up = format!("leeward_proxy_backend_up{{backend=\"{}\"}} 1", sick.address);
        proxy.admission().backend_metrics().contains(&up)
    };
    until("it is put aside", || !up());
    let mut client = connect(&proxy);
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "/");
    }
    is_well.store(true, Ordering::SeqCst);
    until("it is back", up);
    until("it gets requests", || client.get("/").text() == "sick");
    settle(&proxy);
}

#[test]
fn idempotent_requests_are_sent_again_elsewhere_at_most_one_in_ten() {
    // Both fail alike, so that none is ejected.
    let [left, right] = [(); 2].map(|()| {
        Backend::start(|exchange| {
            exchange.message();
            exchange.close();
        })
    });
    let proxy = start(&[left.address, right.address], "limit = \"4\"");
    let mut client = connect(&proxy);
    let count = 400;
    for number in 1..=count {
        assert_eq!(client.get("/").head.status(), 502);
        if number <= 5 {
            assert_eq!((left.requests().len(), right.requests().len()), (number, number), "it has gone elsewhere");
        }
    }
    let retries = metric(proxy.admission(), "leeward_proxy_retries_total") as usize;
    assert!(retries <= count / 10 + 10 && retries >= 10, "{retries}");
    let seen = || left.requests().len() + right.requests().len();
    assert_eq!(count + retries, seen(), "each was sent once, or again");
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\na");
    client.answer();
    assert_eq!(metric(proxy.admission(), "leeward_proxy_retries_total") as usize, retries, "a POST is never repeated");
    assert_eq!(seen(), count + retries + 1);
    settle(&proxy);
}

/// Whether a backend is up, by the metrics.
fn is_up(proxy: &Proxy, backend: &Backend) -> bool {
    let up = format!("leeward_proxy_backend_up{{backend=\"{}\"}} 1", backend.address);
    proxy.admission().backend_metrics().contains(&up)
}

/// A backend that echoes targets, or fails at once: by closing its connection, or by an answer.
fn failing(answer: &'static str, is_well: &Arc<AtomicBool>) -> Backend {
    let is_well = Arc::clone(is_well);
    Backend::start(move |exchange| {
        let target = exchange.head.target().to_owned();
        exchange.message();
        match (is_well.load(Ordering::SeqCst), answer) {
            (true, _) => exchange.ok(&target),
            (false, "") => exchange.close(),
            (false, answer) => exchange.raw(answer),
        }
    })
}

const BUSY: &str = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";

/// It always has free places, and would get nearly all requests.
#[test]
fn a_backend_that_fails_at_once_is_put_aside_until_it_is_well() {
    for (answer, extra) in [("", ""), (BUSY, ""), (BUSY, "health = \"/health\""), ("", "mode = \"shadow\"")] {
        let is_well = Arc::new(AtomicBool::new(false));
        let (well, sick) = (Backend::echo(), failing(answer, &is_well));
        let proxy = start(&[sick.address, well.address], extra);
        let mut client = connect(&proxy);
        let mut post = || {
            client.send("POST /post HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\na");
            client.answer().head.status()
        };
        let begun = Instant::now();
        let failed = (0..400).filter(|_| post() != 200).count();
        // One more each second.
        let most = 24 + begun.elapsed().as_secs() as usize;
        assert!((1..=most).contains(&failed), "{failed} failed of 400: {answer} {extra}");
        assert!(!is_up(&proxy, &sick) && is_up(&proxy, &well));
        is_well.store(true, Ordering::SeqCst);
        until("it is back", || {
            post();
            is_up(&proxy, &sick)
        });
        assert!((0..40).all(|_| post() == 200));
        settle(&proxy);
    }
}

/// Requests that are repeated elsewhere hide the failures from clients, not from the proxy.
#[test]
fn a_backend_is_put_aside_though_its_failures_are_repaired() {
    let (well, sick) = (Backend::echo(), failing("", &Arc::default()));
    let proxy = start(&[well.address, sick.address], "");
    let mut client = connect(&proxy);
    let failed = (0..100).filter(|_| client.get("/").head.status() != 200).count();
    // Not all failures are seen by clients, and none any more.
    assert!(failed <= 12, "{failed} failed of 100");
    assert!(!is_up(&proxy, &sick));
    settle(&proxy);
}

#[test]
fn backends_that_fail_alike_are_not_put_aside() {
    let [left, right] = [(); 2].map(|()| {
        Backend::start(|exchange| match exchange.head.target() {
            "/fails" => exchange.raw(BUSY),
            _ => exchange.ok("well"),
        })
    });
    for backends in [&[left.address][..], &[left.address, right.address]] {
        let proxy = start(backends, "");
        let mut client = connect(&proxy);
        for number in 0..200 {
            let path = if number / 50 == 1 { "/" } else { "/fails" };
            client.get(path);
            let metrics = proxy.admission().backend_metrics();
            let mut up = metrics.lines().filter(|line| line.starts_with("leeward_proxy_backend_up{"));
            assert!(up.all(|line| line.ends_with(" 1")), "{number}: {metrics}");
        }
        settle(&proxy);
    }
}

#[test]
fn requests_that_no_backend_has_seen_go_elsewhere_with_their_bodies() {
    let well = Backend::echo();
    let proxy = start(&[vacant_address(), well.address], "");
    let mut client = connect(&proxy);
    for number in 0..5 {
        client.send(format!("POST /{number} HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody"));
        assert_eq!(client.answer().text(), format!("/{number}"));
    }
    assert!(well.requests().iter().all(|request| request.text() == "body"));
    assert_eq!(settle(&proxy).completed, 5);
}
