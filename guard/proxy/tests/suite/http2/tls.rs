//! HTTP/2 that both sides choose in the handshake of TLS. Does not contain certificates.

use super::harness::{Client, Http2Backend, get, post, run};
use crate::certificates::Certificates;
use crate::harness::{Backend, connect, settle, start, start_with};
use std::sync::atomic::Ordering;

#[test]
fn clients_choose_http_2_in_the_handshake() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    for protocols in [&["h2"][..], &["http/1.1", "h2"][..]] {
        let (wire, greeting) = certificates.client().with_protocols(protocols).connect(&proxy).expect("a handshake");
        assert_eq!(greeting.protocol, Some(b"h2".to_vec()));
        run(async {
            let mut client = Client::over(wire.stream.try_clone().unwrap()).await;
            assert_eq!(client.get("/a").await.text(), "/a");
            assert_eq!(client.ask(post("/b"), Some(b"body")).await.text(), "/b");
        });
    }
    // Without a choice the preface tells.
    let (wire, greeting) = certificates.client().connect(&proxy).expect("a handshake");
    assert_eq!(greeting.protocol, None);
    assert_eq!(run(async { Client::over(wire.stream.try_clone().unwrap()).await.get("/c").await.text() }), "/c");
    assert_eq!(backend.request(1).head.get("x-forwarded-proto"), Some("https".into()));
    assert_eq!(settle(&proxy).completed, 5);
}

/// Who has chosen HTTP/1 speaks it.
#[test]
fn the_preface_does_not_outrank_the_handshake() {
    let (certificates, backend) = (Certificates::new(), Backend::echo());
    let proxy = start(&[backend.address], &certificates.section("server", ""));
    let (mut wire, _) = certificates.client().with_protocols(&["http/1.1"]).connect(&proxy).expect("a handshake");
    wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(!wire.rest().starts_with(&[0, 0]), "no frame of settings");
    let (mut wire, _) = certificates.client().with_protocols(&["h2"]).connect(&proxy).expect("a handshake");
    wire.send(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    assert!(!wire.rest().starts_with(b"HTTP/1.1 200"));
    assert!(backend.requests().is_empty());
}

#[test]
fn backends_choose_http_2_in_the_handshake() {
    let (certificates, backend) = (Certificates::new(), Http2Backend::echo());
    let port = certificates.in_front_of_protocol(b"h2", backend.address, "server", false);
    let ca = certificates.value("ca.pem");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nthreads = 1\nhealth = \"/check\"\nto = [\"https://localhost:{}\"]\n[backend-tls]\nca = {ca}\n",
        port.port()
    );
    let proxy = start_with(&text).expect("a proxy");
    let mut client = connect(&proxy);
    for path in ["/a", "/b"] {
        assert_eq!(client.get(path).text(), format!("{path} "));
    }
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut answers = Vec::new();
        for _ in 0..50 {
            answers.push(client.send(super::harness::request("/many"), true).await.0);
        }
        for response in answers {
            assert_eq!(super::harness::answer(response).await.unwrap().status.as_u16(), 200);
        }
    });
    assert_eq!(settle(&proxy).completed, 52);
    let heads = backend.heads.lock().unwrap();
    let head = heads.iter().find(|head| head.uri.path() == "/a").unwrap();
    assert_eq!((head.uri.scheme_str(), get(&head.headers, "via").as_deref()), (Some("https"), Some("1.1 leeward")));
    // One for requests, and one for each check of health meanwhile.
    let checks = heads.iter().filter(|head| head.uri.path() == "/check").count();
    assert!(backend.connections.load(Ordering::SeqCst) <= 2 + checks);
}
