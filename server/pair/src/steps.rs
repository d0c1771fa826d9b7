//! How time passes in a pair: one happening after the other, each with all that follows from it at once.

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

/// Explicit credits that one tick may cause, as in the engine with sockets.
const WAKES_PER_TICK: usize = 64;

impl Pair {
    /// The next thing happens, and the books are checked.
    pub fn step(&mut self) {
        let Some((at, happening)) = self.event_queue.next() else { return };
        self.now = at.max(self.now);
        match happening {
            SimEvent::Arrive(link, to) => self.on_arrival(link, to),
            SimEvent::Writable(link, Endpoint::Client) => self.pump(link),
            SimEvent::Writable(link, Endpoint::Server) => self.with_server(link, |end, around| end.serve(around)),
            SimEvent::Timer(link) => self.timer(link),
            SimEvent::DatagramTimer(link) => self.datagram_timer(link),
            SimEvent::Read(link) => self.slow_read(link),
            SimEvent::Done(worker) => self.done(worker),
            SimEvent::Tick => self.tick(),
            SimEvent::Scan => self.scan(),
        }
        self.settle_step();
    }

    /// Runs until this moment.
    pub fn run_until(&mut self, until: Time) {
        while self.event_queue.due() <= until {
            self.step();
        }
        self.now = until.max(self.now);
    }

    /// Runs for so long.
    pub fn run_for(&mut self, span: Nanos) {
        self.run_until(self.now + span);
    }

    /// Runs until `holds`, for at most this long. Whether it came to hold.
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

    /// Does what follows at once from any step.
    pub(super) fn settle_step(&mut self) {
        while let Some(next) = self.core.dispatch(self.now) {
            match next {
                Dispatch::Started(worker, until) => self.event_queue.schedule(until, SimEvent::Done(worker)),
                Dispatch::Hung => {}
                Dispatch::Rejected(job, reason) => {
                    let reply = Reply::Reject(RejectCode::from(reason), "");
                    self.with_server(job.link, |end, around| end.answer(job.ticket, reply, around));
                }
            }
        }
        self.stop_if_drained();
        self.check();
    }

    pub(super) fn add_client(&mut self, client: Client) -> ClientId {
        let link = self.links.len();
        let (place, connection) = self.core.open(link);
        let is_full = self.open.len() >= self.config.connections_max;
        let Pair { config, rng: chance, now, .. } = self;
        let faults = config.datagrams.filter(|_| matches!(client, Client::Honest(_)));
        let far = faults.map(|faults| Box::new(DatagramPath::new(link, config.wire, faults, *now, chance)));
        self.links.push(Link {
            client,
            read_mode: ReadMode::Eager,
            up: Stream::new(link, Endpoint::Server, self.config.wire),
            down: Stream::new(link, Endpoint::Client, self.config.wire),
            server: Some(ServerEnd::new(link, place, connection, self.now)),
            datagrams: far,
            is_tampered: false,
            close_reason: None,
            error: None,
        });
        self.open.push(link);
        let refused = if is_full {
            Some((ErrorCode::ConnectionLimit, "this server has as many connections as it takes"))
        } else {
            self.core.stopping_since.map(|_| (ErrorCode::ShuttingDown, "this server is stopping"))
        };
        if let Some((code, words)) = refused {
            self.with_server(link, |end, around| {
                end.end(code, words, around);
                end.serve(around)
            });
        }
        self.pump(link);
        self.settle_step();
        ClientId(link)
    }

    // ---- the client's end ----

