//! Exit codes of all commands, by one rule: 2 for a wrong input, 1 for a failure at run time. A new
//! command fails here until it has its rows.

use leeward_testkit::net::free_address;
use rustix::net::{self, AddressFamily, SocketType};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Commands, each with command lines that are wrong by themselves: bad values, files that are
/// missing (`absent`) or of another kind (`text`), folders in their place (`folder`).
const INPUT_ERRORS: &[(&str, &[&str])] = &[
    (
        "demo",
        &[
            "--duration 4",
            "--duration -4s",
            "--service sedum",
            "--out text",
            "--admin nowhere --plain",
            "--proxy --duration 4",
            "--proxy --duration 0s",
            "--proxy --out text",
            "--proxy --admin nowhere",
            "--proxy --service sets",
            "--proxy --slo 50ms",
            "--leaves 4 --admin off",
            "--slo 5ms",
            "--data small",
            "--admission none",
        ],
    ),
    (
        "run",
        &[
            "absent.toml",
            "folder",
            "./folder/",
            "text",
            "bw-sedum",
            "bw-overall --set workload.demand=0x",
            "bw-overall --set workload.demand=1e-300",
            "bw-overall --out text",
            "bw-overall --machine absent",
            "bw-overall --machine folder",
            "bw-overall --machine text",
        ],
    ),
    ("list", &["sedum"]),
    ("report", &["absent", "folder", "text", "text/below"]),
    ("verdicts", &["--check absent", "--check folder", "--check text"]),
    ("twin", &["absent", "folder", "text"]),
    ("league", &["--join absent", "--join folder", "--join text", "sedum"]),
    ("tune", &["bw-sedum --controller seda", "absent.toml --controller seda", "bw-overall --controller sedum"]),
    ("train", &["sedum --out curves.toml", "folder --out curves.toml", "text --out curves.toml"]),
    ("advise", &["sedum", "folder", "text", "mt-sim --load 8k..50"]),
    (
        "serve",
        &[
            "--slo 5",
            "--slo -5us",
            "--slo 0.1ns",
            "--listen nowhere",
            "--config absent",
            "--config folder",
            "--config text",
            "--tls-cert absent --tls-key absent",
            "--tls-cert folder --tls-key folder",
            "--tenants absent",
            "--service hdsearch-leaf --data absent",
            "--service hdsearch-leaf --data folder",
            "--service router-leaf --store nowhere",
            "--memory 0MB --service kv",
            "--udp-size 1500",
            "--otlp-every 1s",
        ],
    ),
    (
        "load",
        &[
            "",
            "nowhere",
            "{closed} --demand 0x",
            "{closed} --demand -5",
            "{closed} --demand 1e-300",
            "{closed} --duration 5",
            "{closed} --service slow",
            "{closed} --service kv:etc --demand fast",
            "{closed} --service kv:etc --hgrm folder",
            "{closed} --hgrm absent/file",
            "{closed} --tls-ca absent",
            "{closed} --tls-ca folder",
            "{closed} --tls-ca text",
            "{closed} --cpu 4000",
            "--http nowhere",
            "--http ftp://{closed}/",
            "--http 'http://{closed}/ x'",
            "--http http://{closed}/ --demand 0x",
            "--http http://{closed}/ --service kv:etc",
            "--http http://{closed}/ --udp {closed}",
            "--http http://{closed}/ --admission none",
            "--http http://{closed}/ --closed 2",
            "--http http://{closed}/ --header nothing",
            "--http http://{closed}/ --body @absent",
            "--http http://{closed}/ --body @folder",
            "--http http://{closed}/ --class sedum=1",
            "--http http://{closed}/ --class critical",
            "--http http://{closed}/ --method CONNECT",
            "--http http://{closed}/ --tls-ca absent",
            "--http https://{closed}/ --tls-ca absent",
            "--http http://{closed}/ --timeout 0s",
            "{closed} --http http://{closed}/",
            "{closed} --http2",
            "{closed} --class critical=1",
            "--grpc http://{closed} sedum",
            "--grpc http://{closed}/path a.B/C",
            "--grpc http://{closed} a.B/C --body 0",
        ],
    ),
    ("corpus", &["--out folder", "--out absent/file", "--out /dev/full"]),
    ("data", &["sedum", "mnist --out folder", "mnist --out absent/file", "mnist --out /dev/full"]),
    ("calibrate", &["--service slow", "--out folder", "--out absent/file", "--cores -1"]),
    ("record", &["", "folder", "absent/file", "file --slo 5"]),
    ("replay", &["absent", "folder", "text"]),
    ("cc", &["--leeward-engine=sedum -c text.c"]),
    ("c++", &["--leeward-engine=sedum -c text.cc"]),
    ("cargo", &["--leeward-engine=sedum build"]),
    (
        "profile record",
        &[
            "",
            "-- ./absent",
            "-- ./folder",
            "-- ./text",
            "--out text -- true",
            "--overhead 500% -- true",
            "--runtime absent -- true",
        ],
    ),
    ("profile attach", &["sedum", "4194304", "-5"]),
    ("profile stop", &["sedum", "4194304", "-5"]),
    ("profile info", &["absent", "folder", "text"]),
    ("profile stats", &["absent", "folder", "text", "absent -p 101"]),
    ("profile requests", &["absent", "folder", "text", "absent -n 0"]),
    ("profile timeline", &["absent", "folder", "text", "absent x"]),
    ("profile join", &["absent folder", "folder folder", "text folder", "folder"]),
    ("profile tail", &["absent", "folder", "text", "absent --slowest 101"]),
    (
        "profile export",
        &[
            "absent --format csv -o -",
            "folder --format csv -o -",
            "text --format csv -o -",
            "absent --format sedum -o -",
        ],
    ),
    ("top", &["nowhere", "{closed} --interval 5", "{closed} --interval 0s", "{closed} --tls-ca absent"]),
    (
        "watch",
        &[
            "nowhere",
            "nowhere:80",
            ":0",
            "--pid 4194304",
            "--pid -5",
            "{closed} --interval 5",
            "{closed} --what-if",
            "{closed} --slo 5ms",
            "{closed} --what-if --slo 5",
            "{closed} --json --prometheus",
        ],
    ),
    (
        "proxy",
        &[
            "",
            "--slo 50ms",
            "--slo 50ms --listen 127.0.0.1:0",
            "--slo 5 --listen 127.0.0.1:0 --to {closed}",
            "--slo 0s --listen 127.0.0.1:0 --to {closed}",
            "--slo 50ms --listen nowhere --to {closed}",
            "--slo 50ms --listen 127.0.0.1:0 --to x",
            "--slo 50ms --listen 127.0.0.1:0 --to ftp://{closed}",
            "--slo 50ms --listen 127.0.0.1:0 --to h2c://https://{closed}",
            "--slo 50ms --listen unix: --to {closed}",
            "--slo 50ms --listen 127.0.0.1:0 --to {closed} --limit sedum",
            "--slo 50ms --listen 127.0.0.1:0 --to {closed} --limit 0",
            "--slo 50ms --listen 127.0.0.1:0 --to {closed} --mode maybe",
            "--slo 50ms --listen 127.0.0.1:0 --to {closed} --mode 101%",
            "--slo 50ms --listen 127.0.0.1:0 --to {closed} --trust x",
            "--slo 50ms --listen 127.0.0.1:0 --to {closed} --until never",
            "--slo 50ms --listen 127.0.0.1:0 --to {closed} --health healthz",
            "--slo 50ms --listen 127.0.0.1:0 --to {closed} --threads 0",
            "--slo 50ms --listen 127.0.0.1:0 --to {closed} --admin nowhere",
            "--slo 50ms --listen {http} --to {closed}",
            "--config absent",
            "--config folder",
            "--config text",
            "--config text --check",
        ],
    ),
    (
        "why",
        &[
            "sedum {closed}",
            "8f3a nowhere",
            "8f3a {closed} --port a/b",
            "8f3a {closed} --tls-ca absent",
            "8f3a {admin}",
        ],
    ),
    ("completions", &["sedum"]),
    ("man", &["text", "text/below"]),
];

