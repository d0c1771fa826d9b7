//! `leeward cc` and `leeward profile` from outside: real programs, each with a planted latency bug.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use leeward_testkit::require::{Requirement, retry_if_busy};
use leeward_testkit::serial::serial_guard;
use leeward_testkit::wait::until;
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

/// Builds one of the programs with the profiler; `None`, with a note, where that is impossible.
fn build(folder: &Path, source: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let program = folder.join("program");
    let compiler = if source.extension().is_some_and(|extension| extension == "cc") { "c++" } else { "cc" };
    let probe = leeward(&[compiler, "--version"]);
    if !probe.status.success() {
        Requirement::Profiler.missing(text(&probe.stderr));
        return None;
    }
    let arguments = [compiler, "-O2", "-g", source.to_str().unwrap(), "-o", program.to_str().unwrap(), "-pthread"];
    let output = leeward(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(program)
}

#[test]
fn assembly_files_are_built_with_c_files() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_) = build(folder.path(), "../profiler/examples/snapshot.cc") else { return };
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let section = ".section .note.GNU-stack,\"\",%progbits\n";
    write("plain.s", &format!(".globl plain\nplain:\n  ret\n{section}"));
    write("macros.S", &format!("#define NAME macros\n.globl NAME\nNAME:\n  ret\n{section}"));
    write("main.c", "void plain(void), macros(void);\nint main(void) { plain(); macros(); return 0; }\n");
    for options in [
        "-c main.c plain.s macros.S",
        "-g -c plain.s macros.S",
        "-save-temps -c macros.S",
        "main.c plain.s macros.S -o all",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
            .arg("cc")
            .args(options.split(' '))
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{options}: {}", text(&output.stderr));
    }
    assert!(Command::new(folder.path().join("all")).status().unwrap().success());
}

#[test]
fn the_compiler_accepts_what_clang_accepts_without_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let Some(_) = build(here, "../profiler/examples/snapshot.cc") else { return };
    let write = |name: &str, text: &str| std::fs::write(here.join(name), text).unwrap();
    write("lib.c", "int twice(int x) { int s = 0; for (int i = 0; i < 2; i++) s += x; return s; }\n");
    write("main.c", "int twice(int);\nint main(void) { return twice(21) != 42; }\n");
    write("head.h", "int twice(int);\n");
    write("mod.cppm", "export module mod;\nexport int one() { return 1; }\n");
    write("quoted.c", "int main(void) { return sizeof(TEXT) != sizeof(\"two words\"); }\n");
    for (name, line) in [
        ("c.rsp", "-c -O2 -Wall lib.c -o lib.o"),
        ("l.rsp", "-shared lib.o\n-o 'libtwice.so' @more.rsp"),
        ("more.rsp", "-Wl,--no-undefined"),
        ("v.rsp", "--version"),
        ("e.rsp", "-E -dM -x c /dev/null -o /dev/null"),
        ("q.rsp", "-DTEXT=\\\"two\\ words\\\" 'quoted.c' -o quoted"),
        ("ours.rsp", "--leeward-engine=scan -c lib.c -o scan.o"),
        ("ld.rsp", "-shared"),
        ("f.rsp", "-ffreestanding -nostdlib -c lib.c -o free.o"),
    ] {
        write(name, line);
    }
    for line in [
        "cc -fPIC @c.rsp",
        "cc @l.rsp",
        "cc @v.rsp",
        "cc @e.rsp",
        "cc @q.rsp",
        "cc @ours.rsp",
        "cc @f.rsp",
        "cc -fPIC -Wl,-shared -nostartfiles lib.c -o with-wl.so",
        "cc -fPIC -Xlinker -shared -nostartfiles lib.c -o with-x.so",
        "cc -shared -fPIC -Wl,@ld.rsp lib.c -o with-file.so",
        "cc -r lib.o -o part.o",
        "cc head.h -o head.pch",
        "cc -x c-header head.h -o other.pch",
        "c++ -x c++-header head.h -o cxx.pch",
        "cc -verify-pch head.pch",
        "cc -include-pch head.pch -c lib.c -o with-pch.o",
        "c++ -std=c++20 --precompile mod.cppm -o mod.pcm",
        "cc -fsyntax-only lib.c",
        "cc -M lib.c",
        "cc -MM head.h",
        "cc -emit-ast lib.c -o lib.ast",
        "cc -c -o dashes.o -- lib.c",
        "cc --target=bpf -ffreestanding -E lib.c -o /dev/null",
        "cc main.c lib.o -o main",
    ] {
        let (compiler, rest) = line.split_once(' ').unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
            .args([compiler, "-Werror"])
            .args(rest.split(' '))
            .current_dir(here)
            .output()
            .unwrap();
        let printed = text(&output.stderr);
        assert!(output.status.success() && printed.is_empty(), "{line}: {printed}");
    }
    // Libraries do not contain the run-time and its locks; programs do.
    let holds = |name: &str, what: &str| {
        let bytes = std::fs::read(here.join(name)).unwrap();
        bytes.windows(what.len()).any(|part| part == what.as_bytes())
    };
    for name in ["libtwice.so", "with-wl.so", "with-x.so", "with-file.so", "part.o"] {
        assert!(!holds(name, "pthread_mutex_lock"), "{name}");
    }
    assert!(holds("main", "pthread_mutex_lock") && holds("scan.o", "__leeward_scan_wanted"));
    assert!(!holds("free.o", "leeward"), "code without a library is left alone");
    for program in ["main", "quoted"] {
        assert!(Command::new(here.join(program)).status().unwrap().success(), "{program}");
    }
    let refused = leeward(&["cc", "-###", "--", "-no-such.c"]);
    assert!(text(&refused.stderr).contains("./-no-such.c"), "{}", text(&refused.stderr));
}

