//! Structures and constants of `leeward.h`. Does not contain functions.

use crate::stamp::Stamp;
use std::ffi::{c_char, c_int};

/// The function did what was asked.
pub const LW_OK: c_int = 0;
/// `lw_arrive`: the request is admitted.
pub const LW_ADMIT: c_int = 0;
/// `lw_arrive`: the request is rejected; answer it at once.
pub const LW_REJECT: c_int = 1;
/// A pointer is NULL, a value is out of range, or a text is not UTF-8.
pub const LW_E_ARGUMENT: c_int = -1;
/// A structure's `size` is not one that this library knows.
pub const LW_E_SIZE: c_int = -2;
/// The permit has ended, the lock is not held, another thread runs the request, or this thread runs
/// one of another gate.
pub const LW_E_STATE: c_int = -3;
/// The gate was freed.
pub const LW_E_CLOSED: c_int = -4;
/// The lock is held, or the gate has open permits, or an admin port already.
pub const LW_E_BUSY: c_int = -5;
/// A table of fixed size is full.
pub const LW_E_LIMIT: c_int = -6;
/// The gate belongs to the parent process.
pub const LW_E_FORKED: c_int = -7;
/// The lock would take longer than the request's budget.
pub const LW_E_CONGESTED: c_int = -8;
/// The thread already holds the lock.
pub const LW_E_DEADLOCK: c_int = -9;
/// The operating system refused; `errno` or the log has the reason.
pub const LW_E_SYSTEM: c_int = -10;
/// A defect of the library. The log has the message.
pub const LW_E_INTERNAL: c_int = -11;

/// Rejections are enforced.
pub const LW_MODE_ENFORCE: u32 = 0;
/// Every request is admitted; the counters show what would be rejected. Not for `none`, `seda` and
/// `window`, which decide at clients.
pub const LW_MODE_SHADOW: u32 = 1;
/// Rejections are enforced for `share_percent` of the tenants.
pub const LW_MODE_SHARE: u32 = 2;

/// Rejected last.
pub const LW_CLASS_CRITICAL: u8 = 1;
/// The class of a request that names none.
pub const LW_CLASS_NORMAL: u8 = 4;
/// Work that can be done later.
pub const LW_CLASS_BATCH: u8 = 6;
/// Rejected first.
pub const LW_CLASS_SHEDDABLE: u8 = 8;

/// Flag of `lw_arrival`: this thread runs the request from now on, as after `lw_enter`.
pub const LW_ARRIVE_ENTER: u32 = 1;
/// `unparsed` is given.
pub const LW_ARRIVE_UNPARSED: u32 = 2;

/// The request was answered with a result.
pub const LW_DONE: c_int = 0;
/// The request was answered with a failure of the service.
pub const LW_FAILED: c_int = 1;
/// The request was rejected inside the service, by a lock for instance.
pub const LW_REJECTED: c_int = 2;
/// The request ended without an answer.
pub const LW_ABANDONED: c_int = 3;

/// The request had waited so long that it could not meet the objective.
pub const LW_R_LATE: u32 = 1;
/// The request's deadline would have passed before it ended.
pub const LW_R_DEADLINE: u32 = 2;
/// The request was less important than the admission level.
pub const LW_R_LEVEL: u32 = 3;
/// The request's tenant had used up its share.
pub const LW_R_SHARE: u32 = 4;
/// Too many requests were in progress.
pub const LW_R_CONCURRENCY: u32 = 5;
/// A lock would have taken longer than the request's budget.
pub const LW_R_LOCK: u32 = 6;
/// The queueing delay was above the controller's limit.
pub const LW_R_DELAY: u32 = 7;
/// A reason without a number of its own.
pub const LW_R_OTHER: u32 = 12;

/// Level of a log message: a call failed, or a defect of the library.
pub const LW_LOG_ERROR: c_int = 1;
/// Level of a log message: a wrong use by the program, logged once a minute at most.
pub const LW_LOG_WARNING: c_int = 2;
/// Level of a log message: a change of state, such as a new gate.
pub const LW_LOG_INFO: c_int = 3;

/// No limit, as a budget.
pub const LW_UNLIMITED: u64 = u64::MAX;

/// Admission to the threads behind a queue in order of arrival, such as a pool. A program has one
/// for each queue: what overloads one would reject the requests of another.
pub struct Gate {
    _opaque: [u8; 0],
}

/// Settings of a gate. Members that are 0 or NULL have their default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// `sizeof(lw_options)`.
    pub size: u32,
    /// Threads that execute requests, at most 128. Default: the CPUs of this process.
    pub threads: u32,
    /// Objective: nanoseconds from a request's arrival at this machine to its answer: 1us to 1h
    pub slo_ns: u64,
    /// Limit of admitted requests in progress. Default: 65,536 for each of `threads`
    /// shares; a thread that calls `lw_arrive` has one of them.
    pub max_in_flight: u32,
    /// `LW_MODE_…`.
    pub mode: u32,
    /// Percentage of tenants in `LW_MODE_SHARE`.
    pub share_percent: u32,
    /// 0.
    pub reserved: u32,
    /// Name of the controller. Default: `edge`.
    pub controller: *const c_char,
    /// Parameters of the controller: `name=value`, separated by spaces.
    pub params: *const c_char,
}

/// A request that arrives. Members that are 0 are unknown.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Arrival {
    /// `sizeof(lw_arrival)`.
    pub size: u32,
    /// `LW_ARRIVE_…`, joined by `|`, or 0.
    pub flags: u32,
    /// Stamp of the request's connection, or NULL.
    pub stamp: *mut Stamp,
    /// Wait in a queue of the program's own, in nanoseconds, if there is no stamp.
    pub waited_ns: u64,
    /// Time that the client still allows, in nanoseconds from the kernel's receipt.
    pub left_ns: u64,
    /// Number of the user. Among users of a class, the order of rejection changes every hour.
    pub user: u64,
    /// Tenant that is charged for the request.
    pub tenant: u32,
    /// `LW_CLASS_…`, 1 to 8: the smaller, the more important. Metrics count from 0.
    pub klass: u8,
    /// Kind of request; the gate learns the cost of each.
    pub route: u8,
    /// Number of earlier attempts of this request.
    pub attempt: u8,
    /// 0.
    pub reserved: u8,
    /// Bytes that the program has read from the connection and that follow the request, with
    /// `LW_ARRIVE_UNPARSED`.
    pub unparsed: u32,
    /// 0.
    pub reserved2: u32,
}

impl Arrival {
    /// An arrival about which nothing is known.
    pub const UNKNOWN: Arrival = Arrival {
        size: size_of::<Arrival>() as u32,
        flags: 0,
        stamp: std::ptr::null_mut(),
        waited_ns: 0,
        left_ns: 0,
        user: 0,
        tenant: 0,
        klass: 0,
        route: 0,
        attempt: 0,
        reserved: 0,
        unparsed: 0,
        reserved2: 0,
    };
}

/// A decision about a request; the name of an admitted one until it ends. Copies name the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Permit {
    /// Number of the permit; 0 after a rejection.
    pub id: u64,
    /// Number of a rejection, for `lw_explain`.
    pub decision: u64,
    /// After a rejection: delay before the client should try again, in nanoseconds.
    pub retry_after_ns: u64,
    /// The gate.
    pub gate: u32,
    /// `LW_R_…` after a rejection, else 0.
    pub reason: u32,
}
