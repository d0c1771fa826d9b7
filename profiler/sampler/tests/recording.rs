//! Records real programs: their stacks, switches, threads, children and ends.
//!
//! Contains no test of what recording costs.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use leeward_sampler::perf::{EventScope, PerfOptions, PerfSource, SampleRate, StackMethod};
use leeward_sampler::process::Process;
use leeward_sampler::record::{LeaveReason, Mapping, Record, RecordKind, RecordSource, SourceError};
use object::{Object, ObjectSymbol};

/// A program that must not hang tests is given up after this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Compiles the program that is recorded; the C library's own code has no frame pointers.
fn program(with_frame_pointers: bool) -> &'static Path {
    static WITH: OnceLock<PathBuf> = OnceLock::new();
    static WITHOUT: OnceLock<PathBuf> = OnceLock::new();
    let (once, name, flags): (_, _, &[&str]) = match with_frame_pointers {
        true => (&WITH, "with", &["-fno-omit-frame-pointer"]),
        false => (&WITHOUT, "without", &["-fomit-frame-pointer"]),
    };
    once.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/target.c");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // Other tests' processes may compile at the same time.
        let built = folder.join(format!("target-{name}-{}", std::process::id()));
        let status =
            Command::new("cc").args(["-O2", "-g", "-pthread"]).args(flags).arg("-o").arg(&built).arg(source).status();
        assert!(status.expect("a C compiler").success());
        built
    })
}

/// A running program, killed at the end of the test.
struct Running(Child);

