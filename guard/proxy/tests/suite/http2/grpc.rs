//! gRPC through the proxy: refusals, failures, deadlines, statuses, streams, health checks. Does
//! not contain the messages of a service.

use super::harness::{Answer, Arrived, Client, Http2Backend, answer, post, read, run};
use crate::harness::{Backend, Hold, connect, metric, queued, rejected, settle, start};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use leeward_observe::Source;
use leeward_testkit::net::vacant_address;
use leeward_testkit::wait::until;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// A message without content.
const MESSAGE: &[u8] = &[0, 0, 0, 0, 0];

fn call(path: &str) -> Request<()> {
    let mut call = post(path);
    call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    call.headers_mut().insert("te", "trailers".parse().unwrap());
    call
}

/// A service: `/unary`, `/fails`, `/exhausted`, and streams that go on until they are told to end.
fn service() -> (Http2Backend, watch::Sender<bool>) {
    let (end, ended) = watch::channel(false);
    let backend = Http2Backend::start(move |mut arrived: Arrived| {
        let mut ended = ended.clone();
        async move {
            let path = arrived.path().to_owned();
            let response = Response::builder().header("content-type", "application/grpc+proto");
            let status = match path.as_str() {
                "/fails" => "13",
                "/exhausted" => "8",
                "/not-found" => "5",
                _ => "0",
            };
            if path == "/at-once" {
                let response = response.header("grpc-status", "14").body(()).unwrap();
                let _ = arrived.respond.send_response(response, true);
                return;
            }
            if path != "/stream" {
                let _ = read(&mut arrived.body).await;
            }
            let Ok(mut stream) = arrived.respond.send_response(response.body(()).unwrap(), false) else { return };
            let _ = stream.send_data(Bytes::from_static(MESSAGE), false);
            if path.starts_with("/stream") || path.ends_with("Watch") {
                let _ = ended.wait_for(|ended| *ended).await;
                let _ = stream.send_data(Bytes::from_static(MESSAGE), false);
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status.parse().unwrap());
            let _ = stream.send_trailers(trailers);
        }
    });
    (backend, end)
}

fn status(answer: &Answer) -> Option<String> {
    answer.trailer("grpc-status").or_else(|| answer.get("grpc-status"))
}

#[test]
fn a_call_has_its_messages_and_its_status() {
    let (backend, _end) = service();
    let proxy = start(&[backend.to()], "");
    run(async {
        let mut client = Client::to(&proxy).await;
        for (path, expected) in [("/unary", "0"), ("/fails", "13"), ("/exhausted", "8"), ("/not-found", "5")] {
            let answer = client.ask(call(path), Some(MESSAGE)).await;
            assert_eq!((answer.status.as_u16(), answer.body.as_slice()), (200, MESSAGE));
            assert_eq!(answer.trailer("grpc-status").as_deref(), Some(expected));
            assert_eq!(answer.get("content-type").as_deref(), Some("application/grpc+proto"));
        }
        let answer = client.ask(call("/at-once"), Some(MESSAGE)).await;
        assert_eq!(answer.get("grpc-status").as_deref(), Some("14"));
    });
    let heads = backend.heads.lock().unwrap();
    assert_eq!(super::harness::get(&heads[0].headers, "te").as_deref(), Some("trailers"));
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.completed, snapshot.failed), (5, 3), "INTERNAL, RESOURCE_EXHAUSTED, UNAVAILABLE");
}

