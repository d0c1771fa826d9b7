//! Values from some to others, a bounded number under way.

use super::blocking::block_on;
use super::permits::{Acquire, AcquireError, Permits, WaitPolicy};
use super::stats::{LockCounts, LockKind, LockStats};
use super::time::now;
use super::{Congested, Spins};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// No time: nothing is under way.
const NOTHING: u64 = u64::MAX;

/// A channel with room for `capacity` values (at least one), for any number of senders and receivers. Values come in
/// the order in which they were sent. Waiters, for room or for a value, are served in order of arrival. Refusals,
/// `leeward top` and reports use the name.
///
/// ```
/// use leeward_runtime::locks::channel;
///
/// let (sender, receiver) = channel("jobs", 2);
/// sender.send_blocking("one").unwrap();
/// sender.try_send("two").unwrap();
/// assert!(sender.try_send("three").is_err());
/// drop(sender);
/// assert_eq!(receiver.recv_blocking(), Some("one"));
/// assert_eq!(receiver.recv_blocking(), Some("two"));
/// assert_eq!(receiver.recv_blocking(), None);
/// ```
pub fn channel<T>(name: &'static str, capacity: u32) -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel {
        free_slots: Permits::new(name, LockKind::Channel, capacity.max(1).into()),
        values: Permits::unlisted(LockCounts::new(name, LockKind::Channel), 0),
        buffer: Mutex::new(Buffer { values: VecDeque::new(), closed: false }),
        oldest: AtomicU64::new(NOTHING),
        senders: AtomicU64::new(1),
        receivers: AtomicU64::new(1),
    });
    (Sender { channel: Arc::clone(&channel) }, Receiver { channel })
}

struct Channel<T> {
    /// A permit for every value that may still be sent.
    free_slots: Permits,
    /// A permit for every value that may be received.
    values: Permits,
    buffer: Mutex<Buffer<T>>,
    /// Time from which the oldest value is under way; [`NOTHING`]. Written under the buffer's mutex, read without.
    oldest: AtomicU64,
    senders: AtomicU64,
    receivers: AtomicU64,
}

struct Buffer<T> {
    values: VecDeque<(Time, T)>,
    /// Whether all receivers are gone.
    closed: bool,
}

/// A value that was not sent: here it is again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// The running request's budget would not have lasted until it was received, or was spent when there was room.
    Congested(T, Congested),
    /// All receivers are gone; the value comes back.
    Closed(T),
    /// There is no room ([`Sender::try_send`]).
    Full(T),
}

impl<T> SendError<T> {
    /// The value.
    pub fn into_value(self) -> T {
        match self {
            SendError::Congested(value, _) | SendError::Closed(value) | SendError::Full(value) => value,
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Congested(..) => "Congested(..)",
            SendError::Closed(_) => "Closed(..)",
            SendError::Full(_) => "Full(..)",
        })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Congested(_, congested) => congested.fmt(f),
            SendError::Closed(_) => f.write_str("nobody is left to receive"),
            SendError::Full(_) => f.write_str("the channel is full"),
        }
    }
}

impl<T> std::error::Error for SendError<T> {}

impl<T> Channel<T> {
    /// How long the oldest value has been under way.
    fn age(&self) -> Nanos {
        let oldest = self.oldest.load(Ordering::Relaxed);
        if oldest == NOTHING { Nanos::ZERO } else { now().since(Time(oldest)) }
    }

    fn publish(&self, buffer: &Buffer<T>) {
        let oldest = buffer.values.front().map_or(NOTHING, |(since, _)| since.0);
        self.oldest.store(oldest, Ordering::Relaxed);
    }

    async fn send(&self, value: T, wait: WaitPolicy, spins: Spins) -> Result<(), SendError<T>> {
        // Behind this line there is another, of the values: whoever enters waits for both.
        if wait == WaitPolicy::UnlessCongested
            && let Err(congested) = self.free_slots.check(self.age())
        {
            return Err(SendError::Congested(value, congested));
        }
        match Acquire::new(&self.free_slots, 1, wait, spins.0).await {
            Ok(()) => self.put(value),
            Err(AcquireError::Congested(congested)) => Err(SendError::Congested(value, congested)),
            Err(AcquireError::Closed) => Err(SendError::Closed(value)),
        }
    }

    /// There is room for it.
    fn put(&self, value: T) -> Result<(), SendError<T>> {
        let mut buffer = lock(&self.buffer);
        if buffer.closed {
            return Err(SendError::Closed(value));
        }
        buffer.values.push_back((now(), value));
        self.publish(&buffer);
        drop(buffer);
        self.values.release(1);
        Ok(())
    }

