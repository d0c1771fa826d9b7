//! The queue as clients see it: order, rejections and their explanations, tenants, shadow mode.
//! Does not contain clients that go away.

use crate::harness::{Backend, Head, Hold, Wire, connect, metric, queued, rejected, settle, shadowed, start};
use leeward_gate::Class;
use leeward_observe::Source;
use leeward_observe::snapshot::RejectionCount;
use leeward_proxy::Proxy;
use leeward_testkit::wait::until;
use std::thread::sleep;
use std::time::Duration;

/// A client that has asked for a path, with more headers.
fn ask(proxy: &Proxy, path: &str, headers: &str) -> Wire {
    let mut client = connect(proxy);
    client.send(format!("GET {path} HTTP/1.1\r\nhost: h\r\n{headers}\r\n"));
    client
}

/// Fills the only place of a backend.
fn occupy(proxy: &Proxy, hold: &Hold) -> Wire {
    let client = ask(proxy, "/first", "");
    hold.arrived(1);
    client
}

/// Checks the headers of a rejection, and its explanation.
fn check_rejection(proxy: &Proxy, head: &Head, reason: &str) {
    assert_eq!((head.status(), head.get("leeward-reason")), (503, Some(reason.into())), "{head:?}");
    assert!(head.get("retry-after").is_some_and(|after| after.parse::<u64>().is_ok()), "{head:?}");
    let id = head.get("leeward-decision").expect("a number").parse().expect("a decision's number");
    let decision = proxy.admission().decision(id).expect("the decision is known");
    assert_eq!(decision.reject_reason.map(|reason| reason.name()), Some(reason));
    let sentence = proxy.admission().context().explain(&decision, None);
    assert!(!sentence.is_empty());
}

#[test]
fn a_request_that_waits_past_its_deadline_is_rejected_with_an_explanation() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let mut first = occupy(&proxy, &hold);
    let mut second = ask(&proxy, "/second", "leeward: b=30000\r\n");
    let answer = second.answer();
    check_rejection(&proxy, &answer.head, "deadline");
    hold.open();
    assert_eq!(first.answer().text(), "/first");
    // The connection goes on.
    assert_eq!(second.get("/third").text(), "/third");
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.completed, rejected(&snapshot)), (2, 1));
    assert_eq!(hold.arrived(2), ["/first", "/third"], "the backend never saw it");
}

#[test]
fn a_request_that_waits_for_the_whole_objective_is_late() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"\nslo = \"100ms\"");
    let _first = occupy(&proxy, &hold);
    let answer = ask(&proxy, "/second", "").answer();
    check_rejection(&proxy, &answer.head, "late");
    hold.open();
    settle(&proxy);
}

#[test]
fn classes_go_before_arrival() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let mut clients = vec![occupy(&proxy, &hold)];
    for (at, (path, level)) in [("/7", 128), ("/3", 50), ("/0", 1), ("/3b", 50)].into_iter().enumerate() {
        clients.push(ask(&proxy, path, &format!("leeward: p={level}\r\n")));
        queued(&proxy, at + 1);
    }
    hold.open();
    assert_eq!(hold.arrived(5), ["/first", "/0", "/3", "/3b", "/7"]);
    for client in &mut clients {
        assert_eq!(client.answer().head.status(), 200);
    }
    settle(&proxy);
}

#[test]
fn a_full_queue_rejects_the_least_important() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"\n[queue]\nrequests = 2");
    let mut first = occupy(&proxy, &hold);
    let mut middle = ask(&proxy, "/middle", "leeward: p=60\r\n");
    queued(&proxy, 1);
    let mut last = ask(&proxy, "/last", "leeward: p=120\r\n");
    queued(&proxy, 2);
    let mut urgent = ask(&proxy, "/urgent", "leeward: p=1\r\n");
    check_rejection(&proxy, &last.answer().head, "concurrency");
    // One that is no more important than the others is rejected itself.
    check_rejection(&proxy, &ask(&proxy, "/late", "leeward: p=120\r\n").answer().head, "concurrency");
    hold.open();
    for (client, path) in [(&mut first, "/first"), (&mut middle, "/middle"), (&mut urgent, "/urgent")] {
        assert_eq!(client.answer().text(), path);
    }
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.completed, rejected(&snapshot)), (3, 2));
}

#[test]
fn the_bytes_of_the_queue_are_bounded() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"\n[queue]\nmegabytes = 1");
    let _first = occupy(&proxy, &hold);
    let headers = format!("x-large: {}\r\n", "a".repeat(50_000));
    let mut clients: Vec<Wire> = (0..30).map(|_| ask(&proxy, "/large", &headers)).collect();
    until("all have arrived", || proxy.admission().snapshot().arrived == 31);
    let waiting = metric(proxy.admission(), "leeward_proxy_queued");
    assert!((15.0..=20.0).contains(&waiting), "{waiting} of 50 kB");
    hold.open();
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.answer().head.status()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), waiting as usize);
    settle(&proxy);
}

#[test]
fn a_tenant_that_floods_does_not_delay_another() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"\ntenant-by = \"header x-key\"");
    let mut clients = vec![occupy(&proxy, &hold)];
    for _ in 0..40 {
        clients.push(ask(&proxy, "/flood", "x-key: a\r\n"));
    }
    queued(&proxy, 40);
    for _ in 0..3 {
        clients.push(ask(&proxy, "/other", "x-key: b\r\n"));
    }
    queued(&proxy, 43);
    // One after the other, so that all cost about the same.
    for count in 1..=44 {
        hold.arrived(count);
        hold.release(1);
    }
    let order = hold.arrived(44);
    let last = order.iter().rposition(|path| path == "/other").expect("they are served");
    assert!(last <= 20, "{order:?}");
    for client in &mut clients {
        assert_eq!(client.answer().head.status(), 200);
    }
    settle(&proxy);
}

