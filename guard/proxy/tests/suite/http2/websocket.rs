//! WebSockets from and to HTTP/2 (RFC 8441). Does not contain those of HTTP/1 on both sides.

use super::harness::{Arrived, Client, Http2Backend, get, request, run};
use crate::harness::{Backend, connect, settle, start};
use bytes::Bytes;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{Method, Request, Response};
use leeward_observe::Source;
use leeward_testkit::wait::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn asks(protocol: &'static str, path: &str) -> Request<()> {
    let mut request = Request::builder().method(Method::CONNECT).uri(format!("http://h{path}"));
    request = request.header("sec-websocket-version", "13").header("sec-websocket-protocol", "chat");
    let mut request = request.body(()).unwrap();
    request.extensions_mut().insert(Protocol::from_static(protocol));
    request
}

/// A backend of HTTP/1 that says what it hears; its path may refuse.
fn old() -> Backend {
    Backend::start(|exchange| match exchange.head.get("upgrade") {
        Some(protocol) if protocol == "websocket" && !exchange.head.target().starts_with("/no") => {
            exchange.raw(
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                 sec-websocket-accept: x\r\nsec-websocket-protocol: chat\r\n\r\nhello",
            );
            while let Some(byte) = exchange.wire.exactly(1) {
                exchange.raw(&byte);
                if byte == b"!" {
                    break;
                }
            }
            exchange.close();
        }
        _ => exchange.ok("no upgrade"),
    })
}

/// The same in HTTP/2.
fn new(ended: &Arc<AtomicUsize>) -> Http2Backend {
    let ended = Arc::clone(ended);
    let mut builder = h2::server::Builder::new();
    builder.enable_connect_protocol();
    Http2Backend::with(builder, move |mut arrived: Arrived| {
        let ended = Arc::clone(&ended);
        async move {
            let is_socket = arrived.head.extensions.get::<Protocol>().is_some_and(|of| of.as_str() == "websocket");
            if !is_socket {
                return arrived.answer(200, "no upgrade").await;
            }
            let response = Response::builder().header("sec-websocket-protocol", "chat").body(()).unwrap();
            let mut stream = arrived.respond.send_response(response, false).unwrap();
            stream.send_data(Bytes::from_static(b"hello"), false).unwrap();
            while let Some(Ok(piece)) = arrived.body.data().await {
                let _ = arrived.body.flow_control().release_capacity(piece.len());
                if stream.send_data(piece.clone(), piece.ends_with(b"!")).is_err() {
                    break;
                }
            }
            ended.fetch_add(1, Ordering::SeqCst);
        }
    })
}

/// Reads so many bytes of a stream.
pub(super) async fn exactly(body: &mut RecvStream, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        let piece = body.data().await.expect("more").expect("no error");
        let _ = body.flow_control().release_capacity(piece.len());
        bytes.extend_from_slice(&piece);
    }
    bytes
}

async fn open(client: &mut Client) -> (SendStream<Bytes>, RecvStream) {
    open_at(client, "/chat?a=b").await
}

pub(super) async fn open_at(client: &mut Client, path: &str) -> (SendStream<Bytes>, RecvStream) {
    while !client.sender.is_extended_connect_protocol_enabled() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (response, stream) = client.send(asks("websocket", path), false).await;
    let response = response.await.expect("an answer");
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(get(response.headers(), "sec-websocket-protocol").as_deref(), Some("chat"));
    for name in ["sec-websocket-accept", "upgrade", "connection"] {
        assert_eq!(get(response.headers(), name), None, "{name}");
    }
    (stream, response.into_body())
}

