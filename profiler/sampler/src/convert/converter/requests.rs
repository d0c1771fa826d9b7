//! Requests: their events, and how many they stand for.
//!
//! Does not decide which requests are kept.

use std::io;

use leeward_profile::format::event::EventKind;
use leeward_profile::format::request_totals::RequestTotals;

use super::super::config::Written;
use super::Converter;

impl Converter {
    /// Writes how many requests this process had. The source counts those of all its processes, so
    /// each sampled request stands for as many here as on average; where none was sampled, each
    /// slow one does.
    pub(super) fn count_requests(&mut self, totals: RequestTotals, is_alone: bool) -> io::Result<()> {
        let Written { slow, sampled, .. } = self.written;
        let before = &self.source_totals;
        let others = |totals: &RequestTotals| totals.seen.saturating_sub(totals.slow);
        let unreported = others(&totals).saturating_sub(others(before));
        let sampled_now = totals.sampled.saturating_sub(before.sampled);
        let slow_now = totals.slow.saturating_sub(before.slow);
        let own = (self.reported.0 - self.counted.0, self.reported.1 - self.counted.1);
        self.counted = self.reported;
        let (own_part, parts) = if sampled_now > 0 { (own.1, sampled_now) } else { (own.0, slow_now) };
        let represented = u128::from(unreported) * u128::from(own_part) / u128::from(parts.max(1));
        let represented = u64::try_from(represented).unwrap_or(u64::MAX).max(own.1);
        let of_several = self.own_totals.seen.saturating_add(own.0).saturating_add(represented);
        let seen = if is_alone { totals.seen } else { of_several };
        let latencies = if is_alone { totals.latencies.clone() } else { Vec::new() };
        let threshold = self.slow_threshold.max(totals.threshold);
        self.source_totals = RequestTotals { latencies: Vec::new(), ..totals };
        self.own_totals = RequestTotals { time: totals.time, seen, slow, sampled, threshold, latencies };
        self.writer.request_totals(&self.own_totals)
    }

    /// Writes a request that ended at `time` in this thread.
    pub(super) fn request(
        &mut self,
        time: u64,
        tid: u32,
        id: u64,
        start: u64,
        started_by: Option<u32>,
    ) -> io::Result<()> {
        self.boundary(tid, time);
        let Some(number) = self.thread(tid, time)? else { return Ok(()) };
        let starter = match started_by.filter(|starter| *starter != tid) {
            Some(starter) => self.thread(starter, time)?.map(|number| (starter, number)),
            None => None,
        };
        let begin = EventKind::RequestStart { id, queue: None };
        if let Some((starter, of_starter)) = starter {
            // It was handed over when this thread could first work on it.
            let taken = self.threads.get(&tid).map_or(start, |state| state.next_on(start)).min(time);
            let left = self.threads.get(&starter).and_then(|state| state.next_left(start));
            let given = left.map_or(taken, |left| left.min(taken));
            self.writer.event(of_starter, start, begin)?;
            self.writer.event(of_starter, given, EventKind::RequestBlock { id, queue: None })?;
            self.writer.event(number, taken, begin)?;
        } else {
            self.writer.event(number, start, begin)?;
        }
        self.writer.event(number, time, EventKind::RequestEnd { id })
    }
}
