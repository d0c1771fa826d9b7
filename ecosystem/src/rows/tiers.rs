//! Two tiers: a front works for each request and then calls a back, which gets twice its capacity.
//!
//! The result is the share of the front's work for requests that the back then rejects.

use super::{Bench, Goodput, SLO, median};
use crate::args::Args;
use crate::child::Server;
use crate::guard::Guard;
use crate::load::{Demand, alike};
use anyhow::{Context, Result};

/// Time for which a request occupies the back's worker, in ms. It takes no CPU, because the front
/// shares the CPU.
const BACK_MS: u64 = 1;
/// CPU time of the front per request, in us.
const WORK: u64 = 150;

/// Result of one measurement.
struct TierResult {
    /// Wasted share of the front's work.
    share: f64,
    /// Goodput over the back's capacity.
    goodput: Goodput,
}

impl Bench {
    /// Alternates between no client layer and the client layer in the front.
    pub(super) fn tiers(&mut self) -> Result<()> {
        let args = Args { blocks: BACK_MS, ..Args::default() };
        let span = self.span;
        let (result, _) = self.load_of(args, vec![(Demand::Closed, span)], span / 4, alike, |_, _| {})?;
        let all = result.all();
        let capacity = result.per_second(all.answered + all.refused);
        let mut results = [Vec::new(), Vec::new()];
        for _ in 0..self.rounds {
            for (passes, results) in [false, true].into_iter().zip(&mut results) {
                results.push(self.tier(passes, capacity)?);
            }
        }
        let [(plain, in_time), (with_layer, with_layer_in_time)] = results.map(|results| {
            let share = median(results.iter().map(|of| of.share).collect());
            (share, Goodput::median(&results.iter().map(|of| of.goodput).collect::<Vec<_>>()).share)
        });
        let got = |share: f64, in_time: f64| format!("{:.1} %, in time / capacity {in_time:.2}", share * 100.0);
        let title = |with: &str| format!("front's work for what the back refused at 2 x, {with}");
        self.row(title("nothing passed"), "", got(plain, in_time), plain, None);
        // A front that makes no calls wastes nothing, so the back's goodput must not fall either.
        let is_met = with_layer <= 0.05 && with_layer_in_time >= 0.9 * in_time;
        self.row(title("client layer"), "<= 5 %", got(with_layer, with_layer_in_time), with_layer, Some(is_met));
        Ok(())
    }

    fn tier(&mut self, passes: bool, capacity: f64) -> Result<TierResult> {
        let slo = SLO.as_millis() as u64;
        let back = Server::start(&Args { guard: Guard::Level, blocks: BACK_MS, slo, cpu: Some(0), ..Args::default() })?;
        let front = Args { guard: Guard::Level, work: WORK, behind: Some(back.address), passes, ..Args::default() };
        let (span, warmup) = (self.span * 2, self.span);
        let phases = vec![(Demand::Rate(capacity * 2.0), span)];
        let (result, report) = self.load_of(front, phases, warmup, alike, |_, _| {})?;
        let counted = |name: &str| report[name].as_f64().with_context(|| format!("the front says no `{name}`"));
        let share = counted("wasted")? / counted("worked")?.max(1.0);
        let back = back.stop()?;
        anyhow::ensure!(back["admitted"].as_u64().is_some_and(|count| count > 0), "the back was not asked: {back}");
        Ok(TierResult { share, goodput: Goodput::of(&result, capacity) })
    }
}