    /// Sends what a client has to say, as far as there is room, and sets its timer.
    pub(super) fn pump(&mut self, link: usize) {
        let Pair { now, event_queue: agenda, rng: chance, links, .. } = self;
        let (now, link_id, link) = (*now, link, &mut links[link]);
        match &mut link.client {
            Client::Raw(raw) => {
                let taken = link.up.write(&raw.unsent, now, agenda, chance);
                raw.unsent.drain(..taken);
                if raw.is_closing && raw.unsent.is_empty() {
                    link.up.finish(now, agenda);
                }
            }
            Client::Honest(honest) => {
                loop {
                    let output = honest.connection.output(now);
                    let taken = match &mut link.datagrams {
                        _ if output.is_empty() => 0,
                        Some(far) => far.client_send(output, now, agenda, chance),
                        None => link.up.write(output, now, agenda, chance),
                    };
                    if taken == 0 {
                        break;
                    }
                    honest.with(now, |connection, mut events| connection.consume(now, taken, &mut events));
                }
                let mut own = None;
                if let Some(far) = &mut link.datagrams {
                    if honest.connection.phase() == Phase::Closed {
                        far.client_close(now, agenda, chance);
                        link.down.close_reader();
                    } else if far.client_flush(now, agenda, chance).is_err() {
                        if link.down.end_now(now) {
                            agenda.schedule(now, SimEvent::Arrive(link_id, Endpoint::Client));
                        }
                    } else {
                        let bound = far.client.congestion_window();
                        honest.with(now, |connection, mut events| {
                            connection.set_transport_limit(now, bound, &mut events)
                        });
                        own = Some(far.client.next_timeout()).filter(|at| *at < Time::NEVER);
                    }
                } else if honest.connection.phase() == Phase::Closed {
                    link.up.finish(now, agenda);
                    link.down.close_reader();
                }
                let wanted = honest.connection.next_timeout(now).into_iter().chain(own).min();
                let wanted = wanted.map(|at| at.max(Time(now.0 + 1)));
                if let Some(at) = wanted.filter(|at| *at < honest.timer) {
                    honest.timer = at;
                    agenda.schedule(at, SimEvent::Timer(link_id));
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
        let Pair { now, event_queue: agenda, links, .. } = self;
        let (now, link_id, link) = (*now, link, &mut links[link]);
        let error = match &mut link.client {
            Client::Raw(raw) => {
                raw.read(&mut link.down, most, now, agenda);
                None
            }
            Client::Honest(honest) => honest.read(&mut link.down, most, now, agenda),
        };
        if let Some(error) = error {
            let is_old = self.config.max_version < Version::NEWEST;
            let is_fair = is_expected_error(&error) || (is_old && error.refuses_version());
            if !link.is_tampered && !is_fair {
                self.violation.get_or_insert_with(|| format!("an honest client (connection {link_id}): {error}"));
            }
            link.error = Some(error);
        }
        self.pump(link_id);
    }

    // ---- datagrams ----

    fn datagram_timer(&mut self, link: usize) {
        let Pair { now, event_queue: agenda, rng: chance, links, .. } = self;
        if let Some(far) = &mut links[link].datagrams {
            far.on_timer(*now, agenda, chance);
        }
    }

    /// Takes the datagrams that have come to the server.
    fn datagrams_at_server(&mut self, link: usize) {
        let (now, agenda) = (self.now, &mut self.event_queue);
        let Some(far) = &mut self.links[link].datagrams else { return };
        for mut datagram in far.arrivals_at_server(now, agenda) {
            let Pair { event_queue: agenda, rng: chance, links, config, .. } = self;
            let Link { datagrams: Some(far), up, server, .. } = &mut links[link] else { return };
            let may = server.as_ref().is_some_and(|end| end.can_receive(config));
            let came = far.server_receive(&mut datagram, (server.is_some(), may), now, agenda, chance);
            match came {
                DatagramOutcome::Ignored => {}
                DatagramOutcome::Frame(frame) => up.deliver(&frame),
                DatagramOutcome::ClientGone => _ = up.end_now(now),
            }
            self.with_server(link, |end, around| end.serve(around));
        }
    }

    /// Takes the datagrams that have come to the client.
    fn datagrams_at_client(&mut self, link: usize) {
        let (now, agenda) = (self.now, &mut self.event_queue);
        let Link { datagrams: Some(far), down, .. } = &mut self.links[link] else { return };
        let (frames, done) = far.client_receive(now, agenda);
        down.deliver(&frames);
        if done.is_err() {
            down.end_now(now);
        }
    }

    // ---- the wire ----

    pub(super) fn on_arrival(&mut self, link: usize, to: Endpoint) {
        let (now, agenda) = (self.now, &mut self.event_queue);
        match to {
            Endpoint::Server => {
                self.links[link].up.deliver_due(now, agenda);
                self.datagrams_at_server(link);
                self.with_server(link, |end, around| end.serve(around));
            }
            Endpoint::Client => {
                self.links[link].down.deliver_due(now, agenda);
                self.datagrams_at_client(link);
                if self.links[link].read_mode == ReadMode::Eager {
                    self.client_reads(link, usize::MAX);
                }
            }
        }
    }

    // ---- the server's end ----

    /// Lets `act` look at the server's end of a connection, if it is there, and closes it if that is its fate.
    pub(super) fn with_server(
        &mut self,
        link: usize,
        act: impl FnOnce(&mut ServerEnd, &mut ServerContext<'_>) -> PollOutcome,
    ) {
        let Pair { now, event_queue: agenda, rng: chance, core, links, config, totals: sums, .. } = self;
        let Link { up, down, datagrams: far, server, .. } = &mut links[link];
        let Some(end) = server else { return };
        let before = SessionTotals::of(end);
        let far = far.as_deref_mut();
        let fate = act(
            end,
            &mut ServerContext { now: *now, core, up, down, datagrams: far, event_queue: agenda, rng: chance, config },
        );
        sums.change(&before, &SessionTotals::of(end));
        self.check_server(link);
        if fate == PollOutcome::Close {
            self.close_server_end(link);
        }
    }

    /// The server gives a connection's place back.
    pub(super) fn close_server_end(&mut self, link: usize) {
        let (now, agenda) = (self.now, &mut self.event_queue);
        let Link { up, down, datagrams: far, server, close_reason: reproach, .. } = &mut self.links[link];
        let Some(mut end) = server.take() else { return };
        let before = SessionTotals::of(&end);
        end.abandon(now, &mut self.core);
        self.totals.change(&before, &SessionTotals::of(&end));
        self.core.session_slots[end.slot as usize] = None;
        *reproach = end.close_reason;
        match far {
            Some(far) => far.server_close(now, agenda, &mut self.rng),
            None => down.finish(now, agenda),
        }
        up.close_reader();
        self.open.retain(|open| *open != link);
    }

    fn done(&mut self, worker: usize) {
        if let Some(running) = self.core.workers[worker].take() {
            let (job, work) = (running.job, running.work);
            self.with_server(job.link, |end, around| end.complete(job, &work, around));
        }
    }

    fn tick(&mut self) {
        self.core.tick(self.now);
        for _ in 0..WAKES_PER_TICK {
            let Some(link) = self.core.next_to_wake() else { break };
            if let Some(link) = link {
                self.with_server(link, |end, around| end.credit(around));
            }
        }
        self.event_queue.schedule(self.core.pulse.due().max(Time(self.now.0 + 1)), SimEvent::Tick);
    }

    fn scan(&mut self) {
        for link in self.open.clone() {
            self.with_server(link, |end, around| end.scan(around));
        }
        self.check_sums();
        self.event_queue.schedule(self.now + self.config.scan_interval, SimEvent::Scan);
    }

    /// A server that stops sends everybody away when nothing is owed any more, or its patience is over.
    fn stop_if_drained(&mut self) {
        let Some(since) = self.core.stopping_since else { return };
        let owes = |link: &usize| self.links[*link].server.as_ref().is_some_and(ServerEnd::has_pending);
        let is_patient = self.now.since(since) <= self.config.drain_timeout;
        if self.has_stopped || (is_patient && self.open.iter().any(owes)) {
            return;
        }
        self.has_stopped = true;
        for link in self.open.clone() {
            self.with_server(link, |end, around| {
                end.end(ErrorCode::ShuttingDown, "this server has stopped", around);
                // Nobody lingers any more: what it takes at once it takes.
                let _ = end.serve(around);
                PollOutcome::Close
            });
        }
    }
}
