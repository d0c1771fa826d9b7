//! `leeward serve` where the system allows less than requested, from outside.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_low_descriptor_limit_gives_a_warning_and_excess_clients_an_error() {
    let serve = format!("ulimit -n 128; exec {} serve --listen 127.0.0.1:0", env!("CARGO_BIN_EXE_leeward"));
    let mut command = Command::new("sh");
    let mut server =
        command.args(["-c", &serve]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).expect("where it is").to_string();
    let mut connections: Vec<TcpStream> = (0..120).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let last = connections.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut received = Vec::new();
    let _ = last.read_to_end(&mut received);
    assert!(String::from_utf8_lossy(&received).contains("as many connections as it takes"), "{received:?}");
    drop(connections);
    server.kill().unwrap();
    let mut warned = String::new();
    server.stderr.take().unwrap().read_to_string(&mut warned).unwrap();
    server.wait().unwrap();
    assert!(warned.starts_with("warning: ") && warned.contains("ulimit -n"), "{warned}");
}
