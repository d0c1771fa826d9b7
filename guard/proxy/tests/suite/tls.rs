//! TLS to clients: certificates, protocols, names, clients' certificates, and what the proxy says
//! about them. Does not contain TLS to backends, or hostile clients.

use crate::certificates::{Certificate, Certificates, handshakes, transport_metric};
use crate::harness::{Backend, address, settings, settle, start, start_with, text};
use leeward_testkit::wait::until;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tokio_rustls::rustls::{self, ProtocolVersion};

#[test]
fn requests_pass_over_tls() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    let (mut client, greeting) = certificates.client().connect(&proxy).expect("a handshake");
    assert_eq!(greeting.version, ProtocolVersion::TLSv1_3);
    assert_eq!(client.get("/a").text(), "/a");
    // Long enough to sleep without hyper's buffers.
    thread::sleep(Duration::from_millis(700));
    assert_eq!(client.get("/b").text(), "/b");
    client.send("GET /c HTTP/1.1\r\nhost: h\r\n\r\nGET /d HTTP/1.1\r\nhost: h\r\n\r\n");
    assert_eq!((client.answer().text(), client.answer().text()), ("/c".into(), "/d".into()));
    let head = backend.request(1).head;
    assert_eq!(head.get("x-forwarded-proto"), Some("https".into()));
    assert_eq!(head.get("x-forwarded-for"), Some("127.0.0.1".into()));
    drop(client);
    settle(&proxy);
    assert_eq!(handshakes(&proxy, "ok"), 1);
    until("it is in progress no longer", || transport_metric(&proxy, "tls_handshakes_in_progress") == 0);
}

#[test]
fn the_scheme_is_told_to_the_backend() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    let (mut client, _) = certificates.client().connect(&proxy).expect("a handshake");
    client.send("GET / HTTP/1.1\r\nhost: h\r\nforwarded: for=10.0.0.1\r\nx-forwarded-proto: http\r\n\r\n");
    client.answer();
    let head = backend.request(1).head;
    assert_eq!(head.get("forwarded"), Some("for=10.0.0.1, for=127.0.0.1;proto=https".into()));
    assert_eq!(head.get("x-forwarded-proto"), Some("http".into()), "a trusted peer knows better");
    let proxy = start(&[backend.address], &format!("trust = []\n{}", certificates.section("server", "")));
    let (mut client, _) = certificates.client().connect(&proxy).expect("a handshake");
    client.send(
        "GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-proto: http\r\nx-forwarded-client-cert: Hash=1\r\nclient-cert: :x:\r\n\
         ssl_client_verify: SUCCESS\r\nx-ssl-client-cert: x\r\nclient-id: 7\r\n\r\n",
    );
    client.answer();
    let head = backend.request(2).head;
    assert_eq!(head.get("x-forwarded-proto"), Some("https".into()));
    for name in ["x-forwarded-client-cert", "client-cert", "ssl_client_verify", "x-ssl-client-cert"] {
        assert_eq!(head.get(name), None, "{name}");
    }
    assert_eq!(head.get("client-id"), Some("7".into()));
}

#[test]
fn large_bodies_pass_over_tls() {
    let certificates = Certificates::new();
    let backend = Backend::start(|exchange| {
        let body = exchange.message().text();
        exchange.ok(&body);
    });
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    let (mut client, _) = certificates.client().connect(&proxy).expect("a handshake");
    let body: String = (0..2_000_000).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    for _ in 0..2 {
        let mut sender = client.stream.try_clone().unwrap();
        let request = format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let sent = thread::spawn(move || sender.write_all(request.as_bytes()));
        assert!(client.answer().text() == body, "the body is another one");
        sent.join().unwrap().unwrap();
    }
}

