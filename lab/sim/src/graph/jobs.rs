//! Requests in flight: one record per call, from the caller's decision to the response, in a slab
//! with reused slots.
//!
//! Parallel arrays hold the controller's permit and the links with reservations of each request.

use leeward_core::server::PendingRequest;
use leeward_core::units::{CreditId, Nanos, Priority, Time};

/// A request's slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobId(u32);

impl JobId {
    /// No request: the parent of a client's request.
    pub(super) const NONE: JobId = JobId(u32::MAX);
}

/// CPU time by position of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTime {
    /// At services that call others.
    pub(super) upstream: Nanos,
    /// At services that call none.
    pub(super) last: Nanos,
}

impl CpuTime {
    pub(super) fn add(&mut self, other: CpuTime) {
        self.upstream += other.upstream;
        self.last += other.last;
    }
}

/// Record of a request at one service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// The request that made this call; [`JobId::NONE`] for a client's request.
    pub(super) parent: JobId,
    /// Link on which it is sent.
    pub(super) link: u32,
    /// When the client issued its request.
    pub(super) issued: Time,
    /// When it left the caller.
    pub(super) sent: Time,
    /// When it reached the server.
    pub(super) arrived: Time,
    /// Deadline of the client's request.
    pub(super) deadline: Time,
    /// Latest time until which it waits for credits.
    pub(super) credit_deadline: Time,
    /// CPU time before its calls.
    pub(super) service: Nanos,
    /// Importance, the same at all services.
    pub(super) priority: Priority,
    /// Newest grant that its caller knew.
    pub(super) credit: CreditId,
    /// Requests that waited behind it at its caller.
    pub(super) demand: u32,
    /// Bit mask of the calls that it makes, by their index at its service.
    pub(super) call_mask: u64,
    /// Stage of its current calls.
    pub(super) stage: u16,
    /// Calls of the stage without a reply.
    pub(super) open: u16,
    /// Replies received since it last had a core.
    pub(super) replies: u16,
    /// Attempts so far.
    pub(super) attempts: u8,
    /// Whether a core has begun to execute it.
    pub(super) started: bool,
    /// Whether one of its calls has failed.
    pub(super) failed: bool,
    /// CPU time spent on it, its calls included.
    pub(super) cpu_time: CpuTime,
}

/// All requests in flight.
#[derive(Default)]
pub(super) struct Jobs {
    slots: Vec<Job>,
    permits: Vec<Option<PendingRequest>>,
    reserved: Vec<Vec<u32>>,
    free: Vec<u32>,
    client_jobs: u64,
}

impl Jobs {
    pub(super) fn insert(&mut self, job: Job) -> JobId {
        self.client_jobs += u64::from(job.parent == JobId::NONE);
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = job;
                JobId(slot)
            }
            None => {
                self.slots.push(job);
                self.permits.push(None);
                self.reserved.push(Vec::new());
                JobId(self.slots.len() as u32 - 1)
            }
        }
    }

    /// Ends a request and frees its slot.
    pub(super) fn remove(&mut self, id: JobId) -> Job {
        self.free.push(id.0);
        let job = self[id];
        self.client_jobs -= u64::from(job.parent == JobId::NONE);
        job
    }

    /// Stores the controller's permit of a request that is in a server.
    pub(super) fn store_permit(&mut self, id: JobId, permit: PendingRequest) {
        self.permits[id.0 as usize] = Some(permit);
    }

    /// Takes the controller's permit of a request that is answered now.
    ///
    /// # Panics
    /// If the request was already answered, or never decided.
    pub(super) fn take_permit(&mut self, id: JobId) -> PendingRequest {
        self.permits[id.0 as usize].take().expect("a request is answered once")
    }

    /// Links with one reservation each, in the order of the request's calls.
    pub(super) fn reserved(&mut self, id: JobId) -> &mut Vec<u32> {
        &mut self.reserved[id.0 as usize]
    }

    /// Number of clients' requests in flight.
    pub(super) fn client_jobs(&self) -> u64 {
        self.client_jobs
    }
}

impl std::ops::Index<JobId> for Jobs {
    type Output = Job;
    fn index(&self, id: JobId) -> &Job {
        &self.slots[id.0 as usize]
    }
}

impl std::ops::IndexMut<JobId> for Jobs {
    fn index_mut(&mut self, id: JobId) -> &mut Job {
        &mut self.slots[id.0 as usize]
    }
}
