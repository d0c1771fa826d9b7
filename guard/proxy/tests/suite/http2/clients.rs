//! Clients of HTTP/2 that cancel, go away, or do not read, and connections that are idle or end.
//! Does not contain malformed frames.

use super::harness::{Arrived, Client, Frames, GOAWAY, HEADERS, Http2Backend, SETTINGS, answer, post, request, run};
use crate::harness::{Backend, Hold, connect, metric, queued, rejected, settle, start};
use bytes::Bytes;
use http::Response;
use leeward_observe::Source;
use leeward_testkit::wait::until;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// How far a request has come at a backend.
const ARRIVED: usize = 1;
const ENDED: usize = 2;

/// A backend of HTTP/1 that answers `/slow` never, and notes when that request's connection ends.
fn slow_old(state: &Arc<AtomicUsize>) -> Backend {
    let state = Arc::clone(state);
    Backend::start(move |exchange| {
        if exchange.head.target() == "/slow" {
            state.store(ARRIVED, Ordering::SeqCst);
            exchange.wire.rest();
            state.store(ENDED, Ordering::SeqCst);
            return exchange.close();
        }
        exchange.ok("next");
    })
}

/// The same in HTTP/2: it notes RST_STREAM.
fn slow_new(state: &Arc<AtomicUsize>) -> Http2Backend {
    let state = Arc::clone(state);
    Http2Backend::start(move |mut arrived: Arrived| {
        let state = Arc::clone(&state);
        async move {
            if arrived.path() != "/slow" {
                return arrived.answer(200, "next").await;
            }
            state.store(ARRIVED, Ordering::SeqCst);
            if poll_fn(|context| arrived.respond.poll_reset(context)).await.is_ok() {
                state.store(ENDED, Ordering::SeqCst);
            }
        }
    })
}

/// Whether the request is cancelled by its stream or with its connection, and over either version:
/// it leaves the backend, its place is free, and the other requests of its connection go on.
#[test]
fn a_request_that_its_client_cancels_ends_at_the_backend() {
    for way in ["stream", "connection"] {
        for body in [None, Some(&b"part of a body"[..])] {
            let (of_old, of_new) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (old, new) = (slow_old(&of_old), slow_new(&of_new));
            for (to, state) in [(old.address.to_string(), &of_old), (new.to(), &of_new)] {
                let proxy = start(&[to], "limit = \"1\"");
                run(async {
                    let mut client = Client::to(&proxy).await;
                    let mut other = Client::to(&proxy).await;
                    let asks = if body.is_some() { post("/slow") } else { request("/slow") };
                    let (response, mut stream) = client.send(asks, body.is_none()).await;
                    if let Some(body) = body {
                        stream.send_data(Bytes::from_static(body), false).unwrap();
                    }
                    while state.load(Ordering::SeqCst) != ARRIVED {
                        sleep(Duration::from_millis(1)).await;
                    }
                    let (next, _) = other.send(request("/next"), true).await;
                    while metric(proxy.admission(), "leeward_proxy_queued") == 0.0 {
                        sleep(Duration::from_millis(1)).await;
                    }
                    match way {
                        "stream" => {
                            stream.send_reset(h2::Reason::CANCEL);
                            drop(response);
                        }
                        _ => client.connection.abort(),
                    }
                    assert_eq!(answer(next).await.unwrap().text(), "next", "the place is free");
                    if way == "stream" {
                        assert_eq!(client.get("/next").await.text(), "next", "the connection goes on");
                    }
                });
                until("the backend sees the end", || state.load(Ordering::SeqCst) == ENDED);
                let snapshot = settle(&proxy);
                assert_eq!((snapshot.abandoned, snapshot.failed), (1, 0), "{way} {body:?}");
            }
        }
    }
}

/// As over HTTP/1: a limit must not take a client's way for the backend's.
#[test]
fn an_upload_that_is_reset_says_nothing_about_the_backend() {
    let (new, old) = (Http2Backend::echo(), Backend::echo());
    for to in [new.to(), old.address.to_string()] {
        let proxy = start(&[to], "[timeouts]\nclient-idle = \"200ms\"");
        run(async {
            for (count, reset) in [Some(h2::Reason::CANCEL), Some(h2::Reason::NO_ERROR), None].into_iter().enumerate() {
                let mut client = Client::to(&proxy).await;
                let (response, mut stream) = client.send(post("/part"), false).await;
                stream.send_data(Bytes::from_static(b"abc"), false).unwrap();
                while proxy.admission().snapshot().admitted == count as u64 {
                    sleep(Duration::from_millis(1)).await;
                }
                match reset {
                    Some(reason) => stream.send_reset(reason),
                    None => drop(answer(response).await),
                }
            }
        });
        settle(&proxy);
        assert_eq!(metric(proxy.admission(), "leeward_proxy_backend_sojourn_seconds"), 0.0);
    }
}