/// The statuses of forty requests at a backend with one place and a queue of one request.
fn overloaded(mode: &str) -> (Proxy, Vec<u16>) {
    let hold = Hold::default();
    let backend = hold.backend();
    let extra = format!("limit = \"1\"\nmode = \"{mode}\"\n[queue]\nrequests = 1");
    let proxy = start(&[backend.address], &extra);
    let mut clients: Vec<Wire> = (0..40).map(|_| ask(&proxy, "/", "")).collect();
    until("all have arrived", || proxy.admission().snapshot().arrived == 40);
    hold.open();
    let statuses = clients.iter_mut().map(|client| client.answer().head.status()).collect();
    (proxy, statuses)
}

#[test]
fn shadow_mode_counts_what_it_would_reject_and_rejects_nothing() {
    let (proxy, statuses) = overloaded("shadow");
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let snapshot = settle(&proxy);
    // One would have had the place, and one would have waited.
    assert_eq!((snapshot.admitted, snapshot.completed, snapshot.mode), (40, 40, "shadow"));
    let full = |of: &RejectionCount| of.reason == "concurrency" && of.class == Some(Class::NORMAL.number());
    let count = snapshot.refused.iter().find(|of| full(of)).map(|of| of.count);
    assert_eq!((count, rejected(&snapshot), shadowed(&proxy)), (Some(38), 38, 38));
    let decision = proxy.admission().decisions(1).pop().expect("a decision");
    assert!(decision.is_shadow);
    assert_eq!(decision.reject_reason.map(|reason| reason.name()), Some("concurrency"));
}

/// An alert compares the queue with it.
#[test]
fn the_wait_that_the_queue_allows_is_its_target() {
    for mode in ["enforce", "shadow"] {
        let backend = Backend::echo();
        let proxy = start(&[backend.address], &format!("mode = \"{mode}\""));
        connect(&proxy).get("/");
        let snapshot = settle(&proxy);
        let target = snapshot.target_ns.expect("a target");
        assert!((1..=snapshot.slo_ns).contains(&target), "{mode}: {target}");
    }
}

#[test]
fn a_percentage_is_enforced_for_that_share() {
    let (proxy, statuses) = overloaded("50%");
    let enforced = statuses.iter().filter(|status| **status == 503).count();
    let snapshot = settle(&proxy);
    assert_eq!((rejected(&snapshot), shadowed(&proxy) + enforced as u64), (38, 38));
    assert!((1..38).contains(&enforced), "{statuses:?}");
    let (proxy, statuses) = overloaded("100%");
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 38, "{statuses:?}");
    assert_eq!(settle(&proxy).mode, "enforce");
}

/// A slow response, such as that of a cold start, and a stream say nothing about an idle service.
#[test]
fn one_slow_response_or_stream_makes_no_mode_reject() {
    for mode in ["enforce", "shadow", "50%", "100%"] {
        let backend = Backend::start(|exchange| match exchange.head.target() {
            "/slow" => {
                sleep(Duration::from_millis(150));
                exchange.ok("slow");
            }
            "/events" => {
                exchange.raw("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 6\r\n\r\nabc");
                sleep(Duration::from_millis(150));
                exchange.raw("def");
            }
            _ => exchange.ok("fast"),
        });
        let proxy = start(&[backend.address], &format!("slo = \"50ms\"\nmode = \"{mode}\""));
        let mut client = connect(&proxy);
        for slow in ["/slow", "/fast", "/slow", "/events"] {
            client.get(slow);
            let statuses: Vec<u16> = (0..50).map(|_| client.get("/fast").head.status()).collect();
            assert!(statuses.iter().all(|status| *status == 200), "{mode} {slow} {statuses:?}");
        }
        let snapshot = settle(&proxy);
        assert_eq!((rejected(&snapshot), shadowed(&proxy)), (0, 0), "{mode}");
    }
}

/// A stream that is open holds no place in shadow mode either.
#[test]
fn a_stream_holds_no_place_in_shadow_mode() {
    let hold = Hold::default();
    let held = hold.clone();
    let backend = Backend::start(move |exchange| {
        if exchange.head.target() == "/events" {
            exchange.raw("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 6\r\n\r\nabc");
            held.pass("/events");
            return exchange.raw("def");
        }
        exchange.ok("well");
    });
    let proxy = start(&[backend.address], "limit = \"1\"\nmode = \"shadow\"\n[queue]\nrequests = 1");
    let mut streams: Vec<Wire> = (0..5)
        .map(|count| {
            let mut client = ask(&proxy, "/events", "");
            hold.arrived(count + 1);
            client.head().expect("the head of a stream");
            client
        })
        .collect();
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").head.status(), 200);
    assert_eq!(shadowed(&proxy), 0);
    hold.open();
    for stream in &mut streams {
        assert_eq!(stream.exactly(6), Some(b"abcdef".to_vec()));
    }
    settle(&proxy);
}

#[test]
fn a_call_of_grpc_is_rejected_in_its_own_words() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let _first = occupy(&proxy, &hold);
    let answer = ask(&proxy, "/call", "content-type: application/grpc\r\nleeward: b=0\r\n").answer();
    assert_eq!((answer.head.status(), answer.head.get("grpc-status")), (200, Some("4".into())));
    hold.open();
    settle(&proxy);
}
