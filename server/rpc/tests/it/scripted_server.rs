//! A server with scripted messages, on a real socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use leeward_core::server::Feedback;
use leeward_core::units::Credits;
use leeward_rpc::wire::{
    Answer, Budget, Decoder, Encoder, Failure, FailureCode, Frame, Message, Nanos32, PayloadLimit, Pong, Regime,
    RejectCode, Rejection, RequestId, Response, Side, Timestamp, Version, Welcome,
};

/// Message of a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClientMessage {
    Register(Timestamp),
    Call(ReceivedCall),
    Deregister,
    Other,
}

/// A call that waits for its response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReceivedCall {
    pub(crate) request: RequestId,
    pub(crate) timestamp: Timestamp,
    pub(crate) payload: Vec<u8>,
    pub(crate) budget: Budget,
}

/// The server's end of one connection.
pub(crate) struct ServerPeer {
    stream: TcpStream,
    decoder: Decoder,
    /// Index of the connection at its server.
    pub(crate) number: usize,
    stopped: Arc<AtomicBool>,
}

impl ServerPeer {
    /// The next message; answers pings. `None` at the end of the stream, or of the server.
    pub(crate) fn receive(&mut self) -> Option<ClientMessage> {
        loop {
            let ping = match self.decoder.next_frame().expect("the client speaks the protocol") {
                Some(Frame::Register(register)) => return Some(ClientMessage::Register(register.timestamp)),
                Some(Frame::Call(call)) => {
                    let payload = call.payload.to_vec();
                    let (request, timestamp, budget) = (call.request, call.timestamp, call.budget);
                    return Some(ClientMessage::Call(ReceivedCall { request, timestamp, payload, budget }));
                }
                Some(Frame::Deregister) => return Some(ClientMessage::Deregister),
                Some(Frame::Ping(ping)) => Some(ping.timestamp),
                Some(_) => return Some(ClientMessage::Other),
                None => None,
            };
            if let Some(timestamp) = ping {
                self.send(&Frame::Pong(Pong { timestamp }));
                continue;
            }
            match self.stream.read(self.decoder.spare()) {
                Ok(0) => return None,
                Ok(count) => self.decoder.advance(count),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if self.stopped.load(Ordering::Relaxed) {
                        return None;
                    }
                }
                Err(_) => return None,
            }
        }
    }

    /// The next call; `None` at the end.
    pub(crate) fn call(&mut self) -> Option<ReceivedCall> {
        loop {
            if let ClientMessage::Call(call) = self.receive()? {
                return Some(call);
            }
        }
    }

    pub(crate) fn send(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        Encoder::new(PayloadLimit::DEFAULT).with_version(Version::NEWEST).append(frame, &mut bytes).unwrap();
        self.send_bytes(&bytes);
    }

    /// Sends any bytes; a closed client is no failure of the test.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Reads and sends nothing, and keeps the connection for as long as the server lives.
    pub(crate) fn freeze(&self) {
        while !self.stopped.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the registration and welcomes it.
    pub(crate) fn welcome(&mut self, window: u32, regime: Regime) -> Option<()> {
        let ClientMessage::Register(timestamp) = self.receive()? else { panic!("a registration comes first") };
        self.send(&Frame::Welcome(Welcome {
            timestamp,
            feedback: feedback(window),
            payload_max: PayloadLimit::new(64 * 1024),
            regime,
        }));
        Some(())
    }

    pub(crate) fn respond(&mut self, call: &ReceivedCall, window: u32, payload: &[u8]) {
        self.send(&Frame::Response(Response { answer: answer(call, window), payload }));
    }

    pub(crate) fn reject(&mut self, call: &ReceivedCall, window: u32, reason: RejectCode, retry_after: u32) {
        let message = Message::default();
        let dropped = Rejection { answer: answer(call, window), reason, message, retry_after: Nanos32(retry_after) };
        self.send(&Frame::Drop(dropped));
    }

    #[allow(dead_code)] // not every test file uses it
    pub(crate) fn fail(&mut self, call: &ReceivedCall, window: u32, message: &str) {
        let (answer, code) = (answer(call, window), FailureCode::Failed);
        self.send(&Frame::Failure(Failure { answer, code, message: Message::new(message) }));
    }
}

fn feedback(window: u32) -> Feedback {
    Feedback { window: Credits(window), ..Feedback::NONE }
}

fn answer(call: &ReceivedCall, window: u32) -> Answer {
    let (request, timestamp) = (call.request, call.timestamp);
    Answer { request, timestamp, feedback: feedback(window), sojourn: Nanos32(5) }
}

/// A listener whose connections follow a script, each in its own thread. Dropping it stops it.
pub(crate) struct ScriptedServer {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ScriptedServer {
    pub(crate) fn start(script: impl Fn(ServerPeer) + Send + Sync + 'static) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stopped, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stop, count, script) = (Arc::clone(&stopped), Arc::clone(&accepted), Arc::new(script));
        let thread = thread::spawn(move || {
            let mut peers = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    // A blocking `accept` would not see the stop.
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                let decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
                let number = count.fetch_add(1, Ordering::Relaxed);
                let (script, stopped) = (Arc::clone(&script), Arc::clone(&stop));
                peers.push(thread::spawn(move || script(ServerPeer { stream, decoder, number, stopped })));
            }
            for peer in peers {
                peer.join().expect("the script has failed");
            }
        });
        ScriptedServer { address, stopped, accepted, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Connections so far.
    #[allow(dead_code)] // not every test file uses it
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let joined = self.thread.take().map(thread::JoinHandle::join);
        if !thread::panicking() {
            assert!(!matches!(joined, Some(Err(_))), "a script has failed");
        }
    }
}
