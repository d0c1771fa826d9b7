//! The maps that are asked once per event. They are bounded, so nobody gains by choosing keys that collide.

/// A map with a quick hash.
pub type Map<K, V> = rustc_hash::FxHashMap<K, V>;

/// A set with a quick hash.
pub(crate) type Set<K> = rustc_hash::FxHashSet<K>;
