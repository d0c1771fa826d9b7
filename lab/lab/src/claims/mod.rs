//! The language for a scenario's claims, such as `goodput_rps{breakwater, demand_ratio=2} /
//! goodput_rps{seda, demand_ratio=2}`, and their verdicts.
//!
//! An expression is evaluated once per seed; the median over the seeds and its confidence interval
//! count. `docs/scenarios.md` describes the language.
//!
//! - `parse`: text to [`Expression`].
//! - `evaluate`: [`Expression`] and results to a number.
//! - `interval`: confidence interval of the median over the seeds.
//! - `judge`: the numbers of all seeds to a [`leeward_outcome::results::Claim`].

mod evaluate;
mod interval;
mod judge;
mod parse;

pub(crate) use interval::{bootstrap, median_with_infinities};
pub use judge::judge;
pub use parse::ExpressionError;
pub(crate) use parse::read_number;

use leeward_outcome::results::PointRow;
use leeward_outcome::table::Table;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    node: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Select(Selection),
    Negate(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Min,
    Max,
    Mean,
    Median,
}

/// A field of all rows that meet the conditions.
#[derive(Clone, Debug, PartialEq)]
struct Selection {
    table: Table,
    field: String,
    label: Option<String>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    field: String,
    comparison: Comparison,
    value: Operand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    AtLeast,
    AtMost,
    Above,
    Below,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Number(f64),
    Text(String),
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// The first syntax error, with the accepted alternatives.
    ///
    /// ```
    /// use leeward_lab::claims::Expression;
    /// assert!(Expression::parse("max(goodput_rps{none}) / 1000").is_ok());
    /// assert!(Expression::parse("goodness{none}").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Expression, ExpressionError> {
        parse::expression(text).map(|node| Expression { node })
    }

    /// Whether the expression may use rows of the run of which the columns `setup` are known.
    pub(crate) fn may_use(&self, setup: &PointRow) -> bool {
        let mut is_used = false;
        visit(&self.node, &mut |selection| is_used |= evaluate::may_select(selection, setup));
        is_used
    }

    /// Labels in the expression, alone or as `label=…`.
    pub fn labels(&self) -> Vec<String> {
        let mut labels = self.texts("label");
        visit(&self.node, &mut |selection| labels.extend(selection.label.clone()));
        labels
    }

    /// Texts with which the expression compares `field`.
    pub fn texts(&self, field: &str) -> Vec<String> {
        let mut texts = Vec::new();
        visit(&self.node, &mut |selection| {
            let of_field = selection.conditions.iter().filter(|condition| condition.field == field);
            texts.extend(of_field.filter_map(|condition| match &condition.value {
                Operand::Text(text) => Some(text.clone()),
                Operand::Number(_) => None,
            }));
        });
        texts
    }
}

/// Calls `look` for all selections within `node`.
fn visit(node: &Node, look: &mut impl FnMut(&Selection)) {
    match node {
        Node::Number(_) => {}
        Node::Select(selection) => look(selection),
        Node::Negate(inner) => visit(inner, look),
        Node::Binary(_, left, right) => {
            visit(left, look);
            visit(right, look);
        }
        Node::Call(_, arguments) => arguments.iter().for_each(|argument| visit(argument, look)),
    }
}