#[test]
fn a_cancelled_request_leaves_the_queue() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let (first, _) = client.send(request("/first"), true).await;
        while proxy.admission().snapshot().in_flight == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let (second, mut stream) = client.send(post("/second"), false).await;
        while metric(proxy.admission(), "leeward_proxy_queued") == 0.0 {
            sleep(Duration::from_millis(1)).await;
        }
        stream.send_reset(h2::Reason::CANCEL);
        drop(second);
        while metric(proxy.admission(), "leeward_proxy_queued") > 0.0 {
            sleep(Duration::from_millis(1)).await;
        }
        hold.open();
        assert_eq!(answer(first).await.unwrap().text(), "/first");
    });
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.completed, rejected(&snapshot)), (1, 1));
    assert_eq!(hold.arrived(1), ["/first"]);
}

/// A backend that answers `/large` with more than windows hold.
fn large() -> Backend {
    Backend::start(|exchange| {
        exchange.message();
        if exchange.head.target() == "/large" {
            exchange.raw("HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n");
            let piece = vec![b'a'; 1 << 20];
            let mut left = 10_000_000;
            while left > 0 {
                let now = piece.len().min(left);
                if std::io::Write::write_all(&mut exchange.wire.stream, &piece[..now]).is_err() {
                    return exchange.close();
                }
                left -= now;
            }
        } else {
            exchange.ok("small");
        }
    })
}

/// The same in HTTP/2.
fn large_new() -> Http2Backend {
    Http2Backend::start(async |arrived: Arrived| {
        let text = if arrived.path() == "/large" { "a".repeat(10_000_000) } else { "small".into() };
        arrived.answer(200, &text).await;
    })
}

#[test]
fn a_stream_that_is_read_slowly_holds_no_other_up() {
    let (old, new) = (large(), large_new());
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[to], "threads = 1");
        run(async {
            let mut client = Client::to(&proxy).await;
            let mut slow = Vec::new();
            for _ in 0..5 {
                slow.push(client.send(request("/large"), true).await.0.await.unwrap().into_body());
            }
            // The window of the connection is the client's affair: it makes room for others.
            let mut wide =
                Client::with(&proxy, h2::client::Builder::new().initial_connection_window_size(1 << 24)).await;
            for _ in 0..5 {
                slow.push(wide.send(request("/large"), true).await.0.await.unwrap().into_body());
            }
            for _ in 0..50 {
                assert_eq!(wide.get("/small").await.text(), "small");
            }
            let reads: Vec<_> = slow
                .into_iter()
                .map(|mut body| tokio::spawn(async move { super::harness::read(&mut body).await.unwrap().0.len() }))
                .collect();
            for read in reads {
                assert_eq!(read.await.unwrap(), 10_000_000, "nothing is lost");
            }
        });
        assert_eq!(settle(&proxy).completed, 60);
    }
}

#[test]
fn a_stream_that_is_never_read_ends() {
    let (old, new) = (large(), large_new());
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[to], "limit = \"1\"\nslo = \"200ms\"\n[timeouts]\nclient-idle = \"1s\"");
        run(async {
            // The window of the connection has room for others, that of the stream has none.
            let mut client =
                Client::with(&proxy, h2::client::Builder::new().initial_connection_window_size(1 << 24)).await;
            let (response, _) = client.send(request("/large"), true).await;
            let mut body = response.await.unwrap().into_body();
            // Its place is free before.
            let mut other = Client::to(&proxy).await;
            while other.get("/small").await.text() != "small" {}
            let mut error = None;
            // What is there is looked at, and no room is made for more.
            while let Some(piece) = body.data().await {
                if let Err(cut) = piece {
                    error = Some(cut);
                    break;
                }
            }
            let error = error.expect("the stream ends");
            assert_eq!((error.is_reset(), error.reason()), (true, Some(h2::Reason::CANCEL)));
            assert_eq!(client.get("/small").await.text(), "small", "the connection goes on");
        });
        assert_eq!(settle(&proxy).abandoned, 1);
    }
}

