//! Tenants of clients that have proven who they are. Never here: certificates, and what a tenant's share is.

use crate::encryption::PeerIdentity;
use leeward_core::units::Tenant;
use std::collections::BTreeMap;

/// Tenants by identity. Without a table each identity has a number of its own ([`PeerIdentity::tenant`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantTable {
    known: BTreeMap<String, Tenant>,
    unknown: UnknownIdentities,
}

/// Fate of identities that a table does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownIdentities {
    /// Each counts for a number of its own, as without a table.
    #[default]
    Individual,
    /// All count for [`Tenant::DEFAULT`] together.
    Shared,
    /// None is taken: each is told so, and its connection ends.
    Refused,
}

impl TenantTable {
    /// A table of identities as they are written: a URI as it is, `dns:` before a name, `sha256:` before a fingerprint. Of two entries of one
    /// identity the later one counts.
    pub fn new(known: impl IntoIterator<Item = (String, Tenant)>, strangers: UnknownIdentities) -> Self {
        TenantTable { known: known.into_iter().collect(), unknown: strangers }
    }

    /// The tenant that an identity counts for; `None`: it is refused.
    pub fn find(&self, identity: &PeerIdentity) -> Option<Tenant> {
        match (self.known.get(&identity.to_string()), self.unknown) {
            (Some(tenant), _) => Some(*tenant),
            (None, UnknownIdentities::Individual) => Some(identity.tenant()),
            (None, UnknownIdentities::Shared) => Some(Tenant::DEFAULT),
            (None, UnknownIdentities::Refused) => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_table_decides_and_strangers_have_one_fate() {
        let known = [("spiffe://example/web".into(), Tenant(7)), ("dns:batch.example".into(), Tenant::DEFAULT)];
        let [web, batch] =
            [PeerIdentity::Uri("spiffe://example/web".into()), PeerIdentity::Dns("batch.example".into())];
        let stranger = PeerIdentity::Uri("dns:batch.example ".into());
        for (strangers, fate) in [
            (UnknownIdentities::Individual, Some(stranger.tenant())),
            (UnknownIdentities::Shared, Some(Tenant::DEFAULT)),
            (UnknownIdentities::Refused, None),
        ] {
            let table = TenantTable::new(known.clone(), strangers);
            assert_eq!((table.find(&web), table.find(&batch)), (Some(Tenant(7)), Some(Tenant::DEFAULT)));
            assert_eq!(table.find(&stranger), fate);
        }
        assert_eq!(TenantTable::default().find(&web), Some(web.tenant()));
    }
}
