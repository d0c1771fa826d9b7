//! Requests whose bodies go on after their answers have begun. Does not contain those that are
//! answered at their ends.

use super::harness::{Arrived, Client, Http2Backend, answer, post, read, run, write};
use super::websocket::{exactly, open_at};
use crate::harness::{Backend, connect, settle, start};
use bytes::Bytes;
use h2::Reason;
use http::Response;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

/// Streams that a backend allows at a time.
const STREAMS: u32 = 4;
/// More than a backend's window and all buffers on the way.
const LARGE: usize = 4 << 20;

/// The reasons for which a backend's streams were reset.
type Resets = Arc<Mutex<Vec<Reason>>>;

/// A backend that leaves bodies unread: `/begins` gets a head, `/ends` the whole answer, `/chat`
/// is a tunnel. `/` says its body.
fn unread(streams: u32) -> (Http2Backend, Resets) {
    let resets = Resets::default();
    let note = Arc::clone(&resets);
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(streams).initial_connection_window_size(16 << 20).enable_connect_protocol();
    let backend = Http2Backend::with(builder, move |mut arrived: Arrived| {
        let note = Arc::clone(&note);
        async move {
            let (is_whole, path) = (arrived.path() == "/ends", arrived.path().to_owned());
            if path == "/" {
                return arrived.echo().await;
            }
            let response = Response::builder().header("sec-websocket-protocol", "chat").body(()).unwrap();
            let Ok(mut stream) = arrived.respond.send_response(response, is_whole) else { return };
            if path == "/chat" {
                let _ = stream.send_data(Bytes::from_static(b"hello"), false);
                let _ = read(&mut arrived.body).await;
                let _ = stream.send_data(Bytes::from_static(b"bye"), true);
                return;
            }
            if let Ok(reason) = poll_fn(|context| stream.poll_reset(context)).await {
                note.lock().unwrap().push(reason);
            }
        }
    });
    (backend, resets)
}

/// Waits until so many streams were reset.
async fn wait_for(resets: &Resets, count: usize) {
    while resets.lock().unwrap().len() < count {
        sleep(Duration::from_millis(1)).await;
    }
}

/// More requests than the backend allows at a time: none of the earlier ones is left there.
#[test]
fn an_upload_that_its_client_cancels_is_cancelled_at_the_backend() {
    let (backend, resets) = unread(STREAMS);
    let proxy = start(&[backend.to()], "threads = 1");
    run(async {
        for count in 1..=2 * STREAMS as usize {
            let mut client = Client::to(&proxy).await;
            let (response, mut stream) = client.send(post("/begins"), false).await;
            let response = response.await.unwrap();
            let leaves = count % 2 == 0;
            let upload = tokio::spawn(async move {
                let _ = tokio::time::timeout(
                    Duration::from_millis(100),
                    write(&mut stream, Bytes::from(vec![0; LARGE]), true),
                )
                .await;
                stream
            });
            let mut stream = upload.await.unwrap();
            if leaves {
                client.connection.abort();
            } else {
                stream.send_reset(Reason::CANCEL);
            }
            wait_for(&resets, count).await;
            drop(response);
        }
        assert_eq!(Client::to(&proxy).await.get("/").await.text(), "/ ");
    });
    assert!(resets.lock().unwrap().iter().all(|reason| *reason == Reason::CANCEL), "{resets:?}");
    settle(&proxy);
}

/// The same in HTTP/1, where unread bytes hide the end of the client.
#[test]
fn an_upload_of_a_client_that_leaves_is_cancelled_at_the_backend() {
    let (backend, resets) = unread(STREAMS);
    let proxy = start(&[backend.to()], "threads = 1");
    for count in 1..=STREAMS as usize + 1 {
        let mut client = connect(&proxy);
        client.send(format!("POST /begins HTTP/1.1\r\nhost: h\r\ncontent-length: {LARGE}\r\n\r\n"));
        // More than the window of a stream, and no more than the sockets hold: an end behind bytes
        // that do not fit is not seen.
        client.send(vec![0; 160 << 10]);
        assert_eq!(client.head().expect("a head").status(), 200);
        drop(client);
        leeward_testkit::wait::until("the backend knows", || resets.lock().unwrap().len() == count);
    }
    settle(&proxy);
}

/// A backend may answer before it has read a request, but not keep the rest for ever.
#[test]
fn an_upload_that_is_left_unread_ends_soon_after_the_answer() {
    let (backend, resets) = unread(STREAMS);
    let proxy = start(&[backend.to()], "threads = 1");
    run(async {
        let mut client = Client::to(&proxy).await;
        for count in 1..=3 {
            let (response, mut stream) = client.send(post("/ends"), false).await;
            let upload = tokio::spawn(async move {
                let _ = write(&mut stream, Bytes::from(vec![0; LARGE]), true).await;
                poll_fn(|context| stream.poll_reset(context)).await
            });
            assert_eq!(answer(response).await.unwrap().status.as_u16(), 200);
            wait_for(&resets, count).await;
            // The client need not send the rest, and that is no error.
            assert_eq!(upload.await.unwrap().unwrap(), Reason::NO_ERROR);
        }
    });
    settle(&proxy);
}

