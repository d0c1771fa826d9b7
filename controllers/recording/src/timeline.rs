//! Timeline of a recording, in a few dozen rows however long the recording is.

use super::entry::{Answer, Entry, SessionCall};
use leeward_core::server::Verdict;
use leeward_core::units::{Nanos, Time};

/// A time span of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Start of the row.
    pub from: Time,
    /// Requests received in it.
    pub requests: u64,
    /// Requests rejected in it: on arrival, or when they were dequeued, which may be a row later.
    pub rejected: u64,
    /// The largest queueing delay of a tick.
    pub delay_max: Nanos,
    /// The credit pool after its last tick, if the controller has one.
    pub credit_pool: Option<i64>,
    /// The sum of all windows after its last tick, likewise.
    pub credits_issued: Option<i64>,
}

/// Rows of equal length. The length doubles when there are too many rows.
#[derive(Clone, Debug)]
pub struct Timeline {
    begin: Option<Time>,
    length: Nanos,
    max_rows: usize,
    rows: Vec<Row>,
    /// Time of the last entry that has one.
    now: Option<Time>,
}

impl Timeline {
    /// Creates a timeline of up to `limit` rows (at least two).
    pub fn new(limit: usize) -> Self {
        Timeline { begin: None, length: Nanos::from_millis(1), max_rows: limit.max(2), rows: Vec::new(), now: None }
    }

    /// Length of a row.
    pub fn length(&self) -> Nanos {
        self.length
    }

    /// The rows in order. Rows without entries are empty.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Counts an entry.
    pub fn record(&mut self, entry: &Entry) {
        self.now = entry.now().or(self.now);
        match entry {
            Entry::Session(entry) => {
                let SessionCall::Request(event) = entry.call else { return };
                let row = self.row(event.now);
                row.requests += 1;
                row.rejected += u64::from(matches!(entry.answer, Answer::Verdict(Verdict::Reject(_))));
            }
            Entry::Tick { signals, gauges } => {
                let row = self.row(signals.now);
                row.delay_max = row.delay_max.max(signals.delay());
                row.credit_pool = gauges.credit_pool;
                row.credits_issued = gauges.credits_issued;
            }
            Entry::Dequeue { verdict: Verdict::Reject(_), .. } => {
                if let Some(now) = self.now {
                    self.row(now).rejected += 1;
                }
            }
            Entry::Dequeue { .. }
            | Entry::NextToWake { .. }
            | Entry::CoreGrant { .. }
            | Entry::Downstream { .. }
            | Entry::Threading { .. } => {}
        }
    }

    fn row(&mut self, now: Time) -> &mut Row {
        let begin = *self.begin.get_or_insert(now);
        while now.since(begin).0 / self.length.0 >= self.max_rows as u64 {
            self.halve();
        }
        let index = (now.since(begin).0 / self.length.0) as usize;
        while self.rows.len() <= index {
            let from = begin + self.length * self.rows.len() as u64;
            self.rows.push(Row { from, ..Row::default() });
        }
        &mut self.rows[index]
    }

    /// Joins each pair of rows and doubles the length.
    fn halve(&mut self) {
        self.length = self.length * 2;
        self.rows = self.rows.chunks(2).map(|pair| pair.iter().skip(1).fold(pair[0], Row::merge)).collect();
    }
}

impl Row {
    /// Returns the sum of this row and the next.
    fn merge(self, next: &Row) -> Row {
        Row {
            from: self.from,
            requests: self.requests + next.requests,
            rejected: self.rejected + next.rejected,
            delay_max: self.delay_max.max(next.delay_max),
            credit_pool: next.credit_pool.or(self.credit_pool),
            credits_issued: next.credits_issued.or(self.credits_issued),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::server::{CoreId, Gauges, RejectReason, Signals};

    #[test]
    fn rows_double_in_length_and_keep_their_sums() {
        let mut timeline = Timeline::new(10);
        for ms in 0..100 {
            let signals = Signals { run_delay: Nanos(ms), ..Signals::idle(Time(ms * 1_000_000)) };
            let gauges = Gauges { credit_pool: Some(ms as i64), ..Gauges::default() };
            timeline.record(&Entry::Tick { signals, gauges });
        }
        assert_eq!(timeline.length(), Nanos::from_millis(16));
        assert_eq!(timeline.rows().len(), 7);
        assert_eq!(timeline.rows()[1].credit_pool, Some(31));
        assert_eq!(timeline.rows()[6].delay_max, Nanos(99));
        assert_eq!(timeline.rows()[2].from, Time(32_000_000));
    }

    #[test]
    fn a_late_rejection_is_counted_in_the_row_of_its_decision() {
        let mut timeline = Timeline::new(10);
        let turn = |verdict| Entry::Dequeue { core: CoreId(0), waited: Nanos(1), verdict };
        let late = turn(Verdict::Reject(RejectReason::Delay));
        timeline.record(&late);
        assert!(timeline.rows().is_empty(), "no time is known yet");
        for ms in [0, 5] {
            timeline.record(&Entry::Tick { signals: Signals::idle(Time(ms * 1_000_000)), gauges: Gauges::default() });
        }
        [late, turn(Verdict::Admit), late].iter().for_each(|entry| timeline.record(entry));
        assert_eq!(timeline.rows().iter().map(|row| row.rejected).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn any_timestamp_has_a_row() {
        let mut timeline = Timeline::new(2);
        for now in [5, u64::MAX, 0] {
            timeline.record(&Entry::Tick { signals: Signals::idle(Time(now)), gauges: Gauges::default() });
        }
        assert!(timeline.rows().len() <= 2);
    }
}
