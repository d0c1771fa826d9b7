//! The papers' claims over many scenarios: each scenario is run with the algorithms as published and with our additions, and every
//! claim is judged in both forms.
//!
//! - `forms`: a scenario's two forms.
//! - `run`: a scenario's runs in both, and the verdicts on its claims.
//! - `figures`: the papers' figures, and which scenario judges each.
//! - `expected`: verdicts written down exactly, and flips found.
//! - `sensitivity`: the same claims in a world that is a little different.
//! - `markdown`: the table of `docs/verdicts.md`.

mod expected;
mod figures;
mod forms;
mod markdown;
mod run;
mod sensitivity;

pub use expected::{Expectations, ExpectationsError};
pub use figures::{Figure, figures};
pub use markdown::markdown;
pub use run::{Extent, VerdictsError, judge_scenario, scenarios};
pub use sensitivity::{Changed, PERTURBATIONS, Perturbation, sensitivity};
