//! The passage of time in a pair: one event after the other, each with its immediate consequences.

use super::client::is_expected_error;
use super::conservation::SessionTotals;
use super::core::Dispatch;
use super::datagram_path::{DatagramOutcome, DatagramPath};
use super::event_queue::{Endpoint, SimEvent};
use super::server::{PollOutcome, ServerContext, ServerEnd};
use super::stream::Stream;
use super::{Client, ClientId, Link, Pair, ReadMode};
use leeward_core::units::{Nanos, Time};
use leeward_session::client::Phase;
use leeward_session::server::Reply;
use leeward_wire::{ErrorCode, RejectCode, Version};

/// Explicit credits per tick, at most, as in the engine with sockets.
const WAKES_PER_TICK: usize = 64;

impl Pair {
    /// Handles the next event, then checks conservation.
    pub fn step(&mut self) {
        let Some((at, event)) = self.event_queue.next() else { return };
        self.now = at.max(self.now);
        match event {
            SimEvent::Arrive(link, to) => self.on_arrival(link, to),
            SimEvent::Writable(link, Endpoint::Client) => self.pump(link),
            SimEvent::Writable(link, Endpoint::Server) => self.with_server(link, |end, context| end.serve(context)),
            SimEvent::Timer(link) => self.timer(link),
            SimEvent::DatagramTimer(link) => self.datagram_timer(link),
            SimEvent::Read(link) => self.slow_read(link),
            SimEvent::Done(worker) => self.done(worker),
            SimEvent::Tick => self.tick(),
            SimEvent::Scan => self.scan(),
        }
        self.settle_step();
    }

    /// Runs until this time.
    pub fn run_until(&mut self, until: Time) {
        while self.event_queue.due() <= until {
            self.step();
        }
        self.now = until.max(self.now);
    }

    /// Runs for this time.
    pub fn run_for(&mut self, span: Nanos) {
        self.run_until(self.now + span);
    }

    /// Runs while `goes_on` returns true, for at most this long. Returns whether it returned false
    /// in time.
    pub fn run_while(&mut self, at_most: Nanos, mut goes_on: impl FnMut(&mut Pair) -> bool) -> bool {
        let end = self.now + at_most;
        while goes_on(self) {
            if self.event_queue.due() > end || self.violation.is_some() {
                return false;
            }
            self.step();
        }
        true
    }

    /// Handles the immediate consequences of a step.
    pub(super) fn settle_step(&mut self) {
        while let Some(next) = self.core.dispatch(self.now) {
            match next {
                Dispatch::Started(worker, until) => self.event_queue.schedule(until, SimEvent::Done(worker)),
                Dispatch::Hung => {}
                Dispatch::Rejected(job, reason) => {
                    let reply = Reply::Reject(RejectCode::from(reason), "");
                    self.with_server(job.link, |end, context| end.answer(job.permit, reply, context));
                }
            }
        }
        self.stop_if_drained();
        self.check();
    }

    pub(super) fn add_client(&mut self, client: Client) -> ClientId {
        let link = self.links.len();
        let (slot, connection) = self.core.open(link);
        let is_full = self.open.len() >= self.config.connections_max;
        let Pair { config, rng: random, now, .. } = self;
        let faults = config.datagrams.filter(|_| matches!(client, Client::Honest(_)));
        let path = faults.map(|faults| Box::new(DatagramPath::new(link, config.wire, faults, *now, random)));
        self.links.push(Link {
            client,
            read_mode: ReadMode::Eager,
            up: Stream::new(link, Endpoint::Server, self.config.wire),
            down: Stream::new(link, Endpoint::Client, self.config.wire),
            server: Some(ServerEnd::new(link, slot, connection, self.now)),
            datagrams: path,
            is_tampered: false,
            close_reason: None,
            error: None,
        });
        self.open.push(link);
        let rejection = if is_full {
            Some((ErrorCode::ConnectionLimit, "this server has as many connections as it takes"))
        } else {
            self.core.stopping_since.map(|_| (ErrorCode::ShuttingDown, "this server is stopping"))
        };
        if let Some((code, message)) = rejection {
            self.with_server(link, |end, context| {
                end.end(code, message, context);
                end.serve(context)
            });
        }
        self.pump(link);
        self.settle_step();
        ClientId(link)
    }

    // ---- the client's end ----

