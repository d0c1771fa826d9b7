//! Evaluation of an expression over the rows of one seed.

use super::{Comparison, Condition, Expression, Function, Node, Operand, Operator, Selection};
use crate::numbers::median;
use leeward_outcome::results::{PointRow, Results};
use leeward_outcome::table::{Cell, Row, TOLERANCE, Table};

impl Expression {
    /// Value for one seed; `None` if a selection matches no row. It may be infinite or NaN.
    pub fn evaluate(&self, results: &Results, seed: u64) -> Option<f64> {
        scalar(&self.node, results, seed)
    }

    /// The runs of one seed whose rows the expression uses, possibly several times, each with
    /// whether it had settled in what the expression uses; `None` if nothing observed it.
    pub fn runs<'a>(&self, results: &'a Results, seed: u64) -> Vec<(&'a PointRow, Option<bool>)> {
        let mut runs = Vec::new();
        collect_runs(&self.node, results, seed, &mut runs);
        runs
    }
}

/// Whether `selection` may match rows of the run of which the columns `setup` are known.
pub(super) fn may_select(selection: &Selection, setup: &PointRow) -> bool {
    let is_known = |condition: &&Condition| match selection.table {
        Table::Points => GIVEN.contains(&condition.field.as_str()),
        _ => WORKLOAD.contains(&condition.field.as_str()) && condition.field != "service",
    };
    selection.label.as_deref().is_none_or(|label| setup.run.label == label)
        && selection.conditions.iter().filter(is_known).all(|condition| matches(condition, Row::PointRow(setup)))
}

fn collect_runs<'a>(node: &Node, results: &'a Results, seed: u64, runs: &mut Vec<(&'a PointRow, Option<bool>)>) {
    match node {
        Node::Number(_) => {}
        Node::Negate(inner) => collect_runs(inner, results, seed, runs),
        Node::Select(selection) => {
            let mut add = |point| runs.push((point, has_settled(&selection.field, point)));
            for row in rows(selection, results, seed) {
                match row {
                    Row::PointRow(point) => add(point),
                    row => results.points.iter().filter(|point| is_of_run(row, point)).for_each(&mut add),
                }
            }
        }
        Node::Binary(_, left, right) => {
            collect_runs(left, results, seed, runs);
            collect_runs(right, results, seed, runs);
        }
        Node::Call(_, arguments) => arguments.iter().for_each(|node| collect_runs(node, results, seed, runs)),
    }
}

/// Whether a run had settled in `field`.
fn has_settled(field: &str, point: &PointRow) -> Option<bool> {
    match field {
        "throughput_rps" | "cpu_utilization" => point.throughput_settled,
        "offered" => point.settled.map(|_| true),
        field if GIVEN.contains(&field) => point.settled.map(|_| true),
        _ => point.settled,
    }
}

/// Fields that are known before a run: those that `rows::setup` fills.
const GIVEN: [&str; 20] = [
    "controller",
    "label",
    "seed",
    "service",
    "demand_rps",
    "demand_ratio",
    "clients",
    "p",
    "r",
    "service_mean_us",
    "capacity_rps",
    "slo_us",
    "rtt_us",
    "allocator",
    "balancing",
    "arrivals",
    "threading",
    "fanout",
    "model",
    "pool",
];

/// Fields by which rows of other tables name the workload of their run.
const WORKLOAD: [&str; 5] = ["service", "demand_ratio", "clients", "p", "r"];

/// Whether `row` is of the run of `point`.
fn is_of_run(row: Row<'_>, point: &PointRow) -> bool {
    let same = |field: &&str| match row.cell(field) {
        Cell::Absent => true,
        cell => cell == Row::PointRow(point).cell(field),
    };
    *row.run() == point.run && WORKLOAD.iter().all(same)
}

/// Evaluates a node. A selection that matches several rows counts as their mean.
fn scalar(node: &Node, results: &Results, seed: u64) -> Option<f64> {
    match node {
        Node::Number(number) => Some(*number),
        Node::Negate(inner) => scalar(inner, results, seed).map(|value| -value),
        Node::Select(selection) => aggregate(Function::Mean, select(selection, results, seed)),
        Node::Binary(operator, left, right) => {
            let (left, right) = (scalar(left, results, seed)?, scalar(right, results, seed)?);
            Some(match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                Operator::Divide => left / right,
            })
        }
        Node::Call(function, arguments) => {
            let mut values = Vec::new();
            for argument in arguments {
                match argument {
                    Node::Select(selection) => {
                        let rows = select(selection, results, seed);
                        if rows.is_empty() {
                            return None;
                        }
                        values.extend(rows);
                    }
                    other => values.push(scalar(other, results, seed)?),
                }
            }
            aggregate(*function, values)
        }
    }
}

fn aggregate(function: Function, mut values: Vec<f64>) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Some(match function {
        Function::Min => values.into_iter().fold(f64::INFINITY, f64::min),
        Function::Max => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
        Function::Mean => values.iter().sum::<f64>() / values.len() as f64,
        Function::Median => median(&mut values),
    })
}

fn select(selection: &Selection, results: &Results, seed: u64) -> Vec<f64> {
    rows(selection, results, seed).filter_map(|row| number(row, &selection.field)).collect()
}

/// Latencies of responses: zero in a row without responses, which is no number.
const LATENCIES: [&str; 4] = ["p50_us", "p99_us", "p999_us", "mean_us"];

fn number(row: Row<'_>, field: &str) -> Option<f64> {
    let is_missing = |number: &f64| *number == 0.0 && LATENCIES.contains(&field);
    row.cell(field).number().filter(|number| !is_missing(number))
}

fn rows<'a>(selection: &Selection, results: &'a Results, seed: u64) -> impl Iterator<Item = Row<'a>> {
    let of_run = move |row: &Row<'_>| {
        let run = row.run();
        run.seed == seed && selection.label.as_deref().is_none_or(|label| run.label == label)
    };
    let rows = selection.table.rows(results).filter(of_run);
    rows.filter(|row| selection.conditions.iter().all(|condition| matches(condition, *row)))
}

fn matches(condition: &Condition, row: Row<'_>) -> bool {
    match (row.cell(&condition.field), &condition.value) {
        (Cell::Text(found), Operand::Text(target)) => (found == target) == (condition.comparison == Comparison::Equal),
        // A row without the field has another text.
        (Cell::Absent, Operand::Text(_)) => condition.comparison == Comparison::NotEqual,
        (found, Operand::Number(target)) => {
            found.number().is_some_and(|found| compare(found, condition.comparison, *target))
        }
        _ => false,
    }
}

fn compare(found: f64, comparison: Comparison, target: f64) -> bool {
    let equal = (found - target).abs() <= TOLERANCE * target.abs();
    match comparison {
        Comparison::Equal => equal,
        Comparison::NotEqual => !equal,
        Comparison::AtLeast => found > target || equal,
        Comparison::AtMost => found < target || equal,
        Comparison::Above => found > target && !equal,
        Comparison::Below => found < target && !equal,
    }
}
