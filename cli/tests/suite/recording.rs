//! `leeward record` and `leeward replay` from outside: a real run replays to the same decisions,
//! and damaged files are detected.

use leeward_core::server::{RejectReason, Verdict};
use leeward_recording::{Answer, Block, Entry, Item, Reader};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A running server; killed if a test fails before it stops the server.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(command: &[&str], folder: &Path) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
            .args(command)
            .args(["--listen", "127.0.0.1:0", "--idle", "block"])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(" on ").nth(1).unwrap().split(' ').next().unwrap().to_string();
        Server { child, address }
    }

    /// Sends SIGTERM; returns the remaining output and the exit code.
    fn stop(mut self) -> (String, i32) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut printed = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        let code = self.child.wait().unwrap().code().unwrap();
        (printed, code)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn leeward(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leeward")).args(arguments).current_dir(folder).output().unwrap()
}

fn load(server: &Server, flags: &[&str], folder: &Path) {
    let shape = ["--clients", "20", "--demand", "2k", "--duration", "500ms", "--warmup", "100ms", "--json"];
    let output = leeward(&[&["load", &server.address], &shape[..], flags].concat(), folder);
    // 3: the generator was late; the requests have been recorded all the same.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Replays `file`: exit code, JSON (null if there is none), stderr.
fn replay(arguments: &[&str], folder: &Path) -> (i32, Value, String) {
    let output = leeward(&[&["replay", "--json"], arguments].concat(), folder);
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap(), json, text(&output.stderr))
}

/// The recording `whole` with its first verdict changed.
fn with_one_changed_decision(whole: &[u8]) -> Vec<u8> {
    let items: Vec<Item> = Reader::items(whole).collect::<Result<_, _>>().unwrap();
    let Item::Header(header) = &items[0] else { panic!("no header") };
    let mut entries: Vec<Entry> =
        items.iter().filter_map(|i| if let Item::Entry(e) = i { Some(*e) } else { None }).collect();
    let verdict = entries.iter_mut().find_map(|entry| match entry {
        Entry::Session(call) if matches!(call.answer, Answer::Verdict(_)) => Some(&mut call.answer),
        _ => None,
    });
    let verdict = verdict.unwrap();
    *verdict = match verdict {
        Answer::Verdict(Verdict::Admit) => Answer::Verdict(Verdict::Reject(RejectReason::Delay)),
        _ => Answer::Verdict(Verdict::Admit),
    };
    Block::recording(header, &entries)
}

#[test]
fn a_recorded_run_replays_with_its_own_and_other_controllers() {
    let folder = tempfile::tempdir().unwrap();
    let objective = ["--slo", "10ms", "--rtt", "50us", "--set", "target=2ms"];
    for (command, cores) in [(["record", "run.rec", "--cores"], "1"), (["serve", "--record=run.rec", "--cores"], "2")] {
        let server = Server::start(&[&command[..], &[cores], &objective[..]].concat(), folder.path());
        load(&server, &objective, folder.path());
        let (printed, code) = server.stop();
        assert_eq!(code, 0);
        assert!(printed.contains("calls in run.rec"), "{printed}");

        let (code, json, words) = replay(&["run.rec"], folder.path());
        assert_eq!((code, &json["verdict"], &json["difference"]), (0, &"same".into(), &Value::Null), "{words}{json}");
        assert_eq!(json["recorded"]["end"], "complete");
        assert_eq!(json["recorded"]["cores"].to_string(), cores);
        let received: u64 = printed.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(json["counts"]["requests"].as_u64(), Some(received), "{printed}");
        assert!(json["counts"]["compared"].as_u64() > Some(received) && received > 0);
        assert!(!json["timeline"]["rows"].as_array().unwrap().is_empty());

        let output = leeward(&["replay", "run.rec"], folder.path());
        let printed = text(&output.stdout);
        assert!(output.status.success() && printed.contains("decisions     the same"), "{printed}");
        assert!(printed.contains("auto (target=2ms)"), "{printed}");

        for other in [&["--set", "target=1us", "--set", "aqm_threshold=1us"][..], &["--admission", "none"]] {
            let (code, json, words) = replay(&[&["run.rec"], other].concat(), folder.path());
            assert_eq!((code, &json["verdict"]), (0, &"compared".into()), "{words}");
        }
        let (code, _, words) = replay(&["run.rec", "--admission", "nonsense"], folder.path());
        assert!(code == 2 && words.contains("unknown controller"), "{words}");
        let (code, _, words) = replay(&["run.rec", "--set", "nonsense=1"], folder.path());
        assert!(code == 2 && words.contains("unknown parameter"), "{words}");
    }

    let whole = std::fs::read(folder.path().join("run.rec")).unwrap();
    std::fs::write(folder.path().join("other.rec"), with_one_changed_decision(&whole)).unwrap();
    let (code, json, words) = replay(&["other.rec"], folder.path());
    assert_eq!((code, &json["verdict"], words.lines().count()), (1, &"different".into(), 1), "{words}");
    assert!(words.contains("the answer was"), "{words}");
    assert_eq!(json["difference"]["call"], "request");
    let output = leeward(&["replay", "other.rec"], folder.path());
    assert!(text(&output.stdout).contains("DIFFERENT after"), "{output:?}");

    let check = |bytes: &[u8], expected: &str, is_partly_read: bool| {
        std::fs::write(folder.path().join("bad.rec"), bytes).unwrap();
        let (code, json, words) = replay(&["bad.rec"], folder.path());
        assert_eq!((code, words.lines().count()), (2, 1), "{words}");
        assert!(words.starts_with("error: bad.rec: ") && words.contains(expected), "{words}");
        assert_eq!(json["verdict"].as_str(), is_partly_read.then_some("same"), "{json}");
        assert_eq!(json["recorded"]["end"].as_str(), is_partly_read.then_some("damaged"));
    };
    check(&whole[..whole.len() - 1], "cut off at byte", true);
    check(&whole[..whole.len() / 2], "cut off at byte", true);
    let mut spoilt = whole.clone();
    let place = whole.len() - 40;
    spoilt[place] ^= 1;
    check(&spoilt, "damaged at byte", true);
    check(&whole[..20], "cut off at byte 20, after 0 whole entries", false);
    check(b"", "not a recording", false);
    check(b"hello, world\n", "not a recording", false);
}

