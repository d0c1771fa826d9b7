//! Tenants of clients with a proven identity. Does not contain certificates, or a tenant's share.

use crate::encryption::PeerIdentity;
use leeward_core::units::Tenant;
use std::collections::BTreeMap;

/// Tenants by identity. Without a table each identity has a number of its own
/// ([`PeerIdentity::tenant`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantTable {
    known: BTreeMap<String, Tenant>,
    unknown: UnknownIdentities,
}

/// Handling of identities that are not in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownIdentities {
    /// Each has a tenant of its own, as without a table.
    #[default]
    Individual,
    /// All share [`Tenant::DEFAULT`].
    Shared,
    /// Each is rejected with an error, and its connection closes.
    Refused,
}

impl TenantTable {
    /// Makes a table from written identities: a URI as it is, `dns:` before a name, `sha256:`
    /// before a fingerprint. Of two entries for one identity the later one counts.
    pub fn new(known: impl IntoIterator<Item = (String, Tenant)>, unknown_identities: UnknownIdentities) -> Self {
        TenantTable { known: known.into_iter().collect(), unknown: unknown_identities }
    }

    /// The identity's tenant; `None`: the identity is rejected.
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
    fn the_table_maps_identities_and_a_policy_the_unknown_ones() {
        let known = [("spiffe://example/web".into(), Tenant(7)), ("dns:batch.example".into(), Tenant::DEFAULT)];
        let [web, batch] =
            [PeerIdentity::Uri("spiffe://example/web".into()), PeerIdentity::Dns("batch.example".into())];
        let unknown = PeerIdentity::Uri("dns:batch.example ".into());
        for (policy, expected) in [
            (UnknownIdentities::Individual, Some(unknown.tenant())),
            (UnknownIdentities::Shared, Some(Tenant::DEFAULT)),
            (UnknownIdentities::Refused, None),
        ] {
            let table = TenantTable::new(known.clone(), policy);
            assert_eq!((table.find(&web), table.find(&batch)), (Some(Tenant(7)), Some(Tenant::DEFAULT)));
            assert_eq!(table.find(&unknown), expected);
        }
        assert_eq!(TenantTable::default().find(&web), Some(web.tenant()));
    }
}
