//! A small server for the tests: a thread per connection, real sockets, configurable behaviour.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leeward_core::server::Feedback;
use leeward_core::units::Credits;
use leeward_rpc::wire::{
    Answer, Call, Decoder, Encoder, Failure, FailureCode, Frame, Message, Nanos32, PayloadLimit, Regime, RejectCode,
    Rejection, Response, Side, Version, Welcome,
};

/// Behaviour of the server.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// Rejects every n-th call; 0 rejects none.
    pub(crate) drop_every: u64,
    /// Fails every n-th call; 0 fails none.
    pub(crate) fail_every: u64,
    /// Stalls once for this time, at this call.
    pub(crate) stall: Option<(u64, Duration)>,
    /// Closes all connections at this call.
    pub(crate) die_after: Option<u64>,
    /// Never answers.
    pub(crate) mute: bool,
    /// Meaning of windows, and their size.
    pub(crate) regime: Regime,
    pub(crate) window: u32,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            drop_every: 0,
            fail_every: 0,
            stall: None,
            die_after: None,
            mute: false,
            regime: Regime::Open,
            window: 1000,
        }
    }
}

/// The server. Its threads end with their connections.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    behaviour: Behaviour,
    calls: AtomicU64,
    answers: AtomicU64,
    service_ns: AtomicU64,
    stalled_until: Mutex<Option<Instant>>,
    dead: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Server {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            behaviour,
            calls: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            service_ns: AtomicU64::new(0),
            stalled_until: Mutex::new(None),
            dead: AtomicBool::new(false),
            sockets: Mutex::new(Vec::new()),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                shared.sockets.lock().unwrap().push(socket.try_clone().unwrap());
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&state, socket));
            }
        });
        Server { address, state }
    }

    /// Number of accepted connections.
    #[allow(dead_code, reason = "not every test that uses this server asks")]
    pub(crate) fn connections(&self) -> usize {
        self.state.sockets.lock().unwrap().len()
    }

    /// Number of received calls.
    pub(crate) fn calls(&self) -> u64 {
        self.state.calls.load(Ordering::SeqCst)
    }

    /// Sum of the requested service times, in nanoseconds.
    pub(crate) fn service_ns(&self) -> u64 {
        self.state.service_ns.load(Ordering::SeqCst)
    }
}

fn serve(state: &State, mut socket: TcpStream) {
    let mut decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
    let encoder = Encoder::new(PayloadLimit::DEFAULT).with_version(Version::NEWEST);
    let mut out = Vec::new();
    loop {
        match socket.read(decoder.spare()) {
            Ok(0) | Err(_) => return,
            Ok(count) => decoder.advance(count),
        }
        while let Some(frame) = decoder.next_frame().expect("the generator speaks the protocol") {
            let feedback = Feedback { window: Credits(state.behaviour.window), ..Feedback::NONE };
            match frame {
                Frame::Register(register) => {
                    let welcome = Welcome {
                        timestamp: register.timestamp,
                        feedback,
                        payload_max: PayloadLimit::DEFAULT,
                        regime: state.behaviour.regime,
                    };
                    encoder.append(&Frame::Welcome(welcome), &mut out).unwrap();
                }
                Frame::Call(call) => {
                    if let Some(frame) = answer(state, &call, feedback) {
                        encoder.append(&frame, &mut out).unwrap();
                    }
                }
                _ => {}
            }
        }
        if state.dead.load(Ordering::SeqCst) || socket.write_all(&out).is_err() {
            return;
        }
        out.clear();
    }
}

fn answer(state: &State, call: &Call<'_>, feedback: Feedback) -> Option<Frame<'static>> {
    let behaviour = &state.behaviour;
    let number = state.calls.fetch_add(1, Ordering::SeqCst) + 1;
    let service = u64::from_le_bytes(*call.payload.first_chunk().expect("eight bytes of service time"));
    state.service_ns.fetch_add(service, Ordering::SeqCst);
    if behaviour.die_after == Some(number) {
        state.dead.store(true, Ordering::SeqCst);
        for socket in state.sockets.lock().unwrap().iter() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
    let until = {
        let mut stalled = state.stalled_until.lock().unwrap();
        if let Some((_, span)) = behaviour.stall.filter(|(at, _)| *at == number) {
            *stalled = Some(Instant::now() + span);
        }
        *stalled
    };
    // All connections' threads wait: the whole server stalls.
    if let Some(left) = until.and_then(|until| until.checked_duration_since(Instant::now())) {
        std::thread::sleep(left);
    }
    if behaviour.mute || state.dead.load(Ordering::SeqCst) {
        return None;
    }
    let answer = Answer { request: call.request, timestamp: call.timestamp, feedback, sojourn: Nanos32(1_000) };
    let number_answered = state.answers.fetch_add(1, Ordering::SeqCst) + 1;
    let is_due = |every: u64| every > 0 && number_answered.is_multiple_of(every);
    Some(if is_due(behaviour.drop_every) {
        Frame::Drop(Rejection {
            answer,
            reason: RejectCode::Delay,
            message: Message::default(),
            retry_after: Nanos32(0),
        })
    } else if is_due(behaviour.fail_every) {
        Frame::Failure(Failure { answer, code: FailureCode::Failed, message: Message::new("as asked") })
    } else {
        Frame::Response(Response { answer, payload: b"done" })
    })
}
