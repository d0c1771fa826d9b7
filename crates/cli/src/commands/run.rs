//! `leeward run`: a scenario's results, in tables or JSON, and in a folder with a report.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use leeward_control::registry::Registry;
use leeward_lab::{Results, run, store};

use super::{summary, target};
use crate::args::RunArgs;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Bar;
use crate::{scenario, stdout};

/// The command.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let scenario = scenario::load(&args.what)?;
    let folder = args.out.clone().unwrap_or_else(|| Path::new("results").join(&scenario.id));
    target::check_folder(&folder)?;
    if args.plant == "real" {
        let measured = scenario.workload.services.iter().filter_map(|service| service.measured.as_ref());
        let warnings: BTreeSet<String> = measured.filter_map(|requests| requests.warning()).collect();
        warnings.iter().for_each(|words| _ = writeln!(std::io::stderr(), "warning: {words}"));
    }
    let interrupt = Interrupt::listen()?;
    let results = {
        let bar = Bar::new(&scenario.id);
        let options = scenario::options(&args.what, &args.plant);
        run::run(&scenario, &Registry::builtin(), &options, &|progress| bar.show(progress), interrupt.flag())?
    };
    let page = leeward_report::render(&results);
    interrupt.finish()?;
    store::write(&folder, &results)?;
    let report = folder.join("report.html");
    target::write(&report, &page)?;
    if args.json {
        return stdout::print(&json(&results)?);
    }
    stdout::print(&text(&results, &folder, &report))
}

fn json(results: &Results) -> Result<String, Failure> {
    serde_json::to_string(results).context("results as JSON").map_err(Failure::Runtime)
}

fn text(results: &Results, folder: &Path, report: &Path) -> String {
    let mut text = format!("{}\n\n{}", results.title, summary::points(&results.points));
    let (machines, predictions) = (summary::machines(&results.machines), summary::predictions(&results.points));
    if !machines.is_empty() {
        text += &format!("\n{machines}{predictions}");
    }
    let locks = summary::locks(&results.locks);
    if !locks.is_empty() {
        text += &format!("\nThe locks that were waited for most, at the highest demand\n\n{locks}");
    }
    if !results.claims.is_empty() {
        text += &format!("\nWhat the paper says, what we measured\n\n{}", summary::claims(&results.claims));
    }
    text + &format!("\nResults in {}\nReport in {}\n", folder.display(), report.display())
}
