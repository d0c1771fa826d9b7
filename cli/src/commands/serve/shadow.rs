//! `leeward serve --shadow` and `--enforce`: the clients for which rejections are enforced. Does
//! not contain shadow mode itself (`leeward-host`).

use anyhow::anyhow;
use leeward_lab::ScenarioError;
use leeward_lab::scenario::settings::Settings;

use super::args::{OFF_ON, ServeArgs};
use crate::failure::Failure;

/// Controllers that reject only at the client, so that shadow mode at the server would show
/// nothing.
const CLIENT_ONLY: [&str; 3] = ["none", "seda", "window"];

/// Argument of services whose requests wait for leaves.
const THREADING: &str = "threading";

/// Percentage of clients for which rejections are enforced; `None`: all clients.
pub(super) fn enforced_percent(args: &ServeArgs) -> Result<Option<u8>, Failure> {
    let share = args.enforce.as_deref().map(parse_percent).transpose();
    let share = share.map_err(|problem| Failure::Input(anyhow!("--enforce {problem}")))?;
    let flag = if args.shadow { "--shadow" } else { "--enforce" };
    let refused = |message: &str| Err(Failure::Input(anyhow!("{flag}: {message}")));
    let Some(percent) = share.or(args.shadow.then_some(0)).filter(|percent| *percent < 100) else { return Ok(None) };
    let name = args.admission.name.as_str();
    if CLIENT_ONLY.contains(&name) {
        let message = format!("`{name}` rejects no request at the server; accepted: another --admission");
        return refused(&message);
    }
    if args.allocator.is_some() || args.cores.min.is_some() {
        return refused("shadow mode needs a fixed number of cores; accepted: --cores N without --allocator");
    }
    if args.service.accepts(THREADING) {
        return refused("a service with leaves has no shadow mode, because its requests wait for its leaves");
    }
    Ok(Some(percent))
}

/// Part of the line at the start that describes the mode.
pub(super) fn describe(percent: Option<u8>) -> String {
    match percent {
        Some(0) => " in shadow mode".into(),
        Some(percent) => format!(", enforced for {percent} % of the clients"),
        None => String::new(),
    }
}

/// Reads both keys of the file; they apply if the command line sets neither.
pub(super) fn fill(args: &mut ServeArgs, settings: &Settings, free: bool) -> Result<(), ScenarioError> {
    let shadow = settings.choice("shadow", &OFF_ON)?.map(|index| index == 1);
    let share = settings.line("enforce")?;
    if let Some(text) = &share {
        parse_percent(text).map_err(|problem| settings.error("enforce", &problem))?;
    }
    if shadow == Some(true) && share.is_some() {
        return Err(settings.error("enforce", "`shadow` is on; accepted: one of the two"));
    }
    if free {
        (args.shadow, args.enforce) = (shadow.unwrap_or(false), share);
    }
    Ok(())
}

/// Parses a percentage.
fn parse_percent(text: &str) -> Result<u8, String> {
    let whole = text.strip_suffix('%').and_then(|number| number.parse::<u8>().ok()).filter(|percent| *percent <= 100);
    whole.ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        format!("`{text}`; accepted: whole percent from 0%, as --shadow, to 100%, as without it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enforced_shares_are_whole_percentages() {
        assert_eq!((parse_percent("5%"), parse_percent("0%"), parse_percent("100%")), (Ok(5), Ok(0), Ok(100)));
        for wrong in ["5", "101%", "-1%", "0.5%", "", "%", "five%"] {
            assert!(parse_percent(wrong).unwrap_err().contains("accepted: whole percent"), "{wrong}");
        }
    }
}
