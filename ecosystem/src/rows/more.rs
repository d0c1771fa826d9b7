//! Rows of changing services: slower for a while, paused, with requests of unequal cost, or with a
//! pool.

use super::{Bench, SLO};
use crate::args::{Args, Pool};
use crate::guard::Guard;
use crate::handler::{CONNECTIONS, DEAR};
use crate::load::{Demand, alike};
use anyhow::Result;
use rustix::process::Signal;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MS: fn(u64) -> Duration = Duration::from_millis;

impl Bench {
    /// Three times the work from second 4 to second 8, under 1.5 times the capacity of the fast
    /// service.
    pub(super) fn slower(&mut self) -> Result<()> {
        let capacity = self.capacity(Guard::Nothing, (500, 0))?;
        let args = Args { guard: Guard::Level, work: 500, slower: vec![4_000, 8_000], ..Args::default() };
        let phases = vec![(Demand::Rate(capacity * 1.5), MS(12_000))];
        let (result, _) = self.load_of(args, phases, Duration::ZERO, alike, |_, _| {})?;
        // The service counts time from its first request, shortly after the beginning of the load.
        // Half seconds that contain a change are left out.
        let rate = |from: usize, until: usize, capacity: f64| {
            let halves = result.halves.get(from..until).unwrap_or(&[]);
            halves.iter().sum::<u64>() as f64 / (until - from) as f64 * 2.0 / capacity
        };
        for (title, share) in [
            ("in time / capacity, 2 s after it slowed down to a third", rate(12, 16, capacity / 3.0)),
            ("in time / capacity, 2 s after it was fast again", rate(20, 24, capacity)),
        ] {
            self.row(title.into(), ">= 0.8", format!("{share:.2}"), share, Some(share >= 0.8));
        }
        Ok(())
    }

    /// Every 51st request takes 50 times the work of the others, at twice the capacity: each kind
    /// is half of the work.
    pub(super) fn costs(&mut self) -> Result<()> {
        let capacity = self.capacity(Guard::Nothing, (100, 0))?;
        let dear = |index: usize| match index % 51 {
            0 => ("x-dear: 1\r\n".to_owned(), 1),
            _ => (String::new(), 0),
        };
        // 50 cheap requests and an expensive one are as much work as 100 cheap ones.
        let demand = capacity * 2.0 * (50.0 + 1.0) / (50.0 + DEAR as f64);
        let mut sums = Vec::new();
        for guard in [Guard::Level, Guard::Unweighted] {
            let args = Args { guard, work: 100, dear: true, ..Args::default() };
            let phases = vec![(Demand::Rate(demand), self.span)];
            let (result, _) = self.load_of(args, phases, self.span / 3, dear, |_, _| {})?;
            let (cheap, dear) = (&result.groups[0], &result.groups[1]);
            sums.push(result.per_second(cheap.in_time + DEAR * dear.in_time));
            if guard == Guard::Level {
                let p99 = cheap.latency.value_at_quantile(0.99) as f64 / 1e3;
                let bar = SLO.as_secs_f64() * 1e3;
                let title = "p99 of the cheap among 1 : 50 at 2 x".into();
                self.row(title, "<= 20 ms", format!("{p99:.1} ms"), p99, Some(p99 <= bar));
            }
        }
        let ratio = sums[0] / sums[1].max(1.0);
        let got = format!("{ratio:.2} ({:.2} and {:.2} of capacity)", sums[0] / capacity, sums[1] / capacity);
        self.row("work in time / without costs, 1 : 50 at 2 x".into(), ">= 1.2", got, ratio, Some(ratio >= 1.2));
        Ok(())
    }

    /// A pool of four connections, each held for 5 ms, at twice the pool's capacity.
    pub(super) fn pool(&mut self) -> Result<()> {
        let capacity = CONNECTIONS as f64 / 0.005;
        let mut goodputs = Vec::new();
        for (guard, pool) in [(Guard::Nothing, Pool::Plain), (Guard::Level, Pool::Plain), (Guard::Level, Pool::Line)] {
            let args = Args { guard, pool, wait: 5, work: 20, ..Args::default() };
            let phases = vec![(Demand::Rate(capacity * 2.0), self.span)];
            let (result, report) = self.load_of(args, phases, self.span / 3, alike, |_, _| {})?;
            let all = result.all();
            goodputs.push(result.per_second(all.in_time) / capacity);
            if pool == Pool::Line {
                let in_flight = report["in_flight"].as_f64().unwrap_or(f64::NAN);
                let title = "in flight at the end, pool".into();
                self.row(title, "0", format!("{in_flight}"), in_flight, Some(in_flight == 0.0));
            }
        }
        let (plain, line) = (goodputs[0].max(1e-3), goodputs[2]);
        let got = format!("{:.1} ({line:.2}; plain {:.2}, layer alone {:.2})", line / plain, goodputs[0], goodputs[1]);
        let ratio = line / plain;
        self.row("pool of 4 at 2 x: in time by a line / awaited".into(), ">= 5", got, ratio, Some(ratio >= 5.0));
        Ok(())
    }

    /// The process is stopped for 20 ms of each 100 ms, like a container that has used up its CPU
    /// quota, under 0.7 of the remaining capacity.
    pub(super) fn pauses(&mut self) -> Result<()> {
        let capacity = self.capacity(Guard::Nothing, (500, 0))?;
        let args = Args { guard: Guard::Level, work: 500, ..Args::default() };
        let (paused, after) = (self.span, Duration::from_secs(3));
        let demand = capacity * 0.8 * 0.7;
        let phases = vec![(Demand::Rate(demand), paused), (Demand::Rate(demand), after)];
        let (result, _) = self.load_of(args, phases, Duration::ZERO, alike, |server, stop| {
            for _ in 0..paused.as_millis() / 100 {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                server.signal(Signal::STOP);
                std::thread::sleep(MS(20));
                server.signal(Signal::CONT);
                std::thread::sleep(MS(80));
            }
        })?;
        let all = result.all();
        let refused =
            all.refused as f64 * (paused + after).as_secs_f64() / paused.as_secs_f64() / all.due.max(1) as f64;
        let got = format!("{:.2} % while it is stopped", refused * 100.0);
        self.row(
            "refused, stopped for 20 of 100 ms, 0.7 of the rest".into(),
            "<= 5 %",
            got,
            refused,
            Some(refused <= 0.05),
        );
        let last = result.last_refusal.saturating_sub(paused).as_secs_f64();
        self.row(
            "last refusal after the last pause".into(),
            "<= 0.2 s",
            format!("{last:.2} s"),
            last,
            Some(last <= 0.2),
        );
        Ok(())
    }
}
