//! Requests: arrival, execution, end. Does not contain reading from sockets.

use super::gate::slot;
use super::pointers::{Sized32, read, read_sized, write};
use super::types::{
    Arrival, Gate, LW_ABANDONED, LW_ADMIT, LW_ARRIVE_ENTER, LW_ARRIVE_UNPARSED, LW_DONE, LW_FAILED, LW_OK, LW_REJECT,
    LW_REJECTED, LW_UNLIMITED, Permit,
};
use crate::request::{self, Admission};
use crate::stamp;
use crate::status::{Failure, caught};
use leeward_core::units::{Nanos, Tenant, Time};
use leeward_gate::{Class, DecisionReason, Outcome, RequestInfo};
use leeward_runtime::{budget, clock};
use std::ffi::{CStr, c_char, c_int};

// SAFETY: `repr(C)`, begins with its size, and has numbers and a pointer only.
unsafe impl Sized32 for Arrival {
    const FIRST_SIZE: usize = 48;
}

const _: () = assert!(std::mem::offset_of!(Arrival, unparsed) == Arrival::FIRST_SIZE, "the first version's size stays");

/// Decides about a request that has arrived: `LW_ADMIT`, `LW_REJECT`, or an error, after which the
/// program should serve the request as if there were no gate.
///
/// After `LW_ADMIT`, `lw_finish` must follow. Any thread may call it, once none runs the request.
///
/// A thread runs one request. If it still runs one of this gate, `LW_ARRIVE_ENTER` ends that as
/// abandoned; so does the thread's end. The log says so. `LW_E_STATE`: it runs one of another gate.
/// `LW_E_LIMIT`: the gate has no place for more permits. `LW_E_CLOSED`, `LW_E_FORKED`: the gate is
/// none of this process any more. `LW_E_ARGUMENT`, `LW_E_SIZE`: `arrival` is wrong.
///
/// # Safety
/// All three pointers are as the module says, and `arrival->size` is right.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_arrive(gate: *mut Gate, arrival: *const Arrival, permit: *mut Permit) -> c_int {
    caught(|| {
        // SAFETY: NULL or the caller's permit.
        unsafe { write(permit, Permit::default()) }?;
        // SAFETY: NULL or as many bytes as it says.
        let arrival = unsafe { read_sized(arrival) }?;
        let slot = slot(gate)?;
        let reading = clock::process();
        // SAFETY: its stamp is NULL or the caller's.
        let received = unsafe { receipt(&arrival) }?;
        let info = describe(&arrival, received, reading)?;
        let runs = arrival.flags & LW_ARRIVE_ENTER != 0;
        let (code, decided) = match request::arrive(slot, reading, &info, runs)? {
            Admission::Admitted(id) => (LW_ADMIT, Permit { id, gate: slot.number(), ..Permit::default() }),
            Admission::Rejected(rejection) => {
                let rejected = Permit {
                    id: 0,
                    decision: rejection.decision.0,
                    retry_after_ns: Nanos::from(rejection.retry_after).0,
                    gate: slot.number(),
                    reason: rejection.reason as u32 + 1,
                };
                (LW_REJECT, rejected)
            }
        };
        // SAFETY: as above.
        unsafe { write(permit, decided) }?;
        Ok(code)
    })
}

/// Receipt of a connection's next request; 0: unknown.
///
/// # Safety
/// `arrival.stamp` is NULL or a stamp that no other thread uses now.
#[inline]
unsafe fn receipt(arrival: &Arrival) -> Result<u64, Failure> {
    if arrival.stamp.is_null() {
        return Ok(0);
    }
    // SAFETY: by the caller's promise.
    let mut updated = unsafe { read(arrival.stamp) }?;
    let unparsed = (arrival.flags & LW_ARRIVE_UNPARSED != 0).then_some(arrival.unparsed);
    let received = stamp::next_request(&mut updated, unparsed);
    // SAFETY: by the caller's promise.
    unsafe { write(arrival.stamp, updated) }?;
    Ok(received)
}

#[inline]
fn describe(arrival: &Arrival, received_ns: u64, reading: Time) -> Result<RequestInfo, Failure> {
    const FLAGS: u32 = LW_ARRIVE_ENTER | LW_ARRIVE_UNPARSED;
    let unused = [arrival.flags & !FLAGS, u32::from(arrival.reserved), arrival.reserved2];
    if unused != [0; 3] || arrival.klass > Class::COUNT {
        return Err(Failure::Argument);
    }
    let mut info = RequestInfo::default()
        .with_tenant(Tenant(arrival.tenant))
        .with_route(arrival.route)
        .with_attempt(arrival.attempt);
    if arrival.klass > 0 {
        info = info.with_class(Class::new(arrival.klass - 1));
    }
    if arrival.user > 0 {
        info = info.with_user(arrival.user);
    }
    if arrival.left_ns > 0 {
        info.timeout = Some(Nanos(arrival.left_ns));
    }
    match stamp::age(received_ns, reading) {
        Some(age) => info = info.with_age(Nanos(age)),
        // The program has measured it, however long that is.
        None if arrival.waited_ns > 0 => info.age = Some(Nanos(arrival.waited_ns)),
        None => {}
    }
    Ok(info)
}

