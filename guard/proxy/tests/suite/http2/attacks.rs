//! Frames of clients that mean harm, or do not know better: floods, malformed heads, limits. Does
//! not contain clients that are merely slow.

use super::harness::{
    CONTINUATION, Client, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, fields, head, request, run,
};
use crate::harness::{Backend, Hold, connect, metric, settle, start};
use leeward_testkit::wait::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const REFUSED_STREAM: u32 = 7;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

/// The first frame that answers a stream: HEADERS or RST_STREAM.
fn answer(frames: &mut Frames) -> (u8, u32) {
    loop {
        let frame = frames.next().expect("an answer");
        match frame.kind {
            HEADERS => return (HEADERS, 0),
            RST_STREAM => return (RST_STREAM, frame.error()),
            GOAWAY => return (GOAWAY, frame.error()),
            _ => {}
        }
    }
}

/// A new connection is served.
fn is_well(proxy: &leeward_proxy::Proxy) {
    assert_eq!(run(async { Client::to(proxy).await.get("/well").await.status.as_u16() }), 200);
}

#[test]
fn a_preface_in_pieces_is_one() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let mut frames = Frames { wire: connect(&proxy) };
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
        frames.wire.send([*byte]);
        sleep(Duration::from_millis(1));
    }
    frames.send(SETTINGS, 0, 0, b"");
    frames.get(1, "/");
    assert_eq!(answer(&mut frames).0, HEADERS);
    // What begins like it is HTTP/1, or nothing.
    for (line, status) in [("PRINT / HTTP/1.1", 200), ("PRI * HTTP/2.0", 505), ("P", 0)] {
        let mut client = connect(&proxy);
        client.send(format!("{line}\r\nhost: h\r\n\r\n"));
        assert!([status, 400].contains(&client.head().map_or(0, |head| head.status())), "{line}");
    }
    is_well(&proxy);
}

/// Heads that HTTP/2 forbids reach no backend.
#[test]
fn malformed_heads_are_refused() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let whole = |more: &[(&str, &str)]| head("GET", "/", more);
    let long = "a".repeat(300);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("connection", whole(&[("connection", "close")])),
        ("transfer-encoding", whole(&[("transfer-encoding", "chunked")])),
        ("keep-alive", whole(&[("keep-alive", "5")])),
        ("proxy-connection", whole(&[("proxy-connection", "x")])),
        ("upgrade", whole(&[("upgrade", "h2c")])),
        ("te", whole(&[("te", "gzip")])),
        ("upper case", whole(&[("X-Upper", "1")])),
        ("space in a name", whole(&[("x y", "1")])),
        ("colon in a name", whole(&[("x:y", "1")])),
        ("empty name", whole(&[("", "1")])),
        ("line break in a value", whole(&[("x", "1\r\ny: 2")])),
        ("NUL in a value", whole(&[("x", "1\0")])),
        ("late pseudo-header", whole(&[(":path", "/two")])),
        ("unknown pseudo-header", [fields(&[(":other", "x")]), whole(&[])].concat()),
        ("pseudo-header of answers", [fields(&[(":status", "200")]), whole(&[])].concat()),
        ("no method", fields(&[(":scheme", "http"), (":authority", "h"), (":path", "/")])),
        ("no path", fields(&[(":method", "GET"), (":scheme", "http"), (":authority", "h")])),
        ("empty path", head("GET", "", &[])),
        ("no scheme", fields(&[(":method", "GET"), (":authority", "h"), (":path", "/")])),
        ("two paths", [fields(&[(":path", "/one")]), whole(&[])].concat()),
        ("no host", fields(&[(":method", "GET"), (":scheme", "http"), (":path", "/")])),
        ("two hosts", whole(&[("host", "h"), ("host", "h")])),
        ("another host", whole(&[("host", "other")])),
        ("user in the authority", {
            fields(&[(":method", "GET"), (":scheme", "http"), (":authority", "u@h"), (":path", "/")])
        }),
        ("no path but a word", head("GET", "word", &[])),
        ("star", head("GET", "*", &[])),
        ("space in the path", head("GET", "/ HTTP/1.1\r\nx: y", &[])),
        ("space in the method", head("GET / HTTP/1.1", "/", &[])),
        ("other scheme", { fields(&[(":method", "GET"), (":scheme", "ftp"), (":authority", "h"), (":path", "/")]) }),
        ("two lengths", whole(&[("content-length", "0"), ("content-length", "1")])),
        ("length without a body", whole(&[("content-length", "5")])),
        ("length that is none", whole(&[("content-length", "-1")])),
        ("CONNECT", fields(&[(":method", "CONNECT"), (":authority", "h:1")])),
        ("CONNECT to another protocol", {
            [fields(&[(":protocol", "connect-udp")]), head("CONNECT", "/", &[])].concat()
        }),
        ("a protocol without CONNECT", [fields(&[(":protocol", "websocket")]), whole(&[])].concat()),
        ("many headers", whole(&(0..200).map(|_| ("x", "y")).collect::<Vec<_>>())),
        ("a long head", whole(&(0..250).map(|_| ("x", long.as_str())).collect::<Vec<_>>())),
    ];
    for (name, head) in cases {
        let mut frames = Frames::to(&proxy);
        let mut flags = END_STREAM;
        let mut kind = HEADERS;
        let pieces: Vec<&[u8]> = head.chunks(16_000).collect();
        for (at, piece) in pieces.iter().enumerate() {
            flags |= if at + 1 == pieces.len() { END_HEADERS } else { 0 };
            frames.send(kind, flags, 1, piece);
            (kind, flags) = (CONTINUATION, 0);
        }
        // An answer of the proxy's own, or the stream's end; the error says which rule was broken.
        let (kind, error) = answer(&mut frames);
        assert!(kind == HEADERS || error == PROTOCOL_ERROR, "{name}: {kind} {error}");
        if kind != GOAWAY {
            frames.get(3, "/next");
            assert_eq!(answer(&mut frames).0, HEADERS, "{name}: the connection goes on");
        }
    }
    assert!(backend.requests().iter().all(|request| request.head.target() == "/next"), "{:?}", backend.requests());
    is_well(&proxy);
}

