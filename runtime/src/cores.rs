//! The loop of a core, and the threads that run it.

use crate::budget;
use crate::clock::Clock;
use crate::context::{self, Entered, Place, RunDelay};
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

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.parking.wake_all();
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

impl<J: Send> RunDelay for Shared<J> {
    fn run_delay(&self) -> Nanos {
        self.queues.delay(self.clock.now())
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
    /// if that is `None`. If there was anything, says since when: the wait before that is no work.
    ///
    /// # Errors
    /// Only what makes it impossible to go on: the core ends with it, and asks the others to.
    fn poll(&mut self, wait: Option<Duration>) -> io::Result<Option<Time>>;

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
                let _will = LastWill(Arc::clone(&core.shared));
                core.work()
            });
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // Those that have begun must not go on without an owner.
                    let begun = Cores { shared, threads };
                    begun.stop();
                    let _ = begun.join();
                    return Err(error);
                }
            }
        }
        Ok(Cores { shared, threads })
    }

    /// What the cores share.
    pub fn shared(&self) -> &Arc<Shared<J>> {
        &self.shared
    }

    /// Asks the cores to finish what they owe and end.
    pub fn stop(&self) {
        self.shared.stop();
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

/// While the cores end, each looks this often whether it may: some of what it waits for is others'.
const STOPPING_SLEEP: Nanos = Nanos::from_millis(1);

impl<N: Network> Core<N> {
    /// Tasks first, then messages, then others' tasks: the order of the simulator (`Order::TasksFirst`).
    fn work(mut self) -> io::Result<()> {
        let delay: Arc<dyn RunDelay> = Arc::clone(&self.shared) as _;
        let entered = context::enter(self.index, Arc::clone(self.shared.timers.of(self.index)), delay);
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
                self.run(now, since, work, &entered);
                idle_since = None;
                continue;
            }
            if self.look()? {
                self.call_for_help();
                idle_since = None;
                continue;
            }
            if let Some((since, work)) = self.shared.queues.steal(self.index) {
                self.run(now, since, work, &entered);
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
            } else if let Some(came) = self.sleep(now)? {
                self.shared.idled(self.index, came.since(now));
                idle_turn = None;
            }
        }
    }

    /// `now`: when the core looked for something to do.
    fn run(&mut self, now: Time, since: Time, work: Work<N::Job>, entered: &Entered) {
        match work {
            Work::Job(job) => {
                if let Some(task) = self.network.run(since, job) {
                    entered.poll(|| task.run(self.index));
                }
            }
            Work::Task(task) => {
                budget::turn_came_after(now.since(since));
                entered.poll(|| task.run(self.index));
                self.resumed += 1;
            }
        }
        // A task that is no request's has left it.
        budget::turn_came_after(Nanos::ZERO);
    }

    fn look(&mut self) -> io::Result<bool> {
        self.resumed = 0;
        Ok(self.network.poll(None)?.is_some())
    }

    /// More jobs than this core can begin at once are for those that sleep.
    fn call_for_help(&self) {
        if !self.shared.queues.are_empty() {
            self.shared.parking.wake_another(self.index);
        }
    }

    /// Says when what ended the sleep came, if that was a message.
    fn sleep(&mut self, now: Time) -> io::Result<Option<Time>> {
        self.shared.parking.going_to_sleep(self.index);
        let mut came = None;
        if self.shared.queues.are_empty() {
            let until = self.network.next_timeout().min(self.shared.timers.next(self.index));
            let longest = if self.shared.is_stopping() { STOPPING_SLEEP } else { LONGEST_SLEEP };
            came = self.network.poll(Some(Duration::from_nanos(until.since(now).min(longest).0)))?;
        }
        self.shared.parking.awake(self.index);
        Ok(came)
    }
}

/// Asks all cores to end when it goes, unless that is what they have been asked already: a server of which a part has
/// failed would leave the clients of that part waiting for ever.
struct LastWill<J>(Arc<Shared<J>>);

impl<J> Drop for LastWill<J> {
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

    /// A network without messages that counts its looks and follows a script.
    struct Scripted {
        clock: Clock,
        /// What comes at the first look that may wait.
        first: Option<Event>,
        waits: Arc<AtomicUsize>,
        /// Waits that it takes until everything owed is done.
        owes: usize,
    }

    enum Event {
        Error,
        Panic,
        /// Something that takes this long to read.
        Message(Nanos),
    }

    impl Network for Scripted {
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
        let options = Options { cores: events.len(), cpus: Vec::new(), idle: Idle::Block };
        let clock = Clock::start();
        let shared = Arc::new(Shared::new(events.len(), clock.clone(), |_| ()));
        let waits = Arc::new(AtomicUsize::new(0));
        let network = |first| Scripted { clock: clock.clone(), first, waits: Arc::clone(&waits), owes };
        let networks: Vec<_> = events.into_iter().map(network).collect();
        (Cores::start(&options, shared, networks).unwrap(), waits)
    }

    #[test]
    fn a_core_that_can_not_go_on_ends_the_others() {
        for event in [Event::Error, Event::Panic] {
            let (cores, _) = start(vec![None, Some(event), None], 0);
            // Nobody asks them to stop.
            assert!(cores.join().is_err());
        }
    }

    #[test]
    fn cores_that_wait_for_their_end_do_not_spin() {
        // It owes something until it has waited more often than it may before it is asked to end.
        let (cores, _) = start(vec![None], 1_000);
        cores.stop();
        // A core that does not wait meanwhile never ends.
        cores.join().unwrap();
    }

    #[test]
    fn what_ends_a_sleep_is_work() {
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
