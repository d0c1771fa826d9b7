//! Backends of HTTP/2 that refuse, go away, are slow, or break off. Does not contain clients.

use super::harness::{
    Arrived, Client, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, Http2Backend, RST_STREAM, SETTINGS, answer,
    fields, post, read, request, run, write,
};
use crate::harness::{connect, metric, settle, start};
use bytes::Bytes;
use h2::Reason;
use http::Response;
use leeward_observe::Source;
use leeward_testkit::net::vacant_address;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// A request that is refused before the backend has begun with it is sent again, whatever it is,
/// with its body.
#[test]
fn a_refused_stream_is_sent_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let backend = Http2Backend::start(move |mut arrived: Arrived| {
        let number = seen.fetch_add(1, Ordering::SeqCst);
        async move {
            if number.is_multiple_of(2) {
                sleep(Duration::from_millis(5)).await;
                arrived.respond.send_reset(Reason::REFUSED_STREAM);
            } else {
                arrived.echo().await;
            }
        }
    });
    let proxy = start(&[backend.to()], "threads = 1");
    let mut client = connect(&proxy);
    assert_eq!(client.get("/get").text(), "/get ");
    client.send("POST /post HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody");
    assert_eq!(client.answer().text(), "/post body");
    client.send("POST /chunks HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
    assert_eq!(client.answer().text(), "/chunks ab");
    run(async {
        let mut client = Client::to(&proxy).await;
        // The rest of the body comes after the refusal.
        let (response, mut stream) = client.send(post("/pieces"), false).await;
        stream.send_data(Bytes::from_static(b"one "), false).unwrap();
        sleep(Duration::from_millis(50)).await;
        stream.send_data(Bytes::from_static(b"two"), true).unwrap();
        assert_eq!(answer(response).await.unwrap().text(), "/pieces one two");
    });
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1, "the connection is well");
    assert_eq!((count.load(Ordering::SeqCst), settle(&proxy).completed), (8, 4));
}

#[test]
fn a_backend_that_refuses_always_is_not_asked_for_ever() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let backend = Http2Backend::start(move |mut arrived: Arrived| {
        seen.fetch_add(1, Ordering::SeqCst);
        async move { arrived.respond.send_reset(Reason::REFUSED_STREAM) }
    });
    let proxy = start(&[backend.to()], "");
    let answer = connect(&proxy).get("/");
    assert_eq!((answer.head.status(), answer.head.get("leeward-reason")), (502, Some("backend-failed".into())));
    assert_eq!(count.load(Ordering::SeqCst), 3);
    settle(&proxy);
}

/// The last attempt is another backend's, if there is one.
#[test]
fn what_a_backend_refuses_another_one_may_take() {
    let refuses = Http2Backend::start(async |mut arrived: Arrived| arrived.respond.send_reset(Reason::REFUSED_STREAM));
    let other = Http2Backend::echo();
    let proxy = start(&[refuses.to(), other.to()], "threads = 1");
    let mut client = connect(&proxy);
    for _ in 0..6 {
        client.send("POST /post HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody");
        assert_eq!(client.answer().text(), "/post body");
    }
    assert!(!refuses.heads.lock().unwrap().is_empty());
    assert_eq!(settle(&proxy).completed, 6);
}

/// A request that the backend may have begun with is not repeated by a reset.
#[test]
fn other_resets_are_failures() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let backend = Http2Backend::start(move |mut arrived: Arrived| {
        seen.fetch_add(1, Ordering::SeqCst);
        async move { arrived.respond.send_reset(Reason::INTERNAL_ERROR) }
    });
    let proxy = start(&[backend.to()], "");
    let mut client = connect(&proxy);
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody");
    assert_eq!(client.answer().head.status(), 502);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    // Nor is an idempotent one on this connection, which is well: the stream has failed.
    for sent in 2..5 {
        assert_eq!(client.get("/").head.status(), 502);
        assert_eq!(count.load(Ordering::SeqCst), sent);
    }
    assert_eq!(settle(&proxy).failed, 4);
}

/// A backend that closes its connections at the second request of each fails at this request, and
/// not by chance: it is sent twice.
#[test]
fn a_backend_that_closes_at_a_request_is_not_asked_for_ever() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let backend = Http2Backend::raw(move |stream: TcpStream, number| {
        let seen = Arc::clone(&seen);
        async move {
            let mut server = h2::server::Builder::new().handshake::<_, Bytes>(stream).await.unwrap();
            while let Some(Ok((request, respond))) = server.accept().await {
                if request.uri().path() == "/fatal" {
                    seen.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                let (head, body) = request.into_parts();
                tokio::task::spawn_local(Arrived { head, body, respond, connection: number }.answer(200, "well"));
            }
        }
    });
    let proxy = start(&[backend.to()], "threads = 1");
    let mut client = connect(&proxy);
    for turn in 1..4 {
        assert_eq!(client.get("/").text(), "well");
        assert_eq!(client.get("/fatal").head.status(), 502);
        assert_eq!(count.load(Ordering::SeqCst), 2 * turn);
    }
    assert_eq!(settle(&proxy).failed, 3);
}

