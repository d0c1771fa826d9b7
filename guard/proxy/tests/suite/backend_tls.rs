//! TLS to backends: authorities, names, the proxy's own certificate. Does not contain TLS to
//! clients.

use crate::certificates::{Certificates, transport_metric};
use crate::harness::{Backend, Message, connect, settings, start_with, text};
use crate::http2::harness::Http2Backend;
use leeward_proxy::Proxy;
use leeward_testkit::wait::until;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::thread;

/// A proxy in front of `https://HOST:PORT`.
fn start_https(host: &str, port: SocketAddr, section: &str) -> Result<Proxy, String> {
    start_with(&https_text(host, port, section))
}

fn https_text(host: &str, port: SocketAddr, section: &str) -> String {
    text(&[format!("https://{host}:{}", port.port())], &format!("[backend-tls]\n{section}"))
}

fn ca(certificates: &Certificates) -> String {
    format!("ca = {}\n", certificates.value("ca.pem"))
}

fn get(proxy: &Proxy) -> Message {
    connect(proxy).get("/a")
}

/// The number of handshakes with backends that ended so.
fn handshakes(proxy: &Proxy, result: &str) -> u64 {
    transport_metric(proxy, &format!("backend_tls_handshakes_total{{result=\"{result}\"}}"))
}

#[test]
fn requests_pass_to_backends_over_tls() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let port = certificates.in_front_of(backend.address, "server", false);
    for host in ["localhost", "127.0.0.1"] {
        let proxy = start_https(host, port, &ca(&certificates)).expect("a proxy");
        let mut client = connect(&proxy);
        assert_eq!((client.get("/a").text(), client.get("/b").text()), ("/a".into(), "/b".into()));
        assert_eq!(handshakes(&proxy, "ok"), 1, "the connection is kept");
        let metrics = proxy.admission().backend_metrics();
        assert!(metrics.contains(&format!("{{backend=\"https://{host}:{}\"}}", port.port())), "{metrics}");
    }
    assert_eq!(backend.request(1).head.get("x-forwarded-proto"), Some("http".into()), "the client's");
}

#[test]
fn a_backend_must_be_the_one_that_is_meant() {
    let (certificates, strangers, backend) = (Certificates::new(), Certificates::new(), Backend::echo());
    let authority = ca(&certificates);
    for (of, section, result) in [
        ("server", &ca(&strangers), "unknown-issuer"),
        ("old", &authority, "expired"),
        ("other", &authority, "wrong-name"),
        // The system does not know the authority of a test.
        ("server", &String::new(), "unknown-issuer"),
    ] {
        let port = certificates.in_front_of(backend.address, of, false);
        let proxy = start_https("localhost", port, section).unwrap_or_else(|error| {
            assert!(error.contains("authorities"), "a system without authorities: {error}");
            start_https("localhost", port, &ca(&strangers)).expect("a proxy")
        });
        let answer = get(&proxy);
        let found = (answer.head.status(), answer.head.get("leeward-reason"));
        assert_eq!(found, (502, Some("backend-unreachable".into())), "{of}");
        assert!(handshakes(&proxy, result) > 0, "{of}: {}", proxy.transport().metrics());
    }
    assert_eq!(backend.connections.load(Ordering::SeqCst), 0, "no byte of a request reaches it");
}

#[test]
fn a_backend_that_chooses_http2_is_asked_by_http2() {
    let (certificates, backend) = (Certificates::new(), Http2Backend::echo());
    let port = certificates.in_front_of_protocol(b"h2", backend.address, "server", false);
    let proxy = start_https("localhost", port, &ca(&certificates)).expect("a proxy");
    // It answers with the path and an empty body.
    let mut client = connect(&proxy);
    assert_eq!((client.get("/a").text(), client.get("/b").text()), ("/a ".into(), "/b ".into()));
    assert_eq!(handshakes(&proxy, "ok"), 1, "the connection is kept");
}

#[test]
fn the_expected_name_may_be_another_one() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let port = certificates.in_front_of(backend.address, "other", false);
    let section = format!("{}server-name = \"other.example\"", ca(&certificates));
    assert_eq!(get(&start_https("127.0.0.1", port, &section).expect("a proxy")).text(), "/a");
}

