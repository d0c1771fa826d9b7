//! HTTP/2 while the proxy takes new settings, or leaves its socket to a successor: streams end
//! complete, and clients learn where to go on. Does not contain processes.

use super::harness::{
    Arrived, Client, DATA, END_STREAM, Frames, GOAWAY, HEADERS, Http2Backend, PING, SETTINGS, answer, post, request,
    run,
};
use crate::harness::{Backend, Hold, connect, rejected, settle, start};
use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::Response;
use leeward_observe::Source;
use leeward_proxy::settings::file::FileSettings;
use leeward_proxy::{BoundListener, Proxy, Settings};
use leeward_testkit::wait::until;
use std::future::poll_fn;
use tokio::sync::watch;

/// A backend that begins the answer to `/held`, and ends it when the test says so. Other requests
/// get path and body.
fn held(go: &watch::Sender<bool>) -> Http2Backend {
    let went = go.subscribe();
    Http2Backend::start(move |mut arrived: Arrived| {
        let mut went = went.clone();
        async move {
            if arrived.path() != "/held" {
                return arrived.echo().await;
            }
            let mut stream = arrived.respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(Bytes::from_static(b"begin"), false).unwrap();
            let _ = went.wait_for(|went| *went).await;
            stream.send_data(Bytes::from_static(b"end"), true).unwrap();
        }
    })
}

fn settings(to: &[&str], extra: &str) -> Settings {
    let text = format!("slo = \"30s\"\nlisten = \"127.0.0.1:0\"\nthreads = 2\nto = {to:?}\n{extra}");
    FileSettings::parse(&text).and_then(|file| file.settings()).expect("settings")
}

/// An answer and a request that have begun.
struct Begun {
    held: RecvStream,
    upload: (ResponseFuture, SendStream<Bytes>),
}

impl Begun {
    async fn on(client: &mut Client, backend: &Http2Backend) -> Begun {
        let (response, _) = client.send(request("/held"), true).await;
        let mut held = response.await.unwrap().into_body();
        assert_eq!(held.data().await.unwrap().unwrap(), "begin");
        let (response, mut stream) = client.send(post("/upload"), false).await;
        stream.send_data(Bytes::from_static(b"one "), false).unwrap();
        while !backend.heads.lock().unwrap().iter().any(|head| head.uri.path() == "/upload") {
            tokio::task::yield_now().await;
        }
        Begun { held, upload: (response, stream) }
    }

    async fn end(mut self, go: &watch::Sender<bool>) {
        self.upload.1.send_data(Bytes::from_static(b"two"), true).unwrap();
        assert_eq!(answer(self.upload.0).await.unwrap().text(), "/upload one two");
        go.send(true).unwrap();
        assert_eq!(self.held.data().await.unwrap().unwrap(), "end");
        assert!(self.held.data().await.is_none());
    }
}

#[test]
fn a_reload_ends_no_stream_and_no_connection() {
    let (go, _kept) = watch::channel(false);
    let (one, two) = (held(&go), Http2Backend::echo());
    let (one_to, two_to) = (one.to(), two.to());
    let proxy = start(&[&one_to], "");
    run(async {
        let mut client = Client::to(&proxy).await;
        let begun = Begun::on(&mut client, &one).await;
        for round in 0..20 {
            // The backend of the streams goes, and comes back.
            let all = [two_to.as_str(), one_to.as_str()];
            let to = &all[..1 + round % 2];
            let extra = format!("shared = {}\n[timeouts]\nconnect = \"{}s\"", round % 3 == 0, 1 + round % 5);
            assert_eq!(proxy.reload(settings(to, &extra)).unwrap(), [""; 0]);
            assert_eq!(client.get("/next").await.text(), "/next ");
        }
        begun.end(&go).await;
        assert!(!client.connection.is_finished());
    });
    let snapshot = settle(&proxy);
    assert_eq!((snapshot.completed, rejected(&snapshot)), (22, 0));
}

