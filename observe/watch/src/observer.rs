//! The loop: asks the kernel, follows sockets and processes, keeps a window of polls.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use leeward_sockdiag::{SockDiagError, SocketReader, TcpListener, TcpSocket, TcpState, UnixSocket, UnixState};

use crate::connections::ConnectionTable;
use crate::cpu_budget::{POLLS, PeriodicTask, Share, own_cpu};
use crate::error::WatchError;
use crate::facts::Facts;
use crate::owners;
use crate::poll::{BackendPoll, FrontPoll, Poll, ProcessPoll, Scheduling};
use crate::processes::{SocketRoles, WatchedProcess, machine_ticks};
use crate::report::{ListenerReport, ProcessReport, WatchReport};
use crate::target::{ListenAddress, WatchTarget};
use crate::turn::BackendTurns;
use crate::what_if::what_if;

/// Shortest time between two polls.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(25);

/// Longest time between two polls, however dear one is.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);

/// Time that a report covers.
const WINDOW: Duration = Duration::from_secs(4);

/// Longest sleep before a stop is asked for again.
const STOP_CHECK: Duration = Duration::from_millis(200);

/// Most ports that an error names.
const SHOWN_PORTS: usize = 8;

/// Most listeners that are watched.
const MAX_LISTENERS: usize = 256;

/// Watches listeners.
#[derive(Debug)]
pub struct Observer {
    target: WatchTarget,
    share: Share,
    slo: Option<Duration>,
    reader: SocketReader,
    began: Instant,
    /// Lists listeners, their processes and these processes' sockets.
    list: PeriodicTask,
    /// Looks for the processes of listeners among all processes.
    find_processes: PeriodicTask,
    /// Counts the scheduling of threads.
    count: PeriodicTask,
    /// Lists connections to backends, where that is a dump of its own.
    list_backends: PeriodicTask,
    machine: Option<(u64, u64)>,
    listeners: BTreeMap<ListenAddress, Watched>,
    /// Connections to backends, from the last list: by inode.
    outgoing: HashMap<u32, TcpSocket>,
    /// Of these, connections whose backend owes an answer.
    awaiting: HashSet<u32>,
    backend_turns: BackendTurns,
    /// UDP sockets to name servers, by inode.
    name_servers: HashMap<u32, NameServerSocket>,
    /// First times at which connections were seen that their peers had not accepted.
    connecting: HashMap<u32, Duration>,
    /// All listening sockets, by inode.
    listening: HashMap<u32, SocketAddr>,
    /// Inodes of connections to backends and of name servers' sockets at the last list.
    seen_outgoing: HashSet<u32>,
    /// Time and cost of the last poll.
    polled: Duration,
    last_cost: Duration,
    own_cpu: Duration,
}

/// A listener with its connections and processes.
#[derive(Debug, Default)]
struct Watched {
    inodes: HashSet<u32>,
    connections: ConnectionTable,
    processes: Vec<WatchedProcess>,
    polls: VecDeque<Poll>,
    roles: SocketRoles,
}

