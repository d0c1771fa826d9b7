//! Maps that are queried once per event. They are bounded, so an attacker gains nothing from
//! colliding keys.

/// A map with a fast hash.
pub type Map<K, V> = rustc_hash::FxHashMap<K, V>;

/// A set with a fast hash.
pub(crate) type Set<K> = rustc_hash::FxHashSet<K>;