#[test]
fn a_daemon_keeps_recording_until_it_is_stopped() {
    let _alone = serial_guard();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("daemon.c");
    std::fs::write(&source, DAEMON).unwrap();
    let Some(program) = build(folder.path(), source.to_str().unwrap()) else { return };
    let out = folder.path().join("traces");
    let out = out.to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["profile", "record", "--out", out, "--", program.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(folder.path().join("said")).unwrap())
        .status()
        .unwrap();
    let printed = std::fs::read_to_string(folder.path().join("said")).unwrap();
    let pid = printed.lines().find_map(|line| line.strip_prefix("note: process ")?.split_once(" is still recording"));
    let Some((pid, rest)) = pid else { panic!("{output}: {printed}") };
    assert!(output.success() && rest.contains(&format!("`leeward profile stop {pid}`")), "{output}: {printed}");
    let trace = Path::new(out).join(pid);
    assert!(stdout_of(&["profile", "info", trace.to_str().unwrap()]).contains("is still recording"));
    let stopped = stdout_of(&["profile", "stop", pid]);
    let _ = Command::new("kill").arg(pid).status();
    assert!(stopped.contains("end: recording was stopped"), "{stopped}");
    assert!(stdout_of(&["profile", "stats", trace.to_str().unwrap()]).contains("works"));
}

/// The program checks its files, descriptors and children until its end, and finds them unchanged.
#[test]
fn a_program_goes_on_when_its_recorder_is_killed() {
    let _alone = serial_guard();
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path(), "../profiler/tests/programs/harmless_descriptors.c") else { return };
    for moment in 0..12 {
        let here = folder.path().join(format!("run-{moment}"));
        std::fs::create_dir(&here).unwrap();
        let file = |name: &str| std::fs::File::create(here.join(name)).unwrap();
        let wait: &[&str] = if moment % 3 == 2 { &["--wait"] } else { &[] };
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_leeward"))
            .args([&["profile", "record", "--out", "../traces"], wait, &["--"]].concat())
            .args([program.to_str().unwrap(), "loop"])
            .current_dir(&here)
            .stdout(file("out"))
            .stderr(file("err"))
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", recorder.id());
        let mut child = String::new();
        until("the recorded program", || {
            child = std::fs::read_to_string(&children).unwrap_or_default();
            !child.is_empty()
        });
        sleep(Duration::from_millis(10 * moment));
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        // A program that has ended may stay a zombie for a while.
        let state = Path::new("/proc").join(child.trim()).join("stat");
        let lives = || std::fs::read_to_string(&state).is_ok_and(|state| !state.contains(") Z"));
        until("the program's end", || !lives());
        let out = std::fs::read_to_string(here.join("out")).unwrap();
        // Output of the recorder, if it still runs, comes after the program's.
        assert!(out.starts_with("right\n"), "{moment}: {out}{}", std::fs::read_to_string(here.join("err")).unwrap());
    }
}

