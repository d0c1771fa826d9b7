//! Parser of claims: sums of products of numbers, selections, calls and parentheses.

use super::{Comparison, Condition, Function, Node, Operand, Operator, Selection};
use leeward_core::units::{parse_number, parse_scaled};
use leeward_outcome::table::{Table, ValueType};

/// Maximum nesting depth. No claim needs more, and a deeper one could exhaust the stack.
const MAX_DEPTH: usize = 50;
const MAX_CHARS: usize = 4_000;

/// A syntax error in an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {position}: {problem}")]
pub struct ExpressionError {
    /// Position, in characters from 1.
    pub position: usize,
    /// Description of the mistake, with the accepted alternatives.
    pub problem: String,
}

pub(super) fn expression(text: &str) -> Result<Node, ExpressionError> {
    let mut parser = Parser { chars: text.chars().take(MAX_CHARS + 1).collect(), position: 0, depth: 0 };
    if parser.chars.len() > MAX_CHARS {
        return Err(parser.error(format!("longer than {MAX_CHARS} characters")));
    }
    let node = parser.sum()?;
    match parser.peek() {
        None => Ok(node),
        Some(c) => Err(parser.error(format!("`{c}` where the expression or `+ - * /` was expected"))),
    }
}

struct Parser {
    chars: Vec<char>,
    position: usize,
    depth: usize,
}

impl Parser {
    fn error(&self, problem: impl Into<String>) -> ExpressionError {
        ExpressionError { position: self.position + 1, problem: problem.into() }
    }

    /// Next character that is not a space.
    fn peek(&mut self) -> Option<char> {
        while self.chars.get(self.position).is_some_and(|c| c.is_whitespace()) {
            self.position += 1;
        }
        self.chars.get(self.position).copied()
    }

    fn eat(&mut self, expected: char) -> bool {
        let is_match = self.peek() == Some(expected);
        self.position += usize::from(is_match);
        is_match
    }

    fn expect(&mut self, expected: char) -> Result<(), ExpressionError> {
        if self.eat(expected) { Ok(()) } else { Err(self.error(format!("expected `{expected}`"))) }
    }

    fn take_while(&mut self, expected: impl Fn(char) -> bool) -> String {
        let start = self.position;
        while self.chars.get(self.position).is_some_and(|c| expected(*c)) {
            self.position += 1;
        }
        self.chars[start..self.position].iter().collect()
    }

    fn sum(&mut self) -> Result<Node, ExpressionError> {
        let mut node = self.product()?;
        loop {
            let operator = match self.peek() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Subtract,
                _ => return Ok(node),
            };
            self.position += 1;
            node = Node::Binary(operator, Box::new(node), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Node, ExpressionError> {
        let mut node = self.unary()?;
        loop {
            let operator = match self.peek() {
                Some('*') => Operator::Multiply,
                Some('/') => Operator::Divide,
                _ => return Ok(node),
            };
            self.position += 1;
            node = Node::Binary(operator, Box::new(node), Box::new(self.unary()?));
        }
    }

    fn unary(&mut self) -> Result<Node, ExpressionError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nested more than {MAX_DEPTH} deep")));
        }
        let node = if self.eat('-') { Node::Negate(Box::new(self.unary()?)) } else { self.atom()? };
        self.depth -= 1;
        Ok(node)
    }

    fn atom(&mut self) -> Result<Node, ExpressionError> {
        match self.peek() {
            Some('(') => {
                self.position += 1;
                let node = self.sum()?;
                self.expect(')')?;
                Ok(node)
            }
            Some(c) if c.is_ascii_digit() => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.call_or_selection(),
            _ => Err(self.error("expected a number, a selection such as `goodput_rps{breakwater}`, a function or `(`")),
        }
    }

    fn number(&mut self) -> Result<Node, ExpressionError> {
        let start = self.position;
        let text = self.take_while(|c| c.is_ascii_alphanumeric() || c == '.' || c == '%');
        let number = read_number(&text).ok_or_else(|| {
            self.position = start;
            self.error(format!("`{text}` is not a number such as `1.05`, `850k`, `1.2M` or `5%`"))
        })?;
        Ok(Node::Number(number))
    }