/// GOAWAY with a last stream: what came later goes to a new connection, what came before is
/// answered.
#[test]
fn requests_after_goaway_go_to_another_connection() {
    let backend = Http2Backend::raw(async |stream: TcpStream, number| {
        let mut server = h2::server::Builder::new().handshake::<_, Bytes>(stream).await.unwrap();
        let mut served = 0;
        while let Some(Ok((request, mut respond))) = server.accept().await {
            served += 1;
            let path = request.uri().path().to_owned();
            tokio::task::spawn_local(async move {
                let mut body = request.into_body();
                let _ = super::harness::read(&mut body).await;
                sleep(Duration::from_millis(20)).await;
                let mut stream = respond.send_response(Response::new(()), false).unwrap();
                stream.send_data(Bytes::from(format!("{number} {path}")), true).unwrap();
            });
            if served == 3 {
                // What was not accepted yet is not begun with.
                server.graceful_shutdown();
            }
        }
    });
    let proxy = start(&[backend.to()], "threads = 1");
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut answers = Vec::new();
        for number in 0..60 {
            let asks = if number % 2 == 0 { post("/p") } else { request("/g") };
            let (response, mut stream) = client.send(asks, number % 2 == 1).await;
            if number % 2 == 0 {
                stream.send_data(Bytes::from_static(b"body"), true).unwrap();
            }
            answers.push(tokio::spawn(answer(response)));
            if number % 5 == 0 {
                sleep(Duration::from_millis(3)).await;
            }
        }
        for one in answers {
            let answer = one.await.unwrap().unwrap();
            assert_eq!(answer.status.as_u16(), 200, "{:?}", answer.headers);
        }
    });
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.completed, snapshot.failed), (60, 0));
    assert!(backend.connections.load(Ordering::SeqCst) > 1);
}

/// A backend that sends GOAWAY for a stream of which it has read the head, and closes.
#[test]
fn goaway_names_the_streams_that_may_be_sent_again() {
    let backend = Http2Backend::raw(async |mut stream: TcpStream, number| {
        if number == 0 {
            // It reads until there is a HEADERS frame of stream 1, and has begun with none.
            let mut bytes = vec![0; 1 << 16];
            let mut read = 0;
            while !bytes[..read].windows(6).any(|six| six == [1, 4, 0, 0, 0, 1]) {
                read += stream.read(&mut bytes[read..]).await.unwrap();
            }
            let settings = Frames::bytes(SETTINGS, 0, 0, b"");
            let goaway = Frames::bytes(7, 0, 0, &[0; 8]);
            stream.write_all(&[settings, goaway].concat()).await.unwrap();
            sleep(Duration::from_millis(20)).await;
            return;
        }
        let mut server = h2::server::Builder::new().handshake::<_, Bytes>(stream).await.unwrap();
        while let Some(Ok((request, respond))) = server.accept().await {
            let (head, body) = request.into_parts();
            tokio::task::spawn_local(Arrived { head, body, respond, connection: number }.echo());
        }
    });
    let proxy = start(&[backend.to()], "threads = 1");
    let mut client = connect(&proxy);
    client.send("POST /post HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody");
    assert_eq!(client.answer().text(), "/post body");
    assert_eq!((settle(&proxy).completed, backend.connections.load(Ordering::SeqCst)), (1, 2));
}

#[test]
fn a_second_connection_opens_when_all_streams_are_used() {
    let (go, went) = tokio::sync::watch::channel(false);
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(10);
    let backend = Http2Backend::with(builder, move |arrived: Arrived| {
        let mut went = went.clone();
        async move {
            let _ = went.wait_for(|went| *went).await;
            let text = arrived.connection.to_string();
            arrived.answer(200, &text).await;
        }
    });
    let proxy = start(&[backend.to()], "threads = 1");
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut answers = Vec::new();
        let (first, _) = client.send(request("/first"), true).await;
        answers.push(first);
        // The backend's settings have come with its first answer, or with its silence.
        sleep(Duration::from_millis(300)).await;
        for _ in 0..34 {
            answers.push(client.send(request("/"), true).await.0);
        }
        while backend.heads.lock().unwrap().len() < 35 {
            sleep(Duration::from_millis(1)).await;
        }
        go.send(true).unwrap();
        let mut by_connection = [0; 8];
        for response in answers {
            let at: usize = answer(response).await.unwrap().text().parse().unwrap();
            by_connection[at] += 1;
        }
        assert_eq!(by_connection[..4], [10, 10, 10, 5]);
    });
    assert_eq!(settle(&proxy).completed, 35);
}