impl Observer {
    /// Begins to watch.
    ///
    /// # Errors
    /// Nothing listens where the target says, or the kernel does not list sockets.
    pub fn open(target: WatchTarget) -> Result<Observer, WatchError> {
        if let Some(pid) = target.pid
            && procfs::process::Process::new(i32::try_from(pid).unwrap_or(-1)).is_err()
        {
            return Err(WatchError::NoProcess(pid));
        }
        let reader = SocketReader::open(&target.namespace).map_err(|error| match (error, target.pid) {
            (SockDiagError::Namespace { source, .. }, Some(pid)) if source.kind() == ErrorKind::PermissionDenied => {
                WatchError::invisible_process(pid, target.to_string(), rustix::process::geteuid().is_root())
            }
            (error, _) => error.into(),
        })?;
        let mut observer = Observer {
            target,
            share: Share::ONCE,
            slo: None,
            reader,
            began: Instant::now(),
            list: PeriodicTask::new(1_500, 0.2),
            find_processes: PeriodicTask::new(10_000, 0.1),
            count: PeriodicTask::new(900, 0.1),
            list_backends: PeriodicTask::new(200, 0.2),
            machine: None,
            listeners: BTreeMap::new(),
            outgoing: HashMap::new(),
            awaiting: HashSet::new(),
            backend_turns: BackendTurns::default(),
            name_servers: HashMap::new(),
            connecting: HashMap::new(),
            listening: HashMap::new(),
            seen_outgoing: HashSet::new(),
            polled: Duration::ZERO,
            last_cost: Duration::ZERO,
            own_cpu: Duration::ZERO,
        };
        observer.list_listeners()?;
        if observer.listeners.is_empty() {
            return Err(observer.nothing_listens());
        }
        Ok(observer)
    }

    /// Sets the share of a CPU that polls may use.
    pub fn set_share(&mut self, share: Share) {
        self.share = share;
    }

    /// Adds to each report what a queue with this objective would have done.
    pub fn set_objective(&mut self, slo: Duration) {
        self.slo = Some(slo);
    }