#[test]
fn a_rejected_call_is_told_in_its_own_words() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"\n[queue]\nrequests = 1");
    let mut busy = connect(&proxy);
    busy.send("GET /busy HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    let mut waiting = connect(&proxy);
    waiting.send("GET /waiting HTTP/1.1\r\nhost: h\r\n\r\n");
    queued(&proxy, 1);
    run(async {
        let mut client = Client::to(&proxy).await;
        let answer = client.ask(call("/unary"), Some(MESSAGE)).await;
        assert_eq!((answer.status.as_u16(), answer.body.len(), answer.trailers.is_none()), (200, 0, true));
        assert_eq!(answer.get("grpc-status").as_deref(), Some("8"));
        assert_eq!(answer.get("leeward-reason").as_deref(), Some("concurrency"));
        assert!(answer.get("grpc-retry-pushback-ms").is_some_and(|ms| ms.parse::<u64>().is_ok_and(|ms| ms > 0)));
        let mut late = call("/unary");
        late.headers_mut().insert("grpc-timeout", "0n".parse().unwrap());
        let answer = client.ask(late, Some(MESSAGE)).await;
        assert_eq!(
            (answer.get("grpc-status").as_deref(), answer.get("leeward-reason").as_deref()),
            (Some("4"), Some("deadline"))
        );
    });
    let mut web = connect(&proxy);
    web.send(
        "POST /unary HTTP/1.1\r\nhost: h\r\ncontent-type: application/grpc-web+proto\r\ncontent-length: 5\r\n\r\n\0\0\0\0\0",
    );
    let answer = web.answer();
    assert_eq!(answer.head.get("content-type").as_deref(), Some("application/grpc-web+proto"));
    assert!(answer.body[0] == 0x80 && answer.text().contains("grpc-status:8\r\n"), "{}", answer.text());
    hold.open();
    busy.answer();
    waiting.answer();
    assert_eq!(rejected(&settle(&proxy)), 3);
}

#[test]
fn failures_of_the_proxy_are_statuses() {
    let silent = Http2Backend::start(async |_arrived: Arrived| std::future::pending().await);
    let resets =
        Http2Backend::start(async |mut arrived: Arrived| arrived.respond.send_reset(h2::Reason::INTERNAL_ERROR));
    let dead = format!("h2c://{}", vacant_address());
    let cases = [
        (dead, "14", "backend-unreachable"),
        (resets.to(), "13", "backend-failed"),
        (silent.to(), "4", "backend-timeout"),
    ];
    for (to, expected, reason) in cases {
        let proxy = start(&[to], "threads = 1\n[timeouts]\nfirst-byte = \"100ms\"");
        run(async {
            let mut client = Client::to(&proxy).await;
            let answer = client.ask(call("/unary"), Some(MESSAGE)).await;
            assert_eq!((answer.status.as_u16(), status(&answer).as_deref()), (200, Some(expected)), "{reason}");
            assert_eq!(answer.get("leeward-reason").as_deref(), Some(reason));
            assert_eq!(answer.get("content-type").as_deref(), Some("application/grpc"));
            assert!(answer.get("grpc-message").is_some() && answer.body.is_empty());
        });
        for (kind, is_text) in [("application/grpc-web", false), ("application/grpc-web-text+proto", true)] {
            let mut web = connect(&proxy);
            web.send(format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-type: {kind}\r\ncontent-length: 0\r\n\r\n"));
            let answer = web.answer();
            assert_eq!((answer.head.status(), answer.head.get("content-type").as_deref()), (200, Some(kind)));
            assert_eq!(answer.head.get("leeward-reason").as_deref(), Some(reason));
            let frame = format!("grpc-status:{expected}\r\n");
            assert!(if is_text { answer.text().starts_with("gAAAA") } else { answer.text().contains(&frame) });
        }
        assert_eq!(settle(&proxy).failed, 3);
    }
}

/// What the backend says by a reset reaches the client in gRPC's words.
#[test]
fn a_reset_has_a_status_of_its_own() {
    let backend = Http2Backend::start(async |mut arrived: Arrived| {
        let reason: u32 = arrived.path()[1..].parse().unwrap();
        arrived.respond.send_reset(reason.into());
    });
    let proxy = start(&[backend.to()], "");
    run(async {
        let mut client = Client::to(&proxy).await;
        for (reason, expected) in
            [(0, "13"), (1, "13"), (2, "13"), (7, "14"), (8, "1"), (11, "8"), (12, "7"), (99, "13")]
        {
            let path = format!("/{reason}");
            let answer = client.ask(call(&path), Some(MESSAGE)).await;
            assert_eq!(status(&answer).as_deref(), Some(expected), "{reason}");
            assert_eq!(answer.get("leeward-reason").as_deref(), Some("backend-failed"));
            assert_eq!(client.get(&path).await.status.as_u16(), 502);
        }
    });
    settle(&proxy);
}

/// A backend that resets a call whose time is up may be ahead of the client's own clock.
#[test]
fn a_call_reset_at_its_deadline_has_exceeded_it() {
    let backend = Http2Backend::start(async |mut arrived: Arrived| {
        sleep(Duration::from_millis(if arrived.path() == "/late" { 60 } else { 0 })).await;
        arrived.respond.send_reset(h2::Reason::CANCEL);
    });
    let proxy = start(&[backend.to()], "");
    run(async {
        let mut client = Client::to(&proxy).await;
        for (path, timeout, expected) in [("/late", "50m", "4"), ("/early", "50S", "1"), ("/early", "99999999H", "1")] {
            let mut call = call(path);
            call.headers_mut().insert("grpc-timeout", timeout.parse().unwrap());
            let answer = client.ask(call, Some(MESSAGE)).await;
            assert_eq!(status(&answer).as_deref(), Some(expected), "{path} within {timeout}");
        }
    });
}

/// A call whose answer goes on for longer than the objective is a stream: it holds no place.
#[test]
fn a_stream_gives_its_place_back() {
    let (backend, end) = service();
    let proxy = start(&[backend.to()], "limit = \"1\"\nslo = \"300ms\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        for path in ["/stream", "/stream-after-request"] {
            let is_end = path != "/stream";
            let (response, mut stream) = client.send(call(path), false).await;
            stream.send_data(Bytes::from_static(MESSAGE), is_end).unwrap();
            let mut body = response.await.unwrap().into_body();
            assert_eq!(body.data().await.unwrap().unwrap(), MESSAGE, "messages are not held back");
            while metric(proxy.admission(), "leeward_proxy_backend_in_flight") > 0.0 {
                sleep(Duration::from_millis(5)).await;
            }
            let answer = client.ask(call("/unary"), Some(MESSAGE)).await;
            assert_eq!(status(&answer).as_deref(), Some("0"));
            end.send(true).unwrap();
            if !is_end {
                stream.send_data(Bytes::new(), true).unwrap();
            }
            assert_eq!(body.data().await.unwrap().unwrap(), MESSAGE, "the stream goes on");
            assert!(body.data().await.is_none() && body.trailers().await.unwrap().is_some());
            end.send(false).unwrap();
        }
    });
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.completed, snapshot.abandoned), (4, 0));
}

