//! Results as one self-contained HTML page: the paper's figure redrawn, and its claims compared
//! with the measurements.
//!
//! For programs that show results. Entry point: [`render`].
//!
//! The page needs no network, fonts or script. Without JavaScript, the browser shows the tooltips
//! and the system sets the theme. The same results give the same bytes, so reports can be compared
//! and archived.
//!
//! ```
//! use leeward_outcome::results::Results;
//!
//! let title = "Goodput under overload".into();
//! let page = leeward_report::render(&Results { title, ..Results::default() });
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
mod text;
mod verdicts;

pub use palette::{VariantStyle, extra_colors, variant_styles};

use leeward_outcome::results::Results;
use leeward_outcome::verdicts::{FigureNote, Verdicts};

/// Draws `results` as one HTML document.
///
/// Any results can be drawn: a value that is not finite is left out of its figure, with a note.
pub fn render(results: &Results) -> String {
    page::document(results).into_string()
}

/// Draws the verdicts on the claims of many scenarios as one HTML document; `notes` describe each
/// figure.
pub fn render_verdicts(verdicts: &Verdicts, notes: &[FigureNote]) -> String {
    verdicts::document(verdicts, notes).into_string()
}
