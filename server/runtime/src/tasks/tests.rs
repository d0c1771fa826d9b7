//! Tests of tasks on the cores' shared state, without its threads.

use super::*;
use crate::clock::Clock;
use crate::cores::Shared;
use leeward_core::units::Time;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::task::Waker;

type Cores = Shared<std::convert::Infallible>;

fn cores(count: usize) -> (Arc<Cores>, Arc<Mutex<Vec<usize>>>) {
    let woken = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&woken);
    (Arc::new(Shared::new(count, Clock::start(), move |core| log.lock().unwrap().push(core))), woken)
}

/// Runs the next entry of `from`'s queue, on `core`.
fn run(cores: &Cores, from: usize, core: usize) -> Option<Time> {
    let (since, work) = cores.queues.pop(from)?;
    match work {
        Work::Job(job) => match job {},
        Work::Task(task) => task.run(core),
    };
    Some(since)
}

/// Waits for one wake-up, by the waker that it stores.
async fn once(waker: Arc<Mutex<Option<Waker>>>) -> u8 {
    let mut polls = 0;
    poll_fn(|context| {
        polls += 1;
        *waker.lock().unwrap() = Some(context.waker().clone());
        if polls == 2 { Poll::Ready(7) } else { Poll::Pending }
    })
    .await
}

#[test]
fn a_woken_task_is_queued_at_its_last_core_with_a_new_time() {
    let (cores, woken) = cores(3);
    let (waker, outcome) = (Arc::default(), Arc::new(Mutex::new(None)));
    let result = Arc::clone(&outcome);
    let spawner = Spawner::new(&cores);
    let (task, _handle) = spawner.spawn(once(Arc::clone(&waker)), move |end| *result.lock().unwrap() = Some(end));
    task.run(1);
    assert!(cores.queues.are_empty() && cores.delay(Time(1 << 40)).0 == 0);
    let before = cores.clock.now();
    waker.lock().unwrap().take().unwrap().wake();
    assert_eq!(*woken.lock().unwrap(), []);
    assert!(run(&cores, 1, 2).unwrap() >= before);
    assert_eq!(*outcome.lock().unwrap(), Some(Ok(7)));
    waker.lock().unwrap().take().unwrap().wake();
    assert!(cores.queues.are_empty());
}

#[test]
fn waking_a_task_wakes_its_core_or_another_if_it_is_busy() {
    for (asleep, expected) in [(vec![0, 1, 2], 1), (vec![2], 2)] {
        let (cores, woken) = cores(3);
        let waker = Arc::default();
        let (task, _handle) = Spawner::new(&cores).spawn(once(Arc::clone(&waker)), |_| ());
        task.run(1);
        asleep.into_iter().for_each(|core| cores.parking().prepare_sleep(core));
        waker.lock().unwrap().take().unwrap().wake();
        assert_eq!(*woken.lock().unwrap(), [expected]);
    }
}

/// Panics when it is dropped, after setting a flag.
struct PanicOnDrop(Arc<AtomicBool>);

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        panic!("as asked");
    }
}

#[test]
fn a_task_that_ends_early_drops_its_future_even_if_the_drop_panics() {
    // Rejected, cancelled before it runs or while it waits, or left when the cores end.
    for case in 0..5 {
        let (cores, _) = cores(1);
        let gone = Arc::new(AtomicBool::new(false));
        let panic_on_drop = PanicOnDrop(Arc::clone(&gone));
        let future = async move {
            let _panic_on_drop = panic_on_drop;
            std::future::pending::<()>().await;
        };
        let (task, handle) = Spawner::new(&cores).spawn(future, |_| panic!("it has no outcome"));
        match case {
            0 => drop((handle, task)),
            1 => {
                cores.queues.push(0, Time(5), Work::Task(task));
                drop(handle);
            }
            2 => {
                task.run(0);
                drop(handle);
            }
            3 => {
                cores.queues.push(0, Time(5), Work::Task(task));
                cores.close();
                drop(handle);
            }
            _ => {
                task.run(0);
                cores.close();
                drop(handle);
            }
        }
        while run(&cores, 0, 0).is_some() {}
        assert!(gone.load(Ordering::SeqCst), "{case}");
        assert_eq!(Arc::strong_count(&cores), 1, "nothing keeps itself alive");
    }
}

#[test]
fn a_panic_is_the_outcome_of_its_task() {
    let (cores, _) = cores(1);
    let outcome = Arc::new(Mutex::new(None));
    let result = Arc::clone(&outcome);
    let future = async { panic!("as asked") };
    let (task, _handle) = Spawner::new(&cores).spawn(future, move |end: Result<(), _>| {
        *result.lock().unwrap() = Some(end);
    });
    task.run(0);
    assert_eq!(*outcome.lock().unwrap(), Some(Err(TaskPanic)));
}
