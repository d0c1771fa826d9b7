//! A bounded channel from any number of senders to any number of receivers.

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

/// No time: the channel is empty.
const NOTHING: u64 = u64::MAX;

/// Makes a channel for `capacity` values (at least one), with any number of senders and receivers.
/// Values arrive in the order in which they were sent. Waiters, for capacity or for a value, are
/// served in order of arrival. Rejections, `leeward top` and reports show the name.
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
    /// Send time of the oldest value; [`NOTHING`] without one. Written under the buffer's mutex,
    /// read without.
    oldest: AtomicU64,
    senders: AtomicU64,
    receivers: AtomicU64,
}

struct Buffer<T> {
    values: VecDeque<(Time, T)>,
    /// Whether all receivers are gone.
    closed: bool,
}

/// A value that was not sent. The error returns it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// The running request's budget would not have lasted until the value was received, or was
    /// spent when there was capacity.
    Congested(T, Congested),
    /// All receivers are gone.
    Closed(T),
    /// The channel is full ([`Sender::try_send`]).
    Full(T),
}

impl<T> SendError<T> {
    /// Returns the value.
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
    /// Age of the oldest value in the channel.
    fn age(&self) -> Nanos {
        let oldest = self.oldest.load(Ordering::Relaxed);
        if oldest == NOTHING { Nanos::ZERO } else { now().since(Time(oldest)) }
    }

    fn publish(&self, buffer: &Buffer<T>) {
        let oldest = buffer.values.front().map_or(NOTHING, |(since, _)| since.0);
        self.oldest.store(oldest, Ordering::Relaxed);
    }

    async fn send(&self, value: T, wait: WaitPolicy, spins: Spins) -> Result<(), SendError<T>> {
        // Senders wait for capacity and then, with their value, for a receiver. The budget must
        // last for both.
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

    /// Puts a value. The caller has acquired a free slot.
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
        // Values sent before the last sender was dropped are still received.
        if acquired.is_ok() || self.values.try_acquire(1) { self.take() } else { None }
    }

    /// Takes a value. The caller has acquired a permit for it.
    fn take(&self) -> Option<T> {
        let mut buffer = lock(&self.buffer);
        let value = buffer.values.pop_front();
        self.publish(&buffer);
        drop(buffer);
        self.free_slots.release(1);
        value.map(|(_, value)| value)
    }
}

/// Sending end of a channel. Clones send to the same channel.
pub struct Sender<T> {
    channel: Arc<Channel<T>>,
}

impl<T> Sender<T> {
    /// Waits for capacity, however long it takes.
    ///
    /// # Errors
    /// All receivers are gone.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.channel.send(value, WaitPolicy::Always, Spins::OF_TASKS).await
    }

    /// Waits for capacity, unless the running request's budget would not last until the value is
    /// received. The expected wait is the age of the oldest waiting sender plus that of the oldest
    /// value.
    ///
    /// # Errors
    /// The budget would not last, or all receivers are gone.
    pub async fn send_unless_congested(&self, value: T) -> Result<(), SendError<T>> {
        self.channel.send(value, WaitPolicy::UnlessCongested, Spins::OF_TASKS).await
    }

    /// Sends as [`Sender::send`] does, blocking the thread.
    ///
    /// # Errors
    /// All receivers are gone.
    pub fn send_blocking(&self, value: T) -> Result<(), SendError<T>> {
        block_on(self.channel.send(value, WaitPolicy::Always, Spins::OF_THREADS))
    }

    /// Sends as [`Sender::send_unless_congested`] does, blocking the thread.
    ///
    /// # Errors
    /// The running request's budget would not last, or all receivers are gone.
    pub fn send_blocking_unless_congested(&self, value: T) -> Result<(), SendError<T>> {
        block_on(self.channel.send(value, WaitPolicy::UnlessCongested, Spins::OF_THREADS))
    }

    /// Sends if there is capacity and no sender waits for it.
    ///
    /// # Errors
    /// The channel is full, or all receivers are gone.
    pub fn try_send(&self, value: T) -> Result<(), SendError<T>> {
        if self.channel.free_slots.try_acquire(1) {
            self.channel.put(value)
        } else if lock(&self.channel.buffer).closed {
            Err(SendError::Closed(value))
        } else {
            Err(SendError::Full(value))
        }
    }

    /// Age of the oldest value plus the wait of the oldest sender.
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

/// Receiving end of a channel. Clones receive from the same channel; each value is received once.
pub struct Receiver<T> {
    channel: Arc<Channel<T>>,
}

impl<T> Receiver<T> {
    /// Waits for a value; `None` when the channel is empty and all senders are gone. A request is
    /// charged for this wait like for any other.
    pub async fn recv(&self) -> Option<T> {
        self.channel.receive(Spins::OF_TASKS).await
    }

    /// Receives as [`Receiver::recv`] does, blocking the thread.
    pub fn recv_blocking(&self) -> Option<T> {
        block_on(self.channel.receive(Spins::OF_THREADS))
    }

    /// Takes a value, if there is one and no receiver waits for it.
    pub fn try_recv(&self) -> Option<T> {
        if self.channel.values.try_acquire(1) { self.channel.take() } else { None }
    }

    /// Age of the oldest value in the channel.
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
            // Last: dropping a value may run foreign code, even that of a waiting sender.
            drop(left);
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("channel", &self.channel.free_slots.name()).finish_non_exhaustive()
    }
}