/// Correct command lines that meet a wrong peer, with text that must name that peer.
const RUNTIME_ERRORS: &[(&str, &str)] = &[
    ("load {closed}", "no server listens there"),
    ("load {http}", "speaks HTTP"),
    ("load {memcached}", "speaks memcached's protocol"),
    ("load --udp {closed} --clients 1", "no server listens there"),
    ("load {silent}", "answers nothing"),
    ("load {closing}", "closed the connection"),
    ("load {admin}", "speaks HTTP"),
    ("load {closed} --service kv:etc", "filling"),
    ("load {rpc} --service kv:etc", "this load needs `leeward serve --service kv`; the server runs synthetic"),
    ("load {rpc} --duration 300ms --clients 2 --demand 200 --timeout 1ns", "answered within --timeout"),
    ("load --http http://{closed}/", "refused"),
    ("load --http http://host.invalid/", "host.invalid"),
    ("load --http https://{http}/", "speaks HTTP"),
    ("load --http http://{http}/ --duration 300ms", "404"),
    ("load --http http://{http}/ --http2", "HTTP/2"),
    ("load --http http://{memcached}/ --duration 300ms", "speaks memcached's protocol"),
    ("load --http http://{silent}/ --duration 300ms", "answered nothing"),
    ("load --http http://{closing}/ --duration 300ms", "closes connections"),
    ("load --http http://{rpc}/ --duration 300ms", "speaks Leeward's protocol"),
    ("load --grpc http://{rpc} a.B/C", "speaks Leeward's protocol"),
    ("load --grpc http://{closing} a.B/C", "HTTP/2"),
    ("load {http} --service kv:etc", "speaks HTTP"),
    ("top {closed} --plain", "can't connect"),
    ("top {http} --plain", "speaks HTTP"),
    ("top {memcached} --plain", "speaks memcached's protocol"),
    ("top {silent} --plain", "answers nothing"),
    ("top {closing} --json", "closes connections"),
    ("top {admin} --json", "speaks HTTP"),
    ("why 8f3a {closed}", "can't connect"),
    ("why 8f3a {http}", "no admin port"),
    ("why 8f3a {memcached}", "speaks memcached's protocol"),
    ("why 8f3a {silent}", "no answer within 5s; the server there accepts connections and answers nothing"),
    ("why 8f3a {closing}", "closes connections"),
    ("why 8f3a {rpc}", "speaks Leeward's protocol"),
];