#[test]
fn tunnels_pass_over_tls_on_both_sides() {
    let certificates = Certificates::new();
    let backend = Backend::start(|exchange| {
        exchange.raw("HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
        for _ in 0..3 {
            let bytes = exchange.wire.exactly(5).unwrap_or_default();
            exchange.raw(bytes);
        }
        exchange.close();
    });
    let port = certificates.in_front_of(backend.address, "server", false);
    let text = format!(
        "listen = \"127.0.0.1:0\"\nto = [\"https://localhost:{}\"]\n{}[backend-tls]\nca = {}",
        port.port(),
        certificates.section("server", ""),
        certificates.value("ca.pem")
    );
    let proxy = start_with(&text).expect("a proxy");
    let (mut client, _) = certificates.client().connect(&proxy).expect("a handshake");
    client.send("GET / HTTP/1.1\r\nhost: h\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
    assert_eq!(client.answer().head.status(), 101);
    for word in ["hello", "again", "third"] {
        client.send(word);
        assert_eq!(client.exactly(5), Some(word.into()));
    }
    client.closed();
}

#[test]
fn unix_sockets_may_speak_tls() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let path = certificates.path("p.sock");
    let (listen, to) = (path.display(), backend.address);
    let text = format!("listen = \"unix:{listen}\"\nto = [\"{to}\"]\n{}", certificates.section("server", ""));
    let _proxy = start_with(&text).expect("a proxy");
    let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let config = Arc::new(certificates.client().config);
    let mut session = rustls::ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    stream.write_all(b"GET /a HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("/a"), "{answer}");
    let head = backend.request(1).head;
    assert_eq!((head.get("x-forwarded-proto"), head.get("x-forwarded-for")), (Some("https".into()), None));
}

#[test]
fn protocols_are_agreed_on() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    for (offered, chosen) in [
        (&[][..], None),
        (&["http/1.1"][..], Some(b"http/1.1".to_vec())),
        (&["other", "http/1.1"][..], Some(b"http/1.1".to_vec())),
        (&["http/1.1", "h2"][..], Some(b"h2".to_vec())),
    ] {
        let (mut client, greeting) =
            certificates.client().with_protocols(offered).connect(&proxy).expect("a handshake");
        assert_eq!(greeting.protocol, chosen, "{offered:?}");
        if chosen == Some(b"h2".to_vec()) {
            continue;
        }
        assert_eq!(client.get("/").head.status(), 200);
    }
    assert!(certificates.client().with_protocols(&["acme-tls/1"]).connect(&proxy).is_err());
    until("it is counted", || handshakes(&proxy, "incompatible") == 1);
}

#[test]
fn the_name_chooses_the_certificate() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let list = |end: &str| {
        let files = ["server", "other"].map(|of| certificates.value(&format!("{of}.{end}")));
        format!("[{}]", files.join(", "))
    };
    let section = format!("[tls]\ncertificate = {}\nkey = {}\n", list("pem"), list("key"));
    let proxy = start(&[backend.address], &section);
    for (name, is_served) in [
        ("localhost", true),
        ("other.example", true),
        ("a.wild.example", true),
        ("127.0.0.1", true),
        ("unknown.example", false),
        ("a.b.wild.example", false),
    ] {
        let client = certificates.client().with_name(name).connect(&proxy);
        assert_eq!(client.is_ok(), is_served, "{name}");
        if let Ok((mut client, _)) = client {
            assert_eq!(client.get("/").text(), "/");
        }
    }
    let text = proxy.transport().metrics();
    let rows = text.lines().filter(|line| line.starts_with("leeward_proxy_certificate_expiry_timestamp_seconds{"));
    assert_eq!(rows.count(), 2, "{text}");
}

#[test]
fn a_client_that_does_not_know_the_authority_ends_the_handshake() {
    let (certificates, strangers, backend) = (Certificates::new(), Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    let error = strangers.client().connect(&proxy).expect_err("another authority");
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    until("it is counted", || handshakes(&proxy, "refused-by-peer") == 1);
    assert_eq!(certificates.client().get(&proxy, "/a"), "/a");
}

#[test]
fn an_expired_certificate_is_served_and_shown() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("old", ""));
    let error = certificates.client().connect(&proxy).expect_err("it has expired");
    assert!(error.to_string().contains("xpired"), "{error}");
    let path = certificates.path("old.pem");
    let name = format!("certificate_expiry_timestamp_seconds{{certificate=\"{}\"}}", path.display());
    // The first of January 2000.
    assert_eq!(transport_metric(&proxy, &name), 946_684_800);
}

