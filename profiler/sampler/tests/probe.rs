//! Requests of this very process: by its sockets, and by calls of a function.
//!
//! Contains no test of stacks. Needs root, as recording does.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use leeward_sampler::probe::{RequestOptions, RequestSource};
use leeward_sampler::record::{Record, RecordKind, RecordSource, RequestCounts, SourceError};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// The tests share their process, so one runs at a time.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// A pause that makes a request slow.
const SLOW: Duration = Duration::from_millis(20);

fn options() -> RequestOptions {
    RequestOptions::new(std::process::id())
}

/// A connection over TCP: the client's end and the server's.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Latencies of the reported requests, the greatest first.
fn finish(mut source: RequestSource) -> (Vec<u64>, RequestCounts) {
    let mut latencies = Vec::new();
    let mut report = |record: Record| {
        if let RecordKind::Request { start, .. } = record.kind {
            assert_eq!(record.process, std::process::id());
            latencies.push(record.time - start);
        }
    };
    source.finish(&mut report).unwrap();
    assert_eq!(source.answered().get(&std::process::id()), Some(&source.counts().seen));
    latencies.sort_unstable_by(|left, right| right.cmp(left));
    (latencies, source.counts())
}

/// Answers so many requests of four bytes; every tenth takes long.
fn serve(mut stream: impl Read + Write, requests: u32) {
    let mut bytes = [0; 4];
    for number in 1..=requests {
        stream.read_exact(&mut bytes).unwrap();
        if number % 10 == 0 {
            std::thread::sleep(SLOW);
        }
        stream.write_all(&bytes).unwrap();
    }
}

/// Asks so many times.
fn ask(mut stream: impl Read + Write, requests: u32) {
    let mut bytes = [1; 4];
    for _ in 0..requests {
        stream.write_all(&bytes).unwrap();
        stream.read_exact(&mut bytes).unwrap();
    }
}

fn check(latencies: &[u64], counts: RequestCounts, requests: u64) {
    assert_eq!(counts.seen, requests, "{counts:?}");
    assert_eq!(latencies.len() as u64, requests, "{counts:?}");
    let slow = latencies.iter().filter(|latency| **latency >= SLOW.as_nanos() as u64).count() as u64;
    assert!(slow >= requests / 10, "{latencies:?}");
}

#[test]
fn requests_on_connections_are_timed_at_the_server_only() {
    let _alone = ALONE.lock();
    let (client, server) = connection();
    let source = RequestSource::io(&options()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(server, 50));
        ask(client, 50);
    });
    let (latencies, counts) = finish(source);
    check(&latencies, counts, 50);
}

#[test]
fn requests_on_unix_sockets_are_timed() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let source = RequestSource::io(&options()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| ask(UnixStream::connect(&path).unwrap(), 20));
        serve(listener.accept().unwrap().0, 20);
    });
    let (latencies, counts) = finish(source);
    check(&latencies, counts, 20);
}

#[test]
fn a_unix_client_with_a_name_of_its_own_serves_nobody() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let paths = ["server", "client"].map(|name| folder.path().join(name));
    let [server, own] = paths.each_ref().map(|path| SocketAddrUnix::new(path).unwrap());
    let listener = UnixListener::bind(&paths[0]).unwrap();
    let source = RequestSource::io(&options()).unwrap();
    let client = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&client, &own).unwrap();
    rustix::net::connect(&client, &server).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| ask(UnixStream::from(client), 10));
        serve(listener.accept().unwrap().0, 10);
    });
    let (latencies, counts) = finish(source);
    check(&latencies, counts, 10);
}

#[test]
fn requests_of_datagrams_are_timed() {
    let _alone = ALONE.lock();
    let [server, client] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let source = RequestSource::io(&options()).unwrap();
    let mut bytes = [0; 4];
    for _ in 0..5 {
        client.send_to(&bytes, server.local_addr().unwrap()).unwrap();
        let (_, from) = server.recv_from(&mut bytes).unwrap();
        server.send_to(&bytes, from).unwrap();
        client.recv_from(&mut bytes).unwrap();
    }
    let (latencies, counts) = finish(source);
    assert_eq!((latencies.len(), counts.seen), (5, 5));
}

#[test]
fn an_answer_in_parts_is_one_request_until_its_last() {
    let _alone = ALONE.lock();
    let (mut client, mut server) = connection();
    let source = RequestSource::io(&options()).unwrap();
    let mut bytes = [0; 4];
    client.write_all(&bytes).unwrap();
    // The request arrives in two reads, and is looked at before.
    server.peek(&mut bytes).unwrap();
    server.read_exact(&mut bytes[..2]).unwrap();
    server.read_exact(&mut bytes[2..]).unwrap();
    server.write_all(&bytes).unwrap();
    std::thread::sleep(SLOW);
    server.write_all(&bytes).unwrap();
    let (latencies, counts) = finish(source);
    assert_eq!((latencies.len(), counts.seen), (1, 1));
    assert!(latencies[0] >= SLOW.as_nanos() as u64);
}