    /// Polls for a time, or until `stop` says so. The last poll is at the end, so that a report
    /// that follows is new; unless a poll costs so much that the share of a CPU allows none yet.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn poll_for(&mut self, span: Duration, stop: &dyn Fn() -> bool) -> Result<(), WatchError> {
        let until = Instant::now() + span;
        if self.list.last.is_none() {
            self.poll()?;
        }
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() || stop() {
                return Ok(());
            }
            let interval = self.interval();
            let elapsed = self.began.elapsed().saturating_sub(self.polled);
            if interval > span && interval > elapsed + rest {
                std::thread::sleep(rest.min(STOP_CHECK));
                continue;
            }
            // A poll shortly before the end would be followed by the last one.
            std::thread::sleep(if rest < interval + interval / 2 { rest } else { interval });
            self.poll()?;
        }
    }

    /// Time to sleep until the next poll, by the share of a CPU and the cost of the last poll.
    pub fn interval(&self) -> Duration {
        self.last_cost.div_f64((self.share.0 * POLLS).max(1e-4)).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
    }

    /// Polls once.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn poll(&mut self) -> Result<(), WatchError> {
        let before = own_cpu();
        let at = self.began.elapsed();
        self.polled = at;
        let mut periodic = Duration::ZERO;
        // A service that restarts is found at once.
        if self.list.is_due(at, self.share) || self.listeners.is_empty() {
            self.list_listeners()?;
            self.list_processes(at);
            periodic += self.list.done(at, before);
        }
        periodic += self.read_connections(at)?;
        periodic += self.read_processes(at);
        let cost = own_cpu().saturating_sub(before);
        // A dump of all sockets may have taken the place of this poll's own.
        if periodic < cost / 2 || self.last_cost.is_zero() {
            self.last_cost = cost.saturating_sub(periodic);
        }
        self.own_cpu += cost;
        Ok(())
    }

    /// Reports of all listeners.
    pub fn report(&self) -> WatchReport {
        let observed = self.began.elapsed();
        WatchReport {
            observed_s: observed.min(WINDOW).as_secs_f64(),
            polls: self.listeners.values().map(|watched| watched.polls.len()).max().unwrap_or(0),
            own_cpu: self.own_cpu.as_secs_f64() / observed.as_secs_f64().max(1e-3),
            listeners: self.reports(),
        }
    }

    /// Reports of the listeners, the one with the oldest unread byte first.
    pub fn reports(&self) -> Vec<ListenerReport> {
        let mut reports: Vec<ListenerReport> = self
            .listeners
            .iter()
            .map(|(address, watched)| {
                let polls: Vec<Poll> = watched.polls.iter().cloned().collect();
                let processes = watched.processes.iter();
                let processes =
                    processes.map(|process| ProcessReport { pid: process.pid, name: process.name.clone() }).collect();
                let facts = Facts::of(&polls);
                let what_if = self.slo.filter(|_| !facts.is_unix).map(|slo| what_if(&polls, slo));
                ListenerReport { what_if, ..ListenerReport::new(address, processes, &facts) }
            })
            .collect();
        reports.sort_by(|left, right| {
            let age = |report: &ListenerReport| report.oldest_unread_median_ms.unwrap_or(0.0);
            let older = age(right).total_cmp(&age(left));
            older.then_with(|| left.address.cmp(&right.address))
        });
        reports
    }

    /// Lists the listeners that the target means. Listeners that have gone are forgotten.
    fn list_listeners(&mut self) -> Result<(), WatchError> {
        let family = self.target.pid.map(owners::family);
        let mut found: BTreeMap<ListenAddress, HashSet<u32>> = BTreeMap::new();
        let target = &self.target;
        self.reader.tcp_listeners(&mut |listener: TcpListener| {
            let address = ListenAddress::Tcp(listener.local);
            if target.selects(&address) {
                found.entry(address).or_default().insert(listener.inode);
            }
        })?;
        if target.port.is_none() {
            self.reader.unix_sockets(&mut |socket: UnixSocket| {
                let UnixSocket { state: UnixState::Listen, inode, name: Some(name), .. } = socket else { return };
                let address = ListenAddress::Unix(name);
                // Every program has Unix sockets: they are watched where they are asked for.
                if (target.unix.is_some() || target.pid.is_some()) && target.selects(&address) {
                    found.insert(address, HashSet::from([inode]));
                }
            })?;
        }
        if let Some(family) = &family {
            let held = owners::held_by(family);
            found.retain(|_, inodes| !inodes.is_disjoint(&held));
        }
        self.listeners.retain(|address, _| found.contains_key(address));
        for (address, inodes) in found.into_iter().take(MAX_LISTENERS) {
            self.listeners.entry(address).or_default().inodes = inodes;
        }
        Ok(())
    }

    /// Finds the processes of listeners, and lists their sockets.
    fn list_processes(&mut self, at: Duration) {
        let began = own_cpu();
        let wanted: HashSet<u32> = self.listeners.values().flat_map(|watched| watched.inodes.iter().copied()).collect();
        for watched in self.listeners.values_mut() {
            watched.processes.iter_mut().for_each(WatchedProcess::list_sockets);
            watched.processes.retain(|process| watched.inodes.iter().any(|inode| process.holds(*inode)));
        }
        let is_missing = self.listeners.values().any(|watched| watched.processes.is_empty());
        // Reading the descriptors of all processes is dear: only where a listener has no process,
        // and now and then, since a service may have made more workers.
        if !is_missing && !self.find_processes.is_due(at, self.share) {
            return;
        }
        for pid in owners::holders(&wanted) {
            let Some(mut process) = WatchedProcess::open(pid) else { continue };
            process.list_sockets();
            for watched in self.listeners.values_mut() {
                let holds = watched.inodes.iter().any(|inode| process.holds(*inode));
                if holds && !watched.processes.iter().any(|known| known.pid == pid) {
                    watched.processes.extend(WatchedProcess::open(pid).map(|mut own| {
                        own.list_sockets();
                        own
                    }));
                }
            }
        }
        self.find_processes.done(at, began);
    }

    /// Reads the connections of all listeners; returns the CPU time of what is not done in every
    /// poll.
    fn read_connections(&mut self, at: Duration) -> Result<Duration, WatchError> {
        let began = own_cpu();
        for watched in self.listeners.values_mut() {
            watched.connections.begin();
            watched.roles.clients.clear();
            watched.roles.requests.clear();
        }
        let lists_backends = self.target.port.is_none() || self.list_backends.is_due(at, self.share);
        let mut periodic = Duration::ZERO;
        let listeners = &mut self.listeners;
        let mut outgoing: HashMap<u32, TcpSocket> = HashMap::new();
        let port = self.target.port.filter(|_| !lists_backends);
        self.reader.tcp_connections(port, &mut |socket| match find(listeners, socket.local) {
            Some(watched) => {
                let is_waiting = watched.connections.tcp(at, &socket);
                if socket.inode != 0 {
                    watched.roles.clients.insert(socket.inode);
                    watched.roles.requests.extend(is_waiting.then_some(socket.inode));
                }
            }
            None if socket.inode != 0 => {
                outgoing.insert(socket.inode, socket);
            }
            None => {}
        })?;
        if lists_backends {
            let is_first = self.list_backends.last.is_none();
            // The kernel knows no time of a connection on which nothing was sent.
            let before = std::mem::take(&mut self.connecting);
            for (inode, socket) in outgoing.iter_mut().filter(|(_, socket)| socket.state == TcpState::SynSent) {
                let since = before.get(inode).copied().unwrap_or(at);
                socket.since_sent = at.saturating_sub(since);
                self.connecting.insert(*inode, since);
            }
            self.awaiting = self.backend_turns.observe(&outgoing);
            self.outgoing = outgoing;
            let before = std::mem::take(&mut self.name_servers);
            let name_servers = &mut self.name_servers;
            self.reader.udp_sockets(&mut |socket| {
                if socket.peer.port() == 53 {
                    let since = before.get(&socket.inode).map_or((!is_first).then_some(at), |before| before.since);
                    name_servers.insert(socket.inode, NameServerSocket { peer: socket.peer, since });
                }
            })?;
            // A service that connects anew for each request holds sockets that were not listed.
            let seen: HashSet<u32> = self.outgoing.keys().chain(name_servers.keys()).copied().collect();
            if !seen.is_subset(&self.seen_outgoing) {
                let processes = listeners.values_mut().flat_map(|watched| &mut watched.processes);
                processes.for_each(WatchedProcess::list_sockets);
            }
            self.seen_outgoing = seen;
            let cost = self.list_backends.done(at, began);
            // A dump of all sockets is in the place of the one by port.
            periodic = if self.target.port.is_some() { cost } else { Duration::ZERO };
        }
        let listening = &mut self.listening;
        listening.clear();
        let mut addresses = HashSet::new();
        self.reader.tcp_listeners(&mut |listener| {
            listening.insert(listener.inode, listener.local);
            addresses.insert(listener.local);
            if let Some(watched) = listeners.get_mut(&ListenAddress::Tcp(listener.local)) {
                watched.connections.accept_queue(listener.waiting, listener.limit);
                watched.connections.dropped(listener.dropped);
                watched.roles.requests.extend((listener.waiting > 0).then_some(listener.inode));
            }
        })?;
        listeners.retain(|address, _| match address {
            ListenAddress::Tcp(address) => addresses.contains(address),
            ListenAddress::Unix(_) => true,
        });
        if listeners.keys().any(|address| matches!(address, ListenAddress::Unix(_))) {
            self.reader.unix_sockets(&mut |socket| {
                let Some(watched) =
                    socket.name.as_ref().and_then(|name| listeners.get_mut(&ListenAddress::Unix(name.clone())))
                else {
                    return;
                };
                match socket.state {
                    UnixState::Listen => watched.connections.unix_accept_queue(socket.unread, socket.limit),
                    UnixState::Connected => {
                        // Any of them may have a request inside.
                        watched.roles.requests.insert(socket.inode);
                        watched.connections.unix(at, &socket);
                    }
                }
            })?;
        }
        Ok(periodic)
    }

    /// Samples the processes, and ends the poll; returns the CPU time of what is not done in every
    /// poll.
    fn read_processes(&mut self, at: Duration) -> Duration {
        let counts = self.count.is_due(at, self.share);
        let span = at.saturating_sub(self.count.last.unwrap_or(at));
        let mut counting = Duration::ZERO;
        let mut idle_cpus = 0.0;
        if counts {
            let now = machine_ticks();
            if let (Some((idle, total)), Some((idle_before, total_before))) = (now, self.machine) {
                let cpus = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
                let total = total.saturating_sub(total_before).max(1) as f64;
                idle_cpus = cpus * idle.saturating_sub(idle_before) as f64 / total;
            }
            self.machine = now;
        }
        for watched in self.listeners.values_mut() {
            let front = watched.connections.end();
            let (outgoing, name_servers) = (&self.outgoing, &self.name_servers);
            let holds = |inode: u32| watched.processes.iter().any(|process| process.holds(inode));
            // A service that calls itself waits for itself, and for no backend.
            let own: Vec<SocketAddr> =
                self.listening.iter().filter(|(inode, _)| holds(**inode)).map(|(_, address)| *address).collect();
            let is_own = |peer: SocketAddr| {
                own.iter().any(|own| own.port() == peer.port() && (own.ip() == peer.ip() || own.ip().is_unspecified()))
            };
            let backends: Vec<&TcpSocket> =
                outgoing.values().filter(|socket| holds(socket.inode) && !is_own(socket.peer)).collect();
            watched.roles.backends = backends.iter().map(|socket| socket.inode).collect();
            let held: HashMap<u32, NameServerSocket> =
                name_servers.iter().filter(|(inode, _)| holds(**inode)).map(|(inode, of)| (*inode, *of)).collect();
            watched.roles.name_servers = held.keys().copied().collect();
            let mut processes = ProcessPoll::default();
            let holders = |inode: u32| watched.processes.iter().filter(|process| process.holds(inode)).count();
            // At a socket that processes share, another one accepts.
            watched.roles.requests.retain(|inode| !watched.inodes.contains(inode) || holders(*inode) == 1);
            let roles = &watched.roles;
            watched.processes.retain_mut(|process| process.sample(roles, &mut processes));
            if counts {
                let began = own_cpu();
                let mut scheduling = Scheduling { span, idle_cpus, ..Scheduling::default() };
                watched.processes.iter_mut().for_each(|process| process.count_scheduling(&mut scheduling));
                processes.scheduling = (!span.is_zero()).then_some(scheduling);
                counting += own_cpu().saturating_sub(began);
            }
            let is_waited_for = processes.threads.name_server > 0.0;
            let asked = held.values().filter(|of| is_waited_for || of.is_query(at));
            let name_server = asked.map(|of| of.peer.to_string()).min();
            let backends = backends_that_owe(&backends, &self.awaiting, longest_wait(&front));
            watched.polls.push_back(Poll { at, front, processes, backends, name_server });
            while watched.polls.front().is_some_and(|poll| at.saturating_sub(poll.at) > WINDOW) {
                watched.polls.pop_front();
            }
        }
        if counts {
            self.count.last = Some(at);
            self.count.cost = counting;
        }
        counting
    }

    fn nothing_listens(&mut self) -> WatchError {
        let address = self.target.to_string();
        let held = self.target.pid.map(|pid| {
            let process = procfs::process::Process::new(i32::try_from(pid).unwrap_or(-1)).ok();
            let is_visible = process.is_some_and(|process| process.fd().is_ok());
            (pid, is_visible, owners::held_by(&owners::family(pid)))
        });
        let is_meant = |inode: u32| held.as_ref().is_none_or(|(.., held)| held.contains(&inode));
        let mut is_udp = false;
        let _ = self.reader.udp_sockets(&mut |socket| {
            let is_asked_for = self.target.port == Some(socket.local.port());
            is_udp |= socket.peer.port() == 0 && is_asked_for && is_meant(socket.inode);
        });
        let udp = if is_udp { " by TCP, but by UDP, which is not watched" } else { "" };
        let mut ports = BTreeSet::new();
        let _ = self.reader.tcp_listeners(&mut |listener| {
            if is_meant(listener.inode) {
                ports.insert(listener.local.port());
            }
        });
        let ports = list(&ports);
        match held {
            Some((pid, false, _)) => WatchError::invisible_process(pid, address, rustix::process::geteuid().is_root()),
            Some((pid, ..)) => {
                let hint = ports.map_or(String::new(), |ports| format!("; it does on {ports}"));
                WatchError::ProcessWithoutListener { pid, address, hint: format!("{udp}{hint}") }
            }
            None => {
                let hint = match ports {
                    Some(ports) => format!("; these ports do: {ports} (for a container, --pid PID or --netns FILE)"),
                    None => "; services in a container have a namespace of their own: --pid PID or --netns FILE".into(),
                };
                WatchError::NoListener { address, hint: format!("{udp}{hint}") }
            }
        }
    }
}

