//! A worker thread: the first one accepts connections, all serve them, and wait for their ends.
//! Does not contain requests.

use crate::admission::{Admission, TICK_INTERVAL};
use crate::backend::health;
use crate::connection::Client;
use crate::connections::{Connections, Counted, Phase};
use crate::http::head::Peer;
use crate::transport::accept::Acceptor;
use crate::transport::listener::{HandedOver, Listener};
use crate::transport::messages::tell;
use crate::transport::socket::Socket;
use crate::transport::status::TransportStatus;
use crate::worker::Worker;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

/// Pause of the listener when there is no descriptor for another connection, and longest one when
/// there are as many connections as there may be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Shortest interval between two messages that there are as many connections as there may be.
const FULL_INTERVAL: Duration = Duration::from_secs(60);
/// Connections that are accepted at the end, at most: those in the socket's queue.
const LAST_ACCEPTED: usize = 4_096;

/// Hands connections over to another thread.
pub(crate) type Sender = mpsc::UnboundedSender<(HandedOver, Counted)>;

/// What a worker thread needs.
pub(crate) struct ThreadContext {
    pub(crate) index: usize,
    pub(crate) worker: Arc<Worker>,
    pub(crate) acceptor: Arc<Acceptor>,
    pub(crate) transport: TransportStatus,
    pub(crate) connections: Arc<Connections>,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// The event loop of a thread, which takes descriptors: it is made before the thread starts, so
/// that no proxy runs without one of its threads.
pub(crate) fn event_loop() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

impl ThreadContext {
    /// Runs the thread that accepts connections, that ticks, and that watches the backends.
    pub(crate) fn run_first(
        self,
        event_loop: Runtime,
        listener: Listener,
        others: Vec<Sender>,
        loads: watch::Receiver<u64>,
    ) {
        block_on(event_loop, async {
            let admission = self.worker.admission.clone();
            tokio::spawn(async move {
                let mut ticks = interval(TICK_INTERVAL);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    admission.tick();
                }
            });
            tokio::spawn(report(self.transport.clone(), self.worker.admission.clone()));
            tokio::spawn(health::watch_all(Arc::clone(&self.worker), loads));
            self.close_old_connections();
            let (mut phase, mut was_full) = (self.phase.clone(), None);
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = Phase::HandedOver.reached(&mut phase) => break,
                };
                match accepted {
                    Ok((socket, peer)) => self.hand_over(socket, peer, &others),
                    // A client that has gone, or no descriptor.
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                }
                self.wait_for_room(&mut was_full).await;
            }
            let is_handed_over = *phase.borrow() == Phase::HandedOver;
            self.accept_last(listener, is_handed_over, &others);
            drop(others);
            self.drain().await;
        });
    }

    /// Waits until there may be another connection; `was_full`: when the operator was told last.
    async fn wait_for_room(&self, was_full: &mut Option<Instant>) {
        if self.connections.is_full() && was_full.is_none_or(|told| told.elapsed() >= FULL_INTERVAL) {
            *was_full = Some(Instant::now());
            let most = self.connections.most();
            tell(&format_args!("all {most} `connections` are open: idle ones end, and new ones wait for that"));
        }
        while self.connections.is_full() && *self.phase.borrow() == Phase::Serving {
            self.connections.make_room();
            // A client may take its time to end its connection; then another idle one goes, too.
            let _ = timeout(ACCEPT_PAUSE, self.connections.changed()).await;
        }
    }

    /// Accepts the connections in the socket's queue, which its closing would reset.
    fn accept_last(&self, listener: Listener, is_handed_over: bool, others: &[Sender]) {
        let Ok(mut listener) = listener.detach() else { return };
        if is_handed_over {
            listener.keep_file();
        }
        for _ in 0..LAST_ACCEPTED {
            let Ok((socket, peer)) = listener.accept_now() else { return };
            if let Ok(socket) = socket.attach() {
                self.hand_over(socket, peer, others);
            }
        }
    }

    /// Gives a connection to the thread that has the fewest.
    fn hand_over(&self, socket: Socket, peer: Option<SocketAddr>, others: &[Sender]) {
        let index = self.connections.least_loaded();
        let counted = Counted::new(&self.connections, index);
        match others.get(index.wrapping_sub(1)) {
            None => self.serve(socket, peer, counted),
            Some(other) => {
                if let Ok(socket) = socket.detach() {
                    let _ = other.send(((socket, peer), counted));
                }
            }
        }
    }

    /// Runs a thread that serves connections which the first one accepts.
    pub(crate) fn run_other(self, event_loop: Runtime, mut clients: mpsc::UnboundedReceiver<(HandedOver, Counted)>) {
        block_on(event_loop, async {
            self.close_old_connections();
            while let Some(((socket, peer), counted)) = clients.recv().await {
                if let Ok(socket) = socket.attach() {
                    self.serve(socket, peer, counted);
                }
            }
            self.drain().await;
        });
    }

    /// Closes connections to backends that have waited for long, from now on.
    fn close_old_connections(&self) {
        let worker = Arc::clone(&self.worker);
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                worker.pools().iter().for_each(|pool| pool.close_old());
            }
        });
    }

    /// Serves a client's connection until it ends.
    fn serve(&self, socket: Socket, address: Option<SocketAddr>, counted: Counted) {
        let client = Client {
            worker: Arc::clone(&self.worker),
            peer: Peer::new(address.map(|address| address.ip())),
            acceptor: Arc::clone(&self.acceptor),
            phase: self.phase.clone(),
            connections: Arc::clone(&self.connections),
        };
        tokio::spawn(async move {
            let _counted = counted;
            client.serve(socket, address).await;
        });
    }

    /// Waits for this thread's connections; the first thread, which ticks, for all.
    async fn drain(&self) {
        let configuration = self.worker.configuration();
        let end = Instant::now() + configuration.settings.timeouts.stop;
        let open = || match self.index {
            0 => self.connections.total(),
            index => self.connections.of_thread(index),
        };
        let wait = async {
            while open() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        if let (Err(_), Some(log)) = (timeout_at(end, wait).await, &configuration.log) {
            log.record_end();
        }
    }
}

fn block_on(event_loop: Runtime, run: impl Future<Output = ()>) {
    event_loop.block_on(run);
    event_loop.shutdown_background();
}

/// Tells the operator about certificates and backends, for as long as the proxy runs.
async fn report(transport: TransportStatus, admission: Admission) {
    loop {
        admission.report_backends();
        for message in transport.take_messages() {
            tell(&message);
        }
        sleep(Duration::from_secs(1)).await;
    }
}
