//! Calls of one thread, reconstructed from the stacks that were seen.
//!
//! Two successive stacks that share their outer part show one call of each function in it. What
//! differs changed somewhere between them: the middle is taken. At a boundary, such as the end of a
//! request, every call is cut, because nobody saw what the thread did beyond it. A thread that
//! waits twice in the same place has returned from the first wait.
//!
//! Does not contain the events of a trace, and does not look up functions.

/// A function on a stack, and where it is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The function: where it begins, or an address in it if that is unknown.
    pub function: u64,
    /// Where the thread is in it: the return address of the call of the next frame, or the
    /// innermost function's instruction.
    pub address: u64,
}

/// A call that was reconstructed. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub function: u64,
    /// Return address in the caller; 0 for the outermost function.
    pub caller: u64,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// It still ran when the recording stopped.
    pub is_cut: bool,
}

/// Intervals of CPU time without a stack after which calls are not continued.
const GAP: u64 = 3;
/// Most pieces of CPU time between two stacks that are told apart.
const PIECES: usize = 16;

/// An open call.
#[derive(Clone, Copy, Debug)]
struct OpenCall {
    frame: Frame,
    caller: u64,
    start: u64,
}

/// What is known of a thread.
#[derive(Clone, Debug)]
pub struct ThreadCalls {
    /// Calls of the last stack, the outermost first.
    open: Vec<OpenCall>,
    /// Up to when the last stack is known to have stood.
    seen: u64,
    /// CPU time since then: start and end of pieces.
    pieces: Vec<(u64, u64)>,
    state: CpuState,
    /// First and last boundary since `seen`.
    boundaries: Option<(u64, u64)>,
    /// Number of outer calls of the last stack that stay when its wait ends.
    around_wait: usize,
    /// When the thread came back to the last stack, if nothing was seen since.
    returned: Option<u64>,
}

/// Whether a thread is on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuState {
    /// On a CPU since this time.
    On(u64),
    /// Off the CPU; the stack is known.
    Standing,
    /// Off the CPU; the last stack that was seen may have changed before.
    Away,
}

impl ThreadCalls {
    /// A thread that begins, or is first seen, at this time.
    pub fn new(time: u64) -> ThreadCalls {
        ThreadCalls {
            open: Vec::new(),
            seen: time,
            pieces: Vec::new(),
            state: CpuState::On(time),
            boundaries: None,
            around_wait: 0,
            returned: None,
        }
    }

    /// Returns whether the thread is off its CPU.
    pub fn is_off(&self) -> bool {
        !matches!(self.state, CpuState::On(_))
    }

    /// Returns the latest time that is settled.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The thread was seen on a CPU with this stack, the outermost frame first. `interval` is the
    /// CPU time between two samples. Ended calls go to `report`, inner ones first.
    pub fn sample(&mut self, time: u64, stack: &[Frame], interval: u64, report: &mut dyn FnMut(Call)) {
        let time = time.max(self.seen);
        if self.is_off() {
            // Nobody told when it came back.
            self.switched_in(time.saturating_sub(interval / 2).max(self.seen));
        }
        self.observe(time, stack, interval, false, report);
        self.state = CpuState::On(time);
    }

    /// Says how many outer calls of the stack in which the thread waits don't wait themselves; by
    /// default all but the innermost.
    pub fn set_around_wait(&mut self, calls: usize) {
        self.around_wait = calls.min(self.around_wait);
    }

    /// The thread left its CPU. With a stack it stands there until it comes back. `stays`: it lost
    /// its CPU or waits for memory, and comes back to the same call.
    pub fn switched_out(
        &mut self,
        time: u64,
        stays: bool,
        stack: Option<&[Frame]>,
        interval: u64,
        report: &mut dyn FnMut(Call),
    ) {
        let time = time.max(self.seen);
        match (stack, stays) {
            (Some(stack), _) => {
                let again = self.returned.filter(|_| !stays && self.stands(stack));
                if let Some(returned) = again {
                    self.wait_again(returned, time, stack, report);
                } else {
                    self.observe(time, stack, interval, true, report);
                }
                self.around_wait = stack.len().saturating_sub(usize::from(!stays));
                self.state = CpuState::Standing;
            }
            // A function that is interrupted does not end.
            (None, true) => {
                self.pause(time);
                self.state = CpuState::Away;
            }
            (None, false) => {
                self.pause(time);
                self.forget(time, interval, report);
                self.state = CpuState::Away;
            }
        }
    }

    /// The thread got a CPU.
    pub fn switched_in(&mut self, time: u64) {
        let time = time.max(self.seen).max(self.pieces.last().map_or(0, |(_, end)| *end));
        match self.state {
            CpuState::Standing => {
                self.seen = time;
                self.pieces.clear();
                self.boundaries = None;
                self.returned = Some(time);
            }
            // It was away before, and nobody told.
            CpuState::On(_) | CpuState::Away => {}
        }
        self.state = CpuState::On(time);
    }

    /// What the thread did before and after this time are different things.
    pub fn boundary(&mut self, time: u64) {
        if time < self.seen {
            return;
        }
        let (first, last) = self.boundaries.unwrap_or((time, time));
        self.boundaries = Some((first.min(time), last.max(time)));
    }

