//! Applications: the steps of a request at the server, along a path and with locks.
//!
//! Plain data, drawn from the seed, so that every controller meets the same requests. Does not
//! contain the behaviour of locks, which is the plant's.

use crate::rng::Rng;
use leeward_core::units::Nanos;

/// An application: its locks, and the paths of requests through them. The default has neither: a
/// request only computes for its service time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Application {
    /// Names of the locks, each unique.
    pub locks: Vec<String>,
    /// Paths; a request takes one of them.
    pub paths: Vec<Path>,
}

/// A path through the application.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Share of requests that take the path, 0..=1.
    pub share: f64,
    /// Steps of a request on the path, in order.
    pub steps: Vec<Step>,
}

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Compute for this share of the request's service time.
    Work(f64),
    /// Wait for this share of the service time without a core, for a disk or a downstream server.
    /// Releases that directly follow happen when the wait ends, without a core.
    Wait(f64),
    /// Acquire this lock, an index into [`Application::locks`].
    Acquire(usize),
    /// Release this lock.
    Release(usize),
}

impl Step {
    /// Share of the service time that the step takes, if any.
    fn share(&self) -> Option<f64> {
        match self {
            Step::Work(share) | Step::Wait(share) => Some(*share),
            Step::Acquire(_) | Step::Release(_) => None,
        }
    }
}

/// Maximum number of locks, of paths, and of steps per path: the plants keep the held locks of a
/// request in one word.
pub const MAX_STEPS: usize = 64;

/// Rounding tolerance of shares that a person has written.
const TOLERANCE: f64 = 1e-6;

impl Application {
    /// Whether requests only compute for their service time.
    pub fn is_plain(&self) -> bool {
        self.paths.is_empty()
    }

    /// An application with a single lock on a slow path (Hoover, Fig. 1).
    ///
    /// With probability `p` a request does 1 − `r` of its work, then `r` of it with the lock. All
    /// other requests take no lock.
    pub fn one_lock(p: f64, r: f64) -> Self {
        let slow = vec![Step::Work(1.0 - r), Step::Acquire(0), Step::Work(r), Step::Release(0)];
        Application {
            locks: vec!["slow".into()],
            paths: vec![Path { share: p, steps: slow }, Path { share: 1.0 - p, steps: vec![Step::Work(1.0)] }],
        }
    }

    /// An application with two paths, each entirely inside its own lock; `p` is the first path's
    /// share (thesis, Fig. 2.2).
    pub fn two_locks(p: f64) -> Self {
        let path = |share, lock| Path { share, steps: vec![Step::Acquire(lock), Step::Work(1.0), Step::Release(lock)] };
        Application { locks: vec!["first".into(), "second".into()], paths: vec![path(p, 0), path(1.0 - p, 1)] }
    }

    /// Draws the path of the next request; always one draw from `rng`.
    pub fn draw(&self, rng: &mut Rng) -> usize {
        let mut left = rng.unit();
        for (index, path) in self.paths.iter().enumerate() {
            if left < path.share {
                return index;
            }
            left -= path.share;
        }
        // The shares add up to one except for rounding.
        self.paths.iter().rposition(|path| path.share > 0.0).unwrap_or(0)
    }

    /// Checks the application.
    ///
    /// Locks that a path holds together must be taken in the order of [`Application::locks`]:
    /// requests with different orders could deadlock.
    ///
    /// # Errors
    /// The first rule that the application violates, as text.
    pub fn check(&self) -> Result<(), String> {
        if self.is_plain() {
            return if self.locks.is_empty() { Ok(()) } else { Err("locks that no path takes".into()) };
        }
        if self.locks.len() > MAX_STEPS || self.paths.len() > MAX_STEPS {
            return Err(format!("an application has {MAX_STEPS} locks and {MAX_STEPS} paths at most"));
        }
        let twice = (1..self.locks.len()).find(|index| self.locks[..*index].contains(&self.locks[*index]));
        if let Some(index) = twice {
            return Err(format!("two locks called `{}`", self.locks[index]));
        }
        if self.paths.iter().any(|path| !(0.0..=1.0).contains(&path.share)) {
            return Err("a path's share must be 0 % to 100 %".into());
        }
        let shares: f64 = self.paths.iter().map(|path| path.share).sum();
        if (shares - 1.0).abs() > TOLERANCE {
            return Err(format!("the paths' shares add up to {:.4} %, not to 100 %", shares * 100.0));
        }
        self.paths.iter().try_for_each(|path| self.check_steps(&path.steps))
    }

