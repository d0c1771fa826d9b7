//! New settings for a running proxy. Does not contain files or signals.

use crate::harness::{Backend, Hold, Wire, connect, metric, queued, rejected, settle, start, text};
use leeward_observe::Source;
use leeward_proxy::{Proxy, Settings};
use leeward_testkit::wait::until;
use std::net::{SocketAddr, TcpListener};

/// Settings as [`start`] makes them.
fn settings(backends: &[SocketAddr], extra: &str) -> Settings {
    crate::harness::settings(&text(backends, extra)).expect("settings")
}

fn reload(proxy: &Proxy, backends: &[SocketAddr], extra: &str) {
    let kept = proxy.reload(settings(backends, extra)).expect("a reload");
    assert_eq!(kept, [""; 0], "all of it can change");
}

#[test]
fn requests_on_open_connections_see_new_rules_and_trust() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    let ask = |client: &mut Wire, count: usize| {
        client.send("GET /a HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 9.9.9.9\r\nleeward: p=1\r\n\r\n");
        assert_eq!(client.answer().head.status(), 200);
        backend.request(count).head.get("x-forwarded-for")
    };
    assert_eq!(ask(&mut client, 1).as_deref(), Some("9.9.9.9, 127.0.0.1"));
    let rule = "trust = []\n[[rule]]\nname = \"a\"\npath = \"/a\"\nclass = 6\n";
    reload(&proxy, &[backend.address], rule);
    assert_eq!(ask(&mut client, 2).as_deref(), Some("127.0.0.1"));
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.admitted_by_class[0], snapshot.admitted_by_class[6]), (1, 1));
    let named = |name: &str| {
        let answers = proxy.admission().snapshot().answers;
        answers.into_iter().filter(|of| of.route == name).map(|of| of.in_time).sum::<u64>()
    };
    assert_eq!(named("a"), 1);
    // The counts of a name stay its own, wherever its rule stands.
    let rules = "[[rule]]\nname = \"b\"\npath = \"/b\"\nclass = 2\n[[rule]]\nname = \"a\"\npath = \"/a\"\nclass = 6\n";
    reload(&proxy, &[backend.address], rules);
    for path in ["/a", "/b", "/b"] {
        assert_eq!(client.get(path).head.status(), 200);
    }
    settle(&proxy);
    assert_eq!((named("a"), named("b")), (2, 2));
    assert_eq!(backend.connections.load(std::sync::atomic::Ordering::SeqCst), 1, "its connection was kept");
}

#[test]
fn backends_come_and_go_while_requests_are_there() {
    let (held, other) = (Hold::default(), Backend::echo());
    let backend = held.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let (mut busy, mut waiting) = (connect(&proxy), connect(&proxy));
    busy.send("GET /busy HTTP/1.1\r\nhost: h\r\n\r\n");
    held.arrived(1);
    waiting.send("GET /waiting HTTP/1.1\r\nhost: h\r\n\r\n");
    queued(&proxy, 1);
    // The waiting one goes to the new backend; the busy one ends where it is.
    reload(&proxy, &[other.address], "limit = \"1\"");
    assert_eq!(waiting.answer().text(), "/waiting");
    assert_eq!(other.request(1).head.target(), "/waiting");
    let metrics = proxy.admission().backend_metrics();
    assert!(metrics.contains(&backend.address.to_string()), "it is shown until its last request ends: {metrics}");
    held.open();
    assert_eq!(busy.answer().text(), "/busy");
    for path in ["/1", "/2", "/3"] {
        assert_eq!(busy.get(path).text(), path);
    }
    assert_eq!(held.arrived(1).len(), 1, "the removed one gets nothing");
    settle(&proxy);
    assert!(!proxy.admission().backend_metrics().contains(&backend.address.to_string()));
    // It comes back, under the same number.
    reload(&proxy, &[backend.address], "limit = \"1\"");
    assert_eq!(busy.get("/back").text(), "/back");
    assert_eq!(held.arrived(2), ["/busy", "/back"]);
    settle(&proxy);
}

