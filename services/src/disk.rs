//! A service that writes each request to a file and answers after the disk has synced it.
//!
//! One thread syncs one record at a time. No core waits and no lock is contended meanwhile, so only
//! response times show that the disk is saturated. Does not contain a useful store, which would
//! sync many records together.

use crate::arguments::{Argument, Kind, UnsupportedPolicy, Values};
use crate::backend::{Backend, Bottleneck, InProcessService};
use crate::definition::{PrepareError, Progress, Requests, ServiceDefinition, Target};
use crate::echo::EchoRequests;
use leeward_core::units::UnitError;
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::{Builder, HandlerError, OwnedRequest, Server, ServerError};
use leeward_workload::ServiceTime;
use leeward_workload::rng::{Purpose, Rng};
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

const FILE: Argument = Argument {
    name: "disk-file",
    value_name: "FILE",
    help: "File to which each request is written and synced; by default an unnamed temporary file",
    kind: Kind::File,
    default: None,
    unsupported: UnsupportedPolicy::Refused,
};

const TIME: Argument = Argument {
    name: "disk-time",
    value_name: "TIME",
    help: "Time of a simulated disk for each request, instead of a file: const:, exp:, bimodal: or lognormal: and a mean",
    kind: Kind::Checked(|text| ServiceTime::parse(text).map(|_| ()).map_err(|error| error.to_string())),
    default: None,
    unsupported: UnsupportedPolicy::Refused,
};

/// Length in bytes after which the file is truncated: the service measures a disk and keeps
/// nothing.
const LONGEST_FILE: u64 = 64 << 20;

/// The disk service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct DiskDefinition;

impl ServiceDefinition for DiskDefinition {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn summary(&self) -> &'static str {
        "Sends the argument back once it is on the disk, one after the other"
    }

    fn arguments(&self) -> &'static [Argument] {
        &[FILE, TIME]
    }

    fn open(&self, values: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        let times = values.text(TIME.name).map(ServiceTime::parse).transpose().map_err(PrepareError::input)?;
        let file = values.file(FILE.name).map(Path::to_path_buf);
        if times.is_some() && file.is_some() {
            return Err(PrepareError::input(
                "--disk-time pretends a disk, which has no --disk-file: give one of the two",
            ));
        }
        let backend = DiskBackend { medium: times.map_or(Medium::File(file), Medium::Simulated) };
        backend.medium.open().map_err(PrepareError::input)?;
        Ok(Box::new(backend))
    }

    fn requests_help(&self) -> &'static str {
        "bytes to write to a disk, or to a simulated one with this time for each: disk, disk:exp:500us"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let fail = || UnitError { written: text.chars().take(40).collect(), expected: "`disk`, `disk:exp:500us`" };
        let times = match text.strip_prefix("disk") {
            Some("") => None,
            Some(rest) => Some(ServiceTime::parse(rest.strip_prefix(':').ok_or_else(fail)?).map_err(|_| fail())?),
            None => return Err(fail()),
        };
        Ok(Arc::new(WriteRequests { times, text: text.into() }))
    }
}

/// The disk of a server.
#[derive(Clone, Debug)]
enum Medium {
    /// A file at this path, or an unnamed one.
    File(Option<PathBuf>),
    /// No file: times, drawn in the same order after every start.
    Simulated(ServiceTime),
}

impl Medium {
    fn open(&self) -> io::Result<Disk> {
        match self {
            Medium::File(path) => {
                let file = path.as_ref().map_or_else(nameless, File::create);
                let named = |error: io::Error| {
                    let path = path.clone().unwrap_or_else(std::env::temp_dir);
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                };
                Ok(Disk::File { file: file.map_err(named)?, written: 0 })
            }
            Medium::Simulated(times) => {
                Ok(Disk::Simulated { times: times.clone(), draws: Rng::new(1, Purpose::Service) })
            }
        }
    }
}

/// Creates an unnamed file in the folder for temporary files; it disappears with the server.
fn nameless() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("leeward-disk-{}", std::process::id()));
    let file = File::options().write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// An open disk.
enum Disk {
    File { file: File, written: u64 },
    Simulated { times: ServiceTime, draws: Rng },
}

impl Disk {
    /// Writes `bytes` and returns when the disk has them.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Disk::File { file, written } => {
                if *written > LONGEST_FILE {
                    file.set_len(0)?;
                    io::Seek::rewind(file)?;
                    *written = 0;
                }
                *written += bytes.len() as u64;
                file.write_all(bytes)?;
                file.sync_data()
            }
            Disk::Simulated { times, draws } => {
                thread::sleep(Duration::from_nanos(times.draw(draws).0));
                Ok(())
            }
        }
    }
}

/// A record on its way to the disk.
struct Record {
    bytes: Vec<u8>,
    completion: Arc<Mutex<Completion>>,
}

/// The disk's result for a record.
#[derive(Default)]
struct Completion {
    result: Option<io::Result<Vec<u8>>>,
    waker: Option<Waker>,
}

