//! The thread that writes the access log. Does not contain the text of a line.

use super::{Message, Output, Shared};
use leeward_host::sync::lock;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Bytes that are written at once, about.
const BATCH: usize = 64 << 10;
/// Least time between two messages that the file can't be written.
const SILENCE: Duration = Duration::from_secs(60);

pub(super) struct Writer {
    shared: Arc<Shared>,
    receiver: Receiver<Message>,
    output: Option<Output>,
    /// Lines that are not written yet.
    lines: Vec<u8>,
    /// Whether the file ends in the middle of a line.
    is_torn: bool,
    told: Option<Instant>,
    is_stopping: bool,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, receiver: Receiver<Message>) -> Self {
        let (lines, is_torn, is_stopping) = (Vec::new(), false, false);
        Writer { shared, receiver, output: None, lines, is_torn, told: None, is_stopping }
    }

    /// Writes until it is told to stop.
    pub(super) fn run(mut self) {
        while !self.is_stopping {
            let Ok(message) = self.receiver.recv() else { return };
            self.take(message);
            while self.lines.len() < BATCH {
                match self.receiver.try_recv() {
                    Ok(message) => self.take(message),
                    Err(_) => break,
                }
            }
            self.write();
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Entry(line) => line.1.append(&line.0, &mut self.lines),
            Message::Reopen => {}
            Message::Stop => self.is_stopping = true,
        }
    }

    /// Writes the lines; what can't be written is counted and forgotten.
    fn write(&mut self) {
        if let Some(next) = lock(&self.shared.next).take() {
            (self.output, self.is_torn) = (Some(next), false);
        }
        let lines = std::mem::take(&mut self.lines);
        if lines.is_empty() {
            return;
        }
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let (done, result) = self.write_all(&lines);
        let counts = &self.shared.counts;
        counts.written.fetch_add(count(&lines[..done]), Ordering::Relaxed);
        if let Err(error) = result {
            counts.failed.fetch_add(count(&lines[done..]), Ordering::Relaxed);
            self.is_torn = done > 0 && lines[done - 1] != b'\n' || done == 0 && self.is_torn;
            self.tell(&error);
        }
        self.lines = lines;
        self.lines.clear();
    }

    /// Bytes that were written, and why not more.
    fn write_all(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        let Some(output) = &mut self.output else { return (0, Err(ErrorKind::NotFound.into())) };
        if self.is_torn {
            // What follows must not look like a part of the torn line.
            match output.write(b"\n") {
                Ok(1) => self.is_torn = false,
                Ok(_) => return (0, Err(ErrorKind::WriteZero.into())),
                Err(error) => return (0, Err(error)),
            }
        }
        let mut done = 0;
        while done < lines.len() {
            match output.write(&lines[done..]) {
                Ok(0) => return (done, Err(ErrorKind::WriteZero.into())),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }

    fn tell(&mut self, error: &io::Error) {
        if self.told.is_none_or(|told| told.elapsed() > SILENCE) {
            self.told = Some(Instant::now());
            let _ = writeln!(io::stderr(), "leeward proxy: the access log loses lines: {error}");
        }
    }
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::File(file) => file.write(bytes),
            // Its buffer would hide errors; what the program prints itself is rare and flushed.
            Output::Stdout => Ok(rustix::io::write(io::stdout(), bytes)?),
        }
    }
}