#[test]
fn heads_that_are_too_large_are_answered_by_431() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut long = request("/");
        let mut many = request("/");
        for number in 0..200 {
            many.headers_mut().insert(http::HeaderName::try_from(format!("x-{number}")).unwrap(), "y".parse().unwrap());
        }
        for _ in 0..30 {
            long.headers_mut().append("x", "y".repeat(3_000).parse().unwrap());
        }
        assert_eq!(client.ask(many, None).await.status.as_u16(), 431);
        assert_eq!(client.ask(long, None).await.status.as_u16(), 431);
        assert_eq!(client.get("/next").await.text(), "/next");
    });
}

/// Frames that break the protocol end the connection, with an error that says how.
#[test]
fn frames_out_of_order_end_the_connection() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    let get = head("GET", "/", &[]);
    type Send<'a> = Box<dyn Fn(&mut Frames) + 'a>;
    let cases: Vec<(&str, &[u32], Send<'_>)> = vec![
        ("garbage", &[PROTOCOL_ERROR, FRAME_SIZE_ERROR], Box::new(|frames| frames.wire.send([0xff; 64]))),
        ("DATA before HEADERS", &[PROTOCOL_ERROR], Box::new(|frames| frames.send(DATA, 0, 1, b"x"))),
        ("DATA of the connection", &[PROTOCOL_ERROR], Box::new(|frames| frames.send(DATA, 0, 0, b"x"))),
        ("an even stream", &[PROTOCOL_ERROR], Box::new(|frames| frames.get(2, "/"))),
        ("HEADERS of the connection", &[PROTOCOL_ERROR], Box::new(|frames| frames.get(0, "/"))),
        (
            "a stream that goes back",
            &[PROTOCOL_ERROR, 5],
            Box::new(|frames| {
                frames.get(5, "/");
                frames.get(3, "/");
            }),
        ),
        ("CONTINUATION alone", &[PROTOCOL_ERROR], Box::new(|frames| frames.send(CONTINUATION, 4, 1, b""))),
        (
            "a frame within a head",
            &[PROTOCOL_ERROR],
            Box::new(|frames| {
                frames.send(HEADERS, END_STREAM, 1, &get[..4]);
                frames.send(PING, 0, 0, &[0; 8]);
            }),
        ),
        ("a frame that is too long", &[FRAME_SIZE_ERROR], Box::new(|frames| frames.send(DATA, 0, 1, &[0; 20_000]))),
        ("SETTINGS of a stream", &[PROTOCOL_ERROR], Box::new(|frames| frames.send(SETTINGS, 0, 1, b""))),
        (
            "half a setting",
            &[FRAME_SIZE_ERROR, PROTOCOL_ERROR],
            Box::new(|frames| frames.send(SETTINGS, 0, 0, &[0; 5])),
        ),
        (
            "a window above 2^31",
            &[FLOW_CONTROL_ERROR, PROTOCOL_ERROR],
            Box::new(|frames| {
                frames.send(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]);
            }),
        ),
        (
            "a window that overflows",
            &[FLOW_CONTROL_ERROR],
            Box::new(|frames| {
                frames.send(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]);
                frames.send(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]);
            }),
        ),
        ("an empty WINDOW_UPDATE", &[PROTOCOL_ERROR], Box::new(|frames| frames.send(WINDOW_UPDATE, 0, 0, &[0; 4]))),
        ("PING of a stream", &[PROTOCOL_ERROR], Box::new(|frames| frames.send(PING, 0, 1, &[0; 8]))),
        ("a short PING", &[FRAME_SIZE_ERROR], Box::new(|frames| frames.send(PING, 0, 0, &[0; 7]))),
        ("RST_STREAM of no stream", &[PROTOCOL_ERROR], Box::new(|frames| frames.send(RST_STREAM, 0, 9, &[0; 4]))),
        ("PUSH_PROMISE", &[PROTOCOL_ERROR], Box::new(|frames| frames.send(5, 4, 1, &[0, 0, 0, 2]))),
        (
            "a head that is no HPACK",
            &[COMPRESSION_ERROR],
            Box::new(|frames| {
                frames.send(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
            }),
        ),
    ];
    for (name, errors, send) in cases {
        let mut frames = Frames::to(&proxy);
        send(&mut frames);
        let error = frames.end();
        // The protocol allows the general error instead of the special one.
        assert!(error.is_some_and(|error| error == PROTOCOL_ERROR || errors.contains(&error)), "{name}: {error:?}");
    }
    // Unknown kinds of frames and PRIORITY are ignored.
    let mut frames = Frames::to(&proxy);
    frames.send(0x42, 0xff, 7, b"unknown");
    frames.send(PRIORITY, 0, 9, &[0, 0, 0, 0, 1]);
    frames.get(1, "/");
    assert_eq!(answer(&mut frames).0, HEADERS);
    is_well(&proxy);
}

