//! The README's first number: an axum service of 0.5 ms of CPU per request on one thread, 3,600
//! requests/s offered, an objective of 50 ms, without protection and with one line.

use super::{Bench, connections, median};
use crate::args;
use crate::child::Server;
use crate::guard::Guard;
use crate::load::{self, Demand, Plan, alike};
use anyhow::Result;
use std::time::Duration;

/// CPU time of a request, in us.
const WORK: u64 = 500;
/// Offered load, in requests per second: about twice what one thread can serve.
const RATE: f64 = 3_600.0;
const OBJECTIVE: Duration = Duration::from_millis(50);
/// Time of a run that does not count: a service without protection fills its sockets first.
const WARMUP: Duration = Duration::from_secs(3);

impl Bench {
    pub(super) fn readme(&mut self) -> Result<()> {
        println!("\n{WORK} us of work, {RATE:.0} requests/s offered, objective {} ms", OBJECTIVE.as_millis());
        for (guard, title) in [(Guard::Nothing, "as it is"), (Guard::Level, "slo(ms(50))")] {
            let (mut rates, mut tails) = (Vec::new(), Vec::new());
            for _ in 0..self.rounds {
                let slo = OBJECTIVE.as_millis() as u64;
                let server = Server::start(&args::Args { guard, work: WORK, slo, cpu: Some(0), ..Default::default() })?;
                self.seed += 1;
                let phases = vec![(Demand::Rate(RATE), self.span + WARMUP)];
                let (address, connections, seed) = (server.address, connections(WORK), self.seed);
                let plan =
                    Plan { address, connections, phases, warmup: WARMUP, objective: OBJECTIVE, seed, kind: alike };
                let result = load::run(&plan)?;
                server.stop()?;
                self.busiest = self.busiest.max(result.busy);
                let all = result.all();
                rates.push(result.per_second(all.in_time));
                tails.push(all.latency.value_at_quantile(0.99) as f64 / 1e3);
            }
            let (rate, tail) = (median(rates), median(tails));
            let got = format!("{rate:.0}/s within 50 ms, p99 of the answered {tail:.0} ms");
            self.row(format!("axum, one thread: {title}"), "", got, rate, None);
        }
        Ok(())
    }
}