#[test]
fn missing_files_are_reported_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str], code: i32, part: &str| {
        let output = leeward(arguments, folder.path());
        let words = text(&output.stderr);
        assert_eq!((output.status.code(), words.lines().count()), (Some(code), 1), "{words}");
        assert!(words.contains(part) && output.stdout.is_empty(), "{words}");
    };
    check(&["replay", "no.rec"], 2, "no.rec");
    check(&["replay", "."], 2, ".");
    check(&["replay"], 2, "<FILE>");
    check(&["record", "no/such/folder.rec"], 2, "recording to no/such/folder.rec");
    check(&["record", "a.rec", "--record", "b.rec"], 2, "already");
    // A server that cannot start does not overwrite an earlier recording.
    std::fs::write(folder.path().join("old.rec"), "precious").unwrap();
    check(&["record", "old.rec", "--listen", "nowhere:1"], 2, "nowhere:1");
    assert_eq!(std::fs::read(folder.path().join("old.rec")).unwrap(), b"precious");
}

/// A full disk: the server serves, and the end reports the incomplete recording.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_the_recording_and_not_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["record", "/dev/full", "--admission", "none"], folder.path());
    load(&server, &["--admission", "none"], folder.path());
    let (printed, code) = server.stop();
    assert_eq!(code, 1);
    assert!(printed.contains("stopped:") && !printed.contains("recorded"), "{printed}");
}

#[test]
fn a_failed_start_leaves_no_recording_and_keeps_earlier_ones() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there.rec");
    std::fs::write(&there, "an earlier one").unwrap();
    for name in ["there.rec", "new.rec"] {
        let output = leeward(&["record", name, "--listen", "127.0.0.1:99999"], folder.path());
        assert_eq!(output.status.code(), Some(2));
    }
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "an earlier one");
    assert!(!folder.path().join("new.rec").exists());
}

/// The memcached port has the same features as the server beside it: an allocator, a recording,
/// statistics for `leeward top`.
#[test]
fn a_memcached_port_is_recorded_and_has_statistics() {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let port = port.as_str();
    // A controller that rejects nothing, so that a busy machine does not matter.
    let command = [
        "serve",
        "--service=kv",
        "--memcached",
        port,
        "--record=run.rec",
        "--cores=1..2",
        "--allocator=delay",
        "--admission=none",
    ];
    let server = Server::start(&command, folder.path());
    let mut stream = TcpStream::connect(port).unwrap();
    stream.write_all("set a 0 0 1\r\nx\r\nget a\r\n".repeat(50).as_bytes()).unwrap();
    let mut answers = vec![0; 50 * ("STORED\r\n".len() + "VALUE a 0 1\r\nx\r\nEND\r\n".len())];
    stream.read_exact(&mut answers).unwrap();
    let top = leeward(&["top", port, "--json"], folder.path());
    let statistics: Value = serde_json::from_slice(&top.stdout).unwrap();
    assert_eq!(statistics["completed"], 100, "{statistics}");
    drop(stream);
    let (printed, code) = server.stop();
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("memcached: 100 requests received, 100 answered"), "{printed}");
    let (code, json, words) = replay(&["run.rec.memcached"], folder.path());
    assert_eq!((code, &json["verdict"]), (0, &"same".into()), "{words}{json}");
    assert_eq!(json["counts"]["requests"], 100);
    assert_eq!(replay(&["run.rec"], folder.path()).0, 0);
}
