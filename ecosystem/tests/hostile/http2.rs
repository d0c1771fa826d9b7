//! HTTP/2: streams that are opened and cancelled, heads that are too large, bodies that nothing
//! reads.
//!
//! Frames are written by hand, because a library's client would keep the rules.

use super::target::{Endless, Target, Way, against, disconnect, layer};
use http_body_util::Empty;
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use leeward_testkit::wait::until;
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Connection preface of RFC 9113 §3.4, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const CANCEL: u32 = 8;

/// Encodes a frame (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A complete GET: method and scheme from the static table, path and authority as literals (RFC
/// 7541 §6).
fn get(stream: u32, path: &str) -> Vec<u8> {
    let block = [&[0x82, 0x86, 0x04, path.len() as u8][..], path.as_bytes(), &[0x01, 1, b'a']].concat();
    frame(0x1, 0x5, stream, &block)
}

fn cancel(stream: u32) -> Vec<u8> {
    frame(0x3, 0, stream, &CANCEL.to_be_bytes())
}

/// Reads and discards bytes until the connection ends.
fn listen(mut from: tokio::net::tcp::OwnedReadHalf) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move { while from.read(&mut [0; 4_096]).await.is_ok_and(|read| read > 0) {} })
}

/// Streams that are cancelled at once. Servers end the connection at some point; the client opens
/// another.
#[test]
fn ten_thousand_streams_opened_and_cancelled() {
    const STREAMS: u32 = 100;
    against(layer(), async |target| {
        for connection in 0..100 {
            let mut stream = target.connect().await;
            let path = ["/", "/wait"][connection % 2];
            let mut bytes = PREFACE.to_vec();
            for number in (1..2 * STREAMS).step_by(2) {
                bytes.extend(get(number, path));
                bytes.extend(cancel(number));
            }
            let _ = stream.write_all(&bytes).await;
            // Wait until the server has begun with the connection.
            let _ = stream.read(&mut [0; 9]).await;
            let way = [Way::Closes, Way::Resets][connection / 2 % 2];
            disconnect(stream, way).await;
        }
    });
}

#[test]
fn streams_that_are_cancelled_while_they_are_served() {
    const STREAMS: u64 = 10;
    against(layer(), async |target| {
        let (from, mut to) = target.connect().await.into_split();
        let reader = listen(from);
        to.write_all(PREFACE).await.unwrap();
        let mut number = 1;
        for round in 1..=20 {
            let streams: Vec<u32> = (0..STREAMS as u32).map(|index| number + 2 * index).collect();
            number += 2 * STREAMS as u32;
            for stream in &streams {
                to.write_all(&get(*stream, "/wait")).await.unwrap();
            }
            until("streams being served", || target.counts().in_flight() == STREAMS);
            for stream in &streams {
                to.write_all(&cancel(*stream)).await.unwrap();
            }
            target.wait_until_idle();
            assert_eq!(target.counts().abandoned, round * STREAMS);
        }
        drop(to);
        reader.await.unwrap();
    });
}

/// A client that keeps the rules, with bodies of one type.
async fn client<B>(target: &Target) -> http2::SendRequest<B>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(target.address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn get_response(target: &Target, headers: &[(&str, &[u8])]) -> Option<http::Response<Incoming>> {
    let mut request = http::Request::get("http://a/");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut sender = client(target).await;
    sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.ok()
}

#[test]
fn http2_headers_are_read_like_http1_headers() {
    against(layer(), async |target| {
        // Malformed values are ignored, and an expired gRPC call ends with gRPC's own status.
        type Headers = [(&'static str, &'static [u8])];
        let cases: [(&Headers, u64, u16, Option<&str>); 5] = [
            (&[("leeward", b"b=-1"), ("leeward", b"p=900, a=x")], 3, 200, None),
            (&[("leeward", &[b'\xff'; 200])], 0, 200, None),
            (&[("x-cost", b"NaN"), ("x-tenant", b"\xff\xfe"), ("x-class", b"256")], 0, 200, None),
            (&[("leeward", b"b=0")], 0, 503, None),
            (&[("content-type", b"application/grpc"), ("grpc-timeout", b"0n")], 0, 200, Some("4")),
        ];
        for (headers, malformed, status, grpc) in cases {
            let before = target.counts().malformed;
            let answer = get_response(target, headers).await.unwrap();
            let grpc_status = answer.headers().get("grpc-status").map(|status| status.to_str().unwrap());
            assert_eq!((answer.status().as_u16(), grpc_status), (status, grpc), "{headers:?}");
            assert_eq!(target.counts().malformed - before, malformed, "{headers:?}");
        }
        let arrived = target.counts().arrived;
        // Larger than servers accept (hyper: 16 KiB).
        let answer = get_response(target, &[("leeward", &[b'1'; 200_000])]).await;
        assert!(answer.is_none_or(|answer| answer.status() == 431));
        assert_eq!(target.counts().arrived, arrived, "it has not come so far");
    });
}

/// The stream of a rejected request ends, even if its client has more to send; the connection
/// continues.
#[test]
fn a_rejected_stream_ends_without_reading_its_body() {
    against(layer(), async |target| {
        let mut sender = client::<Endless>(target).await;
        for _ in 0..20 {
            sender.ready().await.unwrap();
            let request = http::Request::post("http://a/body").header("leeward", "b=0").body(Endless).unwrap();
            let refused = sender.send_request(request).await.unwrap();
            assert_eq!(refused.status(), 503);
        }
        assert_eq!(target.counts().rejections(), 20);
    });
}

/// Frames that no client sends, repeated prefaces, and frames that are cut off.
#[test]
fn invalid_frames_end_the_connection() {
    let large = frame(0x1, 0x5, 1, &[0x82; 20_000]);
    let cases: [Vec<u8>; 7] = [
        // Data and window updates of streams that do not exist, even stream numbers, stream number
        // 0.
        frame(0x0, 0x1, 7, b"data"),
        get(2, "/"),
        get(0, "/"),
        frame(0x8, 0, 0, &[0; 4]),
        // A header block with an invalid index, one without an end, and one larger than a frame may
        // be.
        frame(0x1, 0x5, 1, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        [frame(0x1, 0x1, 1, &[0x82]), PREFACE.to_vec()].concat(),
        large,
    ];
    against(layer(), async |target| {
        for case in &cases {
            for cut in [case.len() / 2, case.len() - 1, case.len()] {
                let mut stream = target.connect().await;
                stream.write_all(&[PREFACE, &case[..cut]].concat()).await.unwrap();
                // The rest of a cut frame never arrives; after a whole one the server ends the
                // connection.
                let _ = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut [0; 64])).await;
                disconnect(stream, Way::HalfCloses).await;
            }
        }
        assert_eq!(target.counts().arrived, 0, "none is a request");
    });
}
