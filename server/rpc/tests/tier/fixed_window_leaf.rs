//! A leaf with a fixed window of credits, which can stall.
//!
//! Contains no controller.

use leeward_core::server::Feedback;
use leeward_core::units::Credits;
use leeward_rpc::wire::{
    Answer, Credit, Decoder, Encoder, Frame, Nanos32, PayloadLimit, Pong, Regime, RequestId, Response, Side, Timestamp,
    Version, Welcome,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A leaf that gives each connection this window, and responds at once unless it is stalled.
pub(crate) struct FixedWindowLeaf {
    pub(crate) address: SocketAddr,
    pub(crate) window: Arc<AtomicU32>,
    /// Whether calls wait for their responses. Pings do not.
    pub(crate) is_stalled: Arc<AtomicBool>,
    /// Most calls of a connection that are answered at once.
    pub(crate) batch: Arc<AtomicUsize>,
    /// All demands that clients have reported, in order.
    pub(crate) demands: Arc<Mutex<Vec<u32>>>,
    ends: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

struct Peer {
    socket: TcpStream,
    decoder: Decoder,
    /// Window as last reported.
    window: u32,
    unanswered: Vec<(RequestId, Timestamp, Vec<u8>)>,
}

impl FixedWindowLeaf {
    pub(crate) fn start(window: u32) -> FixedWindowLeaf {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, ends) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        listener.set_nonblocking(true).unwrap();
        let (window, is_stalled) = (Arc::new(AtomicU32::new(window)), Arc::new(AtomicBool::new(false)));
        let (batch, demands) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::default());
        let (most, reports) = (Arc::clone(&batch), Arc::clone(&demands));
        let (stopped, given, stalled) = (Arc::clone(&ends), Arc::clone(&window), Arc::clone(&is_stalled));
        let thread = thread::spawn(move || {
            let mut peers = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let (window, is_stalled) = (given.load(Ordering::SeqCst), stalled.load(Ordering::SeqCst));
                let batch = if is_stalled { 0 } else { most.load(Ordering::SeqCst) };
                if let Ok((socket, _)) = listener.accept() {
                    socket.set_nonblocking(true).unwrap();
                    let decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
                    peers.push(Peer { socket, decoder, window, unanswered: Vec::new() });
                }
                peers.retain_mut(|peer: &mut Peer| peer.serve(window, batch, &reports));
                // Wait for clients and calls.
                thread::sleep(Duration::from_micros(200));
            }
        });
        FixedWindowLeaf { address, window, is_stalled, batch, demands, ends, thread }
    }

    pub(crate) fn stop(self) {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

impl Peer {
    /// Answers the input, so many calls at most. Returns whether the peer is still connected.
    fn serve(&mut self, window: u32, batch: usize, demands: &Mutex<Vec<u32>>) -> bool {
        let feedback = Feedback { window: Credits(window), ..Feedback::NONE };
        let mut out = Vec::new();
        let mut send = |frame: &Frame<'_>| {
            Encoder::new(PayloadLimit::DEFAULT).with_version(Version::NEWEST).append(frame, &mut out).unwrap()
        };
        if self.window != window {
            self.window = window;
            send(&Frame::Credit(Credit { feedback }));
        }
        loop {
            match self.socket.read(self.decoder.spare()) {
                Ok(0) => return false,
                Ok(count) => self.decoder.advance(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
            while let Some(frame) = self.decoder.next_frame().unwrap() {
                match frame {
                    Frame::Register(register) => {
                        send(&Frame::Welcome(Welcome {
                            timestamp: register.timestamp,
                            feedback,
                            payload_max: PayloadLimit::DEFAULT,
                            regime: Regime::Credits,
                        }));
                    }
                    Frame::Call(call) => self.unanswered.push((call.request, call.timestamp, call.payload.to_vec())),
                    Frame::Demand(demand) => demands.lock().unwrap().push(demand.demand),
                    Frame::Ping(ping) => {
                        send(&Frame::Pong(Pong { timestamp: ping.timestamp }));
                    }
                    _ => {}
                }
            }
        }
        for (request, timestamp, payload) in self.unanswered.drain(..batch.min(self.unanswered.len())) {
            let answer = Answer { request, timestamp, feedback, sojourn: Nanos32::default() };
            send(&Frame::Response(Response { answer, payload: &payload }));
        }
        self.socket.write_all(&out).is_ok()
    }
}
