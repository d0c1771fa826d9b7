//! How time passes in a pair: one happening after the other, each with all that follows from it at once.

use super::agenda::{End, Happening};
use super::books::Sums;
use super::client::is_no_reproach;
use super::core::Next;
use super::far::{Came, Far};
use super::server::{Around, Fate, ServerEnd};
use super::stream::Stream;
use super::{Client, ClientId, Link, Pair, Reading};
use leeward_core::units::{Nanos, Time};
use leeward_session::client::Phase;
use leeward_session::server::Reply;
use leeward_wire::{DropReason, ErrorCode, Version};

/// Explicit credits that one tick may cause, as in the engine with sockets.
const WAKES_PER_TICK: usize = 64;

impl Pair {
    /// The next thing happens, and the books are checked.
    pub fn step(&mut self) {
        let Some((at, happening)) = self.agenda.next() else { return };
        self.now = at.max(self.now);
        match happening {
            Happening::Arrive(link, to) => self.arrives(link, to),
            Happening::Writable(link, End::Client) => self.pump(link),
            Happening::Writable(link, End::Server) => self.with_server(link, |end, around| end.serve(around)),
            Happening::Timer(link) => self.timer(link),
            Happening::FarTimer(link) => self.far_timer(link),
            Happening::Read(link) => self.reads_slowly(link),
            Happening::Done(worker) => self.done(worker),
            Happening::Tick => self.tick(),
            Happening::Sweep => self.sweep(),
        }
        self.settle_step();
    }

    /// Runs until this moment.
    pub fn run_until(&mut self, until: Time) {
        while self.agenda.due() <= until {
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
            if self.agenda.due() > end || self.violation.is_some() {
                return false;
            }
            self.step();
        }
        true
    }

    /// Does what follows at once from any step.
    pub(super) fn settle_step(&mut self) {
        while let Some(next) = self.core.begin(self.now) {
            match next {
                Next::Runs(worker, until) => self.agenda.schedule(until, Happening::Done(worker)),
                Next::Stuck => {}
                Next::Late(job, reason) => {
                    let reply = Reply::Drop(DropReason::from(reason), "");
                    self.with_server(job.link, |end, around| end.answer(job.ticket, reply, around));
                }
            }
        }
        self.stop_if_drained();
        self.check();
    }

