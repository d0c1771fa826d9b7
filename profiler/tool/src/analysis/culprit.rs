//! The function behind the difference between slow requests and others, its calls included.
//!
//! Where all calls are recorded, this is not the leaf in which the time is spent, but the function
//! that the others do not call, with its path. Samples don't tell what others call: there it is the
//! innermost function of the program that still contains the difference. Where only what leads to
//! every request contains it, the slowest have several causes, and it is the greatest of these.

use std::collections::HashMap;

use serde::Serialize;

use super::activity::Activity;
use super::breakdown::Cause;
use super::findings::Group;
use super::names::wraps;
use super::responsible::{PathCall, responsible};
use crate::hash::Map;
use crate::span::{format_nanos, percent};
use crate::symbols::Symbols;

/// Limit of nodes in the call tree.
const NODES: usize = 1 << 14;
/// Limit of the depth of paths.
const DEPTH: usize = 64;
/// Number of functions shown below the culprit in a path.
const TAIL_LEN: usize = 6;

/// The function that makes the slow requests slow.
///
/// Spans are in nanoseconds per request, calls of the function included.
#[derive(Clone, Debug, Serialize)]
pub struct Culprit {
    /// The function.
    pub function: String,
    /// Mean over the slowest.
    pub slow: u64,
    /// Mean over the others.
    pub rest: u64,
    /// Share of the difference in latency, in per cent.
    pub explains: f64,
    /// Share of the slowest that call it, in per cent.
    pub in_slow: f64,
    /// Share of the others that call it, in per cent.
    pub in_rest: f64,
    /// Calls from the request down to the place of most of its time; the culprit is among them.
    pub path: Vec<String>,
    /// The result as a sentence.
    pub text: String,
}

#[derive(Debug)]
struct Node {
    function: u64,
    parent: usize,
    depth: usize,
    nanos: u64,
    time: u64,
    /// Threads wait for work in it, too.
    calls_wait: bool,
}

/// Tree of the calls in the slow requests, with their times.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    indices: Map<(usize, u64), usize>,
}

/// Parent of the outermost calls.
const NONE: usize = usize::MAX;

impl Tree {
    /// Adds time with this stack, the outermost call first.
    pub(super) fn add(&mut self, stack: &[Activity], nanos: u64, time: u64, calls_wait: impl Fn(u64) -> bool) {
        let (mut at, mut depth) = (NONE, 0);
        for activity in stack {
            let Activity::Call { function, .. } = *activity else { continue };
            // Direct recursion is one step.
            if at != NONE && self.nodes[at].function == function {
                continue;
            }
            let index = match self.indices.get(&(at, function)) {
                Some(index) => *index,
                None if self.nodes.len() >= NODES => break,
                None => {
                    let calls_wait = calls_wait(function);
                    self.nodes.push(Node { function, parent: at, depth, nanos: 0, time, calls_wait });
                    self.indices.insert((at, function), self.nodes.len() - 1);
                    self.nodes.len() - 1
                }
            };
            self.nodes[index].nanos += nanos;
            (at, depth) = (index, depth + 1);
            if depth >= DEPTH {
                break;
            }
        }
    }

