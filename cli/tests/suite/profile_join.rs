//! `leeward profile join` from outside: synthetic traces of two processes.

use std::path::Path;
use std::process::{Command, Output};

use leeward_profile::format::EventKind;
use leeward_profile::format::context::ContextField;
use leeward_profile::format::event::Extent;
use leeward_profile::format::write::{TraceConfig, TraceWriter};
use serde_json::Value;

fn join(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leeward")).args(["profile", "join"]).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes 200 requests of a front, each with a call to a store; two are slow there. The store's
/// clock is 5 s ahead.
fn write(folder: &Path) {
    write_with(folder, 0);
}

/// The same, with calls of each request to processes that are not recorded.
fn write_with(folder: &Path, unrecorded: u64) {
    let writer = |name: &str, number: u8| {
        let mut config = TraceConfig::default();
        (config.header.id, config.header.pid) = ([number; 16], u32::from(number));
        config.header.command = format!("/srv/{name} --verbose");
        TraceWriter::create(&folder.join(name), &config).unwrap()
    };
    let (mut front, mut store) = (writer("front", 1), writer("store", 2));
    for id in 1..=200_u64 {
        let at = id * 1_000_000;
        let took = if id % 100 == 0 { 400_000 } else { 20_000 };
        let put = |writer: &mut TraceWriter, time, kind| writer.event(0, time, kind).unwrap();
        let call = |duration| EventKind::Call { function: 0x100, caller: 0, duration, extent: Extent::Whole };
        let context = |field, value| EventKind::RequestContext { id, field, value };
        put(&mut front, at, EventKind::RequestStart { id, queue: None });
        put(&mut front, at, context(ContextField::TraceLow, id));
        put(&mut front, at + 1_000, EventKind::RemoteCall { id, span: id + 500, peer: 0 });
        for span in (1..=unrecorded).map(|call| call << 32 | id) {
            put(&mut front, at + 2_000, EventKind::RemoteCall { id, span, peer: 0 });
            put(&mut front, at + 3_000, EventKind::RemoteAnswer { id, span });
        }
        put(&mut front, at + 9_000 + took, EventKind::RemoteAnswer { id, span: id + 500 });
        put(&mut front, at + 10_000 + took, EventKind::RequestEnd { id });
        let at = at + 5_000_000_000 + 4_000;
        put(&mut store, at, EventKind::RequestStart { id, queue: None });
        put(&mut store, at, context(ContextField::TraceLow, id));
        put(&mut store, at, context(ContextField::Parent, id + 500));
        put(&mut store, at + took - 10, call(took - 20));
        put(&mut store, at + took, EventKind::RequestEnd { id });
    }
    front.finish(300_000_000).unwrap();
    store.finish(5_300_000_000).unwrap();
}

#[test]
fn a_folder_of_recordings_is_joined() {
    let folder = tempfile::tempdir().unwrap();
    let traces = folder.path().join("traces");
    write(&traces);
    let (traces, out) = (traces.to_str().unwrap(), folder.path().join("out"));
    let output = join(&[traces, "--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for expected in [
        "2 of 200 requests of front took 410 µs or longer",
        "100 % of the difference is in store",
        "In store, 2 requests of the slowest beside 198 of the others:",
        "in 0x100",
        "The slowest, trace 00000000000000000000000000000064:",
        "The clock of store was aligned by 200 calls, to within",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let page = std::fs::read_to_string(out.join("trace.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("store: requests"));
    let perfetto = std::fs::read(out.join("trace.pftrace")).unwrap();
    assert!(text(&perfetto).contains("call to store"));

    let output = join(&[traces, "--json", "--trace", "00-00000000000000000000000000000007-0000000000000001-01"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["tail"]["steps"][1]["process"], "store");
    assert_eq!(value["trace"]["children"][0]["process"], "store");
    assert_eq!(value["trace"]["id"], 7);
    assert_eq!(value["processes"][1]["clock"]["source"], "calls");
}

#[test]
fn lines_that_a_tree_leaves_out_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    // The front and the store are a line each, and a tree has 40.
    for (unrecorded, left_out) in [(38, None), (39, Some("and 1 more request\n")), (60, Some("and 22 more requests\n"))]
    {
        let traces = folder.path().join(unrecorded.to_string());
        write_with(&traces, unrecorded);
        let shown = text(&join(&[traces.to_str().unwrap()]).stdout);
        assert_eq!(shown.lines().find(|line| line.starts_with("and ")), left_out.map(str::trim_end), "{shown}");
    }
}

#[test]
fn recordings_that_had_only_begun_are_left_out_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let segment = |name: &str| folder.path().join(name).join("00000000.lwt");
    let whole = std::fs::read(segment("front")).unwrap();
    for (name, length) in [("created", 0), ("begun", 40)] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        std::fs::write(segment(name), &whole[..length]).unwrap();
    }
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output = join(&[folder.path().to_str().unwrap()]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.matches("left out").count() == 2, "{said}");
    // The user named these.
    for name in ["created", "begun"] {
        let output = join(&[&path("front"), &path("store"), &path(name)]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
}

#[test]
fn wrong_input_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let traces = folder.path().join("traces");
    write(&traces);
    let path = |name: &str| traces.join(name).to_str().unwrap().to_string();
    let refused = |arguments: &[&str], reason: &str| {
        let output = join(arguments);
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains(reason), "{arguments:?}: {told}");
    };
    let (front, store) = (path("front"), path("store"));
    refused(&[], "TRACE");
    refused(&[&front], "`join` takes 2 to 64 recordings; this is 1");
    refused(&[&front, &store, &front], "are the same recording");
    refused(&[&front, folder.path().join("none").to_str().unwrap()], "none");
    refused(&[&front, folder.path().to_str().unwrap()], "holds no trace");
    refused(&[&front, &store, "--trace", "7"], "32 hexadecimal digits");
    refused(
        &[&front, &store, "--trace", "000000000000000000000000000000ff"],
        "no request of front belongs to the trace",
    );
}
