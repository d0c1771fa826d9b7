//! Processes that listen: their threads, their CPU time, their quota.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use procfs::process::{FDTarget, LimitValue, Process, Schedstat, Task};
use procfs::{CurrentSI, KernelStats};

use crate::poll::{BusyThread, ProcessPoll, Scheduling, ThreadCounts};
use crate::quota::{QuotaReader, Throttling};
use crate::target::one_line;
use crate::thread_wait::ThreadWait;

/// Most threads of a process that are sampled in one poll; the next poll goes on with the others.
const MAX_SAMPLED: usize = 48;

/// Most threads of a process whose scheduling is counted.
const MAX_COUNTED: usize = 4096;

/// What the sockets of a process are, as far as the observer knows.
#[derive(Debug, Default)]
pub(crate) struct SocketRoles {
    /// Connections of the watched listener.
    pub(crate) clients: HashSet<u32>,
    /// Of these, connections with a request, and sockets of the listener with connections that one
    /// process alone can accept.
    pub(crate) requests: HashSet<u32>,
    /// Connections to backends.
    pub(crate) backends: HashSet<u32>,
    /// Sockets to name servers.
    pub(crate) name_servers: HashSet<u32>,
}

/// A process that listens.
#[derive(Debug)]
pub(crate) struct WatchedProcess {
    pub(crate) pid: u32,
    /// Name of its program.
    pub(crate) name: String,
    process: Process,
    start_time: u64,
    quota: Option<QuotaReader>,
    runs_one_thread: bool,
    allowed_cpus: f64,
    cpu_ticks: Option<u64>,
    /// Sockets, when they were last listed.
    sockets: HashSet<u32>,
    /// Place in the list of threads at which the next sample begins.
    next_sampled: usize,
    /// Threads that the last sample saw at the futex with most waiters.
    at_futex: HashSet<i32>,
    /// The same at the last count.
    counted_at_futex: HashSet<i32>,
    /// Scheduling of each thread at the last count; `None` before that.
    counted: Option<HashMap<i32, Schedstat>>,
    /// CPU time of the process at the last count, in ticks.
    counted_ticks: u64,
    throttling: Option<Throttling>,
}

impl WatchedProcess {
    /// Opens a process; `None` if it has gone.
    pub(crate) fn open(pid: u32) -> Option<WatchedProcess> {
        let process = Process::new(i32::try_from(pid).ok()?).ok()?;
        let stat = process.stat().ok()?;
        let runs_one_thread = interpreter_runs_one_thread(&process, &stat.comm);
        let allowed = process.status().ok().and_then(|status| status.cpus_allowed_list);
        let allowed = allowed.map(|ranges| ranges.iter().map(|(first, last)| f64::from(last - first + 1)).sum());
        let online = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        Some(WatchedProcess {
            pid,
            name: one_line(&stat.comm),
            quota: QuotaReader::of(&process),
            process,
            start_time: stat.starttime,
            runs_one_thread,
            // The list may name CPUs that this machine does not have.
            allowed_cpus: allowed.unwrap_or(online).min(f64::from(procfs_cpus().unwrap_or(online as u32))),
            cpu_ticks: None,
            sockets: HashSet::new(),
            next_sampled: 0,
            at_futex: HashSet::new(),
            counted_at_futex: HashSet::new(),
            counted: None,
            counted_ticks: stat.utime + stat.stime,
            throttling: None,
        })
    }

    /// Lists the sockets anew.
    pub(crate) fn list_sockets(&mut self) {
        self.sockets = crate::owners::sockets(&self.process).collect();
    }

    /// Whether the process holds a socket, as of the last list.
    pub(crate) fn holds(&self, inode: u32) -> bool {
        self.sockets.contains(&inode)
    }

    /// Samples the process into `poll`; returns false if it has gone.
    pub(crate) fn sample(&mut self, roles: &SocketRoles, poll: &mut ProcessPoll) -> bool {
        let Ok(stat) = self.process.stat() else { return false };
        if stat.starttime != self.start_time || stat.state == 'Z' || stat.state == 'X' {
            return false;
        }
        poll.visible += 1;
        if matches!(stat.state, 'T' | 't') || self.quota.as_ref().is_some_and(QuotaReader::is_frozen) {
            poll.stopped.push(self.pid);
            poll.waits_for_stopped |= self.sockets.iter().any(|inode| roles.requests.contains(inode));
        }
        let ticks = stat.utime + stat.stime;
        let used = ticks.saturating_sub(self.cpu_ticks.replace(ticks).unwrap_or(ticks));
        poll.cpu += Duration::from_secs_f64(used as f64 / procfs::ticks_per_second() as f64);
        self.sample_threads(roles, &mut poll.threads);
        true
    }

