//! `leeward profile` from outside: synthetic traces through every subcommand.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use leeward_profile::format::event::{Extent, OffCpu};
use leeward_profile::format::meta::{Header, Module};
use leeward_profile::format::write::{TraceConfig, TraceWriter, segment_path};
use leeward_profile::format::{EventKind, ObjectKind};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn leeward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leeward")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Stdout of the program, which must succeed.
fn stdout_of(arguments: &[&str]) -> String {
    let output = leeward(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout_of(arguments)).unwrap()
}

/// 200 requests; every hundredth waits for a lock.
fn write_synthetic_trace(folder: &Path) {
    let mut writer = TraceWriter::create(folder, &TraceConfig::default()).unwrap();
    writer.labels(&[(1, "GET"), (2, "KEYS")]).unwrap();
    for id in 1..=200_u64 {
        let (start, wait) = (id * 1_000_000, if id % 100 == 0 { 300_000 } else { 0 });
        let end = start + 10_000 + wait;
        writer.event(0, start, EventKind::RequestStart { id, queue: None }).unwrap();
        let label = if wait > 0 { 2 } else { 1 };
        writer.event(0, start, EventKind::RequestLabel { id, label }).unwrap();
        if wait > 0 {
            let held = |wait, hold, site| EventKind::Held { object: ObjectKind::Mutex, lock: 0x700, site, wait, hold };
            writer.event(1, start + wait, held(0, wait + 5_000, 0x401)).unwrap();
            writer.event(0, start + wait + 4_000, held(wait - 1_000, 4_000, 0x101)).unwrap();
        }
        writer
            .event(
                0,
                end - 10,
                EventKind::Call { function: 0x100, caller: 0, duration: end - start - 20, extent: Extent::Whole },
            )
            .unwrap();
        writer.event(0, end, EventKind::RequestEnd { id }).unwrap();
    }
    writer.finish(300_000_000).unwrap();
}

#[test]
fn every_subcommand_reads_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    write_synthetic_trace(&trace);
    let trace = trace.to_str().unwrap();

    let info = json(&["profile", "info", trace, "--json"]);
    assert_eq!((info["counts"]["events"].as_u64(), info["damage"].as_array().map(Vec::len)), (Some(804), Some(0)));
    assert!(stdout_of(&["profile", "info", trace]).contains("recording was stopped"));

    let stats = json(&["profile", "stats", trace, "--json", "-p", "50"]);
    assert!(stats["rows"].as_array().unwrap().iter().any(|row| row["name"] == "0x100" && row["count"] == 200));
    assert!(stdout_of(&["profile", "stats", trace, "--by-caller"]).contains("from unknown"));
    assert!(stdout_of(&["profile", "stats", trace, "--per-request"]).contains("over 200 requests"));

    for (percentile, columns) in [("99", "p50 p99 max"), ("90", "p50 p99 p90 max")] {
        let table = stdout_of(&["profile", "stats", trace, "-p", percentile]);
        let head: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
        assert!(head.join(" ").ends_with(&format!("total {columns}")), "{table}");
    }

    let requests = json(&["profile", "requests", trace, "--json", "-n", "3"]);
    assert_eq!(requests["requests"], 200);
    assert_eq!(requests["slowest"][0]["latency"], 310_000);

    let tail = json(&["profile", "tail", trace, "--json"]);
    assert_eq!(tail["findings"][0]["cause"], "waiting for a mutex, 0x100");
    assert!(stdout_of(&["profile", "tail", trace]).contains("held it, taken in 0x400"));
    let shown = stdout_of(&["profile", "tail", trace, "--by", "label"]);
    let of = |label: &str| shown.lines().find(|line| line.starts_with(label)).unwrap_or_default().to_string();
    assert!(of("KEYS").contains(" 2 ") && of("GET").contains(" 198 "), "{shown}");
    let labels = json(&["profile", "tail", trace, "--by", "label", "--json"]);
    assert_eq!((&labels["labels"][0]["label"], &labels["labels"][0]["tail"]["requests"]), (&"KEYS".into(), &2.into()));
    assert_eq!(requests["slowest"][0]["label"], "KEYS");
    // Only recorded calls are known if calls are taken for requests.
    let shown = stdout_of(&["profile", "tail", trace, "--request-fn", "0x100"]);
    assert!(
        shown.contains("of 200 recorded calls of 0x100 took") && shown.contains("less than 1.00 µs were not recorded"),
        "{shown}"
    );

    let page = folder.path().join("page.html");
    let shown = stdout_of(&["profile", "timeline", trace, "200", "--html", page.to_str().unwrap()]);
    assert!(
        shown.contains("Request 200 took 310 µs") && shown.contains("which held the lock it waited for"),
        "{shown}"
    );
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg"));

    for (format, begins) in
        [("perfetto", "\n"), ("chrome", "{\"display"), ("csv", "thread,kind"), ("folded", "request ")]
    {
        let out = folder.path().join(format);
        stdout_of(&["profile", "export", trace, "--format", format, "-o", out.to_str().unwrap()]);
        let written = text(&std::fs::read(out).unwrap());
        assert!(written.starts_with(begins), "{format}: {}", &written[..written.len().min(40)]);
    }
}

