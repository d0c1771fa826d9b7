//! Evaluation of an expression over the rows of one seed.

use super::{Comparison, Condition, Expression, Function, Node, Operand, Operator, Selection};
use crate::numbers::median;
use leeward_outcome::results::Results;
use leeward_outcome::table::{Cell, Row};

/// Relative difference below which two numbers are equal: demands are computed from capacities that
/// are not round.
const TOLERANCE: f64 = 0.005;

impl Expression {
    /// Value for one seed; `None` if a selection matches no row. It may be infinite or NaN.
    pub fn evaluate(&self, results: &Results, seed: u64) -> Option<f64> {
        scalar(&self.node, results, seed)
    }
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
    let of_run = |row: &Row<'_>| {
        let run = row.run();
        run.seed == seed && selection.label.as_deref().is_none_or(|label| run.label == label)
    };
    let rows = selection.table.rows(results).filter(of_run);
    rows.filter(|row| selection.conditions.iter().all(|condition| matches(condition, *row)))
        .filter_map(|row| row.cell(&selection.field).number())
        .collect()
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