    /// Samples what threads wait for, and scales the counts to all threads.
    fn sample_threads(&mut self, roles: &SocketRoles, counts: &mut ThreadCounts) {
        let Ok(tasks) = self.process.tasks() else { return };
        let tasks: Vec<Task> = tasks.flatten().collect();
        let sampled = tasks.len().min(MAX_SAMPLED);
        if sampled == 0 {
            return;
        }
        let scale = tasks.len() as f64 / sampled as f64;
        let mut futexes: HashMap<u64, HashSet<i32>> = HashMap::new();
        let first = self.next_sampled;
        self.next_sampled = (first + sampled) % tasks.len();
        for task in tasks.iter().cycle().skip(first % tasks.len()).take(sampled) {
            let Ok(stat) = task.stat() else { continue };
            let syscall = if stat.state == 'S' { task.syscall().ok() } else { None };
            let wait = match ThreadWait::of(stat.state, syscall) {
                ThreadWait::Poll(address) => self.polled(address).map_or(ThreadWait::Other, ThreadWait::Descriptor),
                wait => wait,
            };
            match wait {
                ThreadWait::Runnable => counts.runnable += scale,
                ThreadWait::Disk => counts.disk += scale,
                ThreadWait::Futex { address, is_mutex } => {
                    counts.mutex += if is_mutex { scale } else { 0.0 };
                    futexes.entry(address).or_default().insert(task.tid);
                }
                ThreadWait::Sleep => counts.sleep += scale,
                ThreadWait::Descriptor(number) => match self.role(number, roles) {
                    Some(DescriptorRole::File) => counts.disk += scale,
                    Some(DescriptorRole::Backend) => counts.backend += scale,
                    Some(DescriptorRole::Client) => counts.client += scale,
                    Some(DescriptorRole::NameServer) => counts.name_server += scale,
                    None => {}
                },
                ThreadWait::Poll(_) | ThreadWait::Other => {}
            }
        }
        counts.all += tasks.len() as f64;
        self.at_futex = futexes.into_values().max_by_key(HashSet::len).unwrap_or_default();
        counts.same_futex = counts.same_futex.max(scale * self.at_futex.len() as f64);
    }

    /// The first descriptor of a list that a thread polls.
    fn polled(&self, address: u64) -> Option<i32> {
        let mut descriptor = [0; 4];
        self.process.mem().ok()?.read_exact_at(&mut descriptor, address).ok()?;
        Some(i32::from_ne_bytes(descriptor))
    }