/// "One at a time" is a number like others: nothing waits until it is sure.
#[test]
fn a_backend_may_allow_one_stream_at_a_time() {
    const CONNECTIONS: usize = 80;
    let (go, went) = tokio::sync::watch::channel(false);
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(1);
    let backend = Http2Backend::with(builder, move |arrived: Arrived| {
        let mut went = went.clone();
        async move {
            let _ = went.wait_for(|went| *went).await;
            arrived.answer(200, "well").await;
        }
    });
    let proxy = start(&[backend.to()], "threads = 1\nlimit = \"100\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut answers = Vec::new();
        for _ in 0..CONNECTIONS {
            answers.push(client.send(request("/"), true).await.0);
        }
        // They open one after the other: a second for each would take longer than a test may.
        while backend.heads.lock().unwrap().len() < CONNECTIONS {
            sleep(Duration::from_millis(1)).await;
        }
        go.send(true).unwrap();
        for response in answers {
            assert_eq!(answer(response).await.unwrap().text(), "well");
        }
    });
    assert_eq!(backend.connections.load(Ordering::SeqCst), CONNECTIONS);
}

/// A backend that goes away has begun with nothing, and takes no new connections: that is one
/// failure, and the other backend is asked.
#[test]
fn a_request_that_was_not_begun_goes_to_another_backend() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let leaving = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        let _ = stream.write_all(&Frames::bytes(SETTINGS, 0, 0, b""));
        let (mut bytes, mut read) = (vec![0; 1 << 16], 0);
        while !bytes[..read].windows(6).any(|six| six == [1, 4, 0, 0, 0, 1]) {
            read += stream.read(&mut bytes[read..]).unwrap();
        }
        let _ = stream.write_all(&Frames::bytes(7, 0, 0, &[0; 8]));
        while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    let other = Http2Backend::echo();
    let proxy = start(&[format!("h2c://{leaving}"), other.to()], "threads = 1");
    let mut client = connect(&proxy);
    for _ in 0..4 {
        client.send("POST /post HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody");
        let answer = client.answer();
        assert_eq!(answer.text(), "/post body", "{answer:?}");
    }
    assert_eq!(settle(&proxy).completed, 4);
}

/// A body that its handler does not read takes the window of its connection, before the answer and
/// after its head.
#[test]
fn a_body_that_is_not_read_holds_no_others_up() {
    for path in ["/unread", "/begins"] {
        unread_body(path);
    }
}

fn unread_body(path: &str) {
    let backend = Http2Backend::start(|mut arrived: Arrived| async move {
        if arrived.path() == "/unread" {
            let _ = poll_fn(|context| arrived.respond.poll_reset(context)).await;
        } else if arrived.path() == "/begins" {
            let mut stream = arrived.respond.send_response(Response::new(()), false).unwrap();
            let _ = poll_fn(|context| stream.poll_reset(context)).await;
        } else {
            let text = arrived.connection.to_string();
            let _ = read(&mut arrived.body).await;
            arrived.answer(200, &text).await;
        }
    });
    let proxy = start(&[backend.to()], "threads = 1");
    run(async {
        let mut client = Client::to(&proxy).await;
        let (unread, mut body) = client.send(post(path), false).await;
        let upload = tokio::spawn(async move { write(&mut body, Bytes::from(vec![0; 8 << 20]), true).await });
        while backend.heads.lock().unwrap().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        // Until the connection is full, and the proxy has noticed that. What has no body needs no
        // window.
        let mut other = Client::to(&proxy).await;
        while other.get("/").await.text() == "0" {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(other.ask(post("/"), Some(b"body")).await.text(), "1");
        upload.abort();
        drop(unread);
    });
    assert_eq!(backend.connections.load(Ordering::SeqCst), 2);
}

/// Before it has stated them, a backend's settings are not known: what is too much is sent again.
#[test]
fn a_burst_before_the_settings_loses_nothing() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(5);
    let backend = Http2Backend::with(builder, async |arrived: Arrived| {
        sleep(Duration::from_millis(2)).await;
        arrived.echo().await;
    });
    let proxy = start(&[backend.to()], "threads = 1");
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut answers = Vec::new();
        for _ in 0..60 {
            let (response, mut stream) = client.send(post("/"), false).await;
            stream.send_data(Bytes::from_static(b"body"), true).unwrap();
            answers.push(response);
        }
        for response in answers {
            assert_eq!(answer(response).await.unwrap().text(), "/ body");
        }
    });
    assert_eq!(settle(&proxy).failed, 0);
}