/// A backend that reads on after its answer gets the rest, however long the client pauses.
#[test]
fn an_upload_that_pauses_after_the_answer_is_whole() {
    let (sender, received) = std::sync::mpsc::channel();
    let backend = Http2Backend::start(move |mut arrived: Arrived| {
        let sender = sender.clone();
        async move {
            let _ = arrived.respond.send_response(Response::new(()), true);
            let _ = sender.send(read(&mut arrived.body).await.ok().map(|(body, _)| body.len()));
        }
    });
    let proxy = start(&[backend.to()], "");
    run(async {
        let mut client = Client::to(&proxy).await;
        let (response, mut stream) = client.send(post("/"), false).await;
        stream.send_data(Bytes::from_static(b"first"), false).unwrap();
        assert_eq!(answer(response).await.unwrap().status.as_u16(), 200);
        sleep(Duration::from_millis(2500)).await;
        let _ = stream.send_data(Bytes::from_static(b" second"), true);
        let length = tokio::task::spawn_blocking(move || received.recv()).await.unwrap();
        assert_eq!(length.unwrap(), Some(12));
    });
    settle(&proxy);
}

/// A client that goes on sending nothing after the answer keeps no connection for ever.
#[test]
fn an_upload_that_stops_after_the_answer_ends() {
    let (sender, ended) = std::sync::mpsc::channel();
    let backend = Backend::start(move |exchange| {
        exchange.raw("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
        let _ = exchange.message();
        let _ = sender.send(());
    });
    let proxy = start(&[backend.address.to_string()], "[timeouts]\nclient-idle = \"100ms\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let (response, mut stream) = client.send(post("/"), false).await;
        stream.send_data(Bytes::from_static(b"first"), false).unwrap();
        assert_eq!(answer(response).await.unwrap().status.as_u16(), 401);
        tokio::task::spawn_blocking(move || ended.recv()).await.unwrap().expect("the end of the request");
    });
    settle(&proxy);
}

/// What counts is that a body is not read, and not that its answer takes long; a body that is sent
/// again is all there at once.
#[test]
fn a_slow_answer_keeps_its_connection() {
    let count = Arc::new(AtomicUsize::new(0));
    let backend = Http2Backend::start(move |mut arrived: Arrived| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move {
            let _ = read(&mut arrived.body).await;
            if number.is_multiple_of(2) {
                return arrived.respond.send_reset(Reason::REFUSED_STREAM);
            }
            sleep(Duration::from_millis(200)).await;
            arrived.answer(200, "slow").await;
        }
    });
    let proxy = start(&[backend.to()], "threads = 1");
    run(async {
        let mut client = Client::to(&proxy).await;
        for body in ["", "body", "body"] {
            assert_eq!(client.ask(post("/"), Some(body.as_bytes())).await.text(), "slow");
        }
    });
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1);
}

/// Streams that wait have their windows, and the connection has room for others.
#[test]
fn uploads_that_wait_hold_no_others_up() {
    let (backend, _) = unread(100);
    let proxy = start(&[backend.to()], "threads = 1");
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut uploads = Vec::new();
        for _ in 0..60 {
            let (response, mut stream) = client.send(post("/begins"), false).await;
            let response = response.await.unwrap();
            let upload = async move { write(&mut stream, Bytes::from(vec![0; LARGE]), true).await };
            uploads.push((response, tokio::spawn(upload)));
        }
        // Until what the backend does not read has filled the windows.
        sleep(Duration::from_millis(300)).await;
        assert_eq!(client.ask(post("/"), Some(b"body")).await.text(), "/ body");
        uploads.iter().for_each(|(_, upload)| upload.abort());
    });
}