#[test]
fn a_successor_gets_new_connections_and_streams_end_where_they_are() {
    let (go, _kept) = watch::channel(false);
    let backend = held(&go);
    let to = backend.to();
    let listener = BoundListener::bind("127.0.0.1:0").unwrap();
    let old = Proxy::start_on(listener.try_clone().unwrap(), settings(&[&to], "")).unwrap();
    let (new, answered) = run(async {
        let mut client = Client::to(&old).await;
        let begun = Begun::on(&mut client, &backend).await;
        let new = Proxy::start_on(listener, settings(&[&to], "")).unwrap();
        old.begin_draining();
        // The client asks until it knows: each of its requests is answered.
        let mut answered = 2;
        while poll_fn(|context| client.sender.poll_ready(context)).await.is_ok() {
            let Ok((response, _)) = client.sender.send_request(request("/more"), true) else { break };
            match answer(response).await {
                Ok(answer) => assert_eq!(answer.text(), "/more "),
                // The notice says that it was not begun.
                Err(error) => {
                    assert!(error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR), "{error}");
                    break;
                }
            }
            answered += 1;
        }
        // The old one may still accept those that came before it knew.
        while new.admission().snapshot().completed == 0 {
            assert_eq!(Client::to(&new).await.get("/new").await.text(), "/new ");
            answered += 1;
        }
        assert!(!old.is_drained());
        begun.end(&go).await;
        client.connection.await.unwrap().expect("an end without an error");
        (new, answered)
    });
    until("the old one ends", || old.is_drained());
    assert_eq!(backend.heads.lock().unwrap().len(), answered, "none was begun and not answered");
    assert_eq!(settle(&old).completed + settle(&new).completed, answered as u64);
}

#[test]
fn requests_on_their_way_are_answered_after_the_notice() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut frames = Frames::to(&proxy);
    assert!(frames.until(SETTINGS).is_some());
    proxy.begin_draining();
    let last = |frames: &mut Frames| {
        let notice = frames.until(GOAWAY).expect("GOAWAY");
        assert_eq!(notice.error(), 0);
        u32::from_be_bytes(notice.payload[..4].try_into().unwrap())
    };
    // It excludes no stream until the client has answered.
    assert_eq!(last(&mut frames), u32::MAX >> 1);
    let ping = frames.until(PING).expect("PING");
    // Longer than the client of a stop has.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    for stream in [1, 3] {
        frames.get(stream, "/late");
        assert_eq!(frames.until(HEADERS).expect("an answer").stream, stream);
        while frames.until(DATA).expect("a body").flags & END_STREAM == 0 {}
    }
    frames.send(PING, 1, 0, &ping.payload);
    assert_eq!(last(&mut frames), 3);
    assert!(frames.next().is_none());
    until("all have ended", || proxy.is_drained());
}

#[test]
fn a_client_that_does_not_answer_the_notice_ends_with_the_proxy() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut frames = Frames::to(&proxy);
    proxy.begin_draining();
    assert!(frames.until(PING).is_some());
    assert!(!proxy.is_drained());
    proxy.stop();
    while frames.next().is_some() {}
    let proxy = start(&[backend.address], "[timeouts]\nstop = \"100ms\"");
    let mut frames = Frames::to(&proxy);
    assert!(frames.until(SETTINGS).is_some());
    proxy.begin_draining();
    until("its time is over", || proxy.is_drained());
    while frames.next().is_some() {}
}

#[test]
fn connections_in_the_socket_are_served_while_the_proxy_drains() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "connections = 1\nthreads = 1");
    let mut busy = connect(&proxy);
    busy.send("GET /busy HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    // It accepts none while it has as many as it may have.
    let (mut frames, mut other) = (Frames::to(&proxy), connect(&proxy));
    frames.get(1, "/new");
    other.send("GET /old HTTP/1.1\r\nhost: h\r\n\r\n");
    proxy.begin_draining();
    hold.open();
    assert_eq!(frames.until(HEADERS).expect("an answer").stream, 1);
    assert_eq!((busy.answer().text(), other.answer().text()), ("/busy".into(), "/old".into()));
    drop(frames);
    until("all have ended", || proxy.is_drained());
    let mut targets = hold.arrived(3);
    targets.sort_unstable();
    assert_eq!(targets, ["/busy", "/new", "/old"]);
}
