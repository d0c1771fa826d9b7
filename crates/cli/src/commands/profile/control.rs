//! `leeward profile attach` and `stop`: a line to the run-time in another process, and a line back.

use std::path::Path;

use anyhow::{Context, anyhow};

use super::args::{AttachArgs, Recording, StopArgs};
use crate::failure::Failure;
use crate::stdout::{self, plain};

/// The command.
pub(super) fn attach(args: &AttachArgs) -> Result<(), Failure> {
    let options = options(&args.recording)?;
    stdout::print(&ask(args.pid, &format!("start {options}"))?)
}

/// The command.
pub(super) fn stop(args: &StopArgs) -> Result<(), Failure> {
    let answer = ask(args.pid, "stop")?;
    stdout::print(&answer)?;
    match answer.strip_prefix("stopped ").map(Path::new).filter(|folder| folder.is_dir()) {
        Some(folder) => super::record::summarize(folder).map(|_| ()),
        None => Ok(()),
    }
}

/// How to record, as the run-time reads it.
pub(super) fn options(recording: &Recording) -> Result<String, Failure> {
    let out = std::path::absolute(&recording.out).context("the folder for traces").map_err(Failure::Input)?;
    let out = out.to_str().filter(|path| !path.contains([',', '\n', '%']));
    let refused = || anyhow!("--out {}: commas and per cents are not accepted here", recording.out.display());
    let out = out.ok_or_else(refused).map_err(Failure::Input)?;
    let Recording { engine, tick, threshold, lock_threshold, disk, .. } = recording;
    for text in [tick, threshold, lock_threshold, disk] {
        if text.is_empty() || !text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '.') {
            return Err(Failure::Input(anyhow!("`{}`: a number with a unit, such as 1us or 1G", plain(text))));
        }
    }
    let on = |off: bool| if off { "off" } else { "on" };
    let mut options = format!(
        "dir={out}/%p,engine={engine},tick={tick},threshold={threshold},lock-threshold={lock_threshold},disk={disk},locks={},sched={}",
        on(recording.no_locks),
        on(recording.no_sched)
    );
    if let Some(cpu) = recording.cpu {
        options += &format!(",cpu={cpu}");
    }
    Ok(options)
}

/// Sends a line to the run-time in a process; its answer without the `ok`.
#[cfg(target_os = "linux")]
fn ask(pid: u32, line: &str) -> Result<String, Failure> {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    use std::time::Duration;

    /// A stop answers when the trace is on disk.
    const PATIENCE: Duration = Duration::from_secs(60);

    let none = || {
        format!(
            "process {pid} does not listen: it must have been started by `leeward profile record` (with --wait to begin \
             later) or have been built with `leeward cc`, and by the same user"
        )
    };
    let address = SocketAddr::from_abstract_name(format!("leeward-profile-{pid}"))
        .map_err(|error| Failure::Runtime(error.into()))?;
    let mut stream = UnixStream::connect_addr(&address).with_context(none).map_err(Failure::Input)?;
    let talk = || -> std::io::Result<String> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        BufReader::new((&stream).take(4096)).read_line(&mut answer)?;
        Ok(answer)
    };
    let mut talk = talk;
    let answer = talk().with_context(|| format!("process {pid} does not answer")).map_err(Failure::Runtime)?;
    let answer = plain(answer.trim());
    match answer.split_once(' ').unwrap_or((&answer, "")) {
        ("ok", rest) => Ok(rest.to_string()),
        ("error", why) => Err(Failure::Runtime(anyhow!("process {pid}: {why}"))),
        _ => Err(Failure::Runtime(anyhow!("process {pid} gave an answer that is none: `{answer}`"))),
    }
}

#[cfg(not(target_os = "linux"))]
fn ask(_: u32, _: &str) -> Result<String, Failure> {
    Err(Failure::Input(anyhow!("recording needs Linux; reading traces does not")))
}