    /// Ends all calls: the thread ends, or nothing more is known of it. If the recording stops,
    /// calls that may still run are cut.
    pub fn end(&mut self, time: u64, interval: u64, stops: bool, report: &mut dyn FnMut(Call)) {
        let time = time.max(self.seen);
        if self.state == CpuState::Standing && self.boundaries.is_none() {
            self.close(0, time, stops, report);
        } else {
            self.pause(time);
            let until = self.holds_until(time, interval);
            self.end_wait(report);
            self.close(0, until, stops && until == time, report);
        }
        *self = ThreadCalls::new(time);
    }

    /// Returns whether this is the last stack, and no boundary came since.
    fn stands(&self, stack: &[Frame]) -> bool {
        self.boundaries.is_none() && self.open.iter().map(|open| &open.frame).eq(stack)
    }

    /// The thread waits in the same place as last time: the calls in which it waits are new.
    fn wait_again(&mut self, returned: u64, time: u64, stack: &[Frame], report: &mut dyn FnMut(Call)) {
        self.close(self.around_wait, returned, false, report);
        for (index, frame) in stack.iter().enumerate().skip(self.open.len()) {
            let caller = index.checked_sub(1).map_or(0, |outer| stack[outer].address);
            self.open.push(OpenCall { frame: *frame, caller, start: time });
        }
        self.seen = time;
        self.pieces.clear();
        self.returned = None;
    }

    /// Continues calls that the last stack and this one share, ends the others and begins new ones.
    ///
    /// `switches`: the thread leaves its CPU. It does so in the same few places, which say nothing
    /// of what it did before, back to a boundary.
    fn observe(&mut self, time: u64, stack: &[Frame], interval: u64, switches: bool, report: &mut dyn FnMut(Call)) {
        self.pause(time);
        self.end_wait(report);
        let total = self.cpu();
        let is_gap = total > interval.saturating_mul(GAP);
        let (mut until, mut from) = if is_gap {
            (self.after(interval / 2), self.after(total - interval / 2))
        } else {
            (self.after(total / 2), self.after(total / 2))
        };
        if let Some((first, last)) = self.boundaries {
            let (first, last) = (first.min(time), last.min(time));
            (until, from) = if is_gap { (until.min(first), from.max(last)) } else { (first, last) };
            if switches {
                from = time;
            }
        }
        let continues = !is_gap && self.boundaries.is_none();
        let shared = if continues { self.shared(stack) } else { 0 };
        self.close(shared, until, false, report);
        for (open, frame) in self.open.iter_mut().zip(stack) {
            open.frame.address = frame.address;
        }
        for (index, frame) in stack.iter().enumerate().skip(shared) {
            let caller = index.checked_sub(1).map_or(0, |outer| stack[outer].address);
            self.open.push(OpenCall { frame: *frame, caller, start: from });
        }
        self.seen = time;
        self.pieces.clear();
        self.boundaries = None;
    }

    /// Ends the calls to which the thread came back before a boundary: nobody saw what it did up to
    /// that.
    fn end_wait(&mut self, report: &mut dyn FnMut(Call)) {
        if let (Some(returned), Some(_)) = (self.returned.take(), self.boundaries) {
            self.close(0, returned, false, report);
        }
    }

    /// Returns how many outer frames are the same calls. A function that is called from another
    /// place is another call.
    fn shared(&self, stack: &[Frame]) -> usize {
        let mut shared = 0;
        for (open, frame) in self.open.iter().zip(stack) {
            if open.frame.function != frame.function {
                break;
            }
            shared += 1;
            if open.frame.address != frame.address {
                break;
            }
        }
        shared
    }

    /// The thread left its CPU, and nobody saw where.
    fn forget(&mut self, time: u64, interval: u64, report: &mut dyn FnMut(Call)) {
        let until = self.holds_until(time, interval);
        self.end_wait(report);
        self.close(0, until, false, report);
        self.seen = time;
        self.pieces.clear();
        self.boundaries = None;
    }

    /// Returns up to when the last stack is taken to stand, if none follows.
    fn holds_until(&self, time: u64, interval: u64) -> u64 {
        let boundary = self.boundaries.map_or(time, |(first, _)| first);
        self.after(interval / 2).min(boundary).clamp(self.seen, time.max(self.seen))
    }

    fn close(&mut self, keep: usize, until: u64, is_cut: bool, report: &mut dyn FnMut(Call)) {
        while self.open.len() > keep {
            let Some(OpenCall { frame, caller, start }) = self.open.pop() else { break };
            if until > start {
                report(Call { function: frame.function, caller, start, end: until, is_cut });
            }
        }
    }

    /// Ends the current piece of CPU time.
    fn pause(&mut self, time: u64) {
        let CpuState::On(since) = self.state else { return };
        if time > since {
            let is_full = self.pieces.len() >= PIECES;
            match self.pieces.last_mut() {
                Some(last) if is_full => last.1 = time,
                _ => self.pieces.push((since, time)),
            }
        }
        self.state = CpuState::On(time.max(since));
    }

    /// Returns the CPU time since the last stack.
    fn cpu(&self) -> u64 {
        self.pieces.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns when the thread had used so much CPU time since the last stack.
    fn after(&self, cpu: u64) -> u64 {
        let mut left = cpu;
        for (start, end) in &self.pieces {
            if left <= end - start {
                return start + left;
            }
            left -= end - start;
        }
        self.pieces.last().map_or(self.seen, |(_, end)| *end)
    }
}

#[cfg(test)]
mod tests;
