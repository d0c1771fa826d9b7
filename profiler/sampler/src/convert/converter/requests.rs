//! Events of a request.
//!
//! Does not decide which requests are kept.

use std::io;

use leeward_profile::format::event::EventKind;

use super::Converter;

impl Converter {
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
            let left = self.threads.get(&starter).and_then(|state| state.handed_over(start)).unwrap_or(time).min(time);
            let taken = self.threads.get(&tid).map_or(left, |state| state.taken_over(start, left, time));
            let given = left.min(taken);
            self.writer.event(of_starter, start, begin)?;
            self.writer.event(of_starter, given, EventKind::RequestBlock { id, queue: None })?;
            self.writer.event(number, taken, begin)?;
        } else {
            self.writer.event(number, start, begin)?;
        }
        if let Some(state) = self.threads.get_mut(&tid) {
            state.answered(time);
        }
        self.writer.event(number, time, EventKind::RequestEnd { id })
    }
}
