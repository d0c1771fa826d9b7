//! `leeward report`: redraws the report of earlier results.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use leeward_lab::store;

use super::output_files;
use crate::failure::Failure;
use crate::stdout;

/// Redraw the report of an earlier run
#[derive(Debug, clap::Args)]
#[command(after_help = REPORT)]
pub(crate) struct ReportArgs {
    /// Folder of an earlier `leeward run`
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// File to write; by default `report.html` in that folder
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

const REPORT: &str = "\
Examples:
  leeward report results/bw-overall
  leeward report results/bw-overall --out overall.html";

/// Runs the command.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let results = store::read(&args.folder)?;
    let file = args.out.clone().unwrap_or_else(|| default_output(&args.folder));
    if file.is_dir() {
        return Err(Failure::Input(anyhow!("--out {}: is a folder, not a file", file.display())));
    }
    if is_results(&file, &args.folder) {
        return Err(Failure::Input(anyhow!(
            "--out {}: would replace the results themselves; accepted: another file, such as report.html",
            file.display()
        )));
    }
    output_files::write(&file, &leeward_report::render(&results))?;
    stdout::print(&format!("Report in {}", file.display()))
}

/// True if `file` is one of the result files in `folder`, by whatever path.
fn is_results(file: &Path, folder: &Path) -> bool {
    let home = if folder.is_dir() { folder } else { folder.parent().unwrap_or(Path::new("")) };
    let results = [folder.to_path_buf(), home.join("result.json"), home.join("results.jsonl")];
    file.canonicalize()
        .is_ok_and(|file| results.iter().any(|known| known.canonicalize().is_ok_and(|known| known == file)))
}

/// Default path of the report for results in `folder`, which may be the `result.json` itself.
fn default_output(folder: &Path) -> PathBuf {
    if folder.is_dir() { folder.join("report.html") } else { folder.with_file_name("report.html") }
}