#[test]
fn a_backend_that_stays_keeps_its_connections() {
    let (one, two) = (Backend::echo(), Backend::echo());
    let proxy = start(&[one.address], "threads = 1");
    let mut client = connect(&proxy);
    for round in 0..6 {
        let backends = if round % 2 == 0 { vec![one.address] } else { vec![two.address, one.address] };
        let text = format!("slo = \"{}s\"\n[queue]\nrequests = {}", 20 + round, 10 + round);
        let mut of = settings(&backends, &text);
        of.threads = 1;
        assert_eq!(proxy.reload(of).unwrap(), [""; 0]);
        for _ in 0..4 {
            assert_eq!(client.get("/").head.status(), 200);
        }
    }
    assert_eq!(one.connections.load(std::sync::atomic::Ordering::SeqCst), 1);
    settle(&proxy);
}

#[test]
fn what_can_not_change_is_named_and_stays() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut other = settings(&[backend.address], "");
    (other.listen, other.threads) = ("127.0.0.1:1".into(), 7);
    assert_eq!(proxy.reload(other).unwrap(), ["listen", "threads"]);
    assert_eq!(connect(&proxy).get("/").head.status(), 200);
    let mut none = settings(&[backend.address], "");
    none.backends.clear();
    assert!(proxy.reload(none).is_err());
    assert_eq!(connect(&proxy).get("/").head.status(), 200);
}

#[test]
fn a_proxy_as_its_own_backend_is_an_error_and_changes_nothing() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let own = proxy.address().tcp().unwrap();
    let error = proxy.reload(settings(&[own], "")).expect_err("requests would go round").to_string();
    assert!(error.contains(&own.to_string()), "{error}");
    assert_eq!(connect(&proxy).get("/").head.status(), 200);
    let text = "slo = \"1s\"\nlisten = \":8080\"\nto = [\"localhost:8080\"]";
    let settings = crate::harness::settings(text).unwrap();
    assert!(matches!(Proxy::check(&settings), Err(leeward_proxy::ProxyError::OwnBackend(_))));
}

#[test]
fn the_mode_changes_and_nobody_waits_in_shadow_mode() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let mut clients: Vec<Wire> = (0..4).map(|_| connect(&proxy)).collect();
    clients[0].send("GET /0 HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    for (index, client) in clients.iter_mut().enumerate().skip(1) {
        client.send(format!("GET /{index} HTTP/1.1\r\nhost: h\r\n\r\n"));
    }
    queued(&proxy, 3);
    reload(&proxy, &[backend.address], "limit = \"1\"\nmode = \"shadow\"");
    hold.arrived(4);
    hold.release(4);
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.answer().text(), format!("/{index}"));
    }
    reload(&proxy, &[backend.address], "limit = \"1\"\nmode = \"enforce\"");
    clients[0].send("GET /4 HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(5);
    clients[1].send("GET /5 HTTP/1.1\r\nhost: h\r\n\r\n");
    queued(&proxy, 1);
    hold.open();
    assert_eq!((clients[0].answer().text(), clients[1].answer().text()), ("/4".into(), "/5".into()));
    assert_eq!(rejected(&settle(&proxy)), 0);
}

#[test]
fn a_smaller_queue_rejects_what_it_can_not_hold() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let mut clients: Vec<Wire> = (0..4).map(|_| connect(&proxy)).collect();
    clients[0].send("GET /0 HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    for (index, client) in clients.iter_mut().enumerate().skip(1) {
        client.send("GET /next HTTP/1.1\r\nhost: h\r\n\r\n");
        queued(&proxy, index);
    }
    reload(&proxy, &[backend.address], "limit = \"1\"\n[queue]\nrequests = 1");
    queued(&proxy, 1);
    hold.open();
    let mut statuses: Vec<u16> = clients.iter_mut().map(|client| client.answer().head.status()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 503, 503]);
    settle(&proxy);
}

