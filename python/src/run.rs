//! All runs of a scenario, on threads that don't hold the interpreter.

use crate::errors;
use crate::patience::{Progress, Stop, run_in_thread};
use crate::results::Results;
use crate::scenario::Scenario;
use leeward_lab::run::{self, Options};
use leeward_lab::sweep::select;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl Scenario {
    /// Runs the whole scenario. `progress(done, total)` is called about ten times a second, on this
    /// thread.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one call from Python")]
    pub(crate) fn run_all(
        &self,
        py: Python<'_>,
        seed: u64,
        seeds: Option<u32>,
        labels: Option<Vec<String>>,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
        stop: Option<&Stop>,
    ) -> PyResult<Results> {
        let source = self.source.with(py, seeds.map(|count| format!("run.seeds={count}")));
        let threads = if source.decides_in_python() { Some(threads.unwrap_or(1)) } else { threads };
        let registry = source.registry(py)?;
        let cancel = Arc::new(AtomicBool::new(false));
        let counted = Arc::new(Progress::default());
        let (shared, flag) = (Arc::clone(&counted), Arc::clone(&cancel));
        let slots = source.class_slots();
        let mut checked = if !slots.is_empty() || seeds.is_some() {
            let checked = crate::patience::catch_panics(py, || source.check(source.overrides(), &registry))?;
            checked.map_err(|error| errors::scenario(py, &error))?
        } else {
            self.checked.clone()
        };
        if let Some(labels) = labels {
            for label in &labels {
                select(&mut checked.clone(), label).map_err(|error| errors::sweep(py, &error))?;
            }
            let chosen = |label: &str| labels.iter().any(|wanted| wanted == label);
            checked.controllers.retain(|variant| chosen(&variant.label) || chosen(&variant.base_label));
            // In the order of the choice.
            let place = |label: &str| labels.iter().position(|wanted| wanted == label);
            checked.controllers.sort_by_key(|variant| place(&variant.label).or(place(&variant.base_label)));
        }
        let finished = run_in_thread(py, &cancel, &counted, progress.as_ref(), stop, &slots, move || {
            let on_progress = |progress: run::Progress| {
                shared.total.store(progress.total, Ordering::Relaxed);
                shared.done.fetch_max(progress.done, Ordering::Relaxed);
            };
            let options = Options { seed, threads, ..Options::default() };
            run::run(&checked, &registry, &options, &on_progress, &flag)
        })?;
        finished.map(Results::new).map_err(|error| errors::run(py, &error))
    }
}
