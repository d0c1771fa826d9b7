//! The loop of a core, and the threads that run it.

use crate::allocation::{Allocation, AllocatorLoad, CoreStates, CoreUsage};
use crate::budget;
use crate::clock::Clock;
use crate::context::{self, CallerLocation, EnterGuard, RunDelay};
use crate::packets::PacketDelays;
use crate::parking::Parking;
use crate::queues::RunQueues;
use crate::sync::{AtomicU64, Padded};
use crate::tasks::{ReadyTask, TaskScheduler, Work};
use crate::timers::Timers;
use leeward_core::units::{Nanos, Time};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Behaviour of an idle core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Polls without pause: the least latency, at the cost of a whole CPU.
    Spin,
    /// Spins for this long, then sleeps until an event.
    Adaptive(Nanos),
    /// Sleeps at once.
    Block,
}

/// Configuration of the cores.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// Number of cores (≥ 1).
    pub cores: usize,
    /// CPUs to pin the cores to, in turn. Empty: the system places them.
    pub cpus: Vec<usize>,
    /// Behaviour of an idle core.
    pub idle: IdlePolicy,
}

/// State that the cores of a server share.
pub struct Shared<J> {
    /// The clock.
    pub clock: Clock,
    /// Run queues of admitted requests and woken tasks.
    pub queues: RunQueues<Work<J>>,
    /// Delays of unread messages.
    pub packets: PacketDelays,
    /// Idle nanoseconds of each core.
    idle: Vec<Padded<AtomicU64>>,
    parking: Arc<Parking>,
    timers: Timers,
    stopping: AtomicBool,
    /// Set if an allocator grants and revokes cores.
    core_states: OnceLock<CoreStates>,
}

impl<J> Shared<J> {
    /// Makes the state for `cores` cores. `wake` wakes a core from its [`Network::poll`], or keeps
    /// it from the next one. Any thread may call it.
    pub fn new(cores: usize, clock: Clock, wake: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let parking = Arc::new(Parking::new(cores, wake));
        Shared {
            timers: Timers::new(cores, &clock, &parking),
            clock,
            queues: RunQueues::new(cores),
            packets: PacketDelays::new(cores),
            idle: (0..cores).map(|_| Padded(AtomicU64::new(0))).collect(),
            parking,
            stopping: AtomicBool::new(false),
            core_states: OnceLock::new(),
        }
    }

    /// Returns whether the cores have been asked to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Asks the cores to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.parking.wake_all();
        if let Some(states) = self.core_states.get() {
            states.close(self.clock.now());
        }
    }

    /// Use of the cores so far; `None` without an allocator.
    pub fn core_usage(&self) -> Option<CoreUsage> {
        self.core_states.get().map(|states| states.usage(self.clock.now()))
    }

    /// Returns whether `core` polls the network of `other`, which is parked, before it sleeps.
    pub fn is_polled_by(&self, core: usize, other: usize) -> bool {
        core == 0 && self.core_states.get().is_some_and(|states| states.is_parked(other))
    }

    /// Load for the allocator, besides what the core states know.
    fn load(&self, now: Time) -> AllocatorLoad {
        let cores = 0..self.idle.len();
        let ages = cores.map(|core| self.queues.age(core, now).max(self.packets.found(core)));
        let (oldest, sum) = ages.fold((Nanos::ZERO, Nanos::ZERO), |(most, sum), age| (most.max(age), sum + age));
        let waiting = u32::try_from(self.queues.waiting()).unwrap_or(u32::MAX);
        AllocatorLoad { waiting, oldest, ages: sum, idle: self.idle() }
    }

    /// Idle time of all cores together. A core that spins without work counts as idle.
    pub fn idle(&self) -> Nanos {
        Nanos(self.idle.iter().map(|core| core.0.load(Ordering::Relaxed)).sum())
    }

    /// [`Shared::idle`], plus the time for which an allocator had parked cores.
    pub fn unused(&self) -> Nanos {
        let parked = self.core_usage().map_or(0, |usage| usage.parked.iter().map(|span| span.0).sum());
        Nanos(self.idle().0.saturating_add(parked))
    }

    /// Only `core` itself writes its counter.
    fn add_idle(&self, core: usize, span: Nanos) {
        let idle = &self.idle[core].0;
        idle.store(idle.load(Ordering::Relaxed).saturating_add(span.0), Ordering::Relaxed);
    }

    /// Queueing delay d_m (Breakwater §4).
    pub fn delay(&self, now: Time) -> Nanos {
        self.packets.delay(now) + self.queues.delay(now)
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn parking(&self) -> &Parking {
        &self.parking
    }

    /// Drops work that no core will run any more.
    pub fn close(&self) {
        self.queues.close();
        self.timers.close();
    }
}

