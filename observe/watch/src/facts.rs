//! What a few seconds of polls say. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use leeward_sockdiag::AgeBounds;

use crate::poll::{Poll, Scheduling, ThreadCounts};

/// A queue whose oldest request is younger than this is not worth a word: it is what a service at
/// seven tenths of its capacity has on a shared machine.
pub(crate) const FRONT_AGE: Duration = Duration::from_millis(25);

/// A request that is inside for less than this is not slow by itself.
pub(crate) const INSIDE_AGE: Duration = Duration::from_millis(100);

/// A pause that is shorter than this is a busy moment.
const STALL: Duration = Duration::from_millis(80);

/// Requests that wait at the end of a pause. Fewer may be one slow request.
const STALLED: u32 = 3;

/// Answers that usually come in the time of a pause. A service that answers eight times a second
/// has no pause when it answers nothing for 200 ms.
const MISSED: f64 = 5.0;

/// What a window of polls says about a listener. Shares are of the polls, 0..=1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Length of the window.
    pub span: Duration,
    /// Mean number of connections.
    pub connections: f64,
    /// Mean number of connections with unread bytes.
    pub unread: f64,
    /// Of these, connections that a program has accepted.
    pub unread_accepted: f64,
    /// Whether the listener is a Unix socket: arrivals, responses, pauses, and what is inside are
    /// not known. Ages are the times for which polls saw unread bytes in a connection.
    pub is_unix: bool,
    /// Share of polls in which the oldest unread byte was older than 25 ms.
    pub front_share: f64,
    /// Mean time for which a request is unread: the number of unread ones over the arrivals per
    /// second (Little's law), which is finer than the kernel's clock. Zero below ten arrivals per
    /// second.
    pub mean_unread: Duration,
    /// Age of the oldest unread byte: the median over polls.
    pub oldest_unread: Option<AgeBounds>,
    /// Age of the oldest unread byte at the last poll.
    pub oldest_unread_now: Option<AgeBounds>,
    /// Largest age of an unread byte.
    pub oldest_unread_max: Duration,
    /// Mean number of requests inside.
    pub inside: f64,
    /// Share of polls in which a request was inside for more than 100 ms.
    pub inside_share: f64,
    /// Time for which the oldest request has been inside: the median over polls.
    pub oldest_inside: Duration,
    /// Mean number of connections that nobody has accepted.
    pub accept_queue: f64,
    /// Share of polls in which some waited to be accepted.
    pub accept_share: f64,
    /// Longest accept queue.
    pub accept_limit: u32,
    /// Connections that the kernel dropped.
    pub dropped: u64,
    /// Mean number of connections whose peer does not read its response.
    pub slow_readers: f64,
    /// Requests per second: segments with data.
    pub arrivals_per_s: f64,
    /// Responses per second.
    pub responses_per_s: f64,
    /// Segments sent again, per second.
    pub retransmitted_per_s: f64,
    /// Share of time in pauses: three requests or more wait, in front or inside, and nothing is
    /// answered for 80 ms or more, in which five answers usually come.
    pub stall_share: f64,
    /// Longest such pause.
    pub longest_stall: Duration,
    /// Number of such pauses.
    pub stalls: u32,
    /// CPUs that the processes used during these pauses.
    pub stall_cpus: f64,
    /// CPUs that the processes used in the rest of the time.
    pub serving_cpus: f64,
    /// Whether a process has as many descriptors open as it may.
    pub is_out_of_descriptors: bool,
    /// Whether the processes could be looked into.
    pub is_visible: bool,
    /// Share of polls in which all of them were stopped.
    pub stopped_share: f64,
    /// Mean number of processes.
    pub processes: f64,
    /// Numbers of those that were stopped in half of the polls or more, in order.
    pub stopped_pids: Vec<u32>,
    /// Share of polls in which a request waited for a stopped process.
    pub waits_for_stopped_share: f64,
    /// CPUs that the processes used.
    pub cpus: f64,
    /// CPUs that they may use.
    pub allowed_cpus: f64,
    /// CPUs' worth of time in which the machine was idle.
    pub idle_cpus: f64,
    /// CPUs' worth of time for which their threads waited for a CPU.
    pub waiting_for_cpus: f64,
    /// The busiest thread.
    pub busiest: Option<BusiestThread>,
    /// CPUs that threads of garbage collectors used.
    pub collector_cpus: f64,
    /// Share of the threads at the futex with most waiters that did not run for a second.
    pub still_waiters: f64,
    /// Whether the runtime runs one thread at a time.
    pub runs_one_thread: bool,
    /// CPUs that a quota allows.
    pub quota_cpus: Option<f64>,
    /// Share of the quota's periods in which the processes were throttled.
    pub throttled_share: f64,
    /// Throttled time per second, over CPUs.
    pub throttled_cpus: f64,
    /// Mean numbers of threads by what they wait for.
    pub threads: ThreadCounts,
    /// Backends that owe answers, the one that owes most first.
    pub backends: Vec<Backend>,
    /// Share of polls in which a name server owed an answer, and its address.
    pub name_server: Option<(String, f64)>,
}

