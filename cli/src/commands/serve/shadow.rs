//! `leeward serve --shadow` and `--enforce`: whose requests the controller refuses in earnest. Never here: the rehearsal (`leeward-host`).

use anyhow::anyhow;
use leeward_lab::ScenarioError;
use leeward_lab::scenario::settings::Settings;

use super::args::{OFF_ON, ServeArgs};
use crate::failure::Failure;

/// Controllers whose server refuses nobody: their clients send less, and none would be known that did not.
const CLIENT_ONLY: [&str; 3] = ["none", "seda", "window"];

/// The argument of services whose requests wait for leaves.
const THREADING: &str = "threading";

/// The share of the clients that is refused in earnest, if it is not all of them.
pub(super) fn enforced_percent(args: &ServeArgs) -> Result<Option<u8>, Failure> {
    let share = args.enforce.as_deref().map(parse_percent).transpose();
    let share = share.map_err(|problem| Failure::Input(anyhow!("--enforce {problem}")))?;
    let flag = if args.shadow { "--shadow" } else { "--enforce" };
    let refused = |words: &str| Err(Failure::Input(anyhow!("{flag}: {words}")));
    let Some(percent) = share.or(args.shadow.then_some(0)).filter(|percent| *percent < 100) else { return Ok(None) };
    let name = args.admission.name.as_str();
    if CLIENT_ONLY.contains(&name) {
        let words =
            format!("`{name}` refuses nobody at the server, where a rehearsal is; accepted: another --admission");
        return refused(&words);
    }
    if args.allocator.is_some() || args.cores.min.is_some() {
        return refused("cores that come and go can't be rehearsed; accepted: a fixed number of --cores");
    }
    if args.service.accepts(THREADING) {
        return refused("a service that asks leaves can't be rehearsed: what it waits for is not its own cores");
    }
    Ok(Some(percent))
}

/// Words of it in the line that says what is served.
pub(super) fn describe(percent: Option<u8>) -> String {
    match percent {
        Some(0) => ", which refuses nobody".into(),
        Some(percent) => format!(", which refuses some {percent} % of the clients"),
        None => String::new(),
    }
}

/// Takes both keys of the file; they count if the command line says neither.
pub(super) fn fill(args: &mut ServeArgs, settings: &Settings, free: bool) -> Result<(), ScenarioError> {
    let shadow = settings.choice("shadow", &OFF_ON)?.map(|place| place == 1);
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

/// A share in percent.
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
    fn shares_are_whole_percent() {
        assert_eq!((parse_percent("5%"), parse_percent("0%"), parse_percent("100%")), (Ok(5), Ok(0), Ok(100)));
        for wrong in ["5", "101%", "-1%", "0.5%", "", "%", "five%"] {
            assert!(parse_percent(wrong).unwrap_err().contains("accepted: whole percent"), "{wrong}");
        }
    }
}
