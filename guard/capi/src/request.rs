//! The way of a request: it arrives, threads run it, it ends. Does not contain pointers of C.

use crate::gates::GateSlot;
use crate::log::{self, LastGiven};
use crate::slots::table_of;
use crate::status::{Failure, caught};
use crate::thread::{self, Running};
use leeward_core::units::{Nanos, Time};
use leeward_gate::{Outcome, Permit, Rejection, RequestInfo};
use leeward_runtime::budget::{self, RequestBudget};
use leeward_runtime::clock;
use std::cell::Cell;

/// Wrong uses that are logged.
static OTHER_GATE: LastGiven = LastGiven::never();
static FORGOTTEN: LastGiven = LastGiven::never();
static ELSEWHERE: LastGiven = LastGiven::never();

/// Answer to a request that has arrived.
pub(crate) enum Admission {
    /// Number of the permit.
    Admitted(u64),
    Rejected(Rejection),
}

/// Decides about a request. `runs`: this thread runs it from now on, if it is admitted.
#[inline]
pub(crate) fn arrive(slot: &GateSlot, reading: Time, request: &RequestInfo, runs: bool) -> Result<Admission, Failure> {
    if runs {
        prepare(slot.number())?;
    }
    let number = thread::number();
    let mut shard = slot.shard(number as usize)?;
    let state = &mut *shard;
    let gate = state.gate.as_ref().ok_or(Failure::Closed)?;
    let now = gate.time_at(reading);
    let (id, budget) = match state.permits.admit(gate, now, request, if runs { number } else { 0 })? {
        Ok(admitted) => admitted,
        Err(rejection) => return Ok(Admission::Rejected(rejection)),
    };
    drop(shard);
    if runs {
        begin_running(Running { gate: slot.number(), id, since: reading });
        budget::replace_running(RequestBudget::of(budget));
    }
    Ok(Admission::Admitted(id))
}

/// Makes the calling thread run the request: locks then charge its budget.
pub(crate) fn enter(gate: u32, id: u64) -> Result<(), Failure> {
    let slot = GateSlot::numbered(gate)?;
    // What can't be entered ends no other request.
    slot.shard(table_of(id))?.permits.get(id).filter(|request| request.runner == 0).ok_or(Failure::State)?;
    prepare(gate)?;
    let mut shard = slot.shard(table_of(id))?;
    let request = shard.permits.get(id).filter(|request| request.runner == 0).ok_or(Failure::State)?;
    let now = clock::process();
    request.runner = thread::number();
    let (waited, budget) = (request.start(now), request.budget);
    drop(shard);
    begin_running(Running { gate, id, since: now });
    budget::replace_running(budget);
    budget::charge(waited);
    Ok(())
}

/// Ends [`enter`].
pub(crate) fn leave(gate: u32, id: u64) -> Result<(), Failure> {
    let running = thread::running().filter(|of| (of.gate, of.id) == (gate, id)).ok_or(Failure::State)?;
    stop_running(running);
    Ok(())
}

/// Ends the thread's request when the thread ends: one that another thread is to end was left.
/// Otherwise nobody might end it, and each such thread would take a place of the gate for ever.
///
/// It does not call the program's log function: thread-local objects of C++ may be gone by then.
struct ThreadEnd;

thread_local! {
    static END: ThreadEnd = const { ThreadEnd };
    /// Whether `END` is registered; a variable with a destructor is slower to read.
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        IS_REGISTERED.with(|cell| cell.set(false));
        let Some(running) = thread::running() else { return };
        // A panic in a thread's end would end the process.
        caught(|| abandon(running).map(|()| 0));
    }
}

/// Prepares this thread to take up a request of `gate`. A request of that gate which it still runs
/// was forgotten, and ends here.
///
/// # Errors
/// The thread runs a request of another gate, or is so far in its end that nothing of ours would
/// end the request.
#[inline]
fn prepare(gate: u32) -> Result<(), Failure> {
    if let Some(running) = thread::running() {
        replace(running, gate)?;
    }
    if IS_REGISTERED.with(Cell::get) || register() { Ok(()) } else { Err(Failure::State) }
}