#[test]
fn the_proxy_shows_its_own_certificate() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let port = certificates.in_front_of(backend.address, "server", true);
    let (certificate, key) = (certificates.value("client.pem"), certificates.value("client.key"));
    let own = format!("{}certificate = {certificate}\nkey = {key}", ca(&certificates));
    assert_eq!(get(&start_https("localhost", port, &own).expect("a proxy")).text(), "/a");
    let proxy = start_https("localhost", port, &ca(&certificates)).expect("a proxy");
    assert_eq!(get(&proxy).head.status(), 502, "without one, the backend closes");
}

#[test]
fn verification_ends_only_where_it_is_said() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let port = certificates.in_front_of(backend.address, "old", false);
    assert_eq!(get(&start_https("localhost", port, "insecure = true").expect("a proxy")).text(), "/a");
}

#[test]
fn certificates_for_backends_change() {
    let (certificates, strangers, backend) = (Certificates::new(), Certificates::new(), Backend::echo());
    let port = certificates.in_front_of(backend.address, "server", false);
    let proxy = start_https("localhost", port, &ca(&strangers)).expect("a proxy");
    assert_eq!(get(&proxy).head.status(), 502);
    strangers.write("ca.pem", &std::fs::read_to_string(certificates.path("ca.pem")).unwrap());
    until("the new file is used", || transport_metric(&proxy, "backend_certificate_reloads_total") == 1);
    assert_eq!(get(&proxy).text(), "/a");
    strangers.write("ca.pem", "");
    assert!(proxy.reload(settings(&https_text("localhost", port, &ca(&strangers))).unwrap()).is_err());
    assert_eq!(get(&proxy).text(), "/a");
}

#[test]
fn a_backend_that_speaks_no_tls_is_unreachable() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start_https("localhost", backend.address, &ca(&certificates)).expect("a proxy");
    let answer = get(&proxy);
    assert_eq!((answer.head.status(), answer.head.get("leeward-reason")), (502, Some("backend-unreachable".into())));
}

#[test]
fn handshakes_with_backends_end_in_time() {
    // Accepts, reads and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    let (certificates, good) = (Certificates::new(), Backend::echo());
    let text = format!(
        "listen = \"127.0.0.1:0\"\nto = [\"https://localhost:{}\", \"{}\"]\n[timeouts]\nconnect = \"100ms\"\n[backend-tls]\n{}",
        port.port(),
        good.address,
        ca(&certificates)
    );
    let proxy = start_with(&text).expect("a proxy");
    for _ in 0..3 {
        assert_eq!(get(&proxy).text(), "/a", "the other one is asked");
    }
}

#[test]
fn an_answer_that_is_cut_below_tls_is_cut() {
    let certificates = Certificates::new();
    let backend = Backend::start(|exchange| {
        exchange.raw("HTTP/1.1 200 OK\r\n\r\nhalf");
        exchange.close();
    });
    // A relay that closes without an end of TLS, as an attacker would.
    let port = certificates.in_front_of(backend.address, "server", false);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let cutter = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut client), Ok(mut server)) = (stream, std::net::TcpStream::connect(port)) else { return };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || {
                let mut head = [0; 5];
                // The end of TLS is a record of 19 bytes: two, their kind, and a tag.
                while server.read_exact(&mut head).is_ok() && head[3..] != [0, 19] {
                    let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
                    server.read_exact(&mut body).unwrap();
                    client.write_all(&[&head[..], &body].concat()).unwrap();
                }
                let _ = client.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    let proxy = start_https("localhost", cutter, &ca(&certificates)).expect("a proxy");
    let mut client = connect(&proxy);
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    let answer = client.answer();
    assert!(answer.is_cut || answer.head.status() == 502, "{answer:?}");
}

#[test]
fn addresses_that_can_not_be_certified_are_errors_at_the_start() {
    let backend = Backend::echo();
    let error = start_https("-.-", backend.address, "insecure = true").expect_err("no name");
    assert!(error.starts_with("backend-tls: ") && error.contains("-.-"), "{error}");
    let error = start_https("localhost", backend.address, "ca = \"/nowhere.pem\"").expect_err("no file");
    assert!(error.contains("/nowhere.pem"), "{error}");
    // Files that nobody needs are not read.
    let text =
        format!("listen = \"127.0.0.1:0\"\nto = [\"{}\"]\n[backend-tls]\nca = \"/nowhere.pem\"", backend.address);
    assert_eq!(get(&start_with(&text).expect("a proxy")).text(), "/a");
}
