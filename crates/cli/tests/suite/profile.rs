//! `leeward profile` from outside: synthetic traces through every subcommand.

use std::path::Path;
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
    writer.labels(&[(1, "GET"), (2, "KEYS")]).unwrap();
    for id in 1..=200_u64 {
        let (start, wait) = (id * 1_000_000, if id % 100 == 0 { 300_000 } else { 0 });
        let end = start + 10_000 + wait;
        writer.event(0, start, What::RequestStart { id, queue: None }).unwrap();
        let label = if wait > 0 { 2 } else { 1 };
        writer.event(0, start, What::RequestLabel { id, label }).unwrap();
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
    assert_eq!((info["counts"]["events"].as_u64(), info["damage"].as_array().map(Vec::len)), (Some(804), Some(0)));
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
    let shown = printed(&["profile", "tail", trace, "--by", "label"]);
    let of = |label: &str| shown.lines().find(|line| line.starts_with(label)).unwrap_or_default().to_string();
    assert!(of("KEYS").contains(" 2 ") && of("GET").contains(" 198 "), "{shown}");
    let labels = json(&["profile", "tail", trace, "--by", "label", "--json"]);
    assert_eq!((&labels["labels"][0]["label"], &labels["labels"][0]["tail"]["requests"]), (&"KEYS".into(), &2.into()));
    assert_eq!(requests["slowest"][0]["label"], "KEYS");
    // Of calls that are taken for requests only the recorded ones are known.
    let shown = printed(&["profile", "tail", trace, "--request-fn", "0x100"]);
    assert!(
        shown.contains("of 200 recorded calls of 0x100 took") && shown.contains("less than 1.00 µs were not recorded"),
        "{shown}"
    );

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
    // A name that is none is no success with nothing in it, whoever asks.
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
        check(&arguments, 2, "recorded were, among others, `0x100`");
    }
    let plainly = Command::new("sleep").arg("60").spawn();
    if let Ok(mut plainly) = plainly {
        check(&["profile", "attach", &plainly.id().to_string()], 2, "it was started plainly");
        plainly.kill().unwrap();
        plainly.wait().unwrap();
    }
    check(&["profile", "attach", "4294967295"], 2, "there is no such process");
    check(&["profile", "record", "--overhead", "200%", "--", "true"], 2, "0.1% to 100%");
    check(&["profile", "record", "--ring", "x,y", "--", "true"], 2, "a number with a unit");
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
