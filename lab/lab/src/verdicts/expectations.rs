//! Exact expected verdicts, so that a change that flips one is detected:
//! `experiments/verdicts-quick.txt`, with a readable line per claim.
//!
//! Does not contain the judging.

use super::run::Extent;
use leeward_outcome::results::Verdict;
use leeward_outcome::verdicts::ScenarioVerdicts;

/// Expected verdicts of some scenarios, with the extent of their runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectations {
    /// Seeds per point.
    pub seeds: u32,
    /// The first seed.
    pub seed: u64,
    /// Overrides of each scenario.
    pub overrides: Vec<String>,
    /// Ids of the scenarios, in the order of the file.
    pub scenarios: Vec<String>,
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    scenario: String,
    claim: String,
    published: String,
    extended: String,
    measured: String,
}

/// A syntax error in a file of expectations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ExpectationsError {
    /// Line number, from 1.
    pub line: usize,
    /// Description of the mistake.
    pub problem: String,
}

/// A verdict as one word without spaces.
fn verdict_word(verdict: Verdict) -> String {
    verdict.label().replace(' ', "-")
}

impl Expectations {
    /// Creates expectations from verdicts.
    pub fn from_verdicts(judged: &[ScenarioVerdicts], extent: &Extent) -> Expectations {
        let lines = judged.iter().flat_map(|scenario| {
            scenario.claims.iter().map(|claim| Line {
                scenario: scenario.id.clone(),
                claim: claim.published.id.clone(),
                published: verdict_word(claim.published.verdict),
                extended: verdict_word(claim.extended.verdict),
                measured: claim.claim().measured.clone(),
            })
        });
        Expectations {
            seeds: extent.seeds,
            seed: extent.seed,
            overrides: extent.overrides.clone(),
            scenarios: judged.iter().map(|scenario| scenario.id.clone()).collect(),
            lines: lines.collect(),
        }
    }

    /// Extent in which the expectations hold.
    pub fn extent(&self, threads: Option<usize>) -> Extent {
        Extent { seeds: self.seeds, seed: self.seed, quick: true, overrides: self.overrides.clone(), threads }
    }

    /// Differences from `now`, one line each; empty without differences.
    pub fn flips(&self, now: &Expectations) -> Vec<String> {
        let find = |lines: &[Line], expected: &Line| {
            lines.iter().find(|line| line.scenario == expected.scenario && line.claim == expected.claim).cloned()
        };
        let mut flips = Vec::new();
        for then in &self.lines {
            let name = format!("{} {}", then.scenario, then.claim);
            match find(&now.lines, then) {
                None => flips.push(format!("{name}: was {}, is gone", then.published)),
                Some(line) if (&line.published, &line.extended) != (&then.published, &then.extended) => {
                    flips.push(format!(
                        "{name}: was {} as published and {} with our additions ({}), is {} and {} ({})",
                        then.published, then.extended, then.measured, line.published, line.extended, line.measured
                    ));
                }
                Some(_) => {}
            }
        }
        let new = now.lines.iter().filter(|line| find(&self.lines, line).is_none());
        flips.extend(new.map(|line| format!("{} {}: is new, {}", line.scenario, line.claim, line.published)));
        flips
    }

    /// Text of the file.
    pub fn text(&self) -> String {
        let mut text = String::from(
            "# Verdicts of a quick subset, exactly: `leeward verdicts --check` fails at any flip. `leeward verdicts --record` writes this file\n\
             # anew; the commit says why a verdict has changed.\n\
             # scenario claim as-published with-our-additions # measured\n",
        );
        text += &format!("seeds {}\nseed {}\n", self.seeds, self.seed);
        self.overrides.iter().for_each(|given| text += &format!("set {given}\n"));
        self.scenarios.iter().for_each(|id| text += &format!("scenario {id}\n"));
        for Line { scenario, claim, published, extended, measured } in &self.lines {
            text += &format!("claim {scenario} {claim} {published} {extended} # {measured}\n");
        }
        text
    }

    /// Parses a file's text.
    ///
    /// # Errors
    /// The first line that is not one of `seeds`, `seed`, `set`, `scenario` and `claim`, or has an
    /// invalid value: no seed, a repeated scenario, a claim before its scenario. A file without a
    /// scenario is rejected, because it expects nothing.
    pub fn parse(text: &str) -> Result<Expectations, ExpectationsError> {
        let mut read =
            Expectations { seeds: 1, seed: 1, overrides: Vec::new(), scenarios: Vec::new(), lines: Vec::new() };
        for (index, line) in text.lines().enumerate() {
            let wrong = |problem: &str| ExpectationsError { line: index + 1, problem: problem.into() };
            let Some((key, rest)) = line.split_once(' ').filter(|(key, _)| *key != "#") else {
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                return Err(wrong("expected a key and a value"));
            };
            match key {
                "seeds" => {
                    let seeds = rest.parse().ok().filter(|&seeds| seeds > 0);
                    read.seeds = seeds.ok_or_else(|| wrong("expected a whole number, at least 1"))?;
                }
                "seed" => read.seed = rest.parse().map_err(|_| wrong("expected a whole number"))?,
                "set" => read.overrides.push(rest.into()),
                "scenario" if read.scenarios.iter().any(|id| id == rest) => {
                    return Err(wrong("the scenario is named twice"));
                }
                "scenario" => read.scenarios.push(rest.into()),
                "claim" => {
                    let (words, measured) = rest.split_once(" # ").unwrap_or((rest, ""));
                    let [scenario, claim, published, extended] = words.split(' ').collect::<Vec<_>>()[..] else {
                        return Err(wrong("expected a scenario, a claim and two verdicts"));
                    };
                    if !read.scenarios.iter().any(|id| id == scenario) {
                        return Err(wrong("the claim's scenario is not named before it"));
                    }
                    read.lines.push(Line {
                        scenario: scenario.into(),
                        claim: claim.into(),
                        published: published.into(),
                        extended: extended.into(),
                        measured: measured.into(),
                    });
                }
                _ => return Err(wrong("accepted: seeds, seed, set, scenario, claim")),
            }
        }
        if read.scenarios.is_empty() {
            let problem = "no line names a scenario: nothing would be checked".into();
            return Err(ExpectationsError { line: text.lines().count(), problem });
        }
        Ok(read)
    }
}
