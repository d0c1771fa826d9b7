//! What the proxy changes in heads: hop-by-hop headers, `via`, what it tells about the client, and
//! whom it believes. Does not contain malformed heads.

use crate::harness::{Backend, Head, connect, metric, settle, start};
use leeward_observe::Source;

/// The head that reaches the backend.
fn forwarded(extra: &str, line: &str, headers: &str) -> Head {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], extra);
    let mut client = connect(&proxy);
    client.send(format!("{line}\r\n{headers}\r\n"));
    assert_eq!(client.answer().head.status(), 200, "{line} {headers}");
    backend.request(1).head
}

const NO_TRUST: &str = "trust = []";

#[test]
fn headers_of_one_connection_end_there() {
    let head = forwarded(
        "",
        "GET / HTTP/1.1",
        "host: h\r\nconnection: close, X-Hop, keep-alive, host, content-length\r\nx-hop: 1\r\nkeep-alive: 5\r\n\
         proxy-connection: x\r\nte: gzip\r\nupgrade: other\r\nx-end: 2\r\n",
    );
    for name in ["connection", "x-hop", "keep-alive", "proxy-connection", "te", "upgrade"] {
        assert_eq!(head.get(name), None, "{name}");
    }
    assert_eq!((head.get("x-end"), head.get("host")), (Some("2".into()), Some("h".into())));

    let backend = Backend::start(|exchange| {
        exchange.message();
        exchange.raw(
            "HTTP/1.1 200 OK\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nupgrade: h2c\r\n\
             x-end: 2\r\nvia: 1.1 other\r\ncontent-length: 0\r\n\r\n",
        );
    });
    let proxy = start(&[backend.address], "");
    let answer = connect(&proxy).get("/").head;
    for name in ["connection", "x-hop", "keep-alive", "upgrade"] {
        assert_eq!(answer.get(name), None, "{name}");
    }
    assert_eq!((answer.get("x-end"), answer.get("via")), (Some("2".into()), Some("1.1 other|1.1 leeward".into())));
}

#[test]
fn a_trusted_peer_is_believed_and_extended() {
    let head = forwarded(
        "",
        "GET / HTTP/1.1",
        "host: h\r\nx-forwarded-for: 10.0.0.1\r\nx-forwarded-for: 10.0.0.2\r\nforwarded: for=10.0.0.1\r\n\
         x-forwarded-host: outer\r\nx-forwarded-proto: https\r\nvia: 2 edge\r\nx-real-ip: 10.0.0.1\r\n",
    );
    assert_eq!(head.get("x-forwarded-for"), Some("10.0.0.1, 10.0.0.2, 127.0.0.1".into()), "one line");
    assert_eq!(head.get("forwarded"), Some("for=10.0.0.1, for=127.0.0.1".into()));
    assert_eq!(head.get("x-forwarded-host"), Some("outer".into()));
    assert_eq!(head.get("x-forwarded-proto"), Some("https".into()));
    assert_eq!(head.get("x-real-ip"), Some("10.0.0.1".into()));
    assert_eq!(head.get("via"), Some("2 edge|1.1 leeward".into()));
}

#[test]
fn nobody_else_is_believed() {
    let head = forwarded(
        NO_TRUST,
        "GET / HTTP/1.1",
        "host: h\r\nx-forwarded-for: 10.0.0.1\r\nforwarded: for=10.0.0.1\r\nx-forwarded-host: outer\r\n\
         x-forwarded-proto: https\r\nx-forwarded-port: 1\r\nx-forwarded-ssl: on\r\nx-real-ip: 10.0.0.1\r\n\
         x_forwarded_for: 10.0.0.1\r\nx-forwarded_proto: https\r\nx_real-ip: 9\r\nleeward: p=1\r\n\
         x-envoy-attempt-count: 4\r\nx-envoy-expected-rq-timeout-ms: 5\r\nx-other: 1\r\n",
    );
    assert_eq!(head.get("x-forwarded-for"), Some("127.0.0.1".into()));
    assert_eq!(head.get("x-forwarded-host"), Some("h".into()));
    assert_eq!(head.get("x-forwarded-proto"), Some("http".into()));
    for name in [
        "forwarded",
        "x-forwarded-port",
        "x-forwarded-ssl",
        "x-real-ip",
        "x_forwarded_for",
        "x-forwarded_proto",
        "x_real-ip",
        "leeward",
        "x-envoy-attempt-count",
        "x-envoy-expected-rq-timeout-ms",
    ] {
        assert_eq!(head.get(name), None, "{name}");
    }
    assert_eq!(head.get("x-other"), Some("1".into()));
}

#[test]
fn an_absolute_target_outranks_the_host() {
    let head = forwarded("", "GET http://other:81/a?b=c HTTP/1.1", "host: h\r\n");
    assert_eq!((head.target(), head.get("host")), ("/a?b=c", Some("other:81".into())));
    let head = forwarded("", "OPTIONS * HTTP/1.1", "host: h\r\n");
    assert_eq!(head.line, "OPTIONS * HTTP/1.1");
    let head = forwarded("", "GET http://[::1]:80 HTTP/1.1", "host: h\r\n");
    assert_eq!((head.target(), head.get("host")), ("/", Some("[::1]:80".into())));
}