fn locked(pending: &Mutex<Completion>) -> std::sync::MutexGuard<'_, Completion> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A future of the disk's result.
struct WriteFuture(Arc<Mutex<Completion>>);

impl Future for WriteFuture {
    type Output = io::Result<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut pending = locked(&self.0);
        match pending.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                pending.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Runs the disk's thread: writes the records in the order of their arrival.
///
/// Skips records whose client has left. Returns the number of written records.
fn serve(mut disk: Disk, records: &Receiver<Record>) -> u64 {
    let mut written = 0;
    for Record { bytes, completion: pending } in records {
        if Arc::strong_count(&pending) == 1 {
            continue;
        }
        written += 1;
        let result = disk.write(&bytes).map(|()| bytes);
        let waker = {
            let mut pending = locked(&pending);
            pending.result = Some(result);
            pending.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
    written
}

#[derive(Clone, Debug)]
struct DiskBackend {
    medium: Medium,
}

impl Backend for DiskBackend {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        let disk = self.medium.open()?;
        let (sender, records): (Sender<Record>, _) = channel();
        // The thread ends with the server: the server drops the handler and with it the sender.
        thread::Builder::new().name("disk".into()).spawn(move || serve(disk, &records))?;
        let handler = move |request: OwnedRequest| {
            let pending = Arc::<Mutex<Completion>>::default();
            let sent = sender.send(Record { bytes: request.payload, completion: Arc::clone(&pending) });
            async move {
                sent.map_err(|_| HandlerError::Message("the disk's thread has ended".into()))?;
                WriteFuture(pending).await.map_err(|error| HandlerError::Message(error.to_string()))
            }
        };
        builder.start_async(address, handler)
    }
}

/// Requests that write eight bytes each.
///
/// The times apply to a simulated disk that is started in this process; a remote server has its
/// own.
#[derive(Clone, Debug)]
struct WriteRequests {
    times: Option<ServiceTime>,
    text: String,
}

impl Display for WriteRequests {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Requests for WriteRequests {
    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError> {
        Ok(Some(Arc::new(EchoRequests)))
    }

    fn prepare_in_process(&self, _: &Progress<'_>) -> Result<InProcessService, PrepareError> {
        let backend = DiskBackend { medium: self.times.clone().map_or(Medium::File(None), Medium::Simulated) };
        let requests = Some(Arc::new(EchoRequests) as Arc<dyn RequestGenerator>);
        // The disk's thread uses no core of the server, and its clients use little CPU time: the
        // server may have all CPUs.
        Ok(InProcessService {
            backend: Arc::new(backend),
            generator: requests,
            description: None,
            bottleneck: Bottleneck::Locks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Value;
    use std::time::Instant;

    #[test]
    fn requests_name_a_real_or_a_simulated_disk() {
        for text in ["disk", "disk:exp:500us", "disk:const:1ms"] {
            assert_eq!(DiskDefinition.requests(text).unwrap().to_string(), text);
        }
        for text in ["disks", "disk:", "disk:exp", "tape"] {
            assert!(DiskDefinition.requests(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_disk_is_either_a_usable_file_or_simulated() {
        let mut values = Values::default();
        values.set(FILE.name, Value::File("/nowhere/at/all".into()));
        let message = DiskDefinition.open(&values, 1, &|_| {}).err().unwrap().to_string();
        assert!(message.contains("/nowhere/at/all"), "{message}");
        values.set(TIME.name, Value::Text("const:1ms".into()));
        let message = DiskDefinition.open(&values, 1, &|_| {}).err().unwrap().to_string();
        assert!(message.contains("one of the two"), "{message}");
    }

    #[test]
    fn records_are_written_in_sequence_and_dropped_ones_skipped() {
        let disk = Medium::Simulated(ServiceTime::parse("const:5ms").unwrap()).open().unwrap();
        let (sender, records) = channel();
        let began = Instant::now();
        let thread = thread::spawn(move || serve(disk, &records));
        let kept: Vec<_> = (0..8u8)
            .map(|number| {
                let pending = Arc::<Mutex<Completion>>::default();
                sender.send(Record { bytes: vec![number], completion: Arc::clone(&pending) }).unwrap();
                pending
            })
            .collect();
        (0..1_000).for_each(|_| sender.send(Record { bytes: Vec::new(), completion: Arc::default() }).unwrap());
        drop(sender);
        assert_eq!(thread.join().unwrap(), 8, "nobody waits for the others");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(40), "eight together took {took:?}");
        for (number, pending) in kept.iter().enumerate() {
            assert_eq!(locked(pending).result.take().unwrap().unwrap(), [number as u8]);
        }
    }

    #[test]
    fn written_records_are_in_the_file() {
        let path = std::env::temp_dir().join(format!("leeward-disk-test-{}", std::process::id()));
        let mut disk = Medium::File(Some(path.clone())).open().unwrap();
        disk.write(b"one").unwrap();
        disk.write(b", two").unwrap();
        let found = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found, b"one, two");
    }
}
