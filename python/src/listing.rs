//! Lists to choose from: scenarios, controllers, fields of tables, and the styles of variants.

use crate::scenario::{builtin_text, unknown};
use leeward_lab::benchmark::random_scenario_text;
use leeward_lab::builtin_scenarios;
use leeward_lab::results::{PointRow, Results, RunKey};
use leeward_outcome::table::{Quantity, Table, column};
use pyo3::prelude::*;

/// Ids of the built-in scenarios; with `id` the text of that one, or of a random one such as
/// `random-91`.
#[pyfunction]
#[pyo3(signature = (id=None))]
pub(crate) fn scenarios(py: Python<'_>, id: Option<&str>) -> PyResult<Vec<String>> {
    match id {
        None => Ok(builtin_scenarios().iter().map(|known| known.id.to_string()).collect()),
        Some(id) => {
            let random = || random_scenario_text(id, &leeward_lab::registry());
            let text = builtin_text(id).map(str::to_string).or_else(random);
            text.map(|text| vec![text]).ok_or_else(|| unknown(py, id))
        }
    }
}

/// A parameter of a controller: name, default, summary, values worth trying.
type Param = (String, String, String, Vec<String>);

/// Controllers: name, summary, source, parameters.
#[pyfunction]
pub(crate) fn controllers() -> Vec<(String, String, String, Vec<Param>)> {
    let registry = leeward_lab::registry();
    let all = registry.algorithms().map(|algorithm| {
        let params = algorithm.params.iter().map(|spec| {
            let tune = spec.tuning_values.iter().map(ToString::to_string).collect();
            (spec.name.to_string(), spec.default.to_string(), spec.doc.to_string(), tune)
        });
        let texts = [algorithm.name, algorithm.summary, algorithm.source].map(String::from);
        let [name, summary, source] = texts;
        (name, summary, source, params.collect())
    });
    all.collect()
}

/// Styles in reports of variants, given as pairs of label and controller: label, colour, marker.
/// Also the colours of other series.
#[pyfunction]
pub(crate) fn looks(variants: Vec<(String, String)>) -> (Vec<(String, String, usize)>, Vec<&'static str>) {
    let point = |(label, controller): &(String, String)| PointRow {
        run: RunKey::new(controller, label, 0),
        ..PointRow::default()
    };
    let results = Results { points: variants.iter().map(point).collect(), ..Results::default() };
    let looks = leeward_report::variant_styles(&results).into_iter().map(|look| (look.label, look.color, look.marker));
    (looks.collect(), leeward_report::extra_colors())
}

/// Fields of the tables without duplicates: name, heading, unit.
#[pyfunction]
pub(crate) fn fields() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut names: Vec<&'static str> = Table::ALL.iter().flat_map(|table| table.fields().iter().copied()).collect();
    names.sort_unstable();
    names.dedup();
    let field = |name| column(name).map(|column| (name, column.heading, unit(column.quantity)));
    names.into_iter().filter_map(field).collect()
}

fn unit(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Requests | Quantity::Messages => "1/s",
        Quantity::Micros => "µs",
        Quantity::Millis => "ms",
        Quantity::Seconds => "s",
        _ => "",
    }
}
