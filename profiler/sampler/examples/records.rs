//! Attaches to a process, and prints how many records came, and the hottest stacks.
//!
//! `records PID [SECONDS] [--frame-pointers | --copies] [--rate HZ] [--children]
//! [--threads]`
//!
//! Contains no symbols: addresses are printed with their module and offset.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use leeward_sampler::perf::{EventScope, PerfOptions, PerfSource, SampleRate, StackMethod};
use leeward_sampler::process::Process;
use leeward_sampler::record::{LeaveReason, Mapping, RecordKind, RecordSource, SourceError, Stack};

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(2);
    }
}

fn run() -> Result<(), SourceError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|found| found == word);
    let after =
        |word: &str| words.iter().position(|found| found == word).and_then(|at| words.get(at + 1)?.parse().ok());
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    let Some(pid) = number(0) else {
        return Err(SourceError::Refused("records PID [SECONDS]".into()));
    };
    let options = PerfOptions {
        rate: after("--rate").map_or(SampleRate::Automatic, SampleRate::Hertz),
        stacks: match (has("--frame-pointers"), has("--copies")) {
            (true, _) => StackMethod::FramePointers,
            (_, true) => StackMethod::Copies,
            _ => StackMethod::Automatic,
        },
        children: has("--children"),
        scope: if has("--threads") { EventScope::Threads } else { EventScope::Automatic },
    };
    let mut source = PerfSource::attach(Process::open(pid)?, options)?;
    let end = Instant::now() + Duration::from_secs(number(1).unwrap_or(5).into());
    let mut seen = RecordSummary::default();
    while Instant::now() < end && !source.is_finished() {
        std::thread::sleep(Duration::from_millis(50));
        source.poll(&mut |record| seen.take(record.thread, record.kind))?;
    }
    seen.print();
    println!("{:#?}\ncost {:?}", source.report(), Duration::from_nanos(source.cost(true)));
    Ok(())
}

/// What came.
#[derive(Default)]
struct RecordSummary {
    counts: BTreeMap<&'static str, u64>,
    samples: HashMap<Stack, u64>,
    waits: HashMap<Stack, u64>,
    modules: BTreeMap<u64, Mapping>,
}

impl RecordSummary {
    fn take(&mut self, _thread: u32, kind: RecordKind) {
        let name = match kind {
            RecordKind::Sample { stack } => {
                *self.samples.entry(stack).or_default() += 1;
                "samples"
            }
            RecordKind::SwitchedOut { reason, stack } => {
                let name = match reason {
                    LeaveReason::Preempted => "preempted",
                    LeaveReason::Waits => "blocked",
                    LeaveReason::Faults => "page fault",
                    LeaveReason::Stopped => "stopped",
                };
                if let Some(stack) = stack.filter(|_| reason != LeaveReason::Preempted) {
                    *self.waits.entry(stack).or_default() += 1;
                }
                name
            }
            RecordKind::SwitchedIn { .. } => "switched in",
            RecordKind::Woken { .. } => "woken",
            RecordKind::Named { .. } => "named",
            RecordKind::Ended => "ended",
            RecordKind::Forked { .. } => "forked",
            RecordKind::Executed => "executed",
            RecordKind::Mapped(mapping) => {
                self.modules.insert(mapping.start, *mapping);
                "mapped"
            }
            RecordKind::Lost { .. } => "lost",
            _ => "others",
        };
        *self.counts.entry(name).or_default() += 1;
    }

    fn print(&self) {
        println!("{:?}", self.counts);
        for (title, stacks) in [("samples", &self.samples), ("waits", &self.waits)] {
            let mut hottest: Vec<_> = stacks.iter().collect();
            hottest.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            println!("{title}: {} different stacks", hottest.len());
            for (stack, count) in hottest.iter().take(5) {
                let frames: Vec<String> = stack.iter().map(|address| self.place(*address)).collect();
                println!("  {count:6}  {} frames: {}", frames.len(), frames.join(" "));
            }
        }
    }

    fn place(&self, address: u64) -> String {
        let module = self.modules.range(..=address).next_back().map(|(_, module)| module);
        match module.filter(|module| address - module.start < module.length) {
            Some(module) => {
                let name = module.path.rsplit('/').next().unwrap_or_default();
                format!("{name}+{:#x}", address - module.start + module.offset)
            }
            None => format!("{address:#x}"),
        }
    }
}