#[test]
fn clients_show_certificates_where_they_must() {
    let (certificates, strangers, backend) = (Certificates::new(), Certificates::new(), Backend::echo());
    let ca = format!("client-ca = {}", certificates.value("ca.pem"));
    let required = start(&[backend.address], &certificates.section("server", &ca));
    let optional =
        start(&[backend.address], &certificates.section("server", &format!("{ca}\nclient-auth = \"optional\"")));
    for proxy in [&required, &optional] {
        assert_eq!(certificates.client_with("client").get(proxy, "/a"), "/a");
        // A certificate that is shown must be valid. In TLS 1.3 the client learns it with the first
        // answer.
        for wrong in ["old", "stranger"] {
            let mut client = certificates.client_with(if wrong == "old" { "old" } else { "client" });
            if wrong == "stranger" {
                client.config.client_auth_cert_resolver =
                    strangers.client_with("client").config.client_auth_cert_resolver;
            }
            if let Ok((mut client, _)) = client.connect(proxy) {
                client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
                client.closed();
            }
        }
        until("they are counted", || handshakes(proxy, "expired") == 1 && handshakes(proxy, "unknown-issuer") == 1);
    }
    assert_eq!(certificates.client().get(&optional, "/b"), "/b");
    if let Ok((mut client, _)) = certificates.client().connect(&required) {
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
        client.closed();
    }
    until("it is counted", || handshakes(&required, "no-certificate") == 1);
    assert_eq!(backend.requests().len(), 3, "no request of the others");
}

#[test]
fn sessions_are_resumed_unless_clients_show_certificates() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    let mut client = certificates.client();
    client.config.resumption = rustls::client::Resumption::in_memory_sessions(8);
    let (mut first, greeting) = client.connect(&proxy).expect("a handshake");
    assert!(!greeting.is_resumed);
    // Tickets come after the handshake.
    assert_eq!(first.get("/").text(), "/");
    let (mut second, greeting) = client.connect(&proxy).expect("a handshake");
    assert!(greeting.is_resumed);
    assert_eq!(second.get("/").text(), "/");

    let ca = format!("client-ca = {}", certificates.value("ca.pem"));
    let proxy = start(&[backend.address], &certificates.section("server", &ca));
    let client = certificates.client_with("client");
    assert_eq!(client.get(&proxy, "/"), "/");
    let (mut second, greeting) = client.connect(&proxy).expect("a handshake");
    assert!(!greeting.is_resumed, "a revoked certificate must not live on");
    assert_eq!(second.get("/").text(), "/");
}

