//! `leeward profile attach`, and the shared control connection: sends a line to the run-time in
//! another process and reads its response.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};

use leeward_profile::trace::Trace;

use super::args::{AttachArgs, Recording};
use crate::failure::Failure;
use crate::stdout::{self, sanitize};

/// Runs the command.
pub(super) fn attach(args: &AttachArgs) -> Result<(), Failure> {
    let options = options(&args.recording)?;
    stdout::print(&send_command(args.pid, &format!("start {options}"))?)
}

/// True if the process of a trace is still writing the trace.
pub(super) fn is_recording(trace: &Trace) -> bool {
    if !trace.damage().missing_end {
        return false;
    }
    let Some(folder) = recording_folder(trace.header().pid) else { return false };
    let folder = Path::new(&folder);
    let same = |a: &Path, b: &Path| a.canonicalize().ok().zip(b.canonicalize().ok()).is_some_and(|(a, b)| a == b);
    // The process may have recorded a path relative to another folder.
    same(folder, trace.path()) || (folder.is_relative() && folder.file_name() == trace.path().file_name())
}

/// True if a process reports that it is recording.
pub(super) fn is_process_recording(pid: u32) -> bool {
    recording_folder(pid).is_some()
}

/// Folder into which a process reports that it records; `None` if it does not record.
fn recording_folder(pid: u32) -> Option<String> {
    let answer = send_command_within(pid, "status", Duration::from_secs(1)).ok()?;
    let (folder, _) = answer.strip_prefix("recording ")?.rsplit_once(" lost ")?;
    Some(folder.to_string())
}

/// Recording options in the syntax of the run-time.
pub(super) fn options(recording: &Recording) -> Result<String, Failure> {
    let out = std::path::absolute(&recording.out).context("the folder for traces").map_err(Failure::Input)?;
    let out = out.to_str().filter(|path| !path.contains([',', '\n', '%']));
    let refused = || anyhow!("--out {}: commas and percent signs are not accepted here", recording.out.display());
    let out = out.ok_or_else(refused).map_err(Failure::Input)?;
    let Recording { engine, threshold, lock_threshold, disk, ring, follow, .. } = recording;
    for text in [threshold, lock_threshold, disk, ring].into_iter().chain(&recording.tick) {
        if text.is_empty() || !text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '.') {
            return Err(Failure::Input(anyhow!("`{}`: a number with a unit, such as 1us or 1G", sanitize(text))));
        }
    }
    let on = |off: bool| if off { "off" } else { "on" };
    let mut options = format!(
        "dir={out}/%p,engine={engine},threshold={threshold},lock-threshold={lock_threshold},disk={disk},ring={ring},follow={follow},locks={},sched={}",
        on(recording.no_locks),
        on(recording.no_sched)
    );
    if let Some(overhead) = &recording.overhead {
        let percent = parse_overhead(overhead)?;
        options += &format!(",overhead={}", percent.map_or("off".into(), |percent| percent.to_string()));
    }
    // `tick` must come after `overhead`, which otherwise determines the ticks.
    if let Some(tick) = &recording.tick {
        options += &format!(",tick={tick}");
    }
    if let Some(cpu) = recording.cpu {
        options += &format!(",cpu={cpu}");
    }
    Ok(options)
}

/// Reads the per cent of the CPU time that recording may take, such as `5%`; `None` for `off`.
pub(super) fn parse_overhead(text: &str) -> Result<Option<f64>, Failure> {
    let percent = text.trim_end_matches('%').parse::<f64>().ok().filter(|percent| (0.1..=100.0).contains(percent));
    if percent.is_none() && text != "off" {
        return Err(Failure::Input(anyhow!("--overhead {}: accepted are 0.1% to 100%, or off", sanitize(text))));
    }
    Ok(percent)
}

/// Explains why a process does not respond, and how to fix it.
#[cfg(target_os = "linux")]
fn no_answer_reason(pid: u32) -> &'static str {
    let of = |file: &str| std::fs::read(format!("/proc/{pid}/{file}"));
    if !Path::new(&format!("/proc/{pid}")).is_dir() {
        return "there is no such process";
    }
    let (Ok(environment), Ok(maps)) = (of("environ"), of("maps")) else {
        return "it belongs to another user; only this user or root may record it";
    };
    let asked = environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"LEEWARD_PROFILE="));
    let preloaded = maps.windows(10).any(|part| part == b"leeward_rt");
    match (asked, preloaded) {
        (false, _) => {
            "it was started without recording, and a run-time can't be loaded into a running process: start it with \
             `leeward profile record --wait -- PROGRAM`, or with LEEWARD_PROFILE=wait if it was built with `leeward cc`"
        }
        (true, true) => {
            "its run-time has no socket: LEEWARD_PROFILE in its environment may be wrong, which it reported on stderr at its start"
        }
        (true, false) => {
            "LEEWARD_PROFILE is in its environment, but the run-time is not loaded: build it with `leeward cc`, or start it with \
             `leeward profile record`, which preloads the run-time if the program allows it"
        }
    }
}

/// Sends a line to the run-time in a process; returns the response without `ok`.
///
/// The response to a stop arrives when the trace is on disk.
pub(super) fn send_command(pid: u32, line: &str) -> Result<String, Failure> {
    send_command_within(pid, line, Duration::from_secs(60))
}

/// Like [`send_command`], with this time limit for the response.
#[cfg(target_os = "linux")]
fn send_command_within(pid: u32, line: &str, timeout: Duration) -> Result<String, Failure> {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};

    let none = || format!("process {pid} does not listen: {}", no_answer_reason(pid));
    let address = SocketAddr::from_abstract_name(format!("leeward-profile-{pid}"))
        .map_err(|error| Failure::Runtime(error.into()))?;
    let mut stream = UnixStream::connect_addr(&address).with_context(none).map_err(Failure::Input)?;
    let exchange = || -> std::io::Result<String> {
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        stream.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        BufReader::new((&stream).take(4096)).read_line(&mut answer)?;
        Ok(answer)
    };
    let mut exchange = exchange;
    let answer = exchange().with_context(|| format!("process {pid} does not answer")).map_err(Failure::Runtime)?;
    let answer = sanitize(answer.trim());
    match answer.split_once(' ').unwrap_or((&answer, "")) {
        ("ok", rest) => Ok(rest.to_string()),
        ("error", why) => Err(Failure::Runtime(anyhow!("process {pid}: {why}"))),
        _ => Err(Failure::Runtime(anyhow!("process {pid} sent an invalid answer: `{answer}`"))),
    }
}

#[cfg(not(target_os = "linux"))]
fn send_command_within(_: u32, _: &str, _: Duration) -> Result<String, Failure> {
    Err(Failure::Input(anyhow!("recording needs Linux; reading traces does not")))
}