/// Leaves a child that works for a minute.
const DAEMON: &str = "\
#include <time.h>
#include <unistd.h>
static volatile long turns;
__attribute__((noinline)) static void works(void) { for (long i = 0; i < 2000000; i++) turns++; }
int main(void) {
    if (fork() != 0) return 0;
    setsid();
    for (int i = 0; i < 6000; i++) { works(); nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); }
    return 0;
}
";

#[test]
fn an_incomplete_recording_is_reported() {
    let _alone = serial_guard();
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path(), "../profiler/examples/snapshot.cc") else { return };
    let out = folder.path().join("traces");
    let (out, program) = (out.to_str().unwrap(), program.to_str().unwrap());
    // Simulates a full disk by a limit of files' size. Several: the last block's size is chance.
    let mut failures = 0;
    for kilobytes in 8..=16 {
        let _ = std::fs::remove_dir_all(out);
        let line = format!(
            "ulimit -f {kilobytes}; exec {} profile record --out {out} -- {program} /dev/null",
            env!("CARGO_BIN_EXE_leeward")
        );
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        let printed = text(&output.stderr);
        assert!(output.status.success(), "{printed}");
        // If the profiler's own thread is kept from its CPU, there is too little to write.
        if printed.contains("recording ends") {
            failures += 1;
            assert!(printed.contains("ended early (writing failed)"), "{kilobytes} KB: {printed}");
            let trace = std::fs::read_dir(out).unwrap().next().unwrap().unwrap().path();
            let info = json(&["profile", "info", trace.to_str().unwrap(), "--json"]);
            assert_eq!(info["end"], "writing failed");
        }
    }
    assert!(failures > 0);

    // A program without calls to record, and one that fails.
    let output = leeward(&["profile", "record", "--out", out, "--", "true"]);
    let printed = text(&output.stderr);
    assert!(
        output.status.success() && printed.contains("no call of a function was recorded; true must be built"),
        "{printed}"
    );
    let output = leeward(&["profile", "record", "--out", out, "--", program]);
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("ended with exit status: 2"));
}

/// Records a program until `found` accepts the output of `tail` and `timeline`, since a busy
/// machine sometimes hides a planted bug behind its own delays.
fn assert_culprit(source: &str, function: &str, found: impl Fn(&Value, &Value) -> bool) {
    let _alone = serial_guard();
    retry_if_busy(|| find_culprit(source, function, &found));
}

/// Records up to five times; an error if the machine was too busy each time.
fn find_culprit(source: &str, function: &str, found: impl Fn(&Value, &Value) -> bool) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path(), source) else { return Ok(()) };
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
        let ask = |command| leeward(&["profile", command, trace, "--request-fn", function, "--json"]);
        let (tail, timeline) = (ask("tail"), ask("timeline"));
        // A clock that stood still for the whole run has recorded no call with a duration, and the
        // output says so.
        if tail.status.success() && timeline.status.success() {
            let [tail, timeline] = [tail.stdout, timeline.stdout].map(|out| serde_json::from_slice(&out).unwrap());
            if found(&tail, &timeline) {
                return Ok(());
            }
            last = format!("{tail:#}");
        } else {
            last = text(&tail.stderr);
        }
        // If the profiler's own thread was kept from its CPU, times are wrong, and the recording
        // notes it.
        let info = json(&["profile", "info", trace, "--json"]);
        steady |= info["notes"].as_array().is_some_and(|notes| notes.iter().all(|note| note["level"] == 0));
    }
    assert!(!steady, "not found: {last}");
    Err("the clock's thread was kept from its CPU in every recording".into())
}

