//! The OVF properties of a worker.

use std::collections::BTreeMap;

use contract::properties as keys;
use contract::properties::parse::addresses::DHCP;
use contract::role::Role;

use super::pool::Pool;
use super::token::Token;
use super::worker_record::WorkerRecord;

/// Properties that all workers of a cluster get. They are its name, the address of its API, the hash of its CA, its gateway, DNS
/// and time servers, its SSH keys, and others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site(pub BTreeMap<String, String>);

impl Site {
    /// Whether workers get a property with the value of the control-plane nodes, if those have it.
    pub fn shares(key: &str) -> bool {
        const OF_ONE_NODE: [&str; 6] =
            [keys::ROLE, keys::NODE_NAME, keys::ADDRESS, keys::DATA_ADDRESS, keys::ROUTES, keys::TIMEOUT_FACTOR];
        let of_both = [Role::TenantControlPlane, Role::Worker];
        let is_used = |row: &keys::Property| of_both.iter().all(|role| row.need(*role).is_some());
        keys::find(key).is_some_and(is_used) && !OF_ONE_NODE.contains(&key)
    }

    /// How many times longer than usual workers should wait for anything.
    pub(super) fn timeout_factor(&self) -> u32 {
        self.0.get(keys::TIMEOUT_FACTOR).and_then(|text| text.parse().ok()).filter(|factor| *factor > 0).unwrap_or(1)
    }

    /// The properties of one worker. `labels` are those of its node that the pool does not set.
    pub(super) fn properties(
        &self,
        pool: &Pool,
        machine: &WorkerRecord,
        token: &Token,
        mut labels: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let mut properties = self.0.clone();
        let mut set = |key: &str, value: String| {
            if !value.is_empty() {
                properties.insert(key.to_owned(), value);
            }
        };
        let template = &machine.template;
        labels.extend(template.labels.clone());
        let labels = labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        let taints = template.taints.iter().cloned().collect::<Vec<_>>();
        set(keys::ROLE, Role::Worker.to_string());
        set(keys::NODE_NAME, machine.name.clone());
        set(keys::NODE_POOL, pool.name.clone());
        set(keys::NODE_LABELS, labels.join(","));
        set(keys::NODE_TAINTS, taints.join(","));
        set(keys::JOIN_TOKEN, token.joined().expose().to_owned());
        set(
            keys::ADDRESS,
            match (machine.address, &pool.addresses) {
                (Some(address), Some(addresses)) => format!("{address}/{}", addresses.prefix),
                _ => DHCP.to_owned(),
            },
        );
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fake::pool;
    use super::*;

    /// The agent's checks.
    #[test]
    fn a_worker_gets_only_properties_of_its_role() {
        let mut pool = pool(1);
        pool.template.taints.insert("example.com/edge=true:NoSchedule".to_owned());
        let address = pool.addresses.as_ref().and_then(|addresses| addresses.iter().next());
        pool.last_index = 1;
        let machine = WorkerRecord::new(&pool, uuid::Uuid::from_u128(1), address, 0);
        let hash = format!("sha256:{}", "0a".repeat(32));
        let site = [(keys::CLUSTER_NAME, "t"), (keys::API_VIP, "10.0.0.10"), (keys::CLUSTER_CA_HASH, &hash)];
        let site = Site(site.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let told = site.properties(&pool, &machine, &Token::new(&machine.name, 0, 1), BTreeMap::new());
        for (key, value) in &told {
            let property = keys::find(key).unwrap_or_else(|| panic!("{key} is no property"));
            assert!(property.need(Role::Worker).is_some(), "{key} is not a worker's");
            property.parse(value).unwrap_or_else(|findings| panic!("{key}: {findings}"));
        }
        let needed = keys::table().iter().filter(|property| property.required(Role::Worker));
        let lacking: Vec<_> = needed.map(|property| property.key).filter(|key| !told.contains_key(*key)).collect();
        assert!(lacking.is_empty(), "{lacking:?}");
        assert_eq!((told[keys::ROLE].as_str(), told[keys::NODE_POOL].as_str()), ("worker", "general"));
        assert_eq!(told[keys::ADDRESS], "10.0.0.20/24");
        let leased = WorkerRecord { address: None, ..machine };
        let zone = |name: &str| BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), name.to_owned())]);
        let without = Pool { addresses: None, ..pool };
        let told = site.properties(&without, &leased, &Token::new("w", 0, 1), zone("a"));
        assert_eq!(told[keys::ADDRESS], "dhcp");
        assert_eq!(told[keys::NODE_LABELS], "tier=web,topology.kubernetes.io/zone=a");
        let property = keys::find(keys::NODE_LABELS).unwrap();
        assert!(property.parse(&told[keys::NODE_LABELS]).is_ok());
        let mut own = leased;
        own.template.labels = zone("mine");
        let told = site.properties(&without, &own, &Token::new("w", 0, 1), zone("a"));
        assert_eq!(told[keys::NODE_LABELS], "topology.kubernetes.io/zone=mine", "a person has said so");
    }
}