    /// Returns for each name the depth and index of the node with most of its time.
    fn heaviest(&self, symbols: &mut Symbols) -> HashMap<String, (usize, usize)> {
        let mut heaviest: HashMap<String, (usize, usize)> = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let name = symbols.location(node.function, node.time).function();
            let best = heaviest.entry(name).or_insert((node.depth, index));
            if node.nanos > self.nodes[best.1].nanos {
                *best = (node.depth, index);
            }
        }
        heaviest
    }

    /// Returns the nodes from the outermost call down to this one.
    fn ancestors(&self, place: usize) -> Vec<usize> {
        let mut path: Vec<usize> =
            std::iter::successors(Some(place), |at| Some(self.nodes[*at].parent).filter(|parent| *parent != NONE))
                .collect();
        path.reverse();
        path
    }

    /// Returns the calls, from the outer to the inner, that each take most of this node's time.
    fn below(&self, place: usize) -> Vec<usize> {
        let least = self.nodes[place].nanos / 2;
        let next = |at: &usize| {
            let below = self.nodes.iter().enumerate().filter(|(_, node)| node.parent == *at);
            let heaviest = below.max_by_key(|(_, node)| node.nanos).filter(|(_, node)| node.nanos > least);
            heaviest.map(|(index, _)| index)
        };
        std::iter::successors(next(&place), next).take(TAIL_LEN).collect()
    }

    fn path(&self, symbols: &mut Symbols, place: usize) -> Vec<String> {
        let mut path = self.ancestors(place);
        let path_to = path.len();
        path.extend(self.below(place));
        let names: Vec<String> = path.iter().map(|at| self.name(symbols, *at)).collect();
        let is_wrapper = |index: usize| {
            // The culprit itself is always shown.
            index + 1 != path_to
                && path
                    .get(index + 1)
                    .is_some_and(|next| self.passes_on(path[index], *next) && wraps(&names[index], &names[index + 1]))
        };
        // What leads to any request says nothing about these.
        let common = path[..path_to - 1].iter().take_while(|at| self.nodes[**at].calls_wait).count();
        let shown = names.iter().enumerate().skip(common).filter(|(index, _)| !is_wrapper(*index));
        shown.map(|(_, name)| name.clone()).collect()
    }

    fn name(&self, symbols: &mut Symbols, place: usize) -> String {
        symbols.location(self.nodes[place].function, self.nodes[place].time).function()
    }

    /// Returns whether nearly all the time of a node is spent in one node below it.
    fn passes_on(&self, index: usize, below: usize) -> bool {
        self.nodes[below].parent == index && self.nodes[below].nanos / 95 >= self.nodes[index].nanos / 100
    }

    /// Returns the node to name on the path to the one that contains the difference. `is_apart`
    /// tells functions that ordinary requests hardly call.
    fn responsible(&self, symbols: &mut Symbols, place: usize, is_apart: impl Fn(&str) -> bool) -> usize {
        let (path, below) = (self.ancestors(place), self.below(place));
        let mut call = |at: &usize| {
            let Node { function, time, calls_wait, .. } = self.nodes[*at];
            let location = symbols.location(function, time);
            PathCall::new(&location, calls_wait, is_apart(&location.function()))
        };
        let calls: Vec<PathCall> = path.iter().map(&mut call).collect();
        let inner: Vec<PathCall> = below.iter().map(&mut call).collect();
        path.iter().chain(&below).nth(responsible(&calls, &inner)).copied().unwrap_or(place)
    }

    /// Returns the node below all wrappers that begin at `place`.
    fn unwrapped(&self, symbols: &mut Symbols, place: usize) -> usize {
        let mut place = place;
        for _ in 0..DEPTH {
            let below = (0..self.nodes.len()).find(|below| self.passes_on(place, *below));
            let Some(below) = below.filter(|below| wraps(&self.name(symbols, place), &self.name(symbols, *below)))
            else {
                break;
            };
            place = below;
        }
        place
    }
}

