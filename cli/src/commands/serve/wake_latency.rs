//! Checks that a sleeping core wakes fast enough for the objective: the first request after a pause
//! waits for the wake-up.

use std::io::Write;
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use leeward_core::units::Nanos;
use leeward_runtime::IdlePolicy;

use crate::demo::format::format_us;

/// Number of measured wake-ups, and the sleep before each.
const SAMPLES: usize = 40;
const SLEEP: Duration = Duration::from_millis(1);
/// Reciprocal of the share of wake-ups that may exceed the reported latency.
const TAIL_DIVISOR: usize = 10;

/// Measures wake-ups beside the server. Prints a note if one wake-up in ten takes half of the
/// objective or more.
///
/// Cores that never sleep are not measured.
pub(super) fn check(idle: IdlePolicy, slo: Nanos) {
    if idle == IdlePolicy::Spin {
        return;
    }
    let measure = move || {
        let took = p90(&mut measure());
        if took.0.saturating_mul(2) >= slo.0 {
            let text = message(took, slo);
            let _ = writeln!(std::io::stderr(), "note: {text}");
        }
    };
    // Without a thread there is no note.
    let _ = thread::Builder::new().name("leeward-wakes".into()).spawn(measure);
}

fn message(took: Nanos, slo: Nanos) -> String {
    let took = format_us(took.as_micros_f64());
    format!(
        "a sleeping core of this machine takes {took} or more to wake, 1 time in {TAIL_DIVISOR}, and the objective is {slo}: while there is \
         little to do, some answers are late. `--idle spin` keeps cores awake, and a longer --slo leaves time to wake"
    )
}

/// Measures wake-up latencies: from the call of a sleeping thread until it runs.
fn measure() -> Vec<Nanos> {
    let (call, called) = mpsc::channel::<Instant>();
    thread::scope(|scope| {
        let sleeper =
            scope.spawn(move || called.iter().map(|since| Nanos(since.elapsed().as_nanos() as u64)).collect());
        for _ in 0..SAMPLES {
            sleep(SLEEP);
            let _ = call.send(Instant::now());
        }
        drop(call);
        sleeper.join().unwrap_or_default()
    })
}

/// 90th percentile.
fn p90(times: &mut [Nanos]) -> Nanos {
    times.sort_unstable();
    times.iter().rev().nth(times.len() / TAIL_DIVISOR).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_90th_percentile_of_wake_latency_is_reported() {
        let mut times: Vec<Nanos> = (1..=40).rev().map(Nanos::from_micros).collect();
        assert_eq!(p90(&mut times), Nanos::from_micros(36));
        assert_eq!(p90(&mut []), Nanos::ZERO);
        assert_eq!(measure().len(), SAMPLES);
        let text = message(Nanos::from_micros(150), Nanos::from_micros(200));
        assert!(text.contains("takes 150 µs or more to wake, 1 time in 10, and the objective is 200us"), "{text}");
    }
}
