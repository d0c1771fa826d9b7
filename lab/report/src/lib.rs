//! Results as one self-contained HTML page: the paper's figure redrawn, and its claims held against ours.
//!
//! The page needs no network, no fonts and no script: without JavaScript the tooltips are the browser's own and the theme
//! follows the system. The same results give the same bytes, so that reports can be compared and kept.
//!
//! ```
//! use leeward_outcome::results::Results;
//!
//! let page = leeward_report::render(&Results { title: "Goodput under overload".into(), ..Results::default() });
//! assert!(page.starts_with("<!DOCTYPE html>"));
//! ```
#![forbid(unsafe_code)]

mod chart;
mod claims;
mod fields;
mod machine;
mod page;
mod palette;
mod select;
mod strip;
mod tables;
mod verdicts;

pub use palette::{VariantStyle, extra_colors, variant_styles};

use leeward_outcome::results::Results;
use leeward_outcome::verdicts::{FigureNote, Verdicts};

/// Draws `results` as one HTML document.
///
/// Any results can be drawn: a value that is not finite is left out of its figure, and the figure says so.
pub fn render(results: &Results) -> String {
    page::document(results).into_string()
}

/// Draws the verdicts on many scenarios' claims as one HTML document; the notes say what becomes of each figure.
pub fn render_verdicts(verdicts: &Verdicts, notes: &[FigureNote]) -> String {
    verdicts::document(verdicts, notes).into_string()
}
