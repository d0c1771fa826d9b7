//! Folded stacks (`outer;inner nanoseconds`) of requests: latency flame graphs, of all requests or
//! of the slowest.

use std::collections::BTreeMap;
use std::io::Write;

use super::{ExportError, Options, follow};
use crate::analysis::Activity;
use crate::analysis::activity::walk_stacks;
use crate::analysis::requests::NO_THREAD;
use crate::format::event::OffCpu;
use crate::symbols::Symbols;
use crate::trace::{ProgressCallback, Trace};

/// Limit of different stacks; the time of further stacks is added to one entry.
const STACKS: usize = 1 << 18;
const OTHERS: &str = "(more stacks than can be kept)";

pub(super) fn export(
    trace: &Trace,
    symbols: &mut Symbols,
    options: &Options,
    out: &mut dyn Write,
    watch: &mut ProgressCallback<'_>,
) -> Result<(), ExportError> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    follow(trace, symbols, &options.selection, watch, |request, history, symbols| {
        if request.latency() < options.slower_than {
            return;
        }
        let mut add = |stack: String, nanos: u64| {
            let stack = if stacks.len() < STACKS || stacks.contains_key(&stack) { stack } else { OTHERS.into() };
            *stacks.entry(stack).or_default() += nanos;
        };
        for work in request.worked() {
            let mut intervals = history.between(work.thread, work.start, work.end);
            walk_stacks(&mut intervals, work.start, work.end, |stack, from, to| {
                let names = stack.iter().map(|activity| name(symbols, activity, request.end));
                let line = std::iter::once("request".to_string()).chain(names).collect::<Vec<_>>().join(";");
                add(line, to - from);
            });
        }
        for work in request.work.iter().filter(|work| work.thread == NO_THREAD) {
            add("request;waiting for an event or another thread".into(), work.end.saturating_sub(work.start));
        }
        for (queue, from, to) in &request.queued {
            add(format!("request;{}", one_frame(symbols.queue(*queue, request.end))), to - from);
        }
    })?;
    for (stack, nanos) in stacks {
        writeln!(out, "{stack} {nanos}")?;
    }
    Ok(())
}

fn name(symbols: &mut Symbols, activity: &Activity, time: u64) -> String {
    let name = match *activity {
        Activity::Call { function, .. } => symbols.location(function, time).function(),
        Activity::Wait { object, site, .. } => {
            format!("waiting for a {}, {}", object.name(), symbols.site(site, time).describe())
        }
        Activity::Off(OffCpu::Blocked) => "off the CPU: blocked".into(),
        Activity::Off(OffCpu::Runnable) => "off the CPU: runnable".into(),
        Activity::Off(OffCpu::Stopped) => "off the CPU: stopped".into(),
    };
    one_frame(name)
}

/// Returns a name without the characters that end a frame or a line.
fn one_frame(name: String) -> String {
    name.replace([';', '\n'], ",")
}