#[test]
fn certificates_change_under_load_and_no_request_is_lost() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let own = text(&[backend.address], &certificates.section("server", ""));
    let proxy = start_with(&own).expect("a proxy");
    let (stops, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (mut kept, before) = certificates.client().connect(&proxy).expect("a handshake");
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let (client, stops, asked, proxy) = (certificates.client(), &stops, &asked, &proxy);
                scope.spawn(move || {
                    while !stops.load(Ordering::SeqCst) {
                        let (mut wire, _) = client.connect(proxy).expect("a handshake");
                        for path in ["/a", "/b", "/c"] {
                            assert_eq!(wire.get(path).text(), path);
                            asked.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        for round in 1..=3 {
            certificates.sign(&Certificate { file: "server", names: &["localhost", "127.0.0.1"], expires: 4096 });
            until("the new files are used", || transport_metric(&proxy, "certificate_reloads_total") >= round);
            let now = asked.load(Ordering::SeqCst);
            until("more is asked", || asked.load(Ordering::SeqCst) > now + 8);
        }
        for round in 0..20 {
            certificates.sign(&Certificate { file: "server", names: &["localhost"], expires: 4000 + round });
            proxy.reload(settings(&own).unwrap()).expect("usable files");
        }
        stops.store(true, Ordering::SeqCst);
        clients.into_iter().for_each(|client| client.join().expect("no request is lost"));
    });
    let (mut new, after) = certificates.client().connect(&proxy).expect("a handshake");
    assert_ne!(before.certificate, after.certificate);
    assert_eq!((new.get("/d").text(), kept.get("/e").text()), ("/d".into(), "/e".into()));
    assert_eq!(handshakes(&proxy, "ok"), (asked.load(Ordering::SeqCst) / 3 + 2) as u64);
}

#[test]
fn bad_files_keep_the_old_certificate() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let own = text(&[backend.address], &certificates.section("server", ""));
    let proxy = start_with(&own).expect("a proxy");
    let read = |file: &str| std::fs::read_to_string(certificates.path(file)).unwrap();
    let (good_key, other_key) = (read("server.key"), read("other.key"));
    let good = read("server.pem");
    for (file, text) in [("server.pem", "no certificate"), ("server.key", &other_key), ("server.pem", "")] {
        certificates.write(file, text);
        let error = proxy.reload(settings(&own).unwrap()).expect_err(file).to_string();
        assert!(error.contains(file), "{error}");
        assert_eq!(transport_metric(&proxy, "certificate_reload_failed"), 1);
        assert_eq!(certificates.client().get(&proxy, "/a"), "/a");
        certificates.write("server.pem", &good);
        certificates.write("server.key", &good_key);
        proxy.reload(settings(&own).unwrap()).expect("usable files");
        assert_eq!(transport_metric(&proxy, "certificate_reload_failed"), 0);
    }
    std::fs::remove_file(certificates.path("server.key")).unwrap();
    until("it is noticed", || transport_metric(&proxy, "certificate_reload_failed") == 1);
    assert_eq!(certificates.client().get(&proxy, "/b"), "/b");
}

/// Each side's error is told, and neither side changes.
#[test]
fn a_reload_with_bad_files_of_both_sides_names_both() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let port = certificates.in_front_of(backend.address, "server", false);
    let to = format!("https://localhost:{}", port.port());
    let sections = certificates.section("server", "") + "[backend-tls]\nca = " + &certificates.value("ca.pem");
    let text = text(&[to], &sections);
    let proxy = start_with(&text).expect("a proxy");
    let client = certificates.client();
    certificates.write("server.pem", "none");
    certificates.write("ca.pem", "none");
    let error = proxy.reload(settings(&text).unwrap()).unwrap_err().to_string();
    assert!(error.contains("tls: ") && error.contains("server.pem"), "{error}");
    assert!(error.contains("backend-tls: ") && error.contains("ca.pem"), "{error}");
    assert_eq!(client.get(&proxy, "/a"), "/a");
    for metric in ["certificate_reload_failed", "backend_certificate_reload_failed"] {
        assert_eq!(transport_metric(&proxy, metric), 1, "{metric}");
    }
}

#[test]
fn a_proxy_does_not_start_with_bad_files() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    certificates.write("empty.pem", "");
    let listens = format!("listen = \"127.0.0.1:0\"\nto = [\"{}\"]\n", backend.address);
    let value = |file: &str| certificates.value(file);
    for (section, wanted) in [
        (certificates.section("nowhere", ""), "nowhere.pem"),
        (format!("[tls]\ncertificate = {}\nkey = {}", value("server.pem"), value("other.key")), "other.key"),
        (format!("[tls]\ncertificate = {}\nkey = {}", value("empty.pem"), value("other.key")), "empty.pem"),
        (format!("[tls]\ncertificate = \"/dev/zero\"\nkey = {}", value("other.key")), "/dev/zero"),
        (format!("[tls]\ncertificate = {}\nkey = \"/\"", value("server.pem")), "read /"),
        (certificates.section("server", &format!("client-ca = {}", value("server.key"))), "server.key"),
    ] {
        let error = start_with(&format!("{listens}{section}")).expect_err(wanted);
        assert!(error.contains(wanted) && error.starts_with("tls: "), "{error}");
    }
}

#[test]
fn a_stop_ends_connections_over_tls() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", "[timeouts]\nstop = \"5s\""));
    let (mut idle, _) = certificates.client().connect(&proxy).expect("a handshake");
    assert_eq!(idle.get("/").text(), "/");
    let mut silent = std::net::TcpStream::connect(address(&proxy)).unwrap();
    silent.write_all(&[0x16, 3, 1]).unwrap();
    until("its handshake begins", || transport_metric(&proxy, "tls_handshakes_in_progress") == 1);
    proxy.stop();
    idle.closed();
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0);
}