/// Finds the function that explains most of the difference and that the others call least.
///
/// Among equals it is the one that calls the others; of sampled calls the innermost. `None` if no
/// function explains a good part of the difference, or nothing of the program ran in most of it.
pub(super) fn culprit(
    symbols: &mut Symbols,
    slow: &Group,
    rest: &Group,
    sampled: bool,
    tree: &Tree,
) -> Option<Culprit> {
    /// Least share of the difference that a culprit explains, in per cent.
    const LEAST: f64 = 25.0;
    /// Difference of the shares of calling requests from which a function belongs to the slow ones,
    /// in per cent.
    const APART: f64 = 20.0;
    /// Share of the greatest difference that the innermost function still contains.
    const CONTAINED: f64 = 0.8;
    /// A function says nothing if it is in the others as often as in such a part of the slowest.
    const COMMON: f64 = 0.9;
    let difference = slow.mean().saturating_sub(rest.mean()) as f64;
    if difference <= 0.0 {
        return None;
    }
    let heaviest = tree.heaviest(symbols);
    let mut names: HashMap<String, [(u64, u64); 2]> = HashMap::new();
    for (side, group) in [slow, rest].into_iter().enumerate() {
        for (function, sum) in &group.inclusive.0 {
            let sums = names.entry(symbols.location(*function, sum.latest).function()).or_default();
            sums[side].0 += (sum.on_cpu as f64 * group.cpu_scale) as u64 + sum.waiting;
            sums[side].1 = sums[side].1.max(sum.requests);
        }
    }
    let share = |part: u64, whole: u64| (part as f64 * 100.0 / whole.max(1) as f64).min(100.0);
    let mut all: Vec<(usize, Culprit)> = Vec::new();
    for (function, [of_slow, of_rest]) in names {
        let Some((depth, _)) = heaviest.get(&function) else { continue };
        let mean = |group: &Group, nanos: u64| nanos / group.requests.max(1);
        let (in_slow, in_rest) = (share(of_slow.1, slow.with_calls), share(of_rest.1, rest.with_calls));
        let (slow, rest) = (mean(slow, of_slow.0), mean(rest, of_rest.0));
        let explains = slow.saturating_sub(rest) as f64 * 100.0 / difference;
        if explains >= LEAST {
            let (path, text) = (Vec::new(), String::new());
            all.push((*depth, Culprit { function, slow, rest, explains, in_slow, in_rest, path, text }));
        }
    }
    let score = |one: &Culprit| {
        let excess = one.in_slow - one.in_rest;
        if excess >= APART { one.explains.min(100.0) * excess } else { 0.0 }
    };
    let best = all.iter().map(|(_, one)| score(one)).fold(0.0, f64::max);
    // Several functions may have the same name, such as `(anonymous)`.
    let most = all.iter().map(|(_, one)| one.explains.min(100.0)).fold(0.0, f64::max);
    // A sample falls into few of the short requests: their calls are not known.
    let outermost = |least: f64| {
        let found = all.iter().filter(|(_, one)| score(one) >= least);
        found.min_by(|a, b| (a.0, &a.1.function).cmp(&(b.0, &b.1.function)))
    };
    let innermost = |is_meant: &dyn Fn(&Culprit) -> bool| {
        let found = all.iter().filter(|(_, one)| is_meant(one));
        found.max_by(|a, b| (a.0, &b.1.function).cmp(&(b.0, &a.1.function)))
    };
    let (_, mut chosen) = if best > 0.0 && !sampled {
        outermost(0.95 * best)?.clone()
    } else {
        // All requests call the same functions: the innermost that still contains the difference.
        let whole = innermost(&|one| one.explains >= CONTAINED * most)?;
        let is_common = whole.1.in_rest >= COMMON * whole.1.in_slow;
        let part = innermost(&|one| is_common && best > 0.0 && score(one) >= 0.95 * best);
        part.unwrap_or(whole).clone()
    };
    let mut place = heaviest[&chosen.function].1;
    if sampled {
        let is_apart = |function: &str| {
            let found = all.iter().find(|(_, one)| one.function == function);
            found.is_some_and(|(_, one)| one.in_rest < one.in_slow / 10.0)
        };
        place = tree.responsible(symbols, place, is_apart);
        let name = tree.name(symbols, place);
        chosen = all.into_iter().map(|(_, one)| one).find(|one| one.function == name)?;
        if slow.mean_of(Cause::Idle).saturating_sub(rest.mean_of(Cause::Idle)) as f64 * 100.0 / difference
            > chosen.explains
        {
            return None;
        }
    } else {
        place = tree.unwrapped(symbols, place);
        chosen.function = tree.name(symbols, place);
    }
    chosen.path = tree.path(symbols, place);
    chosen.text = describe(&chosen, sampled);
    Some(chosen)
}

fn describe(culprit: &Culprit, sampled: bool) -> String {
    let Culprit { function, slow, rest, explains, in_slow, in_rest, path, .. } = culprit;
    let explains = explains.min(100.0);
    let of = |share: f64| percent((share * 10.0) as u64, 1000);
    let mut text = format!(
        "{explains:.0} % of the difference is in {function} with all that it calls: {} per request in the slowest, {} in the others ({} in {} of the slowest and {} of the others).",
        format_nanos(*slow),
        format_nanos(*rest),
        if sampled { "seen" } else { "called" },
        of(*in_slow),
        of(*in_rest)
    );
    if path.len() > 1 {
        text += &format!(" Path: {}.", path.join(" > "));
    }
    text
}