impl<J: Send> TaskScheduler for Shared<J> {
    fn schedule(&self, core: usize, task: ReadyTask, running: bool) {
        let alone = self.queues.push(core, self.clock.now(), Work::Task(task));
        let next_in_turn =
            alone && (running || context::caller_location(self.timers.of(core)) == CallerLocation::InLoop);
        // Wakes the task's core if it sleeps. If it is awake it may be busy, and a core that sleeps
        // can steal.
        if !next_in_turn && !self.parking.wake(core) {
            self.parking.wake_another(core);
        }
    }
}

impl<J: Send> RunDelay for Shared<J> {
    fn run_delay(&self) -> Nanos {
        self.queues.delay(self.clock.now())
    }
}

/// Event loop of a core: its sockets, and the execution of its jobs. Each core has one, normally
/// used by that core's thread only.
pub trait Network: Send {
    /// Job that goes through the run queues.
    type Job: Send + 'static;

    /// Does the work that is due under any load: control ticks, timers, messages from other cores.
    /// Called between jobs; must be quick when nothing is due.
    fn housekeeping(&mut self, now: Time);

    /// Reads and answers messages, and queues admitted requests. Waits up to `wait` if there is
    /// nothing; `None` means not at all. If there was work, returns the time from which it was
    /// there, since the wait before counts as idle.
    ///
    /// # Errors
    /// Only an error after which the core can't continue. The core ends with it, and asks the
    /// others to end.
    fn poll(&mut self, wait: Option<Duration>) -> io::Result<Option<Time>>;

    /// Runs a job, the core's own or a stolen one. Returns a task if the job begins one; the core
    /// polls it at once.
    fn run(&mut self, since: Time, job: Self::Job) -> Option<ReadyTask>;

    /// Time at which [`Network::housekeeping`] is due next.
    fn next_timeout(&self) -> Time;

    /// Returns whether a core that must stop may end, because its pending work is done.
    fn is_drained(&mut self, now: Time) -> bool;