#[test]
fn a_backend_that_went_away_is_connected_to_anew() {
    let backend = Http2Backend::raw(async |stream: TcpStream, number| {
        let mut server = h2::server::Builder::new().handshake::<_, Bytes>(stream).await.unwrap();
        if let Some(Ok((request, respond))) = server.accept().await {
            let (head, body) = request.into_parts();
            let answered = Arrived { head, body, respond, connection: number }.answer(200, "once");
            tokio::join!(answered, async {
                let _ = tokio::time::timeout(Duration::from_millis(30), server.accept()).await;
            });
        }
        // It closes without a word.
    });
    let proxy = start(&[backend.to()], "threads = 1");
    let mut client = connect(&proxy);
    for _ in 0..4 {
        assert_eq!(client.get("/").text(), "once");
        std::thread::sleep(Duration::from_millis(60));
    }
    assert_eq!((settle(&proxy).completed, backend.connections.load(Ordering::SeqCst)), (4, 4));
}

#[test]
fn a_backend_that_can_not_be_reached_is_named_at_once() {
    let proxy = start(&[format!("h2c://{}", vacant_address())], "threads = 1");
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut answers = Vec::new();
        for _ in 0..50 {
            answers.push(client.send(request("/"), true).await.0);
        }
        for response in answers {
            let answer = answer(response).await.unwrap();
            assert_eq!(answer.status.as_u16(), 502);
            assert_eq!(answer.get("leeward-reason"), Some("backend-unreachable".into()));
        }
    });
    settle(&proxy);
}

#[test]
fn a_backend_of_the_other_version_is_a_failure() {
    let old = crate::harness::Backend::echo();
    let proxy = start(&[format!("h2c://{}", old.address)], "threads = 1");
    let answer = connect(&proxy).get("/");
    assert_eq!((answer.head.status(), answer.head.get("leeward-reason")), (502, Some("backend-failed".into())));
    let new = Http2Backend::echo();
    let proxy = start(&[new.address], "threads = 1");
    assert_eq!(connect(&proxy).get("/").head.status(), 502);
    settle(&proxy);
}

