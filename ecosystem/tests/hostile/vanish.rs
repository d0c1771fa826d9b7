//! Clients that disconnect at each byte of a request, and at each stage of its service.

use super::target::{Way, against, disconnect, layer};
use leeward_testkit::random::Random;
use leeward_testkit::wait::until;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const HEAD: &str =
    "POST /body HTTP/1.1\r\nhost: a\r\nleeward: b=20000000, p=40\r\nx-tenant: t\r\ncontent-length: 12\r\n\r\n";
const BODY: &str = "hello, world";
const WAYS: [Way; 3] = [Way::Closes, Way::Resets, Way::HalfCloses];

fn request() -> Vec<u8> {
    [HEAD, BODY].concat().into_bytes()
}

#[test]
fn clients_may_vanish_at_each_byte_of_a_request() {
    against(layer(), async |target| {
        let request = request();
        for cut in 0..request.len() {
            for way in WAYS {
                let mut stream = target.connect().await;
                stream.write_all(&request[..cut]).await.unwrap();
                disconnect(stream, way).await;
            }
        }
        // A reset may overtake bytes sent before it. With the other ways each whole head is a
        // request.
        let heads = 2 * BODY.len() as u64;
        until("requests whose heads were whole", || target.counts().arrived >= heads);
        assert!(target.counts().arrived <= 3 * BODY.len() as u64, "half a head is no request");
    });
}

#[test]
fn clients_may_vanish_while_they_are_served() {
    const CLIENTS: u64 = 40;
    against(layer(), async |target| {
        // A client that reads an endless body to its end would never finish, so it does not
        // half-close.
        for (path, ways) in [("/wait", &WAYS[..]), ("/stream", &WAYS[..2])] {
            for way in ways {
                let before = target.counts();
                let mut streams: Vec<TcpStream> = Vec::new();
                for _ in 0..CLIENTS {
                    let mut stream = target.connect().await;
                    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
                    streams.push(stream);
                }
                until("requests being served", || target.counts().in_flight() == CLIENTS);
                target.check_honest_client().await;
                for stream in streams {
                    disconnect(stream, *way).await;
                }
                target.wait_until_idle();
                let abandoned = target.counts().abandoned - before.abandoned;
                assert_eq!(abandoned, CLIENTS, "{path}, {way:?}: nobody has got an answer");
            }
        }
    });
}

/// An open stream is no load: for the gate, an event stream ends with its head.
#[test]
fn open_event_streams_do_not_count_as_in_flight() {
    const CLIENTS: u64 = 100;
    against(layer(), async |target| {
        let mut streams = Vec::new();
        for _ in 0..CLIENTS {
            let mut stream = target.connect().await;
            stream.write_all(b"GET /events HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            streams.push(stream);
        }
        until("all listeners", || target.counts().completed == CLIENTS);
        assert_eq!(target.counts().in_flight(), 0);
        target.check_honest_client().await;
        drop(streams);
    });
}

#[test]
fn handlers_that_panic_end_their_requests() {
    against(layer(), async |target| {
        for _ in 0..50 {
            assert_eq!(target.get_response("/panics", "").await, "", "there is nothing to say");
        }
        target.wait_until_idle();
        assert_eq!((target.counts().failed, target.counts().abandoned), (50, 0));
    });
}

/// Requests with some bytes changed, removed or inserted, the same in every run.
#[test]
fn damaged_requests_get_a_response_or_a_closed_connection() {
    const EDGES: &[u8] = b"\r\n :,=-0\x00\x7f\x80\xff";
    against(layer(), async |target| {
        let mut random = Random::new(17);
        for _ in 0..2_000 {
            let mut bytes = request();
            for _ in 0..=random.below(8) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = random.byte(EDGES),
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, random.byte(EDGES)),
                }
            }
            let mut stream = target.connect().await;
            let _ = stream.write_all(&bytes).await;
            disconnect(stream, Way::HalfCloses).await;
        }
        let counts = target.counts();
        assert!(counts.arrived > 0 && counts.malformed > 0, "some reach the gate: {counts:?}");
    });
}