/// The objective is no part of it: a stream whose first message is there holds no place, and is in
/// time.
#[test]
fn a_stream_gives_its_place_back_with_its_first_message() {
    let (next, wanted) = watch::channel(0);
    let backend = Http2Backend::start(move |mut arrived: Arrived| {
        let mut wanted = wanted.clone();
        async move {
            let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let Ok(mut stream) = arrived.respond.send_response(response, false) else { return };
            let message: [&[u8]; 3] = [&[0, 0, 0], &[0, 9, b'a'], b"bcdefghi"];
            for (step, piece) in message.into_iter().enumerate() {
                let _ = wanted.wait_for(|wanted| *wanted >= step).await;
                let _ = stream.send_data(Bytes::from_static(piece), false);
            }
            let _ = wanted.wait_for(|wanted| *wanted > 3).await;
            let _ = stream.send_trailers(HeaderMap::new());
        }
    });
    for mode in ["enforce", "shadow"] {
        let proxy = start(&[backend.to()], &format!("slo = \"100s\"\nmode = \"{mode}\""));
        let in_flight = || metric(proxy.admission(), "leeward_proxy_backend_in_flight");
        run(async {
            let mut client = Client::to(&proxy).await;
            let (response, _) = client.send(call("/stream"), true).await;
            let mut body = response.await.unwrap().into_body();
            for step in 0..3 {
                next.send(step).unwrap();
                body.data().await.unwrap().unwrap();
                if step < 2 {
                    sleep(Duration::from_millis(20)).await; // a release that comes too soon comes by now
                    assert_eq!(in_flight(), 1.0, "a part of a message, {mode}");
                }
            }
            while in_flight() > 0.0 {
                sleep(Duration::from_millis(5)).await;
            }
            next.send(4).unwrap();
            assert!(body.data().await.is_none());
        });
        next.send(0).unwrap();
        let snapshot = settle(&proxy);
        assert_eq!((snapshot.completed, snapshot.in_time, snapshot.abandoned), (1, 1, 0));
    }
}