    /// Hands the network of a parking core to the first core. From now on events for it end the
    /// first core's [`Network::poll`], including events that are already pending. Only for cores
    /// with an allocator, and never for the first.
    ///
    /// # Errors
    /// Only an error after which the core can't continue.
    fn park(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes the network back to its core.
    ///
    /// # Errors
    /// Only an error after which the core can't continue.
    fn unpark(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Running cores.
pub struct Cores<J> {
    shared: Arc<Shared<J>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl<J: Send + 'static> Cores<J> {
    /// Starts one thread per network, in the order of cores.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start<N: Network<Job = J> + 'static>(
        options: &CoreOptions,
        shared: Arc<Shared<J>>,
        networks: Vec<N>,
    ) -> io::Result<Self> {
        Cores::begin(options, shared, networks)
    }

    /// Starts cores that an allocator grants and revokes. The minimum of cores is active at first.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start_allocated<N: Network<Job = J> + 'static>(
        options: &CoreOptions,
        shared: Arc<Shared<J>>,
        networks: Vec<N>,
        allocation: Allocation,
    ) -> io::Result<Self> {
        let states = CoreStates::new(allocation, networks.len(), shared.clock.now());
        let _ = shared.core_states.set(states);
        Cores::begin(options, shared, networks)
    }

    fn begin<N: Network<Job = J> + 'static>(
        options: &CoreOptions,
        shared: Arc<Shared<J>>,
        networks: Vec<N>,
    ) -> io::Result<Self> {
        let networks: Arc<[Mutex<N>]> = networks.into_iter().map(Mutex::new).collect();
        let mut threads = Vec::with_capacity(networks.len());
        for index in 0..networks.len() {
            let core = Core { index, idle: options.idle, shared: Arc::clone(&shared), resumed: 0 };
            let networks = Arc::clone(&networks);
            let cpu = (!options.cpus.is_empty()).then(|| options.cpus[index % options.cpus.len()]);
            let thread = std::thread::Builder::new().name(format!("leeward-core-{index}")).spawn(move || {
                if let Some(id) = cpu {
                    // Failing to pin costs latency, not correctness.
                    core_affinity::set_for_current(core_affinity::CoreId { id });
                }
                let _will = StopOnDrop(Arc::clone(&core.shared));
                core.run_loop(&networks)
            });
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // Threads that have started must not continue without an owner.
                    let begun = Cores { shared, threads };
                    begun.stop();
                    let _ = begun.join();
                    return Err(error);
                }
            }
        }
        Ok(Cores { shared, threads })
    }

    /// State that the cores share.
    pub fn shared(&self) -> &Arc<Shared<J>> {
        &self.shared
    }

    /// Asks the cores to finish their pending work and end.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Waits for the cores to end. Remaining tasks are dropped.
    ///
    /// # Errors
    /// The error of the first core that failed.
    pub fn join(self) -> io::Result<()> {
        let mut outcome = Ok(());
        for thread in self.threads {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a core has panicked")));
            outcome = outcome.and(ended);
        }
        self.shared.close();
        outcome
    }
}

struct Core<J> {
    index: usize,
    idle: IdlePolicy,
    shared: Arc<Shared<J>>,
    /// Tasks resumed since the last poll of the network.
    resumed: u32,
}

/// Tasks that a core resumes before it polls its network. Jobs don't count: they come from the
/// network, and run out while it is not polled. Tasks that wake themselves or each other need not.
const RESUMED_PER_POLL: u32 = 32;

/// Maximum sleep. A waiting core is woken for work; this bounds the cost of a defect there.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(100);

/// Period at which each core checks whether it may end. Some work that it waits for belongs to
/// others.
const STOPPING_SLEEP: Nanos = Nanos::from_millis(1);

/// Result of polling the parked cores' networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParkedPoll {
    Empty,
    Ready,
    /// Another core holds one of these networks now.
    Contended,
}