/// The thread that ran and waited for a CPU longest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BusiestThread {
    /// Name.
    pub name: String,
    /// Share of the time for which it ran.
    pub ran: f64,
    /// Share of the time for which it waited for a CPU.
    pub waited: f64,
}

/// A backend that owes answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backend {
    /// Address.
    pub address: String,
    /// Share of polls in which it owed an answer.
    pub share: f64,
    /// Mean number of connections on which it did.
    pub waiting: f64,
    /// Largest number of them.
    pub most: u32,
    /// Time for which the oldest request has waited: the median over polls in which one did.
    pub oldest: Duration,
    /// Mean number of connections that it has not accepted.
    pub connecting: f64,
}

impl Facts {
    /// Sums up polls, oldest first. Rates and CPU time count from the second poll on, since the
    /// first one only sets the counters.
    pub fn of(polls: &[Poll]) -> Facts {
        let (Some(first), Some(last)) = (polls.first(), polls.last()) else { return Facts::default() };
        let span = last.at.saturating_sub(first.at);
        let seconds = span.as_secs_f64().max(1e-3);
        let count = polls.len() as f64;
        let mean = |value: &dyn Fn(&Poll) -> f64| polls.iter().map(value).sum::<f64>() / count;
        // A sum of nothing is the negative zero.
        let rate = |value: &dyn Fn(&Poll) -> f64| (0.0 + polls.iter().skip(1).map(value).sum::<f64>()) / seconds;
        let share = |holds: &dyn Fn(&Poll) -> bool| mean(&|poll| f64::from(u8::from(holds(poll))));
        let unread_age = |poll: &Poll| poll.front.oldest_unread.map_or(Duration::ZERO, |age| age.estimate);
        let inside_age = |poll: &Poll| poll.front.oldest_inside.unwrap_or_default();
        let mut facts = Facts {
            span,
            connections: mean(&|poll| poll.front.connections.into()),
            unread: mean(&|poll| poll.front.unread.into()),
            unread_accepted: mean(&|poll| poll.front.unread_accepted.into()),
            is_unix: polls.iter().any(|poll| poll.front.is_unix),
            front_share: share(&|poll| unread_age(poll) >= FRONT_AGE),
            oldest_unread: median_age(polls),
            oldest_unread_now: last.front.oldest_unread,
            oldest_unread_max: polls.iter().map(unread_age).max().unwrap_or_default(),
            inside: mean(&|poll| poll.front.inside.into()),
            inside_share: share(&|poll| inside_age(poll) >= INSIDE_AGE),
            oldest_inside: median(polls.iter().map(inside_age).collect()),
            accept_queue: mean(&|poll| poll.front.accept_queue.into()),
            accept_share: share(&|poll| poll.front.accept_queue > 0),
            accept_limit: last.front.accept_limit,
            dropped: polls.iter().skip(1).map(|poll| u64::from(poll.front.dropped)).sum(),
            slow_readers: mean(&|poll| poll.front.slow_readers.into()),
            arrivals_per_s: rate(&|poll| poll.front.arrivals as f64),
            responses_per_s: rate(&|poll| poll.front.responses as f64),
            retransmitted_per_s: rate(&|poll| poll.front.retransmitted as f64),
            is_visible: polls.iter().any(|poll| poll.processes.visible > 0),
            stopped_share: share(&|poll| {
                poll.processes.visible > 0 && poll.processes.stopped.len() == poll.processes.visible as usize
            }),
            processes: mean(&|poll| poll.processes.visible.into()),
            stopped_pids: stopped_pids(polls),
            waits_for_stopped_share: share(&|poll| poll.processes.waits_for_stopped),
            cpus: rate(&|poll| poll.processes.cpu.as_secs_f64()),
            threads: mean_threads(polls),
            backends: backends(polls),
            name_server: name_server(polls),
            ..Facts::default()
        };
        if facts.arrivals_per_s >= 10.0 {
            facts.mean_unread = Duration::from_secs_f64(facts.unread / facts.arrivals_per_s);
        }
        if !facts.is_unix {
            facts.add_stalls(polls);
        }
        facts.add_scheduling(polls.iter().filter_map(|poll| poll.processes.scheduling.as_ref()));
        facts
    }

