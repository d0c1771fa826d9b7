//! The loop of a core, and the threads that run it.

use crate::clock::Clock;
use crate::context::{self, Entered, Place};
use crate::packets::PacketDelays;
use crate::parking::Parking;
use crate::queues::RunQueues;
use crate::sync::{AtomicU64, Padded};
use crate::tasks::{ReadyTask, Work};
use crate::timers::Timers;
use leeward_control::units::{Nanos, Time};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a core does when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Looks again and again: the least latency, a whole CPU.
    Spin,
    /// Spins for this long, then sleeps until something comes.
    Adaptive(Nanos),
    /// Sleeps at once.
    Block,
}

/// How the cores are set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many (≥ 1).
    pub cores: usize,
    /// CPUs to pin them to, in turn; empty: wherever the system puts them.
    pub cpus: Vec<usize>,
    /// See [`Idle`].
    pub idle: Idle,
}

/// What the cores of one server share.
pub struct Shared<J> {
    /// The time.
    pub clock: Clock,
    /// Admitted requests that wait.
    pub queues: RunQueues<Work<J>>,
    /// What is known of messages that wait.
    pub packets: PacketDelays,
    /// Nanoseconds that each core has had nothing to do.
    idle: Vec<Padded<AtomicU64>>,
    parking: Arc<Parking>,
    timers: Timers,
    stopping: AtomicBool,
}

impl<J> Shared<J> {
    /// For so many cores. `wake` wakes one of them from its [`Network::poll`], or keeps it from the next one; any thread
    /// may call it.
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
        }
    }

    /// Whether the cores have been asked to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// How long the cores have had nothing to do, all together; a core that spins for want of work counts as idle.
    pub fn idle(&self) -> Nanos {
        Nanos(self.idle.iter().map(|core| core.0.load(Ordering::Relaxed)).sum())
    }

    /// Only `core` itself writes its number.
    fn idled(&self, core: usize, span: Nanos) {
        let idle = &self.idle[core].0;
        idle.store(idle.load(Ordering::Relaxed).saturating_add(span.0), Ordering::Relaxed);
    }

    /// The queueing delay d_m (Breakwater §4).
    pub fn delay(&self, now: Time) -> Nanos {
        self.packets.delay(now) + self.queues.delay(now)
    }

    /// Queues a task that has been woken, from any thread, and wakes a core for it if one sleeps.
    pub(crate) fn ready(&self, core: usize, task: ReadyTask, running: bool) {
        let alone = self.queues.push(core, self.clock.now(), Work::Task(task));
        let next_in_turn = alone && (running || context::place(self.timers.of(core)) == Place::InLoop);
        // Its own core at best. If that is awake it may be busy, and one that sleeps can steal.
        if !next_in_turn && !self.parking.wake(core) {
            self.parking.wake_another(core);
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn parking(&self) -> &Parking {
        &self.parking
    }

    /// Drops what no core will run any more.
    pub(crate) fn close(&self) {
        self.queues.close();
        self.timers.close();
    }
}

/// What a core's network side does. One value per core, used by that core's thread only.
pub trait Network: Send {
    /// What goes through the run queues.
    type Job: Send + 'static;

    /// Does what is due whatever the load: control ticks, timers, messages from other cores. Called between jobs; must
    /// be quick when nothing is due.
    fn housekeeping(&mut self, now: Time);

    /// Reads and answers what has come, queues what is admitted. Waits for up to `wait` if there is nothing, not at all
    /// if that is `None`. Says whether there was anything.
    ///
    /// # Errors
    /// Only what makes it impossible to go on: the core ends with it.
    fn poll(&mut self, wait: Option<Duration>) -> io::Result<bool>;

    /// Runs a job, the core's own or a stolen one. If that is to begin a task, returns it: the core polls it at once.
    fn run(&mut self, since: Time, job: Self::Job) -> Option<ReadyTask>;

    /// When [`Network::housekeeping`] has something to do next.
    fn next_timeout(&self) -> Time;

    /// Whether a core that shall stop may: everything it owes is done.
    fn is_drained(&mut self, now: Time) -> bool;
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
    /// The system has no thread to give.
    pub fn start<N: Network<Job = J> + 'static>(
        options: &Options,
        shared: Arc<Shared<J>>,
        networks: Vec<N>,
    ) -> io::Result<Self> {
        let mut threads = Vec::with_capacity(networks.len());
        for (index, network) in networks.into_iter().enumerate() {
            let core = Core { index, idle: options.idle, shared: Arc::clone(&shared), network, resumed: 0 };
            let cpu = (!options.cpus.is_empty()).then(|| options.cpus[index % options.cpus.len()]);
            let thread = std::thread::Builder::new().name(format!("leeward-core-{index}")).spawn(move || {
                if let Some(id) = cpu {
                    // Not being allowed to pin costs latency, not correctness.
                    core_affinity::set_for_current(core_affinity::CoreId { id });
                }
                core.work()
            })?;
            threads.push(thread);
        }
        Ok(Cores { shared, threads })
    }

    /// What the cores share.
    pub fn shared(&self) -> &Arc<Shared<J>> {
        &self.shared
    }

    /// Asks the cores to finish what they owe and end.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.parking.wake_all();
    }

    /// Waits for the cores to end. Tasks that are left are dropped.
    ///
    /// # Errors
    /// The first core's that could not go on.
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