impl<J: Send + 'static> Core<J> {
    /// Tasks first, then messages, then other cores' tasks: the order of the simulator
    /// (`QueueOrder::TasksFirst`).
    fn run_loop<N: Network<Job = J>>(mut self, networks: &[Mutex<N>]) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let states = shared.core_states.get();
        let delay: Arc<dyn RunDelay> = Arc::clone(&self.shared) as _;
        let entered = context::enter(self.index, Arc::clone(self.shared.timers.of(self.index)), delay);
        // A network belongs to its core while the core is active.
        let mut network = lock(&networks[self.index]);
        let mut idle_since = None;
        // Start of the last round, if that found nothing to do.
        let mut idle_turn: Option<Time> = None;
        if states.is_some_and(|states| states.is_parked(self.index)) {
            network = self.wait_parked(networks, network)?;
        }
        loop {
            let now = shared.clock.now();
            if let Some(from) = idle_turn.take() {
                shared.add_idle(self.index, now.since(from));
            }
            if let Some(states) = states {
                states.set_idle(self.index, idle_since.is_some());
                states.tick(now, || shared.load(now), |core| _ = shared.parking.wake(core));
                let search_has_ended =
                    || states.search_time().zip(idle_since).is_some_and(|(time, since)| now.since(since) >= time);
                let must_park = states.is_revoked(self.index) || (states.may_park(self.index) && search_has_ended());
                if must_park && states.park(self.index, now) {
                    network = self.wait_parked(networks, network)?;
                    idle_since = None;
                    continue;
                }
            }
            network.housekeeping(now);
            shared.timers.fire(self.index, now);
            let all_kept = self.index != 0 || self.housekeep_parked(networks, now);
            if self.resumed >= RESUMED_PER_POLL {
                if self.poll_network(&mut *network)? {
                    self.wake_helper();
                }
                if shared.is_stopping() && network.is_drained(now) {
                    return Ok(());
                }
            }
            if let Some((since, work)) = self.next() {
                self.run(&mut *network, now, since, work, &entered);
                idle_since = None;
                continue;
            }
            let own = self.poll_network(&mut *network)?;
            let others = if self.index == 0 { self.poll_parked(networks)? } else { ParkedPoll::Empty };
            if own || others == ParkedPoll::Ready {
                self.wake_helper();
                idle_since = None;
                continue;
            }
            if let Some((since, work)) = shared.queues.steal(self.index) {
                self.run(&mut *network, now, since, work, &entered);
                idle_since = None;
                continue;
            }
            if shared.timers.fire_others(self.index, now) {
                idle_since = None;
                continue;
            }
            if self.index != 0 && self.poll_parked(networks)? == ParkedPoll::Ready {
                idle_since = None;
                continue;
            }
            if shared.is_stopping() && network.is_drained(now) {
                return Ok(());
            }
            let since = *idle_since.get_or_insert(now);
            idle_turn = Some(now);
            // A core that may park searches until then.
            let searches = states.is_some_and(|states| states.may_park(self.index) && states.search_time().is_some());
            let spin = match self.idle {
                IdlePolicy::Spin => true,
                IdlePolicy::Adaptive(spin) => now.since(since) < spin,
                IdlePolicy::Block => false,
            };
            if spin || searches || others == ParkedPoll::Contended || !all_kept {
                std::hint::spin_loop();
            } else if let Some(arrival) = self.sleep(networks, &mut *network, now)? {
                shared.add_idle(self.index, arrival.since(now));
                idle_turn = None;
            }
        }
    }

    /// Takes the oldest work of its own queue. The first core also takes work of parked cores'
    /// queues.
    fn next(&self) -> Option<(Time, Work<J>)> {
        self.shared.queues.pop(self.index).or_else(|| {
            let states = self.shared.core_states.get().filter(|_| self.index == 0)?;
            states.parked().find_map(|core| self.shared.queues.pop(core))
        })
    }

    /// Runs work. `now`: the time at which the core looked for work.
    fn run<N: Network<Job = J>>(
        &mut self,
        network: &mut N,
        now: Time,
        since: Time,
        work: Work<J>,
        entered: &EnterGuard,
    ) {
        match work {
            Work::Job(job) => {
                if let Some(task) = network.run(since, job) {
                    entered.poll(|| task.run(self.index));
                }
            }
            Work::Task(task) => {
                budget::note_run_wait(now.since(since));
                entered.poll(|| task.run(self.index));
                self.resumed += 1;
            }
        }
        // Code that is no request's task must not be charged for this wait.
        budget::note_run_wait(Nanos::ZERO);
    }

    fn poll_network<N: Network>(&mut self, network: &mut N) -> io::Result<bool> {
        self.resumed = 0;
        Ok(network.poll(None)?.is_some())
    }

    /// Wakes a sleeping core if more jobs wait than this core can begin at once.
    fn wake_helper(&self) {
        if !self.shared.queues.are_empty() {
            self.shared.parking.wake_another(self.index);
        }
    }

    /// Sleeps. Returns the arrival time of the message that ended the sleep, if one did.
    fn sleep<N: Network>(&mut self, networks: &[Mutex<N>], network: &mut N, now: Time) -> io::Result<Option<Time>> {
        self.shared.parking.prepare_sleep(self.index);
        let mut arrival = None;
        let states = self.shared.core_states.get();
        let has_leftover = self.index == 0 && states.is_some_and(CoreStates::has_leftover);
        if self.shared.queues.are_empty() && !has_leftover {
            let mut deadline = network.next_timeout().min(self.shared.timers.next(self.index));
            if self.index == 0 {
                deadline = deadline.min(self.next_parked_timeout(networks));
            }
            let longest = if self.shared.is_stopping() { STOPPING_SLEEP } else { LONGEST_SLEEP };
            arrival = network.poll(Some(Duration::from_nanos(deadline.since(now).min(longest).0)))?;
        }
        self.shared.parking.set_awake(self.index);
        Ok(arrival)
    }

    // ---- cores under an allocator ----

    /// Hands the parked core's network to the first core, waits for a grant, and takes the network
    /// back.
    fn wait_parked<'a, N: Network>(
        &mut self,
        networks: &'a [Mutex<N>],
        mut network: MutexGuard<'a, N>,
    ) -> io::Result<MutexGuard<'a, N>> {
        let Some(states) = self.shared.core_states.get() else { return Ok(network) };
        self.shared.parking.set_absent(self.index, true);
        network.park()?;
        drop(network);
        self.hand_to_first(self.index);
        states.wait_granted(self.index);
        self.shared.parking.set_absent(self.index, false);
        let mut network = lock(&networks[self.index]);
        network.unpark()?;
        Ok(network)
    }

    /// Makes the first core look at `core`'s leftover work.
    fn hand_to_first(&self, core: usize) {
        if let Some(states) = self.shared.core_states.get() {
            states.mark_leftover(core);
            self.shared.parking.wake(0);
        }
    }

    /// Does the parked cores' housekeeping. Returns whether that was done for all of them. Another
    /// core may hold one of the networks now.
    fn housekeep_parked<N: Network>(&self, networks: &[Mutex<N>], now: Time) -> bool {
        let Some(states) = self.shared.core_states.get() else { return true };
        let mut all = true;
        for core in states.parked() {
            match try_lock(&networks[core]) {
                Some(mut network) => network.housekeeping(now),
                None => all = false,
            }
            self.shared.timers.fire(core, now);
        }
        all
    }

    /// Polls the networks of the parked cores.
    fn poll_parked<N: Network>(&self, networks: &[Mutex<N>]) -> io::Result<ParkedPoll> {
        let mut found = ParkedPoll::Empty;
        let Some(states) = self.shared.core_states.get() else { return Ok(found) };
        for core in states.parked() {
            if self.index == 0 {
                states.clear_leftover(core);
            }
            let Some(mut network) = try_lock(&networks[core]) else {
                if found == ParkedPoll::Empty {
                    found = ParkedPoll::Contended;
                }
                continue;
            };
            let is_ready = network.poll(None)?.is_some();
            drop(network);
            if is_ready {
                found = ParkedPoll::Ready;
                // More may be pending, and the messages read have responses: the first core returns
                // to these.
                if self.index != 0 {
                    self.hand_to_first(core);
                }
            }
        }
        Ok(found)
    }

    fn next_parked_timeout<N: Network>(&self, networks: &[Mutex<N>]) -> Time {
        let Some(states) = self.shared.core_states.get() else { return Time::NEVER };
        let next = |core: usize| {
            let network = try_lock(&networks[core]).map_or(Time::NEVER, |network| network.next_timeout());
            network.min(self.shared.timers.next(core))
        };
        states.parked().map(next).min().unwrap_or(Time::NEVER)
    }
}

