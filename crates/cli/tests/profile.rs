//! `leeward profile` from outside: synthetic traces through every subcommand, and, where clang and the profiler's plugin
//! are here, real programs with a planted latency bug each.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use leeward_profile::format::event::Extent;
use leeward_profile::format::write::{Setup, TraceWriter, segment_path};
use leeward_profile::format::{ObjectKind, What};
use serde_json::Value;

fn leeward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leeward")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Output of the program, which must have succeeded.
fn printed(arguments: &[&str]) -> String {
    let output = leeward(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(arguments)).unwrap()
}

/// 200 requests; each hundredth waits for a lock.
fn synthetic(folder: &Path) {
    let mut writer = TraceWriter::create(folder, &Setup::default()).unwrap();
    for id in 1..=200_u64 {
        let (start, wait) = (id * 1_000_000, if id % 100 == 0 { 300_000 } else { 0 });
        let end = start + 10_000 + wait;
        writer.event(0, start, What::RequestStart { id, queue: None }).unwrap();
        if wait > 0 {
            let held = |wait, hold, site| What::Held { object: ObjectKind::Mutex, lock: 0x700, site, wait, hold };
            writer.event(1, start + wait, held(0, wait + 5_000, 0x401)).unwrap();
            writer.event(0, start + wait + 4_000, held(wait - 1_000, 4_000, 0x101)).unwrap();
        }
        writer
            .event(
                0,
                end - 10,
                What::Call { function: 0x100, caller: 0, duration: end - start - 20, extent: Extent::Whole },
            )
            .unwrap();
        writer.event(0, end, What::RequestEnd { id }).unwrap();
    }
    writer.finish(300_000_000).unwrap();
}

#[test]
fn every_subcommand_reads_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    synthetic(&trace);
    let trace = trace.to_str().unwrap();

    let info = json(&["profile", "info", trace, "--json"]);
    assert_eq!((info["counts"]["events"].as_u64(), info["damage"].as_array().map(Vec::len)), (Some(604), Some(0)));
    assert!(printed(&["profile", "info", trace]).contains("recording was stopped"));

    let stats = json(&["profile", "stats", trace, "--json", "-p", "50"]);
    assert!(stats["rows"].as_array().unwrap().iter().any(|row| row["name"] == "0x100" && row["count"] == 200));
    assert!(printed(&["profile", "stats", trace, "--by-caller"]).contains("from unknown"));
    assert!(printed(&["profile", "stats", trace, "--per-request"]).contains("over 200 requests"));

    let requests = json(&["profile", "requests", trace, "--json", "-n", "3"]);
    assert_eq!(requests["requests"], 200);
    assert_eq!(requests["slowest"][0]["latency"], 310_000);

    let tail = json(&["profile", "tail", trace, "--json"]);
    assert_eq!(tail["findings"][0]["cause"], "waiting for a mutex, 0x100");
    assert!(printed(&["profile", "tail", trace]).contains("held it, taken in 0x400"));

    let page = folder.path().join("page.html");
    let shown = printed(&["profile", "timeline", trace, "200", "--html", page.to_str().unwrap()]);
    assert!(
        shown.contains("Request 200 took 310 µs") && shown.contains("which held what the request waited for"),
        "{shown}"
    );
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg"));

    for (format, begins) in
        [("perfetto", "\n"), ("chrome", "{\"display"), ("csv", "thread,kind"), ("folded", "request ")]
    {
        let out = folder.path().join(format);
        printed(&["profile", "export", trace, "--format", format, "-o", out.to_str().unwrap()]);
        let written = text(&std::fs::read(out).unwrap());
        assert!(written.starts_with(begins), "{format}: {}", &written[..written.len().min(40)]);
    }
}

#[test]
fn what_can_not_be_done_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    let trace = folder.path().join("trace");
    synthetic(&trace);
    let path = trace.to_str().unwrap();
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let output = leeward(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.lines().last().unwrap_or_default().contains(expected), "{arguments:?}: {said}");
    };
    check(&["profile", "info", empty], 2, "holds no trace");
    check(&["profile", "info", "/nowhere/at/all"], 1, "/nowhere/at/all");
    check(&["profile", "timeline", path, "777"], 2, "no request 777");
    if !cfg!(feature = "parquet") {
        check(&["profile", "export", path, "--format", "parquet", "-o", "-"], 2, "--features parquet");
    }
    check(&["profile", "stats", path, "--thread", "5"], 2, "no thread 5");
    check(&["profile", "attach", "4294967295"], 2, "does not listen");
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
    // Damage is a warning; what could be read is shown.
    let segment = segment_path(&trace, 0);
    let bytes = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &bytes[..bytes.len() - 7]).unwrap();
    let output = leeward(&["profile", "info", path]);
    assert!(output.status.success() && text(&output.stderr).contains("cut off"), "{}", text(&output.stderr));
}