    /// Sends as much of a client's output as the wire takes, and sets the client's timer.
    pub(super) fn pump(&mut self, link: usize) {
        let Pair { now, event_queue: queue, rng: random, links, .. } = self;
        let (now, link_id, link) = (*now, link, &mut links[link]);
        match &mut link.client {
            Client::Raw(raw) => {
                let taken = link.up.write(&raw.unsent, now, queue, random);
                raw.unsent.drain(..taken);
                if raw.is_closing && raw.unsent.is_empty() {
                    link.up.finish(now, queue);
                }
            }
            Client::Honest(honest) => {
                loop {
                    let output = honest.connection.output(now);
                    let taken = match &mut link.datagrams {
                        _ if output.is_empty() => 0,
                        Some(path) => path.client_send(output, now, queue, random),
                        None => link.up.write(output, now, queue, random),
                    };
                    if taken == 0 {
                        break;
                    }
                    honest.with(now, |connection, mut events| connection.consume(now, taken, &mut events));
                }
                let mut link_timer = None;
                if let Some(path) = &mut link.datagrams {
                    if honest.connection.phase() == Phase::Closed {
                        path.client_close(now, queue, random);
                        link.down.close_reader();
                    } else if path.client_flush(now, queue, random).is_err() {
                        if link.down.end_now(now) {
                            queue.schedule(now, SimEvent::Arrive(link_id, Endpoint::Client));
                        }
                    } else {
                        let calls = path.client.congestion_window();
                        honest.with(now, |connection, mut events| {
                            connection.set_transport_limit(now, calls, &mut events)
                        });
                        link_timer = Some(path.client.next_timeout()).filter(|at| *at < Time::NEVER);
                    }
                } else if honest.connection.phase() == Phase::Closed {
                    link.up.finish(now, queue);
                    link.down.close_reader();
                }
                let timeout = honest.connection.next_timeout(now).into_iter().chain(link_timer).min();
                let timeout = timeout.map(|at| at.max(Time(now.0 + 1)));
                if let Some(at) = timeout.filter(|at| *at < honest.timer) {
                    honest.timer = at;
                    queue.schedule(at, SimEvent::Timer(link_id));
                }
            }
        }
        self.check_client(link_id);
    }

    fn timer(&mut self, link: usize) {
        let now = self.now;
        if let Client::Honest(honest) = &mut self.links[link].client
            && honest.timer == now
        {
            honest.timer = Time::NEVER;
            honest.with(now, |connection, mut events| connection.on_timer(now, &mut events));
            self.pump(link);
        }
    }

    fn slow_read(&mut self, link: usize) {
        let ReadMode::Slow(most, every) = self.links[link].read_mode else { return };
        self.client_reads(link, most);
        if !self.links[link].down.is_eof(self.now) {
            self.event_queue.schedule(self.now + every, SimEvent::Read(link));
        }
    }

    fn client_reads(&mut self, link: usize, most: usize) {
        let Pair { now, event_queue: queue, links, .. } = self;
        let (now, link_id, link) = (*now, link, &mut links[link]);
        let error = match &mut link.client {
            Client::Raw(raw) => {
                raw.read(&mut link.down, most, now, queue);
                None
            }
            Client::Honest(honest) => honest.read(&mut link.down, most, now, queue),
        };
        if let Some(error) = error {
            let is_old = self.config.max_version < Version::NEWEST;
            let is_expected = is_expected_error(&error) || (is_old && error.refuses_version());
            if !link.is_tampered && !is_expected {
                self.violation.get_or_insert_with(|| format!("an honest client (connection {link_id}): {error}"));
            }
            link.error = Some(error);
        }
        self.pump(link_id);
    }

    // ---- datagrams ----

    fn datagram_timer(&mut self, link: usize) {
        let Pair { now, event_queue: queue, rng: random, links, .. } = self;
        if let Some(path) = &mut links[link].datagrams {
            path.on_timer(*now, queue, random);
        }
    }

    /// Handles the datagrams that have arrived at the server.
    fn datagrams_at_server(&mut self, link: usize) {
        let (now, queue) = (self.now, &mut self.event_queue);
        let Some(path) = &mut self.links[link].datagrams else { return };
        for mut datagram in path.arrivals_at_server(now, queue) {
            let Pair { event_queue: queue, rng: random, links, config, .. } = self;
            let Link { datagrams: Some(path), up, server, .. } = &mut links[link] else { return };
            let may = server.as_ref().is_some_and(|end| end.can_receive(config));
            let outcome = path.server_receive(&mut datagram, (server.is_some(), may), now, queue, random);
            match outcome {
                DatagramOutcome::Ignored => {}
                DatagramOutcome::Frame(frame) => up.deliver(&frame),
                DatagramOutcome::ClientGone => _ = up.end_now(now),
            }
            self.with_server(link, |end, context| end.serve(context));
        }
    }