/// Behaviour of a foreign peer.
#[derive(Clone, Copy, PartialEq)]
enum Peer {
    Http,
    Memcached,
    Silent,
    Closing,
}

/// Starts a peer, which lives as long as this test.
fn peer(behaviour: Peer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(behaviour, stream));
        }
    });
    address
}

fn serve(behaviour: Peer, mut stream: TcpStream) {
    if behaviour == Peer::Closing {
        return;
    }
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => received.extend_from_slice(&piece[..count]),
        }
        let lines = received.iter().filter(|byte| **byte == b'\n').count();
        let answer: &[u8] = match behaviour {
            Peer::Http if received.ends_with(b"\r\n\r\n") || !received.is_ascii() => {
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nno\n"
            }
            Peer::Memcached if lines > 0 => b"ERROR\r\n",
            _ => continue,
        };
        received.clear();
        if stream.write_all(answer).is_err() || behaviour == Peer::Http {
            break;
        }
    }
}

fn leeward(line: &str, folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leeward"));
    command.args(line.split_whitespace()).current_dir(folder).stdin(Stdio::null());
    command.output().unwrap()
}

/// Commands without subcommands, as the program's help lists them.
fn commands(above: &str, folder: &Path) -> BTreeSet<String> {
    let help = leeward(&format!("help {above}"), folder);
    let help = String::from_utf8(help.stdout).unwrap();
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let name = |line: &str| line.split_whitespace().next().unwrap().to_string();
    let names: Vec<String> =
        listed.filter(|line| !line.starts_with("   ")).map(name).filter(|name| name != "help").collect();
    if names.is_empty() {
        return BTreeSet::from([above.to_string()]);
    }
    names.iter().flat_map(|name| commands(format!("{above} {name}").trim(), folder)).collect()
}