/// Starts `record` with a shell script, and waits until the script prints that it is ready.
fn start_recording(folder: &Path, before: &str, script: &str) -> Child {
    let record = format!("{before} exec \"$0\" profile record --out \"$1\" -- sh -c \"$2\"");
    // Resets signals that the test run ignores, as under nohup: a shell cannot trap those.
    let mut child = Command::new("env")
        .args([
            "--default-signal",
            "sh",
            "-c",
            &record,
            env!("CARGO_BIN_EXE_leeward"),
            folder.to_str().unwrap(),
            script,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    while !line.ends_with('\n') {
        let mut byte = [0];
        assert_eq!(out.read(&mut byte).unwrap(), 1, "it ended before it was ready");
        line.push(char::from(byte[0]));
    }
    child
}

/// Stdout of the process, its exit code, and its stderr.
fn finish(child: Child) -> (String, Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (text(&output.stdout), output.status.code(), text(&output.stderr))
}

/// Sends a signal once `record` listens for it. Those that it was started to ignore it listens for
/// when the program runs, which may be ready before.
fn signal(child: &Child, signal: Signal) {
    let listens = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
    };
    while !listens() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn signals_to_record_reach_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let waits = "echo ready; while :; do sleep 0.05; done";
    for (one, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        // A program that ends in order, and one that the signal kills: neither survives, or this
        // test would hang.
        let name = code - 128;
        let script = format!("trap 'echo in order; exit 0' {name}; {waits}");
        let child = start_recording(folder.path(), "", &script);
        signal(&child, one);
        let (out, got, printed) = finish(child);
        // A hangup that a program survives does not end the recording.
        let is_told = got == Some(code) || one == Signal::HUP;
        assert!(out.contains("in order") && is_told, "{one:?}: {got:?} {out} {printed}");
        let child = start_recording(folder.path(), "ulimit -c 0;", "echo ready; exec sleep 600");
        signal(&child, one);
        let (_, got, printed) = finish(child);
        assert!(got == Some(code) && printed.contains("ended sh"), "{one:?}: {got:?} {printed}");
    }
    // A script's `&` makes a program ignore Ctrl-C; this signal was sent explicitly.
    let child = start_recording(folder.path(), "trap '' INT;", "echo ready; exec sleep 600");
    signal(&child, Signal::INT);
    let (_, got, printed) = finish(child);
    assert_eq!(got, Some(130), "{printed}");
    // The first signal is forwarded, and the second one, too.
    let child = start_recording(
        folder.path(),
        "",
        &format!("trap 'trap \"echo twice; exit 0\" TERM; echo once' TERM; {waits}"),
    );
    signal(&child, Signal::TERM);
    std::thread::sleep(std::time::Duration::from_millis(700));
    signal(&child, Signal::TERM);
    let (out, got, printed) = finish(child);
    assert!(out.contains("once\ntwice") && got == Some(143), "{got:?} {out} {printed}");
    // A signal that does not request an end goes to the program, and does not end the recording.
    let child = start_recording(folder.path(), "", &format!("trap 'echo rotated; exit 0' USR1; {waits}"));
    signal(&child, Signal::USR1);
    let (out, got, printed) = finish(child);
    assert!(out.contains("rotated") && !printed.contains("SIGUSR1"), "{got:?} {out} {printed}");
}

#[test]
fn the_recorded_program_inherits_ignored_signals() {
    let folder = tempfile::tempdir().unwrap();
    let child = start_recording(folder.path(), "trap '' INT;", "echo ready; kill -INT $$; echo survived");
    let (out, _, printed) = finish(child);
    assert!(out.contains("survived"), "{out} {printed}");
}

#[test]
fn the_limit_of_a_files_size_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    write_synthetic_trace(&trace);
    let line = "ulimit -f 1; exec \"$0\" profile export \"$1\" --format csv -o \"$1.csv\"";
    let export = ["-c", line, env!("CARGO_BIN_EXE_leeward"), trace.to_str().unwrap()];
    let output = Command::new("bash").args(export).output().unwrap();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.ends_with("the limit of a file's size is reached (ulimit -f)\n"), "{printed}");
    // A program that is recorded is killed at the limit, as without `record`.
    let script = format!("echo ready; ulimit -f 1; yes >{}/much; echo status $?", folder.path().display());
    let (out, _, printed) = finish(start_recording(folder.path(), "", &script));
    assert!(out.contains("status 153"), "{out} {printed}");
}