    async fn receive(&self, spins: Spins) -> Option<T> {
        let acquired = Acquire::new(&self.values, 1, WaitPolicy::Always, spins.0).await;
        // What was sent before the last sender went is received all the same.
        if acquired.is_ok() || self.values.try_acquire(1) { self.take() } else { None }
    }

    /// There is a value.
    fn take(&self) -> Option<T> {
        let mut buffer = lock(&self.buffer);
        let value = buffer.values.pop_front();
        self.publish(&buffer);
        drop(buffer);
        self.free_slots.release(1);
        value.map(|(_, value)| value)
    }
}

/// The end that values go in at. Clones are the same channel's.
pub struct Sender<T> {
    channel: Arc<Channel<T>>,
}

impl<T> Sender<T> {
    /// Waits for room, however long it takes.
    ///
    /// # Errors
    /// Nobody is left to receive.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.channel.send(value, WaitPolicy::Always, Spins::OF_TASKS).await
    }

    /// Waits for room, unless the running request's budget would not last until the value is received: for the oldest
    /// sender that waits and the oldest value that does, both together.
    ///
    /// # Errors
    /// It would not, or nobody is left to receive.
    pub async fn send_unless_congested(&self, value: T) -> Result<(), SendError<T>> {
        self.channel.send(value, WaitPolicy::UnlessCongested, Spins::OF_TASKS).await
    }

    /// As [`Sender::send`], with the thread waiting.
    ///
    /// # Errors
    /// Nobody is left to receive.
    pub fn send_blocking(&self, value: T) -> Result<(), SendError<T>> {
        block_on(self.channel.send(value, WaitPolicy::Always, Spins::OF_THREADS))
    }

    /// As [`Sender::send_unless_congested`], with the thread waiting.
    ///
    /// # Errors
    /// The running request's budget would not last, or nobody is left to receive.
    pub fn send_blocking_unless_congested(&self, value: T) -> Result<(), SendError<T>> {
        block_on(self.channel.send(value, WaitPolicy::UnlessCongested, Spins::OF_THREADS))
    }

    /// Sends if there is room and no sender waits for it.
    ///
    /// # Errors
    /// There is none, or nobody is left to receive.
    pub fn try_send(&self, value: T) -> Result<(), SendError<T>> {
        if self.channel.free_slots.try_acquire(1) {
            self.channel.put(value)
        } else if lock(&self.channel.buffer).closed {
            Err(SendError::Closed(value))
        } else {
            Err(SendError::Full(value))
        }
    }

    /// How long the oldest value and the oldest sender have waited, together.
    pub fn delay(&self) -> Nanos {
        self.channel.age() + self.channel.free_slots.delay()
    }

    /// Statistics of the senders of channels of this name.
    pub fn stats(&self) -> LockStats {
        self.channel.free_slots.stats()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.channel.senders.fetch_add(1, Ordering::Relaxed);
        Sender { channel: Arc::clone(&self.channel) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.channel.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.channel.values.close();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("channel", &self.channel.free_slots.name()).finish_non_exhaustive()
    }
}

/// The end that values come out of. Clones are the same channel's: each value is received once.
pub struct Receiver<T> {
    channel: Arc<Channel<T>>,
}

impl<T> Receiver<T> {
    /// Waits for a value; `None` when there is none and all senders are gone. A request that receives is charged for it
    /// as for any wait.
    pub async fn recv(&self) -> Option<T> {
        self.channel.receive(Spins::OF_TASKS).await
    }

    /// As [`Receiver::recv`], with the thread waiting.
    pub fn recv_blocking(&self) -> Option<T> {
        block_on(self.channel.receive(Spins::OF_THREADS))
    }

    /// A value, if there is one and no receiver waits for it.
    pub fn try_recv(&self) -> Option<T> {
        if self.channel.values.try_acquire(1) { self.channel.take() } else { None }
    }

    /// How long the oldest value has been under way.
    pub fn delay(&self) -> Nanos {
        self.channel.age()
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.channel.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver { channel: Arc::clone(&self.channel) }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if self.channel.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut buffer = lock(&self.channel.buffer);
            buffer.closed = true;
            let left = std::mem::take(&mut buffer.values);
            self.channel.publish(&buffer);
            drop(buffer);
            self.channel.free_slots.close();
            // Last: dropping a value may run anyone's code, that of one who waits to send included.
            drop(left);
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("channel", &self.channel.free_slots.name()).finish_non_exhaustive()
    }
}