    /// Handles the datagrams that have arrived at the client.
    fn datagrams_at_client(&mut self, link: usize) {
        let (now, queue) = (self.now, &mut self.event_queue);
        let Link { datagrams: Some(path), down, .. } = &mut self.links[link] else { return };
        let (frames, done) = path.client_receive(now, queue);
        down.deliver(&frames);
        if done.is_err() {
            down.end_now(now);
        }
    }

    // ---- the wire ----

    pub(super) fn on_arrival(&mut self, link: usize, to: Endpoint) {
        let (now, queue) = (self.now, &mut self.event_queue);
        match to {
            Endpoint::Server => {
                self.links[link].up.deliver_due(now, queue);
                self.datagrams_at_server(link);
                self.with_server(link, |end, context| end.serve(context));
            }
            Endpoint::Client => {
                self.links[link].down.deliver_due(now, queue);
                self.datagrams_at_client(link);
                if self.links[link].read_mode == ReadMode::Eager {
                    self.client_reads(link, usize::MAX);
                }
            }
        }
    }

    // ---- the server's end ----

    /// Calls `act` on the server's end of a connection, if it is open, and closes the end if `act`
    /// returns so.
    pub(super) fn with_server(
        &mut self,
        link: usize,
        act: impl FnOnce(&mut ServerEnd, &mut ServerContext<'_>) -> PollOutcome,
    ) {
        let Pair { now, event_queue: queue, rng: random, core, links, config, totals: session_totals, .. } = self;
        let Link { up, down, datagrams: path, server, .. } = &mut links[link];
        let Some(end) = server else { return };
        let before = SessionTotals::of(end);
        let path = path.as_deref_mut();
        let poll_outcome = act(
            end,
            &mut ServerContext { now: *now, core, up, down, datagrams: path, event_queue: queue, rng: random, config },
        );
        session_totals.change(&before, &SessionTotals::of(end));
        self.check_server(link);
        if poll_outcome == PollOutcome::Close {
            self.close_server_end(link);
        }
    }

    /// Closes the server's end and frees its slot.
    pub(super) fn close_server_end(&mut self, link: usize) {
        let (now, queue) = (self.now, &mut self.event_queue);
        let Link { up, down, datagrams: path, server, close_reason: reason, .. } = &mut self.links[link];
        let Some(mut end) = server.take() else { return };
        let before = SessionTotals::of(&end);
        end.abandon(now, &mut self.core);
        self.totals.change(&before, &SessionTotals::of(&end));
        self.core.session_slots[end.slot as usize] = None;
        *reason = end.close_reason;
        match path {
            Some(path) => path.server_close(now, queue, &mut self.rng),
            None => down.finish(now, queue),
        }
        up.close_reader();
        self.open.retain(|open| *open != link);
    }

    fn done(&mut self, worker: usize) {
        if let Some(running) = self.core.workers[worker].take() {
            let (job, work) = (running.job, running.work);
            self.with_server(job.link, |end, context| end.complete(job, &work, context));
        }
    }

    fn tick(&mut self) {
        self.core.tick(self.now);
        for _ in 0..WAKES_PER_TICK {
            let Some(link) = self.core.next_to_wake() else { break };
            if let Some(link) = link {
                self.with_server(link, |end, context| end.credit(context));
            }
        }
        self.event_queue.schedule(self.core.pulse.due().max(Time(self.now.0 + 1)), SimEvent::Tick);
    }

    fn scan(&mut self) {
        for link in self.open.clone() {
            self.with_server(link, |end, context| end.scan(context));
        }
        self.check_sums();
        self.event_queue.schedule(self.now + self.config.scan_interval, SimEvent::Scan);
    }

    /// A stopping server closes all connections once no answers are pending, or after the drain
    /// time-out.
    fn stop_if_drained(&mut self) {
        let Some(since) = self.core.stopping_since else { return };
        let has_pending = |link: &usize| self.links[*link].server.as_ref().is_some_and(ServerEnd::has_pending);
        let is_draining = self.now.since(since) <= self.config.drain_timeout;
        if self.has_stopped || (is_draining && self.open.iter().any(has_pending)) {
            return;
        }
        self.has_stopped = true;
        for link in self.open.clone() {
            self.with_server(link, |end, context| {
                end.end(ErrorCode::ShuttingDown, "this server has stopped", context);
                // No connection lingers now: the client gets only the output that the wire takes at
                // once.
                let _ = end.serve(context);
                PollOutcome::Close
            });
        }
    }
}
