//! Clients and servers that don't match: both sides report the reason.

use crate::certificates::{Authority, Validity, dns};
use crate::peers::{builder, echo, refusals, refused, start};
use leeward_rpc::client::{BuildError, Client};
use leeward_rpc::server::Server;
use leeward_rpc::tls::{ClientFiles, ClientTls, ServerFiles, ServerTls};
use leeward_runtime::IdlePolicy;
use leeward_testkit::greetings::GREETINGS;
use leeward_testkit::wait::until;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Checks the client's error message, and the server's reason.
fn check(server: &Server, tls: Option<ClientTls>, message: &str, reason: &str) {
    let error = refused(server, tls);
    assert!(error.contains(message), "{error}");
    until("it is counted", || refusals(server, reason) > 0);
}

#[test]
fn a_client_without_a_certificate_is_rejected_with_a_hint() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = start(builder(authority.server(Some(&clients))));
    check(&server, Some(authority.client(None)), "wants a certificate (--tls-cert, --tls-key)", "no-certificate");
    server.stop().unwrap();
}

#[test]
fn foreign_and_expired_certificates_are_rejected() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = start(builder(authority.server(Some(&clients))));
    let foreign = authority.issue("foreign", vec![dns("client.example")], Validity::Now);
    check(&server, Some(authority.client(Some(foreign))), "does not trust the authority of", "unknown-issuer");
    let expired = clients.issue("expired", vec![dns("client.example")], Validity::LongAgo);
    check(&server, Some(authority.client(Some(expired))), "certificate has expired", "expired");
    server.stop().unwrap();
}

#[test]
fn a_client_rejects_untrusted_servers() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = start(builder(authority.server(None)));
    check(&server, Some(other.client(None)), "not signed by a trusted authority", "refused-by-peer");
    let files = ClientFiles { ca: authority.ca(), identity: None, name: Some("elsewhere.example".into()) };
    check(&server, Some(ClientTls::open(files).unwrap()), "--tls-name sets the expected name", "refused-by-peer");
    server.stop().unwrap();

    let (cert, key) = authority.issue("old", vec![dns("localhost")], Validity::LongAgo);
    let tls = ServerTls::open(ServerFiles { cert, key, client_ca: None }).unwrap();
    let server = start(builder(tls));
    check(&server, Some(authority.client(None)), "not valid at this time", "refused-by-peer");
    server.stop().unwrap();
}

#[test]
fn a_plaintext_client_gets_an_error_in_its_protocol() {
    let authority = Authority::new();
    let server = start(builder(authority.server(None)));
    check(&server, None, "this port speaks TLS alone", "plaintext");
    assert_eq!(server.statistics().tls.unwrap().done, 0);
    server.stop().unwrap();
}

#[test]
fn a_tls_client_of_a_plaintext_server_gets_a_clear_error() {
    let authority = Authority::new();
    let server = Server::builder().idle(IdlePolicy::Block).start("127.0.0.1:0", echo).unwrap();
    let error = refused(&server, Some(authority.client(None)));
    assert!(error.contains("the server speaks no TLS at this port"), "{error}");
    // The reply's bytes contain the reason, too.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(&[0x16, 3, 1, 0, 200, 1, 0, 0]).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("speaks no TLS"), "{answer:?}");
    server.stop().unwrap();
}

#[test]
fn garbage_ends_a_connection_at_once() {
    let authority = Authority::new();
    let server = start(builder(authority.server(None)));
    let pieces: [(&[u8], &str); 3] = [
        (b"GET / HTTP/1.1\r\n\r\n", "plaintext"),
        // A record that is longer than any, and one that is no handshake.
        (&[0x16, 3, 1, 0xff, 0xff, 1, 2, 3], "garbage"),
        (&[0x16, 3, 1, 0, 4, 99, 0, 0, 0], "garbage"),
    ];
    for (bytes, reason) in pieces {
        let before = refusals(&server, reason);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.is_empty(), "told why: {reason}");
        until("it is counted", || refusals(&server, reason) == before + 1);
    }
    until("no handshake waits", || server.statistics().tls.unwrap().waiting == 0);
    server.stop().unwrap();
}

/// Clients of other protocols get an error that names TLS, and the server executes nothing of
/// theirs.
#[test]
fn clients_of_other_protocols_get_an_error_that_names_tls() {
    let authority = Authority::new();
    let server = start(builder(authority.server(None)));
    for (name, bytes) in GREETINGS.into_iter().filter(|(name, _)| *name != "TLS") {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.is_empty(), "{name}: told nothing");
        assert!(!String::from_utf8_lossy(&answer).contains("STORED"), "{name}");
    }
    assert_eq!((server.counts().received, server.statistics().tls.unwrap().done), (0, 0));
    server.stop().unwrap();
}

#[test]
fn unusable_certificate_files_are_named() {
    let authority = Authority::new();
    let (cert, key) = authority.localhost();
    let (_, other_key) = authority.issue("other", vec![dns("other.example")], Validity::Now);
    let open = |cert: &std::path::Path, key: &std::path::Path| {
        let files = ServerFiles { cert: cert.into(), key: key.into(), client_ca: None };
        ServerTls::open(files).unwrap_err().to_string()
    };
    assert!(open(&cert, &other_key).contains("is not that of the certificate in"), "{}", open(&cert, &other_key));
    assert!(open(&key, &key).contains("contains no certificate in PEM"), "{}", open(&key, &key));
    assert!(open(&cert, &cert).contains("contains no private key in PEM"), "{}", open(&cert, &cert));
}

#[test]
fn datagrams_with_tls_are_refused_before_anything_is_sent() {
    let authority = Authority::new();
    let result = Client::builder().udp("127.0.0.1:1").tls(authority.client(None)).build();
    assert!(matches!(result, Err(BuildError::Unencrypted { .. })), "{result:?}");
}
