//! Parser of setups in the paper's notation. Strict: each setup has one text, and an error names
//! the accepted input in one line.

use std::str::FromStr;

use super::setup::{Fanout, Handling, POOL_MAX, Setup, SetupFault, ThreadingSetup, Wait};
use leeward_core::units::parse_duration;

/// Error: the text is no setup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{written}` is no threading setup: {fault}")]
pub struct SetupError {
    /// The text as written, truncated.
    pub written: String,
    /// Reason.
    pub fault: SetupFault,
}

impl FromStr for Setup {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Setup, SetupError> {
        read(text).map_err(|fault| error(text, fault))
    }
}

impl FromStr for ThreadingSetup {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<ThreadingSetup, SetupError> {
        let Some(cores) = text.strip_prefix("CORE") else { return text.parse().map(ThreadingSetup::Setup) };
        match read_pool(cores) {
            Ok(cores) if (1..=POOL_MAX).contains(&cores) => Ok(ThreadingSetup::Cores(cores)),
            _ => Err(error(text, SetupFault::Cores)),
        }
    }
}

fn error(text: &str, fault: SetupFault) -> SetupError {
    // A hostile or mistaken megabyte must not fill the terminal, or break its line.
    SetupError { written: text.chars().take(40).flat_map(char::escape_debug).collect(), fault }
}

fn read(text: &str) -> Result<Setup, SetupFault> {
    let mut rest = text.chars();
    let fanout = match rest.next() {
        Some('S') => Fanout::Sync,
        Some('A') => Fanout::Async,
        _ => return Err(SetupFault::Model),
    };
    let handling = match rest.next() {
        Some('I') => Handling::InLine,
        Some('D') => Handling::Dispatched,
        _ => return Err(SetupFault::Model),
    };
    let blocks = match rest.next() {
        Some('B') => true,
        Some('P') => false,
        _ => return Err(SetupFault::Model),
    };
    let (pools, spin) = match rest.as_str().split_once('@') {
        Some((pools, spin)) => (pools, Some(spin)),
        None => (rest.as_str(), None),
    };
    let wait = match (blocks, spin) {
        (true, None) => Wait::Block,
        (true, Some(_)) => return Err(SetupFault::BlockSpins),
        (false, None) => Wait::Poll,
        (false, Some(span)) => Wait::PollFor(parse_duration(span).map_err(|_| SetupFault::Spin)?),
    };
    let (network, worker, response) = read_pools(pools, fanout, handling)?;
    Setup { fanout, handling, wait, network, worker, response }.validate()
}

fn read_pools(text: &str, fanout: Fanout, handling: Handling) -> Result<(u16, u16, u16), SetupFault> {
    let mut parts = text.split('-');
    let mut pools = [None; 3];
    for pool in &mut pools {
        *pool = parts.next().map(read_pool).transpose()?;
    }
    let wrong_count = match (fanout, handling) {
        (Fanout::Sync, Handling::InLine) => SetupFault::SyncInLine,
        (Fanout::Sync, Handling::Dispatched) => SetupFault::SyncDispatched,
        (Fanout::Async, _) => SetupFault::Async,
    };
    match (fanout, handling, pools, parts.next()) {
        (Fanout::Sync, Handling::InLine, [Some(network), None, None], None) => Ok((network, 0, 0)),
        (Fanout::Sync, Handling::Dispatched, [Some(network), Some(worker), None], None) => Ok((network, worker, 0)),
        (Fanout::Async, _, [Some(network), Some(worker), Some(response)], None) => Ok((network, worker, response)),
        // `SIP1-0-2`: the mistake is the response threads, not the count.
        (Fanout::Sync, _, [_, _, Some(1..)], None) => Err(SetupFault::SyncResponse),
        (Fanout::Sync, Handling::InLine, [_, Some(1..), None], None) => Err(SetupFault::InLineWorkers),
        _ => Err(wrong_count),
    }
}

/// Parses a number of threads. A number that is too large becomes `u16::MAX`, above [`POOL_MAX`],
/// so that the error names the range.
fn read_pool(text: &str) -> Result<u16, SetupFault> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (text.len() > 1 && text.starts_with('0')) {
        return Err(SetupFault::Number);
    }
    Ok(text.parse().unwrap_or(u16::MAX))
}
