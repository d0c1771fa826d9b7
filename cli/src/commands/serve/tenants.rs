//! `leeward serve --tls-tenants FILE`: maps the names in client certificates to tenants, from a
//! strictly read TOML file. Does not contain the tenants' shares.

use anyhow::anyhow;
use leeward_core::params::RawParam;
use leeward_core::units::Tenant;
use leeward_lab::ScenarioError;
use leeward_lab::scenario::settings::{Pair, Settings};
use leeward_rpc::server::{TenantTable, UnknownIdentities};

use super::args::ServeArgs;
use crate::failure::Failure;

const TENANTS: &str = "tenants";
const UNKNOWN: &str = "strangers";
const POLICY_NAMES: [&str; 3] = ["own", "shared", "refused"];
const POLICIES: [UnknownIdentities; 3] =
    [UnknownIdentities::Individual, UnknownIdentities::Shared, UnknownIdentities::Refused];

/// Opens the table of tenants, if a file is named.
pub(super) fn open(args: &ServeArgs) -> Result<Option<TenantTable>, Failure> {
    let Some(path) = &args.tls_tenants else { return Ok(None) };
    if args.tls_client_ca.is_none() {
        return Err(Failure::Input(anyhow!(
            "--tls-tenants: --tls-client-ca is missing, the file with the authorities of the clients"
        )));
    }
    Ok(Some(parse_table(&Settings::load(path, &[UNKNOWN, TENANTS])?)?))
}

fn parse_table(settings: &Settings) -> Result<TenantTable, ScenarioError> {
    let unknown =
        settings.choice(UNKNOWN, &POLICY_NAMES)?.map_or(UnknownIdentities::Individual, |index| POLICIES[index]);
    let tenant = |Pair { name, value }: Pair| match value {
        RawParam::Integer(number) if u32::try_from(number).is_ok() => Ok((name, Tenant(number as u32))),
        other => {
            let problem = format!("`{other}` is no tenant's number: from 0, which means no tenant, to 4294967295");
            Err(settings.error_in(TENANTS, &name, &problem))
        }
    };
    let known = settings.pairs(TENANTS)?.into_iter().map(tenant).collect::<Result<Vec<_>, _>>()?;
    Ok(TenantTable::new(known, unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TenantTable, String> {
        Settings::parse("t.toml", text, &[UNKNOWN, TENANTS])
            .and_then(|settings| parse_table(&settings))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_tenant_file_is_parsed_strictly() {
        let table =
            parse("strangers = \"refused\"\n[tenants]\n\"spiffe://example/web\" = 7\n\"dns:batch.example\" = 0\n");
        let known = [("spiffe://example/web".into(), Tenant(7)), ("dns:batch.example".into(), Tenant(0))];
        assert_eq!(table, Ok(TenantTable::new(known, UnknownIdentities::Refused)));
        assert_eq!(parse(""), Ok(TenantTable::default()));
        for (text, problem) in [
            ("strangers = \"gone\"\n", "t.toml:1: strangers: "),
            ("[tenants]\na = -1\n", "t.toml:2: tenants.a: `-1` is no tenant's number"),
            ("[tenants]\na = 4294967296\n", "t.toml:2: tenants.a: "),
            ("[tenants]\na = \"7\"\n", "t.toml:2: tenants.a: "),
            ("tenants = 7\n", "t.toml:1: tenants: "),
            ("tenant = 7\n", "t.toml:1: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(problem), "{text:?}: {error}");
        }
    }
}