/// Locks a network, poisoned or not: the cores end in good order, and their networks are
/// consistent.
fn lock<N>(network: &Mutex<N>) -> MutexGuard<'_, N> {
    network.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<N>(network: &Mutex<N>) -> Option<MutexGuard<'_, N>> {
    match network.try_lock() {
        Ok(network) => Some(network),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Asks all cores to end when it is dropped, unless they have been asked already. A server with one
/// failed part would leave that part's clients waiting for ever.
struct StopOnDrop<J>(Arc<Shared<J>>);

impl<J> Drop for StopOnDrop<J> {
    fn drop(&mut self) {
        if !self.0.is_stopping() {
            self.0.stop();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::AtomicUsize;

    /// A network without messages that counts its polls and follows a script.
    struct ScriptedNetwork {
        clock: Clock,
        /// Event of the first poll that may wait.
        first: Option<Event>,
        waits: Arc<AtomicUsize>,
        /// Number of waits until its pending work is done.
        owes: usize,
    }

    enum Event {
        Error,
        Panic,
        /// A message that takes this long to read.
        Message(Nanos),
    }

    impl Network for ScriptedNetwork {
        type Job = Infallible;

        fn housekeeping(&mut self, _: Time) {}

        fn poll(&mut self, wait: Option<Duration>) -> io::Result<Option<Time>> {
            if wait.is_none() {
                return Ok(None);
            }
            self.waits.fetch_add(1, Ordering::SeqCst);
            match self.first.take() {
                Some(Event::Error) => Err(io::Error::other("as asked")),
                Some(Event::Panic) => panic!("as asked"),
                Some(Event::Message(span)) => {
                    let began = self.clock.now();
                    while self.clock.now().since(began) < span {
                        std::hint::spin_loop();
                    }
                    Ok(Some(began))
                }
                None => {
                    std::thread::sleep(Duration::from_micros(100));
                    Ok(None)
                }
            }
        }

        fn run(&mut self, _: Time, job: Infallible) -> Option<ReadyTask> {
            match job {}
        }

        fn next_timeout(&self) -> Time {
            Time::NEVER
        }

        fn is_drained(&mut self, _: Time) -> bool {
            self.waits.load(Ordering::SeqCst) >= self.owes
        }
    }

    fn start(events: Vec<Option<Event>>, owes: usize) -> (Cores<Infallible>, Arc<AtomicUsize>) {
        let options = CoreOptions { cores: events.len(), cpus: Vec::new(), idle: IdlePolicy::Block };
        let clock = Clock::start();
        let shared = Arc::new(Shared::new(events.len(), clock.clone(), |_| ()));
        let waits = Arc::new(AtomicUsize::new(0));
        let network = |first| ScriptedNetwork { clock: clock.clone(), first, waits: Arc::clone(&waits), owes };
        let networks: Vec<_> = events.into_iter().map(network).collect();
        (Cores::start(&options, shared, networks).unwrap(), waits)
    }

    #[test]
    fn a_failed_core_stops_the_others() {
        for event in [Event::Error, Event::Panic] {
            let (cores, _) = start(vec![None, Some(event), None], 0);
            // Nobody asks the cores to stop.
            assert!(cores.join().is_err());
        }
    }

    #[test]
    fn cores_that_wait_for_shutdown_do_not_spin() {
        // It has pending work until it has waited more often than it may before it is asked to end.
        let (cores, _) = start(vec![None], 1_000);
        cores.stop();
        // A core that does not wait meanwhile never ends.
        cores.join().unwrap();
    }

    #[test]
    fn the_event_that_ends_a_sleep_counts_as_work() {
        let span = Nanos::from_secs(1);
        let (cores, waits) = start(vec![Some(Event::Message(span))], 0);
        while waits.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        let (idle, until) = (cores.shared().idle(), cores.shared().clock.now());
        assert!(idle + span <= until.since(Time::ZERO), "{idle} idle within {until:?}, and {span} of work");
        cores.stop();
        cores.join().unwrap();
    }
}
