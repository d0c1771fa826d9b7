//! Runs cases: draws step sequences from a seed, checks after each step, shrinks a failing
//! sequence, and reports how to reproduce it.

use leeward_core::units::Nanos;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use super::cases::Case;
use super::checker::{Checker, End, Event, Violation};
use super::plant::{Plant, PlantDefect};
use super::step::{MAX_CONNECTIONS, Step, steps};

/// Maximum number of steps in a sequence.
const STEPS: usize = 3_000;

/// Seed of a run: the same in every run unless `LEEWARD_SEED` is set.
pub(crate) fn seed() -> u64 {
    from_environment("LEEWARD_SEED").unwrap_or(0x1ee_3a2d)
}

/// Sequences per case: few enough to finish in seconds, more with `LEEWARD_CASES`.
pub(crate) fn sequences() -> u32 {
    from_environment("LEEWARD_CASES").map_or(64, |cases| cases as u32)
}

#[expect(clippy::disallowed_methods, reason = "a test's seed is the test's configuration")]
fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no whole number")))
}

/// Runs `sequences` random sequences on a case.
///
/// # Errors
/// The violation of the shortest failing sequence, and a report with the sequence, the seed and the
/// command.
pub(crate) fn run(case: &Case, defect: PlantDefect, seed: u64, sequences: u32) -> Result<(), (Violation, String)> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: sequences, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let outcome = runner.run(&steps(STEPS), |steps| {
        play(case, defect, &steps).map_err(|violation| TestCaseError::fail(format!("{violation:?}")))
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(_, shortest)) => {
            // Plays the sequence again, for the violation itself instead of its text.
            let violation = play(case, defect, &shortest).expect_err("a sequence fails each time");
            let shown: Vec<String> = shortest.iter().map(|step| format!("    {step:?}")).collect();
            let report = format!(
                "{}: {violation:?}\n  shortest sequence:\n{}\n  seed {seed}; replay with\n    LEEWARD_SEED={seed} \
                 LEEWARD_CASES={sequences} cargo test -p leeward-controllers --test suite invariants",
                case.name,
                shown.join("\n"),
            );
            Err((violation, report))
        }
        Err(TestError::Abort(reason)) => panic!("{}: {reason}", case.name),
    }
}

/// Plays one sequence, then ends the overload, checks that every client is served again, and closes
/// everything.
pub(crate) fn play(case: &Case, defect: PlantDefect, steps: &[Step]) -> Result<(), Violation> {
    let mut test = TestRun {
        plant: Plant::new(&case.algorithm, &case.params, &case.environment, defect),
        checker: Checker::new(case.guarantees),
        served: [false; MAX_CONNECTIONS],
    };
    steps.iter().try_for_each(|step| test.step(step))?;
    test.recover()?;
    (0..MAX_CONNECTIONS).try_for_each(|place| test.step(&Step::Close { place }))?;
    test.checker.finish(&test.plant.view())
}

struct TestRun {
    plant: Plant,
    checker: Checker,
    /// Connections that have received a response since the overload ended.
    served: [bool; MAX_CONNECTIONS],
}

impl TestRun {
    fn step(&mut self, step: &Step) -> Result<(), Violation> {
        let events = self.plant.step(step);
        if let Step::ToClient { place } = step {
            let response = |event: &Event| matches!(event, Event::Ended { end: End::Response, .. });
            self.served[*place] |= events.iter().any(response);
        }
        self.checker.check(&events, &self.plant.view())
    }

    /// Ends the overload. Three seconds later (longer than any memory of these controllers) every
    /// connection with requests gets a response within another three.
    fn recover(&mut self) -> Result<(), Violation> {
        self.step(&Step::Queues { packet_delay: Nanos::ZERO, run_delay: Nanos::ZERO })?;
        self.step(&Step::Advance { time: Nanos::from_secs(3) })?;
        for _ in 0..200 {
            self.quiet_round()?;
        }
        self.served = [false; MAX_CONNECTIONS];
        for _ in 0..3_000 {
            let waiting: Vec<usize> =
                (0..MAX_CONNECTIONS).filter(|place| self.plant.is_open(*place) && !self.served[*place]).collect();
            if waiting.is_empty() {
                return Ok(());
            }
            for place in waiting {
                // A middle priority, and a random number that few controllers would reject.
                self.step(&Step::Submit { place, level: 64, random: 3 << 62 })?;
            }
            self.quiet_round()?;
        }
        match (0..MAX_CONNECTIONS).find(|place| self.plant.is_open(*place) && !self.served[*place]) {
            Some(place) => Err(Violation::LockedOut { place }),
            None => Ok(()),
        }
    }

    /// Lets a millisecond pass without queues: all messages in flight arrive and are served.
    fn quiet_round(&mut self) -> Result<(), Violation> {
        for place in 0..MAX_CONNECTIONS {
            self.settle(place)?;
        }
        self.step(&Step::Advance { time: Nanos::from_millis(1) })?;
        self.step(&Step::Tick { random: 5 })?;
        for place in 0..MAX_CONNECTIONS {
            if self.plant.is_open(place) {
                self.step(&Step::Timer { place })?;
            }
        }
        Ok(())
    }

    fn settle(&mut self, place: usize) -> Result<(), Violation> {
        // Each reply may let one more request leave; queues are short, so this ends soon.
        loop {
            if self.plant.sends_to_server(place) {
                self.step(&Step::ToServer { place, random: 9, at_once: true })?;
            } else if self.plant.serves(place) {
                self.step(&Step::Finish { place, pick: 0, executed: true })?;
            } else if self.plant.sends_to_client(place) {
                self.step(&Step::ToClient { place })?;
            } else {
                return Ok(());
            }
        }
    }
}