#[test]
fn a_body_must_have_the_length_of_its_head() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "threads = 1");
    for body in ["abcd", "ab"] {
        let mut frames = Frames::to(&proxy);
        frames.send(HEADERS, END_HEADERS, 1, &head("POST", "/cut", &[("content-length", "3")]));
        frames.send(DATA, END_STREAM, 1, body.as_bytes());
        let (kind, error) = answer(&mut frames);
        assert!(kind == HEADERS || error == PROTOCOL_ERROR, "{body}: {kind} {error}");
    }
    settle(&proxy);
    // What reached the backend was cut, not a request of another length.
    assert!(backend.requests().iter().all(|request| request.is_cut), "{:?}", backend.requests());
}

/// A stream that ends by RST_STREAM is no whole request, whatever the reason says.
#[test]
fn a_reset_without_an_error_is_no_end_of_a_body() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&arrived);
    let backend = Backend::start(move |exchange| {
        count.fetch_add(1, Ordering::SeqCst);
        exchange.ok("");
    });
    let proxy = start(&[backend.address], "threads = 1");
    for (number, reason) in [0, 8].into_iter().enumerate() {
        let mut frames = Frames::to(&proxy);
        frames.send(HEADERS, END_HEADERS, 1, &head("POST", "/cut", &[]));
        frames.send(DATA, 0, 1, b"part");
        until("it is at the backend", || arrived.load(Ordering::SeqCst) == number + 1);
        frames.send(RST_STREAM, 0, 1, &u32::to_be_bytes(reason));
        settle(&proxy);
    }
    until("the backend knows", || backend.requests().len() == 2);
    assert!(backend.requests().iter().all(|request| request.is_cut), "{:?}", backend.requests());
}

#[test]
fn more_streams_than_are_allowed_are_refused() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "");
    let mut frames = Frames::to(&proxy);
    // The limit holds once the client knows of it.
    frames.until(SETTINGS);
    frames.send(SETTINGS, 1, 0, b"");
    for number in 0..120 {
        frames.get(2 * number + 1, "/");
    }
    for _ in 100..120 {
        assert_eq!(answer(&mut frames), (RST_STREAM, REFUSED_STREAM));
    }
    hold.open();
    for _ in 0..100 {
        assert_eq!(answer(&mut frames).0, HEADERS);
    }
    assert_eq!(settle(&proxy).completed, 100);
}