    pub(super) fn adopt(&mut self, client: Client) -> ClientId {
        let link = self.links.len();
        let (place, connection) = self.core.open(link);
        let is_full = self.open.len() >= self.config.connections_max;
        let Pair { config, chance, now, .. } = self;
        let faults = config.datagrams.filter(|_| matches!(client, Client::Honest(_)));
        let far = faults.map(|faults| Box::new(Far::new(link, config.wire, faults, *now, chance)));
        self.links.push(Link {
            client,
            reading: Reading::Eager,
            up: Stream::new(link, End::Server, self.config.wire),
            down: Stream::new(link, End::Client, self.config.wire),
            server: Some(ServerEnd::new(link, place, connection, self.now)),
            far,
            is_tampered: false,
            reproach: None,
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
        let Pair { now, agenda, chance, links, .. } = self;
        let (now, link_id, link) = (*now, link, &mut links[link]);
        match &mut link.client {
            Client::Raw(raw) => {
                let taken = link.up.write(&raw.unsent, now, agenda, chance);
                raw.unsent.drain(..taken);
                if raw.ends && raw.unsent.is_empty() {
                    link.up.finish(now, agenda);
                }
            }
            Client::Honest(honest) => {
                loop {
                    let output = honest.connection.output(now);
                    let taken = match &mut link.far {
                        _ if output.is_empty() => 0,
                        Some(far) => far.client_says(output, now, agenda, chance),
                        None => link.up.write(output, now, agenda, chance),
                    };
                    if taken == 0 {
                        break;
                    }
                    honest.with(now, |connection, mut events| connection.consumed(now, taken, &mut events));
                }
                let mut own = None;
                if let Some(far) = &mut link.far {
                    if honest.connection.phase() == Phase::Closed {
                        far.client_leaves(now, agenda, chance);
                        link.down.deafen();
                    } else if far.client_turns(now, agenda, chance).is_err() {
                        if link.down.end_here(now) {
                            agenda.schedule(now, Happening::Arrive(link_id, End::Client));
                        }
                    } else {
                        let bound = far.client.bound();
                        honest.with(now, |connection, mut events| connection.restrict(now, bound, &mut events));
                        own = Some(far.client.next_timeout()).filter(|at| *at < Time::NEVER);
                    }
                } else if honest.connection.phase() == Phase::Closed {
                    link.up.finish(now, agenda);
                    link.down.deafen();
                }
                let wanted = honest.connection.next_timeout(now).into_iter().chain(own).min();
                let wanted = wanted.map(|at| at.max(Time(now.0 + 1)));
                if let Some(at) = wanted.filter(|at| *at < honest.timer) {
                    honest.timer = at;
                    agenda.schedule(at, Happening::Timer(link_id));
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

    fn reads_slowly(&mut self, link: usize) {
        let Reading::Slow(most, every) = self.links[link].reading else { return };
        self.client_reads(link, most);
        if !self.links[link].down.is_over(self.now) {
            self.agenda.schedule(self.now + every, Happening::Read(link));
        }
    }

    fn client_reads(&mut self, link: usize, most: usize) {
        let Pair { now, agenda, links, .. } = self;
        let (now, link_id, link) = (*now, link, &mut links[link]);
        let error = match &mut link.client {
            Client::Raw(raw) => {
                raw.read(&mut link.down, most, now, agenda);
                None
            }
            Client::Honest(honest) => honest.read(&mut link.down, most, now, agenda),
        };
        if let Some(error) = error {
            let is_old = self.config.newest < Version::NEWEST;
            let is_fair = is_no_reproach(&error) || (is_old && error.refuses_version());
            if !link.is_tampered && !is_fair {
                self.violation.get_or_insert_with(|| format!("an honest client (connection {link_id}): {error}"));
            }
            link.error = Some(error);
        }
        self.pump(link_id);
    }

    // ---- datagrams ----

    fn far_timer(&mut self, link: usize) {
        let Pair { now, agenda, chance, links, .. } = self;
        if let Some(far) = &mut links[link].far {
            far.on_timer(*now, agenda, chance);
        }
    }

    /// Takes the datagrams that have come to the server.
    fn far_arrives(&mut self, link: usize) {
        let (now, agenda) = (self.now, &mut self.agenda);
        let Some(far) = &mut self.links[link].far else { return };
        for mut datagram in far.land_at_server(now, agenda) {
            let Pair { agenda, chance, links, config, .. } = self;
            let Link { far: Some(far), up, server, .. } = &mut links[link] else { return };
            let may = server.as_ref().is_some_and(|end| end.may_take(config));
            let came = far.server_takes(&mut datagram, (server.is_some(), may), now, agenda, chance);
            match came {
                Came::Nothing => {}
                Came::Frame(frame) => up.deliver(&frame),
                Came::Gone => _ = up.end_here(now),
            }
            self.with_server(link, |end, around| end.serve(around));
        }
    }

    /// Takes the datagrams that have come to the client.
    fn far_returns(&mut self, link: usize) {
        let (now, agenda) = (self.now, &mut self.agenda);
        let Link { far: Some(far), down, .. } = &mut self.links[link] else { return };
        let (frames, done) = far.client_hears(now, agenda);
        down.deliver(&frames);
        if done.is_err() {
            down.end_here(now);
        }
    }

    // ---- the wire ----

    pub(super) fn arrives(&mut self, link: usize, to: End) {
        let (now, agenda) = (self.now, &mut self.agenda);
        match to {
            End::Server => {
                self.links[link].up.land(now, agenda);
                self.far_arrives(link);
                self.with_server(link, |end, around| end.serve(around));
            }
            End::Client => {
                self.links[link].down.land(now, agenda);
                self.far_returns(link);
                if self.links[link].reading == Reading::Eager {
                    self.client_reads(link, usize::MAX);
                }
            }
        }
    }

    // ---- the server's end ----

    /// Lets `act` look at the server's end of a connection, if it is there, and closes it if that is its fate.
    pub(super) fn with_server(&mut self, link: usize, act: impl FnOnce(&mut ServerEnd, &mut Around<'_>) -> Fate) {
        let Pair { now, agenda, chance, core, links, config, sums, .. } = self;
        let Link { up, down, far, server, .. } = &mut links[link];
        let Some(end) = server else { return };
        let before = Sums::of(end);
        let far = far.as_deref_mut();
        let fate = act(end, &mut Around { now: *now, core, up, down, far, agenda, chance, config });
        sums.change(&before, &Sums::of(end));
        self.check_server(link);
        if fate == Fate::Goes {
            self.goes(link);
        }
    }

    /// The server gives a connection's place back.
    pub(super) fn goes(&mut self, link: usize) {
        let (now, agenda) = (self.now, &mut self.agenda);
        let Link { up, down, far, server, reproach, .. } = &mut self.links[link];
        let Some(mut end) = server.take() else { return };
        let before = Sums::of(&end);
        end.abandon(now, &mut self.core);
        self.sums.change(&before, &Sums::of(&end));
        self.core.places[end.place as usize] = None;
        *reproach = end.reproach;
        match far {
            Some(far) => far.server_ends(now, agenda, &mut self.chance),
            None => down.finish(now, agenda),
        }
        up.deafen();
        self.open.retain(|open| *open != link);
    }

    fn done(&mut self, worker: usize) {
        if let Some(running) = self.core.workers[worker].take() {
            let (job, work) = (running.job, running.work);
            self.with_server(job.link, |end, around| end.done(job, &work, around));
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
        self.agenda.schedule(self.core.pulse.due().max(Time(self.now.0 + 1)), Happening::Tick);
    }

    fn sweep(&mut self) {
        for link in self.open.clone() {
            self.with_server(link, |end, around| end.sweep(around));
        }
        self.check_sums();
        self.agenda.schedule(self.now + self.config.sweep, Happening::Sweep);
    }

    /// A server that stops sends everybody away when nothing is owed any more, or its patience is over.
    fn stop_if_drained(&mut self) {
        let Some(since) = self.core.stopping_since else { return };
        let owes = |link: &usize| self.links[*link].server.as_ref().is_some_and(ServerEnd::owes);
        let is_patient = self.now.since(since) <= self.config.drain;
        if self.has_stopped || (is_patient && self.open.iter().any(owes)) {
            return;
        }
        self.has_stopped = true;
        for link in self.open.clone() {
            self.with_server(link, |end, around| {
                end.end(ErrorCode::ShuttingDown, "this server has stopped", around);
                // Nobody lingers any more: what it takes at once it takes.
                let _ = end.serve(around);
                Fate::Goes
            });
        }
    }
}
