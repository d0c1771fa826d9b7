//! Requests that are calls of a function with a name: its probes in all recorded processes.
//!
//! Contains no program.

use std::collections::BTreeSet;

use super::bpf::{Probe, ProgramError, RunningProgram, Uprobe, UprobePmu};
use super::calls::{CallPrograms, StackRules};
use super::report::Shared;
use super::symbols::{self, Function};
use super::targets::Targets;
use super::traps::TrapCosts;
use crate::record::SourceError;

/// Probes at the calls of a function.
#[derive(Debug)]
pub(super) struct FunctionProbes {
    name: String,
    pmu: UprobePmu,
    costs: TrapCosts,
    native: CallPrograms,
    go: CallPrograms,
    functions: Vec<(u32, Function)>,
    /// Processes that were searched, and have not ended.
    processes: BTreeSet<u32>,
    /// What the search in the first processes found.
    found: Vec<Function>,
    /// While recording is on, with their processes.
    probes: Option<Vec<(u32, Probe)>>,
}

/// Processes whose calls are recorded at a time.
const PROCESSES_MAX: usize = 256;

/// Why a function can't be probed.
pub(super) enum FunctionError {
    /// Its name, or the process.
    Source(SourceError),
    /// The kernel refuses.
    Program(ProgramError),
}

impl From<ProgramError> for FunctionError {
    fn from(error: ProgramError) -> FunctionError {
        FunctionError::Program(error)
    }
}

impl FunctionProbes {
    pub(super) fn load(name: &str, targets: &Targets, shared: &Shared) -> Result<FunctionProbes, FunctionError> {
        let no_pmu = |source| ProgramError::Attach { place: "uprobe".into(), source };
        let pmu = UprobePmu::find().map_err(no_pmu)?;
        Ok(FunctionProbes {
            name: name.to_string(),
            costs: TrapCosts::measure(&pmu),
            pmu,
            native: CallPrograms::load(StackRules::Native, targets, shared)?,
            go: CallPrograms::load(StackRules::Go, targets, shared)?,
            functions: Vec::new(),
            processes: BTreeSet::new(),
            found: Vec::new(),
            probes: None,
        })
    }

    /// Adds a process.
    pub(super) fn attach(&mut self, process: u32) -> Result<(), FunctionError> {
        self.processes.insert(process);
        let found = symbols::find(process, &self.name).map_err(FunctionError::Source)?;
        self.found.extend(found.iter().cloned());
        self.add(process, found)
    }

    /// Forgets the processes that have ended, and adds children that have come: those of the same
    /// program with what was found in their parents, others by a search. One that has ended by now,
    /// or has no such function, has no calls to record.
    pub(super) fn follow(&mut self, present: &BTreeSet<u32>) {
        self.processes.retain(|process| present.contains(process));
        self.functions.retain(|(process, _)| present.contains(process));
        if let Some(probes) = &mut self.probes {
            probes.retain(|(process, _)| present.contains(process));
        }
        for process in present {
            if self.processes.len() < PROCESSES_MAX && self.processes.insert(*process) {
                let mut found = symbols::of_same_files(*process, &self.found).unwrap_or_default();
                if found.is_empty() {
                    found = symbols::find(*process, &self.name).unwrap_or_default();
                }
                drop(self.add(*process, found));
            }
        }
    }

    fn add(&mut self, process: u32, found: Vec<Function>) -> Result<(), FunctionError> {
        for function in found {
            if let Some(mut probes) = self.probes.take() {
                let added = self.probe(process, &function, &mut probes);
                self.probes = Some(probes);
                added?;
            }
            self.functions.push((process, function));
        }
        Ok(())
    }

    /// Lets the programs run, or stops them.
    pub(super) fn set_recording(&mut self, is_on: bool) {
        self.probes = None;
        if is_on {
            let mut probes = Vec::new();
            // A process that has ended by now has no calls any more.
            self.functions.iter().for_each(|(process, function)| drop(self.probe(*process, function, &mut probes)));
            self.probes = Some(probes);
        }
    }

    /// Returns the programs.
    pub(super) fn programs(&self) -> Vec<RunningProgram<'_>> {
        let TrapCosts { step, at_return, .. } = self.costs;
        let FunctionProbes { native, go, .. } = self;
        // A probe at a return replaces the return address: that needs a trap at the first
        // instruction, which it shares with the other program. In Go a return is an instruction.
        [(&native.entry, self.entry_cost()), (&native.exit, at_return), (&go.entry, step), (&go.exit, step)]
            .map(|(program, around)| RunningProgram { program, around })
            .to_vec()
    }

    /// Returns what a call costs in nanoseconds.
    pub(super) fn cost(&self) -> u64 {
        self.entry_cost() + self.costs.at_return + 300
    }

    fn entry_cost(&self) -> u64 {
        let are_cheap = self.functions.iter().all(|(_, function)| function.begins_with_push);
        if are_cheap { self.costs.push } else { self.costs.step }
    }

    fn probe(&self, process: u32, function: &Function, probes: &mut Vec<(u32, Probe)>) -> Result<(), ProgramError> {
        let Function { file, offset, rules, returns, .. } = function;
        let programs = if *rules == StackRules::Go { &self.go } else { &self.native };
        let place = |offset, at_return| Uprobe { process, file, offset, at_return, counter: 0 };
        // Returns first: a call whose begin was seen has an end.
        match rules {
            StackRules::Native => probes.push((process, programs.exit.at_uprobe(&place(*offset, true), &self.pmu)?)),
            StackRules::Go => {
                for returns in returns {
                    probes.push((process, programs.exit.at_uprobe(&place(*returns, false), &self.pmu)?));
                }
            }
        }
        probes.push((process, programs.entry.at_uprobe(&place(*offset, false), &self.pmu)?));
        Ok(())
    }
}
