//! The knee of the throughput: v1.

use crate::registry::LimitPolicy;
use crate::sojourn::SojournWindow;
use crate::{ConcurrencyLimit, LimitEnvironment, Response, Tick, UNLIMITED};
use leeward_core::units::{Nanos, Time};

/// Entry of the registry.
pub const POLICY: LimitPolicy = LimitPolicy {
    name: "knee",
    summary: "as many as bring more answers, bounded by the objective",
    source: "Leeward",
    params: &[],
    build: |_, environment| Box::new(Knee::new(environment)),
};

fn env(name: &str, default: f64) -> f64 {
    #[allow(clippy::disallowed_methods)]
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Open,
    Descend,
    Steady,
}

/// The limit.
#[derive(Clone, Debug)]
pub struct Knee {
    objective: f64,
    random: u64,
    phase: Phase,
    limit: f64,
    high: bool,
    recent: SojournWindow<100>,
    mean: f64,
    // open
    base_n: f64,
    base_x: f64,
    sum_n: f64,
    ticks: f64,
    // epoch
    start: Time,
    measuring: bool,
    from: Time,
    answers: f64,
    saturated: bool,
    // descend
    former: Option<(f64, f64)>,
    floor: f64,
    arm_x: [f64; 2],
    arm_t: [f64; 2],
    p: P,
}

#[derive(Clone, Debug)]
struct P {
    phi: f64,
    up: f64,
    dn: f64,
    eps: f64,
    decay: f64,
    down: f64,
    upf: f64,
    grow: f64,
    half: f64,
}

impl Knee {
    fn new(environment: &LimitEnvironment) -> Self {
        Knee {
            objective: environment.objective.0 as f64,
            random: environment.seed ^ 0x9E37_79B9_7F4A_7C15,
            phase: Phase::Open,
            limit: f64::from(UNLIMITED),
            high: false,
            recent: SojournWindow::default(),
            mean: 0.0,
            base_n: 0.0,
            base_x: 0.0,
            sum_n: 0.0,
            ticks: 0.0,
            start: Time::ZERO,
            measuring: false,
            from: Time::ZERO,
            answers: 0.0,
            saturated: true,
            former: None,
            floor: 0.0,
            arm_x: [0.0; 2],
            arm_t: [0.0; 2],
            p: P {
                phi: env("PHI", 0.8),
                up: env("UP", 0.15),
                dn: env("DN", 0.05),
                eps: env("EPS", 0.25),
                decay: env("DECAY", 0.96),
                down: env("DOWN", 0.96),
                upf: env("UPF", 1.06),
                grow: env("GROW", 1.5),
                half: env("HALF", 0.9),
            },
        }
    }

    fn coin(&mut self) -> bool {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 63 == 1
    }

    fn set(&mut self, now: Time, limit: f64) {
        self.limit = limit.clamp(1.0, f64::from(UNLIMITED));
        self.start = now;
        self.measuring = false;
    }

    fn arm(&self, high: bool) -> f64 {
        let base = self.limit.floor();
        if high { (base * (1.0 + self.p.eps)).max(base + 1.0).floor() } else { base }
    }

    fn open(&mut self, tick: &Tick) {
        self.sum_n += f64::from(tick.in_flight);
        self.ticks += 1.0;
        let elapsed = tick.now.since(self.start).0 as f64;
        if elapsed < self.mean.max(30e6) || self.answers < 15.0 {
            return;
        }
        let (n, x) = (self.sum_n / self.ticks, self.answers / elapsed);
        let mut close = None;
        if self.base_n == 0.0 || n < self.base_n * 1.5 {
            if self.base_n == 0.0 || x > self.base_x || n < self.base_n {
                let weight = if self.base_n == 0.0 { 1.0 } else { 0.3 };
                self.base_n += weight * (n - self.base_n);
                self.base_x += weight * (x - self.base_x);
            }
        } else if x / self.base_x - 1.0 >= self.p.up * (n / self.base_n - 1.0) {
            self.base_n = n;
            self.base_x = x;
        } else if n > 4.0 {
            close = Some((self.base_n * self.p.grow).max(2.0));
        }
        if f64::from(tick.in_flight) / x > self.p.phi * self.objective {
            close = Some((f64::from(tick.in_flight) * 0.5).max(2.0));
        }
        self.answers = 0.0;
        self.sum_n = 0.0;
        self.ticks = 0.0;
        self.start = tick.now;
        if let Some(limit) = close {
            self.phase = Phase::Descend;
            self.former = None;
            self.recent.clear();
            self.set(tick.now, limit);
        }
    }

