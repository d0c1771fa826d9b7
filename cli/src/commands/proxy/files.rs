//! The settings: a file, and flags that come first. Does not contain their effects.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow};
use leeward_proxy::Settings;
use leeward_proxy::settings::file::FileSettings;

use super::ProxyArgs;
use crate::failure::Failure;
use crate::{scenario, stdout};

/// Largest configuration file.
const FILE_MAX: u64 = 1 << 20;

/// Settings as they were read, and what they mean.
pub(super) struct Loaded {
    pub(super) merged: FileSettings,
    pub(super) settings: Settings,
}

/// Reads the file, if there is one.
pub(super) fn load(args: &ProxyArgs) -> Result<Loaded, Failure> {
    let file = match &args.config {
        Some(path) => read(path)?,
        None => FileSettings::default(),
    };
    let merged = file.merge(flags(args));
    let settings = merged.settings().map_err(|error| Failure::Input(anyhow!(stdout::sanitize(&error.to_string()))))?;
    Ok(Loaded { merged, settings })
}

fn read(path: &Path) -> Result<FileSettings, Failure> {
    let name = stdout::sanitize(&path.display().to_string());
    let failed = |error: anyhow::Error| Failure::Input(error.context(format!("--config {name}")));
    // A pipe could make a reload wait for ever; so the kind is known before it is opened.
    let kind = std::fs::metadata(path).context("can't be read").map_err(failed)?;
    if !kind.is_file() {
        return Err(failed(anyhow!("is no file")));
    }
    if kind.len() > FILE_MAX {
        return Err(failed(anyhow!("is larger than 1 MiB")));
    }
    let mut text = String::new();
    let file = File::open(path).context("can't be read").map_err(failed)?;
    let size = file.take(FILE_MAX + 1).read_to_string(&mut text).context("can't be read").map_err(failed)?;
    if size as u64 > FILE_MAX {
        return Err(failed(anyhow!("is larger than 1 MiB")));
    }
    FileSettings::parse(&text).map_err(|error| {
        let error = error.to_string();
        let guess = guess(&error).map(|key| format!("\nhelp: did you mean `{key}`?")).unwrap_or_default();
        failed(anyhow!("{}{guess}", clean_lines(&error)))
    })
}

/// The key that an error about an unknown one may mean: the error names those that there are.
fn guess(error: &str) -> Option<&str> {
    let (_, names) = error.split_once("unknown field ")?;
    let names: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
    let (wrong, known) = names.split_first()?;
    scenario::nearest(wrong, known)
}

/// The flags as settings of a file.
fn flags(args: &ProxyArgs) -> FileSettings {
    FileSettings {
        slo: args.slo.clone(),
        listen: args.listen.clone(),
        to: args.to.clone(),
        shared: args.shared.then_some(true),
        limit: args.limit.clone(),
        mode: args.mode.clone(),
        health: args.health.clone(),
        trust: args.trust.clone(),
        until: args.until.clone(),
        admin: args.admin.clone(),
        threads: args.threads,
        ..FileSettings::default()
    }
}

/// A text of several lines without control characters.
fn clean_lines(text: &str) -> String {
    text.trim_end().lines().map(stdout::sanitize).collect::<Vec<_>>().join("\n")
}
