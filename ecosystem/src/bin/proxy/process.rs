//! Child processes: pinned to a CPU, ended with this program however it ends, and what they cost.

use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process_group, setrlimit};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// CPU of the service.
pub(crate) const SERVICE_CPU: usize = 0;
/// CPU of the proxy and of the load.
pub(crate) const PROXY_CPU: usize = 1;

/// A child with all that it starts.
pub(crate) struct Process {
    child: Child,
    name: String,
    pub(crate) address: SocketAddr,
}

impl Process {
    /// Starts a program that will listen at `address`, on one CPU, and waits until it listens. Its
    /// messages go to a file of its name in `folder`.
    pub(crate) fn start(
        command: &[String],
        env: &[(&str, &str)],
        cpu: usize,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Self> {
        let name = Path::new(&command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = fs::File::create(folder.join(format!("{name}.log")))?;
        // Both programs become the one they start: it keeps their process id. Where this program
        // is killed, the kernel ends the child; with an orderly end it ends its own children.
        let mut prefixed = Command::new("taskset");
        prefixed.args(["--cpu-list", &cpu.to_string(), "setpriv", "--pdeathsig", "TERM", "--"]).args(command);
        let child = prefixed
            .envs(env.iter().copied())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("taskset and setpriv (util-linux) start the children")?;
        let mut process = Process { child, name, address };
        process.wait_until_listening(folder)?;
        Ok(process)
    }

    fn wait_until_listening(&mut self, folder: &Path) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_err() {
            let log = || fs::read_to_string(folder.join(format!("{}.log", self.name))).unwrap_or_default();
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("{} ended with {status}: {}", self.name, log().trim());
            }
            anyhow::ensure!(
                start.elapsed() < Duration::from_secs(30),
                "{} does not listen: {}",
                self.name,
                log().trim()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Sends a signal to it and to all that it started.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Process group, for signals from another thread.
    pub(crate) fn group(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id() as i32)
    }

    /// CPU time of it and its children so far, to the nanosecond.
    pub(crate) fn cpu_time(&self) -> Duration {
        family(self.child.id()).into_iter().flat_map(times_of).map(|times| times.ran).sum()
    }

    /// Resident memory of it and its children in MB: now, and the most that it ever was.
    pub(crate) fn memory_mb(&self) -> (f64, f64) {
        let all = family(self.child.id());
        let sum = |key| all.iter().filter_map(|pid| status_kb(*pid, key)).sum::<f64>() / 1024.0;
        (sum("VmRSS:"), sum("VmHWM:"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let times = family(self.child.id()).into_iter().map(times_of).fold([Times::default(); 2], add);
        for (times, ended) in times.into_iter().zip(&ENDED_NS) {
            ended[0].fetch_add(times.ran.as_nanos() as u64, Ordering::Relaxed);
            ended[1].fetch_add(times.delayed.as_nanos() as u64, Ordering::Relaxed);
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// What the tasks on one CPU have had of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) ran: Duration,
    /// Time that they were ready to run and did not.
    pub(crate) delayed: Duration,
}

/// Times of children that have ended, in ns: per CPU those of running and of waiting for it.
static ENDED_NS: [[AtomicU64; 2]; 2] = [const { [const { AtomicU64::new(0) }; 2] }; 2];

/// Times of this program and of all children that it ever had, for the CPUs 0 and 1.
pub(crate) fn times() -> [Times; 2] {
    let mut sums = family(std::process::id()).into_iter().map(times_of).fold([Times::default(); 2], add);
    for (sum, ended) in sums.iter_mut().zip(&ENDED_NS) {
        sum.ran += Duration::from_nanos(ended[0].load(Ordering::Relaxed));
        sum.delayed += Duration::from_nanos(ended[1].load(Ordering::Relaxed));
    }
    sums
}

fn add(a: [Times; 2], b: [Times; 2]) -> [Times; 2] {
    let add = |a: Times, b: Times| Times { ran: a.ran + b.ran, delayed: a.delayed + b.delayed };
    [add(a[0], b[0]), add(a[1], b[1])]
}

fn times_of(pid: u32) -> [Times; 2] {
    let mut sums = [Times::default(); 2];
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let numbers: Vec<u64> = read("schedstat").split_whitespace().filter_map(|number| number.parse().ok()).collect();
        // All here are pinned: where a task ran last, it always runs.
        let stat = read("stat");
        let cpu = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(36)?.parse::<usize>().ok());
        if let (Some(sum), [ran, delayed, ..]) = (cpu.and_then(|cpu| sums.get_mut(cpu)), &numbers[..]) {
            sum.ran += Duration::from_nanos(*ran);
            sum.delayed += Duration::from_nanos(*delayed);
        }
    }
    sums
}

/// A process and its descendants.
fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while at < all.len() {
        let threads = fs::read_dir(format!("/proc/{}/task", all[at])).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        at += 1;
    }
    all
}

fn status_kb(pid: u32, key: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
}

/// An address that nobody listens at.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Path of a program, if it is installed.
pub(crate) fn find(program: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/usr/local/sbin";
    path.split(':').map(|folder| format!("{folder}/{program}")).find(|path| Path::new(path).is_file())
}

/// Files that a process may have open at most, where the system permits it.
const FILES: u64 = 65_536;

/// Lets this program and its children have many files open.
pub(crate) fn more_files() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(FILES).min(FILES);
    let of = |files| Rlimit { current: Some(files), maximum: Some(files) };
    // Only root may raise the second number.
    setrlimit(Resource::Nofile, of(FILES)).or_else(|_| setrlimit(Resource::Nofile, of(maximum)))?;
    Ok(())
}

/// Pins this thread, and threads that it starts later, to one CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).context("a CPU for one side")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_with_its_handle_and_has_used_a_cpu() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = std::env::temp_dir();
        let command =
            ["sh", "-c", "sleep 60 & i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; wait"].map(String::from);
        let process = Process::start(&command, &[], 0, address.local_addr().unwrap(), &folder).unwrap();
        let group = process.group().unwrap();
        let start = Instant::now();
        // Between two of the programs that it becomes, it has no memory for a moment.
        while process.cpu_time().is_zero() || process.memory_mb().1 <= 0.1 {
            assert!(start.elapsed() < Duration::from_secs(30), "no CPU time, or no memory");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(process);
        // The killed `sleep` is a zombie until init has reaped it.
        while kill_process_group(group, Signal::CONT).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(30), "its child still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
