//! `leeward train` and `leeward advise`: curves of threading setups, and their use. Does not
//! contain the training (`leeward-lab`).

mod advise;
mod arguments;
mod text;

pub(crate) use advise::{AdviseArgs, advise};

use std::path::{Path, PathBuf};

use leeward_core::units::Nanos;
use leeward_lab::training::TrainingOutcome;
use serde_json::json;

use self::arguments::{BenchArgs, Training};
use super::output_files;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::stdout;

/// Measure the latency curves of threading setups over the load
///
/// A threading policy (`utune`, `leeward`) chooses by such curves. At each load all setups are
/// measured in turns; setups that are surely not the best are then dropped. When the budget is used
/// up, the curves contain the measurements until then.
#[derive(Debug, clap::Args)]
#[command(after_help = TRAIN)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    bench: BenchArgs,
    /// File to write, such as curves.toml
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,
}

const TRAIN: &str = "\
Examples:
  leeward train hdsearch --out curves.toml
  leeward train hdsearch --plant real --data synthetic:64:50000:1 --out curves.toml
  leeward train mt-sync --setups SIP1,SDP1-20,SDB1-50 --load 20..11k --out curves.toml";

/// Default objective of a tier: later responses count as late.
const SLO: Nanos = Nanos::from_millis(5);

/// Runs the command.
pub(crate) fn train(args: &TrainArgs) -> Result<(), Failure> {
    // Check the file before the training, not after it.
    output_files::check_file("--out", &args.out)?;
    let training = Training::from_args(&args.bench, SLO)?;
    let interrupt = Interrupt::listen(StopMode::Prompt)?;
    let trained = training.run(&interrupt)?;
    interrupt.finish()?;
    let file = training.file(&trained, "train");
    output_files::write(&args.out, &file.to_toml())?;
    if args.json {
        return stdout::print(
            &json!({
                "out": args.out.display().to_string(),
                "service": file.service,
                "measured": trained.measurements,
                "cut_short": trained.timed_out,
                "left_out": trained.excluded.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "setups": file.curves.all().iter().map(text::as_json).collect::<Vec<_>>(),
            })
            .to_string(),
        );
    }
    let cut = if trained.timed_out { CUT_SHORT } else { "" };
    stdout::print(&format!("{}{cut}{}", text::curves(&file.curves), summary(&trained, &args.out)))
}

const CUT_SHORT: &str = "cut short     the budget ended before all loads were measured; increase --budget\n";

fn summary(trained: &TrainingOutcome, out: &Path) -> String {
    let mut text = String::new();
    if !trained.excluded.is_empty() {
        let names: Vec<String> = trained.excluded.iter().map(ToString::to_string).collect();
        text += &format!("left out      {}: they sustain less than two of the loads\n", names.join(", "));
    }
    text + &format!("curves        {} from {} measurements\n", out.display(), trained.measurements)
}