/// It takes a few bytes now and then.
#[test]
fn a_stream_that_is_read_at_last_is_whole() {
    let backend = large();
    let proxy = start(&[backend.address], "[timeouts]\nclient-idle = \"400ms\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut body = client.send(request("/large"), true).await.0.await.unwrap().into_body();
        let mut sum = 0;
        while let Some(piece) = body.data().await {
            let piece = piece.unwrap();
            sum += piece.len();
            if sum < 200_000 {
                sleep(Duration::from_millis(60)).await;
            }
            body.flow_control().release_capacity(piece.len()).unwrap();
        }
        assert_eq!(sum, 10_000_000);
    });
    assert_eq!(settle(&proxy).completed, 1);
}

/// The client's window has no room for the end of the response when the proxy stops.
#[test]
fn a_stop_waits_until_a_response_is_written() {
    let backend = Http2Backend::start(async |arrived: Arrived| arrived.answer(200, &"a".repeat(15_000)).await);
    let proxy = start(&[backend.to()], "");
    let address = crate::harness::address(&proxy);
    run(async {
        let mut client = Client::with(&proxy, h2::client::Builder::new().initial_window_size(10_000)).await;
        let mut body = client.send(request("/"), true).await.0.await.unwrap().into_body();
        let stop = std::thread::spawn(move || proxy.stop());
        while std::net::TcpStream::connect(address).is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
        // Longer than a client has that does not answer the notice.
        sleep(Duration::from_millis(2_500)).await;
        assert_eq!(super::harness::read(&mut body).await.unwrap().0.len(), 15_000);
        stop.join().unwrap();
    });
}

/// It keeps its place among the connections only for the time that a client may take to read.
#[test]
fn a_response_that_is_never_read_does_not_hold_a_stop_up() {
    let backend = Http2Backend::start(async |arrived: Arrived| arrived.answer(200, &"a".repeat(15_000)).await);
    let proxy = start(&[backend.to()], "[timeouts]\nclient-idle = \"500ms\"\nstop = \"100s\"");
    run(async {
        let mut client = Client::with(&proxy, h2::client::Builder::new().initial_window_size(10_000)).await;
        let _body = client.send(request("/"), true).await.0.await.unwrap().into_body();
        tokio::task::spawn_blocking(move || proxy.stop()).await.unwrap();
    });
}

#[test]
fn a_client_that_stops_in_a_body_is_told() {
    let (old, new) = (Backend::echo(), Http2Backend::echo());
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[to], "[timeouts]\nclient-idle = \"100ms\"");
        run(async {
            let mut client = Client::to(&proxy).await;
            let (response, mut stream) = client.send(post("/part"), false).await;
            stream.send_data(Bytes::from_static(b"abc"), false).unwrap();
            let told = answer(response).await.unwrap();
            assert_eq!((told.status.as_u16(), told.get("leeward-reason")), (408, Some("client-timeout".into())));
            assert_eq!(client.get("/next").await.status.as_u16(), 200);
        });
        assert_eq!(settle(&proxy).abandoned, 1);
    }
}

/// The error of GOAWAY and the end of an idle connection.
fn end_of_idle(frames: &mut Frames) -> u32 {
    let goaway = frames.until(GOAWAY).expect("GOAWAY");
    while frames.next().is_some() {}
    goaway.error()
}

#[test]
fn idle_connections_are_told_and_end() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "[timeouts]\nclient = \"200ms\"");
    // With a request before, without one, and with a head that does not end.
    let mut served = Frames::to(&proxy);
    served.get(1, "/");
    assert!(served.until(HEADERS).is_some());
    let mut silent = Frames::to(&proxy);
    let mut part = Frames::to(&proxy);
    part.send(HEADERS, 0, 1, &super::harness::head("GET", "/", &[]));
    for frames in [&mut served, &mut silent, &mut part] {
        assert_eq!(end_of_idle(frames), 0);
    }
    // Who never sends settings, or not even the preface, ends as well.
    let mut preface = connect(&proxy);
    preface.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    preface.rest();
    let mut less = connect(&proxy);
    less.send(b"PRI * HT");
    less.rest();
    assert_eq!(settle(&proxy).completed, 1);
}

