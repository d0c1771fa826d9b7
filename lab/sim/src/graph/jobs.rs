//! Requests under way: one record per call, from the caller's decision to its answer, in a slab whose slots are reused. Beside it
//! lie the controller's ticket and the links on which a request has reservations.

use leeward_core::server::PendingRequest;
use leeward_core::units::{CreditId, Nanos, Priority, Time};

/// A request's slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobId(u32);

impl JobId {
    /// No request: the caller of a client's request.
    pub(super) const NONE: JobId = JobId(u32::MAX);
}

/// CPU time by where it was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTime {
    /// At services that ask others.
    pub(super) upstream: Nanos,
    /// At services that ask nobody.
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
    /// The request for which it was made; [`JobId::NONE`] for a client's.
    pub(super) parent: JobId,
    /// Way on which it goes.
    pub(super) link: u32,
    /// When the client issued its request.
    pub(super) issued: Time,
    /// When it left the caller.
    pub(super) sent: Time,
    /// When it reached the server.
    pub(super) arrived: Time,
    /// When the client's request has to be answered.
    pub(super) deadline: Time,
    /// When it gives up waiting for credits.
    pub(super) credit_deadline: Time,
    /// CPU time before its calls.
    pub(super) service: Nanos,
    /// Importance, the same at all services.
    pub(super) priority: Priority,
    /// The newest grant that its caller knew.
    pub(super) credit: CreditId,
    /// Requests that waited behind it at its caller.
    pub(super) demand: u32,
    /// Calls of its service that it makes, by their place there.
    pub(super) call_mask: u64,
    /// Stage of its calls.
    pub(super) stage: u16,
    /// Calls that are not answered.
    pub(super) open: u16,
    /// Calls answered since it last had a core.
    pub(super) replies: u16,
    /// Attempts so far.
    pub(super) attempts: u8,
    /// Whether it has begun.
    pub(super) started: bool,
    /// Whether a call of it has failed.
    pub(super) failed: bool,
    /// CPU time spent on it, its calls included.
    pub(super) cpu_time: CpuTime,
}

/// All requests under way.
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

    /// Ends a request.
    pub(super) fn remove(&mut self, id: JobId) -> Job {
        self.free.push(id.0);
        let job = self[id];
        self.client_jobs -= u64::from(job.parent == JobId::NONE);
        job
    }

    /// Keeps the controller's ticket of a request that is in a server.
    pub(super) fn store_permit(&mut self, id: JobId, ticket: PendingRequest) {
        self.permits[id.0 as usize] = Some(ticket);
    }

    /// The controller's ticket of a request that is answered now.
    ///
    /// # Panics
    /// If the request was answered before, or never decided on.
    pub(super) fn take_permit(&mut self, id: JobId) -> PendingRequest {
        self.permits[id.0 as usize].take().expect("a request is answered once")
    }

    /// Links on which a request has a reservation each, in the order of its calls.
    pub(super) fn reserved(&mut self, id: JobId) -> &mut Vec<u32> {
        &mut self.reserved[id.0 as usize]
    }

    /// Clients' requests under way.
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
