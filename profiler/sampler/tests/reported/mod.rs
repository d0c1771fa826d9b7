//! Records that a test tells to a recorder. Contains no test.

use std::path::Path;

use leeward_sampler::convert::recorder::RecorderConfig;
use leeward_sampler::probe::bpf::RunningProgram;
use leeward_sampler::record::{Record, RecordSource, SourceError};

/// Reports these records, once.
pub(crate) struct Reported(pub(crate) Vec<Record>);

impl RecordSource for Reported {
    fn poll(&mut self, report: &mut dyn FnMut(Record)) -> Result<(), SourceError> {
        self.0.drain(..).for_each(report);
        Ok(())
    }

    fn set_recording(&mut self, _: bool) -> Result<(), SourceError> {
        Ok(())
    }

    fn programs(&self) -> Vec<RunningProgram<'_>> {
        Vec::new()
    }

    fn cost(&self, _: bool) -> u64 {
        0
    }
}

/// A recording with all that there is, into this folder.
pub(crate) fn everything(out: &Path) -> RecorderConfig {
    let (out, disk) = (out.to_path_buf(), 1 << 30);
    RecorderConfig { out, interval: 1_000_000, disk, labels: true, children: true, keep: None }
}
