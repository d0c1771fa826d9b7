//! Two tiers: a service that works for each request and then asks another, which gets twice what it can do. What is asked is how much of
//! the front's work is for requests that the back then refuses.

use super::{Bench, Goodput, SLO, median};
use crate::args::Args;
use crate::child::Server;
use crate::guard::Guard;
use crate::load::{Demand, alike};
use anyhow::{Context, Result};

/// Time for which a request occupies the back's worker, in ms. It takes no CPU: the front has its own.
const BEHIND: u64 = 1;
/// Work of the front for a request, in us.
const WORK: u64 = 150;

/// Result of a measurement.
struct Wasted {
    /// Part of the front's work.
    share: f64,
    /// Over the back's capacity.
    goodput: Goodput,
}

impl Bench {
    /// By turns without and with the client layer in the front.
    pub(super) fn tiers(&mut self) -> Result<()> {
        let args = Args { blocks: BEHIND, ..Args::default() };
        let span = self.span;
        let (came, _) = self.load_of(args, vec![(Demand::Closed, span)], span / 4, alike, |_, _| {})?;
        let all = came.all();
        let capacity = came.per_second(all.answered + all.refused);
        let mut results = [Vec::new(), Vec::new()];
        for _ in 0..self.rounds {
            for (passes, results) in [false, true].into_iter().zip(&mut results) {
                results.push(self.tier(passes, capacity)?);
            }
        }
        let [(plain, in_time), (passing, passing_in_time)] = results.map(|results| {
            let share = median(results.iter().map(|of| of.share).collect());
            (share, Goodput::median(&results.iter().map(|of| of.goodput).collect::<Vec<_>>()).share)
        });
        let got = |share: f64, in_time: f64| format!("{:.1} %, in time / capacity {in_time:.2}", share * 100.0);
        let title = |with: &str| format!("front's work for what the back refused at 2 x, {with}");
        self.row(title("nothing passed"), "", got(plain, in_time), plain, None);
        // A front that asks for nothing wastes nothing: what the back does in time must not become less.
        let is_met = passing <= 0.05 && passing_in_time >= 0.9 * in_time;
        self.row(title("client layer"), "<= 5 %", got(passing, passing_in_time), passing, Some(is_met));
        Ok(())
    }

    fn tier(&mut self, passes: bool, capacity: f64) -> Result<Wasted> {
        let slo = SLO.as_millis() as u64;
        let back = Server::start(&Args { guard: Guard::Level, blocks: BEHIND, slo, cpu: Some(0), ..Args::default() })?;
        let front = Args { guard: Guard::Level, work: WORK, behind: Some(back.address), passes, ..Args::default() };
        let (span, warmup) = (self.span * 2, self.span);
        let phases = vec![(Demand::Rate(capacity * 2.0), span)];
        let (came, said) = self.load_of(front, phases, warmup, alike, |_, _| {})?;
        let counted = |name: &str| said[name].as_f64().with_context(|| format!("the front says no `{name}`"));
        let share = counted("wasted")? / counted("worked")?.max(1.0);
        let back = back.stop()?;
        anyhow::ensure!(back["admitted"].as_u64().is_some_and(|count| count > 0), "the back was not asked: {back}");
        Ok(Wasted { share, goodput: Goodput::of(&came, capacity) })
    }
}