#[test]
fn a_slow_backend_is_given_up() {
    let (cancelled, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (note, count) = (Arc::clone(&cancelled), Arc::clone(&seen));
    let backend = Http2Backend::start(move |mut arrived: Arrived| {
        let (note, count) = (Arc::clone(&note), Arc::clone(&count));
        async move {
            if arrived.path() == "/well" {
                return arrived.answer(200, "well").await;
            }
            count.fetch_add(1, Ordering::SeqCst);
            if poll_fn(|context| arrived.respond.poll_reset(context)).await.is_ok() {
                note.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let proxy = start(&[backend.to()], "threads = 1\n[timeouts]\nfirst-byte = \"100ms\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        for (asks, body) in [(request("/slow"), None), (post("/slow"), Some(&b"body"[..]))] {
            let answer = client.ask(asks, body).await;
            assert_eq!((answer.status.as_u16(), answer.get("leeward-reason")), (504, Some("backend-timeout".into())));
        }
        assert_eq!(client.get("/well").await.text(), "well");
    });
    leeward_testkit::wait::until("the backend knows", || cancelled.load(Ordering::SeqCst) == 2);
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1);
    assert_eq!(settle(&proxy).failed, 2);
}

/// A backend whose answer to stream 1 are these frames.
fn frames_of(answer: Vec<u8>) -> Http2Backend {
    Http2Backend::raw(move |mut stream: TcpStream, _| {
        let answer = answer.clone();
        async move {
            let mut bytes = vec![0; 1 << 16];
            let mut read = 0;
            while !bytes[..read].windows(5).any(|five| five == [1, 5, 0, 0, 0] || five == [1, 4, 0, 0, 0]) {
                match stream.read(&mut bytes[read..]).await {
                    Ok(count) if count > 0 => read += count,
                    _ => return,
                }
            }
            let _ = stream.write_all(&Frames::bytes(SETTINGS, 0, 0, b"")).await;
            let _ = stream.write_all(&answer).await;
            while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
        }
    })
}

/// Whatever the reason is, an answer without its end is cut, so that the client sees it.
#[test]
fn an_answer_that_breaks_off_is_cut() {
    let begin =
        [Frames::bytes(HEADERS, END_HEADERS, 1, &fields(&[(":status", "200")])), Frames::bytes(DATA, 0, 1, b"part")]
            .concat();
    for reason in [0_u32, 2, 8] {
        let reset = Frames::bytes(RST_STREAM, 0, 1, &reason.to_be_bytes());
        let backend = frames_of([begin.clone(), reset].concat());
        let proxy = start(&[backend.to()], "threads = 1\n[timeouts]\nfirst-byte = \"500ms\"");
        let mut client = connect(&proxy);
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
        // It may not even have begun.
        if let Some(head) = client.head() {
            let answer = client.body(head, true);
            assert!(answer.is_cut || answer.head.status() == 502, "{reason}: {answer:?}");
        }
        run(async {
            let error = Client::to(&proxy).await.try_ask(request("/"), None).await;
            // The second request has another stream at the backend, which answers no more.
            assert!(error.is_err() || error.is_ok_and(|answer| answer.status.as_u16() >= 500));
        });
    }
}

#[test]
fn answers_that_are_malformed_are_failures() {
    let status = |more: &[(&str, &str)]| [fields(&[(":status", "200")]), fields(more)].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("garbage", vec![0xff; 100]),
        ("no status", Frames::bytes(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&[("x", "y")]))),
        ("connection", Frames::bytes(HEADERS, END_HEADERS | END_STREAM, 1, &status(&[("connection", "x")]))),
        ("DATA first", Frames::bytes(DATA, END_STREAM, 1, b"x")),
        ("a push", Frames::bytes(5, END_HEADERS, 1, &[0, 0, 0, 2])),
        ("a long head", {
            let long = "y".repeat(15_000);
            let mut frames = Frames::bytes(HEADERS, END_STREAM, 1, &status(&[]));
            for at in 0..12 {
                frames.extend(Frames::bytes(9, if at == 11 { END_HEADERS } else { 0 }, 1, &fields(&[("x", &long)])));
            }
            frames
        }),
    ];
    for (name, answer) in cases {
        let backend = frames_of(answer);
        let proxy = start(&[backend.to()], "threads = 1\n[timeouts]\nfirst-byte = \"2s\"");
        let answer = connect(&proxy).get("/");
        assert_eq!(
            (answer.head.status(), answer.head.get("leeward-reason")),
            (502, Some("backend-malformed".into())),
            "{name}"
        );
        settle(&proxy);
    }
}

/// Of two backends the one that can't be reached is left out, whatever its version.
#[test]
fn versions_mix_behind_one_proxy() {
    let (old, new) = (crate::harness::Backend::echo(), Http2Backend::echo());
    let dead = format!("h2c://{}", vacant_address());
    let proxy = start(&[old.address.to_string(), new.to(), dead], "threads = 1");
    let mut client = connect(&proxy);
    for number in 0..40 {
        let answer = client.get(&format!("/{number}"));
        assert_eq!((answer.head.status(), answer.text().trim_end().to_owned()), (200, format!("/{number}")));
    }
    assert!(!new.heads.lock().unwrap().is_empty());
    assert_eq!(settle(&proxy).completed, 40);
}

#[test]
fn backends_of_http_2_are_checked() {
    let well = Arc::new(AtomicUsize::new(1));
    let answers = Arc::clone(&well);
    let backend = Http2Backend::start(move |arrived: Arrived| {
        let is_well = answers.load(Ordering::SeqCst) == 1;
        async move { arrived.answer(if is_well { 200 } else { 500 }, "").await }
    });
    let other = Http2Backend::echo();
    let proxy = start(&[backend.to(), other.to()], "health = \"/check\"\nthreads = 1");
    let is_up = || {
        let text = proxy.admission().backend_metrics();
        text.lines()
            .filter(|line| line.starts_with("leeward_proxy_backend_up{"))
            .map(|line| line.ends_with(" 1"))
            .collect::<Vec<_>>()
    };
    leeward_testkit::wait::until("it was asked", || !backend.heads.lock().unwrap().is_empty());
    assert_eq!(backend.heads.lock().unwrap()[0].uri.path(), "/check");
    assert_eq!(is_up(), [true, true]);
    well.store(0, Ordering::SeqCst);
    leeward_testkit::wait::until("it is put aside", || is_up() == [false, true]);
    assert_eq!(metric(proxy.admission(), "leeward_proxy_queued"), 0.0);
    assert_eq!(proxy.admission().snapshot().failed, 0);
}