impl Running {
    fn start(program: &Path, arguments: &[&str]) -> Running {
        Running(Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn attach(&self, options: PerfOptions) -> PerfSource {
        PerfSource::attach(Process::open(self.0.id()).unwrap(), options).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Names of a program's functions.
struct Names {
    functions: Vec<(u64, u64, String)>,
    mappings: Vec<Mapping>,
}

impl Names {
    fn of(program: &Path) -> Names {
        let data = std::fs::read(program).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let functions = file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
        let functions = functions.map(|symbol| (symbol.address(), symbol.size(), symbol.name().unwrap().to_owned()));
        Names { functions: functions.collect(), mappings: Vec::new() }
    }

    fn note(&mut self, record: &Record, program: &Path) {
        if let RecordKind::Mapped(mapping) = &record.kind
            && *mapping.path == *program.to_str().unwrap()
        {
            self.mappings.push((**mapping).clone());
        }
    }

    /// Names of a stack's functions in the program, the innermost first.
    fn frames(&self, stack: &[u64]) -> Vec<&str> {
        let name = |(depth, address): (usize, &u64)| {
            // A return address may be behind a function's end.
            let address = address - u64::from(depth > 0);
            let mapping =
                self.mappings.iter().rev().find(|mapping| address.wrapping_sub(mapping.start) < mapping.length)?;
            let offset = address - mapping.start + mapping.offset;
            let holds = |(start, size, _): &&(u64, u64, String)| offset >= *start && offset - start < *size;
            self.functions.iter().find(holds).map(|(_, _, name)| name.as_str())
        };
        stack.iter().enumerate().filter_map(name).collect()
    }
}

/// Polls until `done` says so.
fn poll_until(source: &mut PerfSource, mut done: impl FnMut(Record) -> bool) {
    let begin = Instant::now();
    let mut is_done = false;
    while !is_done && !source.is_finished() {
        assert!(begin.elapsed() < PATIENCE, "nothing came: {:?}", source.report());
        std::thread::sleep(Duration::from_millis(10));
        source.poll(&mut |record| is_done |= done(record)).unwrap();
    }
}

/// Share of samples whose functions begin with these, of the first hundred.
fn share_of_samples(program: &Path, arguments: &[&str], stacks: StackMethod, expected: &[&str]) -> f64 {
    let running = Running::start(program, arguments);
    let scope = EventScope::default();
    let mut source = running.attach(PerfOptions { stacks, rate: SampleRate::Hertz(1000), children: false, scope });
    let mut names = Names::of(program);
    let (mut all, mut good) = (0, 0);
    let mut seen: HashMap<String, u64> = HashMap::new();
    poll_until(&mut source, |record| {
        names.note(&record, program);
        if let RecordKind::Sample { stack } = &record.kind {
            let mut frames = names.frames(stack);
            if stacks == StackMethod::FramePointers {
                // The caller of a function without a frame is missing.
                frames.retain(|name| *name != "middle");
            }
            // The first samples may be of the loader.
            if frames.contains(&"innermost") {
                all += 1;
                good += u64::from(frames.starts_with(expected));
                *seen.entry(frames.join(" ")).or_default() += 1;
            }
        }
        all >= 100
    });
    let share = good as f64 / all as f64;
    assert!(share > 0.9, "{share} of {all}: {seen:?}");
    share
}

const SPIN: [&str; 5] = ["innermost", "middle", "outermost", "spin", "main"];

#[test]
fn stacks_by_frame_pointers() {
    let expected = ["innermost", "outermost", "spin", "main"];
    share_of_samples(program(true), &["spin"], StackMethod::FramePointers, &expected);
}

#[test]
fn stacks_by_copies() {
    share_of_samples(program(false), &["spin"], StackMethod::Copies, &SPIN);
    share_of_samples(program(true), &["spin"], StackMethod::Copies, &SPIN);
}

#[test]
fn stacks_of_c_programs_are_copied() {
    let running = Running::start(program(false), &["spin"]);
    assert_eq!(running.attach(PerfOptions::default()).report().stacks, StackMethod::Copies);
}

#[test]
fn deep_recursion() {
    let expected: Vec<&str> = std::iter::once("innermost").chain(std::iter::repeat_n("recurse", 100)).collect();
    share_of_samples(program(false), &["recurse", "100"], StackMethod::Copies, &expected);
    // Deeper than the copy and the limit of frames.
    share_of_samples(program(false), &["recurse", "20000"], StackMethod::Copies, &expected);
}

#[test]
fn signal_handlers() {
    let expected = ["innermost", "middle", "handler", "interrupted", "main"];
    share_of_samples(program(false), &["signal"], StackMethod::Copies, &expected);
}

#[test]
fn signal_handlers_on_another_stack() {
    // What they interrupted is on a stack that was not copied.
    share_of_samples(program(false), &["altstack"], StackMethod::Copies, &["innermost", "middle", "handler"]);
}

#[test]
fn blocked_threads_have_stacks() {
    blocked(EventScope::Automatic);
}

#[test]
fn blocked_threads_have_stacks_by_events_of_threads() {
    blocked(EventScope::Threads);
}

fn blocked(scope: EventScope) {
    let program = program(false);
    let running = Running::start(program, &["block"]);
    let mut source = running.attach(PerfOptions { scope, ..PerfOptions::default() });
    assert_eq!(source.report().whole_cpus, scope == EventScope::Automatic);
    let mut names = Names::of(program);
    let (mut switches, mut good, mut times) = (0, 0, Vec::new());
    poll_until(&mut source, |record| {
        names.note(&record, program);
        times.push(record.time);
        if let RecordKind::SwitchedOut { reason: LeaveReason::Waits, stack: Some(stack) } = &record.kind {
            switches += 1;
            good += i32::from(names.frames(stack).starts_with(&["block", "block_outer", "sleeper", "main"]));
        }
        switches >= 50
    });
    assert!(good * 10 >= switches * 9, "{good} of {switches}");
    assert!(times.is_sorted());
}

#[test]
fn many_threads() {
    record_many_threads(EventScope::Automatic);
    record_many_threads(EventScope::Threads);
}

fn record_many_threads(scope: EventScope) {
    let mut running = Running::start(program(false), &["threads", "500"]);
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut source = running.attach(PerfOptions { scope, ..PerfOptions::default() });
    let mut threads = HashMap::new();
    poll_until(&mut source, |record| {
        if matches!(record.kind, RecordKind::SwitchedOut { .. }) {
            *threads.entry(record.thread).or_insert(0) += 1;
        }
        threads.len() >= 501
    });
}

#[test]
fn threads_that_are_born_later_have_names_and_ends() {
    births(EventScope::Automatic);
    births(EventScope::Threads);
}

fn births(scope: EventScope) {
    let running = Running::start(program(false), &["births"]);
    let mut source = running.attach(PerfOptions { scope, ..PerfOptions::default() });
    let (mut named, mut ended, mut sampled) = (0, 0, 0);
    let pid = running.0.id();
    poll_until(&mut source, |record| {
        let is_new = record.thread != pid;
        match record.kind {
            RecordKind::Named { name } if is_new => named += i32::from(&*name == "brief" || name.starts_with("target")),
            RecordKind::Ended if is_new => ended += 1,
            RecordKind::Sample { .. } if is_new => sampled += 1,
            _ => {}
        }
        named >= 20 && ended >= 10 && sampled >= 10
    });
}

#[test]
fn children_are_recorded_if_asked() {
    let program = program(false);
    let running = Running::start(program, &["forks"]);
    let pid = running.0.id();
    let both = [EventScope::Automatic, EventScope::Threads];
    for (children, scope) in [true, false].into_iter().flat_map(|children| both.map(|scope| (children, scope))) {
        let mut source = running.attach(PerfOptions { children, scope, ..PerfOptions::default() });
        let mut names = Names::of(program);
        let (mut forked, mut sampled, mut good) = (0, 0, 0);
        poll_until(&mut source, |record| {
            names.note(&record, program);
            match &record.kind {
                RecordKind::Forked { .. } => forked += 1,
                RecordKind::Sample { stack } if record.process != pid => {
                    let frames = names.frames(stack);
                    if frames.first() == Some(&"innermost") {
                        sampled += 1;
                        good += i32::from(frames.starts_with(&["innermost", "middle", "outermost", "main"]));
                    }
                }
                _ => {}
            }
            forked >= 20 && (!children || sampled >= 10)
        });
        assert_eq!(sampled > 0, children);
        assert!(good * 10 >= sampled * 9, "{good} of {sampled}");
    }
}

#[test]
fn a_program_that_becomes_another_is_followed() {
    let program = program(false);
    let running = Running::start(program, &["exec"]);
    let mut source = running.attach(PerfOptions::default());
    let mut names = Names::of(program);
    let (mut executed, mut good) = (false, 0);
    poll_until(&mut source, |record| {
        if record.kind == RecordKind::Executed {
            executed = true;
            names.mappings.clear();
        }
        names.note(&record, program);
        if let RecordKind::Sample { stack } = &record.kind {
            good += i32::from(executed && names.frames(stack).starts_with(&SPIN));
        }
        good >= 20
    });
    assert!(executed && good >= 20);
}

#[test]
fn the_end_of_the_process_ends_the_recording() {
    let mut running = Running::start(program(false), &["end", "300"]);
    let mut source = running.attach(PerfOptions::default());
    let mut ended = false;
    poll_until(&mut source, |record| {
        ended |= record.kind == RecordKind::Ended;
        false
    });
    assert!(ended && source.is_finished());
    running.0.wait().unwrap();
    source.poll(&mut |_| {}).unwrap();
    let error = Process::open(running.0.id()).unwrap_err();
    assert!(matches!(error, SourceError::NoProcess(_)));
}

#[test]
fn a_deleted_program_is_unwound() {
    let copy = tempfile::tempdir().unwrap();
    let copied = copy.path().join("deleted");
    // Not by this process: another test may fork while the file is open for writing, and a program
    // whose file is open can't be started.
    assert!(std::process::Command::new("cp").arg(program(false)).arg(&copied).status().unwrap().success());
    let running = Running::start(&copied, &["spin"]);
    let mut names = Names::of(&copied);
    std::fs::remove_file(&copied).unwrap();
    let mut source = running.attach(PerfOptions { stacks: StackMethod::Copies, ..PerfOptions::default() });
    let deleted = format!("{} (deleted)", copied.display());
    let mut good = 0;
    poll_until(&mut source, |record| {
        names.note(&record, Path::new(&deleted));
        if let RecordKind::Sample { stack } = &record.kind {
            good += i32::from(names.frames(stack).starts_with(&SPIN));
        }
        good >= 20
    });
}