    /// Finds pauses: spans between polls in which requests waited and nothing was answered, though
    /// usually much is.
    fn add_stalls(&mut self, polls: &[Poll]) {
        let least = STALL.max(usual_gap(polls).map_or(Duration::MAX, |gap| gap.mul_f64(MISSED)));
        let used = polls.iter().skip(1).map(|poll| poll.processes.cpu).sum::<Duration>();
        let (mut stalled, mut cpu) = (Duration::ZERO, Duration::ZERO);
        for stall in silences(polls).filter(|silence| silence.length >= least && silence.waiting >= STALLED) {
            self.stalls += 1;
            self.longest_stall = self.longest_stall.max(stall.length);
            stalled += stall.length;
            cpu += stall.cpu;
        }
        self.stall_share = ratio(stalled.as_secs_f64(), self.span.as_secs_f64());
        self.stall_cpus = ratio(cpu.as_secs_f64(), stalled.as_secs_f64());
        let rest = self.span.saturating_sub(stalled);
        self.serving_cpus = ratio(used.saturating_sub(cpu).as_secs_f64(), rest.as_secs_f64());
    }

    fn add_scheduling<'a>(&mut self, counts: impl Iterator<Item = &'a Scheduling>) {
        let mut sum = Scheduling::default();
        let mut busiest: BTreeMap<&str, (Duration, Duration)> = BTreeMap::new();
        let mut idle = 0.0;
        for count in counts {
            sum.span += count.span;
            sum.ran += count.ran;
            sum.waited += count.waited;
            sum.uncounted += count.uncounted;
            sum.collector += count.collector;
            sum.waiters += count.waiters;
            sum.still_waiters += count.still_waiters;
            sum.quota_periods += count.quota_periods;
            sum.throttled_periods += count.throttled_periods;
            sum.throttled += count.throttled;
            sum.quota_cpus = count.quota_cpus.or(sum.quota_cpus);
            sum.allowed_cpus = count.allowed_cpus;
            sum.runs_one_thread |= count.runs_one_thread;
            sum.is_out_of_descriptors |= count.is_out_of_descriptors;
            idle += count.idle_cpus * count.span.as_secs_f64();
            if let Some(thread) = &count.busiest {
                let (ran, waited) = busiest.entry(&thread.name).or_default();
                *ran += thread.ran;
                *waited += thread.waited;
            }
        }
        let seconds = sum.span.as_secs_f64();
        let per_second = |time: Duration| ratio(time.as_secs_f64(), seconds);
        self.allowed_cpus = sum.allowed_cpus;
        self.idle_cpus = ratio(idle, seconds);
        self.waiting_for_cpus = per_second(sum.waited);
        self.collector_cpus = per_second(sum.collector);
        self.runs_one_thread = sum.runs_one_thread;
        self.is_out_of_descriptors = sum.is_out_of_descriptors;
        self.still_waiters = ratio(sum.still_waiters as f64, sum.waiters as f64);
        self.quota_cpus = sum.quota_cpus;
        self.throttled_share = ratio(sum.throttled_periods as f64, sum.quota_periods as f64);
        self.throttled_cpus = per_second(sum.throttled);
        let name = busiest.iter().max_by_key(|(_, (ran, waited))| *ran + *waited);
        self.busiest = name.map(|(name, (ran, waited))| BusiestThread {
            name: (*name).to_owned(),
            ran: per_second(*ran),
            waited: per_second(*waited),
        });
        if seconds > 0.0 {
            // Exact, where the process's own counter has a resolution of 10 ms.
            self.cpus = per_second(sum.ran);
        }
        // Of threads that come and go, only samples say that they wait for a CPU.
        if sum.uncounted > sum.ran / 4 {
            self.waiting_for_cpus = self.waiting_for_cpus.max(self.threads.runnable - self.cpus);
        }
    }
}

