//! The echo tier on Tokio, as one would write it there: a task per request, which asks every leaf over links that all
//! tasks share, waits for all answers, and says how many leaves it asked, how many sent the argument back, and the argument:
//! what `leeward serve --service tier` says. It speaks Leeward's protocol, so that load and leaves are the same for all
//! contenders.
//!
//! Never here: admission control, which none of the contenders has in this comparison.

mod codec;
mod link;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use leeward_core::server::Feedback;
use leeward_core::units::Credits;
use leeward_rpc::wire::{Answer, Call, Decoder, Frame, Nanos32, PayloadLimit, Pong, Regime, Response, Side, Welcome};
use link::Link;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// Answers of a connection that wait to be written, at most.
const QUEUE: usize = 1_024;

/// How Tokio has its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// A runtime whose workers steal from each other, as `#[tokio::main]` makes it.
    Shared(usize),
    /// A runtime of one thread for each; connections are dealt out in turn.
    Apart(usize),
}

/// Serves for ever.
///
/// # Errors
/// A runtime can't be built, or a leaf is not there.
pub(crate) fn serve(listener: TcpListener, leaves: &[SocketAddr], threads: Threads) -> Result<()> {
    ensure!(!leaves.is_empty(), "a tier needs leaves");
    let (count, workers) = match threads {
        Threads::Shared(workers) => (1, workers),
        Threads::Apart(count) => (count, 1),
    };
    let mut ways = Vec::new();
    for _ in 0..count {
        let runtime = match threads {
            Threads::Shared(_) => {
                tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
            }
            Threads::Apart(_) => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        };
        ways.push(start(runtime.context("tokio")?, leaves.to_vec()));
    }
    for (at, stream) in listener.incoming().enumerate() {
        let stream = stream.context("accepting")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        ways[at % ways.len()].blocking_send(stream).context("a runtime has ended")?;
    }
    Ok(())
}

/// Runs a runtime on a thread of its own; connections come through what is returned.
fn start(runtime: Runtime, leaves: Vec<SocketAddr>) -> mpsc::Sender<std::net::TcpStream> {
    let (send, mut receive) = mpsc::channel(64);
    std::thread::spawn(move || {
        let outcome = runtime.block_on(async move {
            let mut links = Vec::new();
            for leaf in leaves {
                links.push(Link::connect(leaf).await?);
            }
            let links: Arc<[Link]> = links.into();
            while let Some(stream) = receive.recv().await {
                let (reader, writer) = TcpStream::from_std(stream)?.into_split();
                let (answers, answered) = mpsc::channel(QUEUE);
                tokio::spawn(write(writer, answered));
                tokio::spawn(read(reader, answers, Arc::clone(&links)));
            }
            anyhow::Ok(())
        });
        if let Err(error) = outcome {
            eprintln!("error: {error:#}");
            std::process::exit(1);
        }
    });
    send
}

async fn write(mut writer: OwnedWriteHalf, mut answered: mpsc::Receiver<Vec<u8>>) {
    let (mut answers, mut out) = (Vec::new(), Vec::new());
    while answered.recv_many(&mut answers, 64).await > 0 {
        out.clear();
        answers.drain(..).for_each(|answer: Vec<u8>| out.extend_from_slice(&answer));
        if writer.write_all(&out).await.is_err() {
            return;
        }
    }
}

async fn read(mut reader: OwnedReadHalf, answers: mpsc::Sender<Vec<u8>>, links: Arc<[Link]>) {
    let mut decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
    while codec::fill(&mut reader, &mut decoder).await.is_some() {
        loop {
            let said = match decoder.next_frame() {
                Ok(Some(Frame::Call(call))) => {
                    let (call, payload) = (Call { payload: &[], ..call }, Arc::from(call.payload));
                    tokio::spawn(handle(call, payload, answers.clone(), Arc::clone(&links)));
                    continue;
                }
                Ok(Some(Frame::Register(register))) => codec::encoded(&Frame::Welcome(Welcome {
                    timestamp: register.timestamp,
                    feedback: open(),
                    payload_max: PayloadLimit::DEFAULT,
                    regime: Regime::Open,
                })),
                Ok(Some(Frame::Ping(ping))) => codec::encoded(&Frame::Pong(Pong { timestamp: ping.timestamp })),
                Ok(Some(_)) => continue,
                Ok(None) => break,
                Err(_) => return,
            };
            if answers.send(said).await.is_err() {
                return;
            }
        }
    }
}

/// A window that does not bind.
fn open() -> Feedback {
    Feedback { window: Credits(u32::MAX), ..Feedback::NONE }
}

async fn handle(call: Call<'static>, payload: Arc<[u8]>, answers: mpsc::Sender<Vec<u8>>, links: Arc<[Link]>) {
    let mut asked = Vec::with_capacity(links.len());
    for link in &*links {
        asked.push(link.ask(Arc::clone(&payload)).await);
    }
    let mut right: u8 = 0;
    for answer in asked {
        right += u8::from(answer.await.is_ok_and(|bytes| bytes == *payload));
    }
    let mut result = Vec::with_capacity(2 + payload.len());
    // A comparison has few leaves.
    result.extend_from_slice(&[links.len() as u8, right]);
    result.extend_from_slice(&payload);
    let answer =
        Answer { request: call.request, timestamp: call.timestamp, feedback: open(), sojourn: Nanos32::default() };
    let frame = Frame::Response(Response { answer, payload: &result });
    // The client may have gone.
    let _ = answers.send(codec::encoded(&frame)).await;
}