#[test]
fn a_program_is_named_by_its_file_not_by_its_title() {
    let folder = tempfile::tempdir().unwrap();
    let module = Module {
        id: 1,
        flags: Module::PROGRAM,
        loaded: 0,
        unloaded: None,
        bias: 0,
        ranges: vec![],
        build_id: vec![],
        path: "/opt/nowhere/nginx".into(),
    };
    let header = Header { command: "nginx: worker process".into(), ..TraceConfig::default().header };
    let setup = TraceConfig { header, modules: vec![module], ..TraceConfig::default() };
    let mut writer = TraceWriter::create(folder.path(), &setup).unwrap();
    writer.event(0, 5_000, EventKind::RequestStart { id: 1, queue: None }).unwrap();
    writer.finish(10_000).unwrap();
    let output = leeward(&["profile", "tail", folder.path().to_str().unwrap(), "--request-fn", "x"]);
    let printed = text(&output.stderr);
    assert!(printed.contains("; nginx must be built with `leeward cc`"), "{printed}");
}

#[test]
fn info_shows_the_whole_duration_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let ended = folder.path().join("ended");
    // Events from 1 ms to 200.31 ms, in a recording from 0 to 300 ms.
    write_synthetic_trace(&ended);
    let ended = ended.to_str().unwrap();
    assert!(stdout_of(&["profile", "info", ended]).contains("  300 ms of recording, "));
    let info = json(&["profile", "info", ended, "--json"]);
    assert_eq!((info["span_ns"].as_u64(), info["recording_ns"].as_u64()), (Some(199_310_000), Some(300_000_000)));
    // One trace lacks its end, another one its start.
    let nap = |time| (time, EventKind::SwitchedIn { cpu: 0 });
    let killed = folder.path().join("killed");
    let mut writer = TraceWriter::create(&killed, &TraceConfig::default()).unwrap();
    for (time, what) in [nap(5_000_000), nap(9_000_000)] {
        writer.event(0, time, what).unwrap();
    }
    writer.flush().unwrap();
    let bounded = folder.path().join("bounded");
    let setup = TraceConfig { segment_bytes: 1, ..TraceConfig::default() };
    let mut writer = TraceWriter::create(&bounded, &setup).unwrap();
    for time in 0..30_000 {
        writer.event(0, 1_000_000 + time * 1_000, EventKind::SwitchedIn { cpu: 0 }).unwrap();
    }
    writer.finish(90_000_000).unwrap();
    std::fs::remove_file(segment_path(&bounded, 0)).unwrap();
    for (trace, expected) in
        [(killed, "  4.00 ms from the first event to the last, "), (bounded, " from the first event to the last, ")]
    {
        let trace = trace.to_str().unwrap();
        let shown = stdout_of(&["profile", "info", trace]);
        assert!(shown.contains(expected), "{shown}");
        assert!(json(&["profile", "info", trace, "--json"])["recording_ns"].is_null());
    }
    // A recording without events.
    let idle = folder.path().join("idle");
    TraceWriter::create(&idle, &TraceConfig::default()).unwrap().finish(6_000_000_000).unwrap();
    assert!(stdout_of(&["profile", "info", idle.to_str().unwrap()]).contains("  6.00 s of recording, "));
}

