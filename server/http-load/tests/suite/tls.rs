//! Encrypted connections: both protocols by ALPN, and certificates that are not trusted.

use std::sync::Arc;

use leeward_http_load::{HttpLoadConfig, HttpVersion, Target};
use leeward_tls::{ClientFiles, ClientTls};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::support::{Reply, Server, Speaks, config, open, run, try_run};

/// A server for `localhost` that chooses `alpn`, and its certificate.
fn server(speaks: Speaks, alpn: &[u8]) -> (Server, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_string()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let builder = ServerConfig::builder_with_provider(Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(vec![cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    let server = Server::start_with(speaks, Some(TlsAcceptor::from(Arc::new(config))), |_, _| Reply::status(200));
    (server, cert.pem())
}

/// Configuration for `server` that trusts the certificate.
fn trusting(server: &Server, pem: &str, version: HttpVersion) -> HttpLoadConfig {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, pem.as_bytes()).unwrap();
    let files = ClientFiles { ca: file.path().into(), identity: None, name: Some("localhost".into()) };
    let alpn: &'static [u8] = if version == HttpVersion::Http2 { b"h2" } else { b"http/1.1" };
    let tls = Some(ClientTls::open_with_alpn(files, alpn).unwrap());
    let target = Target::parse(&format!("https://{}/", server.address)).unwrap();
    HttpLoadConfig { targets: vec![target], version, tls, ..config(server.address) }
}

#[test]
fn both_protocols_are_encrypted() {
    let http2 = (Speaks::Http2 { streams: 100 }, &b"h2"[..], HttpVersion::Http2);
    for (speaks, alpn, version) in [(Speaks::Http1, &b"http/1.1"[..], HttpVersion::Http1), http2] {
        let (server, pem) = server(speaks, alpn);
        let report = run(&trusting(&server, &pem, version), &open(500.0, 4));
        assert_eq!(report.totals.completed, report.planned, "{alpn:?}");
    }
}

#[test]
fn failed_handshakes_end_the_run_in_one_line() {
    let check = |config: &HttpLoadConfig| {
        let error = try_run(config, &open(100.0, 2)).unwrap_err().to_string();
        assert!(error.contains("TLS") && !error.contains('\n'), "{error}");
    };
    let (encrypted, pem) = server(Speaks::Http1, b"http/1.1");
    let (_, other) = server(Speaks::Http1, b"http/1.1");
    check(&trusting(&encrypted, &other, HttpVersion::Http1));
    // A server without HTTP/2.
    check(&trusting(&encrypted, &pem, HttpVersion::Http2));
    // A server without TLS.
    let plain = Server::start(Speaks::Http1, |_, _| Reply::status(200));
    check(&trusting(&plain, &pem, HttpVersion::Http1));
}
