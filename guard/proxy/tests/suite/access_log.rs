//! The access log of a running proxy. Does not contain its escaping, which has unit tests.

use crate::harness::{Backend, Hold, connect, settle, start};
use crate::http2::harness::{Client, answer, request, run};
use leeward_observe::Source;
use leeward_proxy::settings::file::FileSettings;
use leeward_testkit::wait::until;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("leeward-log-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn keys(format: &str, path: &Path) -> String {
    format!("access-log = \"{format}\"\naccess-log-file = \"{}\"\n", path.display())
}

/// The lines of a file, once there are so many.
fn lines(path: &Path, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(path).unwrap_or_default();
    until("the log has its lines", || read().lines().count() >= count && read().ends_with('\n'));
    read().lines().map(String::from).collect()
}

fn json(path: &Path, count: usize) -> Vec<Value> {
    lines(path, count).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_request_has_a_line_at_its_end() {
    let (folder, hold) = (Folder::new(), Hold::default());
    let log = folder.file("log");
    let backend = hold.backend();
    let extra = keys("json", &log) + "[[rule]]\npath = \"/a*\"\nclass = 2\ntenant = 7\n";
    let proxy = start(&[backend.address], &extra);
    let mut client = connect(&proxy);
    client.send(
        "GET /a?x=%221 HTTP/1.1\r\nhost: h\r\nuser-agent: u\"v\r\nx-request-id: id-1\r\n\
         traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n",
    );
    hold.arrived(1);
    assert_eq!(fs::read_to_string(&log).unwrap(), "", "it has not ended");
    hold.open();
    assert_eq!(client.answer().head.status(), 200);
    let line = json(&log, 1).remove(0);
    for (key, value) in [
        ("client", Value::from("127.0.0.1")),
        ("method", "GET".into()),
        ("target", "/a?x=%221".into()),
        ("protocol", "HTTP/1.1".into()),
        ("host", "h".into()),
        ("status", 200.into()),
        ("bytes", 9.into()),
        ("complete", true.into()),
        ("class", 2.into()),
        ("tenant", 7.into()),
        ("user_agent", "u\"v".into()),
        ("request_id", "id-1".into()),
        ("trace_id", "0af7651916cd43dd8448eb211c80319c".into()),
        ("backend", backend.address.to_string().into()),
    ] {
        assert_eq!(line[key], value, "{key} in {line}");
    }
    let ms = |key: &str| line[key].as_f64().unwrap();
    assert!(ms("queue_ms") <= ms("duration_ms") && ms("backend_ms") <= ms("duration_ms"), "{line}");
    // Answers of the proxy's own, and requests that end without one.
    client.send("POST / HTTP/1.1\r\nhost: a\r\nhost: b\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(client.answer().head.status(), 400);
    let line = json(&log, 2).remove(1);
    assert_eq!((&line["status"], &line["reason"]), (&400.into(), &"bad-request".into()));
    assert!(line.get("backend").is_none() && line.get("queue_ms").is_none(), "{line}");
    settle(&proxy);
}

#[test]
fn rejected_cut_and_abandoned_requests_are_logged() {
    let (folder, hold) = (Folder::new(), Hold::default());
    let log = folder.file("log");
    let held = hold.clone();
    let backend = Backend::start(move |exchange| {
        let target = exchange.head.target().to_owned();
        if target == "/cut" {
            exchange.raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc");
            return exchange.close();
        }
        if target == "/gone" {
            return exchange.close();
        }
        held.pass(&target);
        exchange.ok("whole");
    });
    let extra = keys("json", &log) + "limit = \"1\"\n[queue]\nrequests = 1\n";
    let proxy = start(&[backend.address], &extra);
    let mut cut = connect(&proxy);
    cut.send("GET /cut HTTP/1.1\r\nhost: h\r\n\r\n");
    assert!(cut.answer().is_cut);
    let line = json(&log, 1).remove(0);
    assert_eq!((&line["status"], &line["bytes"], &line["complete"]), (&200.into(), &3.into(), &false.into()));
    assert_eq!(line["reason"], "backend-failed");
    let (mut busy, mut waiting, mut full) = (connect(&proxy), connect(&proxy), connect(&proxy));
    busy.send("GET /busy HTTP/1.1\r\nhost: h\r\n\r\n");
    hold.arrived(1);
    waiting.send("GET /waiting HTTP/1.1\r\nhost: h\r\n\r\n");
    crate::harness::queued(&proxy, 1);
    assert_eq!(full.get("/full").head.status(), 503);
    let line = json(&log, 2).remove(1);
    assert_eq!((&line["target"], &line["reason"]), (&"/full".into(), &"concurrency".into()));
    assert!(line["decision"].is_string() && line.get("backend_ms").is_none(), "{line}");
    drop(waiting);
    let line = json(&log, 3).remove(2);
    assert_eq!(
        (&line["target"], &line["status"], &line["complete"], &line["reason"]),
        (&"/waiting".into(), &Value::Null, &false.into(), &"client-left".into())
    );
    hold.open();
    assert_eq!(busy.answer().text(), "whole");
    let busy = json(&log, 4).remove(3);
    assert_eq!((&busy["target"], &busy["bytes"]), (&"/busy".into(), &5.into()));
    connect(&proxy).get("/gone");
    let gone = json(&log, 5).remove(4);
    let backend = backend.address.to_string();
    assert_eq!(
        (&gone["status"], &gone["reason"], &gone["backend"]),
        (&502.into(), &"backend-failed".into(), &backend.into())
    );
}

#[test]
fn a_response_that_is_cut_has_its_reason() {
    for (timeouts, reason) in [("idle = \"100ms\"", "idle-timeout"), ("total = \"1s\"", "total-timeout")] {
        let (folder, backend) = (Folder::new(), unfinished());
        let log = folder.file("log");
        let proxy = start(&[backend.address], &(keys("json", &log) + "[timeouts]\n" + timeouts));
        let mut client = connect(&proxy);
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
        client.rest();
        assert_eq!(json(&log, 1)[0]["reason"], reason);
        settle(&proxy);
    }
    let (folder, backend) = (Folder::new(), unfinished());
    let log = folder.file("log");
    let proxy = start(&[backend.address], &(keys("json", &log) + "[timeouts]\nstop = \"100ms\""));
    let mut clients = [connect(&proxy), connect(&proxy)];
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
        client.head().expect("a head");
    }
    let [leaves, stays] = clients;
    drop(leaves);
    let line = json(&log, 1).remove(0);
    assert_eq!(
        (&line["status"], &line["complete"], &line["reason"]),
        (&200.into(), &false.into(), &"client-left".into())
    );
    proxy.stop();
    assert_eq!(json(&log, 2)[1]["reason"], "stopped");
    drop(stays);
}

/// A backend that begins its answers and does not end them.
fn unfinished() -> Backend {
    Backend::start(|exchange| {
        exchange.message();
        exchange.raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc");
        exchange.wire.rest();
        exchange.close();
    })
}

/// hyper answers them, and tells nothing but the error.
#[test]
fn heads_that_cannot_be_parsed_have_lines() {
    let (folder, backend) = (Folder::new(), Backend::echo());
    let (json_log, combined_log) = (folder.file("json"), folder.file("combined"));
    let proxy = start(&[backend.address], &keys("json", &json_log));
    let combined = start(&[backend.address], &keys("combined", &combined_log));
    let many: String = (0..130).map(|number| format!("x-{number}: 1\r\n")).collect();
    let heads = [
        ("x : 1\r\n".into(), 400),
        ("x: \u{1}\r\n".into(), 400),
        ("content-length: +5\r\n".into(), 400),
        (many, 431),
        (format!("x: {}\r\n", "a".repeat(70_000)), 431),
    ];
    for (count, (head, status)) in heads.into_iter().enumerate() {
        for proxy in [&proxy, &combined] {
            let mut client = connect(proxy);
            client.send(format!("GET / HTTP/1.1\r\nhost: h\r\n{head}\r\n"));
            client.rest();
        }
        let line = json(&json_log, count + 1).remove(count);
        for (key, value) in [
            ("client", Value::from("127.0.0.1")),
            ("method", "-".into()),
            ("status", status.into()),
            ("reason", "bad-request".into()),
        ] {
            assert_eq!(line[key], value, "{key} in {line}");
        }
        let line = lines(&combined_log, count + 1).remove(count);
        assert!(line.contains(&format!("\"- - HTTP\" {status} 0 ")), "{line}");
    }
}

#[test]
fn a_reload_opens_the_file_anew_and_changes_the_format() {
    let folder = Folder::new();
    let (log, old, other) = (folder.file("log"), folder.file("log.1"), folder.file("other"));
    let backend = Backend::echo();
    let proxy = start(&[backend.address], &keys("json", &log));
    let reload = |extra: &str| {
        let text =
            format!("listen = \"127.0.0.1:0\"\nthreads = 2\nslo = \"30s\"\nto = [\"{}\"]\n{extra}", backend.address);
        proxy.reload(FileSettings::parse(&text).unwrap().settings().unwrap())
    };
    let mut client = connect(&proxy);
    client.get("/1");
    lines(&log, 1);
    fs::rename(&log, &old).unwrap();
    client.get("/2");
    lines(&old, 2);
    reload(&keys("json", &log)).unwrap();
    client.get("/3");
    assert!(lines(&log, 1)[0].contains("/3"));
    reload(&keys("combined", &other)).unwrap();
    client.get("/4");
    assert!(lines(&other, 1)[0].contains("\"GET /4 HTTP/1.1\" 200 2 \"-\" \"-\""));
    // A file that can't be opened changes nothing.
    let error = reload(&(keys("json", Path::new("/proc/none/log")) + "limit = \"1\"")).unwrap_err().to_string();
    assert!(error.contains("access-log-file") && error.contains("/proc/none/log"), "{error}");
    client.get("/5");
    assert_eq!(lines(&other, 2).len(), 2);
    reload("").unwrap();
    client.get("/6");
    let metrics = proxy.log_metrics();
    until("all is written", || metrics().contains("{result=\"written\"} 5"));
    drop(client);
    proxy.stop();
    assert_eq!((lines(&old, 2).len(), lines(&log, 1).len(), lines(&other, 2).len()), (2, 1, 2));
}

#[test]
fn a_full_disk_is_counted_and_delays_nobody() {
    let backend = Backend::echo();
    let proxy = start(&[backend.address], &keys("json", Path::new("/dev/full")));
    let mut client = connect(&proxy);
    for count in 0..20 {
        assert_eq!(client.get("/").head.status(), 200, "{count}");
    }
    let metrics = proxy.log_metrics();
    until("the lines are counted", || metrics().contains("{result=\"failed\"} 20"));
    proxy.stop();
}

#[test]
fn a_stop_writes_the_last_lines() {
    let folder = Folder::new();
    let log = folder.file("log");
    let backend = Backend::echo();
    let proxy = start(&[backend.address], &keys("combined", &log));
    let mut client = connect(&proxy);
    for _ in 0..100 {
        client.get("/");
    }
    drop(client);
    proxy.stop();
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 100);
}