#[test]
fn a_process_is_named_by_its_last_title() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &TraceConfig::default()).unwrap();
    writer.event(0, 5_000, EventKind::SwitchedIn { cpu: 0 }).unwrap();
    writer.write_header("keeper: idle").unwrap();
    writer.write_header("keeper: client 7").unwrap();
    writer.finish(10_000).unwrap();
    let shown = stdout_of(&["profile", "info", folder.path().to_str().unwrap()]);
    assert!(shown.contains(": keeper: client 7 (process 1)"), "{shown}");
}

#[test]
fn children_are_followed_unless_that_is_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let recorder_settings = |follow: &[&str]| {
        let program = ["--", "sh", "-c", "echo $LEEWARD_PROFILE"];
        text(&leeward(&[&["profile", "record", "--out", out], follow, &program].concat()).stdout)
    };
    for (follow, expected) in
        [(&[][..], ",follow=on,"), (&["--follow", "on"], ",follow=on,"), (&["--follow", "off"], ",follow=off,")]
    {
        let setting = recorder_settings(follow);
        assert!(setting.contains(expected), "{follow:?}: {setting}");
    }
    let refused = leeward(&["profile", "record", "--follow", "some", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}

#[test]
fn functions_that_may_be_requests_are_suggested() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), &TraceConfig::default()).unwrap();
    let call = |function, caller, duration| EventKind::Call { function, caller, duration, extent: Extent::Whole };
    let blocked = || EventKind::SwitchedOut { cpu: 0, next: 0, reason: OffCpu::Blocked };
    for turn in 1..=200_u64 {
        // A loop waits and serves; every 50th turn takes long. The function that it serves with is
        // called twice.
        let start = turn * 1_000_000;
        let busy = if turn % 50 == 0 { 400_000 } else { 40_000 };
        writer.event(0, start - 900_000, blocked()).unwrap();
        writer.event(0, start, EventKind::SwitchedIn { cpu: 0 }).unwrap();
        for part in 1..=2 {
            writer.event(0, start + busy / 2 * part - 100, call(0x300, 0x201, busy / 2 - 500)).unwrap();
        }
        writer.event(0, start + busy, call(0x200, 0x101, busy)).unwrap();
        writer.event(0, start + busy + 1_000, call(0x100, 0, busy + 902_000)).unwrap();
    }
    writer.finish(300_000_000).unwrap();
    let trace = folder.path().to_str().unwrap();
    for arguments in [vec!["profile", "tail", trace], vec!["profile", "tail", trace, "--request-fn", "none"]] {
        let output = leeward(&arguments);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        let likely: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        assert!(likely.first().is_some_and(|line| line.starts_with("0x200: ")), "{printed}");
        assert!(!likely.iter().any(|line| line.starts_with("0x100: ")), "{printed}");
    }
}

