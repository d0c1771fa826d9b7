//! Threading setups of a tier in experiments: their training. The policies are `leeward-control`'s, the tiers `leeward-sim`'s.

pub mod train;