    /// Parses a function call or a selection.
    fn call_or_selection(&mut self) -> Result<Node, ExpressionError> {
        let start = self.position;
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut name = self.take_while(word);
        let function = match name.as_str() {
            "min" => Some(Function::Min),
            "max" => Some(Function::Max),
            "mean" => Some(Function::Mean),
            "median" => Some(Function::Median),
            _ => None,
        };
        if self.peek() == Some('(') {
            return match function {
                Some(function) => self.call(function),
                None => {
                    self.position = start;
                    Err(self.error(format!("unknown function `{name}`; accepted: min, max, mean, median")))
                }
            };
        }
        let mut table = Table::Points;
        if self.eat('.') {
            table = match name.as_str() {
                "points" => Table::Points,
                "windows" => Table::Windows,
                "shifts" => Table::Shifts,
                "locks" => Table::Locks,
                "replicas" => Table::Replicas,
                "services" => Table::Services,
                "kinds" => Table::Kinds,
                _ => {
                    self.position = start;
                    let accepted = "points, windows, shifts, locks, replicas, services, kinds";
                    return Err(self.error(format!("unknown table `{name}`; accepted: {accepted}")));
                }
            };
            name = self.take_while(word);
        }
        if table.value_type(&name) != Some(ValueType::Number) {
            self.position = start;
            let accepted = table.names(Some(ValueType::Number));
            return Err(self.error(format!("`{name}` is no number of {}; accepted: {accepted}", table.name())));
        }
        self.selection(table, name).map(Node::Select)
    }

    fn call(&mut self, function: Function) -> Result<Node, ExpressionError> {
        self.expect('(')?;
        let mut arguments = vec![self.sum()?];
        while self.eat(',') {
            arguments.push(self.sum()?);
        }
        self.expect(')')?;
        Ok(Node::Call(function, arguments))
    }

    /// Parses `{label, field=value, field>=value}`, or nothing for all rows.
    fn selection(&mut self, table: Table, field: String) -> Result<Selection, ExpressionError> {
        let mut selection = Selection { table, field, label: None, conditions: Vec::new() };
        if !self.eat('{') {
            return Ok(selection);
        }
        let mut first = true;
        while !self.eat('}') {
            if !first {
                self.expect(',')?;
            }
            self.peek();
            let start = self.position;
            let part = self.take_while(|c| c != ',' && c != '}');
            let part = part.trim();
            match condition(table, part) {
                Ok(condition) => selection.conditions.push(condition),
                // A label may contain `=` (`breakwater target=70us`), but not as `word=`.
                Err(_) if first && is_label(part) => selection.label = Some(part.into()),
                Err(problem) => {
                    self.position = start;
                    return Err(self.error(problem));
                }
            }
            first = false;
        }
        Ok(selection)
    }
}

fn is_label(part: &str) -> bool {
    let before = part.split(['=', '<', '>', '!']).next().unwrap_or("");
    !part.is_empty() && (before.len() == part.len() || before.trim().contains(' '))
}

fn condition(table: Table, part: &str) -> Result<Condition, String> {
    const COMPARISONS: [(&str, Comparison); 6] = [
        (">=", Comparison::AtLeast),
        ("<=", Comparison::AtMost),
        ("!=", Comparison::NotEqual),
        ("=", Comparison::Equal),
        (">", Comparison::Above),
        ("<", Comparison::Below),
    ];
    let end = part.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(part.len());
    let (field, rest) = (&part[..end], part[end..].trim_start());
    let shown: String = part.chars().take(40).collect();
    let (sign, comparison) = COMPARISONS.iter().find(|(sign, _)| rest.starts_with(sign)).ok_or_else(|| {
        format!("`{shown}` is no condition such as `demand_ratio=2`, `demand_ratio>=1` or `service=exp:10us`")
    })?;
    let value = rest[sign.len()..].trim();
    let value = match table.value_type(field) {
        None => {
            let accepted = table.names(None);
            return Err(format!("`{field}` is no field of {}; accepted: {accepted}", table.name()));
        }
        Some(ValueType::Text) => match comparison {
            Comparison::Equal | Comparison::NotEqual if !value.is_empty() => Operand::Text(value.into()),
            _ => return Err(format!("`{shown}`: a text is compared by `=` or `!=` with what follows")),
        },
        Some(ValueType::Number) => {
            let number = read_number(value.strip_suffix('x').unwrap_or(value));
            Operand::Number(number.ok_or_else(|| format!("`{shown}`: expected a number such as `2` or `850k`"))?)
        }
    };
    Ok(Condition { field: field.into(), comparison: *comparison, value })
}

/// Parses a number such as `2`, `5%` or `850k`.
pub(crate) fn read_number(text: &str) -> Option<f64> {
    parse_number(text).or_else(|_| parse_scaled(text)).ok()
}