/// The same for gRPC-Web, whose end is a frame of the content.
#[test]
fn a_stream_of_grpc_web_gives_its_place_back_with_its_first_message() {
    for (kind, first) in
        [("application/grpc-web+proto", "\0\0\0\0\u{2}ab"), ("application/grpc-web-text", "AAAAAAJhYg==")]
    {
        let hold = Hold::default();
        let held = hold.clone();
        let backend = Backend::start(move |exchange| {
            let length = first.len() + 2;
            exchange.raw(format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{first}"));
            held.pass("/events");
            exchange.raw("xy");
        });
        let proxy = start(&[backend.address], "slo = \"100s\"");
        let mut client = connect(&proxy);
        client.send(format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-type: {kind}\r\ncontent-length: 0\r\n\r\n"));
        hold.arrived(1);
        until("the place is free", || metric(proxy.admission(), "leeward_proxy_backend_in_flight") == 0.0);
        hold.open();
        assert_eq!(client.answer().body.len(), first.len() + 2);
        assert_eq!(settle(&proxy).completed, 1);
    }
}

/// The rest of a stream of [`service`] whose first message has come.
async fn open_stream(client: &mut Client) -> h2::RecvStream {
    let (response, _) = client.send(call("/stream"), true).await;
    let mut body = response.await.unwrap().into_body();
    body.data().await.unwrap().unwrap();
    body
}

#[test]
fn a_place_can_end_with_the_first_message() {
    let (backend, end) = service();
    let proxy = start(&[backend.to()], "limit = \"1\"\nuntil = \"first-byte\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut body = open_stream(&mut client).await;
        let answer = client.ask(call("/unary"), Some(MESSAGE)).await;
        assert_eq!(status(&answer).as_deref(), Some("0"));
        end.send(true).unwrap();
        while body.data().await.is_some() {}
    });
    assert_eq!(settle(&proxy).completed, 2);
}

#[test]
fn a_rule_can_say_when_a_place_ends() {
    let (backend, end) = service();
    let rule = "limit = \"1\"\n[[rule]]\npath = \"/stream*\"\nuntil = \"first-byte\"";
    let proxy = start(&[backend.to()], rule);
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut body = open_stream(&mut client).await;
        let answer = client.ask(call("/unary"), Some(MESSAGE)).await;
        assert_eq!(status(&answer).as_deref(), Some("0"));
        end.send(true).unwrap();
        while body.data().await.is_some() {}
    });
    assert_eq!(settle(&proxy).completed, 2);
}

#[test]
fn a_rule_can_keep_a_streams_place_to_its_end() {
    let (backend, end) = service();
    let rule = "slo = \"100s\"\n[[rule]]\npath = \"/stream*\"\nuntil = \"last-byte\"";
    let proxy = start(&[backend.to()], rule);
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut body = open_stream(&mut client).await;
        sleep(Duration::from_millis(20)).await; // a release that comes too soon comes by now
        assert_eq!(metric(proxy.admission(), "leeward_proxy_backend_in_flight"), 1.0);
        end.send(true).unwrap();
        while body.data().await.is_some() {}
    });
    assert_eq!(settle(&proxy).completed, 1);
}

#[test]
fn deadlines_of_trusted_peers_count() {
    let (backend, _end) = service();
    for (trust, expected) in [("trust = [\"127.0.0.0/8\"]", "4"), ("trust = []", "0")] {
        let proxy = start(&[backend.to()], trust);
        run(async {
            let mut late = call("/unary");
            late.headers_mut().insert("grpc-timeout", "0n".parse().unwrap());
            let answer = Client::to(&proxy).await.ask(late, Some(MESSAGE)).await;
            assert_eq!(status(&answer).as_deref(), Some(expected), "{trust}");
        });
    }
}

#[test]
fn health_checks_of_grpc_need_no_place() {
    let (backend, end) = service();
    let proxy = start(&[backend.to()], "limit = \"1\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let (busy, mut stream) = client.send(call("/stream-after-request"), false).await;
        while proxy.admission().snapshot().in_flight == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let check = client.ask(call("/grpc.health.v1.Health/Check"), Some(MESSAGE)).await;
        assert_eq!(status(&check).as_deref(), Some("0"));
        let (watch, _) = client.send(call("/grpc.health.v1.Health/Watch"), true).await;
        assert_eq!(watch.await.unwrap().into_body().data().await.unwrap().unwrap(), MESSAGE);
        end.send(true).unwrap();
        stream.send_data(Bytes::from_static(MESSAGE), true).unwrap();
        assert_eq!(status(&answer(busy).await.unwrap()).as_deref(), Some("0"));
    });
    assert_eq!(settle(&proxy).arrived, 1);
}