#[test]
fn the_snapshot_thread_behind_the_mutex_is_found() {
    assert_culprit("../profiler/examples/snapshot.cc", "request_handler", |tail, timeline| {
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
    assert_culprit("tests/profiled/rare.c", "handle", |tail, timeline| {
        let bars = timeline["rows"][0]["bars"].as_array();
        tail["findings"][0]["cause"]
            .as_str()
            .is_some_and(|cause| cause.contains("parse_rare") || cause.contains("spin"))
            && bars.is_some_and(|bars| bars.iter().any(|bar| bar["name"] == "parse_rare"))
    });
}

#[test]
fn a_thread_that_loses_its_cpu_is_found() {
    assert_culprit("tests/profiled/descheduled.c", "handle", |tail, timeline| {
        if timeline["scheduler"] == false {
            Requirement::Scheduler.missing("the recording has no scheduler events");
            return true;
        }
        let bars = timeline["rows"][0]["bars"].as_array();
        tail["findings"][0]["cause"] == "off the CPU, though it could run"
            && bars.is_some_and(|bars| bars.iter().any(|bar| bar["look"] == "descheduled"))
    });
}

/// Processes that each keep a CPU busy until this is dropped.
struct BusyProcesses(Vec<std::process::Child>);

impl BusyProcesses {
    fn start(count: usize) -> BusyProcesses {
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        BusyProcesses((0..count).map(|_| busy()).collect())
    }
}

impl Drop for BusyProcesses {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Records 200 calls of 2 ms beside this many busy neighbours; an error describes a wrong
/// recording.
fn record_beside(program: &Path, folder: &Path, neighbours: usize) -> Result<(), String> {
    let out = folder.join(format!("beside{neighbours}"));
    let _ = std::fs::remove_dir_all(&out);
    let _busy = BusyProcesses::start(neighbours);
    let printed = stdout_of(&["profile", "record", "--out", out.to_str().unwrap(), "--", program.to_str().unwrap()]);
    let truth = printed.lines().find_map(|line| line.strip_prefix("median ")?.parse::<f64>().ok()).unwrap();
    let trace = std::fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    let trace = trace.to_str().unwrap();
    let missing = json(&["profile", "info", trace, "--json"])["missing"].clone();
    let stats = json(&["profile", "stats", trace, "--json", "-p", "50"]);
    let row = stats["rows"].as_array().into_iter().flatten().find(|row| row["name"] == "works").cloned();
    let row = row.unwrap_or_default();
    let (count, median) = (row["count"].as_f64().unwrap_or_default(), row["p50"].as_f64().unwrap_or_default());
    let (lost, reported) = (1.0 - count / 200.0, missing["calls"].as_f64().unwrap_or_default());
    // The share is relative to all calls, and these are nearly all calls with a duration.
    let announced = reported > lost / 2.0 && reported < lost * 2.0;
    let right = (median / truth - 1.0).abs() < 0.1;
    let what = format!("{neighbours} neighbours: {count} of 200, median {median} and not {truth}, missing {missing}");
    eprintln!("{what}");
    if (count >= 198.0 && right) || announced { Ok(()) } else { Err(what) }
}

#[test]
fn calls_are_measured_beside_busy_processes() {
    let _alone = serial_guard();
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path(), "tests/profiled/busy.c") else { return };
    for neighbours in 1..=3 {
        // A host may disturb a virtual machine, but hardly three times in a row.
        let tries: Vec<_> = (0..3).map_while(|_| record_beside(&program, folder.path(), neighbours).err()).collect();
        assert!(tries.len() < 3, "{tries:#?}");
    }
}