#[test]
fn impossible_profile_commands_fail_with_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    let trace = folder.path().join("trace");
    write_synthetic_trace(&trace);
    let path = trace.to_str().unwrap();
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let output = leeward(arguments);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(printed.lines().last().unwrap_or_default().contains(expected), "{arguments:?}: {printed}");
    };
    check(&["profile", "info", empty], 2, "holds no trace");
    check(&["profile", "info", "/nowhere/at/all"], 2, "/nowhere/at/all");
    check(&["profile", "timeline", path, "777"], 2, "no request 777");
    check(&["profile", "stats", path, "--thread", "5"], 2, "no thread 5");
    // An unknown name is an error in every command, and not an empty success.
    let out = folder.path().join("folded").to_str().unwrap().to_string();
    for command in [
        vec!["tail", path],
        vec!["requests", path],
        vec!["requests", path, "--json"],
        vec!["timeline", path],
        vec!["stats", path, "--per-request"],
        vec!["export", path, "--format", "folded", "-o", &out],
    ] {
        let arguments: Vec<&str> = ["profile"].into_iter().chain(command).chain(["--request-fn", "0x10"]).collect();
        check(&arguments, 2, "no call of `0x10` was recorded");
        check(&arguments, 2, "recorded functions include `0x100`");
    }
    let plainly = Command::new("sleep").arg("60").spawn();
    if let Ok(mut plainly) = plainly {
        check(&["profile", "attach", &plainly.id().to_string()], 2, "it was started without recording");
        plainly.kill().unwrap();
        plainly.wait().unwrap();
    }
    check(&["profile", "attach", "4294967295"], 2, "there is no such process");
    check(&["profile", "record", "--overhead", "200%", "--", "true"], 2, "0.1% to 100%");
    check(&["profile", "record", "--ring", "x,y", "--", "true"], 2, "a number with a unit");
    check(&["profile", "attach", "4294967295"], 2, "does not listen");
    check(&["profile", "record", "--pid", "4294967295"], 2, "does not exist, or has ended");
    check(&["profile", "record", "--pid", "2"], 2, "");
    let own = std::process::id().to_string();
    let with = |more: &[&'static str]| {
        let start = ["profile", "record", "--out", "/nowhere", "--pid"].map(String::from).into_iter();
        start.chain([own.clone()]).chain(more.iter().map(|word| (*word).to_string())).collect::<Vec<String>>()
    };
    for (more, expected) in [
        (&["--keep", "fast"][..], "slow=50ms"),
        (&["--disk", "1X"], "a number with K, M or G"),
        (&["--duration", "0s"], "must not be zero"),
        (&["--rate", "0"], ""),
        (&["--request-io", "--request-fn", "f"], ""),
        (&["--", "true"], ""),
    ] {
        let words = with(more);
        check(&words.iter().map(String::as_str).collect::<Vec<_>>(), 2, expected);
    }
    check(&["profile", "record", "--tick", "1,us", "--", "true"], 2, "a number with a unit");
    check(
        &["profile", "record", "--out", empty, "--", "/nowhere/program"],
        2,
        "/nowhere/program: there is no such program",
    );
    check(&["profile", "record", "--out", empty, "--", "no-such-program"], 2, "in PATH");
    check(&["profile", "record", "--out", empty, "--", empty], 2, "is no program");
    let file = |name: &str, bytes: &[u8]| {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        file.to_str().unwrap().to_string()
    };
    let mut bytes = std::fs::read(segment_path(&trace, 0)).unwrap();
    check(&["profile", "tail", &file("noise.lwt", &bytes[100..2000])], 2, "is no trace of the profiler");
    check(&["profile", "tail", &file("none.lwt", &[])], 2, "is no trace of the profiler");
    check(&["profile", "tail", &file("cut.lwt", &bytes[..20])], 2, "the header is damaged");
    bytes[8] = 77;
    check(&["profile", "tail", &file("later.lwt", &bytes)], 2, "version 77; this program reads version 1");
    // Damage is a warning; the readable part is shown.
    let segment = segment_path(&trace, 0);
    let bytes = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &bytes[..bytes.len() - 7]).unwrap();
    let output = leeward(&["profile", "info", path]);
    assert!(output.status.success() && text(&output.stderr).contains("cut off"), "{}", text(&output.stderr));
}