/// CVE-2023-44487: each request is cancelled at once.
#[test]
fn rapid_resets_reach_no_backend_and_end_the_connection() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "threads = 1");
    let mut frames = Frames::to(&proxy);
    let mut burst = Vec::new();
    for number in 0..4_000_u32 {
        burst.extend(Frames::bytes(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &head("GET", "/reset", &[])));
        burst.extend(Frames::bytes(RST_STREAM, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    frames.wire.send(&burst);
    let error = frames.end();
    assert!(error.is_none_or(|error| error == 0 || error == ENHANCE_YOUR_CALM), "{error:?}");
    let snapshot = settle(&proxy);
    assert!(snapshot.arrived < 2_000, "{}", snapshot.arrived);
    is_well(&proxy);
}

/// The same with a pause, so that each request has begun.
#[test]
fn a_client_that_cancels_everything_is_sent_away() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "threads = 1\nlimit = \"1\"\n[timeouts]\nclient = \"1s\"");
    let mut frames = Frames::to(&proxy);
    let mut stream = 1;
    let mut rounds = 0;
    while rounds < 40 {
        let begin = stream;
        for _ in 0..50 {
            frames.get(stream, "/reset");
            stream += 2;
        }
        sleep(Duration::from_millis(2));
        for reset in (begin..stream).step_by(2) {
            frames.send(RST_STREAM, 0, reset, &8_u32.to_be_bytes());
        }
        rounds += 1;
    }
    let error = frames.end();
    assert!(error == Some(0) || error == Some(ENHANCE_YOUR_CALM), "GOAWAY: {error:?}");
    hold.open();
    settle(&proxy);
    is_well(&proxy);
}

#[test]
fn a_head_that_never_ends_ends_the_connection() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "");
    // CVE-2024-27316: frames with and without content.
    for piece in [fields(&[("x", &"y".repeat(1_000))]), Vec::new()] {
        let mut frames = Frames::to(&proxy);
        frames.send(HEADERS, 0, 1, &head("GET", "/", &[]));
        for _ in 0..100_000 {
            frames.send(CONTINUATION, 0, 1, &piece);
            if frames.wire.stream.take_error().ok().flatten().is_some() {
                break;
            }
        }
        let error = frames.end();
        assert!(error.is_none_or(|error| error == ENHANCE_YOUR_CALM || error == PROTOCOL_ERROR), "{error:?}");
    }
    is_well(&proxy);
}

/// A client that asks for answers that it does not read ends, and takes no memory meanwhile.
#[test]
fn floods_of_frames_that_want_an_answer_are_bounded() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "threads = 1\n[timeouts]\nclient-idle = \"300ms\"");
    for (kind, payload) in [(PING, &[0_u8; 8][..]), (SETTINGS, &[0, 3, 0, 0, 0, 9][..])] {
        let mut frames = Frames::to(&proxy);
        let flood = Frames::bytes(kind, 0, 0, payload).repeat(10_000);
        // The proxy stops to read once its answers are not read.
        use std::io::Write;
        let _ = frames.wire.stream.set_write_timeout(Some(Duration::from_secs(20)));
        let mut sent = 0_usize;
        while sent < 1 << 30 && frames.wire.stream.write_all(&flood).is_ok() {
            sent += flood.len();
        }
        assert!(sent < 1 << 30, "{kind}: {sent} bytes were taken");
        is_well(&proxy);
    }
}

/// Frames without content cost little, and the connection serves its requests.
#[test]
fn frames_without_content_are_no_requests() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], "threads = 1");
    let mut frames = Frames::to(&proxy);
    frames.send(HEADERS, END_HEADERS, 1, &head("POST", "/", &[]));
    for _ in 0..2_000 {
        frames.send(DATA, 0, 1, b"");
        frames.send(PRIORITY, 0, 3, &[0, 0, 0, 0, 1]);
        frames.send(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
    }
    frames.send(DATA, END_STREAM, 1, b"");
    let (kind, error) = answer(&mut frames);
    assert!(kind == HEADERS || error == ENHANCE_YOUR_CALM, "{kind} {error}");
    settle(&proxy);
    is_well(&proxy);
}

/// What nobody reads is bounded by the windows that the proxy has stated.
#[test]
fn bodies_that_wait_are_bounded_by_windows() {
    let hold = Hold::default();
    let backend = hold.backend();
    let proxy = start(&[backend.address], "limit = \"1\"");
    let mut busy = connect(&proxy);
    busy.send("GET /busy HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut sent = 0;
        let mut streams = Vec::new();
        for _ in 0..20 {
            let (response, mut stream) = client.send(super::harness::post("/waits"), false).await;
            stream.reserve_capacity(1 << 20);
            tokio::time::sleep(Duration::from_millis(10)).await;
            let room = stream.capacity();
            assert!(room <= 64 << 10, "{room}");
            if room > 0 {
                sent += room;
                stream.send_data(vec![0; room].into(), false).unwrap();
            }
            streams.push((response, stream));
        }
        assert!((1..=20 * (64 << 10)).contains(&sent), "{sent}");
    });
    until("they left the queue", || metric(proxy.admission(), "leeward_proxy_queued") == 0.0);
    hold.open();
    busy.answer();
    settle(&proxy);
}