#[test]
fn requests_over_http_2_have_lines() {
    let (folder, hold) = (Folder::new(), Hold::default());
    let log = folder.file("log");
    let backend = hold.backend();
    let proxy = start(&[backend.address], &keys("json", &log));
    run(async {
        let mut client = Client::to(&proxy).await;
        let mut begin = async |path| {
            let begun = client.send(request(path), true).await;
            while proxy.admission().snapshot().in_flight == 0 {
                tokio::task::yield_now().await;
            }
            begun
        };
        let (response, mut stream) = begin("/cancelled").await;
        stream.send_reset(h2::Reason::CANCEL);
        drop((response, stream));
        while fs::read_to_string(&log).unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let (response, _) = begin("/a?b").await;
        hold.open();
        assert_eq!(answer(response).await.unwrap().text(), "/a?b");
    });
    let line = json(&log, 1).remove(0);
    assert_eq!(
        (&line["target"], &line["status"], &line["complete"]),
        (&"/cancelled".into(), &Value::Null, &false.into())
    );
    let line = json(&log, 2).remove(1);
    for (key, value) in [
        ("client", Value::from("127.0.0.1")),
        ("method", "GET".into()),
        ("target", "/a?b".into()),
        ("protocol", "HTTP/2.0".into()),
        ("host", "h".into()),
        ("status", 200.into()),
        ("bytes", 4.into()),
        ("complete", true.into()),
        ("backend", backend.address.to_string().into()),
    ] {
        assert_eq!(line[key], value, "{key} in {line}");
    }
    settle(&proxy);
}
