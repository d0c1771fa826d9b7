//! `[workload]`'s `locks`, `path`, `p` and `r`: an application with locks. A controller's `lock`
//! and `acquire`: how its locks are implemented and acquired.

use super::ScenarioError;
use super::document::Value;
use super::reader::{Item, Reader, distinct};
use leeward_core::units::{Nanos, parse_duration, parse_number};
use leeward_sim::config::{Application, LockKind, LockModel, LockPolicy, MAX_STEPS, Path, Step};

const MAX_WAIT: Nanos = Nanos::from_secs(3600);

/// An application whose numbers may be `p` and `r`.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationSpec {
    /// Names of the locks.
    pub locks: Vec<String>,
    /// Paths through the application.
    pub paths: Vec<PathSpec>,
    /// Values of `p`, as a share of one; empty if no path uses `p`.
    pub p: Vec<f64>,
    /// Values of `r`, as a share of one; empty if no path uses `r`.
    pub r: Vec<f64>,
}

/// A path, as written.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// Share of requests that take the path.
    pub share: ShareSpec,
    /// Steps of the requests on this path.
    pub steps: Vec<StepSpec>,
}

/// A step, as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepSpec {
    /// `work 30%`
    Work(ShareSpec),
    /// `wait 30%`
    Wait(ShareSpec),
    /// `lock NAME`, as an index into the names.
    Lock(usize),
    /// `unlock NAME`
    Unlock(usize),
}

/// A share of one, as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShareSpec {
    /// `30%`
    Fixed(f64),
    /// `p`
    P,
    /// `1-p`
    OneMinusP,
    /// `r`
    R,
    /// `1-r`
    OneMinusR,
}

/// An application for one value of `p` and of `r`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApplicationInstance {
    /// Value of `p`, if the scenario has it.
    pub p: Option<f64>,
    /// Value of `r`, if the scenario has it.
    pub r: Option<f64>,
    /// The application with both values.
    pub application: Application,
}

impl ApplicationSpec {
    /// All applications, in the order of `p`, then `r`.
    pub fn instances(&self) -> Vec<ApplicationInstance> {
        let options = |values: &[f64]| match values {
            [] => vec![None],
            _ => values.iter().copied().map(Some).collect(),
        };
        let with = |p: Option<f64>| options(&self.r).into_iter().map(move |r| (p, r));
        let pairs = options(&self.p).into_iter().flat_map(with);
        pairs.map(|(p, r)| ApplicationInstance { p, r, application: self.resolve(p, r) }).collect()
    }

    fn resolve(&self, p: Option<f64>, r: Option<f64>) -> Application {
        let (p, r) = (p.unwrap_or(0.0), r.unwrap_or(0.0));
        let share = |share| match share {
            ShareSpec::Fixed(share) => share,
            ShareSpec::P => p,
            ShareSpec::OneMinusP => 1.0 - p,
            ShareSpec::R => r,
            ShareSpec::OneMinusR => 1.0 - r,
        };
        let step = |step: &StepSpec| match *step {
            StepSpec::Work(of) => Step::Work(share(of)),
            StepSpec::Wait(of) => Step::Wait(share(of)),
            StepSpec::Lock(lock) => Step::Acquire(lock),
            StepSpec::Unlock(lock) => Step::Release(lock),
        };
        let path = |path: &PathSpec| Path { share: share(path.share), steps: path.steps.iter().map(step).collect() };
        Application { locks: self.locks.clone(), paths: self.paths.iter().map(path).collect() }
    }

    fn uses_any(&self, shares: &[ShareSpec]) -> bool {
        let in_step =
            |step: &StepSpec| matches!(step, StepSpec::Work(share) | StepSpec::Wait(share) if shares.contains(share));
        self.paths.iter().any(|path| shares.contains(&path.share) || path.steps.iter().any(in_step))
    }
}

/// Reads the application of `[workload]`; `None` without paths.
pub(super) fn application(workload: &Reader<'_>) -> Result<Option<ApplicationSpec>, ScenarioError> {
    let Some(item) = workload.find("path") else {
        for key in ["locks", "p", "r"] {
            if let Some(item) = workload.find(key) {
                return Err(item.error("without any [[workload.path]] it means nothing; accepted: both"));
            }
        }
        return Ok(None);
    };
    let locks = match workload.find("locks") {
        None => Vec::new(),
        Some(item) => item.list(MAX_STEPS)?.iter().map(name).collect::<Result<_, _>>()?,
    };
    let paths = item.tables(MAX_STEPS, &["share", "steps"])?;
    let paths = paths.iter().map(|table| path(table, &locks)).collect::<Result<_, ScenarioError>>()?;
    let values = |key| match workload.find(key) {
        None => Ok(Vec::new()),
        Some(item) => distinct(&item, percent),
    };
    let spec = ApplicationSpec { locks, paths, p: values("p")?, r: values("r")? };
    for (key, shares, given) in [
        ("p", [ShareSpec::P, ShareSpec::OneMinusP], !spec.p.is_empty()),
        ("r", [ShareSpec::R, ShareSpec::OneMinusR], !spec.r.is_empty()),
    ] {
        match (given, spec.uses_any(&shares)) {
            (false, true) => return Err(workload.error(key, "missing; a path names it")),
            (true, false) => {
                return Err(workload.error(key, "no path names it; accepted: a share or work of `p` or `r`"));
            }
            _ => {}
        }
    }
    for instance in spec.instances() {
        instance.application.check().map_err(|problem| item.error(problem))?;
    }
    Ok(Some(spec))
}

