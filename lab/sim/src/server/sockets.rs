//! Sockets of the server: a core reads all messages of a socket at once, and outgoing messages wait
//! briefly for others.
//!
//! So a message is cheaper the deeper the queues are. Does not contain the cost of a single
//! message, or the choice of responses written immediately (`pending_responses`).

use super::{Activity, MAX_SEND_BATCH, Server};
use crate::config::SocketCosts;
use crate::event::Packet;
use crate::requests::RequestId;
use crate::server::OutgoingMessage;
use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;

/// State of the sockets, by session. It grows with a session's first message.
pub(super) struct SocketState {
    costs: SocketCosts,
    sockets: Vec<Socket>,
}

#[derive(Default)]
struct Socket {
    /// Whether the socket's first unread message is in a packet queue.
    is_queued: bool,
    /// Unread messages after that one.
    unread: VecDeque<(Time, Packet)>,
}

impl SocketState {
    pub(super) fn new(costs: SocketCosts) -> Self {
        SocketState { costs, sockets: Vec::new() }
    }

    fn socket(&mut self, session: u32) -> &mut Socket {
        let index = session as usize;
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, Socket::default);
        }
        &mut self.sockets[index]
    }
}

impl Server {
    /// Queues a message that has reached its session's core.
    pub(crate) fn enqueue_packet(&mut self, home: usize, now: Time, packet: Packet) {
        if let Some(sockets) = &mut self.sockets {
            let socket = sockets.socket(packet.session());
            if socket.is_queued {
                socket.unread.push_back((now, packet));
                return;
            }
            socket.is_queued = true;
        }
        self.queues.push_packet(home, now, packet);
    }

    /// Receives a message taken from a packet queue, with the other messages of its socket.
    pub(super) fn receive(&mut self, core: usize, packet: Packet) -> Activity {
        if let Some(sockets) = &mut self.sockets {
            let socket = sockets.socket(packet.session());
            let more = socket.unread.len().min(SocketCosts::READ_QUANTUM - 1);
            self.cores[core].read_packets.extend(socket.unread.drain(..more).map(|(_, packet)| packet));
            // A session with more messages than the quantum queues again, by the age of its next
            // message.
            let next = socket.unread.pop_front();
            socket.is_queued = next.is_some();
            if let Some((since, packet)) = next {
                self.queues.put_back_packet(core, since, packet);
            }
        }
        Activity::Receiving(packet)
    }

    /// CPU time of receiving a message that was read together with another.
    pub(super) fn cost_of_batched_read(&self) -> Nanos {
        self.sockets.as_ref().map_or(self.costs.receive, |sockets| sockets.costs.receive)
    }

    /// Number of outgoing messages that `core` sends now. With sockets they are held for others
    /// while tasks wait.
    pub(super) fn sendable(&mut self, core: usize, now: Time) -> usize {
        let has_tasks = self.queues.has_tasks();
        let Server { cores, sockets, batch, .. } = self;
        let core = &mut cores[core];
        let waiting = core.outgoing.len().min(MAX_SEND_BATCH);
        if sockets.is_none() {
            return waiting.min(*batch as usize);
        }
        if waiting == 0 {
            return 0;
        }
        let since = *core.held_since.get_or_insert(now);
        if has_tasks && now.since(since) < SocketCosts::HOLD {
            return 0;
        }
        core.held_since = None;
        waiting
    }

    /// Ends the hold of outgoing messages after an execution that took too long.
    pub(crate) fn expire_hold(&mut self, core: usize, service: Nanos) {
        if service >= SocketCosts::HOLD {
            self.cores[core].held_since = Some(Time::ZERO);
        }
    }

    /// CPU time of writing `messages` messages.
    pub(super) fn cost_of_writes(&self, messages: u64) -> Nanos {
        match &self.sockets {
            Some(sockets) if messages > 1 => sockets.costs.batched_write * messages,
            _ => self.costs.send * messages,
        }
    }

    /// Removes and returns the session's responses that wait on `core`; they share the current
    /// write.
    pub(crate) fn take_responses(&mut self, core: usize, session: u32) -> Vec<RequestId> {
        if self.sockets.is_none() {
            return Vec::new();
        }
        let mut taken = Vec::new();
        self.cores[core].outgoing.retain(|waiting| match waiting {
            OutgoingMessage::Response(of, request) if *of == session => {
                taken.push(*request);
                false
            }
            _ => true,
        });
        taken
    }
}