#[test]
fn limits_and_sharing_change_while_requests_are_there() {
    let hold = Hold::default();
    let (one, two) = (hold.backend(), hold.backend());
    let both = [one.address, two.address];
    let proxy = start(&both, "limit = \"1\"");
    let mut clients: Vec<Wire> = (0..6).map(|_| connect(&proxy)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /{index} HTTP/1.1\r\nhost: h\r\n\r\n"));
    }
    hold.arrived(2);
    queued(&proxy, 4);
    reload(&proxy, &both, "limit = \"3\"\nshared = true");
    hold.arrived(3);
    queued(&proxy, 3);
    reload(&proxy, &both, "limit = \"2\"");
    hold.arrived(4);
    queued(&proxy, 2);
    reload(&proxy, &both, "limit = \"knee\"");
    hold.arrived(6);
    hold.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().head.status(), 200));
    settle(&proxy);
}

#[test]
fn an_added_backend_is_watched_and_a_removed_one_is_not() {
    let (well, free) = (Backend::echo(), TcpListener::bind("127.0.0.1:0").unwrap());
    let absent = free.local_addr().unwrap();
    drop(free);
    let proxy = start(&[well.address], "");
    reload(&proxy, &[well.address, absent], "health = \"/h\"");
    let up = |address: SocketAddr| {
        let metrics = proxy.admission().backend_metrics();
        let line = format!("leeward_proxy_backend_up{{backend=\"{address}\"}} ");
        metrics.lines().find_map(|of| of.strip_prefix(&line).map(|up| up == "1"))
    };
    until("the absent one is put aside", || up(absent) == Some(false));
    until("the other one is asked", || well.requests().iter().any(|request| request.head.target() == "/h"));
    assert_eq!(up(well.address), Some(true));
    reload(&proxy, &[well.address], "");
    assert_eq!((up(absent), metric(proxy.admission(), "leeward_proxy_backend_up")), (None, 1.0));
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").head.status(), 200);
}

#[test]
fn fewer_connections_make_room() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut clients: Vec<Wire> = (0..4).map(|_| connect(&proxy)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/").head.status(), 200));
    reload(&proxy, &[backend.address], "connections = 2");
    // Idle ones end until there is room.
    let mut more = connect(&proxy);
    assert_eq!(more.get("/").head.status(), 200);
    until("idle ones end", || {
        let is_open = |client: &Wire| {
            client.stream.set_nonblocking(true).unwrap();
            client.stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        clients.iter().filter(|client| is_open(client)).count() < 2
    });
}

#[test]
fn a_hundred_reloads_lose_nothing() {
    let (one, two, three) = (Backend::echo(), Backend::echo(), Backend::echo());
    let proxy = start(&[one.address], "");
    let stops = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (proxy, stops) = (&proxy, &stops);
                scope.spawn(move || {
                    let (mut wire, mut count) = (connect(proxy), 0);
                    while !stops.load(std::sync::atomic::Ordering::SeqCst) || count < 50 {
                        if client % 2 == 0 {
                            wire = connect(proxy);
                        }
                        let answer = wire.get(&format!("/{count}"));
                        assert_eq!((answer.head.status(), answer.text()), (200, format!("/{count}")));
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let sets = [vec![two.address, three.address], vec![one.address], vec![one.address, two.address, three.address]];
        for round in 0..100 {
            let extra = format!(
                "limit = \"{}\"\nshared = {}\n[timeouts]\nconnect = \"{}s\"",
                [64, 100][round % 2],
                round % 3 == 0,
                1 + round % 5
            );
            reload(&proxy, &sets[round % 3], &extra);
            std::thread::yield_now();
        }
        stops.store(true, std::sync::atomic::Ordering::SeqCst);
        let total: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
        let snapshot = settle(&proxy);
        assert_eq!((snapshot.completed, rejected(&snapshot)), (total, 0));
    });
}