    fn late(&mut self) -> bool {
        self.recent.len() >= 20 && self.recent.quantile(0.95).0 as f64 > self.p.phi * self.objective
    }
}

impl ConcurrencyLimit for Knee {
    fn on_response(&mut self, response: &Response) {
        let sojourn = response.sojourn();
        if self.mean == 0.0 {
            self.mean = sojourn.0 as f64;
        }
        self.mean += 0.05 * (sojourn.0 as f64 - self.mean);
        self.answers += 1.0;
        if response.dispatched >= self.start || self.phase == Phase::Steady {
            self.recent.push(sojourn);
        }
    }

    fn on_tick(&mut self, tick: &Tick) {
        if self.phase == Phase::Open {
            return self.open(tick);
        }
        if tick.has_starved || tick.queued == 0 {
            self.saturated = false;
        }
        let wait = self.mean.min(200e6);
        if !self.measuring {
            if tick.now.since(self.start).0 as f64 >= wait {
                self.measuring = true;
                self.from = tick.now;
                self.answers = 0.0;
                self.saturated = tick.queued > 0;
            }
            return;
        }
        let elapsed = tick.now.since(self.from).0 as f64;
        if self.phase == Phase::Descend {
            if elapsed < wait.max(20e6) || (self.answers < 100.0 && elapsed < 1e9) {
                return;
            }
            let x = self.answers / elapsed;
            let late = self.late();
            self.recent.clear();
            if !self.saturated && !late {
                self.phase = Phase::Steady;
                let limit = self.former.map_or(self.limit, |(limit, _)| limit);
                return self.set(tick.now, limit);
            }
            match self.former {
                Some((limit, former)) if x < self.p.half * former && !late => {
                    self.phase = Phase::Steady;
                    self.set(tick.now, limit);
                }
                _ if self.limit <= 1.0 => {
                    self.phase = Phase::Steady;
                    self.set(tick.now, 1.0);
                }
                former => {
                    let best = former.map_or(x, |(_, former)| former.max(x));
                    self.former = Some((self.limit, best));
                    self.set(tick.now, (self.limit / 2.0).floor());
                }
            }
            return;
        }
        if elapsed < wait.max(20e6) || (self.answers < 12.0 && elapsed < 400e6) {
            return;
        }
        if self.late() {
            self.limit = (self.limit * 0.9).max(1.0);
            self.arm_x = [0.0; 2];
            self.arm_t = [0.0; 2];
            self.recent.clear();
        } else if self.saturated {
            let k = usize::from(self.high);
            self.arm_x[k] = self.arm_x[k] * self.p.decay + self.answers;
            self.arm_t[k] = self.arm_t[k] * self.p.decay + elapsed;
            if self.arm_x[0] > 40.0 && self.arm_x[1] > 40.0 {
                let (x0, x1) = (self.arm_x[0] / self.arm_t[0], self.arm_x[1] / self.arm_t[1]);
                let e = (x1 / x0 - 1.0) / (self.arm(true) / self.arm(false) - 1.0);
                if e > self.p.up {
                    self.limit = self.limit * self.p.upf + 0.2;
                } else if e < self.p.dn {
                    self.limit *= self.p.down;
                }
            } else {
                self.limit = self.limit * 1.01 + 0.1;
            }
        }
        self.high = self.coin();
        self.set(tick.now, self.limit);
    }

    fn limit(&self) -> u32 {
        if self.phase != Phase::Steady { self.limit as u32 } else { self.arm(self.high) as u32 }
    }
}
