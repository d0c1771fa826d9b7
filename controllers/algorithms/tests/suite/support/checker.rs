//! Checker that watches a plant and reports broken invariants. It uses no knowledge of an
//! algorithm, only the guarantees that every algorithm gives to clients and server. It receives the
//! plant's events, and its sessions and gauges after each step.

use std::collections::BTreeMap;

use leeward_core::server::Gauges;

/// An event in a plant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Event {
    Connected {
        place: usize,
    },
    Disconnected {
        place: usize,
    },
    Submitted {
        request: u64,
    },
    Sent {
        place: usize,
        request: u64,
    },
    /// A message with this window has reached the client.
    WindowReceived {
        place: usize,
        window: u32,
    },
    /// A reply has reached the client.
    Answered {
        place: usize,
    },
    /// A reply or a credit message has left the server.
    Departed {
        window: u32,
        pending: u32,
    },
    Ended {
        request: u64,
        end: End,
    },
    /// The control loop has ticked.
    Ticked,
    /// The controller chose this session to wake.
    Woken {
        place: Option<usize>,
    },
    /// The server has admitted a request.
    Admitted,
    /// A client's next timeout is due at once, right after its timer was called.
    TimerSpins {
        place: usize,
    },
}

/// End of a request. Each request has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Response,
    Rejected,
    Client,
    Disconnect,
}

/// State that the checker inspects after a step.
pub(crate) struct View {
    pub(crate) gauges: Gauges,
    pub(crate) sessions: Vec<SessionView>,
}

/// View of one open session.
pub(crate) struct SessionView {
    pub(crate) window: u32,
    /// Requests admitted and not answered.
    pub(crate) admitted: u32,
    /// Rejected requests whose rejection has not left.
    pub(crate) rejected: u32,
    /// Requests that wait at its client.
    pub(crate) queued: usize,
}

/// Guarantees of a case beyond those of all cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarantees {
    /// Bound below which every window is, if clients send by window.
    pub(crate) max_window: Option<u32>,
    /// The smallest pool, if there is a pool.
    pub(crate) min_pool: i64,
    /// Capacity of the client's queue.
    pub(crate) queue: usize,
    /// Maximum of a client's outstanding requests.
    pub(crate) max_outstanding: u32,
}