#[test]
fn a_connection_with_a_request_is_not_idle() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "[timeouts]\nclient = \"100ms\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let (response, _) = client.send(request("/slow"), true).await;
        sleep(Duration::from_millis(1_000)).await;
        hold.open();
        assert_eq!(answer(response).await.unwrap().text(), "/slow");
    });
}

#[test]
fn an_idle_connection_makes_room_for_another() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "connections = 2\nthreads = 1");
    let (mut first, mut second) = (Frames::to(&proxy), Frames::to(&proxy));
    for frames in [&mut first, &mut second] {
        frames.get(1, "/");
        assert!(frames.until(HEADERS).is_some());
    }
    assert_eq!(connect(&proxy).get("/third").text(), "/third");
    let ended = std::thread::spawn(move || end_of_idle(&mut first));
    assert_eq!(ended.join().unwrap(), 0, "the one that was idle for longer");
}

/// A backend that says each target once it is let go, one after the other.
#[test]
fn a_stop_completes_what_has_begun() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "");
    let address = crate::harness::address(&proxy);
    let mut idle = Frames::to(&proxy);
    assert!(idle.until(SETTINGS).is_some());
    let stop = run(async {
        let mut client = Client::to(&proxy).await;
        let (response, _) = client.send(request("/busy"), true).await;
        while proxy.admission().snapshot().in_flight == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let stop = std::thread::spawn(move || proxy.stop());
        while std::net::TcpStream::connect(address).is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(!stop.is_finished());
        hold.open();
        assert_eq!(answer(response).await.unwrap().text(), "/busy");
        assert!(client.connection.await.unwrap().is_ok(), "GOAWAY without an error");
        stop
    });
    assert_eq!(end_of_idle(&mut idle), 0);
    stop.join().unwrap();
}

#[test]
fn rejected_requests_leave_the_connection_open() {
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
        for body in [None, Some(vec![0; 1 << 20])] {
            let asks = if body.is_some() { post("/more") } else { request("/more") };
            let refused = client.ask(asks, body.as_deref()).await;
            assert_eq!((refused.status.as_u16(), refused.get("leeward-reason")), (503, Some("concurrency".into())));
        }
        hold.open();
        while metric(proxy.admission(), "leeward_proxy_queued") > 0.0 {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.get("/after").await.text(), "/after");
    });
    busy.answer();
    waiting.answer();
    settle(&proxy);
}

/// One connection, many clients: nothing waits for ever.
#[test]
fn cancelled_and_completed_requests_mix() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let new = Http2Backend::start(move |mut arrived: Arrived| {
        let count = Arc::clone(&count);
        async move {
            let wait = count.fetch_add(1, Ordering::SeqCst) % 4;
            sleep(Duration::from_millis(wait as u64)).await;
            let _ = super::harness::read(&mut arrived.body).await;
            let response = Response::builder().body(()).unwrap();
            if let Ok(mut stream) = arrived.respond.send_response(response, false) {
                let _ = super::harness::write(&mut stream, Bytes::from(vec![b'a'; 40_000]), true).await;
            }
        }
    });
    let old = Backend::echo();
    for to in [new.to(), old.address.to_string()] {
        let proxy = start(&[to], "slo = \"100ms\"\nlimit = \"8\"");
        run(async {
            let mut client = Client::to(&proxy).await;
            let mut random = leeward_testkit::random::Random::new(7);
            let mut answers = Vec::new();
            for number in 0..600 {
                let asks = if number % 3 == 0 { post("/p") } else { request("/g") };
                let (response, mut stream) = client.send(asks, number % 3 != 0).await;
                match random.below(5) {
                    0 => stream.send_reset(h2::Reason::CANCEL),
                    1 => drop(response),
                    _ => {
                        if number % 3 == 0 {
                            stream.send_data(Bytes::from_static(b"body"), true).unwrap();
                        }
                        answers.push(tokio::spawn(answer(response)));
                        if answers.len() > 40 {
                            let _ = answers.remove(random.below(40)).await.unwrap();
                        }
                        sleep(Duration::from_micros(200)).await;
                    }
                }
            }
            for one in answers {
                let status = one.await.unwrap().unwrap().status.as_u16();
                assert!([200, 503].contains(&status), "{status}");
            }
        });
        let snapshot = settle(&proxy);
        assert!(snapshot.completed > 100, "{}", snapshot.completed);
    }
}
