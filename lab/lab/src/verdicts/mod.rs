//! The papers' claims over many scenarios: each scenario is run with the algorithms as published and with our additions, and every
//! claim is judged in both forms.
//!
//! - `forms`: a scenario's two forms.
//! - `run`: a scenario's runs in both, and the verdicts on its claims.
//! - `figures`: the papers' figures, and which scenario judges each.
//! - `expected`: verdicts written down exactly, and flips found.
//! - `worlds`: what is invented, and worlds that differ in one of these things.
//! - `sensitivity`: the same claims in all of these worlds.
//! - `panels`: what the texts say of the figures' curves, and ours beside it.
//! - `markdown`: the table of `docs/verdicts.md`.

mod expectations;
mod figures;
mod forms;
mod markdown;
mod panels;
mod perturbations;
mod run;
mod sensitivity;

pub use expectations::{Expectations, ExpectationsError};
pub use figures::{Figure, figure_notes, figures};
pub use markdown::markdown;
pub use perturbations::{PERTURBATIONS, Perturbation};
pub use run::{Extent, VerdictsError, fill_bounds, judge_scenario, scenarios};
pub use sensitivity::{probe, sensitivity};