/// Requests that wait in front of the service or inside it.
fn waiting(poll: &Poll) -> u32 {
    poll.front.unread + poll.front.inside
}

/// A span between polls in which requests waited and nothing was answered.
struct Silence {
    length: Duration,
    /// CPU time that the processes used.
    cpu: Duration,
    /// Requests that waited at its end.
    waiting: u32,
}

/// The silences, each as long as possible.
fn silences(polls: &[Poll]) -> impl Iterator<Item = Silence> {
    let stands = |pair: &[Poll]| pair.iter().all(|poll| waiting(poll) > 0) && pair[1].front.responses == 0;
    let pairs: Vec<&[Poll]> = polls.windows(2).collect();
    let silences = pairs.chunk_by(move |left, right| stands(left) == stands(right)).filter(move |run| stands(run[0]));
    let silences = silences.map(|run| {
        let (first, last) = (&run[0][0], &run[run.len() - 1][1]);
        Silence {
            length: last.at.saturating_sub(first.at),
            cpu: run.iter().map(|pair| pair[1].processes.cpu).sum(),
            waiting: waiting(last),
        }
    });
    silences.collect::<Vec<_>>().into_iter()
}

/// Mean time from answer to answer while requests wait, pauses included. None without an answer.
fn usual_gap(polls: &[Poll]) -> Option<Duration> {
    let busy = polls.windows(2).filter(|pair| waiting(&pair[0]) > 0);
    let span = busy.map(|pair| pair[1].at.saturating_sub(pair[0].at)).sum::<Duration>();
    let answers = polls.iter().skip(1).map(|poll| poll.front.responses).sum::<u64>();
    (answers > 0).then(|| span.div_f64(answers as f64))
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Median of the estimates, with the bounds of the poll that has it. Polls in which nothing was
/// unread count as zero, and a median of zero is none.
fn median_age(polls: &[Poll]) -> Option<AgeBounds> {
    let mut ages: Vec<Option<AgeBounds>> = polls.iter().map(|poll| poll.front.oldest_unread).collect();
    ages.sort_unstable_by_key(|age| age.map(|age| age.estimate));
    ages.get(ages.len() / 2).copied().flatten()
}

fn stopped_pids(polls: &[Poll]) -> Vec<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for pid in polls.iter().flat_map(|poll| &poll.processes.stopped) {
        *counts.entry(*pid).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| 2 * count >= polls.len()).map(|(pid, _)| pid).collect()
}

fn mean_threads(polls: &[Poll]) -> ThreadCounts {
    let count = polls.len().max(1) as f64;
    let mean =
        |value: fn(&ThreadCounts) -> f64| polls.iter().map(|poll| value(&poll.processes.threads)).sum::<f64>() / count;
    ThreadCounts {
        all: mean(|threads| threads.all),
        runnable: mean(|threads| threads.runnable),
        disk: mean(|threads| threads.disk),
        mutex: mean(|threads| threads.mutex),
        same_futex: mean(|threads| threads.same_futex),
        backend: mean(|threads| threads.backend),
        client: mean(|threads| threads.client),
        name_server: mean(|threads| threads.name_server),
        sleep: mean(|threads| threads.sleep),
    }
}

fn backends(polls: &[Poll]) -> Vec<Backend> {
    let mut found: BTreeMap<&str, Vec<&crate::poll::BackendPoll>> = BTreeMap::new();
    for backend in polls.iter().flat_map(|poll| &poll.backends) {
        found.entry(&backend.address).or_default().push(backend);
    }
    let count = polls.len() as f64;
    let mut backends: Vec<Backend> = found
        .into_iter()
        .map(|(address, seen)| Backend {
            address: address.to_owned(),
            share: seen.len() as f64 / count,
            waiting: seen.iter().map(|backend| f64::from(backend.waiting)).sum::<f64>() / count,
            most: seen.iter().map(|backend| backend.waiting).max().unwrap_or_default(),
            oldest: median(seen.iter().map(|backend| backend.oldest).collect()),
            connecting: seen.iter().map(|backend| f64::from(backend.connecting)).sum::<f64>() / count,
        })
        .collect();
    backends
        .sort_by(|left, right| right.waiting.total_cmp(&left.waiting).then_with(|| left.address.cmp(&right.address)));
    backends
}