struct Core<N: Network> {
    index: usize,
    idle: Idle,
    shared: Arc<Shared<N::Job>>,
    network: N,
    /// Tasks gone on with since the last look at the network.
    resumed: u32,
}

/// Tasks that a core goes on with before it looks at its network. Jobs don't count, for they come from the network: they
/// come to an end when it is not looked at. Tasks that wake themselves or each other need not.
const RESUMED_PER_LOOK: u32 = 32;

/// A core that waits is woken for work; this bounds what a defect there would cost.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(100);

impl<N: Network> Core<N> {
    /// Tasks first, then messages, then others' tasks: the order of the simulator (`Order::TasksFirst`).
    fn work(mut self) -> io::Result<()> {
        let entered = context::enter(self.index, Arc::clone(self.shared.timers.of(self.index)));
        let mut idle_since = None;
        // When the last turn began, if it found nothing to do.
        let mut idle_turn: Option<Time> = None;
        loop {
            let now = self.shared.clock.now();
            if let Some(from) = idle_turn.take() {
                self.shared.idled(self.index, now.since(from));
            }
            self.network.housekeeping(now);
            self.shared.timers.fire(self.index, now);
            if self.resumed >= RESUMED_PER_LOOK {
                if self.look()? {
                    self.call_for_help();
                }
                if self.shared.is_stopping() && self.network.is_drained(now) {
                    return Ok(());
                }
            }
            if let Some((since, work)) = self.shared.queues.pop(self.index) {
                self.run(since, work, &entered);
                idle_since = None;
                continue;
            }
            if self.look()? {
                self.call_for_help();
                idle_since = None;
                continue;
            }
            if let Some((since, work)) = self.shared.queues.steal(self.index) {
                self.run(since, work, &entered);
                idle_since = None;
                continue;
            }
            if self.shared.timers.fire_others(self.index, now) {
                idle_since = None;
                continue;
            }
            if self.shared.is_stopping() && self.network.is_drained(now) {
                return Ok(());
            }
            let since = *idle_since.get_or_insert(now);
            idle_turn = Some(now);
            let spin = match self.idle {
                Idle::Spin => true,
                Idle::Adaptive(spin) => now.since(since) < spin,
                Idle::Block => false,
            };
            if spin {
                std::hint::spin_loop();
            } else {
                self.sleep(now)?;
            }
        }
    }

    fn run(&mut self, since: Time, work: Work<N::Job>, entered: &Entered) {
        match work {
            Work::Job(job) => {
                if let Some(task) = self.network.run(since, job) {
                    entered.poll(|| task.run(self.index));
                }
            }
            Work::Task(task) => {
                entered.poll(|| task.run(self.index));
                self.resumed += 1;
            }
        }
    }

    fn look(&mut self) -> io::Result<bool> {
        self.resumed = 0;
        self.network.poll(None)
    }

    /// More jobs than this core can begin at once are for those that sleep.
    fn call_for_help(&self) {
        if !self.shared.queues.are_empty() {
            self.shared.parking.wake_another(self.index);
        }
    }

    fn sleep(&mut self, now: Time) -> io::Result<()> {
        self.shared.parking.going_to_sleep(self.index);
        if self.shared.queues.are_empty() && !self.shared.is_stopping() {
            let until = self.network.next_timeout().min(self.shared.timers.next(self.index));
            let wait = until.since(now).min(LONGEST_SLEEP);
            self.network.poll(Some(Duration::from_nanos(wait.0)))?;
        }
        self.shared.parking.awake(self.index);
        Ok(())
    }
}