/// Description of a broken invariant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Violation {
    /// `c_issued` is not the sum of all windows.
    Issued { issued: i64, windows: i64 },
    /// `n_c` is not the number of open sessions.
    Sessions { counted: i64, open: usize },
    /// A window is `max_window` or more.
    WindowTooLarge { window: u32 },
    /// A message left with a window below the pending requests.
    WindowBelowPending { window: u32, pending: u32 },
    /// The pool is outside its bounds.
    Pool { pool: i64 },
    /// A client sent more than its window, or more than its connection, allows.
    SentWithoutCredit { outstanding: u32, allowed: u32 },
    /// A request ended again, or before it was issued.
    EndedTwice { request: u64 },
    /// A request was sent after its end, or sent twice.
    SentTwice { request: u64 },
    /// The plant is empty and these requests have not ended.
    NeverEnded { requests: usize },
    /// A client's queue exceeds its capacity.
    Queue { queued: usize },
    /// A session was woken that is not open, or twice in one round: the loop might never end.
    Wake { place: Option<usize> },
    /// A timer is due again at once, which would keep its thread busy for ever.
    TimerSpins { place: usize },
    /// The count of admitted, unanswered requests is wrong, or beyond the limit.
    InFlight { counted: i64, admitted: i64, rejected: i64, limit: f64 },
    /// A gauge has an impossible value.
    Gauge { name: &'static str, value: f64 },
    /// This connection still gets no response long after the overload.
    LockedOut { place: usize },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestState {
    Waiting,
    Out,
}

#[derive(Default)]
struct ClientState {
    window: u32,
    outstanding: u32,
}

pub(crate) struct Checker {
    guarantees: Guarantees,
    requests: BTreeMap<u64, RequestState>,
    issued_ids: u64,
    clients: BTreeMap<usize, ClientState>,
    woken: Vec<usize>,
    ticked: bool,
    admitted: bool,
}

impl Checker {
    pub(crate) fn new(promises: Guarantees) -> Self {
        Checker {
            guarantees: promises,
            requests: BTreeMap::new(),
            issued_ids: 0,
            clients: BTreeMap::new(),
            woken: Vec::new(),
            ticked: false,
            admitted: false,
        }
    }

    /// Checks all events of one step, in order, then the state after it.
    pub(crate) fn check(&mut self, events: &[Event], view: &View) -> Result<(), Violation> {
        self.ticked = false;
        self.admitted = false;
        events.iter().try_for_each(|event| self.event(event))?;
        self.state(view)
    }

    /// Checks that nothing is left after all connections have closed.
    pub(crate) fn finish(&self, view: &View) -> Result<(), Violation> {
        self.state(view)?;
        match self.requests.len() {
            0 => Ok(()),
            requests => Err(Violation::NeverEnded { requests }),
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Violation> {
        match *event {
            Event::Connected { place } => {
                self.clients.insert(place, ClientState::default());
            }
            Event::Disconnected { place } => {
                self.clients.remove(&place);
            }
            Event::Submitted { request } => {
                self.issued_ids = self.issued_ids.max(request + 1);
                self.requests.insert(request, RequestState::Waiting);
            }
            Event::Sent { place, request } => return self.sent(place, request),
            Event::WindowReceived { place, window } => self.clients.entry(place).or_default().window = window,
            Event::Answered { place } => {
                let client = self.clients.entry(place).or_default();
                client.outstanding = client.outstanding.saturating_sub(1);
            }
            Event::Departed { window, pending } => return self.departed(window, pending),
            Event::Ended { request, .. } => {
                return self.requests.remove(&request).map(drop).ok_or(Violation::EndedTwice { request });
            }
            Event::Ticked => {
                self.ticked = true;
                self.woken.clear();
            }
            Event::Woken { place } => match place {
                Some(open) if !self.woken.contains(&open) => self.woken.push(open),
                _ => return Err(Violation::Wake { place }),
            },
            Event::Admitted => self.admitted = true,
            Event::TimerSpins { place } => return Err(Violation::TimerSpins { place }),
        }
        Ok(())
    }

    fn sent(&mut self, place: usize, request: u64) -> Result<(), Violation> {
        if self.requests.insert(request, RequestState::Out) != Some(RequestState::Waiting) {
            return Err(Violation::SentTwice { request });
        }
        let client = self.clients.entry(place).or_default();
        let outstanding = client.outstanding;
        client.outstanding += 1;
        // The last received window counts. A window below the outstanding requests is allowed; the
        // client then sends nothing.
        let window = if self.guarantees.max_window.is_some() { client.window } else { u32::MAX };
        let allowed = window.min(self.guarantees.max_outstanding);
        if outstanding < allowed { Ok(()) } else { Err(Violation::SentWithoutCredit { outstanding, allowed }) }
    }

    /// A window may be below the pending requests for a while: the client used a credit before it
    /// learned that the credit was taken back. The next message to the client corrects the window,
    /// so no message leaves with such a window.
    fn departed(&self, window: u32, pending: u32) -> Result<(), Violation> {
        match self.guarantees.max_window {
            Some(_) if window < pending => Err(Violation::WindowBelowPending { window, pending }),
            Some(max) if window >= max => Err(Violation::WindowTooLarge { window }),
            _ => Ok(()),
        }
    }

    fn state(&self, view: &View) -> Result<(), Violation> {
        self.windows(view)?;
        self.pool(&view.gauges)?;
        self.in_flight(view)?;
        if let Some(threshold) = view.gauges.priority_threshold
            && !(1.0..=128.0).contains(&threshold)
        {
            return Err(Violation::Gauge { name: "priority_threshold", value: threshold });
        }
        match view.sessions.iter().find(|session| session.queued > self.guarantees.queue) {
            Some(session) => Err(Violation::Queue { queued: session.queued }),
            None => Ok(()),
        }
    }

    fn windows(&self, view: &View) -> Result<(), Violation> {
        let windows: i64 = view.sessions.iter().map(|session| i64::from(session.window)).sum();
        // After the last session has closed the sum is 0, and `c_issued` must be 0 too.
        match view.gauges.credits_issued {
            Some(issued) if issued != windows => return Err(Violation::Issued { issued, windows }),
            _ => {}
        }
        match view.gauges.sessions {
            Some(counted) if counted != view.sessions.len() as i64 => {
                return Err(Violation::Sessions { counted, open: view.sessions.len() });
            }
            _ => {}
        }
        let max = self.guarantees.max_window.unwrap_or(u32::MAX);
        match view.sessions.iter().find(|session| session.window >= max) {
            Some(session) => Err(Violation::WindowTooLarge { window: session.window }),
            None => Ok(()),
        }
    }

    fn pool(&self, gauges: &Gauges) -> Result<(), Violation> {
        let Some(pool) = gauges.credit_pool else { return Ok(()) };
        // The upper bound follows the number of sessions at the next tick.
        let sessions = gauges.sessions.unwrap_or(0);
        let max = sessions.saturating_mul(self.guarantees.max_window.unwrap_or(u32::MAX).into());
        let too_large = self.ticked && pool > max.max(self.guarantees.min_pool);
        if pool < self.guarantees.min_pool || too_large { Err(Violation::Pool { pool }) } else { Ok(()) }
    }

    fn in_flight(&self, view: &View) -> Result<(), Violation> {
        let limit = view.gauges.concurrency_limit.unwrap_or(f64::INFINITY);
        if limit.is_nan() || limit < 1.0 {
            return Err(Violation::Gauge { name: "concurrency_limit", value: limit });
        }
        let Some(counted) = view.gauges.in_flight else { return Ok(()) };
        let admitted: i64 = view.sessions.iter().map(|session| i64::from(session.admitted)).sum();
        let rejected: i64 = view.sessions.iter().map(|session| i64::from(session.rejected)).sum();
        // A rejection does not state whether its request was admitted before. While a rejection has
        // not left, one from inside the server may be taken for it. The count is exact again when
        // all of them have left.
        let wrong = !(admitted..=admitted + rejected).contains(&counted);
        let over = self.admitted && counted as f64 > limit;
        if wrong || over { Err(Violation::InFlight { counted, admitted, rejected, limit }) } else { Ok(()) }
    }
}