    fn check_steps(&self, steps: &[Step]) -> Result<(), String> {
        if steps.is_empty() || steps.len() > MAX_STEPS {
            return Err(format!("a path has 1 to {MAX_STEPS} steps"));
        }
        let mut held: Vec<usize> = Vec::new();
        let mut work = 0.0;
        for step in steps {
            match *step {
                Step::Work(share) | Step::Wait(share) if !(0.0..=1.0).contains(&share) => {
                    return Err("a step's work must be 0 % to 100 % of the service time".into());
                }
                Step::Work(share) | Step::Wait(share) => work += share,
                Step::Acquire(lock) | Step::Release(lock) if lock >= self.locks.len() => {
                    return Err("a step names a lock that there is not".into());
                }
                Step::Acquire(lock) => {
                    if let Some(later) = held.iter().find(|other| **other >= lock) {
                        let (lock, later) = (&self.locks[lock], &self.locks[*later]);
                        return Err(format!(
                            "`{lock}` is taken while `{later}` is held; accepted: in the locks' order"
                        ));
                    }
                    held.push(lock);
                }
                Step::Release(lock) => {
                    let Some(index) = held.iter().position(|other| *other == lock) else {
                        return Err(format!("`{}` is released where it is not held", self.locks[lock]));
                    };
                    held.remove(index);
                }
            }
        }
        if let Some(lock) = held.first() {
            return Err(format!("`{}` is never released", self.locks[*lock]));
        }
        if (work - 1.0).abs() > TOLERANCE {
            return Err(format!("a path's work adds up to {:.4} % of the service time, not to 100 %", work * 100.0));
        }
        Ok(())
    }

    /// Time that a request of this service time spends at a step of `path`; zero unless the step is
    /// work or a wait.
    ///
    /// The steps of a path add up to the service time, to the nanosecond.
    pub fn length(&self, path: usize, step: usize, service: Nanos) -> Nanos {
        let steps: &[Step] = self.paths.get(path).map_or(&[], |path| &path.steps);
        match steps.get(step) {
            Some(Step::Work(_) | Step::Wait(_)) => {
                done_after(steps, step + 1, service).saturating_sub(done_after(steps, step, service))
            }
            _ => Nanos::ZERO,
        }
    }
}

/// Time of the first `count` of `steps`.
fn done_after(steps: &[Step], count: usize, service: Nanos) -> Nanos {
    let shares = |steps: &[Step]| -> f64 { steps.iter().filter_map(Step::share).sum() };
    let (done, ahead) = steps.split_at(count);
    if shares(ahead) == 0.0 { service } else { service.scale(shares(done)).min(service) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    #[test]
    fn the_papers_applications_are_possible() {
        for p in [0.0, 0.1, 0.2, 1.0 / 3.0, 1.0] {
            assert_eq!(Application::two_locks(p).check(), Ok(()));
            for r in [0.0, 0.2, 0.7, 1.0] {
                assert_eq!(Application::one_lock(p, r).check(), Ok(()));
            }
        }
        assert_eq!(Application::default().check(), Ok(()));
    }

    #[test]
    fn impossible_applications_are_rejected() {
        use Step::{Acquire, Release, Work};
        let check = |steps: &[Step], part: &str| {
            let application = Application {
                locks: vec!["a".into(), "b".into()],
                paths: vec![Path { share: 1.0, steps: steps.to_vec() }],
            };
            let problem = application.check().unwrap_err();
            assert!(problem.contains(part), "{problem}");
        };
        check(&[], "1 to 64 steps");
        check(&[Work(0.5)], "adds up to 50");
        check(&[Work(f64::NAN)], "0 % to 100 %");
        check(&[Acquire(0), Work(1.0)], "`a` is never released");
        check(&[Work(1.0), Release(1)], "where it is not held");
        check(&[Acquire(2), Work(1.0)], "that there is not");
        check(&[Acquire(1), Acquire(0), Work(1.0), Release(0), Release(1)], "in the locks' order");
        check(&[Acquire(0), Acquire(0), Work(1.0), Release(0), Release(0)], "in the locks' order");
        let half = Path { share: 0.5, steps: vec![Work(1.0)] };
        let problem = Application { locks: Vec::new(), paths: vec![half] }.check().unwrap_err();
        assert!(problem.contains("50.0000 %"), "{problem}");
        let problem = Application { locks: vec!["a".into(), "a".into()], ..Application::two_locks(0.5) }.check();
        assert!(problem.unwrap_err().contains("two locks called `a`"));
    }

    #[test]
    fn waits_are_a_part_of_the_service_time() {
        let path = Path { share: 1.0, steps: vec![Step::Work(0.2), Step::Wait(0.8)] };
        let application = Application { locks: Vec::new(), paths: vec![path] };
        assert_eq!(application.check(), Ok(()));
        let lengths: Vec<u64> = (0..2).map(|step| application.length(0, step, Nanos(1_000)).0).collect();
        assert_eq!(lengths, [200, 800]);
    }

    #[test]
    fn paths_come_in_their_shares() {
        let mut rng = Rng::new(3, Purpose::Paths);
        let application = Application::one_lock(0.2, 1.0);
        let slow = (0..100_000).filter(|_| application.draw(&mut rng) == 0).count();
        assert!((slow as f64 / 1e5 - 0.2).abs() < 0.01, "{slow}");
        let never = Application::one_lock(0.0, 1.0);
        assert!((0..1_000).all(|_| never.draw(&mut rng) == 1));
    }

    #[test]
    fn the_steps_of_a_request_are_its_service_time() {
        let application = Application::one_lock(0.5, 0.3);
        for nanos in [0, 1, 2, 3, 9_999, 123_457] {
            let lengths: Vec<Nanos> = (0..4).map(|step| application.length(0, step, Nanos(nanos))).collect();
            assert_eq!(lengths.iter().map(|length| length.0).sum::<u64>(), nanos);
            assert!(lengths[2].0.abs_diff((nanos as f64 * 0.3) as u64) <= 1, "{lengths:?}");
        }
    }
}
