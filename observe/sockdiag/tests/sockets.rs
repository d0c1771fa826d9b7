//! The kernel's answers about sockets that the test makes itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use leeward_sockdiag::{Namespace, SocketReader, TcpSocket, UnixState};

/// Connections to `port`, from the server's side, once `until` holds: the kernel delivers bytes of
/// the loopback device a moment after they were written.
fn connections(port: u16, until: impl Fn(&[TcpSocket]) -> bool) -> Vec<TcpSocket> {
    let mut reader = SocketReader::open(&Namespace::Own).unwrap();
    for _ in 0..1000 {
        let mut found = Vec::new();
        reader.tcp_connections(Some(port), &mut |socket| found.push(socket)).unwrap();
        assert!(found.iter().all(|socket| socket.local.port() == port), "{found:?}");
        if until(&found) {
            return found;
        }
        // Until the kernel has delivered what was written.
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the sockets never came to the expected state");
}

fn check_both_ends(address: &str) {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(b"request").unwrap();

    let waiting = connections(port, |found| found.len() == 1 && found[0].unread == 7);
    assert!(!waiting[0].is_accepted() && !waiting[0].is_being_served());

    let (mut server, _) = listener.accept().unwrap();
    let accepted = connections(port, |found| found.len() == 1 && found[0].is_accepted());
    assert_eq!((accepted[0].unread, accepted[0].bytes_received, accepted[0].bytes_read()), (7, 7, 0));
    assert_eq!(accepted[0].peer, client.local_addr().unwrap());

    let mut bytes = [0; 7];
    server.read_exact(&mut bytes).unwrap();
    let read = connections(port, |found| found.len() == 1 && found[0].unread == 0);
    assert!(read[0].is_being_served(), "{read:?}");
    assert_eq!(read[0].bytes_read(), 7);

    // More than a tick of the kernel's clock, so that the order of the two is known.
    std::thread::sleep(Duration::from_millis(25));
    server.write_all(b"response").unwrap();
    client.read_exact(&mut [0; 8]).unwrap();
    let answered = connections(port, |found| found.len() == 1 && found[0].segments_sent == 1);
    assert!(!answered[0].is_being_served(), "{answered:?}");
    assert!(answered[0].since_received >= answered[0].since_sent);

    // The end of a stream is no unread request.
    drop(client);
    let closed = connections(port, |found| found.len() == 1 && found[0].state == leeward_sockdiag::TcpState::CloseWait);
    assert_eq!(closed[0].unread, 0);
}

#[test]
fn a_connection_shows_unread_bytes_until_the_program_reads_them() {
    check_both_ends("127.0.0.1:0");
}

#[test]
fn connections_over_ipv6_and_of_listeners_for_both_are_seen() {
    check_both_ends("[::1]:0");
    // A client of IPv4 at a listener for both.
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"request").unwrap();
    let found = connections(port, |found| found.len() == 1 && found[0].unread == 7);
    assert_eq!(found[0].local, format!("127.0.0.1:{port}").parse().unwrap());
}

#[test]
fn a_client_that_waits_for_an_answer_is_told_from_one_that_has_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let port = client.local_addr().unwrap().port();
    let (mut server, _) = listener.accept().unwrap();
    assert!(!connections(port, |found| found.len() == 1)[0].awaits_answer());
    client.write_all(b"request").unwrap();
    server.read_exact(&mut [0; 7]).unwrap();
    assert!(connections(port, |found| found.len() == 1 && found[0].segments_sent == 1)[0].awaits_answer());
    // More than a tick of the kernel's clock.
    std::thread::sleep(Duration::from_millis(25));
    server.write_all(b"response").unwrap();
    client.read_exact(&mut [0; 8]).unwrap();
    assert!(!connections(port, |found| found.len() == 1 && found[0].segments_received == 1)[0].awaits_answer());
}

#[test]
fn a_listener_shows_its_accept_queue() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut reader = SocketReader::open(&Namespace::Own).unwrap();
    let mut seen = None;
    reader
        .tcp_listeners(&mut |found| {
            if found.local == address {
                seen = Some(found);
            }
        })
        .unwrap();
    let seen = seen.expect("our listener");
    assert_eq!(seen.waiting, clients.len() as u32);
    assert!(seen.limit > 0 && seen.inode != 0 && seen.dropped == 0);
}

#[test]
fn unix_sockets_show_unread_bytes_and_accept_queues() {
    let folder = std::env::temp_dir().join(format!("leeward-sockdiag-{}", std::process::id()));
    let _ = std::fs::remove_file(&folder);
    let listener = UnixListener::bind(&folder).unwrap();
    let mut client = UnixStream::connect(&folder).unwrap();
    client.write_all(b"request").unwrap();
    let name = folder.to_string_lossy().into_owned();
    let mut reader = SocketReader::open(&Namespace::Own).unwrap();
    let mut found = || {
        let mut found = Vec::new();
        reader
            .unix_sockets(&mut |socket| {
                if socket.name.as_deref() == Some(&name) {
                    found.push(socket);
                }
            })
            .unwrap();
        found
    };
    let listening = found();
    assert_eq!(listening.iter().filter(|socket| socket.state == UnixState::Listen).count(), 1);
    assert_eq!(listening.iter().find(|socket| socket.state == UnixState::Listen).unwrap().unread, 1);

    let (_server, _) = listener.accept().unwrap();
    let accepted = found();
    let connection = accepted.iter().find(|socket| socket.state == UnixState::Connected).expect("the accepted one");
    assert!(connection.unread > 0 && connection.peer.is_some(), "{connection:?}");
    std::fs::remove_file(&folder).unwrap();
}

#[test]
fn a_namespace_that_is_not_there_is_named() {
    let missing = Namespace::OfProcess(u32::MAX);
    let error = SocketReader::open(&missing).unwrap_err().to_string();
    assert!(error.contains("/proc/4294967295/ns/net"), "{error}");
}