/// A list of ports for people; `None`: there are none.
fn list(ports: &BTreeSet<u16>) -> Option<String> {
    let shown: Vec<String> = ports.iter().take(SHOWN_PORTS).map(|port| format!(":{port}")).collect();
    let more = if ports.len() > SHOWN_PORTS { ", …" } else { "" };
    (!shown.is_empty()).then(|| shown.join(", ") + more)
}

/// The listener that has accepted, or will accept, connections to `local`.
fn find(listeners: &mut BTreeMap<ListenAddress, Watched>, local: SocketAddr) -> Option<&mut Watched> {
    let any_v4 = SocketAddr::from(([0, 0, 0, 0], local.port()));
    let any_v6 = SocketAddr::from(([0; 16], local.port()));
    let address =
        [local, any_v4, any_v6].map(ListenAddress::Tcp).into_iter().find(|address| listeners.contains_key(address))?;
    listeners.get_mut(&address)
}

/// A UDP socket that is connected to a name server.
#[derive(Clone, Copy, Debug)]
struct NameServerSocket {
    peer: SocketAddr,
    /// When it was made; `None`: before the first list.
    since: Option<Duration>,
}

/// Longest time for which a resolver keeps the socket of a query.
const QUERY: Duration = Duration::from_secs(15);

impl NameServerSocket {
    /// Whether it is one that was opened for a query. Event loops keep theirs, asked or not.
    fn is_query(&self, at: Duration) -> bool {
        self.since.is_some_and(|since| at.saturating_sub(since) < QUERY)
    }
}

