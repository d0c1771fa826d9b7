//! `leeward report`: the page of earlier results, drawn again.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use leeward_experiment::store;

use super::target;
use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::stdout;

/// The command.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let results = store::read(&args.folder)?;
    let file = args.out.clone().unwrap_or_else(|| beside(&args.folder));
    if file.is_dir() {
        return Err(Failure::Input(anyhow!("--out {}: is a folder, not a file", file.display())));
    }
    target::write(&file, &leeward_report::render(&results))?;
    stdout::print(&format!("Report in {}", file.display()))
}

/// The report's place for results in `folder`, which may be the `result.json` itself.
fn beside(folder: &Path) -> PathBuf {
    if folder.is_dir() { folder.join("report.html") } else { folder.with_file_name("report.html") }
}