/// Ends the request of a thread that takes up another one.
#[cold]
fn replace(running: Running, gate: u32) -> Result<(), Failure> {
    if running.gate != gate {
        log::warn(
            &OTHER_GATE,
            "LW_E_STATE: a thread takes up a request while it runs one of another gate; call lw_leave before",
        );
        return Err(Failure::State);
    }
    abandon(running)?;
    log::warn(
        &FORGOTTEN,
        "a thread takes up a request while it runs another one, which ends as abandoned: lw_finish or lw_leave is missing",
    );
    Ok(())
}

/// Ends a request as abandoned that its thread, this one, has forgotten. For how long it ran,
/// nobody knows.
fn abandon(running: Running) -> Result<(), Failure> {
    thread::set_running(None);
    budget::replace_running(RequestBudget::none());
    let slot = GateSlot::numbered(running.gate)?;
    slot.shard(table_of(running.id))?.permits.remove(running.id, |permit| {
        let now = permit.gate().time_at(clock::process());
        permit.end_at(now, Outcome::Abandoned);
    });
    Ok(())
}

#[cold]
fn register() -> bool {
    let is_registered = END.try_with(|_| {}).is_ok();
    IS_REGISTERED.with(|cell| cell.set(is_registered));
    is_registered
}

#[inline]
fn begin_running(running: Running) {
    thread::set_running(Some(running));
}

fn stop_running(running: Running) {
    thread::set_running(None);
    let account = budget::replace_running(RequestBudget::none());
    let Ok(mut shard) = GateSlot::numbered(running.gate).and_then(|slot| slot.shard(table_of(running.id))) else {
        return;
    };
    if let Some(request) = shard.permits.get(running.id) {
        request.leave();
        request.budget = account;
        let ran = clock::process().since(running.since);
        thread::has_run(ran);
        request.ran = Some(request.ran.unwrap_or_default() + ran);
    }
}

/// Ends a request. Another thread must not run it.
#[inline]
pub(crate) fn finish(gate: u32, id: u64, outcome: Outcome) -> Result<(), Failure> {
    let slot = GateSlot::numbered(gate)?;
    let running = thread::running().filter(|of| (of.gate, of.id) == (gate, id));
    let mut shard = slot.shard(table_of(id))?;
    let request = shard.permits.get(id).ok_or(Failure::State)?;
    if request.runner != 0 && running.is_none() {
        drop(shard);
        log::warn(
            &ELSEWHERE,
            "LW_E_STATE: a thread ends a request that another thread runs; call lw_leave there before",
        );
        return Err(Failure::State);
    }
    let now = clock::process();
    let (mut budget, mut ran, waited) = (request.budget, request.ran, request.waited);
    if let Some(running) = running {
        thread::set_running(None);
        budget = budget::replace_running(RequestBudget::none());
        thread::has_run(now.since(running.since));
        ran = Some(ran.unwrap_or_default() + now.since(running.since));
    }
    shard.permits.remove(id, |permit| end(permit, now, &budget, (ran, waited), outcome));
    Ok(())
}

/// Ends a request that ran for `ran`, and before that had `waited` for a thread.
#[inline]
fn end(
    permit: &mut Permit,
    now: Time,
    budget: &RequestBudget,
    (ran, waited): (Option<Nanos>, Nanos),
    outcome: Outcome,
) {
    if let Some(ran) = ran {
        let locks = budget.waited().saturating_sub(waited);
        // A thread that waits for a lock occupies no CPU.
        permit.record_cpu_time(ran.saturating_sub(locks));
        permit.record_queue_time(waited + locks);
    }
    let now = permit.gate().time_at(now);
    permit.end_at(now, outcome);
}
