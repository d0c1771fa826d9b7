//! Connections to backends, followed from list to list.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use leeward_sockdiag::{TcpSocket, TcpState};

use super::{Asker, TurnTracker, UsualAnswer};

/// Most connections that are followed; of others, only what one dump tells counts.
const MAX_FOLLOWED: usize = 200_000;

/// Follows which backends owe answers.
#[derive(Debug, Default)]
pub(crate) struct BackendTurns {
    turns: HashMap<u32, TurnTracker>,
    usual_answers: HashMap<SocketAddr, UsualAnswer>,
}

impl BackendTurns {
    /// Takes the connections of a list, by inode; returns those on which an answer is owed.
    pub(crate) fn observe(&mut self, outgoing: &HashMap<u32, TcpSocket>) -> HashSet<u32> {
        self.turns.retain(|inode, _| outgoing.contains_key(inode));
        let mut awaiting = HashSet::new();
        let mut peers = HashSet::new();
        for (inode, socket) in outgoing {
            peers.insert(socket.peer);
            let is_followed = self.turns.len() < MAX_FOLLOWED || self.turns.contains_key(inode);
            let is_open = if socket.state == TcpState::SynSent || !is_followed {
                socket.awaits_answer()
            } else {
                let usual = self.usual_answers.entry(socket.peer).or_default();
                self.turns.entry(*inode).or_default().observe(socket, Asker::Program, usual)
            };
            if is_open {
                awaiting.insert(*inode);
            }
        }
        self.usual_answers.retain(|peer, _| peers.contains(peer));
        self.usual_answers.values_mut().for_each(UsualAnswer::end_poll);
        awaiting
    }
}
