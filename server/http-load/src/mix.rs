//! The mix of requests: target, class and tenant of each, drawn from the seed.

use leeward_workload::alias::AliasTable;
use leeward_workload::rng::{Purpose, Rng};

use crate::config::{HttpLoadConfig, Share};

/// Target, class and tenant of a request, by their indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestKind {
    pub(crate) target: u16,
    pub(crate) class: u16,
    pub(crate) tenant: u16,
    /// User within the class, 0 to 15: spreads the priorities of a class.
    pub(crate) user: u8,
}

/// Draws the kinds of requests, each from the request's own random bits.
pub(crate) struct Mix {
    targets: AliasTable,
    classes: AliasTable,
    tenants: AliasTable,
    /// The targets of each endpoint, for closed loops.
    by_endpoint: Vec<(Vec<u16>, AliasTable)>,
}

impl Mix {
    /// Creates the mix. `endpoint_of` has the index of each target's endpoint.
    pub(crate) fn new(config: &HttpLoadConfig, endpoint_of: &[usize]) -> Self {
        let weights: Vec<f64> = config.targets.iter().map(|target| target.weight).collect();
        let table = |shares: &[Share]| AliasTable::new(&shares.iter().map(|share| share.weight).collect::<Vec<_>>());
        let count = endpoint_of.iter().max().map_or(0, |last| last + 1);
        let by_endpoint = (0..count).map(|endpoint| {
            let own =
                || endpoint_of.iter().enumerate().filter(move |(_, of)| **of == endpoint).map(|(target, _)| target);
            let own_weights: Vec<f64> = own().map(|target| weights[target]).collect();
            (own().map(|target| target as u16).collect(), AliasTable::new(&own_weights))
        });
        Mix {
            targets: AliasTable::new(&weights),
            classes: table(&config.classes),
            tenants: table(&config.tenants),
            by_endpoint: by_endpoint.collect(),
        }
    }

    /// Draws the kind of a request from its random bits.
    pub(crate) fn draw(&self, random: u64) -> RequestKind {
        let mut rng = Rng::new(random, Purpose::Kinds);
        let target = self.targets.draw(&mut rng) as u16;
        self.draw_for_target(target, &mut rng)
    }

    /// Draws the kind of a request to a target of this endpoint.
    pub(crate) fn draw_for(&self, endpoint: usize, random: u64) -> RequestKind {
        let mut rng = Rng::new(random, Purpose::Kinds);
        let (targets, table) = &self.by_endpoint[endpoint];
        let target = targets[table.draw(&mut rng) as usize];
        self.draw_for_target(target, &mut rng)
    }

    fn draw_for_target(&self, target: u16, rng: &mut Rng) -> RequestKind {
        let (class, tenant) = (self.classes.draw(rng) as u16, self.tenants.draw(rng) as u16);
        RequestKind { target, class, tenant, user: (rng.bits() >> 60) as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;
    use leeward_core::units::Nanos;

    fn config() -> HttpLoadConfig {
        let targets = ["http://a/ 3", "http://b/", "http://a/2"].map(|text| Target::parse(text).unwrap());
        let share = |name: &str, weight| Share { name: name.into(), weight };
        HttpLoadConfig {
            classes: vec![share("critical", 0.25), share("batch", 0.75)],
            ..HttpLoadConfig::new(targets.to_vec(), Nanos::from_millis(1))
        }
    }

    #[test]
    fn a_seed_draws_one_sequence_with_its_shares() {
        let mix = Mix::new(&config(), &[0, 1, 0]);
        let draw = |seed| {
            let mut bits = Rng::new(seed, Purpose::Clients);
            (0..10_000).map(|_| mix.draw(bits.bits())).collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
        let share = |of: &dyn Fn(&RequestKind) -> bool| drawn.iter().filter(|kind| of(kind)).count() as f64 / 1e4;
        assert!((share(&|kind| kind.class == 0) - 0.25).abs() < 0.02);
        assert!((share(&|kind| kind.target == 0) - 0.6).abs() < 0.02);
        assert!(drawn.iter().all(|kind| kind.tenant == 0 && kind.user < 16));
    }

    #[test]
    fn an_endpoint_gets_its_own_targets() {
        let mix = Mix::new(&config(), &[0, 1, 0]);
        assert!((0..100).all(|bits| [0, 2].contains(&mix.draw_for(0, bits).target)));
        assert!((0..100).all(|bits| mix.draw_for(1, bits).target == 1));
    }
}