    fn role(&self, descriptor: i32, roles: &SocketRoles) -> Option<DescriptorRole> {
        match self.process.fd_from_fd(descriptor).ok()?.target {
            FDTarget::Path(path) => {
                let is_file = path.is_absolute() && !path.starts_with("/dev") && !path.starts_with("/proc");
                is_file.then_some(DescriptorRole::File)
            }
            FDTarget::Socket(inode) => {
                let inode = u32::try_from(inode).ok()?;
                if roles.clients.contains(&inode) {
                    Some(DescriptorRole::Client)
                } else if roles.backends.contains(&inode) {
                    Some(DescriptorRole::Backend)
                } else if roles.name_servers.contains(&inode) {
                    Some(DescriptorRole::NameServer)
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    /// Adds the scheduling of the process's threads since the last count to `sum`.
    pub(crate) fn count_scheduling(&mut self, sum: &mut Scheduling) {
        sum.allowed_cpus = sum.allowed_cpus.max(self.allowed_cpus);
        sum.runs_one_thread |= self.runs_one_thread;
        sum.is_out_of_descriptors |= self.is_out_of_descriptors();
        self.count_quota(sum);
        let Ok(tasks) = self.process.tasks() else { return };
        let (mut counted, mut counted_run) = (HashMap::new(), Duration::ZERO);
        let tasks: Vec<Task> = tasks.flatten().take(MAX_COUNTED + 1).collect();
        // Of more threads nobody knows which ones are new.
        let are_all = tasks.len() <= MAX_COUNTED;
        for task in tasks.iter().take(MAX_COUNTED) {
            let Ok(now) = task.schedstat() else { continue };
            let known = self.counted.as_ref().map(|counted| counted.get(&task.tid).cloned());
            counted.insert(task.tid, now.clone());
            // A thread that began since the last count ran for all that it says.
            let new = Schedstat { sum_exec_runtime: 0, run_delay: 0, pcount: 0 };
            let before = match known {
                Some(None) if are_all => Some(new),
                known => known.flatten(),
            };
            let Some(before) = before else { continue };
            let ran = Duration::from_nanos(now.sum_exec_runtime.saturating_sub(before.sum_exec_runtime));
            let waited = Duration::from_nanos(now.run_delay.saturating_sub(before.run_delay));
            let waited_at_futex = self.counted_at_futex.contains(&task.tid);
            sum.waiters += u64::from(waited_at_futex);
            sum.still_waiters += u64::from(waited_at_futex && now.pcount == before.pcount);
            sum.ran += ran;
            counted_run += ran;
            sum.waited += waited;
            let name = || task.stat().map(|stat| one_line(&stat.comm)).unwrap_or_default();
            if ran > sum.span / 100 && is_collector(&name()) {
                sum.collector += ran;
            }
            if sum.busiest.as_ref().is_none_or(|busiest| ran + waited > busiest.ran + busiest.waited) {
                sum.busiest = Some(BusyThread { name: name(), ran, waited });
            }
        }
        self.counted_at_futex.clone_from(&self.at_futex);
        let is_known = self.counted.replace(counted).is_some() && are_all;
        self.count_ended(counted_run, is_known, sum);
    }

    /// Adds the CPU time of threads that have ended since the last count.
    fn count_ended(&mut self, counted: Duration, is_known: bool, sum: &mut Scheduling) {
        let Ok(stat) = self.process.stat() else { return };
        let ticks = stat.utime + stat.stime;
        let used = ticks.saturating_sub(std::mem::replace(&mut self.counted_ticks, ticks));
        let used = Duration::from_secs_f64(used as f64 / procfs::ticks_per_second() as f64);
        // The process's own counter is coarser than those of its threads.
        let ended = used.saturating_sub(counted).saturating_sub(sum.span / 20);
        if is_known && !ended.is_zero() {
            sum.ran += ended;
            sum.uncounted += ended;
        }
    }

    fn is_out_of_descriptors(&self) -> bool {
        let (Ok(open), Ok(limits)) = (self.process.fd_count(), self.process.limits()) else { return false };
        match limits.max_open_files.soft_limit {
            LimitValue::Value(most) => open as u64 >= most,
            LimitValue::Unlimited => false,
        }
    }

    fn count_quota(&mut self, sum: &mut Scheduling) {
        let Some(quota) = &self.quota else { return };
        let now = quota.read();
        let before = self.throttling.replace(now).unwrap_or(now);
        // Processes of one service share a group: its counters count once.
        sum.quota_periods = sum.quota_periods.max(now.periods.saturating_sub(before.periods));
        sum.throttled_periods =
            sum.throttled_periods.max(now.throttled_periods.saturating_sub(before.throttled_periods));
        sum.throttled = sum.throttled.max(now.throttled.saturating_sub(before.throttled));
        sum.quota_cpus = sum.quota_cpus.or(now.cpus);
    }
}

/// What a descriptor is to its process.
enum DescriptorRole {
    File,
    Backend,
    Client,
    NameServer,
}

/// Idle and total time of this machine's CPUs so far, in clock ticks.
pub(crate) fn machine_ticks() -> Option<(u64, u64)> {
    let total = KernelStats::current().ok()?.total;
    let idle = total.idle + total.iowait.unwrap_or(0);
    let busy = total.user + total.nice + total.system + total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
    Some((idle, idle + busy + total.steal.unwrap_or(0)))
}

fn procfs_cpus() -> Option<u32> {
    u32::try_from(KernelStats::current().ok()?.cpu_time.len()).ok().filter(|count| *count > 0)
}

/// Whether a thread's name is that of a garbage collector's thread, in the JVM and in .NET.
fn is_collector(name: &str) -> bool {
    ["GC Thread", "G1 ", "Parallel GC", "ZWorker", "XWorker", "Shenandoah", ".NET Server GC", "VM Thread"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Whether the program is an interpreter that runs one thread at a time.
fn interpreter_runs_one_thread(process: &Process, comm: &str) -> bool {
    let program = process.exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let program = program.unwrap_or_else(|| comm.to_owned());
    // A build of Python without the lock has a `t` at its end, such as python3.13t.
    (program.starts_with("python") && !program.ends_with('t')) || program.starts_with("ruby")
}
