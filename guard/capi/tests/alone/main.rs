//! The example of the guide under twice the load that it can serve. Watches the clock, so alone.

#[path = "../suite/support.rs"]
#[allow(dead_code)]
mod support;

use leeward_testkit::require::retry_if_busy;
use leeward_testkit::serial::serial_guard;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{SYSTEM, cc, folder, libraries, run};

const WORK_US: u32 = 400;
const SLO: Duration = Duration::from_millis(20);
/// Limit at the client, whose own threads also wait on a busy machine.
const IN_TIME: Duration = Duration::from_millis(40);
const CONNECTIONS: usize = 50;

/// The example server; ends with the test.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(program: &Path, slo: Duration) -> Self {
        let arguments = ["0".to_string(), WORK_US.to_string(), slo.as_micros().to_string()];
        let mut process = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("port ").unwrap().parse().unwrap();
        Server { process, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Answers per second of one kind of run.
#[derive(Debug, Default)]
struct Answers {
    /// Results within [`IN_TIME`], to requests of the second half.
    in_time: f64,
    /// Results during the second half, however late.
    results: f64,
    /// Rejections of requests of the second half.
    rejections: f64,
}

struct Client {
    stream: TcpStream,
    /// When the unanswered requests were due.
    due: VecDeque<Instant>,
    partial: Vec<u8>,
}

impl Client {
    fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        Client { stream, due: VecDeque::new(), partial: Vec::new() }
    }

    fn send(&mut self, due: Instant) {
        if self.stream.write(b"x\n").is_ok_and(|sent| sent == 2) {
            self.due.push_back(due);
        }
    }

    fn receive(&mut self, counts: &mut [u32; 3], warm: Instant) {
        let mut bytes = [0; 4_096];
        match self.stream.read(&mut bytes) {
            Ok(0) => panic!("the server has closed a connection"),
            Ok(read) => self.partial.extend(&bytes[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let due = self.due.pop_front().expect("an answer for each request");
            match &line[..] {
                b"ok\n" => {
                    counts[1] += u32::from(Instant::now() >= warm);
                    counts[0] += u32::from(due >= warm && due.elapsed() <= IN_TIME);
                }
                b"busy\n" => counts[2] += u32::from(due >= warm),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Sends `rate` requests per second, whatever the answers; counts in the second half.
fn load(port: u16, rate: f64) -> Answers {
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| Client::new(port)).collect();
    let (began, length) = (Instant::now(), Duration::from_millis(1_600));
    let (warm, mut counts, mut sent) = (began + length / 2, [0; 3], 0);
    while began.elapsed() < length {
        let planned = (began.elapsed().as_secs_f64() * rate) as usize;
        while sent < planned {
            clients[sent % CONNECTIONS].send(began + Duration::from_secs_f64(sent as f64 / rate));
            sent += 1;
        }
        clients.iter_mut().for_each(|client| client.receive(&mut counts, warm));
        // Leaves the CPU to the server on a small machine.
        std::thread::sleep(Duration::from_micros(200));
    }
    let [in_time, results, rejections] = counts.map(|count| f64::from(count) / (length / 2).as_secs_f64());
    Answers { in_time, results, rejections }
}

#[test]
fn the_example_keeps_its_goodput_under_twice_its_capacity() {
    let _alone = serial_guard();
    let out = libraries();
    let program = out.path().join("server");
    let source = folder().join("examples/server.c");
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-o"];
    run(cc("gcc").args(flags).arg(&program).arg(source).arg(out.path().join("libleeward.a")).args(SYSTEM));
    let most = 1e6 / f64::from(WORK_US);
    retry_if_busy(|| {
        let load = |slo, share: f64| {
            let server = Server::start(&program, slo);
            load(server.port, most * share)
        };
        let normal = load(SLO, 0.3);
        let (without, with) = (load(Duration::ZERO, 2.0), load(SLO, 2.0));
        println!("normal {normal:?}, overloaded {with:?}, without protection {without:?}");
        assert_eq!(without.rejections, 0.0);
        assert!(with.rejections > 0.0, "{with:?}");
        // Other work on the machine takes from all runs, but not evenly.
        let is_quiet = without.results >= 0.8 * most && normal.in_time >= 0.95 * 0.3 * most;
        let least = if is_quiet { 0.5 * without.results } else { 1.0 };
        if with.in_time < least.max(5.0 * without.in_time) {
            return Err(format!("{with:?} beside {without:?}"));
        }
        Ok(())
    });
}