/// A backend of each version that answers a body's first piece, and its end.
fn talks() -> (Backend, Http2Backend) {
    let old = Backend::start(|exchange| {
        exchange.raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        let body = exchange.message().text();
        exchange.raw(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
    });
    let new = Http2Backend::start(|mut arrived: Arrived| async move {
        let mut stream = arrived.respond.send_response(Response::new(()), false).unwrap();
        stream.send_data(Bytes::from_static(b"first"), false).unwrap();
        let Ok((body, _)) = read(&mut arrived.body).await else { return };
        let _ = stream.send_data(body.into(), true);
    });
    (old, new)
}

/// Once the answer has begun, a client may be silent for as long as the backend may.
#[test]
fn a_client_may_be_silent_after_the_answer_has_begun() {
    let (old, new) = talks();
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[to], "[timeouts]\nclient-idle = \"100ms\"");
        run(async {
            let mut client = Client::to(&proxy).await;
            let (response, mut stream) = client.send(post("/"), false).await;
            stream.send_data(Bytes::from_static(b" one"), false).unwrap();
            let mut body = response.await.unwrap().into_body();
            assert_eq!(exactly(&mut body, 5).await, b"first");
            sleep(Duration::from_millis(400)).await;
            stream.send_data(Bytes::from_static(b" two"), true).unwrap();
            assert_eq!(read(&mut body).await.unwrap().0, b" one two");
        });
        let mut client = connect(&proxy);
        client.send("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n");
        let head = client.head().expect("a head");
        std::thread::sleep(Duration::from_millis(400));
        client.send("4\r\n two\r\n0\r\n\r\n");
        assert_eq!(client.body(head, true).text(), "firstone two");
        assert_eq!(settle(&proxy).completed, 2);
    }
}

/// What the client sends is life, too: a backend may be silent meanwhile.
#[test]
fn a_backend_may_be_silent_while_its_client_is_not() {
    let (old, new) = talks();
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[to], "[timeouts]\nidle = \"1s\"");
        run(async {
            let mut client = Client::to(&proxy).await;
            let (response, mut stream) = client.send(post("/"), false).await;
            let mut body = response.await.unwrap().into_body();
            assert_eq!(exactly(&mut body, 5).await, b"first");
            for _ in 0..50 {
                stream.send_data(Bytes::from_static(b"."), false).unwrap();
                sleep(Duration::from_millis(50)).await;
            }
            stream.send_data(Bytes::new(), true).unwrap();
            assert_eq!(read(&mut body).await.unwrap().0.len(), 50);
            // If both are silent, it is cut.
            let (response, _stream) = client.send(post("/"), false).await;
            let mut body = response.await.unwrap().into_body();
            assert!(read(&mut body).await.is_err());
        });
        settle(&proxy);
    }
}

/// Nothing asks for a body in HTTP/2: a client that waits for that is told to send it unasked.
#[test]
fn an_expectation_is_not_met() {
    let (old, new) = talks();
    for to in [old.address.to_string(), new.to()] {
        let proxy = start(&[to], "[timeouts]\nclient-idle = \"100ms\"\nfirst-byte = \"20s\"");
        run(async {
            let mut client = Client::to(&proxy).await;
            let mut asks = post("/");
            asks.headers_mut().insert("expect", "100-continue".parse().unwrap());
            let (response, mut stream) = client.send(asks, false).await;
            stream.send_data(Bytes::from_static(b"unasked"), true).unwrap();
            assert_eq!(answer(response).await.unwrap().text(), "firstunasked");
        });
    }
    let silent = Http2Backend::start(async |mut arrived: Arrived| drop(read(&mut arrived.body).await));
    let proxy = start(&[silent.to()], "[timeouts]\nclient-idle = \"100ms\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut asks = post("/");
        asks.headers_mut().insert("expect", "100-continue".parse().unwrap());
        let (response, _stream) = client.send(asks, false).await;
        let told = answer(response).await.unwrap();
        assert_eq!((told.status.as_u16(), told.get("leeward-reason")), (417, Some("client-timeout".into())));
    });
    assert_eq!(settle(&proxy).abandoned, 1);
}

/// A tunnel that its backend does not read ends: it would not see its client leave.
#[test]
fn a_tunnel_that_is_left_unread_ends() {
    let (backend, resets) = unread(STREAMS);
    let proxy = start(&[backend.to()], "threads = 1\n[timeouts]\nidle = \"200ms\"");
    run(async {
        let mut client = Client::to(&proxy).await;
        let (mut stream, _body) = open_at(&mut client, "/deaf").await;
        let _ = write(&mut stream, Bytes::from(vec![0; LARGE]), false).await;
        wait_for(&resets, 1).await;
        assert_eq!(client.get("/").await.text(), "/ ");
    });
}

/// A tunnel is a stream of its connection for as long as it is open.
#[test]
fn open_tunnels_leave_room_for_requests() {
    let (backend, _) = unread(STREAMS);
    let proxy = start(&[backend.to()], "threads = 1");
    run(async {
        let mut client = Client::to(&proxy).await;
        for _ in 0..2 {
            let mut tunnels = Vec::new();
            for _ in 0..STREAMS {
                let (stream, mut body) = open_at(&mut client, "/chat").await;
                assert_eq!(exactly(&mut body, 5).await, b"hello");
                tunnels.push((stream, body));
            }
            assert_eq!(client.get("/").await.text(), "/ ");
            for (mut stream, mut body) in tunnels {
                stream.send_data(Bytes::new(), true).unwrap();
                assert_eq!(read(&mut body).await.unwrap().0, b"bye");
            }
        }
    });
    assert!(backend.connections.load(Ordering::SeqCst) <= 3);
}