#[test]
fn requests_that_share_a_connection_are_noticed() {
    let _alone = ALONE.lock();
    let (mut client, mut server) = connection();
    let mut source = RequestSource::io(&options()).unwrap();
    let mut share = |steps: &str| {
        let mut bytes = [0; 4];
        for step in steps.chars() {
            std::thread::sleep(Duration::from_millis(1));
            if step == 'r' {
                client.write_all(&bytes).unwrap();
                server.read_exact(&mut bytes).unwrap();
            } else {
                server.write_all(&bytes).unwrap();
            }
        }
        source.finish(&mut |_| ()).unwrap();
        source.mixed_share()
    };
    assert_eq!(share("rwrwrw"), 0.0, "one after the other");
    assert_eq!(share("rwwwrww"), 0.0, "answers in parts");
    assert_eq!(share("rrrwrrrw"), 0.0, "requests in parts");
    // The first of these is answered after the third, and takes the place of a part.
    assert!(share("rrwrww") > 0.0);
}

#[test]
fn requests_across_the_border_of_a_window_are_left_out() {
    let _alone = ALONE.lock();
    let (mut client, mut server) = connection();
    let mut source = RequestSource::io(&options()).unwrap();
    let mut bytes = [0; 4];
    // One begins in a window, the next ends in one.
    for is_on in [false, true] {
        client.write_all(&bytes).unwrap();
        server.read_exact(&mut bytes).unwrap();
        source.set_recording(is_on).unwrap();
        server.write_all(&bytes).unwrap();
        client.read_exact(&mut bytes).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| serve(server, 10));
        ask(client, 10);
    });
    let (latencies, counts) = finish(source);
    check(&latencies, counts, 10);
}

#[test]
fn calls_between_windows_are_not_seen() {
    let _alone = ALONE.lock();
    let mut source = RequestSource::function("leeward_test_request", &options()).unwrap();
    for is_on in [false, true] {
        source.set_recording(is_on).unwrap();
        (1..=10).for_each(|number| _ = leeward_test_request(2, number == 10));
    }
    let (latencies, counts) = finish(source);
    check(&latencies, counts, 10);
}

#[test]
fn a_child_is_recorded_if_children_are_followed() {
    let _alone = ALONE.lock();
    const SERVER: &str = "import socket,sys
s=socket.socket();s.bind(('127.0.0.1',0));s.listen(5);print(s.getsockname()[1],flush=True)
c=s.accept()[0]
for _ in range(3): c.sendall(c.recv(4))";
    for (follow, expected, of_child) in [(true, 3, Some(3)), (false, 0, None)] {
        let mut options = options();
        options.follow = follow;
        let mut source = RequestSource::io(&options).unwrap();
        let mut child = std::process::Command::new("python3")
            .args(["-c", SERVER])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut lines, &mut port).unwrap();
        ask(TcpStream::connect(("127.0.0.1", port.trim().parse().unwrap())).unwrap(), 3);
        assert!(child.wait().unwrap().success());
        source.finish(&mut |_| {}).unwrap();
        assert_eq!(source.counts().seen, expected);
        // It has ended, and its requests are still known to be its.
        let answered = source.answered();
        assert_eq!((answered.get(&std::process::id()), answered.get(&child.id()).copied()), (Some(&0), of_child));
    }
}

/// Calls itself so many times, then sleeps.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn leeward_test_request(depth: u32, sleep: bool) -> u32 {
    if depth > 0 {
        return std::hint::black_box(leeward_test_request(std::hint::black_box(depth - 1), sleep)) + 1;
    }
    if sleep {
        std::thread::sleep(SLOW);
    }
    0
}

#[test]
fn of_nested_calls_of_a_function_the_outermost_counts() {
    let _alone = ALONE.lock();
    let source = RequestSource::function("leeward_test_request", &options()).unwrap();
    let call = |number: u32| assert_eq!(leeward_test_request(number % 3, number.is_multiple_of(10)), number % 3);
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=30).for_each(call));
        (1..=20).for_each(call);
    });
    let (latencies, counts) = finish(source);
    check(&latencies, counts, 50);
}

#[test]
fn calls_of_a_child_that_is_forked_later_are_recorded() {
    let _alone = ALONE.lock();
    let mut source = RequestSource::function("leeward_test_request", &options()).unwrap();
    let pause = std::time::Duration::from_millis(5);
    // SAFETY: the child calls nothing that takes a lock or memory: its copy of another thread's
    // lock would never be released.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for _ in 0..300 {
            leeward_test_request(1, false);
            std::thread::sleep(pause);
        }
        // SAFETY: ends the process without what the parent would do at its end.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        source.poll(&mut |_| {}).unwrap();
        std::thread::sleep(pause);
    }
    source.finish(&mut |_| {}).unwrap();
    let answered = source.answered().get(&(child as u32)).copied().unwrap_or(0);
    assert!((10..=300).contains(&answered), "{answered} of 300 calls");
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let error = RequestSource::function("main", &RequestOptions::new(u32::MAX)).unwrap_err();
    assert!(matches!(error, SourceError::NoProcess(_)), "{error}");
}

#[test]
fn of_several_processes_the_one_without_the_function_is_named() {
    let _alone = ALONE.lock();
    let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let mut options = options();
    options.processes.push(other.id());
    let error = RequestSource::function("leeward_test_request", &options).unwrap_err().to_string();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(error.contains(&format!("process {}: ", other.id())), "{error}");
}

#[test]
fn a_function_that_is_not_there_is_answered_with_like_ones() {
    let error = RequestSource::function("leeward_test_requests", &options()).unwrap_err();
    assert!(error.to_string().contains("leeward_test_request"), "{error}");
}