/// A folder with a meaningless file, an empty folder, and a server with an admin port.
struct Fixture {
    folder: tempfile::TempDir,
    server: std::process::Child,
    names: Vec<(&'static str, String)>,
    /// Keeps its port: no other test gets it, and nobody listens there.
    _closed: OwnedFd,
}

/// A port that refuses connections: the socket is bound and does not listen.
fn closed_port() -> (OwnedFd, String) {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(net::getsockname(&socket).unwrap()).unwrap();
    (socket, address.to_string())
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        std::fs::write(folder.path().join("text"), "a text of no meaning\n").unwrap();
        let (socket, closed) = closed_port();
        let admin = free_address().to_string();
        let mut server = Command::new(env!("CARGO_BIN_EXE_leeward"));
        server.args(["serve", "--listen", "127.0.0.1:0", "--idle", "block", "--until-input-ends", "--admin", &admin]);
        let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line).unwrap();
        let rpc = line.split_whitespace().nth(3).unwrap_or_else(|| panic!("no address in {line}")).to_string();
        let names = vec![
            ("{closed}", closed),
            ("{http}", peer(Peer::Http).to_string()),
            ("{memcached}", peer(Peer::Memcached).to_string()),
            ("{silent}", peer(Peer::Silent).to_string()),
            ("{closing}", peer(Peer::Closing).to_string()),
            ("{admin}", admin),
            ("{rpc}", rpc),
        ];
        Fixture { folder, server, names, _closed: socket }
    }

    /// Runs a line; returns a description if the exit code or the output is wrong.
    fn check(&self, line: &str, code: i32, expected: &str) -> Option<String> {
        let line = self.names.iter().fold(line.to_string(), |line, (name, value)| line.replace(name, value));
        let output = leeward(&line, self.folder.path());
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.trim_end().lines().last().unwrap_or_default();
        let is_right = output.status.code() == Some(code) && last.contains(expected) && last.starts_with("error: ");
        // The system's message for an expired timeout is not readable.
        let is_plain = !text.contains("os error 11)") && !text.contains("panicked");
        (!is_right || !is_plain).then(|| format!("leeward {line}\n  ended with {}, not {code}: {text}", output.status))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}

/// Checks lines in parallel, since some of them wait for a peer for seconds.
fn check_all(scene: &Fixture, lines: &[(String, i32, &str)]) {
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let parts = lines.chunks(lines.len().div_ceil(8).max(1));
        let check = |part: &[(String, i32, &str)]| {
            let one = |(line, code, words): &(String, i32, &str)| scene.check(line, *code, words);
            part.iter().filter_map(one).collect::<Vec<String>>()
        };
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || check(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_command_has_exit_code_cases() {
    let folder = tempfile::tempdir().unwrap();
    let listed = commands("", folder.path());
    assert!(listed.len() > 25 && listed.contains("profile tail"), "the search for commands is broken: {listed:?}");
    let rows: BTreeSet<String> = INPUT_ERRORS.iter().map(|(command, _)| (*command).to_string()).collect();
    assert_eq!(listed, rows, "commands without rows, or rows of no command");
    for command in &listed {
        let help = leeward(&format!("help {command}"), folder.path());
        assert_eq!(help.status.code(), Some(0), "help {command}");
    }
}

#[test]
fn input_errors_exit_with_2() {
    let scene = Fixture::new();
    let lines = INPUT_ERRORS
        .iter()
        .flat_map(|(command, rest)| rest.iter().map(move |rest| (format!("{command} {rest}"), 2, "")));
    check_all(&scene, &lines.collect::<Vec<_>>());
}

#[test]
fn runtime_errors_exit_with_1() {
    let scene = Fixture::new();
    let lines: Vec<_> = RUNTIME_ERRORS.iter().map(|(line, words)| ((*line).to_string(), 1, *words)).collect();
    check_all(&scene, &lines);
}