/// This thread runs the request from now on: locks charge its budget, and its time counts as the
/// request's cost. The time since `lw_arrive` counts as a queue, the first time. Another request
/// that the thread runs ends as for `lw_arrive`.
/// `LW_E_STATE`: that is of another gate, or a thread runs this one.
///
/// # Safety
/// `permit` is as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_enter(permit: *const Permit) -> c_int {
    caught(|| {
        // SAFETY: NULL or the caller's permit.
        let permit = unsafe { read(permit) }?;
        request::enter(permit.gate, permit.id).map(|()| LW_OK)
    })
}

/// This thread stops running the request, which has not ended; another thread may run or end it.
/// `LW_E_STATE`: it did not run it.
///
/// # Safety
/// `permit` is as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_leave(permit: *const Permit) -> c_int {
    caught(|| {
        // SAFETY: NULL or the caller's permit.
        let permit = unsafe { read(permit) }?;
        request::leave(permit.gate, permit.id).map(|()| LW_OK)
    })
}

/// Ends an admitted request with `LW_DONE`, `LW_FAILED`, `LW_REJECTED` or `LW_ABANDONED`; leaves it
/// if this thread runs it. `LW_E_STATE`: it has ended, or another thread runs it.
///
/// Metrics count `LW_REJECTED` as a rejection by a lock, whatever rejected it.
///
/// # Safety
/// `permit` is as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_finish(permit: *const Permit, outcome: c_int) -> c_int {
    caught(|| {
        let outcome = match outcome {
            LW_DONE => Outcome::Completed,
            LW_FAILED => Outcome::Failed,
            LW_REJECTED => Outcome::Rejected,
            LW_ABANDONED => Outcome::Abandoned,
            _ => return Err(Failure::Argument),
        };
        // SAFETY: NULL or the caller's permit.
        let permit = unsafe { read(permit) }?;
        request::finish(permit.gate, permit.id, outcome).map(|()| LW_OK)
    })
}

/// Time that the request which this thread runs may still spend in queues, in nanoseconds.
/// `LW_UNLIMITED`: it runs none.
#[unsafe(no_mangle)]
pub extern "C" fn lw_budget_left_ns() -> u64 {
    budget::current().remaining().map_or(LW_UNLIMITED, |left| left.0)
}

/// Charges the request which this thread runs for a wait in a queue of the program's own.
#[unsafe(no_mangle)]
pub extern "C" fn lw_note_wait(waited_ns: u64) {
    budget::charge(Nanos(waited_ns));
}

/// Name of a reason (`LW_R_…`), as in metrics. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn lw_reason_name(reason: u32) -> *const c_char {
    name_of_reason(reason).as_ptr()
}

fn name_of_reason(reason: u32) -> &'static CStr {
    const NAMES: [&CStr; DecisionReason::ALL.len()] = [
        c"late",
        c"deadline",
        c"level",
        c"share",
        c"concurrency",
        c"lock",
        c"delay",
        c"credit",
        c"stopping",
        c"cancelled",
        c"behind",
        c"other",
    ];
    NAMES.get((reason as usize).wrapping_sub(1)).copied().unwrap_or(c"none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::border::types::*;

    #[test]
    fn reasons_have_the_names_and_numbers_of_the_gate() {
        for reason in DecisionReason::ALL {
            assert_eq!(name_of_reason(reason as u32 + 1).to_str(), Ok(reason.name()));
        }
        assert_eq!((name_of_reason(0), name_of_reason(99)), (c"none", c"none"));
        let numbers = [
            (DecisionReason::Late, LW_R_LATE),
            (DecisionReason::Deadline, LW_R_DEADLINE),
            (DecisionReason::Level, LW_R_LEVEL),
            (DecisionReason::Share, LW_R_SHARE),
            (DecisionReason::Concurrency, LW_R_CONCURRENCY),
            (DecisionReason::Lock, LW_R_LOCK),
            (DecisionReason::Delay, LW_R_DELAY),
            (DecisionReason::Other, LW_R_OTHER),
        ];
        assert!(numbers.iter().all(|(reason, number)| *reason as u32 + 1 == *number));
    }

    #[test]
    fn zero_is_unknown_and_classes_count_from_one() {
        let describe = |arrival: Arrival| super::describe(&arrival, 0, clock::process());
        let info = describe(Arrival::UNKNOWN).unwrap();
        assert_eq!((info.class, info.age, info.timeout, info.user), (Class::NORMAL, None, None, None));
        let classes = [LW_CLASS_CRITICAL, LW_CLASS_NORMAL, LW_CLASS_BATCH, LW_CLASS_SHEDDABLE];
        let classes = classes.map(|klass| describe(Arrival { klass, ..Arrival::UNKNOWN }).unwrap().class);
        assert_eq!(classes, [Class::CRITICAL, Class::NORMAL, Class::BATCH, Class::SHEDDABLE]);
        assert!(describe(Arrival { klass: 9, ..Arrival::UNKNOWN }).is_err());
        assert!(describe(Arrival { flags: 4, ..Arrival::UNKNOWN }).is_err());
        let waited = describe(Arrival { waited_ns: 5_000, ..Arrival::UNKNOWN }).unwrap();
        assert_eq!(waited.age, Some(Nanos(5_000)));
    }
}
