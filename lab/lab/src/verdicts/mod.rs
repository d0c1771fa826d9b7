//! The papers' claims over many scenarios: each scenario runs with the algorithms as published and
//! with our additions, and every claim is judged in both forms.
//!
//! - `forms`: the two forms of a scenario.
//! - `run`: a scenario's runs in both forms, and the verdicts on its claims.
//! - `figures`: the papers' figures, with the scenarios that judge each.
//! - `expectations`: exact expected verdicts, and detection of flips.
//! - `perturbations`: worlds that differ in one invented parameter.
//! - `sensitivity`: the same claims in all of these worlds.
//! - `panels`: numbers in the papers' texts on the figures' curves, with our curves.
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
pub use run::{Extent, VerdictsError, fill_bounds, fill_remedies, judge_scenario, scenarios};
pub use sensitivity::{probe, sensitivity};
