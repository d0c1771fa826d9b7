//! The admin port behind TLS: who gets in, what the others hear, and that slow handshakes keep nobody waiting.

use leeward_admin::{ALPN, Admin, Sources};
use leeward_testkit::greetings::GREETINGS;
use leeward_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls, Session};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Certificates of an authority, a server and a client, in files.
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

/// All that comes for a path; an error where there is no session.
fn ask(admin: &Admin, tls: &ClientTls, path: &str) -> std::io::Result<String> {
    let mut stream = connect(admin);
    let name = tls.name_for("localhost:1").unwrap();
    let mut session: Session = tls.connect(&name).unwrap();
    let question = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let (mut asked, mut heard, mut piece) = (0, Vec::new(), [0; 4096]);
    loop {
        if !session.is_handshaking() && asked < question.len() {
            asked += session.seal(&question.as_bytes()[asked..]);
        }
        session.send(&mut stream)?;
        if session.has_ended() {
            return Ok(String::from_utf8(heard).unwrap());
        }
        if session.is_handshaking() || asked == question.len() {
            let read = session.receive(&mut stream)?;
            while session.holds_plaintext() {
                let count = session.take(&mut piece);
                heard.extend_from_slice(&piece[..count]);
            }
            if read == 0 && !session.has_ended() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

#[test]
fn operators_get_in_by_tls_and_it_is_counted() {
    let files = CertFiles::new();
    let admin = files.port(false);
    let tls = files.client(false);
    let heard = ask(&admin, &tls, "/healthz").unwrap();
    assert!(heard.starts_with("HTTP/1.1 200 OK\r\n") && heard.ends_with("\r\n\r\nalive\n"), "{heard}");
    // The page is longer than a record, and comes as a whole.
    let page = ask(&admin, &tls, "/").unwrap();
    assert!(page.len() > 20_000 && page.trim_end().ends_with("</html>"), "{} bytes", page.len());
    let metrics = ask(&admin, &tls, "/metrics").unwrap();
    let full = "leeward_tls_handshakes_total{port=\"admin\",kind=\"full\"} 1\n";
    let resumed = "leeward_tls_handshakes_total{port=\"admin\",kind=\"resumed\"} 2\n";
    assert!(metrics.contains(full) && metrics.contains(resumed), "{metrics}");
}

#[test]
fn where_certificates_are_wanted_nobody_else_gets_in() {
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
fn a_client_without_tls_is_told_in_its_own_words() {
    let files = CertFiles::new();
    let admin = files.port(false);
    let mut stream = connect(&admin);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 400 ") && heard.contains("this port speaks TLS alone: https://"), "{heard}");
    let metrics = ask(&admin, &files.client(false), "/metrics").unwrap();
    assert!(metrics.contains("leeward_tls_refusals_total{port=\"admin\",reason=\"plaintext\"} 1\n"), "{metrics}");
}

#[test]
fn clients_of_other_protocols_are_told_to_speak_tls() {
    let files = CertFiles::new();
    let admin = files.port(false);
    for (name, bytes) in GREETINGS.into_iter().filter(|(name, _)| *name != "TLS") {
        let mut stream = connect(&admin);
        stream.write_all(bytes).unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        assert!(heard.starts_with(b"HTTP/1.1 400 "), "{name}: {}", String::from_utf8_lossy(&heard));
    }
    assert!(ask(&admin, &files.client(false), "/healthz").unwrap().ends_with("alive\n"));
}

#[test]
fn handshakes_that_do_not_go_on_keep_nobody_waiting() {
    let files = CertFiles::new();
    let admin = files.port(false);
    let tls = files.client(false);
    // Far more than there are places: silent ones, and ones that have begun a record and stop.
    let mut slow = Vec::new();
    for place in 0..100 {
        let mut stream = connect(&admin);
        if place % 2 == 0 {
            stream.write_all(&[0x16, 3, 1, 2, 0]).unwrap();
        }
        slow.push(stream);
        if place % 10 == 9 {
            let heard = ask(&admin, &tls, "/healthz").unwrap();
            assert!(heard.ends_with("alive\n"), "{heard}");
        }
    }
}

#[test]
fn a_crowd_of_handshakes_gets_in_by_turns() {
    let files = CertFiles::new();
    let admin = files.port(true);
    let tls = files.client(true);
    // More than may begin at once, and not more than there are places: each has its turn.
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
