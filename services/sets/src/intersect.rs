//! Intersection of ascending lists.

/// Ratio of lengths from which two lists are not merged: the longer one is searched by doubling
/// steps.
const GALLOPS: usize = 16;

/// Keeps those elements of `kept` that are also in `list`. Both lists ascend.
pub fn retain(kept: &mut Vec<u32>, list: &[u32]) {
    if kept.len() * GALLOPS <= list.len() { gallop(kept, list) } else { merge(kept, list) }
}

/// Puts the intersection of all lists into `kept`, starting with the shortest; empty without lists.
pub fn all(lists: &mut [&[u32]], kept: &mut Vec<u32>) {
    lists.sort_unstable_by_key(|list| list.len());
    kept.clear();
    let Some((shortest, others)) = lists.split_first() else { return };
    kept.extend_from_slice(shortest);
    for list in others {
        if kept.is_empty() {
            return;
        }
        retain(kept, list);
    }
}

fn merge(kept: &mut Vec<u32>, list: &[u32]) {
    let mut at = 0;
    kept.retain(|id| {
        while list.get(at).is_some_and(|other| other < id) {
            at += 1;
        }
        list.get(at) == Some(id)
    });
}

fn gallop(kept: &mut Vec<u32>, list: &[u32]) {
    let mut rest = list;
    kept.retain(|id| {
        let mut step = 1;
        while rest.get(step).is_some_and(|other| other < id) {
            step *= 2;
        }
        let window = &rest[step / 2..rest.len().min(step + 1)];
        rest = &rest[step / 2 + window.partition_point(|other| other < id)..];
        rest.first() == Some(id)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn both_algorithms_intersect_like_plain_sets(a: BTreeSet<u8>, b in prop::collection::btree_set(0u32..2_000, 0..900)) {
            let short: Vec<u32> = a.iter().map(|id| u32::from(*id) * 7).collect();
            let long: Vec<u32> = b.iter().copied().collect();
            let common: Vec<u32> = short.iter().filter(|id| b.contains(id)).copied().collect();
            for way in [merge, gallop, |kept: &mut Vec<u32>, list: &[u32]| retain(kept, list)] {
                let mut kept = short.clone();
                way(&mut kept, &long);
                prop_assert_eq!(&kept, &common);
            }
        }

        #[test]
        fn many_lists_intersect_in_any_order(lists in prop::collection::vec(prop::collection::btree_set(0u32..60, 0..60), 0..6)) {
            let vectors: Vec<Vec<u32>> = lists.iter().map(|list| list.iter().copied().collect()).collect();
            let mut slices: Vec<&[u32]> = vectors.iter().map(Vec::as_slice).collect();
            let mut kept = vec![99];
            all(&mut slices, &mut kept);
            let is_in_all = |id: &u32| !lists.is_empty() && lists.iter().all(|list| list.contains(id));
            prop_assert_eq!(kept, (0..60).filter(is_in_all).collect::<Vec<u32>>());
        }
    }
}