fn name(item: &Item<'_>) -> Result<String, ScenarioError> {
    let text = item.text()?;
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > 60 || !text.chars().all(fine) {
        return Err(item.unexpected("a lock's name of 1 to 60 ASCII letters, digits, - and _"));
    }
    Ok(text.into())
}

fn path(table: &Reader<'_>, locks: &[String]) -> Result<PathSpec, ScenarioError> {
    let share_item = table.require("share", "the share of requests that take the path, such as \"20%\" or \"p\"")?;
    let steps = table.require("steps", "a list such as [\"lock slow\", \"work 100%\", \"unlock slow\"]")?;
    Ok(PathSpec {
        share: share(share_item.text()?).ok_or_else(|| share_item.unexpected(SHARE))?,
        steps: steps.list(MAX_STEPS)?.iter().map(|item| step(item, locks)).collect::<Result<_, ScenarioError>>()?,
    })
}

const SHARE: &str = "a share such as \"20%\", \"p\", \"1-p\", \"r\" or \"1-r\"";

fn share(text: &str) -> Option<ShareSpec> {
    match text {
        "p" => Some(ShareSpec::P),
        "1-p" => Some(ShareSpec::OneMinusP),
        "r" => Some(ShareSpec::R),
        "1-r" => Some(ShareSpec::OneMinusR),
        _ => parse_number(text).ok().filter(|share| *share <= 1.0).map(ShareSpec::Fixed),
    }
}

fn step(item: &Item<'_>, locks: &[String]) -> Result<StepSpec, ScenarioError> {
    let text = item.text()?;
    let unexpected = || {
        let known = if locks.is_empty() { "no locks are named".into() } else { format!("locks: {}", locks.join(", ")) };
        item.unexpected(format!("a step `work 30%`, `wait 30%`, `lock NAME` or `unlock NAME` ({known})"))
    };
    let (verb, object) = text.split_once(' ').ok_or_else(unexpected)?;
    let object = object.trim();
    let lock = || locks.iter().position(|name| name == object).ok_or_else(unexpected);
    match verb {
        "work" => share(object).map(StepSpec::Work).ok_or_else(unexpected),
        "wait" => share(object).map(StepSpec::Wait).ok_or_else(unexpected),
        "lock" => Ok(StepSpec::Lock(lock()?)),
        "unlock" => Ok(StepSpec::Unlock(lock()?)),
        _ => Err(unexpected()),
    }
}

fn percent(item: &Item<'_>) -> Result<f64, ScenarioError> {
    let share = match &item.node.value {
        Value::Text(text) => parse_number(text).ok(),
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    };
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| item.unexpected("a share from 0% to 100%, such as \"20%\""))
}

/// Reads `lock` and `acquire` of a `[[controller]]`. Also returns whether the budget is derived
/// from measurements.
pub(super) fn lock_model(controller: &Reader<'_>) -> Result<(LockModel, bool), ScenarioError> {
    let kind = match controller.find("lock").map(|item| item.choice(&["mutex", "spinlock"])).transpose()? {
        Some(1) => LockKind::Spinlock,
        _ => LockKind::Mutex,
    };
    let item = controller.find("acquire");
    if item.as_ref().is_some_and(|item| matches!(item.text(), Ok("unless-congested"))) {
        return Ok((LockModel { kind, acquire: LockPolicy::Plain }, true));
    }
    let acquire = item.map_or(Ok(LockPolicy::Plain), |item| acquire(&item))?;
    Ok((LockModel { kind, acquire }, false))
}

fn acquire(item: &Item<'_>) -> Result<LockPolicy, ScenarioError> {
    const EXPECTED: &str = "\"plain\", \"unless-congested:134us\" (the budget; without one on the real plant: what the objective leaves), \"unless-congested-once:134us\", \"try\" or \"timed:1ms\" (the longest wait)";
    let text = item.text()?;
    let span = |text: &str| parse_duration(text).ok().filter(|span| *span <= MAX_WAIT);
    let read = match text.split_once(':') {
        None if text == "plain" => Some(LockPolicy::Plain),
        None if text == "try" => Some(LockPolicy::Try),
        Some(("unless-congested", budget)) => {
            span(budget).map(|budget| LockPolicy::UnlessCongested { budget, recheck: true })
        }
        Some(("unless-congested-once", budget)) => {
            span(budget).map(|budget| LockPolicy::UnlessCongested { budget, recheck: false })
        }
        Some(("timed", after)) => span(after).map(|after| LockPolicy::Timed { timeout: after }),
        _ => None,
    };
    read.ok_or_else(|| item.unexpected(EXPECTED))
}