/// The number of requests of a class that got a place.
fn admitted(extra: &str, headers: &str, class: usize) -> u64 {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], extra);
    let mut client = connect(&proxy);
    client.send(format!("GET /a/b HTTP/1.1\r\nhost: h\r\n{headers}\r\n"));
    client.answer();
    settle(&proxy).admitted_by_class[class]
}

#[test]
fn classes_are_those_of_trusted_peers() {
    let normal = usize::from(leeward_gate::Class::NORMAL.number());
    assert_eq!(admitted("", "leeward: p=1\r\n", 0), 1);
    assert_eq!(admitted(NO_TRUST, "leeward: p=1\r\n", normal), 1);
    assert_eq!(admitted("trust = [\"10.0.0.0/8\"]", "leeward: p=1\r\n", normal), 1);
    assert_eq!(admitted("", "", normal), 1);
    // A second attempt counts for less.
    assert_eq!(admitted("", "leeward: p=1,a=1\r\n", 1), 1);
    assert_eq!(admitted("", "leeward: p=1\r\nx-envoy-attempt-count: 2\r\n", 1), 1);
    assert_eq!(admitted(NO_TRUST, "x-envoy-attempt-count: 2\r\n", normal), 1);
}

#[test]
fn deadlines_are_those_of_trusted_peers() {
    let backend = Backend::echo();
    for (extra, expected) in [("", 503), (NO_TRUST, 200)] {
        let proxy = start(&[backend.address], extra);
        for header in ["leeward: b=0", "x-envoy-expected-rq-timeout-ms: 0", "grpc-timeout: 0n"] {
            let mut client = connect(&proxy);
            client.send(format!("GET / HTTP/1.1\r\nhost: h\r\n{header}\r\n\r\n"));
            let answer = client.answer().head;
            assert_eq!(answer.status(), expected, "{header}");
            if expected == 503 {
                assert_eq!(answer.get("leeward-reason"), Some("deadline".into()));
            }
        }
    }
}

#[test]
fn malformed_headers_of_trusted_peers_are_counted() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut client = connect(&proxy);
    client.send("GET / HTTP/1.1\r\nhost: h\r\nleeward: p=900, b=x\r\n\r\n");
    assert_eq!(client.answer().head.status(), 200);
    assert_eq!(metric(proxy.admission(), "leeward_proxy_malformed_headers_total"), 2.0);
}

#[test]
fn the_first_rule_that_matches_counts() {
    let rules = "[[rule]]\nname = \"post\"\nmethod = \"POST\"\nclass = 1\n\
                 [[rule]]\npath = \"/a/*\"\nheader = \"x-kind: batch\"\nclass = 6\n\
                 [[rule]]\npath = \"/a/b\"\nclient = \"127.0.0.0/8\"\nclass = 2\n\
                 [[rule]]\npath = \"/a/*\"\nclass = 5\n";
    assert_eq!(admitted(rules, "x-kind: batch\r\n", 6), 1);
    assert_eq!(admitted(rules, "x-kind: other\r\n", 2), 1);
    assert_eq!(admitted(rules, "leeward: p=1\r\n", 0), 1, "a trusted peer knows better");
    let backend = Backend::echo();
    let proxy = start(&[backend.address], rules);
    let mut client = connect(&proxy);
    client.send("POST /a/b HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
    client.answer();
    let snapshot = settle(&proxy);
    assert_eq!(snapshot.admitted_by_class[1], 1);
    assert!(snapshot.answers.iter().any(|of| of.route == "post" && of.in_time == 1), "{:?}", snapshot.answers);
}

#[test]
fn tenants_are_told_apart() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "tenant-by = \"header x-key\"");
    let mut client = connect(&proxy);
    for key in ["a", "b", "a", "c", "b"] {
        client.send(format!("GET / HTTP/1.1\r\nhost: h\r\nx-key: {key}\r\n\r\n"));
        client.answer();
    }
    client.get("/");
    settle(&proxy);
    let tenants = proxy.admission().snapshot().tenants;
    let charged = tenants.iter().filter(|tenant| tenant.usage.admitted_ns > 0).count();
    // The first request costs nothing yet: nobody knows what one costs.
    assert_eq!(charged, 3, "{tenants:?}");
}

#[test]
fn exempt_paths_need_no_place() {
    let hold = crate::harness::Hold::default();
    let held = hold.clone();
    let backend = Backend::start(move |exchange| {
        if exchange.head.target() == "/work" {
            held.pass("/work");
        }
        exchange.ok("well");
    });
    let proxy = start(&[backend.address], "limit = \"1\"\nexempt = [\"/healthz\", \"/live/*\"]");
    let mut busy = connect(&proxy);
    busy.send("GET /work HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    for path in ["/healthz", "/live/now", "/healthz?full"] {
        assert_eq!(connect(&proxy).get(path).text(), "well", "{path}");
    }
    hold.open();
    busy.answer();
    assert_eq!(settle(&proxy).arrived, 1);
}
