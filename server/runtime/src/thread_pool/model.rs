//! The thread pool in the model checker: every interleaving of two or three threads with up to
//! three preemptions. A lost wake-up shows as a deadlock, since the models have no timeouts. Each
//! model has a canary: a broken variant that the checker must find.

use super::control::PoolControl;
use super::exclusive_claim::{ExclusiveClaim, MessageHandler};
use super::sleepers::SleepKind;
use super::worker::{RoleHandler, Worker};
use super::{Assignment, Epoch};
use crate::clock::Clock;
use crate::queues::RunQueues;
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, fence, lock, wait};
use leeward_core::units::Time;
use leeward_threading::{Setup, Tasks};
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn setup(text: &str) -> Setup {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

fn control(threads: usize, text: &str) -> Arc<PoolControl> {
    Arc::new(PoolControl::new(threads, &setup(text), |_| ()))
}

// ---- (a) a thread parks while the plan changes ----

/// Thread 0 has the only slot; thread 1 parks until there is a second one.
fn check_parking(park: fn(&PoolControl, Epoch)) {
    let control = control(2, "SIB1");
    assert!(control.claim(0).1.is_some());
    let other = Arc::clone(&control);
    let parked = thread::spawn(move || {
        loop {
            match other.claim(1) {
                (_, Some(_)) => return,
                (epoch, None) => park(&other, epoch),
            }
        }
    });
    control.switch_setup(&setup("SIB2"));
    parked.join().unwrap();
    assert_eq!(control.thread_counts().open, 0);
}

#[test]
fn a_parking_thread_notices_the_new_plan() {
    check(|| check_parking(|control, epoch| control.park(1, epoch)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn canary_a_thread_that_checks_the_plan_before_it_announces_its_sleep() {
    check(|| {
        check_parking(|control, epoch| {
            if control.plan.epoch() == epoch {
                control.sleepers.prepare_sleep(1, Tasks::default(), SleepKind::Parked);
                control.sleepers.sleep(1, None);
            }
            control.sleepers.set_awake(1);
        });
    });
}

// ---- (b) a worker sleeps while a request is pushed ----

fn check_worker_wakeup(prepare: fn(&PoolControl)) {
    let control = control(2, "SDB1-1");
    let queue = Arc::new(RunQueues::new(1));
    let (worker, requests) = (Arc::clone(&control), Arc::clone(&queue));
    let worker = thread::spawn(move || {
        while requests.pop(0).is_none() {
            prepare(&worker);
            if requests.are_empty() {
                worker.sleepers.sleep(1, None);
            }
            worker.sleepers.set_awake(1);
        }
    });
    queue.push(0, Time(1), 'a');
    control.notify(Tasks::EXECUTE);
    worker.join().unwrap();
}

#[test]
fn a_pushed_request_wakes_a_worker() {
    check(|| check_worker_wakeup(|control| control.sleepers.prepare_sleep(1, Tasks::EXECUTE, SleepKind::Parked)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn canary_a_worker_without_a_fence() {
    check(|| {
        check_worker_wakeup(|control| control.sleepers.prepare_sleep_unfenced(1, Tasks::EXECUTE, SleepKind::Parked))
    });
}

// ---- (c) the clients' sockets are handed over with unread bytes ----

/// Clients whose bytes were read in part; no socket event reports the rest.
struct UnreadHandler {
    left: AtomicU64,
    tells: bool,
    all: Flag,
    /// Set for threads that sleep at the network.
    alarm: Arc<Flag>,
}

/// A flag that one thread waits for.
struct Flag(Mutex<bool>, Condvar);

impl Flag {
    fn new() -> Self {
        Flag(Mutex::new(false), Condvar::new())
    }

    fn set(&self) {
        *lock(&self.0) = true;
        self.1.notify_all();
    }

    fn take(&self) {
        let mut is_set = lock(&self.0);
        while !*is_set {
            is_set = wait(&self.1, is_set);
        }
        *is_set = false;
    }
}

impl RoleHandler for UnreadHandler {
    type ThreadState = ();

    fn thread_state(&self, _: usize) {}

    fn run(&self, (): &mut (), _: &Assignment) -> bool {
        false
    }

    fn receive(&self, (): &mut (), _: &Assignment) -> bool {
        // Two threads may receive, if one has just left the role. The compare-and-swap counts each
        // read once.
        let left = self.left.load(Ordering::Acquire);
        if left == 0 || self.left.compare_exchange(left, left - 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        if left == 1 {
            self.all.set();
        }
        // The broken variant treats its first read as everything.
        self.tells
    }

    fn gather(&self, (): &mut (), _: &Assignment) -> bool {
        false
    }

    fn has_work(&self, _: &Assignment) -> bool {
        self.tells && self.left.load(Ordering::Relaxed) > 0
    }

    fn sleep(&self, (): &mut (), _: &Assignment, _: Duration) {
        self.alarm.take();
    }

    fn shares_leaf_sockets(&self) -> bool {
        false
    }

    fn is_drained(&self) -> bool {
        true
    }
}

fn check_handover(tells: bool) {
    let event = Arc::new(Flag::new());
    let waker = Arc::clone(&event);
    let control = Arc::new(PoolControl::new(1, &setup("SIB1"), move |_| waker.set()));
    let role_handler = Arc::new(UnreadHandler { left: AtomicU64::new(2), tells, all: Flag::new(), alarm: event });
    let worker =
        Worker { thread: 0, control: Arc::clone(&control), handler: Arc::clone(&role_handler), clock: Clock::start() };
    let worker = thread::spawn(move || worker.work());
    // Takes the receiving slot from the thread and gives it one of another setup, between any two
    // of its steps.
    control.switch_setup(&setup("AIB1-0-1"));
    role_handler.all.take();
    control.stop();
    worker.join().unwrap();
}

#[test]
fn unread_bytes_are_read_by_the_next_receiver() {
    check(|| check_handover(true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn canary_a_receiver_that_forgets_its_unread_bytes() {
    check(|| check_handover(false));
}

// ---- (d) a response is left while the claim is released ----

#[derive(Default)]
struct MessageSum(u32);

impl MessageHandler<u32> for MessageSum {
    fn handle_messages(&mut self, messages: &mut Vec<u32>) {
        self.0 += messages.drain(..).sum::<u32>();
    }
}

fn check_message(hold: fn(&ExclusiveClaim<MessageSum, u32>)) {
    let claim = Arc::new(ExclusiveClaim::new(MessageSum::default()));
    let other = Arc::clone(&claim);
    let worker = thread::spawn(move || other.send(1));
    hold(&claim);
    worker.join().unwrap();
    assert!(!claim.has_messages(), "an answer lies in the mailbox of a front that is free");
    assert_eq!(claim.try_with(|sum| sum.0), Some(1));
}

#[test]
fn an_answer_left_during_a_release_is_handled() {
    check(|| check_message(|claim| _ = claim.try_with(|_| ())));
}

#[test]
#[should_panic(expected = "mailbox")]
fn canary_a_holder_that_does_not_recheck_its_messages() {
    check(|| check_message(|claim| _ = claim.try_with_unchecked(|_| ())));
}

// ---- (e) the last reply arrives while the setup becomes a sync one ----

fn calls(begin: fn(&PoolControl)) {
    let control = control(2, "AIB1-0-1");
    let other = Arc::clone(&control);
    let caller = thread::spawn(move || begin(&other));
    control.switch_setup(&setup("SIB1"));
    caller.join().unwrap();
    assert!(control.has_leftover_slot(), "calls are out, and nobody waits for them");
    control.end_calls();
    assert!(!control.has_leftover_slot());
}

#[test]
fn an_outgoing_call_is_awaited_under_any_plan() {
    check(|| calls(PoolControl::begin_calls));
}

#[test]
#[should_panic(expected = "nobody waits")]
fn canary_a_call_that_does_not_check_the_plan() {
    check(|| calls(PoolControl::begin_calls_unchecked));
}

#[test]
fn the_last_reply_releases_the_thread() {
    check(|| {
        let control = control(2, "AIB1-0-1");
        control.begin_calls();
        let other = Arc::clone(&control);
        let reply = thread::spawn(move || other.end_calls());
        control.switch_setup(&setup("SIB1"));
        reply.join().unwrap();
        assert!(!control.has_leftover_slot());
    });
}

// ---- (f) two plans in a row ----

/// The papers' authors' way: a flag that one switch sets and the next one resets.
struct FlagSwitch {
    go: AtomicBool,
    has_slot: AtomicBool,
}

#[test]
fn a_newer_plan_overtakes_an_older_one() {
    check(|| {
        let control = control(3, "SIB1");
        assert!(control.claim(0).1.is_some());
        let other = Arc::clone(&control);
        let parked = thread::spawn(move || {
            loop {
                match other.claim(1) {
                    (_, Some(assignment)) if assignment.setup == setup("SDB1-1") => return,
                    (epoch, Some(assignment)) => {
                        // A slot of the intermediate plan, in which it sleeps until the next plan.
                        other.sleepers.prepare_sleep(1, assignment.role.tasks, SleepKind::Parked);
                        if other.plan.epoch() == epoch {
                            other.sleepers.sleep(1, None);
                        }
                        other.sleepers.set_awake(1);
                    }
                    (epoch, None) => other.park(1, epoch),
                }
            }
        });
        control.switch_setup(&setup("SIB2"));
        control.switch_setup(&setup("SDB1-1"));
        assert!(control.claim(0).1.is_some());
        parked.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn canary_a_flag_that_the_second_switch_resets() {
    check(|| {
        let switch = Arc::new(FlagSwitch { go: AtomicBool::new(false), has_slot: AtomicBool::new(false) });
        let control = control(2, "SIB1");
        let (other, sleeper) = (Arc::clone(&switch), Arc::clone(&control));
        let parked = thread::spawn(move || {
            sleeper.sleepers.prepare_sleep(1, Tasks::default(), SleepKind::Parked);
            if !other.go.load(Ordering::SeqCst) {
                sleeper.sleepers.sleep(1, None);
            }
            assert!(other.has_slot.load(Ordering::SeqCst));
        });
        for set in [true, false] {
            switch.has_slot.store(true, Ordering::SeqCst);
            switch.go.store(set, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // The second switch wakes no thread, since it wants this thread to keep its slot.
            if set {
                control.sleepers.wake(1, || ());
            }
        }
        parked.join().unwrap();
    });
}