/// Builds one of the programs with the profiler; `None`, with a word why, where that can't be done.
fn built(folder: &Path, source: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let program = folder.join("program");
    let compiler = if source.extension().is_some_and(|extension| extension == "cc") { "c++" } else { "cc" };
    let probe = leeward(&[compiler, "--version"]);
    if !probe.status.success() {
        eprintln!("skipped: no `leeward {compiler}` here: {}", text(&probe.stderr).trim());
        return None;
    }
    let arguments = [compiler, "-O2", "-g", source.to_str().unwrap(), "-o", program.to_str().unwrap(), "-pthread"];
    let output = leeward(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(program)
}

#[test]
fn what_a_recording_lacks_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = built(folder.path(), "../../profiler/examples/snapshot.cc") else { return };
    let out = folder.path().join("traces");
    let (out, program) = (out.to_str().unwrap(), program.to_str().unwrap());
    // A disk that is full, as far as the program can tell: files may not grow beyond 16 KB.
    let line = format!(
        "ulimit -f 16; exec {} profile record --out {out} -- {program} /dev/null",
        env!("CARGO_BIN_EXE_leeward")
    );
    let mut said = String::new();
    for _ in 0..5 {
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        // Where the profiler's own thread is kept from its CPU, there is too little to write.
        if said.contains("ended early") {
            break;
        }
        std::fs::remove_dir_all(out).unwrap();
    }
    assert!(said.contains("ended early (writing failed)"), "{said}");
    let trace = std::fs::read_dir(out).unwrap().next().unwrap().unwrap().path();
    let info = json(&["profile", "info", trace.to_str().unwrap(), "--json"]);
    assert_eq!(info["end"], "writing failed");

    // A program that has no calls to record, and one that fails.
    let output = leeward(&["profile", "record", "--out", out, "--", "true"]);
    let said = text(&output.stderr);
    assert!(
        output.status.success() && said.contains("no call of a function was recorded; true must be built"),
        "{said}"
    );
    let output = leeward(&["profile", "record", "--out", out, "--", program]);
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("ended with exit status: 2"));
}

/// Records a program until `found` is satisfied with what `tail` and `timeline` say: a busy machine hides a planted bug
/// behind its own now and then.
fn hunted(source: &str, function: &str, found: impl Fn(&Value, &Value) -> bool) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = built(folder.path(), source) else { return };
    let (mut last, mut steady) = (String::new(), false);
    for attempt in 0..5 {
        let out = folder.path().join(format!("traces{attempt}"));
        let scratch = folder.path().join("scratch");
        let arguments = [
            "profile",
            "record",
            "--out",
            out.to_str().unwrap(),
            "--",
            program.to_str().unwrap(),
            scratch.to_str().unwrap(),
        ];
        let recorded = leeward(&arguments);
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        let trace = std::fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
        let trace = trace.to_str().unwrap();
        let tail = json(&["profile", "tail", trace, "--request-fn", function, "--json"]);
        let timeline = json(&["profile", "timeline", trace, "--request-fn", function, "--json"]);
        if found(&tail, &timeline) {
            return;
        }
        // Where the profiler's own thread was kept from its CPU, times are as wrong as the recording says they are.
        let info = json(&["profile", "info", trace, "--json"]);
        steady |= info["notes"].as_array().is_some_and(|notes| notes.iter().all(|note| note["level"] == 0));
        last = format!("{tail:#}");
    }
    assert!(!steady, "not found: {last}");
    eprintln!("skipped: this machine is too busy to record anything");
}

#[test]
fn the_snapshot_thread_behind_the_mutex_is_found() {
    hunted("../../profiler/examples/snapshot.cc", "request_handler", |tail, timeline| {
        let first = &tail["findings"][0];
        let waiting = first["cause"].as_str().unwrap_or_default();
        let place = first["holders"][0]["place"].as_str().unwrap_or_default();
        let story = timeline["waits"].as_array().into_iter().flatten();
        let blamed = story
            .filter_map(|story| story["holders"][0]["place"].as_str())
            .any(|place| place.contains("snapshot at snapshot.cc:"));
        waiting.starts_with("waiting for a mutex, request_handler")
            && place.contains("snapshot at snapshot.cc:")
            && blamed
    });
}

#[test]
fn a_function_that_is_slow_on_a_rare_input_is_found() {
    hunted("tests/profiled/rare.c", "handle", |tail, timeline| {
        let bars = timeline["rows"][0]["bars"].as_array();
        tail["findings"][0]["cause"]
            .as_str()
            .is_some_and(|cause| cause.contains("parse_rare") || cause.contains("spin"))
            && bars.is_some_and(|bars| bars.iter().any(|bar| bar["name"] == "parse_rare"))
    });
}

#[test]
fn a_thread_that_loses_its_cpu_is_found() {
    hunted("tests/profiled/descheduled.c", "handle", |tail, timeline| {
        if timeline["scheduler"] == false {
            eprintln!("skipped: no scheduler events here");
            return true;
        }
        let bars = timeline["rows"][0]["bars"].as_array();
        tail["findings"][0]["cause"] == "off the CPU, though it could run"
            && bars.is_some_and(|bars| bars.iter().any(|bar| bar["look"] == "descheduled"))
    });
}