fn name_server(polls: &[Poll]) -> Option<(String, f64)> {
    let mut found: BTreeMap<&str, u32> = BTreeMap::new();
    for address in polls.iter().filter_map(|poll| poll.name_server.as_deref()) {
        *found.entry(address).or_default() += 1;
    }
    let total: u32 = found.values().sum();
    let (address, _) = found.into_iter().max_by_key(|(_, seen)| *seen)?;
    Some((address.to_owned(), f64::from(total) / polls.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{BackendPoll, BusyThread, FrontPoll, ProcessPoll};

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Polls every 50 ms, made by their number.
    fn polls(count: u64, make: impl Fn(u64) -> Poll) -> Vec<Poll> {
        (0..count).map(|number| Poll { at: ms(50 * number), ..make(number) }).collect()
    }

    fn unread(age: u64) -> FrontPoll {
        let oldest = AgeBounds { estimate: ms(age), at_least: ms(age), at_most: Some(ms(age + 50)) };
        FrontPoll { connections: 10, unread: 4, oldest_unread: Some(oldest), bytes_read: 100, ..FrontPoll::default() }
    }

    #[test]
    fn no_polls_say_nothing() {
        assert_eq!(Facts::of(&[]), Facts::default());
        let facts = Facts::of(&[Poll::default()]);
        assert_eq!((facts.cpus, facts.front_share, facts.oldest_unread), (0.0, 0.0, None));
        assert_eq!(format!("{:.0}", facts.responses_per_s), "0");
    }

    #[test]
    fn rates_count_from_the_second_poll_on() {
        let facts = Facts::of(&polls(21, |_| Poll {
            front: FrontPoll { arrivals: 10, responses: 5, ..FrontPoll::default() },
            processes: ProcessPoll { visible: 1, cpu: ms(25), ..ProcessPoll::default() },
            ..Poll::default()
        }));
        assert_eq!((facts.arrivals_per_s, facts.responses_per_s), (200.0, 100.0));
        assert!((facts.cpus - 0.5).abs() < 1e-9 && facts.is_visible);
    }

    #[test]
    fn the_queue_has_its_median_age_and_its_share_of_time() {
        let facts = Facts::of(&polls(10, |number| Poll { front: unread(10 * number), ..Poll::default() }));
        assert_eq!(facts.oldest_unread, Some(AgeBounds { estimate: ms(50), at_least: ms(50), at_most: Some(ms(100)) }));
        assert_eq!((facts.front_share, facts.oldest_unread_max, facts.unread), (0.7, ms(90), 4.0));
    }

    #[test]
    fn a_pause_is_a_time_without_reading() {
        // 250 ms of every second nothing is read, and a CPU is busy.
        let facts = Facts::of(&polls(61, |number| {
            let pauses = number % 20 < 6;
            let responses = if pauses && number % 20 > 0 { 0 } else { 5 };
            let front = FrontPoll { responses, ..unread(10) };
            Poll {
                front,
                processes: ProcessPoll { visible: 1, cpu: ms(50), ..ProcessPoll::default() },
                ..Poll::default()
            }
        }));
        assert_eq!((facts.stalls, facts.longest_stall), (3, ms(250)));
        assert!((facts.stall_share - 0.25).abs() < 0.01 && (facts.stall_cpus - 1.0).abs() < 0.01);
        let steady =
            Facts::of(&polls(61, |_| Poll { front: FrontPoll { responses: 1, ..unread(500) }, ..Poll::default() }));
        assert_eq!((steady.stalls, steady.stall_share), (0, 0.0));
    }

    #[test]
    fn a_unix_socket_shows_no_pauses_since_its_answers_are_not_counted() {
        let facts = Facts::of(&polls(61, |number| {
            let responses = u64::from(number < 20);
            Poll { front: FrontPoll { responses, is_unix: true, ..unread(500) }, ..Poll::default() }
        }));
        assert_eq!((facts.stalls, facts.is_unix), (0, true));
    }

    #[test]
    fn a_service_that_always_answers_slowly_has_no_pauses() {
        // An answer every 100 to 250 ms: twenty clients, and a CPU that is busy all the time.
        let facts = Facts::of(&polls(61, |number| {
            let front = FrontPoll { responses: u64::from([0, 2, 5, 9, 11].contains(&(number % 13))), ..unread(10) };
            let processes = ProcessPoll { visible: 1, cpu: ms(50), ..ProcessPoll::default() };
            Poll { front, processes, ..Poll::default() }
        }));
        assert_eq!((facts.stalls, facts.stall_share), (0, 0.0));
        assert!((facts.serving_cpus - 1.0).abs() < 0.01);
    }

    proptest::proptest! {
        /// Answers at equal times have no pauses, at any rate; ten times without one are a pause.
        #[test]
        fn a_pause_is_longer_than_the_usual_gap(gap in 1..8_u64, pause in 10..20_u64) {
            let answers = |is_planted: bool| {
                Facts::of(&polls(160, |number| {
                    let is_paused = is_planted && (80..80 + gap * pause).contains(&number);
                    let responses = u64::from(number % gap == 0 && !is_paused);
                    Poll { front: FrontPoll { responses, ..unread(10) }, ..Poll::default() }
                }))
            };
            proptest::prop_assert_eq!(answers(false).stalls, 0);
            let is_long_enough = gap * pause <= 80;
            proptest::prop_assert!(!is_long_enough || answers(true).stalls == 1);
        }
    }

    #[test]
    fn scheduling_adds_up_over_counts() {
        let scheduling = Scheduling {
            span: ms(1000),
            ran: ms(900),
            waited: ms(1800),
            busiest: Some(BusyThread { name: "main".into(), ran: ms(900), waited: ms(100) }),
            quota_periods: 10,
            throttled_periods: 4,
            throttled: ms(210),
            quota_cpus: Some(0.5),
            allowed_cpus: 2.0,
            idle_cpus: 0.25,
            ..Scheduling::default()
        };
        let facts = Facts::of(&polls(60, |number| {
            let scheduling = (number % 20 == 19).then(|| scheduling.clone());
            Poll { processes: ProcessPoll { scheduling, ..ProcessPoll::default() }, ..Poll::default() }
        }));
        assert!((facts.cpus - 0.9).abs() < 1e-9 && (facts.waiting_for_cpus - 1.8).abs() < 1e-9);
        assert!((facts.throttled_share - 0.4).abs() < 1e-9 && (facts.throttled_cpus - 0.21).abs() < 1e-9);
        let busiest = facts.busiest.unwrap();
        assert!((busiest.ran - 0.9).abs() < 1e-9 && (busiest.waited - 0.1).abs() < 1e-9 && busiest.name == "main");
        assert!((facts.idle_cpus - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_process_counts_as_stopped_from_half_of_the_time_on() {
        let facts = Facts::of(&polls(10, |number| {
            let stopped = if number < 5 { vec![12, 11] } else { vec![13] };
            let stopped = if number < 9 { stopped } else { Vec::new() };
            let waits_for_stopped = number < 3;
            let processes = ProcessPoll { visible: 4, stopped, waits_for_stopped, ..ProcessPoll::default() };
            Poll { processes, ..Poll::default() }
        }));
        assert_eq!((facts.stopped_pids, facts.processes, facts.stopped_share), (vec![11, 12], 4.0, 0.0));
        assert!((facts.waits_for_stopped_share - 0.3).abs() < 1e-9);
    }

    #[test]
    fn the_backend_that_owes_most_stands_first() {
        let backend = |address: &str, waiting, oldest| BackendPoll {
            address: address.into(),
            waiting,
            oldest: ms(oldest),
            connecting: 0,
        };
        let facts = Facts::of(&polls(10, |number| Poll {
            backends: if number < 5 {
                vec![backend("a:1", 1, 10), backend("b:2", 6, 400)]
            } else {
                vec![backend("b:2", 2, 500)]
            },
            name_server: (number < 4).then(|| "10.0.0.2:53".to_owned()),
            ..Poll::default()
        }));
        assert_eq!(facts.backends[0].address, "b:2");
        assert!(facts.backends[0].most == 6 && (facts.backends[0].waiting - 4.0).abs() < 1e-9);
        assert!((facts.backends[1].share - 0.5).abs() < 1e-9);
        assert_eq!(facts.name_server, Some(("10.0.0.2:53".to_owned(), 0.4)));
    }
}
