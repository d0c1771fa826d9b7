//! Records a server's controller into a file. A thread of its own writes, so that no core waits for
//! a disk.

use leeward_core::server::ServerHalves;
use leeward_recording::{Block, End, Header, Recorder, Sink, SinkFull, record};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Maximum blocks of 64 KiB that wait for the disk, 16 MiB in all: about a second at some 500,000
/// requests per second.
const WAITING: usize = 256;

/// Result of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingSummary {
    /// The recording's end: the reason, and the number of calls.
    pub end: End,
    /// Bytes written.
    pub bytes: u64,
}

/// Recording of a server's controller. A server's builder takes it, and [`Recording::finish`] ends
/// it when the server has stopped. `leeward replay` reads the file; its format is
/// `docs/recording-format.md`.
///
/// While recording, all cores decide under one mutex ([`leeward_recording`] has the cost). If the
/// disk falls 16 MiB behind, or fails, the recording ends there and is marked as incomplete; the
/// server goes on.
///
/// Clones share the recording. It serves one server: a second server's calls would not be recorded.
#[derive(Clone)]
pub struct Recording {
    shared: Arc<Mutex<State>>,
}

struct State {
    /// `None` once a server has taken it.
    sink: Option<BlockSender>,
    recorder: Option<Recorder>,
    writer: Option<JoinHandle<io::Result<(Output, u64)>>>,
}

type Output = Box<dyn Write + Send>;

/// A file that keeps its old content until the first write, so that a server that can't start
/// destroys no recording.
struct TruncateOnWrite {
    file: File,
    /// True also for a pipe or device, which is never truncated.
    emptied: bool,
}

impl Write for TruncateOnWrite {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.emptied {
            self.file.set_len(0)?;
            self.emptied = true;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The cores' end of the queue to the writer thread.
struct BlockSender {
    full: SyncSender<Block>,
    empty: Receiver<Vec<u8>>,
}

impl Recording {
    /// Records into a file. Its old content is replaced as soon as a server starts.
    ///
    /// # Errors
    /// The file can't be written, or there is no thread.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        Recording::to(TruncateOnWrite { emptied: !file.metadata()?.is_file(), file })
    }

    /// Records into `output`, in pieces of about 64 KiB.
    ///
    /// # Errors
    /// There is no thread.
    pub fn to(output: impl Write + Send + 'static) -> io::Result<Self> {
        Recording::bounded(output, WAITING)
    }

    fn bounded(output: impl Write + Send + 'static, waiting: usize) -> io::Result<Self> {
        let (full, blocks) = sync_channel(waiting);
        let (spare, empty) = channel();
        let write = move || write(Box::new(output), &blocks, |buffer| drop(spare.send(buffer)));
        let writer = std::thread::Builder::new().name("leeward-recording".into()).spawn(write)?;
        let state = State { sink: Some(BlockSender { full, empty }), recorder: None, writer: Some(writer) };
        Ok(Recording { shared: Arc::new(Mutex::new(state)) })
    }

    /// Returns whether calls are being recorded: not before a server has started, nor after the
    /// disk fell behind.
    pub fn is_recording(&self) -> bool {
        self.state().recorder.as_ref().is_some_and(Recorder::is_recording)
    }

    /// Ends the recording and waits until it is written. `None` if there was no server to record,
    /// or the recording has ended before.
    ///
    /// # Errors
    /// The disk's error. The recording then has no end mark, and the part before the error can be
    /// replayed.
    pub fn finish(&self) -> io::Result<Option<RecordingSummary>> {
        let mut state = self.state();
        let finished = state.recorder.as_ref().map(Recorder::finish);
        let Some(writer) = state.writer.take() else { return Ok(None) };
        let Some(finished) = finished else {
            // The writer thread ends when the sink is dropped; no recorder exists.
            state.sink = None;
            drop(state);
            join(writer)?;
            return Ok(None);
        };
        drop(state);
        let (mut output, mut bytes) = join(writer)?;
        for block in &finished.blocks {
            bytes += write_block(&mut output, block)?;
        }
        output.flush()?;
        Ok(Some(RecordingSummary { end: finished.end, bytes }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Recording {
    /// Attaches the recorder to the halves of a server that is about to start. `None` if a server
    /// has taken the recording.
    pub fn attach(&self, halves: ServerHalves, header: &Header) -> Option<ServerHalves> {
        let mut state = self.state();
        let sink = state.sink.take()?;
        let (halves, recorder) = record(halves, header, Box::new(sink));
        state.recorder = Some(recorder);
        Some(halves)
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("is_recording", &self.is_recording()).finish_non_exhaustive()
    }
}

impl Sink for BlockSender {
    fn take(&mut self, block: Block) -> Result<Vec<u8>, SinkFull> {
        match self.full.try_send(block) {
            Ok(()) => Ok(self.empty.try_recv().unwrap_or_default()),
            // The disk is slow, or has failed.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(SinkFull),
        }
    }
}

/// Runs the writer thread until the cores' end is dropped, or the disk fails.
fn write(mut output: Output, blocks: &Receiver<Block>, again: impl Fn(Vec<u8>)) -> io::Result<(Output, u64)> {
    let mut bytes = 0;
    while let Ok(block) = blocks.recv() {
        bytes += write_block(&mut output, &block)?;
        again(block.into_buffer());
    }
    Ok((output, bytes))
}

fn write_block(output: &mut Output, block: &Block) -> io::Result<u64> {
    let prefix = block.prefix();
    output.write_all(&prefix)?;
    output.write_all(block.payload())?;
    Ok((prefix.len() + block.payload().len()) as u64)
}

fn join(writer: JoinHandle<io::Result<(Output, u64)>>) -> io::Result<(Output, u64)> {
    writer.join().unwrap_or_else(|_| Err(io::Error::other("the recording's writer has panicked")))
}

// Not under loom: a whole controller and a real writer thread fit no model.
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::params::Params;
    use leeward_core::registry::Environment;
    use leeward_core::server::Signals;
    use leeward_core::units::{Nanos, Time};
    use leeward_recording::{EndReason, Item, Reader};

    /// A writer that blocks until the test releases it.
    struct BlockingWriter(Arc<Mutex<Vec<u8>>>);

    impl Write for BlockingWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_recording_at_its_size_limit_ends_with_a_mark() {
        let file = Arc::new(Mutex::new(Vec::new()));
        let recording = Recording::bounded(BlockingWriter(Arc::clone(&file)), 2).unwrap();
        let (registry, environment) = (leeward_controllers::builtin(), Environment::new(1, Nanos(1), Nanos(1)));
        let algorithm = registry.find("breakwater").unwrap();
        let header = Header::new("a test", algorithm, &Params::default(), &environment);
        let held = file.lock().unwrap();
        let halves = algorithm.server(&Params::default(), &environment).unwrap();
        let mut halves = recording.attach(halves, &header).unwrap();
        let mut ticks = 0;
        while recording.is_recording() {
            ticks += 1;
            halves.control.tick(&Signals::idle(Time(ticks)));
            assert!(ticks < 1_000_000, "blocks are bounded");
        }
        drop(held);
        let end = recording.finish().unwrap().unwrap().end;
        assert_eq!(end.reason, EndReason::Overrun);
        assert!(end.entries > 0 && end.entries < ticks, "{end:?} after {ticks} ticks");
        let bytes = file.lock().unwrap();
        let items: Vec<Item> = Reader::items(&bytes).collect::<Result<_, _>>().unwrap();
        assert_eq!(items.len() as u64, end.entries + 2);
    }
}
