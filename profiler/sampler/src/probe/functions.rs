//! Requests that are calls of a function with a name: its probes in all recorded processes.
//!
//! Contains no program.

use super::bpf::{Probe, ProgramError, Uprobe, UprobePmu};
use super::calls::{CallPrograms, StackRules};
use super::report::Shared;
use super::symbols::{self, Function};
use super::targets::Targets;
use crate::record::SourceError;

/// Probes at the calls of a function.
#[derive(Debug)]
pub(super) struct FunctionProbes {
    name: String,
    pmu: UprobePmu,
    native: CallPrograms,
    go: CallPrograms,
    probes: Vec<Probe>,
}

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
        Ok(FunctionProbes {
            name: name.to_string(),
            pmu: UprobePmu::find().map_err(no_pmu)?,
            native: CallPrograms::load(StackRules::Native, targets, shared)?,
            go: CallPrograms::load(StackRules::Go, targets, shared)?,
            probes: Vec::new(),
        })
    }

    /// Begins in a process.
    pub(super) fn attach(&mut self, process: u32) -> Result<(), FunctionError> {
        for function in symbols::find(process, &self.name).map_err(FunctionError::Source)? {
            self.probe(process, &function)?;
        }
        Ok(())
    }

    fn probe(&mut self, process: u32, function: &Function) -> Result<(), ProgramError> {
        let Function { file, offset, rules, returns } = function;
        let programs = if *rules == StackRules::Go { &self.go } else { &self.native };
        let place = |offset, at_return| Uprobe { process, file, offset, at_return, counter: 0 };
        // Returns first: a call whose begin was seen has an end.
        match rules {
            StackRules::Native => self.probes.push(programs.exit.at_uprobe(&place(*offset, true), &self.pmu)?),
            StackRules::Go => {
                for returns in returns {
                    self.probes.push(programs.exit.at_uprobe(&place(*returns, false), &self.pmu)?);
                }
            }
        }
        self.probes.push(programs.entry.at_uprobe(&place(*offset, false), &self.pmu)?);
        Ok(())
    }
}