#[test]
fn an_extended_connect_is_an_upgrade_to_either_version() {
    let ended = Arc::new(AtomicUsize::new(0));
    let (old, new) = (old(), new(&ended));
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[to], "");
        run(async {
            let mut client = Client::to(&proxy).await;
            let (mut one, mut of_one) = open(&mut client).await;
            let (mut two, mut of_two) = open(&mut client).await;
            assert_eq!(exactly(&mut of_one, 5).await, b"hello");
            assert_eq!(exactly(&mut of_two, 5).await, b"hello");
            assert_eq!(proxy.admission().snapshot().in_flight, 0, "a tunnel holds no place");
            for text in ["first", "second"] {
                one.send_data(Bytes::from_static(text.as_bytes()), false).unwrap();
                assert_eq!(exactly(&mut of_one, text.len()).await, text.as_bytes());
            }
            // Requests go on beside it.
            assert_eq!(client.get("/no").await.text(), "no upgrade");
            one.send_data(Bytes::from_static(b"!"), false).unwrap();
            assert_eq!(exactly(&mut of_one, 1).await, b"!");
            let rest = of_one.data().await;
            assert!(
                rest.is_none_or(|rest| rest.is_ok_and(|rest| rest.is_empty())),
                "the backend's end is the stream's"
            );
            two.send_reset(h2::Reason::CANCEL);
        });
        settle(&proxy);
    }
    until("both ends are seen", || ended.load(Ordering::SeqCst) == 2 && old.requests().len() == 3);
    let head = old.requests().into_iter().find(|request| request.head.target() == "/chat?a=b").unwrap().head;
    assert_eq!((head.line.as_str(), head.get("host").as_deref()), ("GET /chat?a=b HTTP/1.1", Some("h")));
    assert_eq!(head.get("sec-websocket-key").map(|key| key.len()), Some(24));
    assert_eq!(head.get("sec-websocket-version").as_deref(), Some("13"));
}

#[test]
fn an_upgrade_is_an_extended_connect() {
    let ended = Arc::new(AtomicUsize::new(0));
    let backend = new(&ended);
    let proxy = start(&[backend.to()], "");
    let mut client = connect(&proxy);
    client.send(
        "GET /chat HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\nearly",
    );
    let head = client.answer().head;
    assert_eq!((head.status(), head.get("upgrade").as_deref()), (101, Some("websocket")));
    assert_eq!(head.get("sec-websocket-accept").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(client.exactly(10), Some(b"helloearly".to_vec()));
    client.send("more");
    assert_eq!(client.exactly(4), Some(b"more".to_vec()));
    drop(client);
    until("the backend sees the end", || ended.load(Ordering::SeqCst) == 1);
    let heads = backend.heads.lock().unwrap();
    assert_eq!((heads[0].method.as_str(), get(&heads[0].headers, "sec-websocket-key")), ("CONNECT", None));
    settle(&proxy);
}

#[test]
fn a_refused_socket_is_no_tunnel() {
    let old = Backend::start(|exchange| {
        exchange.message();
        match exchange.head.target() {
            "/chat?a=b" => exchange.raw("HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno"),
            _ => exchange.ok("well"),
        }
    });
    // A 200 that is no change of protocol would look like one.
    let ignores = Backend::echo();
    for (to, expected) in [(old.address, 403), (ignores.address, 502)] {
        let proxy = start(&[to], "");
        run(async {
            let mut client = Client::to(&proxy).await;
            while !client.sender.is_extended_connect_protocol_enabled() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let (response, _stream) = client.send(asks("websocket", "/chat?a=b"), false).await;
            assert_eq!(super::harness::answer(response).await.unwrap().status.as_u16(), expected);
            let (response, _stream) = client.send(asks("connect-udp", "/chat?a=b"), false).await;
            assert_eq!(super::harness::answer(response).await.unwrap().status.as_u16(), 501);
            let plain = Request::builder().method(Method::CONNECT).uri("h:1").body(()).unwrap();
            assert_eq!(client.ask(plain, None).await.status.as_u16(), 501);
            assert_eq!(client.ask(request("/next"), None).await.status.as_u16(), 200);
        });
        settle(&proxy);
    }
}

#[test]
fn a_backend_without_sockets_over_http_2_is_told_apart() {
    let backend = Http2Backend::echo();
    let proxy = start(&[backend.to()], "");
    let mut client = connect(&proxy);
    client
        .send("GET / HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: x\r\n\r\n");
    let head = client.answer().head;
    assert_eq!((head.status(), head.get("leeward-reason").as_deref()), (501, Some("not-served")));
    settle(&proxy);
    // Other upgrades are optional.
    let mut client = connect(&proxy);
    client.send("GET /other HTTP/1.1\r\nhost: h\r\nupgrade: other\r\nconnection: upgrade\r\n\r\n");
    assert_eq!(client.answer().text(), "/other ");
}

/// Open sockets end with the proxy, and after its pause.
#[test]
fn a_stop_ends_sockets() {
    let old = old();
    let proxy = start(&[old.address], "[timeouts]\nstop = \"200ms\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let (_stream, mut body) = open(&mut client).await;
        assert_eq!(exactly(&mut body, 5).await, b"hello");
        let stop = std::thread::spawn(move || proxy.stop());
        while let Some(Ok(_)) = body.data().await {}
        stop.join().unwrap();
    });
}
