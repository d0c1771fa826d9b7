//! The admin port with TLS: accepted and rejected clients, and slow handshakes that must not block
//! others.

use leeward_admin::{ALPN, Admin, Sources};
use leeward_testkit::greetings::GREETINGS;
use leeward_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls, Session};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Certificates and keys of an authority, a server and a client.
struct CertFiles(TempDir);

impl CertFiles {
    fn new() -> CertFiles {
        let files = CertFiles(TempDir::new().unwrap());
        let write = |name: &str, text: String| std::fs::write(files.path(name), text).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        write("ca.pem", authority.pem());
        for (name, san) in [
            ("server", SanType::DnsName("localhost".try_into().unwrap())),
            ("client", SanType::URI("spiffe://example/operator".try_into().unwrap())),
        ] {
            let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
            params.subject_alt_names = vec![san];
            write(&format!("{name}.pem"), params.signed_by(&key, &authority).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn port(&self, wants_certificates: bool) -> Admin {
        let client_ca = wants_certificates.then(|| self.path("ca.pem"));
        let files = ServerFiles { cert: self.path("server.pem"), key: self.path("server.key"), client_ca };
        let tls = ServerTls::open_with_alpn(files, ALPN).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Admin::start_encrypted(listener, Sources::default(), String::new(), tls).unwrap()
    }

    fn client(&self, shows_certificate: bool) -> ClientTls {
        let identity = shows_certificate.then(|| (self.path("client.pem"), self.path("client.key")));
        let files = ClientFiles { ca: self.path("ca.pem"), identity, name: Some("localhost".into()) };
        ClientTls::open_with_alpn(files, ALPN).unwrap()
    }
}

fn connect(admin: &Admin) -> TcpStream {
    let stream = TcpStream::connect(admin.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Requests a path, and returns the response; an error if there is no session.
fn ask(admin: &Admin, tls: &ClientTls, path: &str) -> std::io::Result<String> {
    let mut stream = connect(admin);
    let name = tls.name_for("localhost:1").unwrap();
    let mut session: Session = tls.connect(&name).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let (mut sent, mut received, mut piece) = (0, Vec::new(), [0; 4096]);
    loop {
        if !session.is_handshaking() && sent < request.len() {
            sent += session.seal(&request.as_bytes()[sent..]);
        }
        session.send(&mut stream)?;
        if session.has_ended() {
            return Ok(String::from_utf8(received).unwrap());
        }
        if session.is_handshaking() || sent == request.len() {
            let read = session.receive(&mut stream)?;
            while session.holds_plaintext() {
                let count = session.take(&mut piece);
                received.extend_from_slice(&piece[..count]);
            }
            if read == 0 && !session.has_ended() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

#[test]
fn tls_handshakes_succeed_and_are_counted() {
    let files = CertFiles::new();
    let admin = files.port(false);
    let tls = files.client(false);
    let received = ask(&admin, &tls, "/healthz").unwrap();
    assert!(received.starts_with("HTTP/1.1 200 OK\r\n") && received.ends_with("\r\n\r\nalive\n"), "{received}");
    // The page is longer than a TLS record, and arrives complete.
    let page = ask(&admin, &tls, "/").unwrap();
    assert!(page.len() > 20_000 && page.trim_end().ends_with("</html>"), "{} bytes", page.len());
    let metrics = ask(&admin, &tls, "/metrics").unwrap();
    let full = "leeward_tls_handshakes_total{port=\"admin\",kind=\"full\"} 1\n";
    let resumed = "leeward_tls_handshakes_total{port=\"admin\",kind=\"resumed\"} 2\n";
    assert!(metrics.contains(full) && metrics.contains(resumed), "{metrics}");
}

#[test]
fn clients_without_a_required_certificate_are_rejected() {
    let files = CertFiles::new();
    let admin = files.port(true);
    assert!(ask(&admin, &files.client(false), "/healthz").is_err());
    let metrics = ask(&admin, &files.client(true), "/metrics").unwrap();
    for line in [
        "leeward_tls_refusals_total{port=\"admin\",reason=\"no-certificate\"} 1",
        "leeward_tls_identified_total{port=\"admin\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no `{line}` in {metrics}");
    }
}

#[test]
fn a_plaintext_http_client_gets_a_plaintext_error() {
    let files = CertFiles::new();
    let admin = files.port(false);
    let mut stream = connect(&admin);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 400 ") && reply.contains("this port speaks TLS alone: https://"), "{reply}");
    let metrics = ask(&admin, &files.client(false), "/metrics").unwrap();
    assert!(metrics.contains("leeward_tls_refusals_total{port=\"admin\",reason=\"plaintext\"} 1\n"), "{metrics}");
}

#[test]
fn clients_of_other_protocols_get_an_error_that_names_tls() {
    let files = CertFiles::new();
    let admin = files.port(false);
    for (name, bytes) in GREETINGS.into_iter().filter(|(name, _)| *name != "TLS") {
        let mut stream = connect(&admin);
        stream.write_all(bytes).unwrap();
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        assert!(received.starts_with(b"HTTP/1.1 400 "), "{name}: {}", String::from_utf8_lossy(&received));
    }
    assert!(ask(&admin, &files.client(false), "/healthz").unwrap().ends_with("alive\n"));
}

#[test]
fn stalled_handshakes_do_not_delay_other_clients() {
    let files = CertFiles::new();
    let admin = files.port(false);
    let tls = files.client(false);
    // More connections than the limit: silent ones, and ones that stop within a record.
    let mut slow = Vec::new();
    for index in 0..100 {
        let mut stream = connect(&admin);
        if index % 2 == 0 {
            stream.write_all(&[0x16, 3, 1, 2, 0]).unwrap();
        }
        slow.push(stream);
        if index % 10 == 9 {
            let received = ask(&admin, &tls, "/healthz").unwrap();
            assert!(received.ends_with("alive\n"), "{received}");
        }
    }
}

#[test]
fn all_of_many_concurrent_handshakes_succeed() {
    let files = CertFiles::new();
    let admin = files.port(true);
    let tls = files.client(true);
    // More handshakes than may start at once, but fewer connections than the limit: each gets its
    // turn.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..12 {
                    assert!(ask(&admin, &tls, "/healthz").unwrap().ends_with("alive\n"));
                }
            });
        }
    });
}
