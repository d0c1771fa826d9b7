//! Children of recorded processes that are not recorded themselves: workers of a server whose first
//! process only starts them.
//!
//! Does not record anything.

use std::collections::BTreeSet;

/// Limit of children that are named.
const NAMED: usize = 32;

/// Describes the processes below these that are not recorded, with the command to record them.
pub(super) fn not_recorded(recorded: &BTreeSet<u32>) -> Option<String> {
    let mut found: BTreeSet<u32> = BTreeSet::new();
    let mut parents: Vec<u32> = recorded.iter().copied().collect();
    while let Some(parent) = parents.pop() {
        for child in children_of(parent) {
            if !recorded.contains(&child) && found.insert(child) {
                parents.push(child);
            }
        }
    }
    describe(recorded.len(), &found)
}

fn describe(recorded: usize, found: &BTreeSet<u32>) -> Option<String> {
    let whose = if recorded == 1 { "the process" } else { "the processes" };
    let what = match found.len() {
        0 => return None,
        1 => format!("a child of {whose} was"),
        count => format!("{count} children of {whose} were"),
    };
    let which = match found.len() {
        1 => "it".into(),
        2..=NAMED => "them".into(),
        _ => format!("the first {NAMED}"),
    };
    let named: Vec<String> = found.iter().take(NAMED).map(ToString::to_string).collect();
    Some(format!("{what} not recorded; to record {which}: leeward profile record --pid {}", named.join(" ")))
}

/// Children of all threads of a process; none if it has ended.
fn children_of(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_thread = |path: std::path::PathBuf| std::fs::read_to_string(path.join("children")).unwrap_or_default();
    let lists = threads.map(|thread| of_thread(thread.path()));
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_command_can_be_pasted_whatever_the_number_of_children() {
        let command = |count: u32| {
            let described = describe(2, &(1..=count).collect()).unwrap();
            let (text, pids) = described.split_once(": leeward profile record --pid ").unwrap();
            assert!(pids.split(' ').all(|pid| pid.parse::<u32>().is_ok()), "{described}");
            (text.to_string(), pids.split(' ').count())
        };
        assert_eq!(command(1).0, "a child of the processes was not recorded; to record it");
        assert_eq!(command(32).0, "32 children of the processes were not recorded; to record them");
        let (text, named) = command(33);
        assert_eq!(text, "33 children of the processes were not recorded; to record the first 32");
        assert_eq!(named, 32);
    }

    #[test]
    fn children_and_theirs_are_named_with_the_command() {
        let shell = "sleep 60 & echo $!; read line; kill $!";
        let mut command = Command::new("sh");
        let mut child =
            command.args(["-c", shell]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let sleeping: u32 = line.trim().parse().unwrap();
        let said = not_recorded(&BTreeSet::from([child.id()])).unwrap();
        assert!(said.starts_with("a child of the process was not recorded; to record it:"), "{said}");
        assert!(said.ends_with(&format!("leeward profile record --pid {sleeping}")), "{said}");
        assert_eq!(not_recorded(&BTreeSet::from([child.id(), sleeping])), None);
        assert_eq!(not_recorded(&BTreeSet::from([u32::MAX])), None);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