/// Longest time for which a request may have waited for a backend: no longer than it is inside, or
/// about. A worker that waits for its next job waits longer.
fn longest_wait(front: &FrontPoll) -> Duration {
    if front.accept_queue > 0 || (front.inside > 0 && front.oldest_inside.is_none()) {
        return Duration::MAX;
    }
    let unread = front.oldest_unread.map(|age| age.at_most.unwrap_or(Duration::MAX));
    let oldest = front.oldest_inside.max(unread).unwrap_or_default();
    oldest.saturating_add(oldest / 2).saturating_add(Duration::from_millis(500))
}

/// Backends that owe an answer, summed by address. One that owes it for longer than `longest` owes
/// it to no request.
fn backends_that_owe(sockets: &[&TcpSocket], awaiting: &HashSet<u32>, longest: Duration) -> Vec<BackendPoll> {
    let mut owing: BTreeMap<SocketAddr, BackendPoll> = BTreeMap::new();
    for socket in sockets.iter().filter(|socket| awaiting.contains(&socket.inode) && socket.since_sent <= longest) {
        let backend = owing.entry(socket.peer).or_insert_with(|| BackendPoll {
            address: socket.peer.to_string(),
            waiting: 0,
            oldest: Duration::ZERO,
            connecting: 0,
        });
        backend.waiting += 1;
        backend.oldest = backend.oldest.max(socket.since_sent);
        backend.connecting += u32::from(socket.state == TcpState::SynSent);
    }
    owing.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Child, Command, Stdio};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::cause::Cause;

    /// A process that was stopped.
    struct Stopped(Child);

    impl Stopped {
        /// One that holds these sockets, as its input and output.
        fn holding(listener: impl Into<OwnedFd>, connection: Option<OwnedFd>) -> Stopped {
            let connection = connection.map_or(Stdio::null(), Stdio::from);
            let child = Command::new("sleep").arg("60").stdin(connection).stdout(listener.into()).spawn().unwrap();
            kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
            Stopped(child)
        }
    }

    impl Drop for Stopped {
        fn drop(&mut self) {
            self.0.kill().and_then(|()| self.0.wait()).unwrap();
        }
    }

    /// A socket that listens on a port which others may share.
    fn shared_port(port: u16) -> TcpListener {
        let listener = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseport(&listener, true).unwrap();
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
        listen(&listener, 64).unwrap();
        listener.into()
    }

    /// Connections with a request.
    fn clients(port: u16, count: usize) -> Vec<TcpStream> {
        let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
        let clients: Vec<TcpStream> = std::iter::repeat_with(connect).take(count).collect();
        clients.iter().for_each(|mut client| client.write_all(b"request").unwrap());
        clients
    }

    /// What is said of a service whose clients have sent their requests.
    fn look(address: &str) -> ListenerReport {
        // Time in which the requests become old enough to be worth a word.
        std::thread::sleep(Duration::from_millis(60));
        let mut observer = Observer::open(WatchTarget::parse(address).unwrap()).unwrap();
        observer.poll_for(Duration::from_millis(400), &|| false).unwrap();
        observer.reports().remove(0)
    }

    /// Of two processes that listen, this one runs and the other one is stopped.
    fn assert_is_cause(stopped: &Stopped, is_cause: bool, report: &ListenerReport) {
        let pid = stopped.0.id();
        assert_eq!(report.cause == Cause::Stopped, is_cause, "{report:?}");
        assert!(!is_cause || report.sentence.starts_with(&format!("process {pid} (1 of 2) is stopped")), "{report:?}");
    }

    #[test]
    fn a_stopped_process_is_the_cause_where_requests_wait_for_it() {
        for is_held in [true, false] {
            let listener = shared_port(0);
            let port = listener.local_addr().unwrap().port();
            let _clients = clients(port, 2);
            let accepted = listener.accept().unwrap().0;
            let (held, _kept) = if is_held { (Some(accepted), None) } else { (None, Some(accepted)) };
            // Both may accept the second connection.
            let stopped = Stopped::holding(listener.try_clone().unwrap(), held.map(OwnedFd::from));
            assert_is_cause(&stopped, is_held, &look(&format!(":{port}")));
        }
    }

    #[test]
    fn a_stopped_process_is_the_cause_where_it_alone_could_accept() {
        let listener = shared_port(0);
        let port = listener.local_addr().unwrap().port();
        let stopped = Stopped::holding(shared_port(port), None);
        // The kernel gives each of two sockets some of so many connections.
        let _clients = clients(port, 32);
        assert_is_cause(&stopped, true, &look(&format!(":{port}")));
    }

    #[test]
    fn a_stopped_process_is_the_cause_where_it_has_a_connection_of_a_unix_socket() {
        let path = std::env::temp_dir().join(format!("leeward-watch-{}", std::process::id()));
        for is_held in [true, false] {
            let _ = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).unwrap();
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(b"request").unwrap();
            let accepted = listener.accept().unwrap().0;
            let (held, _kept) = if is_held { (Some(accepted), None) } else { (None, Some(accepted)) };
            let stopped = Stopped::holding(listener.try_clone().unwrap(), held.map(OwnedFd::from));
            assert_is_cause(&stopped, is_held, &look(path.to_str().unwrap()));
        }
        std::fs::remove_file(&path).unwrap();
    }
}
